"""Listeners for TCP, TLS and Unix sockets."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import stat
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from msgspec import structs

from ferrule.balancing.limiter import LimiterStats
from ferrule.errors import CarrierError, SetupError
from ferrule.settings.option import FilePath, read
from ferrule.transports.contract import Acceptor
from ferrule.transports.shutdown import ListenerEnd, left_of_grace
from ferrule.transports.sockets.accept import SocketAcceptor
from ferrule.transports.sockets.admission import Admission, process_admission, warn_of_few_descriptors
from ferrule.transports.sockets.bind import ListeningPlace, duplicates, hung_up, listen
from ferrule.transports.sockets.tls import ask_for_certificates, server_context
from ferrule.transports.tcp.address import Address
from ferrule.transports.tcp.connections import Reception
from ferrule.transports.tcp.settings import ServedSettings, TcpSettings, UnixSettings

if TYPE_CHECKING:
    from ferrule.transports.keywords import TcpKeywords, UnixKeywords


LOOK_EVERY = 1.0
"""Seconds between two looks whether the socket of a path is still ours and alive."""


def listen_unix(path: str, mode: int, backlog: int) -> socket.socket:
    """Open a listening socket at a path; raises CarrierError."""
    if sys.platform == "win32":
        raise SetupError(f"unix:{path} cannot be served: Python has no Unix sockets on Windows; serve tcp")
    _make_room(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        # Nobody can connect before `listen`, so the permissions are right from the first moment that counts.
        listening.bind(path)
        Path(path).chmod(mode)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise CarrierError(f"cannot listen on unix:{path}: {_explain(error)}") from error
    return listening


def remove_unix(path: str, identity: tuple[int, int]) -> None:
    """Remove a socket's file, unless another has taken its place."""
    with suppress(OSError):
        if identity_of(path) == identity:
            Path(path).unlink()


def identity_of(path: str) -> tuple[int, int]:
    """Return which file a path names now."""
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _make_room(path: str) -> None:
    """Remove what a dead server left; refuses to touch anything else."""
    try:
        kind = Path(path).lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind) or sys.platform == "win32":
        raise CarrierError(f"cannot listen on unix:{path}: a file of this name is there, and it is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # Only a refusal proves that nobody listens; a full backlog or a lack of rights does not.
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            with suppress(OSError):
                Path(path).unlink()
            return
    raise CarrierError(f"cannot listen on unix:{path}: another program serves there; stop it or choose another path")


def _explain(error: OSError) -> str:
    if error.errno is None:
        return f"{error}; the system takes paths of about 100 bytes at most"
    if error.errno == errno.ENOENT:
        return "its folder does not exist; make it first"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "not permitted; choose a folder you may write to"
    return error.strerror or str(error)


logger = logging.getLogger("ferrule.transports")


class SocketListener(ABC):
    """Lets peers reach us over sockets, each with a link of its own."""

    def __init__(self, settings: ServedSettings) -> None:
        self._settings = settings
        self._acceptor: Acceptor | None = None
        self._reception: Reception | None = None
        self._accepting: list[SocketAcceptor] = []
        self._admission = Admission("this server", settings.max_connections, within=process_admission)
        self._end = ListenerEnd()
        self._ended = asyncio.Event()

    @property
    def occupancy(self) -> LimiterStats:
        """How many peers are connected, and how many may be."""
        return self._admission.occupancy

    async def serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        """Serve until closed."""
        if self._acceptor is not None:
            raise SetupError(f"this {type(self).__name__} serves already")
        self._acceptor = acceptor
        self._end.begin()
        self._ended.clear()
        try:
            await acceptor.enter()
            try:
                await self._serve(acceptor, ready)
            finally:
                await acceptor.leave()
        finally:
            self._reception = self._acceptor = None
            self._ended.set()

    async def _serve(self, acceptor: Acceptor, ready: Callable[[], None]) -> None:
        try:
            await self._start(acceptor)
            ready()
            await self._end.wait()
        finally:
            self._stop_accepting()
            if self._reception is not None:
                await self._reception.close(0.0)

    async def close(self, grace: float) -> None:
        """Accept nobody new, let running calls be answered within `grace` seconds, then end."""
        acceptor = self._acceptor
        reception = self._reception
        if acceptor is None:
            return
        if reception is not None:
            loop = asyncio.get_running_loop()
            until = loop.time() + grace
            self._stop_accepting()
            await acceptor.drain(grace)
            await reception.close(left_of_grace(until))
        self._end.close()
        await self._ended.wait()

    async def _start(self, acceptor: Acceptor) -> None:
        sockets = await self._listen()
        self._admission.name = str(self._named(sockets[0]))
        warn_of_few_descriptors(self._settings.max_connections)
        self._reception = reception = self._receive(acceptor)
        for each in sockets:
            self._accept_from(each, reception)
        logger.info("serving on %s", self._admission.name)

    def _accept_from(self, listening: socket.socket, reception: Reception) -> None:
        accepting = SocketAcceptor(listening, reception.take, reception.short, self._end.fail)
        accepting.start()
        self._accepting.append(accepting)

    def _stop_accepting(self) -> None:
        while self._accepting:
            self._accepting.pop().stop()

    @property
    def url(self) -> str:
        """Where clients find us, once we listen."""
        if not self._accepting:
            raise SetupError(f"this {type(self).__name__} does not listen yet: its url is known when it is ready")
        return self._admission.name

    @abstractmethod
    async def _listen(self) -> list[socket.socket]:
        """Open the listening sockets; raises CarrierError."""

    @abstractmethod
    def _named(self, listening: socket.socket) -> Address:
        """Return the address peers use."""

    @abstractmethod
    def _receive(self, acceptor: Acceptor) -> Reception:
        """Make the place where new connections come in."""


class Tcp(SocketListener):
    """Lets clients reach us over TCP, or TLS with a certificate; the options are those of `TcpSettings`."""

    carrier = "tcp"

    def __init__(self, **options: Unpack[TcpKeywords]) -> None:
        settings = self._tcp = read(TcpSettings, options, "tcp")
        self._context = server_context(settings, "tcp")
        if self._context is not None and settings.client_ca is not None:
            ask_for_certificates(self._context, settings.client_ca)
        super().__init__(settings)
        self._address: tuple[str, int] | None = None
        self.bound_port: int | None = None
        """The port to bind in place of that in the options; None for that one."""
        self.inherited: Sequence[socket.socket] = ()
        """The listening sockets to use instead of opening some."""

    @property
    def address(self) -> tuple[str, int]:
        """The host and the port we listen on; raises SetupError before we do."""
        if self._address is None:
            raise SetupError("this Tcp does not listen yet: its address is known when it is ready")
        return self._address

    @property
    def place(self) -> ListeningPlace:
        """Where it would listen."""
        return self._tcp

    async def _listen(self) -> list[socket.socket]:
        place = self._tcp
        if self.bound_port is not None:
            place = structs.replace(place, port=self.bound_port)
        sockets = duplicates(self.inherited) or await listen(place)
        self._address = sockets[0].getsockname()[:2]
        return sockets

    def _named(self, listening: socket.socket) -> Address:
        return Address("tls" if self._context else "tcp", *listening.getsockname()[:2])

    def _receive(self, acceptor: Acceptor) -> Reception:
        return Reception(
            acceptor,
            self._tcp,
            "tcp",
            self._admission,
            context=self._context,
            handshake_timeout=self._tcp.handshake_timeout,
        )


class Unix(SocketListener):
    """Lets clients on this machine reach us over a Unix socket; the options are those of `UnixSettings`.

    Whoever removes its file, or shuts the socket down, keeps new clients out, and the system says nothing of it. So it
    looks once a second, and binds the path again; those who are connected notice nothing.
    """

    carrier = "unix"

    def __init__(self, path: FilePath = "", /, **options: Unpack[UnixKeywords]) -> None:
        given = {"path": path, **options}
        if not given["path"]:
            raise SetupError("unix: a path is needed, such as /run/user/1000/mcp.sock")
        self._unix = read(UnixSettings, given, "unix")
        self._path = os.fspath(self._unix.path)
        super().__init__(self._unix)
        self._identity: tuple[int, int] | None = None
        """Which file is ours; None while we do not listen."""
        self._listening: socket.socket | None = None
        self._looking: asyncio.TimerHandle | None = None

    async def _listen(self) -> list[socket.socket]:
        return [self._bind()]

    def _bind(self) -> socket.socket:
        self._listening = listen_unix(self._path, self._unix.mode, self._unix.backlog)
        self._identity = identity_of(self._path)
        self._look_later()
        return self._listening

    def _look_later(self) -> None:
        self._looking = asyncio.get_running_loop().call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        """Bind the path again where nobody can connect to our socket any more."""
        assert self._listening is not None
        if self._is_ours() and not hung_up(self._listening):
            self._look_later()
            return
        assert self._reception is not None
        logger.warning("unix:%s: the socket was removed or shut down; binding it again", self._path)
        self._stop_accepting()
        try:
            self._accept_from(self._bind(), self._reception)
        except CarrierError as error:
            self._end.fail(OSError(str(error)))

    def _is_ours(self) -> bool:
        """Whether the path still names the socket we made."""
        try:
            return identity_of(self._path) == self._identity
        except OSError:
            return False

    def _named(self, listening: socket.socket) -> Address:
        return Address("unix", path=self._path)

    def _receive(self, acceptor: Acceptor) -> Reception:
        return Reception(acceptor, self._unix, "unix", self._admission)

    def _stop_accepting(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._identity is not None:
            remove_unix(self._path, self._identity)
            self._identity = None
        super()._stop_accepting()
