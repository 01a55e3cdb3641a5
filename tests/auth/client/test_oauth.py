"""The options of `OAuth`, and which client it is where."""

from __future__ import annotations

from typing import Any

import pytest
from protected import protected

from ferrule import AuthorizationFailed, Client, OAuth, SetupError
from ferrule.auth.client.oauth import server_url


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"client_secret": "x"}, "client_secret without a client_id"),
        ({"key": "x"}, "key without a client_id"),
        ({"client_id": "a", "client_secret": "b", "key": "x"}, "a client_secret or a key"),
        ({"client_id": "a", "key": "no key"}, "the key cannot be read"),
        ({"client_metadata_url": "http://x.example/a"}, "https URL with a path"),
        ({"redirect_uri": "http://evil.example/callback"}, "https URL, or http on this machine"),
        ({"redirect_uri": "myapp://callback"}, "https URL, or http on this machine"),
        ({"redirect_uri": "https://a.example/x#f"}, "https URL, or http on this machine"),
        ({"extra": {"state": "x"}}, "state is not for you to set"),
        ({"callback_port": 70000}, "callback_port"),
        ({"issuer": "as.example"}, "issuer must be a URL"),
        ({"scopes": "a b"}, r"write \['a b'\]"),
        ({"scope": ["a"]}, "did you mean 'scopes'"),
        ({"client_id": "a", "client_secret": 7}, "client_secret must be a str"),
        ({"login_timeout": 0}, "more than 0 seconds"),
        ({"allow_private": ["10.0.0.0/33"]}, "allow_private"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(options: dict[str, Any], words: str) -> None:
    """ACLI-10, ACLI-14"""
    with pytest.raises(SetupError, match=words):
        OAuth(**options).session("https://a.example/mcp")


def test_no_secret_is_in_the_text_of_the_options() -> None:
    auth = OAuth(client_id="app", client_secret="very secret")
    assert "very secret" not in repr(auth) + repr(auth.options) + str(vars(auth))


@pytest.mark.parametrize(
    ("url", "canonical"),
    [
        ("https://A.example/mcp/", "https://a.example/mcp"),
        ("https://a.example:443/mcp?key=1", "https://a.example/mcp"),
        ("https://a.example", "https://a.example"),
        ("http://user:password@127.0.0.1:80/x", "http://127.0.0.1/x"),
    ],
)
def test_a_server_is_named_in_one_way(url: str, canonical: str) -> None:
    """ACLI-7"""
    assert server_url(url) == canonical


async def test_a_client_that_is_told_who_it_is_registers_nowhere() -> None:
    """ACLI-13: told before published before registered."""
    async with protected() as place:
        place.issuer.add_client("mine", redirect_uris=["http://127.0.0.1/callback"])
        async with Client(place.url, auth=place.oauth(client_id="mine")) as client:
            await client.call_tool("whoami")
        assert place.issuer.count("register") == 0
        assert "client_id=mine&" in place.person.pages[0]


async def test_who_registers_nobody_has_to_be_told_of_us() -> None:
    """ACLI-13: and the error says what to do."""
    async with protected(profile="cognito") as place:
        with pytest.raises(AuthorizationFailed, match="PKCE with S256"):
            async with Client(place.url, auth=place.oauth()):
                pass
        words = r"registers nobody, and needs to know us: register a client there for http://127.0.0.1:\d+/callback"
        with pytest.raises(AuthorizationFailed, match=words):
            async with Client(place.url, auth=place.oauth(assume_pkce=True)):
                pass
        assert place.person.pages == []


async def test_one_object_serves_several_servers() -> None:
    """ACLI-12: each gets its own token, and never another's."""
    async with protected() as one, protected() as other:
        auth = one.oauth()
        for place in (one, other):
            async with Client(place.url, auth=auth) as client:
                await client.call_tool("whoami")
        assert (one.issuer.count("token"), other.issuer.count("token")) == (1, 1)
        assert (auth.session(one.url).login, auth.session(one.url).login) != (None, auth.session(other.url).login)
