"""A transport that is told nothing is reached from this machine only, by no foreign page, and within limits."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Http, Server, Tcp, WebSocket
from ferrule.transports.http.listener import Sse
from ferrule.transports.http.settings import EndpointSettings, EngineSettings
from ferrule.transports.tcp.settings import TcpSettings, UnixSettings
from ferrule.transports.websocket.settings import WebSocketSettings

PATIENCE = 120.0
UPGRADE = (
    "connection: upgrade\r\nupgrade: websocket\r\n"
    "sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg=="
)
SETTINGS: list[Any] = [TcpSettings(), EngineSettings()]
BOUNDED = [
    (TcpSettings(), ("max_message_size", "max_connections", "idle_timeout", "handshake_timeout")),
    (UnixSettings(path="/nowhere"), ("max_message_size", "max_connections", "idle_timeout")),
    (EngineSettings(), ("max_connections", "max_head_size", "max_buffered", "head_timeout", "idle_timeout")),
    (EndpointSettings(), ("max_body_size", "max_sessions", "session_idle_timeout", "max_event_bytes")),
    (WebSocketSettings(), ("max_message_size", "max_connections", "fragment_timeout", "backpressure_timeout")),
]


async def asked(listener: Any, request: str) -> bytes:
    """Serve with a listener, send it one request, and give what it says."""
    app, ready = Server("s"), asyncio.Event()
    app.add_tool("break", lambda: 1 / 0)
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    try:
        await asyncio.wait_for(ready.wait(), PATIENCE)
        reader, writer = await asyncio.open_connection(*listener.address[:2])
        writer.write(request.encode())
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        writer.close()
        return answer
    finally:
        await app.stop(0.0)
        await serving


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda each: type(each).__name__)
def test_only_this_machine_can_reach_it(settings: Any) -> None:
    """ERRA-10."""
    assert settings.host == "127.0.0.1"


def test_only_the_same_user_can_reach_a_socket_file() -> None:
    assert UnixSettings(path="/nowhere").mode == 0o600


@pytest.mark.parametrize(("settings", "names"), BOUNDED, ids=lambda each: type(each).__name__)
def test_every_limit_is_on(settings: Any, names: tuple[str, ...]) -> None:
    assert all(getattr(settings, name) > 0 for name in names)


def test_a_tcp_socket_is_not_opened_to_the_network_unasked() -> None:
    """ERRA-10."""
    with pytest.raises(Exception, match="allow_remote"):
        Tcp(host="0.0.0.0")


@pytest.mark.parametrize("kind", [Http, Sse, WebSocket])
@pytest.mark.parametrize("head", ["host: evil.example", "host: localhost\r\norigin: https://evil.example"])
def test_names_and_pages_of_strangers_are_refused(kind: Any, head: str) -> None:
    """Also no page is told that it may read the answer."""
    path = {Http: "/mcp", Sse: "/sse", WebSocket: "/mcp/ws"}[kind]
    wanted = UPGRADE if kind is WebSocket else "accept: text/event-stream"
    request = f"GET {path} HTTP/1.1\r\n{head}\r\n{wanted}\r\n\r\n"
    answer = asyncio.run(asked(kind(port=0), request))
    assert answer.split()[1] in (b"403", b"421"), answer
    assert b"access-control-allow-origin" not in answer.lower()
