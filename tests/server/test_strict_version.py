"""A server that insists on versions it knows."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from ferrule import Server
from ferrule.transports.memory import memory_pair
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import Request


class Heard:
    """The client's end, which only listens."""

    def __init__(self) -> None:
        self.messages: list[Any] = []
        self.lost = False

    def channel_opened(self, channel: Channel) -> None: ...

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        self.messages.append(msgspec.json.decode(frame))

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None: ...

    def end_received(self, channel: Channel) -> None: ...

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.lost = True


def offer(server: Server, version: str) -> Heard:
    """Offer a version, garbage first, and hear what comes back."""

    async def scenario() -> Heard:
        await server.enter()
        heard = Heard()
        near, _ = memory_pair(heard, server.link(Origin("memory")))
        near.far.receiver.frame_received(b"{bad", near.far)
        params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
        near.send(Request(1, "initialize", params))
        await asyncio.sleep(0.01)
        was_lost = heard.lost
        near.close()
        await near.wait_lost()
        await server.leave()
        heard.lost = was_lost
        return heard

    return asyncio.run(scenario())


def test_invalid_json_keeps_the_link_and_a_version_mismatch_closes_it_when_told_to() -> None:
    """SHUT-09"""
    heard = offer(Server("strict", strict_version=True), "1900-01-01")
    assert heard.messages[0]["error"]["code"] == -32700
    error = heard.messages[1]["error"]
    assert error["code"] == -32602
    assert error["data"]["requested"] == "1900-01-01"
    assert error["data"]["supported"][0] == "2025-11-25"
    assert heard.lost


def test_by_default_another_version_is_offered_and_the_link_stays() -> None:
    """SHUT-09"""
    heard = offer(Server("kind"), "1900-01-01")
    assert heard.messages[1]["result"]["protocolVersion"] == "2025-11-25"
    assert not heard.lost
