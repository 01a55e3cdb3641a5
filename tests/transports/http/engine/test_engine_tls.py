"""Requests over TLS."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

import pytest
import uvloop
from certificates import write_certificate

from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_requests_are_served_over_tls(runner: object, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    certificate, key = write_certificate(tmp_path)
    seen: list[HttpRequest] = []

    def handle(request: HttpRequest, responder: Responder) -> None:
        seen.append(request)
        responder.reply(200, b"", b"hello")

    async def main() -> None:
        settings = EngineSettings(port=0, certificate=certificate, private_key=key, head_timeout=2.0, http2=False)
        engine = Engine(handle, settings)
        await engine.start()
        trusting = ssl.create_default_context(cafile=certificate)
        trusting.set_alpn_protocols(["h2", "http/1.1"])
        reader, writer = await asyncio.open_connection(*engine.address, ssl=trusting, server_hostname="localhost")
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        for _ in range(3):
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n" + b"a" * 200_000)
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(5) == b"hello"
        # Rubbish is refused, and the connection ends.
        writer.write(b"rubbish\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"\r\n"), 60)) == b"HTTP/1.1 400 Bad Request\r\n"
        writer.close()
        # Whoever does not speak TLS is let go without a word in the log.
        plain, plain_writer = await asyncio.open_connection(*engine.address)
        plain_writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"HTTP" not in await asyncio.wait_for(plain.read(), 60)
        plain_writer.close()
        silent, silent_writer = await asyncio.open_connection(*engine.address)
        assert await asyncio.wait_for(silent.read(), 60) == b""
        silent_writer.close()
        async with asyncio.timeout(60):
            while engine._unattached:
                await asyncio.sleep(0.01)
        # One too many could not read a refusal.
        assert engine._no_room() == b""
        await engine.drain(1.0)

    with caplog.at_level(logging.WARNING):
        runner(main())  # type: ignore[operator]
    assert [(request.secure, len(request.body)) for request in seen] == [(True, 200_000)] * 3
    assert [record.getMessage() for record in caplog.records] == []


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_who_is_in_the_middle_of_the_tls_handshake_counts_as_a_connection(runner: object, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)

    def handle(request: HttpRequest, responder: Responder) -> None:
        responder.reply(200, b"", b"hello")

    async def main() -> None:
        settings = EngineSettings(
            port=0, certificate=certificate, private_key=key, head_timeout=600.0, max_connections=2
        )
        engine = Engine(handle, settings)
        await engine.start()
        first, first_writer = await asyncio.open_connection(*engine.address)
        _, second_writer = await asyncio.open_connection(*engine.address)
        third, third_writer = await asyncio.open_connection(*engine.address)
        assert await asyncio.wait_for(third.read(), 60) == b""
        assert not first.at_eof()
        for writer in (first_writer, second_writer, third_writer):
            writer.close()
        await engine.drain(1.0)

    runner(main())  # type: ignore[operator]
