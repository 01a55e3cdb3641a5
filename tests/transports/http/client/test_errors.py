"""What a client says when HTTP goes wrong: what, where, and what to do."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client
from ferrule.errors import (
    CallFailed,
    CarrierError,
    ConnectFailed,
    HttpFailed,
    InvalidAnswer,
    OutcomeUnknown,
    VersionMismatch,
)

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site


def client(site: Site, **options: Any) -> Client:
    """Return a client of the site that loses no time."""
    http = {"retry_delay": 0.01, "jitter": 0.0, **options.pop("http", {})}
    return Client(site.url, http=http, **options)


async def failure(site: Site, script: Any, **options: Any) -> Exception:
    """Return what a tool call fails with."""
    site.on("tools/call", script)
    async with client(site, **options) as one:
        with pytest.raises(CallFailed) as raised:
            await one.call_tool("t")
    return raised.value


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        (401, "auth=OAuth()"),
        (403, "token"),
        (405, "MCP server"),
        (406, "neither JSON"),
        (413, "too large"),
        (418, "418"),
    ],
)
async def test_a_status_is_named_with_the_place_and_what_to_do(era: str, status: int, hint: str) -> None:
    """seed:HTTP-14."""
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(status, www_authenticate='Bearer realm="x"'))
        assert isinstance(error, HttpFailed)
        assert isinstance(error, CarrierError)
        assert error.status == status
        assert error.headers["www-authenticate"] == 'Bearer realm="x"'
        assert f"{site.url} answered tools/call 't' with HTTP {status}" in str(error)
        assert hint in str(error)


@pytest.mark.parametrize(
    ("status", "end"),
    [
        (300, "; redirects of this kind are not followed: use the address it names"),
        (399, "; redirects of this kind are not followed: use the address it names"),
        (400, "HTTP 400"),
        (401, "; it wants to know who we are: log in with auth=OAuth(), or give a token with auth=Bearer(…)"),
        (403, "; it does not allow this: is the token the right one?"),
        (405, "; is this the address of an MCP server?"),
        (429, "; it gets too many requests: wait before the next"),
        (503, "; it is overloaded or stopping: try again later"),
    ],
)
async def test_a_status_comes_with_its_own_advice(era: str, status: int, end: str) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(status), http={"retry": "never"})
        assert str(error).endswith(end)
        assert "tried" not in str(error)


async def test_a_path_that_is_not_there_is_named_where_there_is_no_session() -> None:
    async with Site("stateless") as site:
        error = await failure(site, lambda seen: seen.status(404))
        assert str(error).endswith("; is the path of the URL right?")


async def test_so_much_of_a_servers_words_is_repeated(era: str) -> None:
    async with Site(era) as site:
        said = b"word " * 300
        error = await failure(site, lambda seen: seen.status(410, said, content_type="text/plain"))
        assert str(error).endswith(": " + (b"word " * 40).decode())
        for blanks, words in ((500, ": a b"), (798, ": a b"), (799, ": a")):
            spread = b"a" + b" " * blanks + b"b"
            error = await failure(site, lambda seen: seen.status(410, spread, content_type="text/plain"))  # noqa: B023
            assert str(error).endswith(words)
        smiles = "\N{GRINNING FACE}" * 200
        error = await failure(site, lambda seen: seen.status(410, smiles.encode(), content_type="text/plain"))
        assert str(error).endswith(": " + smiles)
        error = await failure(site, lambda seen: seen.error(-32600, "x" * 300, 403))
        assert str(error).endswith(": " + "x" * 200)


async def test_what_a_server_says_in_plain_words_is_passed_on(era: str) -> None:
    async with Site(era) as site:
        words = b"Not found;\nMCP is served at /mcp\n"
        error = await failure(site, lambda seen: seen.status(410, words, content_type="text/plain; charset=utf-8"))
        assert str(error).endswith("with HTTP 410: Not found; MCP is served at /mcp")
        error = await failure(site, lambda seen: seen.status(410, b"\x1b[2Jboo", content_type="text/plain"))
        assert str(error).endswith("with HTTP 410")
        error = await failure(site, lambda seen: seen.status(410, b"<p>gone</p>", content_type="text/html"))
        assert str(error).endswith("with HTTP 410")


async def test_a_server_that_says_why_it_forbids_needs_no_guess_of_ours(era: str) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.error(-32600, "Forbidden: see allowed_hosts", 403))
        assert str(error).endswith("with HTTP 403: Forbidden: see allowed_hosts")


async def test_who_may_ask_is_told_by_the_status_even_where_the_body_is_an_error(era: str) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.error(-32000, "Token expired", 401))
        assert isinstance(error, HttpFailed)
        assert "Token expired" in str(error)


@pytest.mark.parametrize(
    ("kind", "body", "says"),
    [
        ("text/html", b"<html>Please log in</html>", "a web page"),
        ("text/plain", b"ok", "content of type text/plain"),
        ("application/xml", b"<a/>", "content of type application/xml"),
        ("text/plain", b"", "HTTP 200 and nothing"),
    ],
)
async def test_a_page_is_no_answer(era: str, kind: str, body: bytes, says: str) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(200, body, content_type=kind))
        assert says in str(error)
        assert "MCP server" in str(error)


@pytest.mark.parametrize("status", [202, 299])
async def test_accepted_is_no_answer_to_a_request(era: str, status: int) -> None:
    async with Site(era) as site:
        assert f"HTTP {status} and nothing" in str(await failure(site, lambda seen: seen.status(status)))


async def test_an_answer_to_something_else_is_no_answer(era: str) -> None:
    async with Site(era) as site:
        other = {"jsonrpc": "2.0", "id": 4711, "result": {}}
        error = await failure(site, lambda seen: seen.json(other))
        assert isinstance(error, InvalidAnswer)
        assert "for something else" in str(error)


async def test_an_answer_that_is_no_json_is_no_answer(era: str) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(200, b"{oops", content_type="application/json"))
        assert isinstance(error, InvalidAnswer)


# -- redirects


async def test_a_redirect_to_another_path_of_the_same_server_is_followed_once_and_remembered(era: str) -> None:
    async with Site(era) as site, client(site) as one:

        def moved(seen: Seen) -> None:
            if seen.target == "/mcp":
                seen.status(307, location="/mcp/")
            else:
                seen.text("moved")

        site.on("tools/call", moved)
        assert (await one.call_tool("t")).text == "moved"
        assert (await one.call_tool("t")).text == "moved"
        assert [seen.target for seen in site.got("tools/call")] == ["/mcp", "/mcp/", "/mcp/"]


@pytest.mark.parametrize("location", ["http://evil.example/mcp", "//evil.example/mcp", "ftp://x/y", ""])
async def test_a_redirect_to_another_origin_is_not_followed(era: str, location: str) -> None:
    """seed:HTTP-09."""
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(308, location=location))
        assert "redirects to" in str(error)
        assert "not followed" in str(error)


@pytest.mark.parametrize("status", [301, 302, 303, 304])
async def test_redirects_that_would_change_the_request_are_not_followed(era: str, status: int) -> None:
    """seed:HTTP-09."""
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(status, location="/other"))
        assert f"HTTP {status}" in str(error)
        assert "not followed" in str(error)
        assert len(site.got("tools/call")) == 1


# -- bounds and bad HTTP


async def test_an_answer_over_the_limit_is_cut(era: str) -> None:
    async with Site(era) as site:
        huge = b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 200_000 + b'"}'
        error = await failure(
            site,
            lambda seen: seen.status(200, huge, content_type="application/json"),
            http={"max_message_size": 100_000},
        )
        assert isinstance(error, InvalidAnswer)
        assert "limit of 100000 bytes" in str(error)


async def test_an_event_over_the_limit_is_cut(era: str) -> None:
    async def endless(seen: Seen) -> None:
        seen.stream()
        while seen.keep:
            seen.chunk(b"data: " + b"x" * 10_000)
            await seen.flushed()

    async with Site(era) as site:
        error = await failure(site, endless, http={"max_message_size": 100_000})
        assert "limit of 100000 bytes" in str(error)


async def test_a_page_of_any_length_is_not_kept(era: str) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.status(502, b"x" * 3_000_000, content_type="text/html"))
        assert "HTTP 502" in str(error)


@pytest.mark.parametrize(
    "bad",
    [
        b"SSH-2.0-OpenSSH_9\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 101 Switching\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 30_000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
    ],
)
async def test_what_is_no_proper_http_is_refused(era: str, bad: bytes) -> None:
    async with Site(era) as site:
        error = await failure(site, lambda seen: seen.raw(bad))
        assert isinstance(error, OutcomeUnknown)
        assert "HTTP properly" in str(error) or "longer than the limit" in str(error)


async def test_a_compressed_answer_is_refused(era: str) -> None:
    async with Site(era) as site:
        error = await failure(
            site, lambda seen: seen.status(200, b"\x1f\x8b", content_type="application/json", content_encoding="gzip")
        )
        assert "compressed" in str(error)


async def test_a_second_answer_nobody_asked_for_is_not_taken_for_the_next(era: str) -> None:
    """The next request goes over another connection: this one is not to be trusted."""
    async with Site(era) as site, client(site) as one:

        def doubled(seen: Seen) -> None:
            seen.text("first")
            forged = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % (seen.id + 1)
            seen.status(200, forged, content_type="application/json")

        site.on("tools/call", doubled, lambda seen: seen.text("second"))
        assert (await one.call_tool("t")).text == "first"
        assert (await one.call_tool("t")).text == "second"
        calls = site.got("tools/call")
        assert calls[0].connection != calls[1].connection


# -- no server


async def test_nobody_there() -> None:
    async with Site() as site:
        url = site.url
    with pytest.raises(ConnectFailed, match=r"cannot reach .*refused; does the server run, and at this port"):
        await Client(url).connect()


async def test_no_such_host() -> None:
    with pytest.raises(ConnectFailed, match="no such host; is its name spelled right"):
        await Client("http://nobody.invalid/mcp", http={"proxy": False}).connect()


async def test_a_server_that_never_takes_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*args: Any, **options: Any) -> Any:
        await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", never)
    with pytest.raises(ConnectFailed, match=r"no connection within 0.05 s"):
        await Client("http://192.0.2.1/mcp", http={"connect_timeout": 0.05}).connect()


async def test_notifications_that_do_not_arrive_are_logged(era: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Site(era) as site, client(site) as one:
        site.on("vendor/told", lambda seen: seen.status(400))
        await one.notify("vendor/told")
        await site.heard("vendor/told")
        await one.call_tool("t")
    assert "vendor/told did not reach" in caplog.text


@pytest.mark.parametrize("status", [500, 503])
async def test_a_broken_server_is_not_taken_for_an_old_one(status: int) -> None:
    """Whatever its body says: `initialize` is not tried where `server/discover` met a broken server."""
    async with Site("handshake") as site:
        site.on("server/discover", lambda seen: seen.error(-32601, "Method not found", status))
        with pytest.raises(HttpFailed, match=f"HTTP {status}"):
            async with client(site, http={"retry": "never"}):
                pass
        assert site.got("initialize") == []


async def test_a_server_that_does_not_know_the_method_is_taken_for_an_old_one() -> None:
    async with Site("handshake") as site:
        site.on("server/discover", lambda seen: seen.error(-32601, "Method not found", 499))
        async with client(site, http={"retry": "never"}) as one:
            assert len(site.got("initialize")) == 1
            assert one.phase is not None


async def test_an_error_below_500_is_the_word_of_a_server_that_speaks_another_version() -> None:
    async with Site("handshake") as site:
        site.on("server/discover", lambda seen: seen.error(-32601, "Method not found", 499))
        with pytest.raises(VersionMismatch, match="Method not found"):
            async with client(site, mode="stateless", http={"retry": "never"}):
                pass
