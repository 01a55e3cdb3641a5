"""What a client keeps of listed tools: bounded, and compiled when it is first needed."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from ferrule import Client
from ferrule.client.features.tool_facts import ToolFacts
from ferrule.errors import InvalidAnswer
from ferrule.schema.tools import CallToolResult, Tool, ToolAnnotations

TEXT = {"content": [{"type": "text", "text": "x"}], "resultType": "complete"}


def tool(name: str, **more: Any) -> Tool:
    return Tool(name=name, input_schema={"type": "object"}, **more)


def test_the_oldest_tools_are_forgotten_first() -> None:
    facts = ToolFacts(max_tools=3)
    for number in range(5):
        facts.note(tool(f"t{number}", annotations=ToolAnnotations(read_only_hint=True)), checks=True)
    assert len(facts) == 3
    assert {name for name in facts.handling if facts.handling[name].repeatable} == {"t2", "t3", "t4"}


def test_schemas_are_bounded_in_bytes() -> None:
    facts = ToolFacts(max_bytes=1000)
    for number in range(5):
        schema = {"type": "object", "title": "x" * 400}
        hints = ToolAnnotations(read_only_hint=True)
        facts.note(tool(f"t{number}", output_schema=schema, annotations=hints), checks=True)
    assert list(facts.output_checks) == ["t3", "t4"]
    assert list(facts.handling) == ["t3", "t4"]


def test_schemas_of_just_the_bound_are_kept_and_one_byte_more_is_not() -> None:
    schema = {"type": "object", "title": "x" * 100}
    size = len("t0") + len(msgspec.json.encode(schema))
    facts = ToolFacts(max_bytes=2 * size)
    for name in ("t0", "t1"):
        facts.note(tool(name, output_schema=schema), checks=True)
    assert list(facts.output_checks) == ["t0", "t1"]
    facts.note(tool("t1", output_schema={**schema, "title": "x" * 101}), checks=True)
    assert list(facts.output_checks) == ["t1"]
    facts.clear()
    assert len(facts) == 0
    for name in ("t2", "t3"):
        facts.note(tool(name, output_schema=schema), checks=True)
    assert list(facts.output_checks) == ["t2", "t3"]
    facts.note(tool("t"), checks=True)
    assert list(facts.output_checks) == ["t3"]


def test_nothing_is_known_of_tools_that_were_forgotten() -> None:
    facts = ToolFacts()
    hints = ToolAnnotations(idempotent_hint=True)
    schema = {"type": "object"}
    facts.note(tool("t", annotations=hints, output_schema=schema, execution={"taskSupport": "required"}), checks=True)
    facts.changed()
    assert (len(facts), list(facts.handling), facts.only_as_task, facts.output_checks) == (1, ["t"], set(), {})
    facts.note(tool("t", annotations=hints, output_schema=schema, execution={"taskSupport": "optional"}), checks=False)
    assert (facts.only_as_task, facts.output_checks) == (set(), {})
    facts.clear()
    assert (len(facts), facts.handling) == (0, {})


def test_a_tool_that_is_listed_again_is_not_the_oldest_any_more() -> None:
    facts = ToolFacts(max_tools=2)
    for name in ("a", "b", "a", "c"):
        facts.note(tool(name, annotations=ToolAnnotations(read_only_hint=True)), checks=True)
    assert list(facts.handling) == ["a", "c"]


def test_the_last_tool_is_kept_however_long_its_schema_is() -> None:
    facts = ToolFacts(max_bytes=1000)
    for number in range(2):
        facts.note(tool(f"t{number}", output_schema={"type": "object", "title": "x" * 2000}), checks=True)
    assert list(facts.output_checks) == ["t1"]


def test_a_tool_listed_again_takes_its_own_place() -> None:
    facts = ToolFacts(max_tools=2)
    for _ in range(100):
        facts.note(tool("same", output_schema={"type": "object"}, execution={"taskSupport": "required"}), checks=True)
    assert len(facts) == 1
    facts.note(tool("same"), checks=True)
    assert not facts.output_checks
    assert not facts.only_as_task


async def test_a_value_is_known_to_fit_once_the_schema_is_compiled() -> None:
    facts = ToolFacts()
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    facts.note(tool("t", output_schema=schema), checks=True)
    assert facts.fits("t", {"a": 1}, 10) is False
    await facts.check("t", CallToolResult(content=[], structured_content={"a": 1}))
    assert facts.fits("t", {"a": 1}, 10) is True
    assert facts.fits("t", {"a": "x"}, 10) is False


def offering(raw: Any, era: str, schema: dict[str, Any], content: Any) -> Any:
    listed = {"tools": [{"name": "t", "inputSchema": {"type": "object"}, "outputSchema": schema}]}
    called = {**TEXT, "structuredContent": content}
    hints = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if era == "stateless" else {}
    return raw(era, {"tools/list": {**listed, **hints}, "tools/call": called})


async def test_a_schema_over_the_budget_is_refused_by_name(era, raw):
    """A hostile server's output schema is not compiled, and its results are refused, each time."""
    patterns = {"type": "object", "properties": {f"p{n}": {"pattern": r"\p{L}{200}"} for n in range(600)}}
    server = offering(raw, era, patterns, {})
    async with Client(server, mode=era) as client:
        await client.list_tools()
        for _ in range(2):
            with pytest.raises(
                InvalidAnswer, match=r"output schema of the tool t: its patterns.*validate_results=False"
            ):
                await client.call_tool("t")


async def test_a_result_too_costly_to_check_is_refused(era, raw):
    schema = {"type": "object", "properties": {"v": {"pattern": "[ab]*a[ab]{500}c"}}}
    server = offering(raw, era, schema, {"v": "ab" * 50_000})
    async with Client(server, mode=era) as client:
        await client.list_tools()
        with pytest.raises(InvalidAnswer, match="the tool t is too large to be checked"):
            await client.call_tool("t")
    async with Client(server, mode=era, validate_results=False) as client:
        await client.list_tools()
        assert (await client.call_tool("t")).structured_content is not None


async def test_a_large_schema_is_compiled_in_a_thread_and_used(era, raw):
    schema = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(1000)}}
    server = offering(raw, era, schema, {"p7": 7})
    async with Client(server, mode=era) as client:
        await client.list_tools()
        with pytest.raises(InvalidAnswer, match="does not fit its output schema"):
            await client.call_tool("t")


@pytest.mark.parametrize(("length", "threads"), [(10, 0), (5000, 1)])
async def test_only_a_large_schema_is_worth_a_thread(length, threads, monkeypatch):
    begun = []

    async def to_thread(work, *arguments):
        begun.append(work)
        return work(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", to_thread)
    facts = ToolFacts()
    facts.note(tool("t", output_schema={"type": "object", "title": "x" * length}), checks=True)
    for _ in range(2):
        await facts.check("t", CallToolResult(content=[], structured_content={}))
    assert len(begun) == threads


async def test_a_schema_that_cannot_be_used_is_said_once_and_not_checked(era, raw, caplog):
    """Look-around is no attack: such results are taken as they are, as before."""
    server = offering(raw, era, {"type": "object", "properties": {"v": {"pattern": "(?=a)b"}}}, {"v": "x"})
    async with Client(server, mode=era) as client:
        await client.list_tools()
        await client.call_tool("t")
        await client.call_tool("t")
    assert caplog.text.count("results of the tool t are not checked") == 1


@pytest.mark.parametrize("raw", [b"{", b"[]", b'{"tools":"none"}'])
def test_nothing_is_learnt_of_a_list_that_cannot_be_read(raw: bytes) -> None:
    facts = ToolFacts()
    assert facts.learn(msgspec.Raw(raw)) == []
    assert facts.handling == {}
