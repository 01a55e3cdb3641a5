"""Identity on connections that carry many messages: settled once, before anything is read, and ended with the proof."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from identity_desk import ByHeader, new_server, served
from identity_wire import INITIALIZE, Wire

from ferrule import ANONYMOUS, CallFailed, Client, Principal, RequestFacts, Server, Tcp, Unauthorized, Unix, Verifier
from ferrule.budgets import process


class ByAddress(Verifier):
    """Knows a peer by where it comes from; refuses whoever it is told to."""

    def __init__(self, answer: Any = None, *, gate: asyncio.Event | None = None) -> None:
        self.answer = answer or Principal(issuer="net", subject="local")
        self.gate = gate
        self.asked: list[RequestFacts] = []

    def verify(self, facts: RequestFacts) -> Any:
        self.asked.append(facts)
        return self.answer if self.gate is None else self.later()

    async def later(self) -> Any:
        assert self.gate is not None
        await self.gate.wait()
        return self.answer


class Peer:
    """A client of a socket that speaks lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, *messages: Any) -> None:
        self.writer.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    async def read(self) -> Any:
        return json.loads(await self.reader.readline())

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


def calling(number: int) -> dict[str, Any]:
    params = {"name": "whoami", "arguments": {}}
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}


@pytest.fixture(params=["tcp", "unix"])
def reached(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Each kind of plain socket: a listener, and how to reach it."""
    if request.param == "unix":
        path = str(tmp_path / "s")
        return Unix(path=path), lambda listener: asyncio.open_unix_connection(path)
    return Tcp(port=0), lambda listener: asyncio.open_connection(*listener.address)


async def connect(app: Server, reached: Any) -> tuple[asyncio.Future[None], Peer]:
    """Serve on a socket and reach it."""
    listener, reach = reached
    serving = asyncio.ensure_future(app.serve(listener))
    while True:
        await asyncio.sleep(0.01)
        assert not serving.done(), serving.result()
        try:
            return serving, Peer(*await reach(listener))
        except Exception:
            continue


async def test_a_socket_without_a_certificate_is_verified_too(reached: Any) -> None:
    verifier = ByAddress()
    app = new_server(verifier)
    serving, peer = await connect(app, reached)
    peer.send(INITIALIZE, calling(1))
    assert (await peer.read())["id"] == 0
    assert (await peer.read())["result"]["content"][0]["text"] == "net#local"
    assert verifier.asked[0].transport in ("tcp", "unix")
    assert verifier.asked[0].certificate is None
    await peer.close()
    await app.stop()
    await serving


@pytest.mark.parametrize("wait", [False, True], ids=["at once", "awaited"])
async def test_who_is_refused_reads_why_and_the_connection_ends(reached: Any, wait: bool) -> None:
    gate = asyncio.Event()
    gate.set()
    app = new_server(ByAddress(Unauthorized("Unauthorized: who are you?"), gate=gate if wait else None))
    serving, peer = await connect(app, reached)
    peer.send(INITIALIZE, calling(1))
    error = {"code": -32600, "message": "Unauthorized: who are you?"}
    assert await peer.read() == {"jsonrpc": "2.0", "id": None, "error": error}
    assert await peer.reader.read() == b""
    assert len(app.host.links) == 0
    await peer.close()
    listener = reached[0]
    while listener.occupancy.current:
        await asyncio.sleep(0.01)
    await app.stop()
    await serving


async def test_nothing_is_read_before_the_verdict_and_nothing_is_lost(reached: Any) -> None:
    gate = asyncio.Event()
    app = new_server(ByAddress(gate=gate))
    serving, peer = await connect(app, reached)
    peer.send(INITIALIZE, *(calling(number) for number in range(1, 20)))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.reader.readexactly(1), 0.1)
    assert len(app.host.links) == 0
    other = Peer(*await reached[1](reached[0]))
    gate.set()
    assert [(await peer.read())["id"] for _ in range(20)] == list(range(20))
    await other.close()
    await peer.close()
    await app.stop()
    await serving


async def test_a_stop_does_not_wait_for_a_verdict(reached: Any) -> None:
    app = new_server(ByAddress(gate=asyncio.Event()))
    serving, peer = await connect(app, reached)
    await asyncio.sleep(0.05)
    await asyncio.wait_for(app.stop(), 10)
    await serving
    await peer.close()
    assert reached[0].occupancy.current == 0


@pytest.mark.parametrize("way", ["websocket", "asgi websocket", "tcp"])
async def test_a_connection_ends_when_its_principal_expires(way: str, era: str, tmp_path: Path) -> None:
    app = new_server(ByHeader(lifetime=0.6))
    async with served(app, way, tmp_path) as place, place.client("ada", era) as client:
        assert (await client.call_tool("whoami")).data == "staff#ada"
        while [link for link in app.host.links if link.session.origin.principal]:
            await asyncio.sleep(0.02)
        with pytest.raises(CallFailed):
            await client.call_tool("whoami")


async def test_a_websocket_that_expires_is_closed_with_4401(tmp_path: Path) -> None:
    async with served(new_server(ByHeader(lifetime=0.3)), "websocket", tmp_path) as place:
        wire = await Wire.reach(place.url)
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec_WebSocket_Version": "13"}
        key = {"Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        lines = [f"GET {wire.path} HTTP/1.1", "Host: 127.0.0.1", "X-User: ada"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in {**upgrade, **key}.items()]
        wire.writer.write("\r\n".join(lines).encode() + b"\r\n\r\n")
        assert b" 101 " in await wire.reader.readline()
        await wire.reader.readuntil(b"\r\n\r\n")
        frame = await wire.reader.readexactly(4)
        assert (frame[0] & 0x0F, int.from_bytes(frame[2:4])) == (8, 4401)
        wire.writer.close()


@pytest.mark.parametrize("way", ["engine", "sse"])
async def test_a_stream_ends_when_its_reader_expires(way: str, tmp_path: Path) -> None:
    """It does not wait for the next keepalive, which is 15 s away."""
    app = Server("streams", auth=ByHeader(lifetime=0.5))
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url.removeprefix("sse+"))
        headers = {"X_User": "ada", "Accept": "text/event-stream"}
        if way == "engine":
            headers["Mcp_Session_Id"] = await wire.session(X_User="ada")
        wire.send(method="GET", **headers)
        assert b" 200 " in await wire.reader.readline()
        said = await asyncio.wait_for(wire.reader.readuntil(b"\r\n0\r\n\r\n"), 10)
        assert b"text/event-stream" in said
        await wire.close()


async def test_a_listening_request_ends_when_its_reader_expires(tmp_path: Path) -> None:
    app = new_server(ByHeader(lifetime=0.5))
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {"_meta": meta, "notifications": {"toolsListChanged": True}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params}
        wire.send(message, X_User="ada", Mcp_Protocol_Version="2026-07-28", Mcp_Method="subscriptions/listen")
        assert b" 200 " in await wire.reader.readline()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await asyncio.wait_for(wire.reader.readexactly(1 << 20), 10)
        wire.writer.close()


async def test_what_lives_in_this_process_is_not_asked(era: str) -> None:
    """Whoever holds the server object holds the process."""
    verifier = ByAddress(Unauthorized("no"))
    async with Client(new_server(verifier), mode=era) as client:
        assert (await client.call_tool("whoami")).data == "None"
    assert verifier.asked == []


async def test_a_verifier_may_let_somebody_in_as_nobody(reached: Any) -> None:
    app = new_server(ByAddress(ANONYMOUS))
    serving, peer = await connect(app, reached)
    peer.send(INITIALIZE, calling(1))
    await peer.read()
    assert (await peer.read())["result"]["content"][0]["text"] == "None"
    await peer.close()
    await app.stop()
    await serving


# -- a WebSocket whose verdict takes a while

UPGRADE = b"".join(
    line + b"\r\n"
    for line in (
        b"GET /mcp/ws HTTP/1.1",
        b"Host: 127.0.0.1",
        b"X-User: ada",
        b"Connection: Upgrade",
        b"Upgrade: websocket",
        b"Sec-WebSocket-Version: 13",
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        b"",
    )
)


def frame(message: Any) -> bytes:
    """Write a text frame as a client does, masked with zeros."""
    payload = json.dumps(message).encode()
    size = bytes([0x80 | len(payload)]) if len(payload) < 126 else b"\xfe" + len(payload).to_bytes(2)
    return b"\x81" + size + bytes(4) + payload


class Gated(ByHeader):
    """Answers when its gate opens."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__(pause=0.0)
        self.gate = gate

    async def later(self, verdict: Any) -> Any:
        await self.gate.wait()
        return verdict


async def test_what_a_peer_says_before_the_verdict_on_its_websocket_is_heard_after_it(tmp_path: Path) -> None:
    gate, held = asyncio.Event(), process.requests.held
    verifier = Gated(gate)
    async with served(new_server(verifier), "websocket", tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.writer.write(UPGRADE)
        while not verifier.asked:
            await asyncio.sleep(0.01)
        hello = {**INITIALIZE, "params": {**INITIALIZE["params"], "_meta": {"x": "y" * 9000}}}  # type: ignore[dict-item]
        wire.writer.write(frame(hello) + frame(calling(1)))
        while process.requests.held == held:
            await asyncio.sleep(0.01)
        gate.set()
        assert b" 101 " in await wire.reader.readline()
        assert b"protocolVersion" in await asyncio.wait_for(wire.reader.readuntil(b"staff#ada"), 10)
        while process.requests.held != held:
            await asyncio.sleep(0.01)
        wire.writer.close()


@pytest.mark.parametrize("goodbye", ["half-closed", "gone"])
async def test_a_peer_that_leaves_before_the_verdict_on_its_websocket_is_let_go(goodbye: str, tmp_path: Path) -> None:
    gate = asyncio.Event()
    verifier = Gated(gate)
    app = new_server(verifier)
    async with served(app, "websocket", tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.writer.write(UPGRADE)
        while not verifier.asked:
            await asyncio.sleep(0.01)
        if goodbye == "gone":
            wire.writer.transport.abort()
        else:
            wire.writer.write_eof()
        await asyncio.sleep(0.1)
        gate.set()
        if goodbye == "half-closed":
            await asyncio.wait_for(wire.reader.read(), 10)
        while [link for link in app.host.links if link.session.origin.principal]:
            await asyncio.sleep(0.01)
        wire.writer.close()
    assert len(app.host.links) == 0
