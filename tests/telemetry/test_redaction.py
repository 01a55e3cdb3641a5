"""What receipts keep of a call's contents, and what is taken out first."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.telemetry.redaction import REDACTED, RecordRule, content_to_keep, read_path, redact


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("$.card", {"card": REDACTED, "items": [{"price": 1, "x": 2}, {"price": 3}], "a b": {"c": 4}}),
        ("$.items[*].price", {"card": 7, "items": [{"price": REDACTED, "x": 2}, {"price": REDACTED}], "a b": {"c": 4}}),
        ("$.items[1]", {"card": 7, "items": [{"price": 1, "x": 2}, REDACTED], "a b": {"c": 4}}),
        ("$['a b'].c", {"card": 7, "items": [{"price": 1, "x": 2}, {"price": 3}], "a b": {"c": REDACTED}}),
        ('$["a b"]', {"card": 7, "items": [{"price": 1, "x": 2}, {"price": 3}], "a b": REDACTED}),
        ("$.*", {"card": REDACTED, "items": REDACTED, "a b": REDACTED}),
        ("$.nothing.here", {"card": 7, "items": [{"price": 1, "x": 2}, {"price": 3}], "a b": {"c": 4}}),
        ("$.card.number", {"card": 7, "items": [{"price": 1, "x": 2}, {"price": 3}], "a b": {"c": 4}}),
    ],
)
def test_what_a_path_leads_to_is_taken_out(path: str, expected: Any) -> None:
    value = {"card": 7, "items": [{"price": 1, "x": 2}, {"price": 3}], "a b": {"c": 4}}
    before = repr(value)
    assert redact(value, [read_path(path)]) == expected
    assert repr(value) == before


@pytest.mark.parametrize(
    "text", ["", "card", "$", "$card", "$.", "$..card", "$[", "$[x]", "$['x]", "$.a[*", "$.a b[-1]"]
)
def test_what_is_no_path_is_refused(text: str) -> None:
    with pytest.raises(SetupError, match="is not a path to redact"):
        read_path(text)


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=20,
)


@given(values)
def test_without_paths_a_value_stays_as_it_is(value: Any) -> None:
    assert redact(value, []) == value


@given(values)
def test_a_secret_never_stays_whatever_is_around_it(value: Any) -> None:
    assert "s3cret" not in repr(redact({"a": [value, {"card": ["s3cret"]}]}, [read_path("$.a[*].card")]))


def test_what_is_nested_too_deep_is_taken_out() -> None:
    value: Any = "s3cret"
    for _ in range(5_000):
        value = [value]
    assert "s3cret" not in repr(redact(value, []))


def test_contents_are_kept_only_where_a_rule_says_so() -> None:
    rules = [
        RecordRule(tools=("transfer_*",), arguments=True, redact=("$.card",)),
        RecordRule(tools=("*_log", "show"), arguments=True, result=True),
        RecordRule(tools=("ping",)),
    ]
    arguments = {"card": 1, "to": "ada"}
    written = json.dumps(arguments).encode()
    assert content_to_keep(rules, "transfer_money", written, b'"done"') == {
        "arguments": {"card": REDACTED, "to": "ada"},
    }
    assert content_to_keep(rules, "show", written, b'"done"') == {"arguments": arguments, "result": "done"}
    assert content_to_keep(rules, "show", written, b"") == {"arguments": arguments}
    assert content_to_keep(rules, "ping", written, b'"done"') is None
    assert content_to_keep(rules, "Transfer_money", written, b'"done"') is None


@pytest.mark.parametrize("unreadable", [b"{", b"\xff", b"[" * 5_000 + b"]" * 5_000])
def test_contents_that_cannot_be_read_are_taken_out(unreadable: bytes) -> None:
    rule = RecordRule(tools=("*",), arguments=True)
    assert content_to_keep([rule], "show", unreadable, b"") == {"arguments": REDACTED}


@pytest.mark.parametrize("wrong", [{"tools": "show"}, {"tools": [1]}, {"tools": ["x"], "redact": "$.card"}])
def test_a_rule_with_a_str_for_a_list_is_refused(wrong: Any) -> None:
    with pytest.raises(SetupError, match="must be a list of str"):
        RecordRule(**wrong)


def test_a_rule_with_a_wrong_path_is_refused_at_once() -> None:
    with pytest.raises(SetupError, match="'card' is not a path to redact"):
        RecordRule(tools=("x",), redact=("card",))
