"""Several requests sent as one array, where the revision or the peer has that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

import msgspec

from ferrule.client.era.contract import Params
from ferrule.client.link.keeper import Keeper
from ferrule.errors import CapabilityNotSupported, EncodeError
from ferrule.protocol.call import Awaited
from ferrule.wire.messages import Message, Notification, Request

_read_any = msgspec.json.Decoder().decode


class Batch:
    """Collects requests and sends them together when its block ends; an exception sends nothing."""

    def __init__(self, keeper: Keeper, timeout: float | None, *, allowed: bool) -> None:
        self._keeper = keeper
        self._conversation = keeper.current()
        self._timeout = timeout
        self._allowed = allowed
        self._requests: list[tuple[str, Params, asyncio.Future[Any]]] = []
        self._notices: list[Notification] = []

    @property
    def count(self) -> int:
        """How many requests the batch holds."""
        return len(self._requests)

    def request(self, method: str, params: Params | None = None) -> asyncio.Future[Any]:
        """Add a request; the future gives its result once the batch was sent and answered."""
        self._conversation.allow(method)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._requests.append((method, params or {}, future))
        return future

    def notify(self, method: str, params: Params | None = None) -> None:
        """Add a notification."""
        if params:
            self._notices.append(Notification(method, params))
        else:
            self._notices.append(Notification(method))

    async def __aenter__(self) -> Batch:
        self._conversation = await self._keeper.when_connected(self._timeout)
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
        conversation = self._conversation
        link = conversation.live()
        stamp = conversation.era.introduction.stamp
        assert link.channel is not None
        now = link.loop.time()
        messages: list[Message] = []
        entries: list[Awaited] = []
        for method, params, future in self._requests:
            awaited = link.session.expect(method, link.loop.create_future(), now)
            awaited.waiter.add_done_callback(_hands_over_to(future))
            future.add_done_callback(self._withdraws(awaited))
            if self._timeout is not None:
                awaited.timeout = self._timeout
                awaited.deadline = now + self._timeout
                link.arm(awaited.deadline)
            entries.append(awaited)
            said = stamp(params)
            if link.watch is not None:
                said = link.watch.sent(awaited, said)
            messages.append(Request(awaited.id, method, said))
        try:
            handling = conversation.handling((method, params) for method, params, _ in self._requests)
            if handling is None:
                link.channel.send([*messages, *self._notices])
            else:
                link.channel.send_with([*messages, *self._notices], handling)
        except EncodeError:
            for awaited in entries:
                del link.session.awaited[awaited.id]
                awaited.waiter.cancel()
            raise

    def _withdraws(self, awaited: Awaited) -> Callable[[asyncio.Future[Any]], None]:
        """Stop waiting for a result that nobody waits for any more."""
        return lambda future: self._conversation.abandon(awaited) if future.cancelled() else None


def _hands_over_to(future: asyncio.Future[Any]) -> Callable[[asyncio.Future[Any]], None]:
    """Pass the result on as a plain value."""

    def hand_over(waiter: asyncio.Future[Any]) -> None:
        if waiter.cancelled():
            future.cancel()
            return
        error = waiter.exception()
        if future.done():
            return
        if error is None:
            future.set_result(_read_any(waiter.result()))
        else:
            future.set_exception(error)

    return hand_over
