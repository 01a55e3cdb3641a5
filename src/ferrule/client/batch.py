"""Several requests sent as one array, where the revision or the peer has that."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import msgspec

from ferrule.client.conversation import Conversation
from ferrule.errors import CapabilityNotSupported
from ferrule.wire.messages import Message, Notification, Request

_read_any = msgspec.json.Decoder().decode


class Batch:
    """Collects requests and sends them together when its block ends; an exception sends nothing."""

    def __init__(self, conversation: Conversation, timeout: float | None, *, allowed: bool) -> None:
        self._conversation = conversation
        self._timeout = timeout
        self._allowed = allowed
        self._requests: list[tuple[str, dict[str, Any], asyncio.Future[Any]]] = []
        self._notices: list[Notification] = []

    @property
    def count(self) -> int:
        """How many requests the batch holds."""
        return len(self._requests)

    def request(self, method: str, params: dict[str, Any] | None = None) -> asyncio.Future[Any]:
        """Add a request; the future gives its result once the batch was sent and answered."""
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests.append((method, params or {}, future))
        return future

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Add a notification."""
        self._notices.append(Notification(method, params) if params else Notification(method))

    async def __aenter__(self) -> Batch:
        link = self._conversation.live()
        peer = link.session.peer
        if not self._allowed and (peer is None or not peer.revision.batches):
            version = "this revision" if peer is None else peer.version
            raise CapabilityNotSupported("batch", f"batches do not exist in {version}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            for _, _, future in self._requests:
                future.cancel()
            return
        if self._requests or self._notices:
            self._send()

    def _send(self) -> None:
        link = self._conversation.live()
        now = link.loop.time()
        messages: list[Message] = []
        for method, params, future in self._requests:
            awaited = link.session.expect(method, Read(future), now)
            if self._timeout is not None:
                awaited.timeout, awaited.deadline = self._timeout, now + self._timeout
                link.arm(awaited.deadline)
            messages.append(Request(awaited.id, method, params))
        assert link.channel is not None
        link.channel.send([*messages, *self._notices])


class Read:
    """A waiter that hands the result over as a plain value."""

    __slots__ = ("_future",)

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def done(self) -> bool:
        """Tell whether anyone still waits."""
        return self._future.done()

    def set_result(self, raw: Any) -> None:
        """Hand the result over."""
        self._future.set_result(_read_any(raw))

    def set_exception(self, error: BaseException) -> None:
        """Hand the failure over."""
        self._future.set_exception(error)
