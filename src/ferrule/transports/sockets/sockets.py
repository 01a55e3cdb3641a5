"""What is set on a socket before it carries messages."""

from __future__ import annotations

import select
import socket
import sys
from contextlib import suppress

from ferrule.transports.tcp.settings import SocketSettings

KEEPALIVE_IDLE = 30
KEEPALIVE_INTERVAL = 10
KEEPALIVE_PROBES = 2
UNACKNOWLEDGED_MS = 60_000


def prepare(sock: socket.socket, settings: SocketSettings) -> None:
    """Set buffer sizes and, where there is a network in between, sending at once and the watch over silent peers."""
    if settings.buffer_size is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, settings.buffer_size)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.buffer_size)
    if sock.family == socket.AF_UNIX:
        return
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, settings.nodelay)
    if settings.keepalive:
        watch_over(sock)


def hung_up(sock: socket.socket) -> bool:
    """Tell whether a peer that says nothing more hears nothing either, where the system can tell the two apart."""
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
