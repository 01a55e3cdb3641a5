"""URLs, taken apart."""

from __future__ import annotations

import pytest

from ferrule.errors import SetupError
from ferrule.transports.http.client.url import Place, place


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://example.com", Place("http", "example.com", 80, "/")),
        ("https://example.com/mcp?x=1#part", Place("https", "example.com", 443, "/mcp?x=1")),
        ("http://EXAMPLE.com:8000/a b".replace(" ", "%20"), Place("http", "example.com", 8000, "/a%20b")),
        ("http://[::1]:9/mcp", Place("http", "::1", 9, "/mcp")),
        ("http://bücher.example/mäp", Place("http", "xn--bcher-kva.example", 80, "/m%C3%A4p")),
        ("HTTPS://u:p%20w@h/", Place("https", "h", 443, "/", "Basic dTpwIHc=")),
    ],
)
def test_a_url_is_taken_apart(url: str, expected: Place) -> None:
    """seed:HTTP-04."""
    assert place(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        *("ftp://x/", "http://", "example.com", "http://x:99999/", "http://x/a\r\nb", "http://x/ y", "http://[::1/"),
        *("http://x/\udcff", "http://\udcff@x/", "http://\udcff/"),
    ],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(SetupError):
        place(url)


@pytest.mark.parametrize(
    "url", ["ftp://u:secret@x/a?key=secret", "http://u:secret@x:99999/a?secret", "http://secret@x/a b"]
)
def test_what_is_refused_is_named_without_its_secrets(url: str) -> None:
    with pytest.raises(SetupError, match=r"//x.*/a") as refused:
        place(url)
    assert "secret" not in str(refused.value)


def test_the_port_is_named_where_it_is_not_the_usual_one() -> None:
    assert place("http://x:80/").authority == "x"
    assert place("https://x:80/").authority == "x:80"
    assert place("http://[::1]:81/").origin == "http://[::1]:81"


def test_its_text_shows_neither_user_nor_query() -> None:
    assert str(place("http://user:secret@x/mcp?key=secret")) == "http://x/mcp"


def test_elsewhere_is_read_against_here_and_keeps_our_credentials() -> None:
    here = place("http://u:p@x:81/sse")
    assert here.resolve("/messages?id=1").target == "/messages?id=1"
    assert here.resolve("messages").origin == here.origin
    assert here.resolve("http://y/").origin == "http://y"
    assert here.resolve("/m").credentials == here.credentials
