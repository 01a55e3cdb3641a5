"""Redirect URIs: what may be registered, and what counts as registered."""

from __future__ import annotations

import pytest

from ferrule.auth.redirect_uri import is_loopback_uri, is_redirect_uri, matches, with_parameters

REGISTERED = [
    "https://app.example.com/callback",
    "https://app.example.com/with?query=1",
    "http://127.0.0.1:8765/callback",
    "http://[::1]/callback",
    "http://localhost/callback",
    "com.example.app:/callback",
]


@pytest.mark.parametrize("uri", REGISTERED)
def test_what_is_registered_matches_itself(uri: str) -> None:
    assert is_redirect_uri(uri)
    assert matches(REGISTERED, uri)


@pytest.mark.parametrize(
    "uri",
    [
        "http://127.0.0.1:1/callback",
        "http://127.0.0.1/callback",
        "http://[::1]:9999/callback",
        "http://localhost:9999/callback",
    ],
)
def test_the_port_of_a_loopback_uri_may_differ(uri: str) -> None:
    """AUT-09, RFC 8252 §7.3."""
    assert matches(REGISTERED, uri)
    assert not matches(REGISTERED, uri, any_port=False)


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "https://app.example.com/callback/",
        "https://app.example.com/callback/more",
        "https://app.example.com/callback2",
        "https://app.example.com/callbac",
        "https://app.example.com/Callback",
        "https://APP.example.com/callback",
        "HTTPS://app.example.com/callback",
        "https://app.example.com:443/callback",
        "https://app.example.com:444/callback",
        "http://app.example.com/callback",
        "https://app.example.com/callback?x=1",
        "https://app.example.com/callback#x",
        "https://app.example.com/callback#",
        "https://app.example.com/x/../callback",
        "https://app.example.com/./callback",
        "https://user@app.example.com/callback",
        "https://app.example.com@evil.example.com/callback",
        "https://app.example.com.evil.example.com/callback",
        "https://evil.example.com/callback",
        "https://app.example.com%2eevil.example.com/callback",
        "https://app.example.com\\@evil.example.com/callback",
        "https://app.example.com/callback\r\nx: y",
        "https://app.example.com/call back",
        "https://app.example.com/with?query=2",
        "https://app.example.com/with",
        "http://127.0.0.2:8765/callback",
        "http://127.0.0.1.evil.example.com:8765/callback",
        "http://127.0.0.1:8765@evil.example.com/callback",
        "http://127.0.0.1:8765/other",
        "http://127.0.0.1:8765/callback?x=1",
        "https://127.0.0.1:8765/callback",
        "http://2130706433:8765/callback",
        "http://0x7f.1:8765/callback",
        "http://[::ffff:127.0.0.1]/callback",
        "http://[0:0:0:0:0:0:0:1]/callback",
        "http://LOCALHOST/callback",
        "http://localhost./callback",
        "http://127.0.0.1:99999/callback",
        "com.example.app:/other",
        "com.example.app2:/callback",
    ],
)
def test_nothing_else_matches(uri: str) -> None:
    """AUT-09, AUTH-15, SEC-4."""
    assert not matches(REGISTERED, uri)


@pytest.mark.parametrize(
    "uri",
    [
        "http://app.example.com/callback",
        "javascript:alert(1)",
        "data:text/html,x",
        "file:///etc/passwd",
        "myapp:/callback",
        "https:///callback",
        "https://app.example.com/#x",
        "https://user:secret@app.example.com/",
        "https://app.example.com;sandbox/",
        "https://app.example.com,evil.example.com/",
        "https://app.example.com%2f/",
        "https://app.example.com:/",
        "https://app.example.com/../x",
        'https://app.example.com/"><script>',
        "/callback",
        "",
        "https://app.example.com/" + "a" * 2048,
    ],
)
def test_what_may_not_be_registered(uri: str) -> None:
    """AUT-09."""
    assert not is_redirect_uri(uri)


def test_only_the_schemes_that_are_known_may_be_allowed() -> None:
    assert is_redirect_uri("cursor://callback", ["cursor"])
    assert not is_redirect_uri("com.example.app:/callback", ["cursor"])
    assert not is_redirect_uri("javascript:alert(1)", ["javascript"])


def test_this_machine_has_three_names() -> None:
    for uri in ("http://127.0.0.1:1/a", "http://[::1]/a", "http://localhost/a"):
        assert is_loopback_uri(uri)
    for uri in ("https://127.0.0.1/a", "http://127.0.0.2/a", "http://localhost.evil.com/a", "cursor://localhost", ""):
        assert not is_loopback_uri(uri)


def test_parameters_join_those_there_are() -> None:
    assert with_parameters("https://a/b", {"code": "x y"}) == "https://a/b?code=x+y"
    assert with_parameters("https://a/b?c=1", {"code": "&"}) == "https://a/b?c=1&code=%26"
