"""What went wrong elsewhere in the world of MCP and has a number does not go wrong here.

Each test is one record, or several of one kind, tried on a server with default options over real sockets. Records about
authorization servers, proxies and inspectors are not of our kind: there are none here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import httpx
import pytest

from ferrule import Client, Http, PeerError, Principal, RequestFacts, Server, Unauthorized, Verifier

RAN: list[str] = []
JSON = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "mark", "arguments": {"text": "x"}}}


class Tokens(Verifier):
    """Everybody is who the token says."""

    def verify(self, facts: RequestFacts) -> Any:
        """Read the token."""
        kind, _, name = facts.headers.get("authorization", "").partition(" ")
        if kind != "Bearer" or not name:
            return Unauthorized("no token")
        return Principal(issuer="tests", subject=name)


def new_app(**options: Any) -> Server:
    app = Server("records", **options)

    @app.tool
    async def mark(text: str) -> str:
        """Leave a mark."""
        RAN.append(text)
        return text

    @app.tool(task="optional")
    async def job() -> str:
        """Take a while."""
        await asyncio.sleep(60)
        return "done"

    @app.resource("x://{a}/{b*}")
    def found(a: str, b: str) -> str:
        """Anything."""
        return f"{a} {b}"

    return app


@asynccontextmanager
async def serving(app: Server | None = None, **options: Any) -> AsyncIterator[tuple[str, httpx.AsyncClient]]:
    """Serve over HTTP; yields the URL and somebody to attack it."""
    RAN.clear()
    listener, ready = Http(port=0, **options), asyncio.Event()
    task = asyncio.create_task((app or new_app()).serve(listener, ready=ready.set))
    await ready.wait()
    try:
        async with httpx.AsyncClient(timeout=30) as web:
            yield listener.url, web
    finally:
        await listener.close(grace=0.1)
        await task


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


async def opened(web: httpx.AsyncClient, url: str, **headers: str) -> dict[str, str]:
    """Open a session; return the headers its requests need."""
    answer = await web.post(url, json=INITIALIZE, headers={**JSON, **headers})
    assert answer.status_code == 200
    known = {**JSON, "mcp-session-id": answer.headers["mcp-session-id"], **headers}
    await web.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=known)
    return known


def test_cve_2025_66416_a_name_that_was_rebound_to_this_machine_reaches_nothing() -> None:
    """SUP-09: DNS rebinding is refused without any option, whatever the method.

    With CVE-2025-66414, CVE-2026-34742, CVE-2026-35568, CVE-2026-42559 and CVE-2025-64443, the same elsewhere.
    """

    async def test() -> None:
        async with serving(sse=True) as (url, web):
            for method, path in (("POST", "/mcp"), ("GET", "/mcp"), ("DELETE", "/mcp"), ("GET", "/sse")):
                answer = await web.request(
                    method, url.replace("/mcp", path), json=INITIALIZE, headers={**JSON, "host": "evil.example:80"}
                )
                assert answer.status_code == 403

    run(test)


def test_cve_2026_33252_a_form_of_another_site_runs_no_tool() -> None:
    """SUP-09: text/plain needs no preflight."""

    async def test() -> None:
        async with serving() as (url, web):
            headers = await opened(web, url)
            for kind in ("text/plain", "application/x-www-form-urlencoded", "text/plain; application/json"):
                answer = await web.post(url, content=json.dumps(CALL), headers={**headers, "content-type": kind})
                assert answer.status_code == 415
            answer = await web.post(url, json=CALL, headers={**headers, "origin": "https://evil.example"})
            assert answer.status_code == 403
            assert RAN == []

    run(test)


def test_cve_2026_59950_a_websocket_of_a_foreign_page_is_not_opened() -> None:
    """SUP-09"""

    async def test() -> None:
        async with serving(websocket=True) as (url, web):
            upgrade = {
                "connection": "Upgrade",
                "upgrade": "websocket",
                "sec-websocket-version": "13",
                "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==",
            }
            for attack in ({"origin": "https://evil.example"}, {"host": "evil.example"}):
                answer = await web.get(f"{url}/ws", headers={**upgrade, **attack})
                assert answer.status_code == 403

    run(test)


@pytest.mark.parametrize(
    "host",
    ["localhost:4000/#@x", "localhost.evil.example", "evil.example#localhost", "localhost@evil.example", "127.0.0.1.x"],
)
def test_cve_2026_49468_a_malformed_host_passes_for_nothing(host: str) -> None:
    """SUP-09"""

    async def test() -> None:
        async with serving() as (url, web):
            answer = await web.post(url, json=INITIALIZE, headers={**JSON, "host": host})
            assert answer.status_code in (400, 403)

    run(test)


def test_cve_2026_52869_a_session_id_is_no_credential() -> None:
    """SUP-09, with CVE-2026-33946: neither a call nor the stream of another principal's session."""

    async def test() -> None:
        async with serving(new_app(auth=Tokens())) as (url, web):
            owner = await opened(web, url, authorization="Bearer ada")
            thief = {**owner, "authorization": "Bearer eve"}
            assert (await web.post(url, json=CALL, headers=thief)).status_code == 404
            assert (await web.get(url, headers=thief)).status_code == 404
            assert (await web.delete(url, headers=thief)).status_code == 404
            assert RAN == []
            assert (await web.post(url, json=CALL, headers=owner)).status_code == 200
            assert RAN == ["x"]

    run(test)


def test_cve_2026_52870_a_task_belongs_to_who_started_it() -> None:
    """SUP-09"""

    async def test() -> None:
        async with (
            serving(new_app(auth=Tokens())) as (url, _),
            Client(url, headers={"authorization": "Bearer ada"}) as owner,
            Client(url, headers={"authorization": "Bearer eve"}) as thief,
        ):
            started = await owner.start_task("job")
            with pytest.raises(PeerError):
                await thief.get_task(started.id)
            with pytest.raises(PeerError):
                await thief.cancel_task(started.id)
            assert (await owner.get_task(started.id)).status == "working"
            await owner.cancel_task(started.id)

    run(test)


def test_cve_2025_6515_session_ids_cannot_be_guessed() -> None:
    """SUP-09: they are no addresses and no counters, and share no beginning."""

    async def test() -> None:
        async with serving() as (url, web):
            ids = [(await opened(web, url))["mcp-session-id"] for _ in range(8)]
            assert len(set(ids)) == 8
            assert min(map(len, ids)) >= 22
            assert len({each[:6] for each in ids}) == 8

    run(test)


def test_cve_2026_25536_answers_never_reach_another_client() -> None:
    """SUP-09: many clients use the same ids at once."""

    async def test() -> None:
        async with serving() as (url, web):

            async def ask(text: str) -> bool:
                headers = await opened(web, url)
                call = {**CALL, "params": {"name": "mark", "arguments": {"text": text}}}
                answer = await web.post(url, json=call, headers=headers)
                body = answer.text.removeprefix("data: ")
                found: str = json.loads(body)["result"]["content"][0]["text"]
                return found == text

            assert all(await asyncio.gather(*(ask(f"text {number}") for number in range(12))))

    run(test)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":2,"Method":"tools/call","params":{"name":"mark","arguments":{"text":"x"}}}',
        b'{"jsonrpc":"2.0","id":2,"METHOD":"tools/call","method":"ping","params":{"name":"mark"}}',
        b'{"jsonrpc":"2.0","id":2,"method\\u0000":"tools/call","params":{"name":"mark","arguments":{"text":"x"}}}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"Name":"mark","arguments":{"text":"x"}}}',
        b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"mark","arguments":{"TEXT":"x"}}}',
    ],
)
def test_cve_2026_27896_keys_are_compared_exactly(body: bytes) -> None:
    """SUP-09: with GHSA-q382-vc8q-7jhj, a NUL in a key."""

    async def test() -> None:
        async with serving() as (url, web):
            headers = await opened(web, url)
            await web.post(url, content=body, headers=headers)
            assert RAN == []

    run(test)


@pytest.mark.parametrize("body", [b"\xff\xfe", b"[]", b"null", b'{"jsonrpc":"2.0"}', b"{" * 100_000, b'{"id":{}}'])
def test_cve_2025_53366_a_bad_message_ends_nothing_but_itself(body: bytes) -> None:
    """SUP-09: with CVE-2025-53365; in its session and without one, others are served and so is the sender."""

    async def test() -> None:
        async with serving() as (url, web):
            headers = await opened(web, url)
            for given in (headers, JSON):
                answer = await web.post(url, content=body, headers=given)
                assert 400 <= answer.status_code < 500
            assert (await web.post(url, json=CALL, headers=headers)).status_code == 200

    run(test)


def test_cve_2026_39313_a_body_without_end_is_refused_before_it_is_read() -> None:
    """SUP-09"""

    async def test() -> None:
        async with serving() as (url, _):
            host, _, port = url.removeprefix("http://").partition("/")[0].partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"POST /mcp HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {10**12}"
            writer.write(f"{head}\r\n\r\n".encode())
            assert b" 413 " in await reader.readline()
            writer.close()

    run(test)


def test_cve_2026_0621_a_uri_made_for_a_template_is_matched_in_no_time() -> None:
    """SUP-09: repetition inside repetition would take a backtracking matcher for ever."""

    async def test() -> None:
        async with Client(new_app()) as client:
            began = time.process_time()
            for uri in ("x://a/" + "a," * 2000 + "!", "x://" + "/" * 3000, "x://" + "a/" * 2000):
                with suppress(PeerError):
                    await client.read_resource(uri)
            assert time.process_time() - began < 2

    run(test)
