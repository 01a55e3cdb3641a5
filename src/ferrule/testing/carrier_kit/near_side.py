"""The near side of a judged carrier: asks in plain messages, on the bare channel."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Literal

from msgspec import UNSET

from ferrule.errors import LinkLost
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.introduction import AlwaysIntroduced, Introduction, OnceIntroduced
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities, Implementation
from ferrule.testing.carrier_kit.far_side import NOTED
from ferrule.testing.carrier_kit.findings import soon
from ferrule.testing.carrier_kit.witness import Witness, plain
from ferrule.transports.contract import Transport
from ferrule.wire.channel import REPEATABLE, Channel, Origin
from ferrule.wire.messages import Id, Notification, Request

WHO = Implementation(name="carrier-kit", version="1")

Era = Literal["handshake", "stateless"]


class NearSide(Witness):
    """The peer that asks; it makes the handshake where its era has one."""

    def __init__(self, transport: Transport, era: Era = "handshake", patience: float = 15.0) -> None:
        super().__init__()
        self.transport = transport
        self.era = era
        self.patience = patience
        """How many seconds an answer may take."""
        self.sent: list[Id] = []
        self._ids = itertools.count(1)
        self._torn = b""
        self._waiting: dict[Id, asyncio.Future[Any]] = {}
        self._introduction: Introduction = OnceIntroduced()
        if era == "stateless":
            self._introduction = AlwaysIntroduced(STATELESS.version, ClientCapabilities(), WHO)

    async def connect(self) -> None:
        """Reach the far side, and introduce ourselves."""
        self.way = await self.transport.connect(self)
        if self.era == "handshake":
            await soon(self.ask("initialize", opening()), self.patience, "no answer to the handshake came")
            self.way.send(Notification("notifications/initialized"))

    async def close(self) -> None:
        """End the way to the far side."""
        await self.transport.close()

    # -- speaking

    def ask(self, method: str, params: dict[str, Any]) -> asyncio.Future[Any]:
        """Send a request; what is returned waits for the whole response, and fails where there will be none."""
        identity = next(self._ids)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Nobody need fetch what a rule that has failed already would have waited for.
        future.add_done_callback(lambda done: done.cancelled() or done.exception())
        if self.way in self.lost:
            future.set_exception(LinkLost("the channel was lost before"))
        else:
            self._waiting[identity] = future
        stamped = self._introduction.stamp(params)
        try:
            request = Request(identity, method, {} if stamped is UNSET else stamped)
            if METHODS[method].read_only:
                self.way.send_with(request, REPEATABLE)
            else:
                self.way.send(request)
        except BaseException:
            self._waiting.pop(identity, None)
            raise
        self.sent.append(identity)
        return future

    def start(self, tool: str, **arguments: object) -> asyncio.Future[Any]:
        """Call a tool; what is returned waits for the whole response."""
        return self.ask("tools/call", {"name": tool, "arguments": arguments})

    async def call(self, tool: str, **arguments: object) -> Any:
        """Call a tool and give what it returned; an error is given as the response it was."""
        return returned(await soon(self.start(tool, **arguments), self.patience, f"no answer to {tool} came"))

    def say(self, number: int) -> None:
        """Say a numbered notification."""
        self.way.send(Notification(NOTED, {"number": number}))

    # -- hearing

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin | None = None) -> bool:
        """Note a frame, and wake whoever waits for it."""
        super().frame_received(frame, channel, origin)
        message = plain(frame)
        if self._torn:
            # The last one before the end may be torn: there are peers that do not end their last line.
            self.faults.append(f"a frame that is no JSON was handed up: {self._torn[:60]!r}")
            self._torn = b""
        if message is None:
            self._torn = frame
        elif isinstance(message, dict) and "method" not in message and message.get("id") is not None:
            future = self._waiting.pop(message["id"], None)
            if future is None:
                self.faults.append("an answer came twice, or to nothing that was asked")
            elif not future.done():
                future.set_result(message)
        return False

    def request_failed(self, identity: Id, error: Exception, channel: Channel) -> None:
        """Note a failure, and tell whoever waits."""
        super().request_failed(identity, error, channel)
        future = self._waiting.pop(identity, None)
        if future is not None and not future.done():
            future.set_exception(error)

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        """Note a loss, and tell everyone who waits."""
        super().channel_lost(channel, error)
        waiting = self._waiting
        self._waiting = {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LinkLost(f"the channel was lost: {error}"))


def opening() -> dict[str, Any]:
    """Return the params of a handshake."""
    info = {"name": WHO.name, "version": WHO.version}
    return {"protocolVersion": HANDSHAKE.version, "capabilities": {}, "clientInfo": info}


def returned(response: Any) -> Any:
    """Return what a tool returned, of the whole response; an error is given as the response it was."""
    result = response.get("result")
    if isinstance(result, dict) and "structuredContent" in result:
        return result["structuredContent"]
    return response
