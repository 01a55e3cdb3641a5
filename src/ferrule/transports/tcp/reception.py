"""The connections of one listening socket, from the door to the end.

Rule: whoever came in holds one place of the admission, and it is given back exactly once, also when a link cannot be
made for it.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from contextlib import suppress
from typing import Any, cast

from ferrule.errors import Busy
from ferrule.supervision.scope import Scope
from ferrule.transports.accepting import Farewells
from ferrule.transports.admission import Admission
from ferrule.transports.contract import Acceptor
from ferrule.transports.stream import StreamChannel, frame_as_lines, frame_with_headers
from ferrule.transports.tcp.settings import ServedSettings
from ferrule.transports.tcp.sockets import hung_up, prepare
from ferrule.wire.channel import Origin, Receiver, Traits
from ferrule.wire.codec import encode
from ferrule.wire.framing import Framer
from ferrule.wire.messages import ErrorObject, Failure

logger = logging.getLogger("ferrule.transports")

LONGEST_PERIOD = 30.0
SHORTEST_PERIOD = 0.02
LOOKS_PER_TIMEOUT = 10
FIRST_LOOK, LATER_LOOK = 0.005, 0.1
TLS_SHUTDOWN_TIME = 5.0
LAST_GRACE = 1.0
LAST_WORDS_TIME = 10.0
"""How long a peer may take nothing of what was said to it before the end."""


class Served(StreamChannel):
    """The channel to one peer that reached us."""

    traits = Traits(closes_on_garbage=True)

    def __init__(self, link: Receiver, framer: Framer, reception: Reception) -> None:
        settings = reception.settings
        super().__init__(
            link, framer, on_oversize=settings.on_oversize, public=True, write_timeout=settings.write_timeout
        )
        self.link = link
        self._reception = reception
        self._heard, self._left = 0, -1
        self._quiet_since = self._loop.time()

    def _end_handed_over(self) -> None:
        """Answer what was asked before the end, then end too."""
        if self._transport.can_write_eof():
            self._reception.finish(self)

    def _lose(self) -> None:
        """Tell the link, and free the place."""
        try:
            super()._lose()
        finally:
            self._reception.forget(self)

    @property
    def deserted(self) -> bool:
        """Whether nobody is left to take our answers, as far as the system knows."""
        return hung_up(self._transport.get_extra_info("socket"))

    def look_after(self, now: float, idle_timeout: float | None) -> None:
        """Cut a peer that does not take our last words, and let one go that says nothing and waits for nothing."""
        if self._closing:
            self._see_out(now)
        elif self.bytes_in != self._heard:
            self._heard, self._quiet_since = self.bytes_in, now
        elif idle_timeout is not None and now - self._quiet_since >= idle_timeout and not self._reception.busy(self):
            logger.info("a peer sent nothing for %g s: closed", idle_timeout)
            self.close("idle")

    def _see_out(self, now: float) -> None:
        """Wait for as long as the peer takes some of what is left for it."""
        left = self._transport.get_write_buffer_size()
        if left != self._left:
            self._left, self._quiet_since = left, now
        elif now - self._quiet_since >= LAST_WORDS_TIME:
            self.abort()


class Arrival(asyncio.Protocol):
    """Stands at the door until a peer can be spoken to, which takes a handshake where there is TLS."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self.served: Served | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make a link for the peer, and hand the stream over to its channel."""
        stream = cast("asyncio.Transport", transport)
        try:
            self.served = self._reception.welcome(stream)
            stream.set_protocol(self.served)
            self.served.connection_made(stream)
        except Exception:
            logger.exception("no link could be made for a new peer")
            stream.abort()


class Reception:
    """The connections of one listening socket."""

    def __init__(
        self,
        acceptor: Acceptor,
        settings: ServedSettings,
        carrier: str,
        admission: Admission,
        *,
        context: ssl.SSLContext | None = None,
        handshake_timeout: float = 10.0,
    ) -> None:
        self.settings = settings
        self.served: set[Served] = set()
        self._acceptor = acceptor
        self._carrier = carrier
        self._admission = admission
        self._context = context
        self._tls_times: dict[str, float] = {}
        if context is not None:
            self._tls_times = {"ssl_handshake_timeout": handshake_timeout, "ssl_shutdown_timeout": TLS_SHUTDOWN_TIME}
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        self._farewells = Farewells(self._loop)
        self._empty = asyncio.Event()
        self._period = look_period(settings.idle_timeout)
        self._looking = self._loop.call_later(self._period, self._look)

    def take(self, accepted: socket.socket) -> None:
        """Take a new connection in, or turn it away with the reason."""
        full = self._admission.enter()
        if full:
            self._farewells.turn_away(accepted, self.refusal(full))
        else:
            self._scope.spawn(self._attach(accepted))

    def refusal(self, why: str = "this machine has no room for another connection") -> bytes:
        """Write what is said to a peer that is turned away; one that begins with TLS could not read it."""
        if self._context is not None:
            return b""
        busy = Busy(f"Too many connections: {why}")
        payload = encode(Failure(None, ErrorObject(busy.code, busy.message, busy.data)))
        frame = frame_with_headers if self.settings.framing == "content-length" else frame_as_lines
        return b"".join(frame([payload], len(payload)))

    async def _attach(self, accepted: socket.socket) -> None:
        arrival = Arrival(self)
        try:
            accepted.setblocking(False)
            prepare(accepted, self.settings)
            await self._loop.connect_accepted_socket(lambda: arrival, accepted, ssl=self._context, **self._tls_times)
        except OSError as error:
            # The peer went away, has no good certificate or does not speak TLS: its own affair.
            logger.debug("a peer did not come in: %s", error)
        except Exception:
            logger.exception("a new peer could not be taken in")
        finally:
            if arrival.served is None:
                accepted.close()
                self._admission.leave()

    def welcome(self, stream: asyncio.Transport) -> Served:
        """Make a link for a peer that can be spoken to, and its channel."""
        host, address = _address(stream)
        origin = Origin(self._carrier, address=address, principal=_principal(stream), host=host)
        # Whatever can fail comes before the link: once made, a link is remembered until its channel is lost.
        framer = self.settings.framer()
        served = Served(self._acceptor.link(origin), framer, self)
        self.served.add(served)
        self._empty.clear()
        return served

    def forget(self, served: Served) -> None:
        """Free the place of a peer that is gone."""
        self.served.discard(served)
        self._admission.leave()
        if not self.served:
            self._empty.set()

    def busy(self, served: Served) -> bool:
        """Tell whether anything a peer asked still runs."""
        return self._acceptor.busy(served.link)

    def finish(self, served: Served) -> None:
        """Close a channel whose peer asks nothing more, once everything is answered."""
        self._scope.spawn(self._finish(served))

    async def _finish(self, served: Served) -> None:
        pause = FIRST_LOOK
        while not served.lost and self.busy(served):
            if served.deserted:
                served.abort()
            await asyncio.sleep(pause)
            pause = min(pause * 2, LATER_LOOK)
        served.close()

    def _look(self) -> None:
        now = self._loop.time()
        self._looking = self._loop.call_later(self._period, self._look)
        for served in list(self.served):
            try:
                served.look_after(now, self.settings.idle_timeout)
            except Exception:
                # All limits of time hang on this loop: no single peer may end it.
                logger.exception("could not look after a connection")

    async def close(self, grace: float) -> None:
        """Let what was sent be taken within `grace` seconds, then cut every connection and release everything."""
        self._farewells.end()
        for served in list(self.served):
            served.close()
        await self._wait_empty(grace)
        self._looking.cancel()
        await self._scope.close()
        for served in list(self.served):
            served.abort()
        # A stream reports its end in a later turn of the loop.
        await self._wait_empty(LAST_GRACE)

    async def _wait_empty(self, within: float) -> None:
        if self.served:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), within)


def look_period(idle_timeout: float | None) -> float:
    """Give how often to look after connections: often enough that the limit is kept to about a tenth."""
    wanted = LONGEST_PERIOD if idle_timeout is None else idle_timeout / LOOKS_PER_TIMEOUT
    return max(SHORTEST_PERIOD, min(LONGEST_PERIOD, wanted))


def _address(stream: asyncio.Transport) -> tuple[str, str]:
    """Return the peer's host, and host and port; both are empty where it has none."""
    name: Any = stream.get_extra_info("peername")
    if not isinstance(name, tuple):
        return "", ""
    return str(name[0]), f"{name[0]}:{name[1]}"


def _principal(stream: asyncio.Transport) -> str | None:
    """Give the common name of a certificate that was asked for and proved; None without one."""
    certificate = stream.get_extra_info("peercert")
    subject = certificate.get("subject", ()) if certificate else ()
    return next((value for part in subject for name, value in part if name == "commonName"), None)
