"""Mutated messages against a live server: nothing gets out but answers, and every readable id gets exactly one.

A short run by default; `FERRULE_LONG=1` makes it a long one.
"""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import os
import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec import UNSET

from ferrule import Server, ToolError
from ferrule.runtime.requests import LinkOptions
from ferrule.transports.memory import memory_pair
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.codec import Rejected, Unreadable, decode
from ferrule.wire.messages import Request

LONG = os.environ.get("FERRULE_LONG") == "1"
ROUNDS = 600_000 if LONG else 20_000
SEEDS = range(10) if LONG else range(2)

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
    "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
}
INITIALIZE = {"capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}

CALLS: list[tuple[str, dict[str, Any]]] = [
    ("ping", {}),
    ("tools/list", {"cursor": None}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("tools/call", {"name": "echo", "arguments": {"value": {"deep": [1, "é", None, True, 1.5e3]}}}),
    ("tools/call", {"name": "fail", "arguments": {}, "_meta": {"progressToken": 5}}),
    ("resources/list", {}),
    ("resources/read", {"uri": "note://7"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "you"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "y"}},
    ),
    ("logging/setLevel", {"level": "info"}),
    ("resources/subscribe", {"uri": "note://7"}),
    ("initialize", {"protocolVersion": "2025-11-25", **INITIALIZE}),
]
OTHERS: list[Any] = [
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 0.5}},
    {"jsonrpc": "2.0", "id": 4, "result": {"roots": []}},
    {"jsonrpc": "2.0", "id": 4, "error": {"code": -32603, "message": "x", "data": {"a": 1}}},
    [{"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"jsonrpc": "2.0", "id": "2", "method": "tools/list"}],
]
PIECES = [
    b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\\u0000", b"\\ud800", b"\xff", b"\xc3\xa9", b"NaN", b"1e999",
    b"null", b'"id":2,', b'"method":"z",', b'"params":[],', b'"_meta":{},', b"0", b"-", b" ", b"\n", b"\x00",
    b"true", b"9" * 400, b"[" * 1200, b'{"a":' * 1200,
]  # fmt: skip
VALUES = [None, True, 0, -1, 1.5, 10**30, "", "x", "\u2028", [], [1], {}, {"a": {}}, "é" * 50, [[[[]]]], {"": None}]


def corpus() -> list[Any]:
    """Good messages of both eras."""
    old = [{"jsonrpc": "2.0", "id": n, "method": m, "params": p} for n, (m, p) in enumerate(CALLS)]
    new = [
        {"jsonrpc": "2.0", "id": f"m{n}", "method": m, "params": {**p, "_meta": MODERN}}
        for n, (m, p) in enumerate([*CALLS, ("server/discover", {})])
    ]
    return [*old, *new, *OTHERS]


def mutated(chance: random.Random, messages: list[Any]) -> bytes:
    """One message with a few things wrong, in its structure or in its bytes."""
    message = json.loads(json.dumps(chance.choice(messages)))
    for _ in range(chance.choice((0, 0, 1, 2))):
        spoil(chance, message)
    frame = bytearray(json.dumps(message, ensure_ascii=chance.random() < 0.5).encode())
    for _ in range(chance.choice((0, 0, 0, 1, 2, 5))):
        place = chance.randrange(len(frame) + 1)
        deed = chance.randrange(4)
        if deed == 0:
            frame[place:place] = chance.choice(PIECES)
        elif deed == 1:
            del frame[place : place + chance.choice((1, 1, 4, 20))]
        elif deed == 2 and place < len(frame):
            frame[place] ^= 1 << chance.randrange(8)
        else:
            frame[place : place + 8] = frame[: chance.choice((8, 30))]
    return bytes(frame)


def spoil(chance: random.Random, value: Any) -> None:
    """Change, drop or add one member somewhere inside."""
    while isinstance(value, dict | list) and value:
        key = chance.choice(list(value)) if isinstance(value, dict) else chance.randrange(len(value))
        if chance.random() < 0.5 and isinstance(value[key], dict | list) and value[key]:
            value = value[key]
            continue
        if chance.random() < 0.3:
            del value[key]
        elif chance.random() < 0.7 or isinstance(value, list):
            value[key] = copy.deepcopy(chance.choice(VALUES))
        else:
            value[str(chance.choice(VALUES))] = copy.deepcopy(chance.choice(VALUES))
        return


class Heard:
    """The client's end: keeps what the server sends, if it is a message at all."""

    def __init__(self) -> None:
        self.messages: list[Any] = []

    def channel_opened(self, channel: Channel) -> None:
        """Nothing to do."""

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        message = json.loads(frame.decode("utf-8"))
        for part in message if isinstance(message, list) else [message]:
            assert part["jsonrpc"] == "2.0"
            if "method" not in part:
                assert ("result" in part) is not ("error" in part)
                if "error" in part:
                    assert type(part["error"]["code"]) is int
                    assert isinstance(part["error"]["message"], str)
                else:
                    assert isinstance(part["result"], dict)
                self.messages.append(part)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        raise AssertionError("the server sent more than the limit")

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        raise AssertionError(f"the link was lost: {error!r}")


def new_server() -> Server:
    server = Server("s", keepalive_interval=None)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def echo(value: Any) -> Any:
        return value

    @server.tool(inline=True)
    def fail() -> str:
        raise ToolError("on purpose")

    @server.resource("note://{number}")
    async def note(number: int) -> str:
        return f"note {number}"

    @server.prompt
    async def greet(name: str) -> str:
        return f"Hello, {name}"

    return server


def expected(frame: bytes, batches: bool) -> Iterator[Any]:
    """The ids under which answers must come, UNSET for an answer without one."""
    try:
        message = decode(frame)
    except Unreadable as unreadable:
        yield UNSET if unreadable.response else unreadable.id
        return
    if isinstance(message, list) and not batches:
        yield UNSET
        return
    nameless = False
    for part in message if isinstance(message, list) else [message]:
        if isinstance(part, Request):
            yield part.id
        elif isinstance(part, Rejected):
            identity = UNSET if part.response else part.id
            if identity is not UNSET or not nameless:
                yield identity
            nameless = nameless or identity is UNSET


def tally(identities: Any) -> Counter[Any]:
    """Count ids with their types: 1 is not "1"."""
    return Counter((type(identity).__name__, identity) for identity in identities)


async def settled(link: Any) -> None:
    """Wait until every call has its answer."""
    for _ in range(1000):
        await asyncio.sleep(0)
        if not link.session.running:
            return
    raise AssertionError(f"never answered: {list(link.session.running)}")


class Live:
    """A server in this process, and a client that says anything."""

    def __init__(self, version: str) -> None:
        self.link = new_server().link(Origin("memory"))
        self.heard = Heard()
        _, self.channel = memory_pair(self.heard, self.link)
        self.batches = version == "2025-03-26"
        if version:
            params = {"protocolVersion": version, **INITIALIZE}
            self.say(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}).encode())
            self.heard.messages.clear()

    def say(self, frame: bytes) -> None:
        """Say something, then something that can be read: many in a row that cannot are not all answered."""
        self.link.frame_received(frame, self.channel)
        self.link.frame_received(b'{"jsonrpc":"2.0","method":"notifications/between"}', self.channel)

    def answered(self) -> Counter[Any]:
        ids = [UNSET if part.get("id") is None else part["id"] for part in self.heard.messages]
        self.heard.messages.clear()
        return tally(ids)


@pytest.fixture(autouse=True)
def quiet(caplog: pytest.LogCaptureFixture) -> None:
    """What the server logs about garbage is not of interest here."""
    caplog.set_level(logging.CRITICAL, logger="ferrule")


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("version", ["", "2025-03-26", "2025-11-25"])
def test_frm_16_frm_11_every_readable_id_is_answered_exactly_once(version: str, seed: int) -> None:
    """JRPC-13 JRPC-22 RPC-5 RPC-9 ERRC-27: one message at a time, in each state of a link."""

    async def scene() -> None:
        chance = random.Random(f"{version}{seed}")
        live, messages = Live(version), corpus()
        for number in range(ROUNDS // len(SEEDS) // 3):
            frame = mutated(chance, messages)
            wanted = tally(expected(frame, live.batches))
            live.say(frame)
            await settled(live.link)
            assert live.answered() == wanted, frame
            if not version and live.link.session.peer is not None:
                live = Live(version)
            if number % 500 == 0:
                live.say(b'{"jsonrpc":"2.0","id":"alive","method":"ping"}')
                assert live.answered() == tally(["alive"])

    asyncio.run(scene())


@pytest.mark.parametrize("seed", SEEDS)
def test_frm_16_a_flood_of_mutated_messages_is_answered_to_the_last(seed: int) -> None:
    """CORR-11 JRPC-22: hundreds at once, so that ids collide and the line fills."""

    async def scene() -> None:
        chance = random.Random(seed)
        live, messages = Live("2025-11-25"), corpus()
        for _ in range(ROUNDS // 400):
            frames = [mutated(chance, messages) for _ in range(400)]
            wanted: Counter[Any] = Counter()
            for frame in frames:
                wanted += tally(expected(frame, batches=False))
                live.say(frame)
            await settled(live.link)
            assert live.answered() == wanted

    asyncio.run(scene())


@pytest.mark.parametrize("seed", SEEDS)
def test_frm_16_a_client_survives_mutated_answers(seed: int) -> None:
    """JRPC-21 CORR-04: nothing gets out of the link, and every caller learns something in the end."""

    async def scene() -> None:
        from ferrule.client.features.answers import QuestionHandlers
        from ferrule.protocol.call import Peer
        from ferrule.protocol.era import Eras
        from ferrule.protocol.handshake import NEWEST, Handshake
        from ferrule.runtime.dispatch import Dispatcher
        from ferrule.runtime.link import Link
        from ferrule.schema.lifecycle import ServerCapabilities
        from ferrule.schema.methods import METHODS

        chance = random.Random(seed)
        era, answering = Handshake(), QuestionHandlers()
        options = LinkOptions(tell_unreadable=False)
        rows = {name: row for name, row in METHODS.items() if row.by_client or name == "ping"}
        dispatcher = Dispatcher(answering.handlers(), answering.instant(), {})
        link = Link(Eras(era, era), rows, dispatcher, Origin("client"), options=options)
        link.session.agree(Peer(NEWEST, ServerCapabilities()))
        _, channel = memory_pair(Heard(), link)
        for _ in range(ROUNDS // 10):
            waiting = [asyncio.ensure_future(link.request("tools/list", {})) for _ in range(3)]
            await asyncio.sleep(0)
            ids = list(link.session.awaited)
            answers = [
                *({"jsonrpc": "2.0", "id": identity, "result": {"tools": []}} for identity in ids),
                *({"jsonrpc": "2.0", "id": identity, "error": {"code": 1, "message": "x"}} for identity in ids),
            ]
            for _ in range(4):
                link.frame_received(mutated(chance, answers), channel)
            for identity in ids:
                link.frame_received(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % identity, channel)
            await asyncio.gather(*waiting, return_exceptions=True)
            await settled(link)
            assert not link.session.awaited

    asyncio.run(scene())
