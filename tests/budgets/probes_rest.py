"""Probes of small bounds of servers: of what is counted, of receipts that wait, of how a connection is used."""

from __future__ import annotations

import asyncio
import tempfile
from types import SimpleNamespace
from typing import Any
from unittest import mock

from probes_tokens import HERE, token, verifier
from table import period, probe

from ferrule import Client, Server
from ferrule.auth.jose import BadToken
from ferrule.server.discovery import tool_search
from ferrule.server.middleware.caller_key import target
from ferrule.telemetry.receipt_writer import ReceiptSettings, ReceiptWriter
from ferrule.telemetry.receipts import Receipt
from ferrule.transports.backpressure import backlog
from ferrule.transports.http.asgi import answer as asgi
from ferrule.transports.http.asgi.answer import AsgiAnswer, QuietCalls
from ferrule.transports.http.engine.connection import Connection
from ferrule.transports.http.engine.http2.frames import FRAME_HEAD, HEADER_TABLE_SIZE, SETTINGS, Frame, usable_settings
from ferrule.transports.http.old_sse.session import SseSessionStream


@probe("ferrule.server.middleware.caller_key.LONGEST_TARGET", clamps=True)
async def what_a_call_is_counted_by(limit: int, size: int) -> bool:
    call: Any = SimpleNamespace(params=SimpleNamespace(uri="x" * size))
    return target(call) == "x" * size


@probe("ferrule.server.discovery.tool_search.MOST_RESULTS", lowered=3, clamps=True)
async def found_tools(limit: int, size: int) -> bool:
    """A caller may ask for more."""
    with mock.patch.object(tool_search, "MOST_RESULTS", limit):
        app = Server("s")
        for number in range(min(size, 3 * limit)):
            app.add_tool(lambda: "text", name=f"paint_{number}")
        app.tool_search(max_results=1)
        async with Client(app, mode="handshake", validate_results=False) as client:
            found = (await client.call_tool("search_tools", {"query": "paint", "limit": size})).data
    return len(found["tools"]) == size


@period("TokenSettings(leeway=…)", lowered=60.0)
async def a_token_that_is_over(lasts: float, seconds: float) -> bool:
    try:
        verifier().check(token(exp=1000), 1000.0 + seconds, HERE)
    except BadToken:
        return False
    return True


# -- receipts that nobody has written yet


def all_wait(settings: ReceiptSettings, sizes: list[int]) -> bool:
    """Return whether receipts with arguments of these sizes all wait while the disk is slow."""
    with tempfile.TemporaryDirectory() as folder:
        writer = ReceiptWriter(folder, settings=settings)
        writer._thread = mock.Mock()
        return all(writer.record(Receipt(), b"x" * size) for size in sizes)


@probe("Receipts(queue=…)", lowered=5)
async def waiting_receipts(limit: int, size: int) -> bool:
    return all_wait(ReceiptSettings(queue=limit), [0] * size)


@probe("Receipts(queue_bytes=…)", lowered=10_000)
async def bytes_of_receipts(limit: int, size: int) -> bool:
    """The last byte is of a receipt of its own: a large one alone is taken."""
    return all_wait(ReceiptSettings(queue_bytes=limit), [size - 1, 1])


# -- HTTP


@probe("ferrule.transports.http.engine.connection.MOST_TRANSFERS")
async def transfers(limit: int, size: int) -> bool:
    """The last of so many: is the connection let go once more?"""
    connection: Any = SimpleNamespace(_transfers=size - 1, _given_away=lambda request: "given")
    head: Any = mock.MagicMock()
    with mock.patch("ferrule.transports.http.engine.connection.written_again", return_value=b""):
        return Connection.give_away(connection, head, b"") == "given"


@probe("ferrule.transports.http.engine.http2.frames.TABLE_SIZE", clamps=True)
async def the_table_of_a_peer(limit: int, size: int) -> bool:
    raw = HEADER_TABLE_SIZE.to_bytes(2, "big") + size.to_bytes(4, "big")
    frame = Frame(SETTINGS, 0, 0, b"\0\0\6\4\0\0\0\0\0" + raw)
    return usable_settings(frame).raw[FRAME_HEAD:] == raw


@probe("ferrule.transports.http.old_sse.session.LONGEST_NUMBER")
async def the_number_of_an_event(limit: int, size: int) -> bool:
    stream: Any = SimpleNamespace(name="s")
    return SseSessionStream.position(stream, "s-" + "1" * size) is not None


@probe("ferrule.transports.http.asgi.answer.HIGH_WATER", lowered=1000, clamps=True)
async def an_answer_that_is_not_taken(limit: int, size: int) -> bool:
    """Does whoever writes a stream go on at once?"""
    with mock.patch.object(asgi, "HIGH_WATER", limit):
        answer = AsgiAnswer("GET", mock.Mock(), mock.Mock(), QuietCalls(asyncio.get_running_loop()))
        answer.write(b"x" * size)
        writing = asyncio.ensure_future(answer.wait_writable())
        await asyncio.sleep(0)
        goes_on = writing.done()
        answer.cut()
        await writing
        if answer.holder is not None:
            backlog.drained(answer.holder)
    return goes_on
