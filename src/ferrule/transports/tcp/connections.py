"""The connections of one listening socket, from accept to close.

Rule: whoever came in holds one place of the admission, and it is given back exactly once, also when a link cannot be
made for it.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import ssl
from collections.abc import Awaitable
from contextlib import suppress
from typing import cast

import msgspec
from msgspec import Struct, structs

from ferrule.errors import Busy, Refusal, Unauthorized
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import Anonymous, RequestFacts, Verdict
from ferrule.supervision.scope import Scope
from ferrule.transports.contract import Acceptor
from ferrule.transports.sockets.accept import FAREWELL_TIME, LingeringCloses
from ferrule.transports.sockets.admission import Admission
from ferrule.transports.sockets.bind import hung_up, prepare
from ferrule.transports.sockets.observed import connections_of
from ferrule.transports.sockets.tls import peer_certificate
from ferrule.transports.stream import LOOKS_AT_WRITING, StreamChannel, frame_as_lines, frame_with_headers
from ferrule.transports.tcp.settings import AUTHENTICATE, ServedSettings
from ferrule.transports.verification import CallerWatch, Verification
from ferrule.wire.channel import Origin, Receiver, Traits
from ferrule.wire.codec import encode
from ferrule.wire.framing import Framer
from ferrule.wire.messages import ErrorObject, Failure

logger = logging.getLogger("ferrule.transports")

LONGEST_PERIOD = 30.0
SHORTEST_PERIOD = 0.02
LOOKS_PER_TIMEOUT = 10
FIRST_LOOK = 0.005
LATER_LOOK = 0.1
TLS_SHUTDOWN_TIME = 5.0
LAST_GRACE = 1.0
TOKEN_TIME = 5.0
"""How long a peer may take to show its token."""
LONGEST_TOKEN_FRAME = 8 * 1024
"""How many bytes it may take for that, the headers of the frame included."""
NO_TOKEN = f"Unauthorized: begin with the notification {AUTHENTICATE} and its param token"
LAST_WORDS_TIME = 10.0
"""How long a peer may take nothing of what was said to it before the end."""


class ServedChannel(StreamChannel):
    """The channel to one peer that reached us."""

    __slots__ = ("_heard", "_last_look", "_quiet_since", "_reception", "link", "watch")

    traits = Traits(closes_on_garbage=True)

    def __init__(self, link: Receiver, framer: Framer, reception: Reception) -> None:
        settings = reception.settings
        super().__init__(
            link, framer, on_oversize=settings.on_oversize, public=True, write_timeout=settings.write_timeout
        )
        self.link = link
        self._reception = reception
        self._heard = 0
        self._quiet_since = self._loop.time()
        self._last_look: asyncio.TimerHandle | None = None
        """Looks next whether the peer takes our last words, once the channel is closed."""
        self.watch: CallerWatch | None = None
        """Closes the channel when the principal at its other end expires."""

    def close(self, reason: str = "") -> None:
        """Write what was sent, then end the stream; a peer that takes nothing of it is cut in the end."""
        was_closing = self._closing
        super().close(reason)
        if not was_closing and self.backlog:
            self._see_out(-1, 0.0)

    def _see_out(self, left: int, since: float) -> None:
        """Wait for as long as the peer takes some of what is left for it."""
        now = self._loop.time()
        if self.backlog != left:
            left = self.backlog
            since = now
        elif now - since >= LAST_WORDS_TIME:
            self.abort()
            return
        self._last_look = self._loop.call_later(LAST_WORDS_TIME / LOOKS_AT_WRITING, self._see_out, left, since)

    def _end_handed_over(self) -> None:
        """Answer what was asked before the end, then end too."""
        if self._transport.can_write_eof():
            self._reception.finish(self)

    def _lose(self) -> None:
        """Called when the connection is gone: report it to the link, and free the place."""
        if self.watch is not None:
            self.watch.cancel()
        if self._last_look is not None:
            self._last_look.cancel()
        try:
            super()._lose()
        finally:
            self._reception.forget(self)

    @property
    def deserted(self) -> bool:
        """Whether nobody is left to take our answers, as far as the system knows."""
        return hung_up(self._transport.get_extra_info("socket"))

    def look_after(self, now: float, idle_timeout: float | None) -> None:
        """Let a peer go that says nothing and waits for nothing."""
        if self._closing:
            return
        if self.bytes_in != self._heard:
            self._heard = self.bytes_in
            self._quiet_since = now
        elif idle_timeout is not None and now - self._quiet_since >= idle_timeout and not self._reception.busy(self):
            logger.info("a peer sent nothing for %g s: closed", idle_timeout)
            self.close("idle")


class Arrival(asyncio.Protocol):
    """The protocol of a connection until the TLS handshake is done and the caller is verified."""

    def __init__(self, reception: Reception) -> None:
        self._reception = reception
        self._facts: RequestFacts | None = None
        self._shown: bytearray | None = None
        """What the peer has sent, where it begins with a token."""
        self._opening: asyncio.Future[bytes] | None = None
        """The first frame, while the peer has not sent it."""
        self.stream: asyncio.Transport | None = None
        self.pending: Awaitable[Verdict] | None = None
        """The verdict on the peer, where it takes a while."""
        self.served: ServedChannel | None = None
        self.refused = False
        """Whether the peer was refused; it holds its place until it is gone."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Find out who the peer is; nothing it says is read before that."""
        self.stream = cast("asyncio.Transport", transport)
        self._facts = self._reception.facts(self.stream)
        if self._facts.certificate is None and self._reception.verification.verifier.takes_token:
            self._shown = bytearray()
            self._opening = asyncio.get_running_loop().create_future()
        else:
            self._ask(self._facts)

    def _ask(self, facts: RequestFacts) -> None:
        assert self.stream is not None
        verdict = self._reception.verification.ask(facts)
        if isinstance(verdict, Verdict):
            self.settle(verdict)
        else:
            self.stream.pause_reading()
            self.pending = verdict

    async def hear_token(self) -> None:
        """Let a peer begin with its token, where it has to: within its time, and in so many bytes."""
        if self._opening is None:
            return
        assert self._facts is not None
        try:
            async with asyncio.timeout(TOKEN_TIME):
                frame = await self._opening
            token = _token_of(frame)
        except TimeoutError:
            self.settle(Unauthorized(NO_TOKEN))
        except Refusal as refusal:
            self.settle(refusal)
        else:
            self._facts = structs.replace(self._facts, headers={"authorization": f"Bearer {token}"})
            self._ask(self._facts)

    def settle(self, verdict: Verdict) -> None:
        """Make a link for the peer, and hand the stream over to its channel; or say why not."""
        assert self.stream is not None
        assert self._facts is not None
        if self.stream.is_closing():
            return
        if isinstance(verdict, Refusal):
            self._refuse(self.stream, verdict)
        else:
            try:
                self.served = self._reception.serve(self.stream, self._facts, verdict)
                self.stream.set_protocol(self.served)
                self.served.connection_made(self.stream)
            except Exception:
                logger.exception("no link could be made for a new peer")
                self.stream.abort()
        if self.pending is not None or self._opening is not None:
            self.stream.resume_reading()
        if self.served is not None and self._shown:
            # What came after the token is the first that is said.
            self.served.data_received(bytes(self._shown))

    def _refuse(self, stream: asyncio.Transport, refusal: Refusal) -> None:
        self.refused = True
        stream.write(self._reception.framed(refusal))
        # Closed with something unread, the system would take back what we said.
        self._reception.turn_away(stream)

    def data_received(self, data: bytes) -> None:
        """Take the first frame of a peer that shows a token; throw away what one says that was refused."""
        if self._shown is None or self.refused:
            return
        self._shown += data
        if self._opening is None or self._opening.done():
            return
        try:
            frame = _take_frame(self._shown, self._reception.settings.framing)
        except Refusal as refusal:
            self._opening.set_exception(refusal)
            return
        if frame is not None:
            assert self.stream is not None
            self.stream.pause_reading()
            self._opening.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free the place of a peer that was refused, and wait for no token any more."""
        if self._opening is not None and not self._opening.done():
            self._opening.set_exception(ConnectionResetError("the peer is gone"))
        if self.refused:
            self._reception.leave()


class _Shown(Struct, frozen=True):
    """The params of the message that shows a token."""

    token: str = ""


class _Authenticate(Struct, frozen=True):
    """The first message of a connection without headers, where tokens are asked for: a notification."""

    method: str = ""
    params: _Shown = _Shown()


def _take_frame(shown: bytearray, framing: str) -> bytes | None:
    """Take the first frame off what a peer has sent; None while it is not whole. Raises Unauthorized."""
    is_line = framing == "line" or (framing == "auto" and shown.lstrip().startswith(b"{"))
    found = _first_line(shown) if is_line else _after_headers(shown)
    if found is None:
        if len(shown) > LONGEST_TOKEN_FRAME:
            raise Unauthorized(NO_TOKEN)
        return None
    start, end = found
    if end > LONGEST_TOKEN_FRAME:
        raise Unauthorized(NO_TOKEN)
    frame = bytes(shown[start:end])
    del shown[:end]
    return frame


def _first_line(shown: bytearray) -> tuple[int, int] | None:
    """Return where the first line is, None while it is not whole."""
    end = shown.find(b"\n")
    if end < 0:
        return None
    return 0, end + 1


def _after_headers(shown: bytearray) -> tuple[int, int] | None:
    """Return where the frame after the first headers is, None while it is not whole."""
    start = shown.find(b"\r\n\r\n")
    if start < 0:
        return None
    start += 4
    length = _LENGTH.search(shown, 0, start)
    if length is None:
        raise Unauthorized(NO_TOKEN)
    end = start + int(length[1])
    if end > len(shown):
        return None
    return start, end


def _token_of(frame: bytes) -> str:
    """Return the token a first message shows; raises Unauthorized where it shows none."""
    try:
        said = _read_authenticate(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise Unauthorized(NO_TOKEN) from None
    if said.method != AUTHENTICATE or not said.params.token:
        raise Unauthorized(NO_TOKEN)
    return said.params.token


_read_authenticate = msgspec.json.Decoder(_Authenticate).decode
_LENGTH = re.compile(rb"(?i)content-length:[ \t]*([0-9]{1,6})\r\n")


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
        self.served: set[ServedChannel] = set()
        self._acceptor = acceptor
        self.verification = Verification(acceptor.verifier, transport=carrier, observer=acceptor.observer)
        self._carrier = carrier
        self._admission = admission
        self._connections = connections_of(acceptor.observer, carrier)
        self._context = context
        self._tls_times: dict[str, float] = {}
        if context is not None:
            self._tls_times = {"ssl_handshake_timeout": handshake_timeout, "ssl_shutdown_timeout": TLS_SHUTDOWN_TIME}
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        self._lingering = LingeringCloses(self._loop)
        self._turned_away: set[asyncio.Transport] = set()
        self._empty = asyncio.Event()
        self._period = look_period(settings.idle_timeout)
        self._looking = self._loop.call_later(self._period, self._look)

    def take(self, accepted: socket.socket) -> None:
        """Take a new connection in, or turn it away with the reason."""
        full = self._admission.enter()
        if full:
            if self._connections is not None:
                self._connections.refused("too_many_connections")
            self._lingering.turn_away(accepted, self.refusal(full))
        else:
            self._scope.spawn(self._attach(accepted))

    def short(self) -> bytes:
        """Return what is said to a peer that is turned away for want of descriptors."""
        if self._connections is not None:
            self._connections.refused("no_descriptors")
        return self.refusal()

    def refusal(self, why: str = "this machine has no room for another connection") -> bytes:
        """Write what is said to a peer that is turned away; one that begins with TLS could not read it."""
        if self._context is not None:
            return b""
        return self.framed(Busy(f"Too many connections: {why}"))

    def framed(self, refusal: Refusal) -> bytes:
        """Return a refusal of a whole connection as it goes over the wire."""
        payload = encode(Failure(None, ErrorObject(refusal.own_code, refusal.message, refusal.data)))
        if self.settings.framing == "content-length":
            frame = frame_with_headers
        else:
            frame = frame_as_lines
        return b"".join(frame([payload], len(payload)))

    def turn_away(self, stream: asyncio.Transport) -> None:
        """Close the stream of a peer that was refused, after it had a moment to read why."""
        self._turned_away.add(stream)
        self._loop.call_later(FAREWELL_TIME, self._hang_up, stream)

    def _hang_up(self, stream: asyncio.Transport) -> None:
        self._turned_away.discard(stream)
        stream.close()

    def leave(self) -> None:
        """Free the place of a peer that did not get in."""
        self._admission.leave()

    async def _attach(self, accepted: socket.socket) -> None:
        arrival = Arrival(self)
        try:
            accepted.setblocking(False)
            prepare(accepted, self.settings)
            await self._loop.connect_accepted_socket(lambda: arrival, accepted, ssl=self._context, **self._tls_times)
            await arrival.hear_token()
            if arrival.pending is not None:
                arrival.settle(await self.verification.wait(arrival.pending))
        except OSError as error:
            # The peer went away, has no good certificate or does not speak TLS: its own affair.
            logger.debug("a peer did not come in: %s", error)
        except Exception:
            logger.exception("a new peer could not be taken in")
        finally:
            if arrival.served is None and not arrival.refused:
                if arrival.stream is not None:
                    arrival.stream.abort()
                accepted.close()
                self._admission.leave()

    def facts(self, stream: asyncio.Transport) -> RequestFacts:
        """Return what is known of a peer."""
        # Without the port, which is another for each connection: limits are by who sends.
        host, _ = _address(stream)
        return RequestFacts(transport=self._carrier, address=host, certificate=peer_certificate(stream))

    def serve(self, stream: asyncio.Transport, facts: RequestFacts, verdict: Principal | Anonymous) -> ServedChannel:
        """Make a link for a peer that may come in, and its channel."""
        identity = verdict if isinstance(verdict, Principal) else None
        key = None if identity is None else identity.key
        host, address = _address(stream)
        origin = Origin(self._carrier, address, principal=key, identity=identity, host=host)
        # Whatever can fail comes before the link: once made, a link is remembered until its channel is lost.
        framer = self.settings.framer()
        served = ServedChannel(self._acceptor.link(origin), framer, self)
        served.watch = self.verification.watch(identity, facts, lambda: served.close("the credentials have expired"))
        self.served.add(served)
        self._empty.clear()
        if self._connections is not None:
            self._connections.opened(served, origin.address)
        return served

    def forget(self, served: ServedChannel) -> None:
        """Free the place of a peer that is gone."""
        self.served.discard(served)
        self._admission.leave()
        if self._connections is not None:
            self._connections.closed(served)
        if not self.served:
            self._empty.set()

    def busy(self, served: ServedChannel) -> bool:
        """Return whether anything a peer asked still runs."""
        return self._acceptor.busy(served.link)

    def finish(self, served: ServedChannel) -> None:
        """Close a channel whose peer asks nothing more, once everything is answered."""
        self._scope.spawn(self._finish(served))

    async def _finish(self, served: ServedChannel) -> None:
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
        self._lingering.end()
        for served in list(self.served):
            served.close()
        await self._wait_empty(grace)
        self._looking.cancel()
        await self._scope.close()
        for served in list(self.served):
            served.abort()
        for stream in list(self._turned_away):
            self._hang_up(stream)
        # A stream reports its end in a later turn of the loop.
        await self._wait_empty(LAST_GRACE)

    async def _wait_empty(self, within: float) -> None:
        if self.served:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), within)


def look_period(idle_timeout: float | None) -> float:
    """Return how often to look after connections: often enough that the limit is kept to about a tenth."""
    if idle_timeout is None:
        wanted = LONGEST_PERIOD
    else:
        wanted = idle_timeout / LOOKS_PER_TIMEOUT
    return max(SHORTEST_PERIOD, min(LONGEST_PERIOD, wanted))


def _address(stream: asyncio.Transport) -> tuple[str, str]:
    """Return the peer's host, and host and port; both are empty where it has none."""
    name: object = stream.get_extra_info("peername")
    if not isinstance(name, tuple):
        return "", ""
    return str(name[0]), f"{name[0]}:{name[1]}"
