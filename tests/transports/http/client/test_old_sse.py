"""The transport before Streamable HTTP, as a client has it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Server
from ferrule.errors import (
    CarrierError,
    ConnectFailed,
    HttpFailed,
    LinkLost,
    SetupError,
    VersionMismatch,
)
from ferrule.protocol.handshake import NEWEST
from ferrule.transports.http.client.pool import ROOM
from ferrule.transports.http.listener import Sse

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site, text_result

Say = Callable[[Any], None]


class OldSite(Site):
    """A server with a stream at /mcp and an address to post to, and nothing else."""

    def __init__(self, endpoint: str = "/messages?session=1", **options: Any) -> None:
        super().__init__("handshake", **options)
        self.endpoint = endpoint
        self.streams: list[Seen] = []
        self.answers: dict[str, Any] = {"tools/call": text_result("old")}
        self.on("GET", self.stand)
        for method in ("initialize", "tools/call", "server/discover", "notifications/initialized", "response"):
            self.on(method, self.take)

    async def stand(self, seen: Seen) -> None:
        seen.stream()
        seen.event(self.endpoint.encode(), name="endpoint")
        self.streams.append(seen)
        await seen.gone()

    def take(self, seen: Seen) -> None:
        if seen.target != "/messages?session=1":
            seen.status(405, b'{"detail":"Method Not Allowed"}', content_type="application/json")
            return
        seen.status(202, b"Accepted")
        if "id" in seen.message and "method" in seen.message:
            info = {"capabilities": self.capabilities, "serverInfo": {"name": "old", "version": "1"}}
            result = self.answers.get(seen.method) or {"protocolVersion": NEWEST.version, **info}
            self.say({"jsonrpc": "2.0", "id": seen.id, "result": result})

    def say(self, message: Any) -> None:
        self.streams[-1].event(json.dumps(message).encode(), name="message")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests lose no time."""
    monkeypatch.setattr("ferrule.transports.http.client.old_sse.PATIENCE", 2.0)


def run(test: Callable[[], Any]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def old(site: Site, **options: Any) -> Client:
    return Client(f"sse+{site.url}", **options)


def test_messages_are_posted_where_the_first_event_says_and_answered_on_the_stream() -> None:
    """SSE-1, SSE-2, SSE-3, SSE-4, SSEV-01."""

    async def test() -> None:
        async with OldSite() as site, old(site, headers={"X-Own": "1"}) as client:
            assert client.server_info.name == "old"
            results = await asyncio.gather(*(client.call_tool("t") for _ in range(20)))
            assert [result.text for result in results] == ["old"] * 20
            assert {seen.target for seen in site.got("tools/call")} == {"/messages?session=1"}
            assert {seen.headers["x-own"] for seen in site.seen} == {"1"}
            assert len(site.got("GET")) == 1
            assert site.got("server/discover") == []

    run(test)


def test_the_server_may_ask_on_the_stream() -> None:
    async def test() -> None:
        async with OldSite() as site, old(site, roots=["/tmp"]):
            await site.heard("notifications/initialized")
            site.say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            answer = await site.heard("response")
            assert answer.message["result"]["roots"][0]["uri"] == "file:///tmp"

    run(test)


@pytest.mark.parametrize(
    "endpoint", ["http://evil.example/messages", "//evil.example/m", "https://127.0.0.1/m", "ftp://x/", "http://[x/"]
)
def test_an_address_of_another_origin_is_refused(endpoint: str) -> None:
    """SSE-4."""

    async def test() -> None:
        async with OldSite(endpoint) as site:
            with pytest.raises(ConnectFailed, match="wants messages posted to"):
                await old(site).connect()
            assert [seen.verb for seen in site.seen] == ["GET"]

    run(test)


def test_an_absolute_address_of_the_same_origin_is_fine() -> None:
    async def test() -> None:
        async with OldSite() as site:
            site.endpoint = site.url.replace("/mcp", "/messages?session=1")
            async with old(site) as client:
                assert (await client.call_tool("t")).text == "old"

    run(test)


def test_the_stream_is_the_link() -> None:
    async def test() -> None:
        async with OldSite() as site, old(site, reconnect=False) as client:
            site.on("tools/call", lambda seen: seen.status(202))
            call = asyncio.create_task(client.call_tool("t"))
            await site.heard("tools/call")
            site.streams[0].cut()
            with pytest.raises(LinkLost, match=f"the stream of {site.url} ended"):
                await call
            with pytest.raises(LinkLost):
                await client.call_tool("t")

    run(test)


def test_a_post_that_is_refused_fails_its_call_and_nothing_else() -> None:
    async def test() -> None:
        async with OldSite() as site, old(site) as client:
            site.on("tools/call", lambda seen: seen.status(500), site.take)
            with pytest.raises(HttpFailed, match="HTTP 500"):
                await client.call_tool("t")
            assert (await client.call_tool("t")).text == "old"

    run(test)


def test_a_post_that_is_cut_says_that_it_may_have_arrived() -> None:
    async def test() -> None:
        async with OldSite() as site, old(site) as client:
            site.on("tools/call", lambda seen: seen.cut(), site.take)
            with pytest.raises(LinkLost, match="it may have arrived or not") as lost:
                await client.call_tool("t")
            assert lost.value.sent
            assert (await client.call_tool("t")).text == "old"

    run(test)


def test_the_newest_era_cannot_be_had_this_way() -> None:
    async def test() -> None:
        async with OldSite() as site:
            with pytest.raises(VersionMismatch, match="older"):
                await old(site, mode="stateless").connect()

    run(test)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (lambda seen: seen.status(404), "HTTP 404"),
        (lambda seen: seen.status(200, b"<html>", content_type="text/html"), "text/html"),
        (lambda seen: seen.cut(), "no HTTP"),
    ],
)
def test_what_has_no_stream_is_no_such_server(script: Any, why: str) -> None:
    async def test() -> None:
        async with OldSite() as site:
            site.on("GET", script)
            with pytest.raises((ConnectFailed, HttpFailed), match=why):
                await old(site).connect()

    run(test)


def test_a_stream_that_never_says_where_to_post_is_given_up() -> None:
    async def test() -> None:
        async with OldSite() as site:

            async def silent(seen: Seen) -> None:
                seen.stream()
                await seen.gone()

            site.on("GET", silent)
            with pytest.raises(ConnectFailed, match="where to post"):
                await old(site).connect()

    run(test)


def test_a_plain_url_leads_here_when_the_server_has_nothing_newer() -> None:
    """HTL-33, COMPAT-6: both ways to begin are refused with 405, then the stream is found."""

    async def test() -> None:
        async with OldSite() as site, Client(site.url) as client:
            assert client.server_info.name == "old"
            assert (await client.call_tool("t")).text == "old"
            assert [(seen.verb, seen.method) for seen in site.seen[:4]] == [
                ("POST", "server/discover"),
                ("POST", "initialize"),
                ("GET", "GET"),
                ("POST", "initialize"),
            ]

    run(test)


def nobodys_error(code: int) -> Any:
    """An error that names no request, as servers send it with a status."""
    return {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": "Method not allowed."}}


@pytest.mark.parametrize("status", [400, 404, 405])
def test_an_error_that_names_no_request_is_no_answer_and_the_old_way_is_tried(status: int) -> None:
    """COMPAT-6: servers dress the status of a path that takes no POST in an error of JSON-RPC."""

    async def test() -> None:
        async with OldSite() as site:
            site.on("initialize", lambda seen: seen.json(nobodys_error(-32000), status), site.take)
            async with Client(site.url) as client:
                assert (await client.call_tool("t")).text == "old"

    run(test)


def test_a_plain_url_of_our_own_pair_leads_to_it() -> None:
    """COMPAT-6, with the real server."""

    async def test() -> None:
        listener, ready = Sse(port=0), asyncio.Event()
        serving = asyncio.create_task(listener.serve(Server("pair").host, ready.set))
        await ready.wait()
        async with Client(listener.url) as client:
            assert client.server_info.name == "pair"
        await listener.close(1)
        await serving

    run(test)


@pytest.mark.parametrize(
    "script",
    [
        lambda seen: seen.status(403),
        lambda seen: seen.status(410),
        lambda seen: seen.error(-32600, "no", 400),
        lambda seen: seen.json(nobodys_error(-32020), 400),
        lambda seen: seen.json(nobodys_error(-32022), 400),
    ],
)
def test_the_old_way_is_tried_only_where_nothing_newer_answered(script: Any) -> None:
    """COMPAT-6."""

    async def test() -> None:
        async with OldSite() as site:
            site.on("initialize", script)
            with pytest.raises(CarrierError):
                await Client(site.url, mode="handshake").connect()
            assert site.got("GET") == []

    run(test)


def test_a_plain_url_that_leads_nowhere_says_what_the_server_said_first() -> None:
    async def test() -> None:
        async with Site("handshake") as site:
            for method in ("server/discover", "initialize", "GET"):
                site.on(method, lambda seen: seen.status(404))
            with pytest.raises(HttpFailed, match=r"answered initialize with HTTP 404; is the path of the URL right"):
                await Client(site.url).connect()

    run(test)


def test_options_that_do_not_exist_are_refused() -> None:
    with pytest.raises(SetupError, match="pool_size"):
        Client("sse+http://127.0.0.1:1/", http={"nonsense": 1})._connector.transport()


def test_a_post_that_is_cut_is_a_call_of_unknown_outcome() -> None:
    """GUAR-03: it may have run, so it is not sent again, and its caller learns of it as of any failed call."""

    async def test() -> None:
        async with OldSite() as site, old(site) as client:
            site.on("tools/call", lambda seen: seen.cut())
            with pytest.raises(LinkLost, match="it may have arrived or not"):
                await client.call_tool("t")
            assert len(site.got("tools/call")) == 1

    run(test)


def test_senders_wait_while_many_posts_do() -> None:
    """GUAR-06."""

    async def test() -> None:
        async with OldSite() as site, old(site) as client:
            site.on("tools/call", lambda seen: None)
            calls = [asyncio.create_task(client.call_tool("t")) for _ in range(ROOM + 15)]
            await site.heard("tools/call", 10)
            waiting = asyncio.create_task(client._keeper.current().live().channel.wait_writable())
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await client.close(0)
            await asyncio.wait_for(waiting, 60)
            await asyncio.wait(calls)

    run(test)


async def test_a_server_that_is_not_there_is_not_said_to_be_of_another_kind() -> None:
    with pytest.raises(ConnectFailed, match=r"^cannot reach http://127\.0\.0\.1:1/sse"):
        await Client("sse+http://127.0.0.1:1/sse").connect()
