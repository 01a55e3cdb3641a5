"""What each transport promises, as a table whose every cell has its proof."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import our_carriers as ours
import pytest

from ferrule import CallFailed, Client, OutcomeUnknown
from ferrule.errors import LinkLost
from ferrule.testing.carrier_kit import RULES, Carrier, FarSide, NotApplicable, Stand, prove
from ferrule.testing.carrier_kit.far_side import TOLD
from ferrule.testing.carrier_kit.near_side import returned
from ferrule.testing.carrier_kit.rule import scene
from ferrule.transports.websocket.settings import WebSocketSettings
from ferrule.wire.codec import MAX_MESSAGE_SIZE

PATIENCE = 120.0
Proof = Callable[[Carrier], Awaitable[None]]


class Cell(NamedTuple):
    """What holds, and how that is shown."""

    words: str
    proof: Proof


def by(*names: str) -> Proof:
    """Prove by rules of the kit, of which at least one applies."""

    async def proof(carrier: Carrier) -> None:
        applied = 0
        for rule in (rule for rule in RULES if rule.name in names):
            try:
                await prove(rule, carrier)
                applied += 1
            except NotApplicable:
                continue
        assert applied

    return proof


# -- proofs of what is not kept


async def overtaken(carrier: Carrier) -> None:
    """A short message is answered while a long one that was sent before it is still on its way."""
    async with scene(carrier) as met:
        long = met.near.start("size", text="x" * (MAX_MESSAGE_SIZE - 4096))
        assert await met.near.call("echo", value=1) == {"value": 1}
        assert not long.done()
        assert returned(await long) == {"size": MAX_MESSAGE_SIZE - 4096}
    await by("order back")(carrier)


async def asked_again(carrier: Carrier) -> None:
    """After a cut, what does no harm is asked again; a tool that may do harm is not."""
    await by("once")(carrier)
    async with scene(carrier) as met:
        assert met.stand.hold is not None
        assert met.stand.release is not None
        await met.near.call("echo", value=0)
        met.stand.hold()
        harmless, harmful = met.near.ask("tools/list", {}), met.near.start("echo", value=1)
        await asyncio.sleep(0.05)
        met.cut()
        with pytest.raises(OutcomeUnknown):
            await asyncio.wait_for(harmful, PATIENCE)
        met.stand.release()
        assert (await asyncio.wait_for(harmless, PATIENCE))["result"]["tools"]


async def never_told(carrier: Carrier) -> None:
    """Nobody hears what belongs to no request."""
    async with scene(carrier) as met:
        await met.near.call("push", count=3)
        await met.near.call("echo", value=1)
        assert all("method" not in message for message in met.near.messages)


async def received_at_once(carrier: Carrier) -> None:
    """What is sent is received before sending ends, so nothing ever waits."""
    async with scene(carrier) as met:
        before = met.far.links[0].received
        for number in range(100):
            met.near.say(number)
            assert met.far.links[0].received == before + number + 1


# -- proofs of what becomes of a message when the wire is cut


@asynccontextmanager
async def talking(carrier: Carrier) -> AsyncIterator[tuple[Client, Stand, FarSide]]:
    """Let a real client meet the far side."""
    far = FarSide()
    async with (
        carrier.stand(far, MAX_MESSAGE_SIZE) as stand,
        Client(stand.transport(MAX_MESSAGE_SIZE), mode=carrier.era) as client,
    ):
        yield client, stand, far


async def cut(carrier: Carrier, stand: Stand, client: Client) -> None:
    """Cut the wire, and wait until the client knows it where its link ends with it."""
    assert stand.cut is not None
    stand.cut()
    for _ in range(6000):
        if "one wire" in carrier.lacks or client.connection_state == "disconnected":
            break
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


async def unsent_is_refused(carrier: Carrier) -> None:
    async with talking(carrier) as (client, stand, far):
        await client.call_tool("echo", {"value": 1})
        await cut(carrier, stand, client)
        with pytest.raises(CallFailed):
            await client.call_tool("echo", {"value": 2})
        if stand.visible:
            assert await far.tools.heard() == {"calls": 1}


async def unsent_finds_its_way(carrier: Carrier) -> None:
    async with talking(carrier) as (client, stand, far):
        await client.call_tool("echo", {"value": 1})
        await cut(carrier, stand, client)
        assert (await client.call_tool("echo", {"value": 2})).structured_content == {"value": 2}
        assert await far.tools.heard() == {"calls": 2}


def in_flight(*errors: type[Exception]) -> Proof:
    """A call that runs when the wire is cut ends with one of these errors, and ran once."""

    async def proof(carrier: Carrier) -> None:
        async with talking(carrier) as (client, stand, far):
            call = asyncio.ensure_future(client.call_tool("hold"))
            if stand.visible:
                await far.until_begun(1)
            else:
                await client.call_tool("echo", {"value": 1})
            await cut(carrier, stand, client)
            with pytest.raises(errors):
                await asyncio.wait_for(call, PATIENCE)
            assert far.tools.begun == (1 if stand.visible else 0)

    return proof


async def far_side_leaves(carrier: Carrier) -> None:
    """Where there is no wire to cut, the other end can still go away in the middle of a call."""
    async with talking(carrier) as (client, _, _):
        with pytest.raises(LinkLost):
            await client.call_tool("leave")


async def left_is_left(carrier: Carrier) -> None:
    """After the other end went away nothing is sent."""
    async with talking(carrier) as (client, _, far):
        with pytest.raises(LinkLost):
            await client.call_tool("leave")
        with pytest.raises(CallFailed):
            await client.call_tool("echo", {"value": 2})
        assert await far.tools.heard() == {"calls": 0}


async def answered_is_answered(carrier: Carrier) -> None:
    """A cut right after the answer changes nothing: it is there, and the tool ran once."""
    async with talking(carrier) as (client, stand, far):
        answer = await client.call_tool("echo", {"value": 1})
        if stand.cut is not None:
            await cut(carrier, stand, client)
        assert answer.structured_content == {"value": 1}
        if stand.visible:
            assert await far.tools.heard() == {"calls": 1}


async def resumed(carrier: Carrier) -> None:
    """A stream that is cut in the middle goes on where it was, and its answer comes."""
    count, text = 500, "x" * 1000
    async with scene(carrier) as met:
        call = met.near.start("tell", count=count, text=text)
        await met.near.until(lambda: bool(met.near.told(TOLD)))
        met.cut()
        assert returned(await asyncio.wait_for(call, PATIENCE)) == {"count": count}
        assert [told["number"] for told in met.near.told(TOLD)] == list(range(count))


async def not_resumed(carrier: Carrier) -> None:
    """A stream that is cut in the middle is over, and its call has failed."""
    async with scene(carrier) as met:
        call = met.near.start("tell", count=2000, text="x" * 10_000)
        await asyncio.wait_for(met.near.until(lambda: bool(met.near.told(TOLD))), PATIENCE)
        met.cut()
        with pytest.raises(CallFailed):
            await asyncio.wait_for(call, PATIENCE)


# -- proofs of how a link is kept alive


async def system_asks(carrier: Carrier) -> None:
    """The system watches over the sockets of both sides."""
    async with scene(carrier) as met:
        for channel in (met.near.way, met.far.links[0].channel):
            plug = channel._transport.get_extra_info("socket")
            assert plug.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert plug.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 30


async def pings(carrier: Carrier) -> None:
    """A channel that is looked after pings once its interval is over, and the other side answers."""
    interval = WebSocketSettings().ping_interval
    assert interval == 30
    async with scene(carrier) as met:
        channel: Any = met.far.links[0].channel
        came = channel.bytes_in
        channel.sweep(asyncio.get_running_loop().time() + interval)
        for _ in range(6000):
            if channel.bytes_in > came:
                break
            await asyncio.sleep(0.01)
        assert channel.bytes_in > came
        assert not channel.lost


async def comments(carrier: ours.OverHttp) -> None:
    """A stream that is silent carries comments."""

    class Talkative(type(carrier)):  # type: ignore[misc]
        def listener(self, max_message_size: int) -> Any:
            return super().listener(max_message_size, stream_keepalive=0.05)

    async with scene(Talkative()) as met:
        assert met.stand.wire is not None
        path = "/sse" if carrier.name == "sse" else "/mcp"
        session = "" if carrier.name == "sse" else f"mcp-session-id: {met.near.way.heading.session}\r\n"
        reader, writer = await met.stand.wire()
        writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\n{session}accept: text/event-stream\r\n\r\n".encode())
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
        assert head.startswith(b"HTTP/1.1 200"), head
        await asyncio.wait_for(reader.readuntil(b":\n\n"), PATIENCE)
        writer.close()
        await writer.wait_closed()


ROWS: dict[str, Carrier] = {
    "memory": ours.InMemory(),
    "stdio": ours.StdioChild(),
    "TCP": ours.OverTcp(),
    "TLS": ours.OverTls(),
    "Unix socket": ours.OverUnix(),
    "WebSocket": ours.OverWebSocket(),
    "HTTP with sessions": ours.OverHttp(),
    "stateless HTTP": ours.OverHttpStateless(),
    "HTTP+SSE": ours.OverSse(),
}

LINE = Cell("a line", by("lines"))
KEPT = Cell("kept, both ways", by("order out", "order back"))
NEVER = Cell("nothing arrives twice", by("once"))
PUSHES = Cell("the server can speak at any time", by("push"))
REFUSED = Cell("the call fails at once, nothing was sent", unsent_is_refused)
NEW_WAY = Cell("a new connection is opened; nobody notices", unsent_finds_its_way)
LOST = Cell("the call fails with `LinkLost` and is not sent again", in_flight(LinkLost))
UNKNOWN = Cell("a tool call fails with `OutcomeUnknown` and is not sent again", in_flight(OutcomeUnknown))
EITHER = Cell(
    "as with a socket, or `OutcomeUnknown` where its arrival was not acknowledged", in_flight(LinkLost, OutcomeUnknown)
)
SAFE = Cell("kept: whoever has the answer has it", answered_is_answered)
OVER = Cell("no: what was under way has failed", not_resumed)
HELD = Cell("a sender waits while its peer does not read", by("back pressure out"))
AT_ONCE = Cell("the system tells of an end at once", by("loss"))
SYSTEM = Cell("the system asks a silent peer after 30 s, and cuts a dead one within a minute", system_asks)
COMMENTS = Cell("a comment on every silent stream, each 15 s", comments)
TWICE = Cell("nothing arrives twice, but what does no harm may be asked again after a cut", asked_again)
OWN_PACE = Cell("kept within the stream of one call; one message may overtake another", overtaken)
ONE_REQUEST = Cell("the body of a request, an event of a stream", by("values"))

SOCKETS = ("TCP", "TLS", "Unix socket", "WebSocket")
HTTP = ("HTTP with sessions", "stateless HTTP", "HTTP+SSE")


def column(*given: tuple[tuple[str, ...] | str, Cell]) -> dict[str, Cell]:
    """Say what holds for which rows."""
    cells = {row: cell for rows, cell in given for row in ((rows,) if isinstance(rows, str) else rows)}
    assert set(cells) == set(ROWS)
    return {row: cells[row] for row in ROWS}


TABLE: dict[str, dict[str, Cell]] = {
    "What arrives whole or not at all": column(
        ("memory", Cell("a message", by("values"))),
        (("stdio", "TCP", "TLS", "Unix socket"), LINE),
        ("WebSocket", Cell("a text message", by("values"))),
        (HTTP, ONE_REQUEST),
    ),
    "Order": column((("memory", "stdio", *SOCKETS), KEPT), (HTTP, OWN_PACE)),
    "Duplicates": column(
        (("memory", "stdio", *SOCKETS, "HTTP+SSE"), NEVER), (("HTTP with sessions", "stateless HTTP"), TWICE)
    ),
    "Speaking unasked": column(
        (("memory", "stdio", *SOCKETS, "HTTP with sessions", "HTTP+SSE"), PUSHES),
        ("stateless HTTP", Cell("only on the stream of a request", never_told)),
    ),
    "Cut before a call was sent": column(
        ("memory", Cell("no wire; after the other end closed, a call fails at once", left_is_left)),
        (("stdio", *SOCKETS, "HTTP+SSE"), REFUSED),
        (("HTTP with sessions", "stateless HTTP"), NEW_WAY),
    ),
    "Cut while a call runs": column(
        ("memory", Cell("no wire; when the other end closes, the call fails with `LinkLost`", far_side_leaves)),
        (("stdio", *SOCKETS), LOST),
        ("HTTP+SSE", EITHER),
        (("HTTP with sessions", "stateless HTTP"), UNKNOWN),
    ),
    "Cut after the answer": column((tuple(ROWS), SAFE)),
    "Resuming a stream that was cut": column(
        ("memory", Cell("nothing can be cut", far_side_leaves)),
        (("stdio", *SOCKETS, "stateless HTTP"), OVER),
        ("HTTP+SSE", Cell("our client does not; the server keeps what was said for those that do", not_resumed)),
        ("HTTP with sessions", Cell("yes: what was said is kept in memory for 5 minutes", resumed)),
    ),
    "Back-pressure": column(
        ("memory", Cell("not needed: what is sent is received at once", received_at_once)),
        (("stdio", *SOCKETS, *HTTP), HELD),
    ),
    "Kept alive": column(
        ("memory", Cell("nothing to watch", by("goodbye"))),
        (("stdio", "Unix socket"), AT_ONCE),
        (("TCP", "TLS"), SYSTEM),
        ("WebSocket", Cell("a ping every 30 s, a close when no pong comes", pings)),
        (("HTTP with sessions", "HTTP+SSE"), COMMENTS),
        ("stateless HTTP", Cell("a connection that was lost is opened again", by("recovery"))),
    ),
}


def rendered() -> str:
    """Write the table as the guide shows it: a part a guarantee, transports of one kind on one line."""
    parts = []
    for guarantee, cells in TABLE.items():
        lines = [f"## {guarantee}", "", "| transport | what holds |", "|---|---|"]
        for words, rows in itertools.groupby(_sorted(cells), key=lambda item: item[1].words):
            lines.append(f"| {', '.join(row for row, _ in rows)} | {words} |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def _sorted(cells: dict[str, Cell]) -> list[tuple[str, Cell]]:
    """Bring rows that say the same together, in the order in which they first say it."""
    first = {cell.words: number for number, cell in reversed(list(enumerate(cells.values())))}
    return sorted(cells.items(), key=lambda item: first[item[1].words])


def all_cells() -> list[Any]:
    """Return every cell, as a case of a test."""
    return [
        pytest.param(guarantee, row, id=f"{guarantee}: {row}") for guarantee, cells in TABLE.items() for row in cells
    ]
