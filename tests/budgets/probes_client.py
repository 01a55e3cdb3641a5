"""Probes of what a server may send to a client, and of what a client keeps."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from msgspec import Raw
from table import probe

from ferrule import Client
from ferrule.budgets.weight import full_weight
from ferrule.client.features.cache import Cache
from ferrule.client.features.progress import progress_told
from ferrule.client.features.subscription import Changes
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.client.link.conversation import input_required
from ferrule.client.link.era_memory import EraMemory
from ferrule.client.link.inbox import Inbox
from ferrule.errors import InvalidAnswer
from ferrule.protocol.call import Note
from ferrule.schema.tools import Tool
from ferrule.supervision.scope import Scope
from ferrule.validation import graph, patterns
from ferrule.validation.checker import foreign_checker
from ferrule.validation.violations import TooCostly


def compiles(schema: dict[str, Any]) -> bool:
    try:
        foreign_checker(schema, "here")
    except TooCostly:
        return False
    return True


@probe("ferrule.budgets.bounds.MAX_KNOWN_TOOLS", lowered=50, clamps=True)
async def _tools(limit: int, size: int) -> bool:
    facts = ToolFacts(max_tools=limit)
    for number in range(size):
        facts.note(Tool(name=f"t{number}", input_schema={}), checks=True)
    return len(facts) == size


@probe("ferrule.budgets.bounds.MAX_KEPT_SCHEMAS", lowered=5000, clamps=True)
async def _schemas(limit: int, size: int) -> bool:
    facts = ToolFacts(max_bytes=limit)
    facts.note(Tool(name="a", input_schema={}), checks=True)
    text = msgspec.json.encode({"t": ""})
    facts.note(Tool(name="b", input_schema={}, output_schema={"t": "x" * (size - 2 - len(text))}), checks=True)
    return len(facts) == 2


@probe("ferrule.budgets.bounds.MAX_KNOWN_ERAS", clamps=True)
async def _eras(limit: int, size: int) -> bool:
    memory = EraMemory()
    for number in range(min(size, 2 * limit)):
        memory.remember(str(number))
    return len(memory) == size


@probe("ferrule.budgets.bounds.MAX_QUESTIONS")
async def _questions(limit: int, size: int) -> bool:
    asked = {"resultType": "input_required", "inputRequests": {str(n): {"method": "roots/list"} for n in range(size)}}
    try:
        input_required(Raw(msgspec.json.encode(asked)))
    except InvalidAnswer:
        return False
    return True


@probe("ferrule.budgets.bounds.MAX_PROGRESS_WAITING", clamps=True)
async def _progress(limit: int, size: int) -> bool:
    begun = 0

    async def slow(done: float, total: float | None, message: str | None) -> None:
        nonlocal begun
        begun += 1
        await asyncio.sleep(60)

    scope = Scope(asyncio.get_running_loop())
    tell = progress_told(slow, scope)
    for number in range(min(size, 2 * limit)):
        tell(number, None, None)
    await asyncio.sleep(0)
    await scope.close()
    return begun == size


@probe("ferrule.budgets.bounds.MAX_CHANGES_WAITING", clamps=True)
async def _changes(limit: int, size: int) -> bool:
    changes = Changes(None, "a://b")  # type: ignore[arg-type]
    for _ in range(size):
        changes.tell("a://b")
    return changes._waiting.qsize() == size


@probe("ferrule.budgets.bounds.MAX_NOTICES_SIZE", lowered=10_000, clamps=True)
async def _notices(limit: int, size: int) -> bool:
    notices = Inbox(max_bytes=limit)
    notices.on("n", lambda params: None)
    scope = Scope(asyncio.get_running_loop())
    empty = Raw(b"{}")
    full = Raw(b'{"a":"%b"}' % (b"x" * (size - 2 - len(b'{"a":""}'))))
    for params in (empty, full):
        notices.receive(Note("n", params, None, None), scope)  # type: ignore[arg-type]
    kept = len(notices._waiting)
    await scope.close()
    return kept == 2


@probe("Cache(max_bytes=…)", lowered=10_000, clamps=True)
async def _cache(limit: int, size: int) -> bool:
    cache = Cache(max_bytes=limit, max_entry=10**9)
    cache.keep("tools/list", {}, Raw(b'{"ttlMs":1000}'), 0.0)
    frame = b'{"ttlMs":1000,"x":""}'
    rest = size - 2 * len(b"{}") - len(b'{"ttlMs":1000}') - len(frame)
    cache.keep("prompts/list", {}, Raw(frame[:-2] + b"x" * rest + frame[-2:]), 0.0)
    return len(cache) == 2


@probe("Cache(max_entry=…)", lowered=10_000)
async def _entry(limit: int, size: int) -> bool:
    cache = Cache(max_bytes=10**9, max_entry=limit)
    frame = b'{"ttlMs":1000,"x":""}'
    rest = size - len(b"{}") - len(frame)
    cache.keep("prompts/list", {}, Raw(frame[:-2] + b"x" * rest + frame[-2:]), 0.0)
    return len(cache) == 1


DISCOVERED = b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}'


class _Lister:
    """A server in this process that lists tools."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    async def enter(self) -> None: ...

    async def leave(self) -> None: ...

    async def drain(self, grace: float) -> None: ...

    def link(self, origin: Any) -> _Lister:
        return self

    def channel_opened(self, channel: Any) -> None: ...

    def frame_received(self, frame: bytes, channel: Any) -> None:
        request = msgspec.json.decode(frame)
        if "id" in request:
            result = DISCOVERED if request["method"] == "server/discover" else self._answer
            channel.send(Raw(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], result)))

    def frame_refused(self, max_size: int, channel: Any, head: bytes = b"") -> None: ...

    def end_received(self, channel: Any) -> None: ...

    def channel_lost(self, channel: Any, error: Exception | None) -> None: ...


async def _lists(answer: bytes, **options: int) -> bool:
    async with Client(_Lister(answer), mode="stateless", **options) as client:  # type: ignore[arg-type]
        try:
            await client.list_tools()
        except InvalidAnswer as refusal:
            return next(iter(options)) not in str(refusal)
    return True


@probe("Client(max_list_items=…)", lowered=100)
async def _items(limit: int, size: int) -> bool:
    tools = b",".join([b'{"name":"t","inputSchema":{"type":"object"}}'] * size)
    return await _lists(b'{"tools":[%b]}' % tools, max_list_items=limit, max_list_bytes=10**9)


@probe("Client(max_list_bytes=…)", lowered=10_000)
async def _bytes(limit: int, size: int) -> bool:
    empty = b'{"tools":[],"x":""}'
    padding, odd = divmod(size - full_weight(empty), 2)
    padded = b'{"tools":[],"x":"%b"}' % (b"x" * (padding + odd))
    return await _lists(padded, max_list_bytes=limit)


@probe("ferrule.validation.checker.MAX_FOREIGN_SIZE")
async def _schema_size(limit: int, size: int) -> bool:
    empty = {"type": "object", "title": ""}
    return compiles({**empty, "title": "x" * (size - len(msgspec.json.encode(empty)))})


@probe("ferrule.validation.graph.MAX_FOREIGN_SUBSCHEMAS")
async def _subschemas(limit: int, size: int) -> bool:
    assert limit == graph.MAX_FOREIGN_SUBSCHEMAS
    return compiles({"type": "object", "allOf": [{} for _ in range(size - 1)]})


@probe("ferrule.validation.patterns.MAX_PATTERN_LENGTH")
async def _pattern_length(limit: int, size: int) -> bool:
    assert limit == patterns.MAX_PATTERN_LENGTH
    return compiles({"type": "object", "properties": {"a": {"pattern": "[" + "a" * (size - 2) + "]"}}})


@probe("ferrule.validation.patterns.MAX_PATTERN_WEIGHT")
async def _pattern_weight(limit: int, size: int) -> bool:
    assert limit == patterns.MAX_PATTERN_WEIGHT
    return compiles({"type": "object", "properties": {"a": {"pattern": f"a{{{size}}}"}}})
