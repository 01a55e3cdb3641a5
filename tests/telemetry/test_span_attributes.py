"""Spans have the names and attributes of the OpenTelemetry conventions for MCP."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.telemetry.observer import ObservedLink, ObservedRequest, Outcome
from ferrule.telemetry.span_attributes import (
    MAX_CONTENT,
    MAX_TEXT,
    content_attributes,
    ending_attributes,
    received_attributes,
    sent_attributes,
    span_name,
)
from ferrule.wire.channel import Origin


def request(method: str = "tools/call", name: str = "add", **facts: Any) -> ObservedRequest:
    """Return a request with some facts."""
    given = {"id": 7, "transport": "stdio", "origin": Origin("stdio"), "began": 0.0, **facts}
    return ObservedRequest(method=method, name=name, **given)


@pytest.mark.parametrize(
    ("method", "name", "expected"),
    [
        ("tools/call", "add", "tools/call add"),
        ("prompts/get", "review", "prompts/get review"),
        ("resources/read", "notes://7", "resources/read"),
        ("tools/list", "", "tools/list"),
        ("tools/call", "x" * 1000, "tools/call " + "x" * MAX_TEXT),
        ("m" * 1000, "", "m" * MAX_TEXT),
    ],
)
def test_a_span_is_named_by_method_and_tool_or_prompt_never_by_a_uri(method: str, name: str, expected: str) -> None:
    assert span_name(request(method, name)) == expected


def test_the_name_of_a_tool_that_does_not_exist_names_no_span() -> None:
    outcome = Outcome(kind="error", code=-32602, reason="unknown_tool")
    assert span_name(request(name="made-up-1"), outcome) == "tools/call"
    assert span_name(request(), Outcome(kind="error", reason="invalid_params")) == "tools/call add"


def test_a_tool_call_has_these_attributes() -> None:
    assert received_attributes(request(revision="2025-11-25")) == {
        "mcp.method.name": "tools/call",
        "network.transport": "pipe",
        "mcp.protocol.version": "2025-11-25",
        "ferrule.era": "handshake",
        "jsonrpc.request.id": "7",
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "add",
    }


@pytest.mark.parametrize(
    ("method", "name", "attribute"),
    [
        ("prompts/get", "review", "gen_ai.prompt.name"),
        ("resources/read", "notes://7", "mcp.resource.uri"),
        ("resources/subscribe", "notes://7", "mcp.resource.uri"),
    ],
)
def test_what_a_request_is_about_is_an_attribute(method: str, name: str, attribute: str) -> None:
    found = received_attributes(request(method, name, revision="2026-07-28", stateless=True, retry=True, id=None))
    assert found == {
        "mcp.method.name": method,
        "network.transport": "pipe",
        "mcp.protocol.version": "2026-07-28",
        "ferrule.era": "stateless",
        "ferrule.retry": True,
        attribute: name,
    }


@pytest.mark.parametrize(
    ("address", "host", "port"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 8000),
        ("[::1]:8000", "::1", 8000),
        ("http://example.com/mcp", "example.com", None),
        ("wss://user:secret@example.com:443/mcp/ws", "example.com", 443),
        ("/run/s", "/run/s", None),
        ("", None, None),
        ("[::1", None, None),
        ("host:notaport", None, None),
    ],
)
def test_the_peer_of_a_span_has_an_address_and_a_port(address: str, host: str | None, port: int | None) -> None:
    """SES-12"""
    served = received_attributes(request(origin=Origin("tcp", address)))
    assert (served.get("client.address"), served.get("client.port")) == (host, port)
    link = ObservedLink(side="client", transport="tcp", address=address)
    sent = sent_attributes(request(link=link))
    assert (sent.get("server.address"), sent.get("server.port")) == (host, port)
    questions = sent_attributes(request(link=ObservedLink(side="server", transport="tcp", address=address)))
    assert "server.address" not in questions


def test_a_protocol_on_top_of_tcp_is_named() -> None:
    found = received_attributes(request(transport="websocket"))
    assert (found["network.transport"], found["network.protocol.name"]) == ("tcp", "websocket")
    assert received_attributes(request(transport="pigeon"))["network.transport"] == "pigeon"


@pytest.mark.parametrize(
    ("outcome", "kind", "code"),
    [
        (Outcome(kind="ok"), None, None),
        (Outcome(kind="input_required"), None, None),
        (Outcome(kind="tool_error"), "tool_error", None),
        (Outcome(kind="error", code=-32603, reason="internal"), "-32603", "-32603"),
        (Outcome(kind="refused", code=-32601), "-32601", "-32601"),
        (Outcome(kind="cancelled"), "cancelled", None),
        (Outcome(kind="error", reason="InvalidAnswer"), "InvalidAnswer", None),
    ],
)
def test_how_a_request_ended_is_an_error_type_only_if_it_failed(
    outcome: Outcome, kind: str | None, code: str | None
) -> None:
    found = ending_attributes(outcome)
    assert (found.get("error.type"), found.get("rpc.response.status_code")) == (kind, code)


def test_long_contents_are_cut() -> None:
    found = content_attributes(b"{}", b"x" * (2 * MAX_CONTENT))
    assert found["gen_ai.tool.call.arguments"] == "{}"
    assert len(str(found["gen_ai.tool.call.result"])) == MAX_CONTENT
    assert content_attributes(b"{}", b"") == {"gen_ai.tool.call.arguments": "{}"}


def test_a_request_that_a_router_sends_names_its_target_and_its_attempt() -> None:
    link = ObservedLink(side="client", transport="http", upstream="search", replica="a")
    found = sent_attributes(request(transport="http", link=link, attempt=2, session="0123456789abcdef"))
    assert (found["ferrule.upstream"], found["ferrule.replica"], found["ferrule.attempt"]) == ("search", "a", 2)
    assert found["network.protocol.version"] == "1.1"
    assert found["mcp.session.id"] == "01234567"


def test_a_client_of_one_server_names_no_replica_and_no_attempt() -> None:
    link = ObservedLink(side="client", transport="stdio")
    found = sent_attributes(request(link=link))
    assert not found.keys() & {"ferrule.upstream", "ferrule.replica", "ferrule.attempt", "mcp.session.id"}


@pytest.mark.parametrize(("transport", "version"), [("http", "2"), ("websocket", "13"), ("tcp", None)])
def test_the_version_of_the_protocol_below_is_named(transport: str, version: str | None) -> None:
    origin = Origin(transport, http="2" if transport == "http" else "")
    assert received_attributes(request(transport=transport, origin=origin)).get("network.protocol.version") == version
