"""Results that are kept for their caller to read."""

import pytest

from ferrule import Client, Server
from ferrule.errors import ResourceNotFound
from ferrule.server.calls.kept_results import MOST_KEPT, PREFIX, SHARE, KeptResults, read_kept


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def kept(clock, max_bytes=1000):
    return KeptResults(60.0, max_bytes, clock)


def test_only_its_owner_finds_what_is_kept(clock):
    results = kept(clock)
    uri = results.keep("me", b"x", "text/plain")
    assert results.find("me", uri).body == b"x"
    for other in ("you", None, object()):
        with pytest.raises(ResourceNotFound):
            results.find(other, uri)


def test_a_uri_cannot_be_guessed(clock):
    results = kept(clock)
    uris = {results.keep(None, b"", "text/plain") for _ in range(200)}
    assert len(uris) == 200
    assert all(uri.startswith(PREFIX) and len(uri) - len(PREFIX) == 32 for uri in uris)


def test_it_is_gone_when_its_time_is_up(clock):
    results = kept(clock)
    uri = results.keep("me", b"x", "text/plain")
    clock.now = 59.9
    results.find("me", uri)
    clock.now = 60.0
    with pytest.raises(ResourceNotFound):
        results.find("me", uri)
    results.keep("me", b"y", "text/plain")
    assert (len(results), results.size) == (1, 1)


def test_one_owner_pushes_out_only_its_own(clock):
    results = kept(clock)
    yours = results.keep("you", b"x" * 200, "text/plain")
    mine = [results.keep("me", b"x" * 100, "text/plain") for _ in range(20)]
    results.find("you", yours)
    assert [uri for uri in mine if uri in results._kept] == mine[-2:]


def test_all_together_stay_within_the_bytes_and_the_count(clock):
    results = kept(clock)
    for owner in range(50):
        results.keep(owner, b"x" * 240, "text/plain")
        assert results.size <= 1000
    for owner in range(2 * MOST_KEPT):
        results.keep(owner % 7, b"", "text/plain")
    assert len(results) <= MOST_KEPT
    for _ in range(MOST_KEPT):
        results.keep("me", b"", "text/plain")
    assert sum(one.owner == "me" for one in results._kept.values()) <= MOST_KEPT // SHARE


def test_what_is_read_later_takes_no_room(clock):
    results = kept(clock)
    uri = results.keep("me", lambda: b"later", "text/plain")
    assert results.size == 0
    assert read_kept(uri, results.find("me", uri)).text == "later"


@pytest.mark.parametrize(
    ("mime_type", "body", "text", "blob"),
    [
        ("application/json", b"[1]", "[1]", b""),
        ("text/plain", "ä".encode(), "ä", b""),
        ("image/png", b"\x89PNG", "", b"\x89PNG"),
        ("text/plain", b"\xff", "", b"\xff"),
    ],
)
def test_text_is_read_as_text_and_the_rest_as_bytes(clock, mime_type, body, text, blob):
    results = kept(clock)
    uri = results.keep("me", body, mime_type)
    read = read_kept(uri, results.find("me", uri))
    assert (read.contents[0].uri, read.contents[0].mime_type) == (uri, mime_type)
    assert (read.text, read.blob) == (text or None, blob)


def test_what_was_kept_for_an_owner_goes_with_it(clock):
    results = kept(clock)
    uri = results.keep("you", b"y", "text/plain")
    results.keep("me", b"x" * 100, "text/plain")
    results.forget("me")
    assert (len(results), results.size) == (1, 1)
    assert results.find("you", uri).body == b"y"


async def test_what_was_kept_for_a_session_goes_with_it():
    app = Server("large", result_limit=100, result_policy="spill")
    app.add_tool(lambda: "x" * 10_000, name="much")
    async with Client(app, mode="handshake") as client, Client(app, mode="handshake") as other:
        await client.call_tool("much")
        await other.call_tool("much")
        assert len(app.host.services.kept_results) == 2
        await client.close()
        assert len(app.host.services.kept_results) == 1
    assert len(app.host.services.kept_results) == 0
