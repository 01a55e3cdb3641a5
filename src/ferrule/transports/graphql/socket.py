"""Operations over one WebSocket, by the subprotocol `graphql-transport-ws`.

https://github.com/enisdenjo/graphql-ws/blob/master/PROTOCOL.md:

| phase | may receive | then |
|---|---|---|
| new | `connection_init` | we send `connection_ack`: ready |
| ready | `subscribe`, `complete` | an operation runs, or is cancelled |
| both | `ping`, `pong` | we answer a ping |

Anything else closes the WebSocket with a code of the protocol. Every operation ends with our `error` or `complete`,
unless the client has cancelled it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal, cast

import msgspec
from graphql import ExecutionResult, OperationType
from msgspec import Raw, Struct

from ferrule.budgets.account import Account
from ferrule.budgets.bounds import MAX_ID_LENGTH
from ferrule.supervision.scope import Scope
from ferrule.transports.graphql.errors import UNAVAILABLE, unexpected
from ferrule.transports.graphql.operation import BUSY, Refused, answer_of, debit, prepare, read_body, too_large
from ferrule.transports.graphql.requests import Requests
from ferrule.transports.graphql.settings import GraphqlSettings
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Id

SUBPROTOCOL = "graphql-transport-ws"
INVALID, UNAUTHORIZED, LATE, TAKEN, TWICE = 4400, 4401, 4408, 4409, 4429
"""The codes of the protocol with which a WebSocket is closed."""


class Received(Struct):
    """A message of the client."""

    type: Literal["connection_init", "ping", "pong", "subscribe", "complete"]
    id: str = ""
    payload: Raw = Raw(b"null")


_read = msgspec.json.Decoder(Received).decode
_write = msgspec.json.Encoder().encode


class OperationSocket:
    """The receiver of one WebSocket: reads its messages, and runs the operations they ask for."""

    def __init__(self, settings: GraphqlSettings, new_requests: Callable[[], Requests], held: Account) -> None:
        self._settings = settings
        self._new_requests = new_requests
        """Returns what an operation asks the server with."""
        self._held = held
        """What the operations that run hold, on all WebSockets and without one."""
        self._ready = False
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._late: asyncio.TimerHandle | None = None

    # -- called by the WebSocket

    def channel_opened(self, channel: Channel) -> None:
        """Start the timeout for the client's first message."""
        socket = cast("WebSocketChannel", channel)
        timeout = self._settings.init_timeout
        self._late = self._loop.call_later(timeout, socket.close_with, LATE, "Connection initialisation timeout")

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Take one message."""
        socket = cast("WebSocketChannel", channel)
        try:
            message = _read(frame)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            socket.close_with(INVALID, "Invalid message")
            return False
        if message.type == "ping":
            socket.send_text(_write({"type": "pong"}))
        elif message.type == "connection_init":
            self._begin(socket)
        elif message.type == "subscribe":
            self._subscribe(message, socket)
        elif message.type == "complete":
            self._cancel(message.id)
        return False

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        """Do nothing: a WebSocket closes itself when a message is too long."""

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Do nothing: we make no requests."""

    def end_received(self, channel: Channel) -> None:
        """Do nothing: a WebSocket has no half-closed state."""

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Cancel what runs."""
        if self._late is not None:
            self._late.cancel()
        for identity in list(self._running):
            self._cancel(identity)

    # -- messages

    def _begin(self, socket: WebSocketChannel) -> None:
        if self._ready:
            socket.close_with(TWICE, "Too many initialisation requests")
            return
        self._ready = True
        if self._late is not None:
            self._late.cancel()
        socket.send_text(_write({"type": "connection_ack"}))

    def _subscribe(self, message: Received, socket: WebSocketChannel) -> None:
        identity = message.id
        if not self._ready:
            socket.close_with(UNAUTHORIZED, "Unauthorized")
        elif not identity or len(identity) > MAX_ID_LENGTH:
            socket.close_with(INVALID, f"A subscribe needs an id of at most {MAX_ID_LENGTH} characters")
        elif identity in self._running:
            socket.close_with(TAKEN, "Subscriber already exists")
        elif len(self._running) >= self._settings.max_subscriptions:
            why = f"There are {self._settings.max_subscriptions} operations on this WebSocket already"
            self._send(socket, "error", identity, Refused.because(why).errors)
        else:
            self._start(identity, bytes(message.payload), socket)

    def _start(self, identity: str, payload: bytes, socket: WebSocketChannel) -> None:
        amount = debit(self._held, payload)
        if amount is None:
            self._send(socket, "error", identity, Refused.because(BUSY, UNAVAILABLE).errors)
            return
        task = self._running[identity] = self._scope.spawn(self._run(identity, payload, socket))

        def ended(task: asyncio.Task[None]) -> None:
            self._held.give(amount)
            # Once it was cancelled, another operation may have its id.
            if self._running.get(identity) is task:
                del self._running[identity]

        task.add_done_callback(ended)

    def _cancel(self, identity: str) -> None:
        task = self._running.pop(identity, None)
        if task is not None:
            self._scope.cancel(task)

    # -- operations

    async def _run(self, identity: str, payload: bytes, socket: WebSocketChannel) -> None:
        try:
            await self._answer(identity, payload, socket)
        except Refused as refused:
            self._send(socket, "error", identity, refused.errors)
        except Exception as error:
            self._send(socket, "error", identity, unexpected(error))

    async def _answer(self, identity: str, payload: bytes, socket: WebSocketChannel) -> None:
        operation = prepare(read_body(payload), self._settings)
        result: AsyncIterator[ExecutionResult] | ExecutionResult
        if operation.kind is OperationType.SUBSCRIPTION:
            result = await operation.subscribe(self._new_requests())
        else:
            result = await operation.run(self._new_requests())
        if not isinstance(result, ExecutionResult):
            await self._stream(identity, result, socket)
            return
        answer = answer_of(result)
        if "data" in answer and operation.kind is not OperationType.SUBSCRIPTION:
            self._send(socket, "next", identity, answer)
            self._send(socket, "complete", identity)
        else:
            self._send(socket, "error", identity, answer["errors"])

    async def _stream(self, identity: str, events: AsyncIterator[ExecutionResult], socket: WebSocketChannel) -> None:
        """Send every event, as fast as the client reads."""
        try:
            async for event in events:
                self._send(socket, "next", identity, answer_of(event))
                await socket.wait_writable()
        finally:
            close = getattr(events, "aclose", None)
            if close is not None:
                await close()
        self._send(socket, "complete", identity)

    def _send(self, socket: WebSocketChannel, kind: str, identity: str, payload: Any = None) -> None:
        message: dict[str, Any] = {"type": kind, "id": identity}
        if payload is not None:
            message["payload"] = payload
        text = _write(message)
        limit = self._settings.max_body_size
        if len(text) > limit:
            text = _write({"type": kind, "id": identity, "payload": {"errors": too_large(len(text), limit)}})
        socket.send_text(text)
