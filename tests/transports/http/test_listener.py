"""Streamable HTTP as a listener, with a real server behind it."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import resource
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ferrule import Server
from ferrule.errors import CarrierError, SetupError
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.transports.http import listener
from ferrule.transports.http.asgi import app as asgi
from ferrule.transports.http.endpoint.router import HttpEndpoint
from ferrule.transports.http.listener import Http

PLAIN = {"host": "localhost", "content-type": "application/json", "accept": "application/json, text/event-stream"}
META = {"protocolVersion": STATELESS.version, "clientCapabilities": {}}
GET_READY = b"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
BODY = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"t","version":"1"}}}'
)
INITIALIZE = (
    b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Accept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
)


def serve(use: Callable[[Http], Awaitable[None]], **options: Any) -> None:
    """Serve while the listener is used, and let it end in order."""

    async def main() -> None:
        listener, ready = Http(port=0, **options), asyncio.Event()
        serving = asyncio.ensure_future(listener.serve(Server("tester").host, ready.set))
        done, _ = await asyncio.wait([serving, asyncio.ensure_future(ready.wait())], return_when="FIRST_COMPLETED")
        if serving in done:
            await serving
        await use(listener)
        await listener.close(1.0)
        await asyncio.wait_for(serving, 60)
        with pytest.raises(SetupError, match="does not listen"):
            _ = listener.address

    asyncio.run(main())


async def ask(listener: Http, data: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*listener.address)
    writer.write(data)
    found = await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)
    writer.close()
    return found


def test_requests_reach_the_server(caplog: pytest.LogCaptureFixture) -> None:
    async def use(listener: Http) -> None:
        assert listener.address[0] == "127.0.0.1"
        assert listener.address[1] > 0
        assert await ask(listener, GET_READY) == b"HTTP/1.1 200 OK\r\n"
        assert await ask(listener, INITIALIZE) == b"HTTP/1.1 200 OK\r\n"

    with caplog.at_level(logging.INFO, "ferrule.http"):
        serve(use)
    assert [record.getMessage()[:28] for record in caplog.records] == ["serving on http://127.0.0.1:"]


def test_the_limit_of_bodies_is_the_doors_own() -> None:
    async def use(listener: Http) -> None:
        body = b"x" * 1025
        request = b"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1025\r\n\r\n" + body
        assert await ask(listener, request) == b"HTTP/1.1 413 Request Entity Too Large\r\n"

    serve(use, max_body_size=1024)


def test_a_closed_listener_accepts_nobody() -> None:
    async def use(listener: Http) -> None:
        address = listener.address
        await listener.close(1.0)
        with pytest.raises(OSError, match="onnect"):
            await asyncio.open_connection(*address)

    serve(use)


def test_a_cancelled_listener_lets_go_of_its_port() -> None:
    async def main() -> None:
        listener, ready = Http(port=0), asyncio.Event()
        serving = asyncio.ensure_future(listener.serve(Server("tester").host, ready.set))
        await asyncio.wait_for(ready.wait(), 60)
        address = listener.address
        serving.cancel()
        await asyncio.wait([serving])
        with pytest.raises(OSError, match="onnect"):
            await asyncio.open_connection(*address)

    asyncio.run(main())


def test_a_port_in_use_is_told_by_serve() -> None:
    async def use(listener: Http) -> None:
        with pytest.raises(CarrierError, match="the port is in use"):
            await Http(port=listener.address[1]).serve(Server("other").host, lambda: None)

    serve(use)


def test_one_listener_serves_once_at_a_time() -> None:
    async def use(listener: Http) -> None:
        with pytest.raises(SetupError, match="serves already"):
            await listener.serve(Server("other").host, lambda: None)

    serve(use)


def test_an_option_nobody_knows_is_refused() -> None:
    with pytest.raises(SetupError, match="unknown option 'prot'"):
        Http(prot=1)


def test_both_front_ends_are_one_implementation() -> None:
    """TBEH-11: the engine and ASGI hand every request to the same doors, and answer none themselves."""
    for front in (listener, asgi):
        assert front.HttpEndpoint is HttpEndpoint


@pytest.mark.parametrize("response", ["auto", "json"])
async def test_htp_13_a_call_is_answered_to_a_client_that_ended_its_side_after_asking(response: str, era: Any) -> None:
    """HTP-13: as `nc -N` does it; the answer takes longer than the engine's first doubts."""
    app, release = Server("slow"), asyncio.Event()

    @app.tool(structured_output=False)
    async def slow() -> str:
        await release.wait()
        return "well done"

    site, ready = Http(port=0, stateless=True, response=response, quiet=0.3), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(site, ready=ready.set))
    await ready.wait()
    meta = {f"io.modelcontextprotocol/{key}": value for key, value in META.items()} if era == "stateless" else {}
    body = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "slow", "arguments": {}, "_meta": meta}}
    ).encode()
    head = {**PLAIN, "content-length": str(len(body))}
    if era == "stateless":
        head |= {"MCP-Protocol-Version": STATELESS.version, "Mcp-Method": "tools/call", "Mcp-Name": "slow"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    reader, writer = await asyncio.open_connection(*site.address)
    writer.write(f"POST /mcp HTTP/1.1\r\n{lines}\r\n".encode() + body)
    writer.write_eof()
    asyncio.get_running_loop().call_later(0.9, release.set)
    answer = await reader.read()
    assert b"HTTP/1.1 200 OK" in answer
    assert b"well done" in answer
    writer.close()
    await app.stop()
    await serving


def test_limt_08_seven_tenths_of_all_connections_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """LIMT-08: as the listeners of other transports tell it."""

    async def use(listener: Http) -> None:
        opened = []
        for _ in range(9):
            opened.append(await asyncio.open_connection(*listener.address))
            opened[-1][1].write(GET_READY)
            await opened[-1][0].readuntil(b"\r\n")
        for _, writer in opened:
            writer.close()

    with caplog.at_level(logging.WARNING, "ferrule.transports"):
        serve(use, max_connections=10)
    (told,) = caplog.messages
    assert re.fullmatch(r"HTTP at port \d+ has 7 connections and takes 10 at once", told)


def test_limt_04_a_limit_the_system_cannot_hold_is_told_at_start(caplog: pytest.LogCaptureFixture) -> None:
    """LIMT-04"""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def use(listener: Http) -> None:
        pass

    with caplog.at_level(logging.WARNING, "ferrule.transports"):
        serve(use, max_connections=soft)
    (told,) = caplog.messages
    assert told.startswith(f"max_connections is {soft} and this process may have {soft} files open: raise the limit")
