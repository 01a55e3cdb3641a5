"""Headers that mirror the body."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from ferrule.errors import HeaderMismatch
from ferrule.protocol.stateless import NEWEST
from ferrule.schema.mirrored import mirrored_arguments
from ferrule.schema.model import VERSION_KEY
from ferrule.transports.http.mirror import (
    check,
    decode_value,
    encode_value,
    mirrored_headers,
    peek,
    version_of,
)

META = {VERSION_KEY: NEWEST.version}

ENCODED = [
    ("us west 1", "us west 1"),
    (" us-west1", "=?base64?IHVzLXdlc3Qx?="),
    ("line1\r\nline2", "=?base64?bGluZTENCmxpbmUy?="),
    ("\tindented", "=?base64?CWluZGVudGVk?="),
    ("日本語", "=?base64?5pel5pys6Kqe?="),
    ("", ""),
    ("false", "false"),
    ("=?base64?SGVsbG8=?=", "=?base64?PT9iYXNlNjQ/U0dWc2JHOD0/PQ==?="),
]


def sent(method: str, params: dict[str, Any], **annotated: tuple[str, ...]) -> dict[bytes, bytes]:
    """Return the headers of a request as a server reads them."""
    headers = mirrored_headers(method, params, annotated)
    return {name.lower().encode(): value.encode() for name, value in headers.items()}


def body(method: str, params: dict[str, Any]) -> Any:
    """Return a request as a server peeks at it."""
    return peek(msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}))


def tool(**properties: Any) -> dict[str, Any]:
    """Return the schema of a tool with these arguments."""
    return {"type": "object", "properties": properties}


# -- values


@pytest.mark.parametrize(("value", "header"), ENCODED)
def test_a_value_is_written_so_that_it_survives_a_header(value: str, header: str) -> None:
    """HDR-6, HDR-16."""
    assert encode_value(value) == header
    assert decode_value(header) == value


@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_every_value_comes_back_and_is_a_legal_header(value: str) -> None:
    header = encode_value(value)
    assert decode_value(header) == value
    assert header == header.strip()
    assert all(" " <= character <= "~" for character in header)


@pytest.mark.parametrize("literal", ["SGVsbG8=", "=?base64?SGVsbG8=", "=?BASE64?SGVsbG8=?="])
def test_what_only_looks_like_the_encoded_form_is_itself(literal: str) -> None:
    """HDR-16."""
    assert decode_value(literal) == literal


@pytest.mark.parametrize(
    "bad", ["=?base64?SGVsbG8?=", "=?base64?SGVs!!!bG8=?=", "=?base64?SGVsbG9=?=", "=?base64?/w==?=", "h\xe9", "a\x01"]
)
def test_what_nobody_would_write_is_refused(bad: str) -> None:
    """HDR-5, HDR-16."""
    with pytest.raises(ValueError, match=r"its base64|characters"):
        decode_value(bad)


# -- what a client sends


def test_every_request_names_its_version_and_method() -> None:
    """HDR-1, HDR-2."""
    assert mirrored_headers("tools/list", {"_meta": META}) == {
        "Mcp-Protocol-Version": NEWEST.version,
        "Mcp-Method": "tools/list",
    }


@pytest.mark.parametrize(
    ("method", "member"),
    [
        ("tools/call", "name"),
        ("prompts/get", "name"),
        ("resources/read", "uri"),
        ("tasks/get", "taskId"),
        ("tasks/update", "taskId"),
        ("tasks/cancel", "taskId"),
    ],
)
def test_what_a_request_is_about_is_its_name(method: str, member: str) -> None:
    """HDR-3."""
    assert mirrored_headers(method, {"_meta": META, member: "é"})["Mcp-Name"] == "=?base64?w6k=?="


def test_the_version_is_read_from_encoded_metadata_too() -> None:
    assert version_of(Raw(msgspec.json.encode(META))) == NEWEST.version
    assert version_of(META) == NEWEST.version
    assert version_of(None) is None


def test_annotated_arguments_are_mirrored_in_their_form() -> None:
    """HDR-10."""
    annotated = {
        "S": ("s",),
        "I": ("deep", "i"),
        "B": ("b",),
        "F": ("f",),
        "N": ("n",),
        "Gone": ("x", "y"),
        "L": ("l",),
    }
    arguments = {"s": " a", "deep": {"i": 42}, "b": True, "f": 7.0, "n": None, "x": 3, "l": [1]}
    headers = mirrored_headers("tools/call", {"_meta": META, "name": "t", "arguments": arguments}, annotated)
    assert {name: value for name, value in headers.items() if name.startswith("Mcp-Param-")} == {
        "Mcp-Param-S": "=?base64?IGE=?=",
        "Mcp-Param-I": "42",
        "Mcp-Param-B": "true",
        "Mcp-Param-F": "7",
    }


# -- annotations


def test_annotations_are_found_along_properties() -> None:
    """HDR-7."""
    schema = tool(
        region={"type": "string", "x-mcp-header": "Region"},
        deep={"type": "object", "properties": {"n": {"type": "integer", "x-mcp-header": "Method"}}},
        perhaps={"type": ["boolean", "null"], "x-mcp-header": "P"},
        maybe={"anyOf": [{"type": "string"}, {"type": "null"}], "x-mcp-header": "Q"},
        plain={"type": "string", "default": {"x-mcp-header": "data, not a schema"}},
    )
    assert mirrored_arguments(schema) == {
        "Region": ("region",),
        "Method": ("deep", "n"),
        "P": ("perhaps",),
        "Q": ("maybe",),
    }


ANNOTATED = {"type": "string", "x-mcp-header": "A"}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (tool(a={"type": "string", "x-mcp-header": ""}), "not a header name"),
        (tool(a={"type": "string", "x-mcp-header": "a b"}), "not a header name"),
        (tool(a={"type": "string", "x-mcp-header": "a\nb"}), "not a header name"),
        (tool(a={"type": "string", "x-mcp-header": 5}), "not a header name"),
        (tool(a={"type": "number", "x-mcp-header": "A"}), "only a string"),
        (tool(a={"type": "object", "x-mcp-header": "A"}), "only a string"),
        (tool(a={"type": "null", "x-mcp-header": "A"}), "only a string"),
        (tool(a={"type": ["string", "integer"], "x-mcp-header": "A"}), "only a string"),
        (tool(a={"x-mcp-header": "A"}), "only a string"),
        (tool(a=ANNOTATED, b={"type": "string", "x-mcp-header": "a"}), "used twice"),
        ({"type": "object", "x-mcp-header": "A"}, "no path"),
        (tool(a={"type": "array", "items": ANNOTATED}), "no path"),
        (tool(a={"oneOf": [ANNOTATED]}), "no path"),
        ({"allOf": [tool(a=ANNOTATED)]}, "no path"),
        ({"if": tool(a=ANNOTATED)}, "no path"),
        ({"not": tool(a=ANNOTATED)}, "no path"),
        ({"$defs": {"x": tool(a=ANNOTATED)}}, "no path"),
    ],
)
def test_an_annotation_that_cannot_be_mirrored_makes_the_tool_invalid(schema: dict[str, Any], why: str) -> None:
    """HDR-8."""
    with pytest.raises(ValueError, match=why):
        mirrored_arguments(schema)


# -- what a server checks


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("tools/list", {}),
        ("tools/call", {"name": "日本語", "arguments": {}}),
        ("tools/call", {"name": "=?base64?SGVsbG8=?="}),
        ("resources/read", {"uri": "file:///a b"}),
        ("tasks/get", {"taskId": "t"}),
        ("tools/call", {}),
        ("vendor/own", {"name": 5}),
    ],
)
def test_what_our_client_sends_passes(method: str, params: dict[str, Any]) -> None:
    """HDR-4."""
    params = {**params, "_meta": META}
    check(sent(method, params), body(method, params))


@pytest.mark.parametrize("header", ["Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"])
def test_a_missing_header_is_named(header: str) -> None:
    """HDR-4."""
    params = {"name": "t", "_meta": META}
    headers = sent("tools/call", params)
    del headers[header.lower().encode()]
    with pytest.raises(HeaderMismatch, match=f"{header} is missing"):
        check(headers, body("tools/call", params))


@pytest.mark.parametrize("method", ["tasks/get", "tasks/update", "tasks/cancel"])
def test_a_task_may_be_asked_for_without_its_header_and_not_with_a_wrong_one(method: str) -> None:
    """Clients of fastmcp-tasks leave it out; the official suite wants the wrong one refused."""
    params = {"taskId": "t", "_meta": META}
    headers = sent(method, params)
    assert headers.pop(b"mcp-name") == b"t"
    check(headers, body(method, params))
    with pytest.raises(HeaderMismatch, match="Mcp-Name is 'other', the body says 't'"):
        check({**headers, b"mcp-name": b"other"}, body(method, params))
    del headers[b"mcp-method"]
    with pytest.raises(HeaderMismatch, match="Mcp-Method is missing"):
        check(headers, body(method, params))


def test_a_missing_name_says_whose_mistake_it_is() -> None:
    params = {"name": "t", "_meta": META}
    headers = sent("tools/call", params)
    del headers[b"mcp-name"]
    with pytest.raises(HeaderMismatch, match="the client has to send it: tools/call of 't' names it there too"):
        check(headers, body("tools/call", params))


@pytest.mark.parametrize("header", ["Mcp-Protocol-Version", "Mcp-Method", "Mcp-Name"])
def test_a_header_that_contradicts_the_body_is_named_with_both_values(header: str) -> None:
    """HDR-4."""
    params = {"name": "t" * 500, "_meta": META}
    headers = {**sent("tools/call", params), header.lower().encode(): b"TOOLS/CALL" + b"x" * 500}
    with pytest.raises(HeaderMismatch) as raised:
        check(headers, body("tools/call", params))
    assert header in raised.value.message
    assert "TOOLS/CALL" in raised.value.message
    assert len(raised.value.message) < 250


def test_a_header_given_twice_is_refused() -> None:
    """HDR-15: a front end joins them with a comma."""
    params = {"name": "t", "_meta": META}
    with pytest.raises(HeaderMismatch):
        check({**sent("tools/call", params), b"mcp-name": b"t, t"}, body("tools/call", params))


@pytest.mark.parametrize("bad", [b"=?base64?SGVsbG8?=", "日本語".encode()])
def test_a_name_that_cannot_be_decoded_is_refused(bad: bytes) -> None:
    """HDR-5."""
    params = {"name": "日本語", "_meta": META}
    with pytest.raises(HeaderMismatch, match="cannot be read"):
        check({**sent("tools/call", params), b"mcp-name": bad}, body("tools/call", params))


def test_an_encoded_looking_name_is_decoded_before_it_is_compared() -> None:
    params = {"name": "=?base64?SGVsbG8=?=", "_meta": META}
    with pytest.raises(HeaderMismatch):
        check({**sent("tools/call", params), b"mcp-name": b"=?base64?SGVsbG8=?="}, body("tools/call", params))


def test_a_body_without_metadata_is_left_to_the_era_once_its_headers_are_there() -> None:
    check({b"mcp-protocol-version": b"x", b"mcp-method": b"y"}, body("tools/list", {}))
    with pytest.raises(HeaderMismatch, match="missing"):
        check({b"mcp-method": b"y"}, body("tools/list", {}))


REGION = {"Region": ("region",), "Count": ("deep", "count"), "Flag": ("flag",)}


def call(**arguments: Any) -> dict[str, Any]:
    """Return the params of a tool call."""
    return {"name": "t", "arguments": arguments, "_meta": META}


@pytest.mark.parametrize("arguments", [{}, {"region": None}, {"region": " é", "deep": {"count": -3}, "flag": False}])
def test_mirrored_arguments_of_our_client_pass(arguments: dict[str, Any]) -> None:
    params = call(**arguments)
    check(sent("tools/call", params, **REGION), body("tools/call", params), REGION)


@pytest.mark.parametrize(
    ("arguments", "header", "value", "why"),
    [
        ({"region": "eu"}, b"mcp-param-region", None, "missing"),
        ({"region": "eu"}, b"mcp-param-region", b"us", "the body says 'eu'"),
        ({"region": "eu"}, b"mcp-param-region", b"EU", "the body says 'eu'"),
        ({"region": "eu"}, b"mcp-param-region", b"=?base64?!?=", "cannot be read"),
        ({"region": "eu"}, b"mcp-param-region", b"e\xe9", "cannot be read"),
        ({}, b"mcp-param-region", b"eu", "has no 'region'"),
        ({"region": None}, b"mcp-param-region", b"", "has no 'region'"),
        ({"deep": {"count": 42}}, b"mcp-param-count", b"43", "says '42'"),
        ({"deep": {"count": 42}}, b"mcp-param-count", b"42.5", "says '42'"),
        ({"flag": True}, b"mcp-param-flag", b"True", "says 'true'"),
    ],
)
def test_a_mirrored_argument_that_differs_is_refused(
    arguments: dict[str, Any], header: bytes, value: bytes | None, why: str
) -> None:
    """HDR-11."""
    params = call(**arguments)
    headers = sent("tools/call", params, **REGION)
    headers.pop(header, None)
    if value is not None:
        headers[header] = value
    with pytest.raises(HeaderMismatch, match=why):
        check(headers, body("tools/call", params), REGION)


@pytest.mark.parametrize(("count", "header"), [(42, b"42.0"), (42.0, b"42"), (42.0, b"42.00"), (2**60, b"%d" % 2**60)])
def test_integers_are_compared_as_numbers(count: float, header: bytes) -> None:
    """HDR-11."""
    params = call(deep={"count": count})
    check({**sent("tools/call", params, **REGION), b"mcp-param-count": header}, body("tools/call", params), REGION)


def test_the_last_of_doubled_members_is_the_one_that_is_checked() -> None:
    doubled = peek(b'{"method":"tools/list","method":"tools/call","params":{"name":"a","name":"b","uri":5}}')
    assert (doubled.method, doubled.params.name) == ("tools/call", "b")
