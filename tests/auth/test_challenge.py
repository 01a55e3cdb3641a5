"""Challenges: what a server writes a client reads, and nothing that is read ends a header early."""

from __future__ import annotations

import time

import pytest

from ferrule.auth.challenge import Challenge, read_challenges, write_challenges
from ferrule.errors import SetupError

METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"


def test_what_is_written_is_read_again() -> None:
    """AUTH-2, AUTH-4."""
    bearer = Challenge("Bearer", {"error": "invalid_token", "scope": "a b", "resource_metadata": METADATA})
    dpop = Challenge("DPoP", {"algs": "ES256 EdDSA"})
    basic = Challenge("Basic", {"realm": 'a "quoted" \\ realm, with commas'})
    written = write_challenges([bearer, dpop, basic])
    assert read_challenges(written) == [bearer, dpop, basic]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("Bearer", [("Bearer", {}, "")]),
        ("bearer realm=x", [("bearer", {"realm": "x"}, "")]),
        ('Bearer realm="a, b=\\"c\\""', [("Bearer", {"realm": 'a, b="c"'}, "")]),
        ("Negotiate YWJj==, Bearer", [("Negotiate", {}, "YWJj=="), ("Bearer", {}, "")]),
        ("Negotiate, Bearer a=b", [("Negotiate", {}, ""), ("Bearer", {"a": "b"}, "")]),
        (
            'Basic realm="x", Bearer scope = "a b" ,error=e',
            [("Basic", {"realm": "x"}, ""), ("Bearer", {"scope": "a b", "error": "e"}, "")],
        ),
        ('DPoP ALGS="ES256", algs=none', [("DPoP", {"algs": "ES256"}, "")]),
        (", ,Bearer a=b,,c=d,", [("Bearer", {"a": "b", "c": "d"}, "")]),
        ('Bearer a="unfinished', [("Bearer", {}, "")]),
        ("Bearer a=b, =c, Basic x=y", [("Bearer", {"a": "b"}, "")]),
        ("(oops) Bearer a=b", []),
        ('Bearer resource_metadata="https://a.example/x\x7f"', []),
    ],
)
def test_challenges_of_several_schemes_are_read(header: str, expected: list[tuple[str, dict[str, str], str]]) -> None:
    found = [(each.scheme, dict(each.parameters), each.token) for each in read_challenges(header)]
    assert found == expected


@pytest.mark.parametrize(
    "hostile", ['Bearer a="' + "\\" * 16_000, "a=b," * 4000, ", " * 8000, "Bearer " + "a" * 16_000]
)
def test_reading_takes_no_longer_than_the_header_is(hostile: str) -> None:
    begun = time.perf_counter()
    assert len(read_challenges(hostile)) <= 16
    assert time.perf_counter() - begun < 0.5


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: x=y", "a\nb", "a\0", "é"])
def test_a_value_that_could_end_the_header_is_refused(value: str) -> None:
    with pytest.raises(SetupError):
        Challenge("Bearer", {"scope": value})
    with pytest.raises(SetupError):
        Challenge(value, {})
