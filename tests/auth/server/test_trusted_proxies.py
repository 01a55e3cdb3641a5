"""Proxies whose word is taken."""

from __future__ import annotations

import asyncio

import pytest
from issuer_double import facts, judged, token, verifier

from ferrule import Principal
from ferrule.auth.server.trusted_proxies import TrustedProxies
from ferrule.errors import SetupError


@pytest.mark.parametrize(
    ("address", "header", "sender"),
    [
        ("192.0.2.7", "203.0.113.1", "192.0.2.7"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "203.0.113.1", "203.0.113.1"),
        ("10.0.0.1", "198.51.100.9, 203.0.113.1", "203.0.113.1"),
        ("10.0.0.1", "203.0.113.1, 10.0.0.2", "203.0.113.1"),
        ("10.0.0.1", "203.0.113.1,nonsense", "10.0.0.1"),
        ("10.0.0.1", "2001:DB8::1", "2001:db8::1"),
        ("10.0.0.1", ", ".join(["203.0.113.1"] + ["10.0.0.2"] * 1000), "10.0.0.2"),
        ("not an address", "203.0.113.1", "not an address"),
        ("::ffff:10.0.0.1", "203.0.113.1", "203.0.113.1"),
        ("10.0.0.1", "203.0.113.1, ::ffff:10.0.0.2", "203.0.113.1"),
        ("::ffff:192.0.2.7", "203.0.113.1", "::ffff:192.0.2.7"),
    ],
    ids=range(12),
)
def test_who_sent_a_request_is_what_the_last_trusted_proxy_says(address: str, header: str, sender: str) -> None:
    """What anybody can write into the header before it counts for nothing."""
    proxies = TrustedProxies(["10.0.0.0/8"])
    assert proxies.sender(facts(address=address, headers={"x-forwarded-for": header})) == sender
    assert TrustedProxies([]).sender(facts(address=address, headers={"x-forwarded-for": header})) == address


def test_behind_a_proxy_bad_tokens_are_counted_by_sender() -> None:
    """AUT-13: whoever shows many does not keep out those who come through the same proxy."""
    by = verifier(trusted_proxies=["10.0.0.1"])
    stranger = {"address": "10.0.0.1", "headers": {"x-forwarded-for": "203.0.113.1"}}
    number = 0
    last = judged("a.b.0", by, **stranger)
    while not asyncio.iscoroutine(last) and number < 50:
        number += 1
        last = judged(f"a.b.{number}", by, **stranger)
    assert asyncio.iscoroutine(last)  # it has to wait for its refusal
    assert asyncio.run(last).status == 429
    another = {"address": "10.0.0.1", "headers": {"x-forwarded-for": "203.0.113.1, 203.0.113.2"}}
    assert isinstance(judged(token(), by, **another), Principal)


@pytest.mark.parametrize("wrong", [["10.0.0.1/8"], ["proxy.example"], "10.0.0.1", [""]])
def test_what_is_no_address_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(SetupError, match="trusted_proxies"):
        verifier(trusted_proxies=wrong)
