"""Many sessions over real sockets that must not touch each other."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from http_mcp import Client, served, serving
from http_workshop import Workshop

from ferrule import CallFailed
from ferrule import Client as OurClient
from ferrule.transports.http.listener import Http

PATIENCE = 120.0


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


def test_ses_05_equal_ids_and_tokens_in_many_sessions_never_cross(era: str) -> None:
    """seed:HTTP-07: 30 sessions of 20 calls at once, all under the same ids and progress tokens."""

    async def cross(port: int) -> None:
        async with contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client(port, era)) for _ in range(30)]

            async def one(session: int, identity: int) -> None:
                name = f"{session}/{identity}"
                client = clients[session]
                answer = await client.call("tell", token=f"t{identity}", id=identity, name=name, to=3, pause=0.001)
                *told, last = answer.messages
                assert [message["params"]["message"] for message in told] == [name] * 3
                assert {message["params"]["progressToken"] for message in told} == {f"t{identity}"}
                assert (last["id"], answer.text) == (identity, name)

            await asyncio.gather(*(one(session, identity) for session in range(30) for identity in range(20)))

    async def serve() -> None:
        async with served(Workshop()) as port:
            await cross(port)

    run(serve)


PATHS = {
    **dict.fromkeys(("/mcp", "/mcp?", "/mcp?a=/x/..&b=%00", "http://localhost/mcp"), 200),
    **dict.fromkeys(("/mcp/", "/mcp/..", "//mcp", "/mcp%2f", "/mcp%2F..", "/MCP", "/mcp;x", "/mcp%00", "/%6dcp"), 404),
    **dict.fromkeys(("/%c0%ae/mcp", "/mcp/./", "/mcp\\", "/%2e%2e/mcp", "/./mcp", "/x/../mcp", "/livez/../mcp"), 404),
}
"""Only the path itself is the path; whatever a proxy in front of us took the others for."""


def test_htp_10_path_tricks_lead_to_the_exact_route_or_nowhere(era: str) -> None:
    async def try_all(port: int) -> None:
        async with Client(port, era) as client:
            for path, status in PATHS.items():
                answer = await client.ask("tools/list", path=path)
                assert answer.status == status, path
                assert (b'"tools":' in answer.body) == (status == 200), path

    async def serve() -> None:
        async with served(Workshop()) as port:
            await try_all(port)

    run(serve)


def test_ses_12_logs_and_errors_show_at_most_8_characters_of_a_session_id(caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        shown: list[str] = []
        async with served(Workshop(), access_log=True) as port, Client(port) as client:
            secret = client.session
            await client.call("echo", text="x")
            await client.call("tell", token=1, name="x", to=2)
            for body in (b"{", b"[]", b'{"jsonrpc":"2.0","id":1,"method":"nobody/knows"}'):
                answer = await client.send("POST", body)
                shown.append(f"{answer.headers} {answer.body!r}")
            stream = await client.get("foreign-1")
            shown.append(f"{stream.headers} {stream.body!r}")
            stream = await client.get()
            await stream.part()
            shown.append(str(stream.events))
            await client.send("DELETE")
            gone = await client.send("POST", b'{"jsonrpc":"2.0","id":1,"method":"ping"}')
            assert gone.status == 404
            shown.append(f"{gone.headers} {gone.body!r}")
        text = caplog.text + "".join(shown)
        assert "access" in caplog.text
        assert not [at for at in range(len(secret) - 8) if secret[at : at + 9] in text]

    with caplog.at_level(logging.DEBUG):
        run(use)


def test_ses_12_neither_side_logs_a_session_or_a_token(caplog: pytest.LogCaptureFixture) -> None:
    """Our own client, over both transports that have sessions, until the server forgets them."""
    token, ids = "Bearer x9-secret-token", set[str]()

    async def use() -> None:
        listener, ready = Http(port=0, access_log=True, sse=True), asyncio.Event()
        serve = asyncio.ensure_future(listener.serve(Workshop().host, ready.set))
        await ready.wait()
        place = listener.url.removesuffix("/mcp")
        for target in (f"{place}/mcp", f"sse+{place}/sse"):
            async with OurClient(target, mode="handshake", headers={"Authorization": token}, reconnect=False) as client:
                await client.call_tool("tell", {"name": "x", "to": 2})
                assert listener._endpoint is not None
                for session in listener._endpoint.sessions:
                    ids.add(session.id.rpartition("\n")[2])
                    listener._endpoint.sessions.end(session)
                with pytest.raises(CallFailed) as lost:
                    await client.call_tool("echo", {"text": "x"})
                caplog.handler.stream.write(str(lost.value))
        await listener.close(1.0)
        await serve

    with caplog.at_level(logging.DEBUG):
        run(use)
    assert len(ids) >= 2
    assert "POST /mcp 200" in caplog.text
    assert "secret" not in caplog.text
    assert not [each for each in ids for at in range(len(each) - 8) if each[at : at + 9] in caplog.text]


def test_one_broken_exchange_affects_only_its_own_request(era: str) -> None:
    """seed:HTTP-13."""

    async def break_one(port: int) -> None:
        async with Client(port, era) as client:
            calls = [await client.begin_call("sleep", ms=200) for _ in range(10)]
            await asyncio.sleep(0.05)
            calls[4].way.reset()
            answers = [await (await call.head()).whole() for call in calls if call is not calls[4]]
            assert [answer.text for answer in answers] == ["slept"] * 9

    async def serve() -> None:
        async with served(Workshop()) as port:
            await break_one(port)

    run(serve)


def test_the_server_works_with_any_http_client() -> None:
    """seed:HTTP-02: with the client of the standard library, which knows nothing of us."""
    import http.client

    with serving() as server:
        link = http.client.HTTPConnection("127.0.0.1", server.port, timeout=10)
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}

        def ask(method: str, params: Any) -> http.client.HTTPResponse:
            body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            link.request("POST", "/mcp", body, headers)
            return link.getresponse()

        opened = ask("initialize", hello)
        opened.read()
        headers["MCP-Session-ID"] = str(opened.headers["Mcp-Session-Id"])
        answer = ask("tools/call", {"name": "echo", "arguments": {"text": "hi"}})
        assert json.loads(answer.read())["result"]["content"][0]["text"] == "hi"
        told = {"name": "tell", "arguments": {"name": "x", "to": 2}, "_meta": {"progressToken": 1}}
        stream = ask("tools/call", told)
        assert stream.headers["Content-Type"] == "text/event-stream"
        data = [json.loads(line[5:]) for line in stream.read().decode().split("\n") if line[5:] and line[:5] == "data:"]
        assert [message.get("method", "answer") for message in data] == ["notifications/progress"] * 2 + ["answer"]
        link.close()
