"""What a handler returned, as the result its method has."""

import datetime
import decimal
import math
import pathlib
import uuid
from dataclasses import dataclass
from types import MappingProxyType

import msgspec
import pytest

from ferrule.schema.content import ImageContent, ResourceContents, TextContent
from ferrule.schema.prompts import GetPromptResult, PromptMessage
from ferrule.schema.resources import ReadResourceResult
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.results import (
    UnwritableResult,
    contents_of,
    failed,
    json_of,
    prompt_of,
    structured,
    unstructured,
    wrapped,
    wrapper_for,
)


@dataclass
class Reading:
    value: float


class Box(msgspec.Struct):
    inner: object = None


class Loud(str):
    """Text of one's own kind, as template engines and parsers give it."""

    __slots__ = ()


class Dozen(int):
    """A number of one's own kind."""


class Share(float):
    """Another."""


def endless():
    ring = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"),
        ({"a": [1, 2.5, True, None]}, '{"a":[1,2.5,true,null]}'),
        (datetime.date(2026, 7, 28), '"2026-07-28"'),
        (decimal.Decimal("1.10"), "1.10"),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (pathlib.PurePosixPath("/a/b"), '"/a/b"'),
        (frozenset({1}), "[1]"),
        (Reading(0.5), '{"value":0.5}'),
        (b"\xff", '"/w=="'),
        ("null", '"null"'),
        (2**70, "1180591620717411303424"),
        (Loud("hi"), '"hi"'),
        ([Dozen(12), Share(0.5)], "[12,0.5]"),
        ([None, 0x00CB7FF000000000], "[null,57280089041141760]"),  # its bytes hold those of an infinity
        ([None, "null", 2**70], '[null,"null",1180591620717411303424]'),
        (["NaN", "to Infinity", ":NaN,"], '["NaN","to Infinity",":NaN,"]'),
    ],
    ids=repr,
)
def test_plain_values_are_written_as_json(value, written):
    assert json_of(value).decode() == written


@pytest.mark.parametrize(
    "value",
    [
        math.nan,
        math.inf,
        [1, [-math.inf]],
        {"a": {"b": math.nan}},
        (math.nan,),
        Reading(math.nan),
        Box(Reading(math.inf)),
        {1: None, 2: math.nan},
        decimal.Decimal("NaN"),
        [decimal.Decimal("-sNaN")],
        {"a": decimal.Decimal("-Infinity"), "b": "NaN"},
    ],
    ids=repr,
)
def test_what_json_has_no_number_for_is_refused_and_never_null(value):
    with pytest.raises(UnwritableResult, match="NaN or infinity"):
        json_of(value)


@pytest.mark.parametrize("value", [object(), endless(), "x\ud800y", {"k": lambda: 0}], ids=lambda v: type(v).__name__)
def test_what_json_cannot_say_is_refused_with_the_reason(value):
    with pytest.raises(UnwritableResult, match="the result"):
        json_of(value)


def test_a_failure_is_text_for_the_model():
    assert failed("no") == CallToolResult(content=[TextContent("no")], is_error=True)


def test_a_result_a_handler_keeps_is_copied_before_it_is_stamped():
    kept = CallToolResult(content=[])
    for wrap in (unstructured, wrapped, structured):
        assert wrap(kept) == kept
        assert wrap(kept) is not kept
    read = ReadResourceResult(contents=[])
    assert contents_of(read, "x:y", None) is not read
    got = GetPromptResult(messages=[])
    assert prompt_of(got, None) is not got


def test_the_way_to_wrap_is_chosen_by_the_declared_type():
    schema = {"type": "object"}
    assert wrapper_for(str, None, False)("x").structured_content is None
    assert wrapper_for(str, schema, True)("x").structured_content == {"result": "x"}
    assert wrapper_for(int, schema, True)(3).structured_content == {"result": 3}
    whole = wrapper_for(dict, schema, False)({"a": 1})
    assert bytes(whole.structured_content) == b'{"a":1}'
    assert whole.text == '{"a":1}'


def test_a_subclass_of_text_is_still_written_as_text():
    assert wrapper_for(str, {"type": "object"}, True)(Loud("hi")).text == "hi"
    for made in (unstructured(Loud("hi")).content[0], prompt_of(Loud("hi"), None).messages[0].content):
        assert msgspec.json.encode(made) == b'{"type":"text","text":"hi"}'
    assert msgspec.json.encode(contents_of(Loud("hi"), "x:y", None).contents[0].text) == b'"hi"'


def test_contents_take_the_uri_that_was_read():
    own = ResourceContents(uri="other:x", text="t")
    assert contents_of([own, "a"], "x:y", "text/csv").contents == [
        own,
        ResourceContents(uri="x:y", mime_type="text/csv", text="a"),
    ]
    assert contents_of(memoryview(b"m"), "x:y", None).contents[0].blob == "bQ=="
    assert contents_of(bytearray(b"m"), "x:y", None).contents[0].mime_type == "application/octet-stream"
    assert contents_of([], "x:y", None).contents[0].text == "[]"


def test_messages_take_the_role_they_are_given_with():
    picture = ImageContent("AA==", "image/png")
    reply = MappingProxyType({"role": "assistant", "content": ["b", picture]})
    parts = ["a", reply, PromptMessage(role="user", content=picture)]
    assert [(message.role, message.content) for message in prompt_of(parts, "d").messages] == [
        ("user", TextContent("a")),
        ("assistant", TextContent("b")),
        ("assistant", picture),
        ("user", picture),
    ]
    assert prompt_of("x", "d").description == "d"
