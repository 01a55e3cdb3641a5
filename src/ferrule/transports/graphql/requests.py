"""MCP requests of GraphQL operations, made on the link of those who ask without a session.

Rule: an operation has no way into the server but this. Each of its requests is a frame like any other's, so middleware,
visibility, limits and observers hold.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import msgspec
from graphql import GraphQLError
from msgspec import Struct

from ferrule.budgets.account import Account
from ferrule.codes import ErrorCode
from ferrule.protocol.introduction import AlwaysIntroduced
from ferrule.schema.model import ClientCapabilities, Implementation
from ferrule.transports.graphql.errors import failed, too_much
from ferrule.transports.http.endpoint.acceptor import HttpAcceptor
from ferrule.transports.http.endpoint.exchange import NullChannel
from ferrule.wire.channel import ChannelDefaults, Origin, Traits
from ferrule.wire.codec import encode, encode_within
from ferrule.wire.messages import ErrorObject, Failure, Message, Notification, Request, Success

CARRIER = "graphql"
MOST_HELD = 16
"""Notifications that wait for a subscriber before the server holds the rest back, one for each thing that changed."""
STOPPED = "The server stopped before this was answered"
METHOD_NOT_FOUND = ErrorCode.METHOD_NOT_FOUND.value
INTERNAL_ERROR = ErrorCode.INTERNAL_ERROR.value


class Answer(Struct):
    """The result of a request, read back from its message."""

    result: dict[str, Any]


class Told(Struct):
    """The params of a notification, read back from its message."""

    params: dict[str, Any] = {}


_read_answer = msgspec.json.Decoder(Answer).decode
_read_told = msgspec.json.Decoder(Told).decode


class Backend:
    """The link on which all operations of one listener make their requests."""

    def __init__(self, acceptor: HttpAcceptor, max_size: int) -> None:
        self.link = acceptor.sessionless_link(Origin(CARRIER))
        self._everyone = NullChannel()
        self.link.channel_opened(self._everyone)
        self.version = acceptor.eras.stateless.versions[0]
        self.max_size = max_size
        """The longest answer, in bytes."""
        self._introduction = AlwaysIntroduced(
            self.version, ClientCapabilities(), Implementation(name=CARRIER, version="1")
        )

    def frame(self, method: str, params: Mapping[str, object]) -> bytes:
        """Write a request."""
        return encode(Request(1, method, self._introduction.stamp(dict(params))))

    def close(self) -> None:
        """End every request that runs."""
        self.link.channel_lost(self._everyone, None)


class Requests:
    """What one operation of a caller asks of the server; every resolver has it as its context."""

    def __init__(self, backend: Backend, origin: Origin) -> None:
        self._backend = backend
        self._origin = origin
        self._answers = Account("answers of one GraphQL operation", backend.max_size)
        """What its fields have been answered: all of it is held until the last of them has been."""

    async def ask(self, method: str, params: Mapping[str, object]) -> dict[str, Any]:
        """Make a request and return its result; raises GraphQLError when it is refused."""
        reply = Reply(self._backend.max_size, self._answers)
        self._backend.link.frame_received(self._backend.frame(method, params), reply, self._origin)
        try:
            return await reply.answer
        except asyncio.CancelledError:
            self._backend.link.channel_lost(reply, None)
            raise

    async def listen(self, wanted: Mapping[str, object]) -> Notifications:
        """Subscribe to changes, and return once that is granted; raises GraphQLError when it is refused."""
        notifications = Notifications(self._backend)
        frame = self._backend.frame("subscriptions/listen", {"notifications": wanted})
        self._backend.link.frame_received(frame, notifications, self._origin)
        try:
            acknowledged = await anext(notifications, None)
        except BaseException:
            notifications.end()
            raise
        granted = {} if acknowledged is None else acknowledged["params"]["notifications"]
        for name in wanted:
            if not granted.get(name):
                notifications.end()
                raise failed(ErrorObject(METHOD_NOT_FOUND, f"This server does not tell of changes to this: {name}"))
        return notifications


class Reply(ChannelDefaults):
    """The way back of one request: its answer, once; what comes before it is dropped."""

    traits = Traits(patient=True, watches_itself=True)

    def __init__(self, max_size: int, answers: Account) -> None:
        self._max_size = max_size
        self._answers = answers
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Take the answer."""
        if self.answer.done():
            return
        if isinstance(message, Success):
            written = encode_within(message, self._max_size)
            if self._answers.take(len(written)):
                self.answer.set_result(_read_answer(written).result)
            else:
                self.answer.set_exception(too_much(self._max_size))
        elif isinstance(message, Failure):
            self.answer.set_exception(failed(message.error))

    async def wait_writable(self) -> None:
        """Let others run: nothing is written."""
        await asyncio.sleep(0)

    def close(self, reason: str = "") -> None:
        """Fail the request."""
        if not self.answer.done():
            self.answer.set_exception(failed(ErrorObject(INTERNAL_ERROR, reason or STOPPED)))

    def withdrawn(self) -> None:
        """Fail the request, which gets no answer."""
        self.close()


class Notifications(ChannelDefaults, AsyncIterator[dict[str, Any]]):
    """The way back of one subscription: yields method and params of each notification, first the acknowledgement."""

    traits = Traits(patient=True, watches_itself=True)

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._held: deque[dict[str, Any]] = deque()
        self._failure: GraphQLError | None = None
        self._open = True
        self._changed = asyncio.Event()
        self.congested = False

    def send(self, message: Message | Sequence[Message]) -> None:
        """Keep a notification for the reader; an answer ends the subscription."""
        if not self._open:
            return
        if isinstance(message, Notification):
            told = _read_told(encode_within(message, self._backend.max_size))
            self._held.append({"method": message.method, "params": told.params})
            self.congested = len(self._held) >= MOST_HELD
        else:
            if isinstance(message, Failure):
                self._failure = failed(message.error)
            self._open = False
        self._changed.set()

    async def wait_writable(self) -> None:
        """Wait until the reader has caught up."""
        while self._open and self.congested:
            self._changed.clear()
            await self._changed.wait()

    def close(self, reason: str = "") -> None:
        """End the subscription."""
        self._open = False
        self._changed.set()

    def withdrawn(self) -> None:
        """End the subscription, which was cancelled."""
        self.close()

    def end(self) -> None:
        """Unsubscribe."""
        if self._open:
            self.close()
            self._backend.link.channel_lost(self, None)

    async def __anext__(self) -> dict[str, Any]:
        while not self._held:
            if self._failure is not None:
                raise self._failure
            if not self._open:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        found = self._held.popleft()
        if self.congested and not self._held:
            self.congested = False
            self._changed.set()
        return found

    async def aclose(self) -> None:
        """Unsubscribe."""
        self.end()
