"""Clients of other makers speak HTTP/2 to a whole server: httpx and curl, over TLS and on plain TCP, in both eras."""

from __future__ import annotations

import asyncio
import itertools
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import write_certificate

from ferrule import Client, Server
from ferrule.transports.http.listener import Http
from http2_peer import Http2Peer, request_fields

httpx = pytest.importorskip("httpx", reason="httpx is not installed: nobody to ask in HTTP/2")

BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": "p",
}
IDS = itertools.count(2)
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Site:
    """A server that listens, over TLS or plainly."""

    def __init__(self, app: Any, folder: Path, *, tls: bool, **options: Any) -> None:
        self.app = app
        self.certificate = ""
        if tls:
            self.certificate, key = write_certificate(folder)
            options |= {"certificate": self.certificate, "private_key": key}
        self.listener = Http(port=0, **options)

    @property
    def root(self) -> str:
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://localhost:{self.listener.address[1]}"

    def client(self) -> Any:
        """Return an HTTP client that speaks HTTP/2 on one connection."""
        trusting = ssl.create_default_context(cafile=self.certificate) if self.certificate else True
        limits = httpx.Limits(max_connections=1)
        return httpx.AsyncClient(
            base_url=self.root, http1=bool(self.certificate), http2=True, verify=trusting, limits=limits, timeout=60
        )


@asynccontextmanager
async def serving(app: Any, folder: Path, *, tls: bool = False, **options: Any) -> AsyncIterator[Site]:
    site = Site(app, folder, tls=tls, **options)
    ready = asyncio.Event()
    served = asyncio.ensure_future(site.listener.serve(app.host, ready.set))
    await ready.wait()
    try:
        yield site
    finally:
        await site.listener.close(5.0)
        await served


class Caller:
    """Whoever calls tools, in either era."""

    def __init__(self, client: Any, era: str) -> None:
        self.client = client
        self.era = era
        self.headers = {"accept": BOTH}

    async def open(self) -> Caller:
        """Make the handshake, where there is one."""
        if self.era == "handshake":
            opened = await self.client.post("/mcp", json=rpc("initialize", INITIALIZE), headers=self.headers)
            self.headers["mcp-session-id"] = opened.headers["mcp-session-id"]
            note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
            assert (await self.client.post("/mcp", json=note, headers=self.headers)).status_code == 202
        return self

    def called(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return what is posted for a call."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
        headers = self.headers
        if self.era == "stateless":
            params["_meta"] = META
            headers = {**headers, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
        message = {**rpc("tools/call", params), "id": next(IDS)}
        return {"url": "/mcp", "json": message, "headers": headers}

    async def call(self, tool: str, **arguments: Any) -> tuple[int, str]:
        """Call a tool; gives how often progress was told, and the text of the result."""
        async with self.client.stream("POST", **self.called(tool, **arguments)) as answer:
            assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
            said = [message async for message in messages(answer)]
        return len(said) - 1, said[-1]["result"]["content"][0]["text"]


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


async def messages(answer: Any) -> AsyncIterator[dict[str, Any]]:
    """Read the messages of an answer as they come, whole or as a stream."""
    streamed = answer.headers["content-type"].startswith("text/event-stream")
    async for line in answer.aiter_lines():
        if not streamed:
            yield json.loads(line)
        elif line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
async def test_a_call_is_answered_and_progress_streams(app: Any, era: str, tls: bool, tmp_path: Path) -> None:
    """OTHT-01."""
    async with serving(app, tmp_path, tls=tls) as site, site.client() as client:
        caller = await Caller(client, era).open()
        assert await caller.call("echo", text="hello") == (0, "hello")
        assert await caller.call("count", to=5) == (5, "counted to 5")
        assert await caller.call("echo", text="x" * 300_000) == (0, "x" * 300_000)


async def test_100_streams_of_events_share_one_connection(app: Any, era: str, tmp_path: Path) -> None:
    async with serving(app, tmp_path) as site, site.client() as client:
        caller = await Caller(client, era).open()
        names = [f"call {index}" for index in range(100)]
        calls = [asyncio.ensure_future(caller.call("hold", name=name, tell=3)) for name in names]
        async with asyncio.timeout(60):
            while len(app.begun) < 100:
                await asyncio.sleep(0.01)
        assert len(site.listener._engine._engine_state.connections) == 1  # type: ignore[union-attr]
        for name in names:
            app.gate(name).set()
        assert await asyncio.gather(*calls) == [(4, f"held {name}") for name in names]


async def test_a_stream_that_its_client_resets_cancels_a_stateless_call(app: Any, tmp_path: Path) -> None:
    async with serving(app, tmp_path) as site, await Http2Peer.open(site.listener.address) as peer:
        call = Caller(None, "stateless").called("hold", name="a", tell=1)
        fields = [*request_fields("POST", "/mcp"), *call["headers"].items(), ("content-type", "application/json")]
        fields[2] = (":authority", "localhost")
        number = peer.ask(fields, json.dumps(call["json"]).encode())
        await peer.until(lambda: b"notifications/progress" in peer.answers[number].body)
        peer.client.reset_stream(number)
        peer.flush()
        async with asyncio.timeout(60):
            while app.cancelled != ["a"]:
                await asyncio.sleep(0.01)


async def test_a_session_has_its_own_stream_and_ends(app: Any, tmp_path: Path) -> None:
    async with serving(app, tmp_path) as site, site.client() as client:
        caller = await Caller(client, "handshake").open()
        async with client.stream("GET", "/mcp", headers={**caller.headers, "accept": "text/event-stream"}) as stream:
            assert stream.status_code == 200
            app.add_tool(lambda: "new", name="new")
            async for message in messages(stream):
                assert message["method"] == "notifications/tools/list_changed"
                break
        assert (await client.delete("/mcp", headers=caller.headers)).status_code == 204
        assert (await client.post(**caller.called("echo", text="a"))).status_code == 404


async def test_http_1_and_http_2_are_served_side_by_side(app: Any, era: str, tmp_path: Path) -> None:
    async with serving(app, tmp_path) as site, site.client() as client:
        caller = await Caller(client, era).open()
        async with Client(site.listener.url) as ours:
            assert (await ours.call_tool("echo", {"text": "one"})).text == "one"
            assert await caller.call("echo", text="two") == (0, "two")
        assert (await client.get("/livez")).text == "alive\n"
        assert (await client.get("/nowhere")).status_code == 404


async def test_a_call_that_runs_when_the_server_stops_is_answered(app: Any, era: str, tmp_path: Path) -> None:
    async with serving(app, tmp_path) as site, site.client() as client:
        caller = await Caller(client, era).open()
        call = asyncio.ensure_future(caller.call("hold", name="a", tell=1))
        async with asyncio.timeout(60):
            while not app.begun:
                await asyncio.sleep(0.01)
        closing = asyncio.ensure_future(site.listener.close(10.0))
        await asyncio.sleep(0.05)
        app.gate("a").set()
        assert await call == (2, "held a")
        await closing


def curl(*words: str) -> subprocess.CompletedProcess[str]:
    """Run curl, where it speaks HTTP/2."""
    program = shutil.which("curl")
    if program is None:
        pytest.skip("curl is not installed")
    if "HTTP2" not in subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("curl does not speak HTTP/2 here")
    return subprocess.run([program, "-sS", *words], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
async def test_curl_speaks_to_it(app: Server, tls: bool, tmp_path: Path) -> None:
    """OTHT-01."""
    async with serving(app, tmp_path, tls=tls) as site:
        way = ["--http2", "--cacert", site.certificate] if tls else ["--http2-prior-knowledge"]
        call = Caller(None, "stateless").called("count", to=3)
        headers = [
            f"-H{name}: {value}" for name, value in {**call["headers"], "content-type": "application/json"}.items()
        ]
        said = "%{http_version} %{response_code}"
        done = await asyncio.to_thread(
            curl, *way, *headers, "-w", said, "-d", json.dumps(call["json"]), f"{site.root}/mcp"
        )
        assert done.stderr == ""
        assert done.stdout.endswith("2 200")
        assert done.stdout.count("notifications/progress") == 3
        assert "counted to 3" in done.stdout
        # A body of many windows.
        large = tmp_path / "large.json"
        text = "x" * 1_000_000
        large.write_text(json.dumps(Caller(None, "stateless").called("echo", text=text)["json"]))
        headers = [header.replace("count", "echo") for header in headers]
        done = await asyncio.to_thread(curl, *way, *headers, "--data-binary", f"@{large}", f"{site.root}/mcp")
        assert text in done.stdout
