"""Classes with a JSON form that msgspec does not know."""

import collections
import ipaddress
import pathlib
import re
from typing import Any

import msgspec
import pytest

from ferrule.server.functions.schemas import schema_of
from ferrule.server.functions.types.extra_types import convert, decode_hook, encode_hook, extra_type
from ferrule.server.functions.types.readable import readable


class Email(str):
    __slots__ = ()

    def __new__(cls, text: str) -> "Email":
        if "@" not in text:
            raise ValueError("an address has an @")
        return super().__new__(cls, text)


@pytest.mark.parametrize(
    ("type_", "sent", "got", "schema"),
    [
        (pathlib.PurePosixPath, "a/b", pathlib.PurePosixPath("a/b"), {"type": "string", "format": "path"}),
        (re.Pattern, "a+", re.compile("a+"), {"type": "string", "format": "regex"}),
        (ipaddress.IPv4Address, "1.2.3.4", ipaddress.IPv4Address("1.2.3.4"), {"type": "string", "format": "ipv4"}),
        (ipaddress.IPv6Address, "::1", ipaddress.IPv6Address("::1"), {"type": "string", "format": "ipv6"}),
        (ipaddress.IPv4Network, "1.0.0.0/8", ipaddress.IPv4Network("1.0.0.0/8"), {"type": "string"}),
        (Email, "a@b", Email("a@b"), {"type": "string"}),
        (collections.deque, [1], collections.deque([1]), {"type": "array", "items": {}}),
        (collections.deque[int], [1], collections.deque([1]), {"type": "array", "items": {"type": "integer"}}),
        (
            collections.OrderedDict[str, int],
            {"a": 1},
            collections.OrderedDict(a=1),
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
        (
            collections.Counter[str],
            {"a": 1},
            collections.Counter("a"),
            {"type": "object", "additionalProperties": {"type": "integer"}},
        ),
    ],
    ids=str,
)
def test_a_class_is_read_written_and_described(type_: Any, sent: Any, got: Any, schema: dict[str, Any]) -> None:
    value = convert(sent, readable(type_))
    assert value == got
    assert type(value) is type(got)
    assert msgspec.to_builtins(value, enc_hook=encode_hook) == sent
    assert schema_of(type_) == schema


@pytest.mark.parametrize(
    ("type_", "sent", "reason"),
    [
        (pathlib.Path, 5, "Expected a path as `str`"),
        (re.Pattern, "(", "not a regular expression"),
        (ipaddress.IPv4Address, "1.2.3", "Expected 4 octets"),
        (ipaddress.IPv4Address, 5, "Expected an address as `str`"),
        (Email, "nobody", "an address has an @"),
        (collections.deque[int], ["a"], "Expected `int`"),
        (collections.deque[int], "a", "Expected `array`"),
    ],
    ids=str,
)
def test_what_is_no_value_of_a_class_is_refused_with_the_reason(type_: Any, sent: Any, reason: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=reason):
        convert(sent, readable(type_))


def test_a_defaultdict_makes_what_its_values_are_made_of() -> None:
    value = convert({"a": [1]}, readable(collections.defaultdict[str, list[int]]))
    assert value["b"] == []
    assert convert({"a": None}, readable(collections.defaultdict[str, int | None])).default_factory is None


def test_what_nobody_knows_is_neither_read_nor_written() -> None:
    assert extra_type(complex) is None
    with pytest.raises(NotImplementedError):
        decode_hook(complex, 5)
    with pytest.raises(NotImplementedError):
        encode_hook(5j)
