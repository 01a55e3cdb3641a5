"""Our client over WebSocket: both eras, TLS, refusals, and connecting again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from certificates import write_certificate
from raw_websocket import new_server, serving, url

from ferrule import Client, Context, Server
from ferrule.errors import CarrierError, ConnectFailed, HttpFailed, LinkLost, SetupError
from ferrule.routing.redial import Redialing, WayNotice
from ferrule.supervision.backoff import Backoff
from ferrule.transports.http.listener import Http
from ferrule.transports.websocket.client import WebSocketTransport, read_url
from ferrule.transports.websocket.listener import WebSocket
from ferrule.wire.channel import Origin


async def test_our_client_speaks_websocket_in_both_eras(era: Any) -> None:
    """WEBS-21, WEBS-05."""
    async with serving() as listener, Client(url(listener), mode=era) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(200)))
        assert [result.data for result in results] == list(range(1, 201))
        assert len((await client.call_tool("echo", {"text": "é" * 300_000})).text) == 300_000


async def test_a_handler_asks_and_tells_over_websocket_in_both_eras(era: Any) -> None:
    """WEBS-21: questions and progress go the other way."""
    server = Server("asking")

    @server.tool
    async def order(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        answer = await ctx.elicit("Which colour?", str)
        return f"{answer.data}"

    told: list[float] = []
    async with (
        serving(server) as listener,
        Client(url(listener), mode=era, elicitation=lambda *given: {"value": "red"}) as client,
    ):
        result = await client.call_tool("order", on_progress=lambda done, *rest: told.append(done))
        assert result.text == "red"
        assert told[:1] == [1]


async def test_compression_is_used_where_both_want_it(era: Any) -> None:
    """WEBS-16."""
    for ours, theirs in ((True, True), (True, False), (False, True)):
        async with serving(compression=theirs) as listener:
            transport = WebSocketTransport(url(listener), compression=ours)
            async with Client(transport, mode=era) as client:
                before = transport._channel.bytes_in  # type: ignore[union-attr]
                assert len((await client.call_tool("echo", {"text": "x" * 100_000})).text) == 100_000
                received = transport._channel.bytes_in - before  # type: ignore[union-attr]
                assert (received < 5000) is (ours and theirs)


async def test_wss_works_with_a_certificate_that_is_trusted_and_with_no_other(tmp_path: Path, era: Any) -> None:
    """WEBS-20."""
    certificate, key = write_certificate(tmp_path)
    async with serving(certificate=certificate, private_key=key, host="localhost") as listener:
        address = f"wss://localhost:{listener.address[1]}/mcp/ws"
        async with Client(WebSocketTransport(address, ca=certificate), mode=era) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        with pytest.raises(ConnectFailed, match="not trusted"):
            await WebSocketTransport(address).connect(new_server().link(Origin("x")))


async def test_beside_http_both_clients_reach_the_same_server(era: Any) -> None:
    """WEBS-01."""
    async with serving(kind=Http, websocket=True) as listener:
        for target in (url(listener), f"http://127.0.0.1:{listener.address[1]}/mcp"):
            async with Client(target, mode=era) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


# -- refusals


@pytest.mark.parametrize(
    ("wrong", "words"),
    [("http://x", "ws://"), ("ws:///x", "name a host"), ("ws://h/x#y", "fragment"), ("ws", "ws://")],
)
def test_a_url_that_cannot_be_is_refused(wrong: str, words: str) -> None:
    with pytest.raises(SetupError, match=words):
        read_url(wrong)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(SetupError, match="colour"):
        WebSocketTransport("ws://h/", colour="red")


def receiver() -> Any:
    return new_server().link(Origin("test"))


async def test_a_server_that_refuses_is_quoted() -> None:
    async with serving() as listener:
        with pytest.raises(HttpFailed, match=r"ws://127.0.0.1:\d+/wrong: the server refuses .* 404") as failure:
            await WebSocketTransport(url(listener, "/wrong")).connect(receiver())
        assert failure.value.status == 404


async def test_nobody_there_is_said_in_one_sentence() -> None:
    async with serving() as listener:
        address = url(listener)
    with pytest.raises(ConnectFailed, match="refused; does the server run"):
        await WebSocketTransport(address).connect(receiver())


@contextlib.asynccontextmanager
async def saying(answer: bytes, *, hang_up: bool = True) -> AsyncIterator[str]:
    """A server that says one thing."""
    writers: list[asyncio.StreamWriter] = []

    async def say(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        if hang_up:
            writer.close()

    server = await asyncio.start_server(say, "127.0.0.1", 0)
    try:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        for writer in writers:
            writer.transport.abort()
        server.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "without an answer"),
        (b"HTTP/1.1 101 Sw", "without an answer"),
        (b"HTTP/1.1 200 OK\r\n\r\n", "refuses the WebSocket with 200 OK"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", "404 Not Found; is the path right"),
        (b"HTTP/1.1 200 OK\r\nx: " + b"x" * 20_000, "too long"),
        (b'{"jsonrpc":"2.0"', "the answer is not HTTP; is there a WebSocket at this URL"),
        (b"\n", "the answer is not HTTP"),
    ],
)
async def test_an_answer_that_is_no_websocket_is_an_error_in_words(answer: bytes, words: str) -> None:
    async with saying(answer) as address:
        transport = WebSocketTransport(address)
        with pytest.raises(CarrierError, match=words):
            await transport.connect(receiver())
        assert not transport.connected
        await transport.close()


async def test_a_server_that_never_answers_is_given_five_seconds(virtual_time: None) -> None:
    async with saying(b"", hang_up=False) as address:
        began = asyncio.get_running_loop().time()
        with pytest.raises(ConnectFailed, match="no WebSocket within 5 s"):
            await WebSocketTransport(address).connect(receiver())
        assert asyncio.get_running_loop().time() - began == pytest.approx(5, abs=0.5)


# -- again


async def test_a_transport_can_be_connected_again_after_a_close_and_after_a_loss(era: Any) -> None:
    """WEBS-22."""
    async with serving() as listener:
        transport = WebSocketTransport(url(listener))
        for end in ("close", "loss", "close"):
            async with Client(transport, mode=era) as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
                with pytest.raises(CarrierError, match=r"connected to .* already"):
                    await transport.connect(receiver())
                if end == "loss":
                    for channel in list(listener._endpoint.channels):
                        channel.abort()
            assert not transport.connected
            assert transport._sweeping is None
        await transport.close()


async def test_a_call_in_flight_learns_of_the_loss_and_why(era: Any) -> None:
    server, started = Server("s"), asyncio.Event()

    @server.tool
    async def hang() -> None:
        started.set()
        await asyncio.sleep(60)

    async with serving(server) as listener, Client(url(listener), mode=era) as client:
        call = asyncio.ensure_future(client.call_tool("hang"))
        await started.wait()
        for channel in list(listener._endpoint.channels):
            channel._transport.abort()
        with pytest.raises(LinkLost):
            await call


async def test_a_way_is_opened_again_with_the_common_backoff(virtual_time: None) -> None:
    """WEBS-22."""
    notices: list[WayNotice] = []
    async with serving() as listener:
        port = listener.address[1]
        way = Redialing(
            WebSocketTransport(url(listener)),
            receiver,
            tell=notices.append,
            backoff=Backoff(1.0, 1.5, 60.0, jitter=0.0),
        )
        await way.connect()
    while len(notices) < 5:
        await asyncio.sleep(1)
    assert [notice.what for notice in notices[:5]] == ["connected", "lost", *["connect_failed"] * 3]
    assert [notice.retry_in for notice in notices[1:5]] == [1.0, 1.5, 2.25, 3.375]
    async with serving(kind=lambda **options: WebSocket(**{**options, "port": port})):
        await way.connect()
        assert way.state == "connected"
        await way.close()


async def test_the_headers_and_options_of_a_client_reach_the_opening(era: Any) -> None:
    """WEBS-21: an authorization goes along, and what is given for WebSocket alone."""
    seen: list[bytes] = []

    async def peek(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    async with await asyncio.start_server(peek, "127.0.0.1", 0) as server:
        target = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp/ws"
        options: Any = {"headers": {"Authorization": "Bearer x"}, "websocket": {"headers": {"X-Own": "1"}}}
        with pytest.raises(ConnectFailed, match="without an answer"):
            await Client(target, mode=era, **options).connect()
    assert b"\r\nauthorization: Bearer x\r\n" in seen[0]
    assert b"\r\nx-own: 1\r\n" in seen[0]
