"""One message of ours as a POST, and what comes back for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from ferrule.errors import CallFailed, ConnectFailed, FerruleError, InvalidAnswer, LinkLost, OutcomeUnknown
from ferrule.transports.http.client.connection import ConnectionCut
from ferrule.transports.http.client.headers import About, about
from ferrule.transports.http.client.pool import Lane
from ferrule.transports.http.client.request import JSON, answers
from ferrule.transports.http.client.resumption import Resumable, StreamOwner
from ferrule.wire.channel import Handling, Origin
from ferrule.wire.codec import Unreadable, decode, write
from ferrule.wire.messages import Failure, Id, Message, Notification, Request, Success

logger = logging.getLogger("ferrule.transports")

LINGER = 0.5
"""How many seconds a server may take to end a stream it has said everything on."""

OPENING = frozenset({"server/discover", "initialize"})

NOTHING_SAID = About()


class PostOwner(StreamOwner, Protocol):
    """The channel a message is sent on."""

    def unmirrored_lines(self, method: str) -> bytes:
        """Return the lines of a message that does not bring its own version."""

    def initialized(self, headers: dict[bytes, bytes]) -> None:
        """Take the session that comes with the answer to `initialize`."""

    def judge(self, post: Post) -> None:
        """Decide what becomes of a message that got no MCP answer."""

    def session_over(self, post: Post) -> None:
        """Called when the server did not know the session a message went with."""

    def fall_back(self, post: Post, failure: Exception) -> None:
        """See whether a server without Streamable HTTP has the HTTP+SSE pair."""

    def fail(self, identities: Sequence[Id], error: Exception) -> None:
        """Called when requests will get no answer."""

    def over(self, post: Post) -> None:
        """Called when nothing is waited for any more."""


class Post(Resumable):
    """One message of ours, or a batch, on its way; it ends when what it asked is answered or has failed."""

    channel: PostOwner

    __slots__ = (
        "_lines",
        "_origin",
        "attempts",
        "frame",
        "handling",
        "identity",
        "message",
        "method",
        "moved",
        "parked",
        "said",
        "session",
        "stateless",
        "unanswered",
    )

    def __init__(
        self,
        channel: PostOwner,
        message: Message | Sequence[Message],
        frame: bytes,
        lane: Lane,
        handling: Handling,
    ) -> None:
        super().__init__(channel, b"", lane)
        self.message = message
        self.handling = handling
        self.frame = frame
        if isinstance(message, Request | Notification):
            self.method = message.method
        else:
            self.method = ""
        self.said = about(message) if isinstance(message, Request) else NOTHING_SAID
        self.unanswered: list[Id] = _ids(message)
        self.identity: Id | None = None
        """The id this attempt goes under, where it is not the message's own."""
        self.attempts = 0
        self.stateless = False
        self.moved = False
        self.parked = False
        """Whether it waited once for a new session."""
        self.session = ""
        self._lines = b""
        """The lines of its head that depend on the message."""
        self._origin: Origin | None = None
        """Where what comes before the answer comes from: the server asks on the stream of this request."""

    @property
    def what(self) -> str:
        """The message, for people."""
        name = f" {self.said.name!r}" if self.said.name else ""
        return f"{self.method or 'a message'}{name}"

    @property
    def operation(self) -> str:
        """What is asked, as credentials count it."""
        return self.what

    @property
    def repeatable(self) -> bool:
        """Whether it does no harm if the server gets this twice."""
        return self.handling.repeatable or not self.unanswered or self.channel.options.retry == "all"

    @property
    def wanted(self) -> bool:
        """Whether it still makes sense to send this: nobody waits for a request that was withdrawn."""
        return bool(self.unanswered) or not isinstance(self.message, Request)

    # -- sending

    def send(self) -> None:
        """Write the request for the state things are in now, and send it."""
        channel = self.channel
        heading = self.channel.heading
        lines = None
        if isinstance(self.message, Request) and self.said.meta is not None:
            lines = heading.mirrored(self.method, self.said, self.handling.mirrored)
        self.stateless = lines is not None
        self.session = ""
        if lines is None:
            lines = channel.unmirrored_lines(self.method)
            self.session = heading.session
        if channel.gate is None:
            self.request = heading.post(lines, self.frame)
            channel.submit(self)
        else:
            self._lines = lines
            channel.gate.admit(self, "POST", heading.place)

    def authorized(self, lines: bytes) -> None:
        """Send it, or ask for its rest, with these lines; nobody may want it any more."""
        if self._resuming:
            super().authorized(lines)
        elif self.wanted:
            self.request = self.channel.heading.post(self._lines + lines, self.frame)
            self.channel.submit(self)

    def send_once_more(self) -> None:
        """Ask again what was refused: this message, or the rest of its stream."""
        if self._resuming:
            super().send_once_more()
        else:
            self.send_again()

    def send_again(self) -> None:
        """Send once more, as if for the first time."""
        self.timer = self.events = None
        self.begin_again(b"")
        if self.wanted:
            self.send()

    def repeat(self, *, begun: bool, wait: float | None = None) -> bool:
        """Send again later, where that is allowed: what the server has not begun is, the rest only if harmless."""
        options = self.channel.options
        # A caller who only begins to talk is better told soon that the server is in trouble.
        if self.method in OPENING:
            most = min(options.max_retries, 1)
        else:
            most = options.max_retries
        if options.retry == "never" or self.attempts >= most or self.channel.closing:
            return False
        if begun and not self.repeatable:
            return False
        if wait is not None and wait > options.max_retry_delay:
            return False
        self.attempts += 1
        if begun:
            self._rename()
        delay = options.backoff.delay(self.attempts, options.chance)
        if wait is not None:
            delay = max(wait, delay)
        logger.info("%s is sent to %s again in %.3g s", self.what, self.channel.heading.place, delay)
        self.timer = self.channel.loop.call_later(delay, self.send_again)
        return True

    def _rename(self) -> None:
        """What was begun and lost keeps its id: the next attempt needs one of its own."""
        if isinstance(self.message, Request):
            self.identity = f"{self.message.id}-{self.attempts}"
            self.frame = write(Request(self.identity, self.message.method, self.message.params))

    # -- the answer

    def head_received(self, status: int, headers: dict[bytes, bytes]) -> None:
        """What asks nothing has arrived when the server says so, whatever else it may have to say.

        It says 202 (MCP transports/streamable-http, "Sending Messages to the Server"); any 2xx is taken for it.
        """
        super().head_received(status, headers)
        if not self.unanswered and 200 <= status < 300:
            self.over()

    def answered(self) -> None:
        """Take a whole answer, or find out why there is none."""
        if self.streams:
            self._stream_over(ConnectionCut("the server ended its stream without an answer"))
        elif self.kind == JSON and 200 <= self.status < 300 and self.unanswered:
            self._whole(self.body)
        elif self.channel.gate is not None and self.channel.gate.takes_over(self):
            return
        elif self._resuming and not (self.status == 404 and self.session):
            self._not_resumed()
        else:
            self.channel.judge(self)

    @property
    def _resuming(self) -> bool:
        return self.events is not None and not self.stateless

    def _not_resumed(self) -> None:
        if self.status not in self.channel.options.retry_statuses or not self.come_back():
            self._cut(ConnectionCut(f"it does not resume its stream: HTTP {self.status}"))

    def _whole(self, frame: bytes) -> None:
        unanswered = self.unanswered
        self.unanswered = []
        self.over()
        self._hand_on(frame)
        first = unanswered[0]
        if len(unanswered) > 1 or b'"id":%b' % str(first).encode() not in frame:
            # Whoever was answered does not wait any more; anyone left was not.
            self.channel.fail(
                unanswered,
                InvalidAnswer(f"the server's answer to {self.what} cannot be read, or is for something else"),
            )

    def frame_received(self, frame: bytes) -> None:
        """Take a message of the stream: the response, or what the server has to say before it."""
        answered = next((each for each in self.unanswered if answers(frame, self.identity or each)), None)
        if answered is None:
            if self._origin is None and isinstance(self.message, Request):
                self._origin = Origin("client", request=self.message.id)
            self.channel.deliver(frame, self._origin)
            return
        self.unanswered.remove(answered)
        if not self.unanswered:
            self.over()
            if self.connection is not None:
                self.timer = self.channel.loop.call_later(LINGER, self.stop)
        self._hand_on(frame)

    def _hand_on(self, frame: bytes) -> None:
        if self.identity is not None:
            frame = self._restored(frame)
        if self.method == "initialize":
            self.channel.initialized(self.headers)
        self.channel.deliver(frame)

    def _restored(self, frame: bytes) -> bytes:
        """Return a response the id its request had before it was sent again."""
        assert isinstance(self.message, Request)
        try:
            answer = decode(frame)
        except Unreadable:
            return frame
        if isinstance(answer, Success):
            return write(Success(self.message.id, answer.result))
        if isinstance(answer, Failure):
            return write(Failure(self.message.id, answer.error))
        return frame

    # -- no answer

    def failed(self, error: Exception) -> None:
        """The connection was cut, or never came to be."""
        if isinstance(error, CallFailed):
            self.fail(error)
        elif self.streams or self._resuming:
            self._stream_over(error)
        else:
            self._cut(error)

    def _stream_over(self, error: Exception) -> None:
        """A stream ended: what it did not answer is asked for again, where the session remembers it."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if not self.unanswered:
            return
        if self.stateless or self.events is None or not self.events.last_id:
            self._cut(error)
        elif not self.come_back():
            self.fail(self._unknown(error))

    def _cut(self, error: Exception) -> None:
        if (
            isinstance(error, ConnectionCut)
            and error.reused
            and not error.begun
            and self.repeatable
            and self.attempts == 0
        ):
            # A kept connection was closed just when we used it: nothing is wrong with the server. Only what may be done
            # twice is sent again without being asked to (RFC 9110 §9.2.2, RFC 9112 §9.3.1).
            self.attempts = 1
            self._rename()
            self.send_again()
        elif not self.repeat(begun=isinstance(error, ConnectionCut)):
            self.fail(self._final(error))

    def _final(self, error: Exception) -> Exception:
        if isinstance(error, ConnectionCut):
            return self._unknown(error)
        often = f" (tried {self.attempts + 1} times)" if self.attempts else ""
        failure: CallFailed = LinkLost(f"{self.what} could not be sent{often}: {error}")
        failure.__cause__ = error if isinstance(error, ConnectFailed) else None
        return failure

    def _unknown(self, error: Exception) -> Exception:
        place = self.channel.heading.place
        what = self.what
        if self.repeatable:
            return LinkLost(f"{what} got no answer from {place}: {error}")
        return OutcomeUnknown(
            f"unknown outcome: the connection to {place} was cut after {what} was sent ({error}); it may have run "
            "or not, and was not sent again"
        )

    def fail(self, error: Exception) -> None:
        """Fail whoever waits for an answer."""
        unanswered = self.unanswered
        self.unanswered = []
        self.over()
        if unanswered:
            self.channel.fail(unanswered, error)
        elif not self.channel.closing:
            logger.warning("%s did not reach %s: %s", self.what, self.channel.heading.place, error)

    def unauthorized(self, error: FerruleError) -> None:
        """Called when there are no credentials to be had."""
        self.fail(error)

    def over(self) -> None:
        """Nothing is waited for any more."""
        self.channel.over(self)


def _ids(message: Message | Sequence[Message]) -> list[Id]:
    if type(message) is Request:
        return [message.id]
    if isinstance(message, Sequence):
        found: list[Id] = []
        for each in message:
            if isinstance(each, Request):
                found.append(each.id)
        return found
    return []
