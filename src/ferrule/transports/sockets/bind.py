"""Listening sockets, with errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import select
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from ferrule.errors import CarrierError, SetupError

KEEPALIVE_IDLE = 30
KEEPALIVE_INTERVAL = 10
KEEPALIVE_PROBES = 2
UNACKNOWLEDGED_MS = 60_000


class SocketOptions(Protocol):
    """How a socket is set up; the settings of a transport are one."""

    @property
    def buffer_size(self) -> int | None:
        """Bytes of each of its two buffers; None: as the system has them."""

    @property
    def nodelay(self) -> bool:
        """Whether what is written is sent at once."""

    @property
    def keepalive(self) -> bool:
        """Whether silent peers are probed."""


def prepare(sock: socket.socket, settings: SocketOptions) -> None:
    """Set buffer sizes and, where there is a network in between, sending at once and the watch over silent peers."""
    if settings.buffer_size is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.buffer_size)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.buffer_size)
    if sys.platform != "win32" and sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.nodelay)
    if settings.keepalive:
        watch_over(sock)


def hung_up(sock: socket.socket) -> bool:
    """Whether a peer that has ended its side is gone, or a listening socket was shut down, where that can be told."""
    if sys.platform != "linux" or sock.fileno() < 0:
        return False
    looking = select.poll()
    looking.register(sock.fileno(), 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in looking.poll(0))


def watch_over(sock: socket.socket) -> None:
    """Find a dead peer within a minute: by probes while it is silent, otherwise by what it leaves unacknowledged."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, True)
    times = {
        "TCP_KEEPIDLE": KEEPALIVE_IDLE,
        "TCP_KEEPINTVL": KEEPALIVE_INTERVAL,
        "TCP_KEEPCNT": KEEPALIVE_PROBES,
        "TCP_USER_TIMEOUT": UNACKNOWLEDGED_MS,
    }
    for name, value in times.items():
        option = getattr(socket, name, None)
        if option is not None:
            # A system without it watches at its own pace.
            with suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


class ListeningPlace(Protocol):
    """Where to listen, and how; the settings of a listener are one."""

    @property
    def host(self) -> str:
        """The name or address; every address it has is listened on."""

    @property
    def port(self) -> int:
        """The port; 0 lets the system choose."""

    @property
    def backlog(self) -> int:
        """How many may wait to be accepted."""

    @property
    def reuse_port(self) -> bool:
        """Whether several processes may listen on this port."""


def duplicates(inherited: Sequence[socket.socket]) -> list[socket.socket]:
    """Return sockets of our own for listening sockets that outlive us: closing one closes nothing for others."""
    found = []
    for each in inherited:
        own = each.dup()
        own.setblocking(False)
        found.append(own)
    return found


async def listen(place: ListeningPlace) -> list[socket.socket]:
    """Open a listening socket for every address of the host, all on one port; raises CarrierError."""
    host = place.host
    port = place.port
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, OverflowError, UnicodeError) as error:
        raise CarrierError(f"cannot listen on {host}:{port}: this host name has no address ({error})") from error
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            wanted = (str(address[0]), port, *address[2:])
            sockets.append(_bind(family, wanted, place))
            # With port 0 the first address chooses, and the others follow.
            port = sockets[0].getsockname()[1]
    except (OSError, OverflowError) as error:
        for each in sockets:
            each.close()
        raise CarrierError(f"cannot listen on {host}:{port}: {_explain(error)}") from error
    return sockets


def _bind(family: int, address: tuple[object, ...], place: ListeningPlace) -> socket.socket:
    # asyncio sends small parts at once only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform == "win32":
            # SO_REUSEADDR would let others take the port from us there.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)
            if place.reuse_port:
                raise SetupError("no two processes can listen on one port on Windows: leave reuse_port out")
        else:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if place.reuse_port:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(place.backlog)
    except BaseException:
        listening.close()
        raise
    return listening


def _explain(error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return "a port is a number from 0 to 65535"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop the other program or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address; use 127.0.0.1 or 0.0.0.0"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "not permitted; ports below 1024 need privileges, choose another"
    return error.strerror or str(error)
