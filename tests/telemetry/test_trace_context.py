"""W3C Trace Context and Baggage: valid texts are read, malformed ones are ignored."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.telemetry.trace_context import (
    NO_TRACE,
    TraceContext,
    trace_in_headers,
    trace_in_meta,
    trace_of,
    valid_baggage,
    valid_traceparent,
    valid_tracestate,
)
from ferrule.transports.http.message import Headers

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"


def test_a_traceparent_says_the_trace_the_span_and_whether_it_is_sampled() -> None:
    """META-7"""
    found = trace_of(SAMPLED)
    assert (found.trace_id, found.span_id, found.sampled) == (TRACE, SPAN, True)
    assert not trace_of(UNSAMPLED).sampled
    assert trace_of(f"00-{TRACE}-{SPAN}-03").sampled
    assert (NO_TRACE.trace_id, NO_TRACE.span_id, NO_TRACE.sampled) == ("", "", False)


def test_whether_a_trace_is_recorded_can_be_decided_anew() -> None:
    found = trace_of(SAMPLED, "a=1", "b=2")
    assert found.decided(sampled=False) == TraceContext(UNSAMPLED, "a=1", "b=2")
    assert found.decided(sampled=False).decided(sampled=True) == found
    assert NO_TRACE.decided(sampled=True) is NO_TRACE


@pytest.mark.parametrize(
    "malformed",
    [
        "",
        "00",
        SAMPLED.upper(),
        SAMPLED[:-1],
        SAMPLED + "-more",
        SAMPLED + "0",
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE}-{SPAN}-0g",
        f"00_{TRACE}_{SPAN}_01",
        SAMPLED + "\n",
        f"cc-{TRACE}-{SPAN}-01-" + "x" * 500,
        7,
        None,
        [SAMPLED],
    ],
)
def test_a_malformed_traceparent_is_ignored(malformed: object) -> None:
    """META-7"""
    assert valid_traceparent(malformed) == ""
    assert trace_of(malformed, "a=1") == NO_TRACE


@pytest.mark.parametrize("later", [f"cc-{TRACE}-{SPAN}-01", f"cc-{TRACE}-{SPAN}-ff-what-comes-later"])
def test_a_traceparent_of_a_later_version_is_read_as_far_as_we_know_it(later: str) -> None:
    """META-7"""
    assert valid_traceparent(later) == SAMPLED


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("rojo=00f067aa0ba902b7,congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE"),
        (" a=1 ,, b@c=2\t", "a=1,b@c=2"),
        ("a=1,B=2", ""),
        ("a", ""),
        ("a=", ""),
        ("a=x=y", ""),
        ("a=\x7f", ""),
        (",".join(f"k{number}=1" for number in range(32)), ",".join(f"k{number}=1" for number in range(32))),
        (",".join(f"k{number}=1" for number in range(33)), ""),
        ("a=" + "x" * 511, ""),
        (5, ""),
    ],
)
def test_a_tracestate_is_kept_whole_or_not_at_all(given_text: object, kept: str) -> None:
    """META-7"""
    assert valid_tracestate(given_text) == kept
    assert trace_of(SAMPLED, given_text) == TraceContext(SAMPLED, kept)


@pytest.mark.parametrize(
    ("given_text", "kept"),
    [
        ("userId=alice,serverNode=DF%2028;isProduction", "userId=alice,serverNode=DF%2028;isProduction"),
        ("a = 1 ; p = 2 , b=", "a = 1 ; p = 2,b="),
        ("no value", ""),
        ("a=1;", ""),
        ('a="1"', ""),
        ("ä=1", ""),
        ("a=x" + "x" * 8192, ""),
        (",".join(f"k{number}=1" for number in range(65)), ""),
        ({"a": 1}, ""),
    ],
)
def test_baggage_is_kept_whole_or_not_at_all(given_text: object, kept: str) -> None:
    """META-7"""
    assert valid_baggage(given_text) == kept


def test_meta_holds_the_texts_under_keys_without_a_prefix() -> None:
    """META-7 OBSV-09"""
    meta = {"progressToken": 1, "traceparent": SAMPLED, "tracestate": "a=1", "baggage": "b=2"}
    found = trace_in_meta(json.dumps(meta).encode())
    assert found == TraceContext(SAMPLED, "a=1", "b=2")
    assert found.members == {"traceparent": SAMPLED, "tracestate": "a=1", "baggage": "b=2"}
    assert trace_in_meta(b'{"baggage": "b=2"}').members == {"baggage": "b=2"}


@pytest.mark.parametrize(
    "meta",
    [
        b"",
        b"null",
        b'{"traceparent": 5}',
        b'{"traceparent": "x", "baggage": {"deep": [1]}}',
        b'["traceparent"]',
        b'{"traceparent": "\xff"}',
        b'{"traceparent": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"a": "traceparent"',
    ],
)
def test_a_meta_without_readable_texts_says_nothing(meta: bytes) -> None:
    """META-7"""
    assert trace_in_meta(meta) is NO_TRACE


def test_headers_hold_the_same_texts() -> None:
    headers = Headers({b"traceparent": SAMPLED.encode(), b"baggage": b"b=2"})
    assert trace_in_headers(headers) == TraceContext(SAMPLED, "", "b=2")
    assert trace_in_headers(Headers({b"baggage": b"b=2"})) is NO_TRACE
    assert trace_in_headers({}) is NO_TRACE


@given(
    st.one_of(st.text(), st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), st.text(), st.integers()),
)
def test_what_was_read_once_is_read_the_same_again(parent: Any, state: Any, baggage: Any) -> None:
    found = trace_of(parent, state, baggage)
    assert trace_of(found.traceparent, found.tracestate, found.baggage) == found
