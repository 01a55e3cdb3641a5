"""Open files run out: the HTTP engine neither spins nor floods its log, and recovers."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import time

import pytest
from raw_http import HONEST, EngineProcess, engine, until

from ferrule.transports.sockets import accept as accepting
from ferrule.transports.sockets.accept import SocketAcceptor

REFUSAL = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def is_served(server: EngineProcess) -> bool:
    with server.peer() as peer:
        peer.send(HONEST)
        return b" 200 OK" in peer.socket.recv(1000)


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_dsk_01_too_many_idle_connections_are_survived(loop: str) -> None:
    with engine(loop=loop, open_files=128) as server:
        peers = [server.peer() for _ in range(200)]
        spent, began = server.cpu(), time.monotonic()
        refused = server.say(HONEST)
        time.sleep(1.0)
        assert [one.status for one in refused] == [503]
        assert (server.cpu() - spent) / (time.monotonic() - began) < 0.5
        log = server.logged()
        assert log.count("cannot accept connections") == 1
        assert "ulimit -n" in log
        assert len(log) < 1024
        for peer in peers:
            peer.socket.close()
        assert until(lambda: is_served(server))


class Faulty(socket.socket):
    """A listening socket whose every third accept fails."""

    error = errno.EMFILE
    calls = 0

    def _accept(self) -> tuple[int, object]:
        self.calls += 1
        if self.calls % 3 == 0:
            raise OSError(self.error, os.strerror(self.error))
        return super()._accept()


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.EPERM])
def test_dsk_02_an_accept_that_fails_now_and_then_keeps_nobody_out(
    error: int, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "REST", 0.01)
    answers: list[bytes] = []

    def serve(accepted: socket.socket) -> None:
        with accepted:
            accepted.send(b"served")

    async def visit(port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        answers.append(await reader.read())
        writer.close()

    async def main() -> int:
        listening = Faulty(socket.AF_INET, socket.SOCK_STREAM)
        listening.error = error
        listening.bind(("127.0.0.1", 0))
        listening.listen(100)
        listening.setblocking(False)
        line = SocketAcceptor(listening, serve, lambda: REFUSAL)
        line.start()
        for _ in range(10):
            await asyncio.gather(*(visit(listening.getsockname()[1]) for _ in range(3)))
        line.stop()
        return listening.calls

    with caplog.at_level(logging.WARNING, "ferrule.transports"):
        calls = asyncio.run(asyncio.wait_for(main(), 60))
    assert set(answers) <= {b"served", REFUSAL}
    assert answers.count(b"served") >= 10
    # Each visitor costs a call or two, each readiness one more; a spin would be thousands.
    assert calls < 200
    assert len(caplog.records) == 1
    assert os.strerror(error) in caplog.text


def test_dsk_02_a_shortage_that_lasts_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "REST", 0.05)

    async def main() -> int:
        listening = Faulty(socket.AF_INET, socket.SOCK_STREAM)
        listening.bind(("127.0.0.1", 0))
        listening.listen(10)
        listening.setblocking(False)
        failing = 0

        def accept() -> tuple[int, object]:
            nonlocal failing
            failing += 1
            raise OSError(errno.ENFILE, "table full")

        listening._accept = accept  # type: ignore[method-assign]
        line = SocketAcceptor(listening, lambda _: None, lambda: REFUSAL)
        line.start()
        with socket.create_connection(listening.getsockname()):
            await asyncio.sleep(0.5)
        line.stop()
        return failing

    assert asyncio.run(main()) <= 2 * 12
