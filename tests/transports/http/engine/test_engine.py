"""The HTTP server as a whole, on real sockets, on both loops."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from certificates import Authority
from msgspec import structs

from ferrule.errors import CarrierError, SetupError
from ferrule.transports.http.engine.engine import Engine, _sweep_period
from ferrule.transports.http.message import Handle, HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings

GET = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n"
Runner = Callable[[Awaitable[None]], None]


@pytest.fixture(params=[asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Callable[..., None]:
    def run(handle: Handle, use: Callable[[Engine], Awaitable[None]], **options: Any) -> None:
        async def main() -> None:
            engine = Engine(handle, EngineSettings(port=0, **options))
            await engine.start()
            try:
                await use(engine)
            finally:
                await engine.close()
            assert len(asyncio.all_tasks()) == 1

        request.param(main())

    return run


class Later:
    """Keeps requests until the test answers them."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []
        self.responders: list[Responder] = []
        self.came = asyncio.Event()

    def __call__(self, request: HttpRequest, responder: Responder) -> None:
        self.requests.append(request)
        self.responders.append(responder)
        self.came.set()

    async def wait(self, count: int) -> None:
        while len(self.requests) < count:
            self.came.clear()
            await asyncio.wait_for(self.came.wait(), 60)


def hello(request: HttpRequest, responder: Responder) -> None:
    responder.reply(200, b"", b"hello")


async def is_refused(engine: Engine) -> bool:
    try:
        _, writer = await asyncio.open_connection(*engine.address)
    except OSError:
        return True
    writer.close()
    return False


def test_an_engine_that_has_not_started_listens_nowhere() -> None:
    assert Engine(hello).address == ("", 0)


def test_a_request_knows_its_sender(run: Callable[..., None]) -> None:
    later = Later()

    async def use(engine: Engine) -> None:
        _, writer = await asyncio.open_connection(*engine.address)
        writer.write(b"POST /a?b HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
        await later.wait(1)
        [request] = later.requests
        assert (request.method, request.path, request.query, request.body) == ("POST", "/a", "b", b"abc")
        assert (request.address, request.secure) == ("127.0.0.1", False)
        writer.close()

    run(later, use)


def test_a_connection_that_another_process_accepted_is_served(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            far = socket.create_connection(listening.getsockname())
            near, _ = listening.accept()
        engine.adopt(near, GET[:10], 1)
        reader, writer = await asyncio.open_connection(sock=far)
        writer.write(GET[10:])
        assert (await asyncio.wait_for(reader.readuntil(b"hello"), 60)).startswith(b"HTTP/1.1 200")
        writer.close()

    run(hello, use)


def test_bytes_of_a_connection_that_turns_to_http2_count_once(run: Callable[..., None]) -> None:
    opening = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    )  # the preface, and no settings (RFC 9113 §3.4)

    async def use(engine: Engine) -> None:
        reader, writer = await asyncio.open_connection(*engine.address)
        writer.write(opening)
        assert await asyncio.wait_for(reader.readexactly(9), 60)
        received, _ = engine._engine_state.traffic
        assert received == len(opening)
        writer.close()

    run(hello, use)


def test_client_certificates_are_asked_for_where_they_can_be_judged(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    certificate, key = authority.sign("localhost")
    settings = EngineSettings(port=0, certificate=certificate, private_key=key)
    for client_ca, mode in ((None, ssl.CERT_NONE), (authority.file, ssl.CERT_REQUIRED)):
        engine = Engine(hello, structs.replace(settings, client_ca=client_ca))
        assert engine._context is not None
        assert engine._context.verify_mode is mode


def test_who_arrives_while_an_engine_stops_is_let_go(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        assert not engine._engine_state.draining
        engine.stop()
        assert engine._engine_state.draining

    run(hello, use)


def test_a_drained_engine_answers_what_is_in_hand_and_closes_the_rest(run: Callable[..., None]) -> None:
    later = Later()

    async def use(engine: Engine) -> None:
        idle, idle_writer = await asyncio.open_connection(*engine.address)
        partial, partial_writer = await asyncio.open_connection(*engine.address)
        busy, busy_writer = await asyncio.open_connection(*engine.address)
        partial_writer.write(GET[:-5])
        busy_writer.write(GET)
        await later.wait(1)
        await asyncio.sleep(0.05)
        draining = asyncio.ensure_future(engine.drain(30.0))
        # Idle ones are closed at once; nobody new comes in.
        assert await asyncio.wait_for(idle.read(), 60) == b""
        assert await is_refused(engine)
        partial_writer.write(GET[-5:])
        await later.wait(2)
        assert not draining.done()
        for responder in later.responders:
            responder.reply(200, b"", b"done")
        for reader in (partial, busy):
            answer = await asyncio.wait_for(reader.read(), 60)
            assert b"connection: close\r\n" in answer
            assert answer.endswith(b"done")
        await asyncio.wait_for(draining, 60)
        for writer in (idle_writer, partial_writer, busy_writer):
            writer.close()

    run(later, use)


def test_a_stream_is_waited_for_as_long_as_the_grace_and_then_cut(run: Callable[..., None]) -> None:
    later, lost = Later(), []

    async def use(engine: Engine) -> None:
        reader, writer = await asyncio.open_connection(*engine.address)
        writer.write(GET)
        await later.wait(1)
        later.responders[0].watch(lambda: lost.append(1))
        later.responders[0].begin(200, b"")
        later.responders[0].write(b"part")
        assert await reader.readuntil(b"part\r\n")
        began = asyncio.get_running_loop().time()
        await engine.drain(0.2)
        assert 0.19 <= asyncio.get_running_loop().time() - began < 30
        assert lost == [1]
        assert later.responders[0].gone
        writer.close()

    run(later, use)


def test_a_gone_peer_is_noticed_while_its_request_is_in_hand(run: Callable[..., None]) -> None:
    later, lost = Later(), asyncio.Event()

    async def use(engine: Engine) -> None:
        for begun in (False, True):
            lost.clear()
            _, writer = await asyncio.open_connection(*engine.address)
            writer.write(GET)
            await later.wait(2 if begun else 1)
            later.responders[-1].watch(lost.set)
            if begun:
                later.responders[-1].begin(200, b"")
            writer.close()
            await asyncio.wait_for(lost.wait(), 60)
            assert later.responders[-1].gone
            later.responders[-1].reply(200, b"") if not begun else later.responders[-1].finish()

    run(later, use)


def test_close_is_harmless_before_start_and_twice(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        await Engine(hello).close()
        await engine.close()
        await engine.close()
        assert await is_refused(engine)

    run(hello, use)


def test_who_arrives_in_the_moment_of_closing_is_let_go(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        peers = [socket.create_connection(engine.address) for _ in range(5)]
        for accepting in engine._accepting:
            accepting._accept()
        await engine.close()
        # A socket that nobody closed is told of, as an error, when it is thrown away.
        gc.collect()
        for peer in peers:
            with peer:
                peer.settimeout(5)
                assert await asyncio.to_thread(peer.recv, 1) == b""

    run(hello, use)


def test_what_gave_a_connection_to_the_loop_does_not_wait_for_the_next_one(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        with socket.create_connection(engine.address):
            while not engine._engine_state.connections:
                await asyncio.sleep(0)
            assert not engine._engine_state.arriving
            async with asyncio.timeout(60):
                while engine._attaching:
                    await asyncio.sleep(0.01)

    run(hello, use, head_timeout=1.0)


def test_a_port_in_use_is_a_carrier_error(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        other = Engine(hello, EngineSettings(port=engine.address[1]))
        with pytest.raises(CarrierError, match="the port is in use"):
            await other.start()

    run(hello, use)


def test_a_certificate_that_is_missing_is_told_before_anything_listens() -> None:
    with pytest.raises(SetupError, match="not a file"):
        Engine(hello, EngineSettings(certificate="nowhere.pem"))


def test_every_address_of_the_host_is_served(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        reader, writer = await asyncio.open_connection("localhost", engine.address[1])
        writer.write(GET)
        assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK")
        writer.close()

    run(hello, use, host="localhost")


def test_a_sweep_survives_a_connection_that_fails(run: Callable[..., None], caplog: pytest.LogCaptureFixture) -> None:
    async def use(engine: Engine) -> None:
        pairs = [await asyncio.open_connection(*engine.address) for _ in range(2)]
        while len(engine._engine_state.connections) < 2:
            await asyncio.sleep(0)
        broken = next(iter(engine._engine_state.connections))
        whole, broken._transport = broken._transport, None  # type: ignore[assignment]
        reading = [asyncio.ensure_future(reader.read()) for reader, _ in pairs]
        # The other one is still cut when its time is over.
        done, _ = await asyncio.wait(reading, timeout=60, return_when="FIRST_COMPLETED")
        assert done
        assert "could not look after a connection" in caplog.messages
        broken._transport = whole
        await asyncio.wait(reading, timeout=60)
        for _, writer in pairs:
            writer.close()

    run(hello, use, head_timeout=1.0)


def test_the_clock_of_deadlines_is_the_time_of_the_next_sweep_so_that_none_is_cut_short(
    run: Callable[..., None],
) -> None:
    async def use(engine: Engine) -> None:
        settings = EngineSettings(head_timeout=1.0)
        before, clock = asyncio.get_running_loop().time(), engine._engine_state.clock
        while engine._engine_state.clock == clock:
            await asyncio.sleep(0.01)
        assert engine._engine_state.clock >= before + _sweep_period(settings)

    run(hello, use, head_timeout=1.0)


def test_small_parts_are_sent_at_once(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        _, writer = await asyncio.open_connection(*engine.address)
        writer.write(GET)
        while not engine._engine_state.connections:
            await asyncio.sleep(0)
        for connection in engine._engine_state.connections:
            ours = connection._transport.get_extra_info("socket")
            assert ours.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        writer.close()

    run(hello, use)


def test_one_connection_too_many_is_told_to_come_later(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        kept = [await asyncio.open_connection(*engine.address) for _ in range(2)]
        for reader, writer in kept:
            writer.write(GET)
            assert (await reader.readuntil(b"hello")).startswith(b"HTTP/1.1 200 OK\r\n")
        reader, writer = await asyncio.open_connection(*engine.address)
        refusal = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        assert refusal.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in refusal
        assert refusal.endswith(b"too many connections\n")
        for _, writer in kept:
            writer.close()

    run(hello, use, max_connections=2)


def test_an_engine_that_sees_off_ends_each_connection_with_its_next_answer(run: Callable[..., None]) -> None:
    async def use(engine: Engine) -> None:
        reader, writer = await asyncio.open_connection(*engine.address)
        writer.write(GET)
        assert b"connection: close" not in await reader.readuntil(b"hello")
        engine.end_after_answers()
        writer.write(GET)
        assert b"connection: close\r\n" in await asyncio.wait_for(reader.read(), 60)
        writer.close()
        reader, writer = await asyncio.open_connection(*engine.address)
        writer.write(GET)
        assert b"connection: close\r\n" in await asyncio.wait_for(reader.read(), 60)
        writer.close()

    run(hello, use)


@pytest.mark.parametrize(
    ("times", "period"),
    [
        ({}, 1.0),
        ({"head_timeout": 2.0}, 0.5),
        ({"body_timeout": 2.0}, 0.5),
        ({"idle_timeout": 2.0}, 0.5),
        ({"write_timeout": 2.0}, 0.5),
        ({"write_timeout": 0.01}, 0.02),
    ],
)
def test_deadlines_are_looked_at_four_times_in_the_shortest(times: dict[str, float], period: float) -> None:
    assert _sweep_period(EngineSettings(**times)) == period


def test_the_address_is_a_host_and_a_port_with_ipv6_too(run: Callable[..., None]) -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            pass
    except OSError:
        pytest.skip("this machine has no IPv6")

    async def use(engine: Engine) -> None:
        host, port = engine.address
        assert (host, port > 0) == ("::1", True)

    run(hello, use, host="::1")


async def test_who_is_turned_away_for_want_of_descriptors_is_counted() -> None:
    engine = Engine(hello, EngineSettings(port=0))
    assert b"503" in engine._no_descriptors()
    refused: list[str] = []
    engine._engine_state.observed = SimpleNamespace(refused=refused.append)  # type: ignore[assignment]
    assert b"503" in engine._no_descriptors()
    assert refused == ["no_descriptors"]
