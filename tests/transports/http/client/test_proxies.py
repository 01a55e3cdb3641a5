"""Which proxy leads where."""

from __future__ import annotations

import pytest

from ferrule.errors import SetupError
from ferrule.transports.http.client.dial import proxy_for
from ferrule.transports.http.client.url import place

BOTH = {"HTTP_PROXY": "http://plain:1", "https_proxy": "http://me:pw@secure:2"}


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("http://x/", BOTH, "http://plain:1"),
        ("https://x/", BOTH, "http://secure:2"),
        ("https://x/", {"ALL_PROXY": "any:3"}, "http://any:3"),
        ("http://x/", {}, None),
        ("http://localhost:8000/", BOTH, None),
        ("http://127.0.0.5/", BOTH, None),
        ("http://[::1]/", BOTH, None),
        ("http://x/", {**BOTH, "NO_PROXY": "*"}, None),
        ("http://a.example.com/", {**BOTH, "NO_PROXY": "foo, example.com"}, None),
        ("http://a.example.com/", {**BOTH, "no_proxy": ".example.com"}, None),
        ("http://badexample.com/", {**BOTH, "NO_PROXY": "example.com"}, "http://plain:1"),
        ("http://a.example.com:81/", {**BOTH, "NO_PROXY": "example.com:80"}, "http://plain:1"),
        ("http://a.example.com:80/", {**BOTH, "NO_PROXY": "example.com:80"}, None),
        ("http://10.1.2.3/", {**BOTH, "NO_PROXY": "10.0.0.0/8"}, None),
        ("http://10.1.2.3/", {**BOTH, "NO_PROXY": "10.1.2.3"}, None),
        ("http://11.1.2.3/", {**BOTH, "NO_PROXY": "10.0.0.0/8"}, "http://plain:1"),
        ("http://x/", {**BOTH, "REQUEST_METHOD": "GET"}, None),
    ],
)
def test_the_environment_says(url: str, environment: dict[str, str], expected: str | None) -> None:
    found = proxy_for(place(url), True, environment)
    assert (found and found.origin) == expected


def test_a_given_proxy_is_taken_also_for_this_machine() -> None:
    found = proxy_for(place("http://localhost/"), "me:pw@here:3128", {"NO_PROXY": "*"})
    assert found is not None
    assert (found.origin, found.credentials) == ("http://here:3128", "Basic bWU6cHc=")


def test_none_is_none() -> None:
    assert proxy_for(place("http://x/"), False, BOTH) is None


def test_a_proxy_that_is_reached_by_tls_is_refused() -> None:
    with pytest.raises(SetupError, match="must be reached by http://"):
        proxy_for(place("http://x/"), "https://p", {})


def test_a_proxy_of_a_kind_there_is_not_is_named_as_the_proxy() -> None:
    with pytest.raises(SetupError, match=r"proxy: the URL 'socks5://x:1080' must begin with http://"):
        proxy_for(place("http://example.com/"), "socks5://x:1080", {})
