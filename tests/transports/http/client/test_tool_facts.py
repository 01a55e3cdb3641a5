"""What the transport remembers of listed tools is bounded, and learning it costs no more than reading."""

from __future__ import annotations

import time

import msgspec
import pytest

from ferrule.transports.http.client.tool_facts import ToolFactsOfTransport

BAD = {"type": "object", "properties": {"a": {"type": "object", "x-mcp-header": "X"}}}
GOOD = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": "X"}}}


def page(*tools: dict[str, object]) -> bytes:
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "result": {"tools": list(tools)}})


def test_the_oldest_tools_are_forgotten() -> None:
    known = ToolFactsOfTransport(limit=3)
    hints = {"readOnlyHint": True}
    known.learn(page(*({"name": f"t{n}", "inputSchema": GOOD, "annotations": hints} for n in range(5))))
    assert [known.repeatable(f"t{n}") for n in range(5)] == [False, False, True, True, True]
    assert [bool(known.annotated(f"t{n}")) for n in range(5)] == [False, False, True, True, True]


def test_many_tools_that_cannot_be_called_are_left_out_in_linear_time(caplog: pytest.LogCaptureFixture) -> None:
    """A page of nothing but such tools took minutes; and one line of the log tells of all."""
    frame = page(*({"name": f"t{n}", "inputSchema": BAD} for n in range(5000)), {"name": "good", "inputSchema": {}})
    begun = time.process_time()
    sound, _ = ToolFactsOfTransport().learn(frame)
    assert time.process_time() - begun < 1.0
    assert [tool["name"] for tool in msgspec.json.decode(sound)["result"]["tools"]] == ["good"]
    assert caplog.text.count("cannot be called over HTTP") == 1
    assert "5000 tools" in caplog.text
