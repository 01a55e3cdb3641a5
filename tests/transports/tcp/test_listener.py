"""Serving over TCP and TLS, from the start to an orderly end."""

from __future__ import annotations

import asyncio
import json
import logging
import resource
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority, write_certificate
from tcp_desk import INITIALIZE, PING, Peer, Run, at_work, call, line, make_app, serving, until

from ferrule import Client, Context, Server
from ferrule.errors import CarrierError, ConnectFailed, LinkLost, SetupError
from ferrule.transports.tcp.listener import Tcp, Unix
from ferrule.transports.tcp.transport import TcpTransport
from many_files import many_files


def test_tcpt_01_a_client_calls_tools_over_tcp_in_both_eras(run: Run) -> None:
    """TCPT-01, STDIO-12, STDIO-13."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            for mode in ("handshake", "auto"):
                async with Client(f"tcp://127.0.0.1:{listener.address[1]}", mode=mode) as client:
                    answers = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(100)))
                    assert [answer.data for answer in answers] == list(range(1, 101))

    run(test())


def test_srvr_12_one_server_serves_several_sockets_at_once_with_separate_sessions(run: Run, tmp_path: Path) -> None:
    """SRVR-12."""

    async def test() -> None:
        app = Server("several", version="1.0.0")

        @app.tool
        async def remember(word: str, ctx: Context) -> str:
            before = ctx.state.get("word", "nothing")
            ctx.state["word"] = word
            return str(before)

        tcp, unix = Tcp(port=0), Unix(path=str(tmp_path / "s"))
        targets = [f"unix:{tmp_path / 's'}"]
        async with serving(app, tcp, unix):
            targets.append(f"tcp://127.0.0.1:{tcp.address[1]}")
            clients = [Client(target, mode="handshake") for target in targets]
            for client in clients:
                await client.connect()
            for word in ("first", "second"):
                said = [(await client.call_tool("remember", {"word": word})).data for client in clients]
                assert said == (["nothing", "nothing"] if word == "first" else ["first", "first"])
            for client in clients:
                await client.close()

    run(test())


@pytest.mark.parametrize("server_framing", ["content-length", "auto"])
def test_fram_09_messages_can_have_content_length_headers_by_option(run: Run, server_framing: str) -> None:
    """FRAM-09: with `auto` the server answers in the way it is asked."""

    async def test() -> None:
        listener = Tcp(port=0, framing=server_framing)
        async with serving(make_app(), listener):
            address = f"tcp://127.0.0.1:{listener.address[1]}"
            async with Client(TcpTransport(address, framing="content-length")) as client:
                assert (await client.call_tool("echo", {"text": "é\n" * 50_000})).data == "é\n" * 50_000
            if server_framing == "auto":
                async with Client(address) as client:
                    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    run(test())


def test_tcpt_06_the_connection_over_the_limit_reads_why_and_is_closed(run: Run) -> None:
    """TCPT-06, LIMT-03, TCPT-17: those inside are untouched, and one that leaves makes room."""

    async def test() -> None:
        listener = Tcp(port=0, max_connections=2)
        async with serving(make_app(), listener):
            inside = [await (await Peer.reach(listener)).open() for _ in range(2)]
            late = await Peer.reach(listener)
            late.send(INITIALIZE)
            address = f"tcp://127.0.0.1:{listener.address[1]}"
            assert await late.read() == {
                "jsonrpc": "2.0",
                "id": None,
                "error": {
                    "code": -32000,
                    "message": f"Too many connections: {address} takes 2 connections at once",
                    "data": {"retryAfter": 1},
                },
            }
            assert await late.reader.read() == b""
            await late.close()
            with pytest.raises(Exception, match="Too many connections") as caught:
                await Client(address).connect()
            assert isinstance(caught.value, LinkLost | CarrierError)
            for peer in inside:
                assert (await peer.ask(PING))["result"] == {}
            await inside[0].close()
            await until(lambda: listener.occupancy.current == 1)
            async with Client(address) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
            assert listener.occupancy.refused >= 2
            await inside[1].close()

    run(test())


def test_a_refusal_has_the_framing_of_the_listener(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0, max_connections=1, framing="content-length")
        async with serving(make_app(), listener):
            first = await Peer.reach(listener)
            await until(lambda: listener.occupancy.current == 1)
            late = await Peer.reach(listener)
            head, _, body = (await late.reader.read()).partition(b"\r\n\r\n")
            assert head == b"Content-Length: %d" % len(body)
            assert json.loads(body)["error"]["code"] == -32000
            await late.close()
            await first.close()

    run(test())


def test_tcpt_02_a_burst_of_a_thousand_connections_is_served(run: Run) -> None:
    """TCPT-02."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            peers = await asyncio.gather(*(Peer.reach(listener) for _ in range(1000)))
            await asyncio.gather(*(peer.open() for peer in peers))
            assert listener.occupancy.current == 1000
            await asyncio.gather(*(peer.close() for peer in peers))

    with many_files(2200):
        run(test())


def test_a_peer_that_half_closes_gets_every_answer(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            peer = await (await Peer.reach(listener)).open()
            peer.send(*(call(number, "wait", seconds=0.05) for number in range(2, 12)))
            peer.writer.write_eof()
            answers = [json.loads(text) for text in (await peer.reader.read()).splitlines()]
            assert sorted(answer["id"] for answer in answers) == list(range(2, 12))
            await peer.close()
            await until(lambda: listener.occupancy.current == 0)

    run(test())


def test_size_07_an_oversize_message_is_answered_and_the_connection_ends(run: Run) -> None:
    """SIZE-07, SIZE-02."""

    async def test() -> None:
        app, closing = make_app(), Tcp(port=0, max_message_size=1024)
        skipping = Tcp(port=0, max_message_size=1024, on_oversize="skip")
        async with serving(app, closing, skipping):
            for listener in (closing, skipping):
                peer = await (await Peer.reach(listener)).open()
                peer.send(call(5, "echo", text="x" * 2000))
                assert (await peer.read())["error"]["code"] == -32012
                if listener is skipping:
                    assert (await peer.ask(PING))["result"] == {}
                else:
                    assert await peer.reader.read() == b""
                await peer.close()

    run(test())


# -- TLS


def test_tcpt_25_tools_are_called_over_tls(run: Run, tmp_path: Path) -> None:
    """TCPT-25."""
    certificate, key = write_certificate(tmp_path)

    async def test() -> None:
        listener = Tcp(port=0, certificate=certificate, private_key=key)
        async with serving(make_app(), listener):
            address = f"tls://localhost:{listener.address[1]}"
            async with Client(TcpTransport(address, ca=certificate)) as client:
                assert (await client.call_tool("echo", {"text": "x" * 1_000_000})).data == "x" * 1_000_000
            by_name = TcpTransport(f"tls://127.0.0.1:{listener.address[1]}", ca=certificate, server_name="localhost")
            async with Client(by_name) as client:
                await client.ping()
            with pytest.raises(ConnectFailed, match=r"its certificate is not trusted .* ca="):
                await Client(address).connect()
            async with Client(TcpTransport(address, verify=False)) as client:
                await client.ping()

    run(test())


def test_client_certificates_are_asked_for_and_tell_who_calls(run: Run, tmp_path: Path) -> None:
    """TCPT-25: a peer without one, or with one of another authority, gets no link."""
    ours, theirs = Authority(tmp_path), Authority(tmp_path, "stranger")
    certificate, key = ours.sign("localhost")
    app = Server("certified", version="1.0.0")

    @app.tool
    async def whoami(ctx: Context) -> str:
        return str(ctx.principal)

    async def test() -> None:
        listener = Tcp(port=0, certificate=certificate, private_key=key, client_ca=ours.file)
        async with serving(app, listener):
            address = f"tls://localhost:{listener.address[1]}"
            async with Client(TcpTransport(address, ca=ours.file, cert=ours.sign("alice"))) as client:
                assert (await client.call_tool("whoami", {})).data == "alice"
            for cert in (None, theirs.sign("mallory")):
                with pytest.raises((LinkLost, CarrierError)):
                    await Client(TcpTransport(address, ca=ours.file, cert=cert)).connect()
            await until(lambda: listener.occupancy.current == 0)
            assert len(app.host.links) == 0

    run(test())


def test_a_peer_without_tls_costs_no_link_and_no_word_in_the_log(
    run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificate, key = write_certificate(tmp_path)

    async def test() -> None:
        listener = Tcp(port=0, certificate=certificate, private_key=key, handshake_timeout=1.0, max_connections=3)
        app = make_app()
        async with serving(app, listener):
            for said in (line(PING), b""):
                peer = await Peer.reach(listener)
                peer.writer.write(said)
                assert b"jsonrpc" not in await asyncio.wait_for(peer.reader.read(), 60)
                await peer.close()
                await until(lambda: listener.occupancy.current == 0)
            assert len(app.host.links) == 0
            # In the middle of the handshake a peer holds a place already.
            silent = [await Peer.reach(listener) for _ in range(3)]
            await until(lambda: listener.occupancy.current == 3)
            late = await Peer.reach(listener)
            assert await asyncio.wait_for(late.reader.read(), 60) == b""
            for peer in (*silent, late):
                await peer.close()
            await until(lambda: listener.occupancy.current == 0)

    with caplog.at_level(logging.WARNING):
        run(test())
    assert [text for text in caplog.messages if "connections and takes" not in text] == []


def test_stopping_does_not_wait_for_handshakes(run: Run, tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)

    async def test() -> None:
        listener = Tcp(port=0, certificate=certificate, private_key=key, handshake_timeout=60)
        async with serving(make_app(), listener):
            peers = [await Peer.reach(listener) for _ in range(5)]
            await until(lambda: listener.occupancy.current == 5)
        for peer in peers:
            await peer.close()

    run(test())


def test_authorities_that_are_no_good_are_named(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    rubbish = tmp_path / "rubbish.pem"
    rubbish.write_text("rubbish")
    for file in (rubbish, tmp_path / "missing.pem"):
        with pytest.raises(SetupError, match=r"cannot use the authorities of '.*\.pem'"):
            Tcp(certificate=certificate, private_key=key, client_ca=str(file))


# -- start and end


def test_a_port_in_use_is_told_and_nothing_is_left(run: Run) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            listener = Tcp(port=taken.getsockname()[1])
            with pytest.raises(CarrierError, match="the port is in use"):
                await make_app().serve(listener)
            with pytest.raises(SetupError, match="does not listen yet"):
                _ = listener.address
            with pytest.raises(SetupError, match="does not listen yet"):
                _ = listener.url

    run(test())


def test_a_listener_serves_once_at_a_time_and_can_serve_again(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0)
        for _ in range(2):
            app = make_app()
            async with serving(app, listener):
                with pytest.raises(SetupError, match="serves already"):
                    await listener.serve(app.host, lambda: None)
                assert listener.url == f"tcp://127.0.0.1:{listener.address[1]}"
                async with Client(listener.url) as client:
                    await client.ping()

    run(test())


def test_running_calls_are_answered_before_the_end(run: Run) -> None:
    async def test() -> None:
        listener, app = Tcp(port=0), make_app()
        async with serving(app, listener):
            peer = await (await Peer.reach(listener)).open()
            peer.send(call(7, "wait", seconds=0.2))
            await until(lambda: at_work(app))
        assert (await peer.read())["result"]["structuredContent"] == {"result": "waited"}
        assert await peer.reader.read() == b""
        await peer.close()

    run(test())


def test_closing_is_harmless_before_during_and_after(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0)
        await listener.close(0.1)
        async with serving(make_app(), listener):
            pass
        await asyncio.gather(listener.close(0.1), listener.close(0.1))

    run(test())


def test_a_peer_that_does_not_take_its_last_answers_does_not_hold_up_the_end(run: Run) -> None:
    async def test() -> None:
        app = make_app()

        @app.tool
        async def much() -> str:
            return "x" * 4_000_000

        listener = Tcp(port=0)
        await app.enter()
        ready = asyncio.Event()
        serve = asyncio.ensure_future(listener.serve(app.host, ready.set))
        await ready.wait()
        with socket.create_connection(listener.address) as deaf:
            deaf.sendall(line(INITIALIZE, call(1, "much")))
            await until(lambda: any(s.bytes_out > 4_000_000 for s in listener._reception.served))
            began = asyncio.get_running_loop().time()
            await listener.close(0.3)
            assert asyncio.get_running_loop().time() - began < 30
        await serve
        await app.leave()
        assert listener.occupancy.current == 0

    run(test())


def test_limt_04_a_limit_the_system_cannot_hold_is_told_at_start(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """LIMT-04, TCPT-21."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)

    async def test() -> None:
        async with serving(make_app(), Tcp(port=0, max_connections=soft)):
            pass

    with caplog.at_level(logging.WARNING, "ferrule.transports"):
        run(test())
    (said,) = caplog.messages
    assert said.startswith(f"max_connections is {soft} and this process may have {soft} files open: raise the limit")


@pytest.mark.parametrize("name", ["tcp", "unix"])
def test_run_knows_the_transport_by_name(run: Run, name: str, tmp_path: Path) -> None:
    options: dict[str, Any] = {"port": 0} if name == "tcp" else {"path": str(tmp_path / "s")}

    async def test() -> None:
        app = make_app()
        running = asyncio.ensure_future(app.run_async(name, **options))
        await until(lambda: name in app.listeners and app.listeners[name]._accepting)
        await app.stop()
        await running

    run(test())


def test_a_certificate_context_asks_for_no_old_tls(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path)
    assert Tcp(certificate=certificate, private_key=key)._context.minimum_version == ssl.TLSVersion.TLSv1_2


def test_a_listener_that_serves_by_itself_begins_and_ends_what_its_server_needs(run: Run, tmp_path: Path) -> None:
    """As every other listener does: the lifespan is there for the first call and over when the listener has closed."""

    async def test() -> None:
        for listener in (Tcp(port=0), Unix(tmp_path / "s")):
            told: list[str] = []

            @asynccontextmanager
            async def lifespan(app: Server, told: list[str] = told) -> AsyncIterator[str]:
                told.append("begun")
                yield "the database"
                told.append("ended")

            app = Server("s", lifespan=lifespan)

            @app.tool
            async def state(ctx: Context) -> str:
                return str(ctx.lifespan)

            ready = asyncio.Event()
            serve = asyncio.ensure_future(listener.serve(app.host, ready.set))
            await ready.wait()
            async with Client(listener.url) as client:
                assert (await client.call_tool("state")).text == "the database"
            await listener.close(1.0)
            assert told == ["begun", "ended"]
            await serve

    run(test())
