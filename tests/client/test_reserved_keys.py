"""The reserved keys of `_meta`, as they stand on the wire."""

from __future__ import annotations

from ferrule import Client

PREFIX = "io.modelcontextprotocol/"
COMPLETE = {"resultType": "complete", "content": []}


async def test_a_request_of_the_stateless_era_has_the_reserved_keys_and_no_others(raw):
    """META-6: each by its exact name; those of tracing without a prefix."""
    server = raw("stateless", {"tools/call": COMPLETE})
    tracing = {"traceparent": "00-1-1-01", "tracestate": "a=b", "baggage": "c=d"}
    async with Client(server, mode="stateless", log_level="info") as client:
        await client.call_tool("x", meta=tracing, on_progress=lambda *told: None)
    meta = server.sent("tools/call")[0]["params"]["_meta"]
    ours = {"protocolVersion", "clientInfo", "clientCapabilities", "logLevel"}
    assert meta.keys() == {f"{PREFIX}{name}" for name in ours} | {"progressToken", *tracing}
    assert {name: meta[name] for name in tracing} == tracing


async def test_a_request_of_the_handshake_era_has_none_but_what_it_was_given(raw):
    """META-6: what each request says in one era is said once in the other."""
    server = raw("handshake", {"tools/call": COMPLETE})
    async with Client(server, mode="handshake") as client:
        await client.call_tool("x", meta={"traceparent": "00-1-1-01"}, on_progress=lambda *told: None)
        await client.call_tool("x")
    first, second = (request["params"] for request in server.sent("tools/call"))
    assert first["_meta"].keys() == {"traceparent", "progressToken"}
    assert "_meta" not in second


async def test_the_server_is_named_by_its_reserved_key(raw):
    """META-6: in the results of the stateless era."""
    server = raw("stateless")
    async with Client(server, mode="stateless") as client:
        assert client.server_info.name == "raw"
    assert f"{PREFIX}serverInfo" in server.discover_result()["_meta"]
