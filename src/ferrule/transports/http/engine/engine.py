"""The HTTP server: sockets, the sweep over deadlines, and an orderly end."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from ferrule.errors import SetupError
from ferrule.supervision.scope import Scope
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.engine.state import RETRY_AFTER, EngineState, Heir, NewConnection, Successor
from ferrule.transports.http.message import Handle, Transfer
from ferrule.transports.http.settings import EngineSettings, Http2Settings
from ferrule.transports.sockets.accept import LingeringCloses, SocketAcceptor
from ferrule.transports.sockets.admission import Admission, warn_of_few_descriptors
from ferrule.transports.sockets.bind import duplicates, listen
from ferrule.transports.sockets.tls import HTTP2, ask_for_certificates, server_context
from ferrule.wire.codec import MAX_MESSAGE_SIZE

if TYPE_CHECKING:
    from ferrule.telemetry.observer import Observers

logger = logging.getLogger("ferrule.http")

LONGEST_PERIOD = 1.0
SHORTEST_PERIOD = 0.02
TLS_SHUTDOWN_TIME = 5.0
LAST_GRACE = 1.0
TURNS = 8
"""Turns of the loop within which a new transport calls `connection_made`: two would do."""


Attaching = Coroutine[Any, Any, object]


class Engine:
    """Serves HTTP requests by one function."""

    def __init__(
        self,
        handle: Handle,
        settings: EngineSettings | None = None,
        *,
        max_body_size: int = MAX_MESSAGE_SIZE,
        observer: Observers | None = None,
        failed: Callable[[OSError], None] | None = None,
    ) -> None:
        self._settings = settings or EngineSettings()
        self._failed = failed
        """Called when a listening socket is dead."""
        self._context = server_context(self._settings, "http")
        if self._context is not None and self._settings.client_ca is not None:
            ask_for_certificates(self._context, self._settings.client_ca)
        self._engine_state = EngineState(handle, self._settings, max_body_size, observer)
        self._admission = Admission("HTTP", self._settings.max_connections)
        self._engine_state.http2 = _speaker(self._settings)
        if self._context:
            protocols = ["http/1.1"]
            if self._engine_state.http2 is not None:
                protocols.insert(0, HTTP2)
            self._context.set_alpn_protocols(protocols)
        self._accepting: list[SocketAcceptor] = []
        self._unattached: set[socket.socket] = set()
        """Accepted, and not yet in the hands of a transport: those that come with TLS."""
        self._attaching: deque[tuple[asyncio.Future[None], Attaching, Connection]] = deque()
        """What gives those without TLS to a transport, and waits until their `connection_made` was called."""
        self._sweeping: asyncio.TimerHandle | None = None
        self._period = _sweep_period(self._settings)
        self.address = ("", 0)
        """Where it listens: host and port, once started."""

    async def start(self, inherited: Sequence[socket.socket] = ()) -> None:
        """Listen, on sockets that were inherited or on our own, and serve whoever comes; raises CarrierError."""
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        self._lingering = LingeringCloses(self._loop)
        sockets = duplicates(inherited) or await listen(self._settings)
        self.address = sockets[0].getsockname()[:2]
        self._admission.name = f"HTTP at port {self.address[1]}"
        warn_of_few_descriptors(self._settings.max_connections)
        self._sweep()
        for each in sockets:
            accepting = SocketAcceptor(each, self._take, self._no_descriptors, self._failed)
            accepting.start()
            self._accepting.append(accepting)

    @property
    def traffic(self) -> tuple[int, int]:
        """How many bytes were read and written on all its connections, those that are over included."""
        return self._engine_state.traffic

    def end_after_answers(self) -> None:
        """Go on serving, and end each connection with its next answer: its peer comes back on another."""
        self._engine_state.leaving = True
        for connection in self._engine_state.connections:
            connection.last = True

    def stop(self) -> None:
        """Accept nobody new, close idle connections, and let the others end with the answer they wait for."""
        self._engine_state.draining = True
        self._stop_accepting()
        for connection in list(self._engine_state.connections):
            connection.drain()

    async def drain(self, grace: float) -> None:
        """Stop, and cut what is not answered within `grace` seconds."""
        self.stop()
        await self._engine_state.wait_empty(grace)
        await self.close()

    async def close(self) -> None:
        """Cut every connection and release everything; harmless when called again."""
        self._stop_accepting()
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
            await self._scope.close()
        # Who arrived in the last moment is in nobody's hands: its task may have ended before it began.
        while self._unattached:
            self._unattached.pop().close()
        # A transport that has not called `connection_made` must not be closed (uvloop 0.23 crashes): it calls it soon.
        for _ in range(TURNS):
            self._end_attaching()
            if self._attaching:
                await asyncio.sleep(0)
        for connection in list(self._engine_state.connections):
            connection.abort()
        # A transport reports its end in a later turn of the loop.
        await self._engine_state.wait_empty(LAST_GRACE)

    def _stop_accepting(self) -> None:
        while self._accepting:
            self._accepting.pop().stop()
            self._lingering.end()

    def leave_to(self, heir: Heir) -> None:
        """Accept nobody new, and leave the connections to another process: each when what it asked is answered."""
        self._engine_state.heir = heir
        self.stop()

    def adopt(self, connected: socket.socket, received: bytes, transfers: int) -> None:
        """Serve a connection that another process has accepted, and has read the beginning of."""
        heir = self._engine_state.heir
        if heir is not None:
            heir(Transfer(connected.detach(), received, transfers))
        elif self._engine_state.draining:
            connected.close()
        else:
            self._take(connected, received, transfers)

    def _take(self, accepted: socket.socket, received: bytes = b"", transfers: int = 0) -> None:
        engine_state = self._engine_state
        inside = len(engine_state.connections) + len(engine_state.arriving)
        if inside >= self._settings.max_connections:
            if engine_state.observed is not None:
                engine_state.observed.refused("too_many_connections")
            self._lingering.turn_away(accepted, self._no_room())
            return
        self._admission.note(inside + 1)
        connection = Connection(engine_state, self._loop, received, transfers)
        engine_state.arriving.add(connection)
        if self._context is None:
            self._attach(connection, accepted)
        else:
            self._unattached.add(accepted)
            self._scope.spawn(self._attach_secure(connection, accepted))

    def _no_descriptors(self) -> bytes:
        """Return what is said to a peer that is turned away for want of descriptors."""
        if self._engine_state.observed is not None:
            self._engine_state.observed.refused("no_descriptors")
        return self._no_room()

    def _no_room(self) -> bytes:
        # A peer that begins with the TLS handshake could not read it.
        if self._context:
            return b""
        return self._engine_state.refusal(503, "too many connections", RETRY_AFTER)

    def _attach(self, connection: Connection, accepted: socket.socket) -> None:
        """Hand a connection to the event loop, without a task: for a socket without TLS there is nothing to wait for
        but the call of `connection_made`, in the next turn of the loop."""
        attaching = self._loop.connect_accepted_socket(lambda: connection, accepted)
        try:
            made = attaching.send(None)
        except StopIteration:
            # A loop may call `connection_made` at once.
            self._engine_state.arriving.discard(connection)
            return
        except OSError:
            accepted.close()
            self._engine_state.arriving.discard(connection)
            return
        # What a task does with a future that is awaited.
        made._asyncio_future_blocking = False  # noqa: SLF001
        self._attaching.append((made, attaching, connection))
        self._end_attaching()

    def _end_attaching(self) -> None:
        """Go on after `connection_made` of those that came before: a callback for each would cost a turn of its own."""
        waiting = self._attaching
        while waiting and waiting[0][0].done():
            _, attaching, connection = waiting.popleft()
            try:
                attaching.send(None)
            except StopIteration:
                continue
            except OSError:
                pass  # the peer went away
            except Exception:  # it ends in the turn of another connection, or of the sweep
                logger.exception("could not attach a connection")
            # Its `connection_made`, which would have said that it arrived, may not have been called.
            self._engine_state.arriving.discard(connection)

    async def _attach_secure(self, connection: Connection, accepted: socket.socket) -> None:
        """Hand a connection to the event loop, and wait until the TLS handshake is made."""
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._context,
                ssl_handshake_timeout=self._settings.head_timeout,
                ssl_shutdown_timeout=TLS_SHUTDOWN_TIME,
            )
            self._unattached.discard(accepted)
        except OSError:
            # The peer went away, or does not speak TLS: its own affair.
            self._unattached.discard(accepted)
            accepted.close()
        finally:
            self._engine_state.arriving.discard(connection)

    def _sweep(self) -> None:
        now = self._loop.time()
        self._sweeping = self._loop.call_later(self._period, self._sweep)
        self._engine_state.tick(now + self._period)
        self._end_attaching()
        for connection in list(self._engine_state.connections):
            try:
                connection.sweep(now)
            except Exception:
                # All limits of time hang on this loop: no single connection may end it.
                logger.exception("could not look after a connection")


def _speaker(settings: EngineSettings) -> NewConnection | None:
    """Return what makes connections that speak HTTP/2; None where it is off. Raises SetupError where it is missing."""
    http2 = Http2Settings.of(settings.http2)
    if http2 is None:
        return None
    try:
        import h2  # noqa: F401
    except ImportError:
        if settings.http2 is None:
            return None
        raise SetupError("http2 needs the library h2: pip install 'ferrule[http2]', or leave the option out") from None

    def new_connection(engine_state: EngineState, loop: asyncio.AbstractEventLoop) -> Successor:
        from ferrule.transports.http.engine.http2.connection import Http2Connection

        return Http2Connection(engine_state, http2, loop)

    return new_connection


def _sweep_period(settings: EngineSettings) -> float:
    """Return how often to look at deadlines: often enough that the shortest one is kept to about a quarter."""
    times = (settings.head_timeout, settings.body_timeout, settings.idle_timeout, settings.write_timeout)
    return max(SHORTEST_PERIOD, min(LONGEST_PERIOD, min(times) / 4))
