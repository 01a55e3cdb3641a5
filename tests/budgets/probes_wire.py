"""Probes of what a message may hold, and of what the calls of a peer and of the process may hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from table import probe

from ferrule import Server
from ferrule.budgets import process
from ferrule.budgets.account import Account
from ferrule.budgets.weight import too_deep, weight
from ferrule.runtime import batch
from ferrule.runtime.batch import Replies
from ferrule.runtime.holdings import Holdings
from ferrule.runtime.link import Link
from ferrule.wire import codec
from ferrule.wire.channel import ChannelDefaults, Origin, Traits
from ferrule.wire.codec import Unreadable, decode, encode
from ferrule.wire.messages import Success

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


class Ear(ChannelDefaults):
    """The channel of a peer: keeps what it is sent."""

    traits = Traits(closes_on_garbage=True)

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.closed = False

    def send(self, message: Any) -> None:
        self.heard.append(json.loads(encode(message)))

    async def wait_writable(self) -> None:
        """Nobody is slow here."""

    def close(self, reason: str = "") -> None:
        self.closed = True


def written(method: str, params: Any = None, identity: Any = 1) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}).encode()


def introduction(version: str, capabilities: str = "{}", info: str = '{"name":"c","version":"1"}') -> bytes:
    params = b'{"protocolVersion":"%b","capabilities":%b,"clientInfo":%b}'
    said = params % (version.encode(), capabilities.encode(), info.encode())
    return b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":%b}' % said


class Met:
    """A server in this process and one peer of it."""

    def __init__(self, version: str = "2025-11-25") -> None:
        app = Server("s", keepalive_interval=None)
        self.go = asyncio.Event()

        @app.tool
        async def wait(text: str) -> str:
            await self.go.wait()
            return "done"

        @app.resource("note://one")
        async def note() -> str:
            return "one"

        self.ear = Ear()
        self.link: Link = app.link(Origin("test"))
        self.link.channel_opened(self.ear)
        if version:
            self.say(introduction(version))

    def say(self, frame: bytes) -> Any:
        """Say something; returns the last answer so far."""
        self.ear.heard.clear()
        self.link.frame_received(frame, self.ear)
        return self.ear.heard[-1] if self.ear.heard else {}

    async def leave(self) -> None:
        self.link.channel_lost(self.ear, None)
        await asyncio.sleep(0)


def code(answer: Any) -> int:
    return int(answer.get("error", {}).get("code", 0))


@probe("ferrule.budgets.bounds.MAX_ID_LENGTH")
async def an_id(_: int, size: int) -> bool:
    return bool(Met().say(written("ping", identity="i" * size)).get("id") == "i" * size)


@probe("ferrule.budgets.bounds.MAX_METHOD_LENGTH")
async def a_method(_: int, size: int) -> bool:
    return code(Met().say(written("m" * size))) == -32601


@probe("ferrule.budgets.bounds.MAX_NAME_LENGTH")
async def a_tool(_: int, size: int) -> bool:
    return "Unknown tool" in str(Met().say(written("tools/call", {"name": "t" * size})))


@probe("ferrule.budgets.bounds.MAX_URI_LENGTH")
async def a_uri(_: int, size: int) -> bool:
    return "not found" in str(Met().say(written("resources/read", {"uri": "u:" + "r" * (size - 2)})))


@probe("ferrule.budgets.bounds.MAX_CURSOR_LENGTH")
async def a_cursor(_: int, size: int) -> bool:
    return "length" not in str(Met().say(written("tools/list", {"cursor": "c" * size})))


@probe("ferrule.budgets.bounds.MAX_META_SIZE")
async def metadata(_: int, size: int) -> bool:
    return "result" in Met().say(written("ping", {"_meta": {"a": "x" * (size - len('{"a": ""}'))}}))


@probe("ferrule.budgets.bounds.MAX_PEER_INFO_SIZE")
async def a_peer(_: int, size: int) -> bool:
    info = json.dumps({"name": "", "version": "1"}).replace('""', '"' + "n" * (size - 28) + '"')
    assert len(info) == size
    return "result" in Met("").say(introduction("2025-11-25", info=info))


@probe("ferrule.budgets.bounds.MAX_PEER_INFO_VALUES")
async def capabilities(_: int, size: int) -> bool:
    values = ",".join(["1"] * (size - 2))
    return "result" in Met("").say(introduction("2025-11-25", '{"experimental":{"a":[' + values + "]}}"))


@probe("ferrule.budgets.bounds.MAX_ERROR_DATA", clamps=True)
async def the_data_of_an_error(_: int, size: int) -> bool:
    data = "x" * (size - 2)
    frame = json.dumps({"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "m", "data": data}}).encode()
    try:
        failure: Any = decode(frame)
    except Unreadable:
        return False
    return bool(failure.error.data == data)


def weighing(amount: int, place: bytes) -> bytes:
    """Return a string for a place in a frame, so that the frame weighs so much, or one byte less."""
    least = weight(place % (b'"%b"' % (b"x" * 20_000)))
    more = max(amount - least, 0)
    return b'"%b"' % (b"x" * (20_000 + more // 2))


@probe("ferrule.budgets.bounds.MAX_MESSAGE_WEIGHT", lowered=100_001)
async def a_heavy_message(limit: int, size: int) -> bool:
    place = b'{"jsonrpc":"2.0","id":1,"method":"nobody","params":{"a":%b}}'
    bound, codec.MAX_MESSAGE_WEIGHT = codec.MAX_MESSAGE_WEIGHT, limit
    heavy, codec.HEAVY = codec.HEAVY, 1000
    try:
        return code(Met().say(place % weighing(size, place))) == -32601
    finally:
        codec.MAX_MESSAGE_WEIGHT, codec.HEAVY = bound, heavy


@probe("ferrule.budgets.bounds.MAX_NESTING")
async def a_deep_message(_: int, size: int) -> bool:
    inner = size - 2
    frame = b'{"jsonrpc":"2.0","id":1,"method":"nobody","params":{"a":%b}}' % (b"[" * inner + b"]" * inner)
    # With 3.11 the interpreter's own bound, a little higher, is all there is: ours is tried there as well.
    check, codec.nests_too_deep = codec.nests_too_deep, too_deep
    try:
        return code(Met().say(frame)) == -32601
    finally:
        codec.nests_too_deep = check


@probe("ferrule.budgets.bounds.MAX_BATCH")
async def a_batch(_: int, size: int) -> bool:
    parts: list[Any] = [{"jsonrpc": "2.0", "method": "notifications/x"}] * (size - 1)
    parts.append({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    return isinstance(Met("2025-03-26").say(json.dumps(parts).encode()), list)


@probe("ferrule.budgets.bounds.MAX_BATCH_ANSWER", lowered=1000)
async def the_answers_of_a_batch(limit: int, size: int) -> bool:
    ear, first = Ear(), Success(1, "x")
    rest = size - len(encode(first)) - len(encode(Success(2, "")))
    before, batch.MAX_BATCH_ANSWER = batch.MAX_BATCH_ANSWER, limit
    try:
        replies = Replies(ear, 2)
        replies.keep(first)
        replies.keep(Success(2, "x" * rest))
    finally:
        batch.MAX_BATCH_ANSWER = before
    return "result" in ear.heard[0][1]


@probe("ferrule.budgets.bounds.MAX_UNREADABLE")
async def garbage(_: int, size: int) -> bool:
    met = Met()
    for _each in range(size):
        met.say(b"1")
    return not met.ear.closed


@contextmanager
def lowered(account: Account, limit: int) -> Iterator[None]:
    before, account.limit = account.limit, limit
    try:
        yield
    finally:
        account.limit = before


async def held(met: Met, size: int) -> bool:
    """Let two calls hold so much together; returns whether the second was taken too."""
    met.say(written("tools/call", {"name": "wait", "arguments": {"text": "x" * 10_001}}, 1))
    assert met.ear.heard == []
    assert met.link.session.running[1].held % 2 == 0
    place = b'{"name":"wait","arguments":{"text":%b}}'
    params = place % weighing(size - met.link.session.running[1].held, place)
    answer = met.say(b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":%b}' % params)
    await met.leave()
    return not answer  # it waits, and is not answered yet


@probe("LinkOptions(max_held=…)", lowered=100_001)
async def the_calls_of_a_peer(limit: int, size: int) -> bool:
    met = Met()
    met.link._holdings = Holdings(limit, None)
    return await held(met, size)


@probe("ferrule.budgets.process.requests", lowered=100_001)
async def the_calls_of_the_process(limit: int, size: int) -> bool:
    with lowered(process.requests, limit):
        return await held(Met(), size)


async def standing(met: Met, count: int) -> bool:
    """Let so many calls stand; returns whether all were taken."""
    listen = {"notifications": {"toolsListChanged": True}, "_meta": MODERN}
    refused = 0
    for number in range(count):
        refused += code(met.say(written("subscriptions/listen", listen, number))) != 0
    await met.leave()
    return refused == 0


@probe("LinkOptions(max_standing=…)", lowered=5)
async def the_standing_calls_of_a_peer(limit: int, size: int) -> bool:
    met = Met("")
    met.link._holdings = Holdings(None, limit)
    return await standing(met, size)


@probe("ferrule.budgets.process.standing", lowered=5)
async def the_standing_calls_of_the_process(limit: int, size: int) -> bool:
    with lowered(process.standing, limit):
        return await standing(Met(""), size)
