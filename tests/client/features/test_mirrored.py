"""What a client keeps of what tools want mirrored is bounded, and learning it costs no more than reading."""

from __future__ import annotations

import logging
import time

import msgspec
import pytest
from msgspec import Raw

from ferrule.client.features.tool_facts import ToolFacts, without_tools

BAD = {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "X"}}}
GOOD = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "X"}}}


def page(*tools: dict[str, object]) -> Raw:
    return Raw(msgspec.json.encode({"tools": list(tools)}))


def test_the_oldest_tools_are_forgotten() -> None:
    known = ToolFacts(max_tools=3)
    hints = {"readOnlyHint": True}
    known.learn(page(*({"name": f"t{n}", "inputSchema": GOOD, "annotations": hints} for n in range(5))))
    found = [known.handling.get(f"t{n}") for n in range(5)]
    assert [each is not None and each.repeatable for each in found] == [False, False, True, True, True]
    assert [each is not None and bool(each.mirrored) for each in found] == [False, False, True, True, True]


def test_a_tool_that_is_listed_again_without_hints_is_like_any_other() -> None:
    known = ToolFacts(max_tools=2)
    safe = {"inputSchema": {}, "annotations": {"readOnlyHint": True}}
    known.learn(page({"name": "a", **safe}, {"name": "b", **safe}))
    assert list(known.handling) == ["a", "b"]
    known.learn(page({"name": "a", **safe}, {"name": "c", **safe}))
    assert list(known.handling) == ["a", "c"]
    known.learn(page({"name": "a", "inputSchema": {}}))
    assert list(known.handling) == ["c"]


def test_each_tool_that_cannot_be_called_is_named_for_who_looks_closer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "ferrule.client")
    assert ToolFacts().learn(page(*({"name": f"t{n}", "inputSchema": BAD} for n in range(2)))) == [0, 1]
    for name in ("t0", "t1"):
        assert f"the tool {name!r} cannot be called over HTTP" in caplog.text


def test_many_tools_that_cannot_be_called_are_left_out_in_linear_time(caplog: pytest.LogCaptureFixture) -> None:
    """A page of nothing but such tools took minutes; and one line of the log tells of all."""
    listed = page(*({"name": f"t{n}", "inputSchema": BAD} for n in range(5000)), {"name": "good", "inputSchema": {}})
    begun = time.process_time()
    sound = without_tools(listed, frozenset(ToolFacts().learn(listed)))
    assert time.process_time() - begun < 1.0
    assert [tool["name"] for tool in msgspec.json.decode(sound)["tools"]] == ["good"]
    assert caplog.text.count("cannot be called over HTTP") == 1
    assert "5000 tools" in caplog.text
