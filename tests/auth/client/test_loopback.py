"""The listener a browser is sent back to, among other programs of this machine."""

from __future__ import annotations

import asyncio
import contextlib
import socket

import pytest

from ferrule import AuthorizationFailed
from ferrule.auth.client import loopback
from ferrule.auth.client.loopback import MOST_AT_ONCE, CallbackListener


async def ask(port: int, raw: bytes) -> bytes:
    """Send bytes, read all that comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw)
    await writer.drain()
    found = await reader.read()
    writer.close()
    return found


def get(target: str) -> bytes:
    """Return a request."""
    return f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def listener() -> CallbackListener:
    """Return one at any free port."""
    return CallbackListener(host="127.0.0.1", ports=[0], path="/callback")


def is_ours(query: str) -> bool:
    """Whether a request is the answer."""
    return "state=right" in query


@pytest.mark.parametrize(
    "raw",
    [
        get("/callback?code=stolen&state=wrong"),
        get("/callback?code=stolen"),
        get("/callback"),
        get("/favicon.ico"),
        get("/callback/../callback?state=right"),
        get("//callback?state=right"),
        b"POST /callback?state=right HTTP/1.1\r\n\r\n",
        b"GET /callback?state=right HTTP/2\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"x" * 40_000,
        b"",
    ],
)
async def test_another_program_that_comes_first_changes_nothing(raw: bytes) -> None:
    """AUT-08: a callback with a wrong state, and what is no callback at all; the real answer is still taken."""
    async with listener() as listening:
        waiting = asyncio.create_task(listening.wait(is_ours))
        await asyncio.sleep(0)
        if raw:
            refused = await ask(listening.port, raw)
            assert b"200 OK" not in refused
            assert b"stolen" not in refused
        answer = await ask(listening.port, get("/callback?code=abc&state=right"))
        assert answer.startswith(b"HTTP/1.1 200 OK")
        assert await waiting == "code=abc&state=right"


async def test_a_second_answer_is_refused_and_nothing_is_shown_of_either() -> None:
    """AUT-08: a replay, and HTML in what an answer says."""
    async with listener() as listening:
        waiting = asyncio.create_task(listening.wait(is_ours))
        await asyncio.sleep(0)
        first = await ask(listening.port, get("/callback?error_description=<script>alert(1)</script>&state=right"))
        second = await ask(listening.port, get("/callback?code=abc&state=right"))
        assert b"script" not in first
        assert b"frame-ancestors 'none'" in first
        assert second.startswith(b"HTTP/1.1 400")
        assert "script" in await waiting


async def test_silent_connections_do_not_keep_the_answer_out() -> None:
    async with listener() as listening:
        waiting = asyncio.create_task(listening.wait(is_ours))
        silent = [await asyncio.open_connection("127.0.0.1", listening.port) for _ in range(MOST_AT_ONCE - 1)]
        await ask(listening.port, get("/callback?state=right"))
        assert await waiting == "state=right"
        for _, writer in silent:
            writer.close()


async def test_a_port_that_is_taken_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(AuthorizationFailed, match=f"port {port} of 127.0.0.1"):
            async with CallbackListener(host="127.0.0.1", ports=[port], path="/callback"):
                pass


async def test_where_the_port_of_before_is_taken_any_other_serves() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with CallbackListener(host="127.0.0.1", ports=[port, 0], path="/callback") as listening:
            assert listening.port not in (0, port)


async def test_nothing_listens_when_it_is_over() -> None:
    async with listener() as listening:
        port = listening.port
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_who_stays_connected_is_cut_when_it_is_over_and_no_error_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(loopback, "FAREWELL", 0.01)
    async with listener() as listening:
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port)
        while not listening._running:
            await asyncio.sleep(0.001)
    with contextlib.suppress(ConnectionResetError):
        assert await reader.read() == b""
    writer.close()
    assert listening._running == {}
    assert caplog.messages == []
