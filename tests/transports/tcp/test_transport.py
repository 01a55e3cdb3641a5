"""Reaching a server over a socket: errors in words, and connecting again."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import time
from pathlib import Path

import pytest
from certificates import write_certificate
from tcp_desk import Notes, Run, at_work, make_app, serving, until

from ferrule import Client
from ferrule.client.targets import transport_for
from ferrule.errors import CarrierError, ConnectFailed, FerruleError, InvalidAnswer, LinkLost, SetupError
from ferrule.transports.tcp.listener import Tcp
from ferrule.transports.tcp.settings import TcpOptions
from ferrule.transports.tcp.transport import TcpTransport
from ferrule.wire.messages import Notification


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("tcp://127.0.0.1:{port}", "cannot reach tcp://127.0.0.1:{port}: the connection was refused; does the server"),
        ("tcp://no-such-host.invalid:5000", "there is no such host; is its name spelled right"),
        ("unix:/nowhere/mcp.sock", "cannot reach unix:/nowhere/mcp.sock: there is no such socket"),
    ],
)
def test_a_server_that_is_not_there_is_told_in_one_sentence(run: Run, address: str, said: str) -> None:
    port = closed_port()

    async def test() -> None:
        with pytest.raises(ConnectFailed, match=said.format(port=port)):
            await TcpTransport(address.format(port=port)).connect(Notes())

    run(test())


def test_a_server_that_never_answers_the_knock_is_given_up_in_time(run: Run) -> None:
    """TCPT-04, TCPT-19: the backlog is full, so that nobody answers."""

    async def test() -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            crowd = []
            for _ in range(8):
                each = socket.socket()
                each.setblocking(False)
                each.connect_ex(deaf.getsockname())
                crowd.append(each)
            began = time.monotonic()
            with pytest.raises(ConnectFailed, match=r"no connection within 0.2 s; is the address right"):
                await TcpTransport(f"tcp://127.0.0.1:{deaf.getsockname()[1]}", connect_timeout=0.2).connect(Notes())
            assert 0.15 < time.monotonic() - began < 30
            for each in crowd:
                each.close()

    run(test())


def test_a_server_that_does_not_speak_tls_is_told(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            address = f"tls://localhost:{listener.address[1]}"
            with pytest.raises(ConnectFailed, match=f"cannot reach {address}: "):
                await TcpTransport(address, connect_timeout=60).connect(Notes())

    run(test())


def test_tcpt_23_closing_is_harmless_at_any_time(run: Run) -> None:
    """TCPT-23."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            await transport.close()
            await transport.connect(Notes())
            await transport.close()
            await transport.close()
            assert not transport.connected

    run(test())


def test_tcpt_10_a_transport_connects_when_told_and_again_after_a_close_or_a_loss(run: Run) -> None:
    """TCPT-10."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            notes = Notes()
            await transport.connect(notes)
            with pytest.raises(SetupError, match=r"connected to tcp://.* already"):
                await transport.connect(notes)
            await transport.close()
            await transport.connect(notes)
            await until(lambda: listener.occupancy.current == 1)
            for served in list(listener._reception.served):
                served.abort()
            await until(lambda: len(notes.losses) == 2)
            await transport.connect(notes)
            assert len(notes.opened) == 3
            await transport.close()

    run(test())


def test_a_server_that_closes_is_a_loss_with_its_reason(run: Run) -> None:
    """TCPT-24: FIN."""

    async def test() -> None:
        listener, app = Tcp(port=0), make_app()
        async with serving(app, listener):
            client = Client(f"tcp://127.0.0.1:{listener.address[1]}")
            await client.connect()
            waiting = asyncio.ensure_future(client.call_tool("wait", {"seconds": 60}))
            await until(lambda: at_work(app))
            for served in list(listener._reception.served):
                served.close()
            with pytest.raises(LinkLost, match="the server closed the connection"):
                await waiting
            await client.close()

    run(test())


def test_a_channel_that_we_close_is_no_error(run: Run) -> None:
    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            notes = Notes()
            transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            await transport.connect(notes)
            await transport.close()
            assert notes.losses == [None]

    run(test())


def test_closing_does_not_wait_for_ever_for_a_server_that_reads_nothing(run: Run) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            transport = TcpTransport(f"tcp://127.0.0.1:{deaf.getsockname()[1]}")
            channel = await transport.connect(Notes())
            for _ in range(10):
                channel.send(Notification("much", {"x": "x" * 1_000_000}))
            began = time.monotonic()
            await transport.close(0.1)
            assert time.monotonic() - began < 30

    run(test())


def test_clnt_01_addresses_are_targets_of_a_client(tmp_path: Path) -> None:
    for target in ("tcp://localhost:5000", "TLS://localhost:5000", "unix:/run/mcp.sock"):
        found = transport_for(target)
        assert isinstance(found, TcpTransport)
        assert str(found.address).lower() == target.lower()
        assert isinstance(transport_for({"mcpServers": {"a": {"url": target}}}), TcpTransport)
    with pytest.raises(SetupError, match="has no port"):
        transport_for("tcp://localhost")


def test_a_line_that_only_looks_like_a_refusal_is_no_error_of_ours(run: Run) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as odd:
            notes = Notes()
            connecting = asyncio.ensure_future(TcpTransport(f"tcp://127.0.0.1:{odd.getsockname()[1]}").connect(notes))
            accepted, _ = await asyncio.to_thread(odd.accept)
            accepted.sendall(b'{"jsonrpc":"2.0","id":null,"error":7}\n')
            accepted.close()
            await connecting
            await until(lambda: notes.losses)
            assert isinstance(notes.losses[0], CarrierError)
            assert "closed the connection" in str(notes.losses[0])

    run(test())


def test_a_client_is_given_the_options_of_its_socket(run: Run, tmp_path: Path) -> None:
    """TCPT-04, TCPT-25: how messages are framed, the buffers, and TLS as the program set it up."""
    certificate, key = write_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=certificate)

    async def test() -> None:
        listener = Tcp(port=0, certificate=certificate, private_key=key, framing="content-length")
        async with serving(make_app(), listener):
            target = f"tls://localhost:{listener.address[1]}"
            options = {"framing": "content-length", "context": trusting, "keepalive": False, "connect_timeout": 20.0}
            async with Client(target, tcp=options) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
            with pytest.raises(ConnectFailed, match="its certificate is not trusted"):
                await Client(target, tcp={"framing": "content-length"}).connect()

    run(test())


@pytest.mark.parametrize("other", [{"ca": "ca.pem"}, {"cert": "me.pem"}, {"verify": False}])
def test_two_ways_to_say_whom_to_trust_are_refused(other: dict[str, object]) -> None:
    with pytest.raises(SetupError, match="a context of your own says whom to trust already"):
        TcpOptions(context=ssl.create_default_context(), **other)  # type: ignore[arg-type]


def test_an_answer_over_our_limit_ends_the_link_with_that_reason_however_little_the_server_reads(run: Run) -> None:
    """SIZE-07: whoever waits is told at once, and that it was our limit; what was asked beside it is not waited for."""

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            notes = Notes()
            transport = TcpTransport(f"tcp://127.0.0.1:{deaf.getsockname()[1]}", max_message_size=1_000_000)
            channel = await transport.connect(notes)
            accepted, _ = deaf.accept()
            for _ in range(3):
                channel.send(Notification("much", {"x": "x" * 900_000}))
            await until(lambda: channel.congested)
            accepted.setblocking(False)
            await asyncio.get_running_loop().sock_sendall(accepted, b"x" * 1_000_001)
            await until(lambda: notes.losses)
            assert str(notes.losses[0]) == (
                "the server sent a message over our limit of 1000000 bytes; raise max_message_size"
            )
            assert notes.frames == [b"refused"]
            accepted.close()

    run(test())


def test_a_server_of_http_is_told_from_one_of_tcp(run: Run) -> None:
    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as web:
            notes = Notes()
            await TcpTransport(f"tcp://127.0.0.1:{web.getsockname()[1]}").connect(notes)
            accepted, _ = web.accept()
            accepted.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            await until(lambda: notes.losses)
            assert "the server speaks HTTP at this port" in str(notes.losses[0])
            assert notes.frames == []
            accepted.close()

    run(test())


@pytest.mark.parametrize("framing", ["line", "content-length"])
@pytest.mark.parametrize("served", ["same", "auto"])
def test_limt_03_a_client_that_is_turned_away_reads_why_however_it_frames(run: Run, framing: str, served: str) -> None:
    """LIMT-03, TCPT-06."""

    async def test() -> None:
        listener = Tcp(port=0, max_connections=1, framing=framing if served == "same" else "auto")
        options = {"framing": framing}
        async with serving(make_app(), listener), Client(listener.url, tcp=options) as client:
            with pytest.raises(FerruleError, match="the server refused the connection: Too many connections: tcp://"):
                await Client(listener.url, tcp=options).connect()
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    run(test())


def test_a_socket_that_takes_no_options_is_not_left_open(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer that has gone at once: some systems refuse to set anything on its socket."""

    def refused(*_: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            with monkeypatch.context() as patch:
                patch.setattr("ferrule.transports.tcp.transport.prepare", refused)
                notes = Notes()
                with pytest.raises(ConnectFailed, match="Invalid argument"):
                    await TcpTransport(listener.url).connect(notes)
            await until(lambda: notes.losses)
            await until(lambda: listener.occupancy.current == 0)

    run(test())


def test_an_answer_over_our_limit_fails_its_own_call_where_it_says_whose_it_is(run: Run) -> None:
    """SIZE-07: what else runs on the link is not lost with it, as over a pipe."""

    async def test() -> None:
        app, go = make_app(), asyncio.Event()

        @app.tool
        async def later() -> str:
            await go.wait()
            return "here"

        @app.tool
        async def much() -> str:
            return "x" * 5000

        listener, options = Tcp(port=0), {"max_message_size": 4096}
        async with serving(app, listener), Client(listener.url, tcp=options, reconnect=False) as client:
            waiting = asyncio.ensure_future(client.call_tool("later"))
            with pytest.raises(InvalidAnswer, match="4096"):
                await client.call_tool("much")
            go.set()
            assert (await waiting).text == "here"

    run(test())
