"""Probes of how long a silent client, a call and a server that stops may take, and of what a log line may hold."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from types import SimpleNamespace
from typing import Any
from unittest import mock

from probes_wire import Ear, introduction, written
from table import period, probe

from ferrule import Server
from ferrule.errors import CarrierError
from ferrule.supervision import logs
from ferrule.supervision.logs import Short, Unwritable
from ferrule.supervision.scope import Scope
from ferrule.transports.process.stdio import Stdio
from ferrule.wire.channel import Origin, Traits


class Socket(Ear):
    """The channel of a peer that is reached over a socket."""

    traits = Traits()


@period("Server(init_timeout=…)", lowered=60.0)
async def a_client_that_says_nothing(lasts: float, seconds: float) -> bool:
    ear = Socket()
    link = Server("s", init_timeout=lasts, keepalive_interval=None).link(Origin("tcp"))
    link.channel_opened(ear)
    await asyncio.sleep(seconds)
    return not ear.closed


async def silent(seconds: float, **options: Any) -> Socket:
    """Return the channel of a client that has said nothing since its handshake for so many seconds."""
    ear = Socket()
    link = Server("s", **options).link(Origin("tcp"))
    link.channel_opened(ear)
    link.frame_received(introduction("2025-11-25"), ear)
    link.frame_received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', ear)
    await asyncio.sleep(seconds)
    return ear


def pings(ear: Ear) -> int:
    return sum(message.get("method") == "ping" for message in ear.heard)


@period("Server(keepalive_interval=…)", lowered=30.0)
async def a_silent_client(lasts: float, seconds: float) -> bool:
    return pings(await silent(seconds, keepalive_interval=lasts, pong_timeout=10.0**9)) == 0


@period("Server(pong_timeout=…)", lowered=10.0)
async def a_client_that_owes_a_pong(lasts: float, seconds: float) -> bool:
    return not (await silent(30.0 + seconds, keepalive_interval=30.0, pong_timeout=lasts)).closed


@probe("Server(max_missed=…)", lowered=3)
async def missed_pings(limit: int, size: int) -> bool:
    # A client that misses so many pings is closed: one that misses one less is not yet.
    options = {"keepalive_interval": 0.002, "pong_timeout": 0.001, "max_missed": limit}
    ear = Socket()
    link = Server("s", **options).link(Origin("tcp"))  # type: ignore[arg-type]
    link.channel_opened(ear)
    link.frame_received(introduction("2025-11-25"), ear)
    link.frame_received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', ear)
    while not ear.closed:
        await asyncio.sleep(0.001)
    assert pings(ear) == limit
    return size <= pings(ear)


@period("Server(shutdown_grace=…)", lowered=5.0)
async def a_call_while_the_server_stops(lasts: float, seconds: float) -> bool:
    app = Server("s", shutdown_grace=lasts)
    return await ended(app, seconds, lambda to_server: asyncio.ensure_future(app.stop()), grace=1.0)


@period("StdioSettings(grace=…)", lowered=5.0)
async def a_call_while_the_client_leaves(lasts: float, seconds: float) -> bool:
    return await ended(Server("s", shutdown_grace=1.0), seconds, os.close, lasts)


async def ended(app: Server, seconds: float, leave: Any, grace: float) -> bool:
    """Return whether a call of so many seconds is answered that begins right before somebody leaves."""
    begun = asyncio.Event()
    answered = False

    @app.tool
    async def work() -> None:
        nonlocal answered
        begun.set()
        await asyncio.sleep(seconds)
        answered = True

    read_fd, to_server = os.pipe()
    from_server, write_fd = os.pipe()
    stdio = Stdio(read_fd=read_fd, write_fd=write_fd, grace=grace)
    serving = asyncio.ensure_future(app.serve(stdio))
    os.write(to_server, introduction("2025-11-25") + b"\n" + written("tools/call", {"name": "work"}) + b"\n")
    await begun.wait()
    leaving = leave(to_server)
    await serving
    if leaving is not None:
        await leaving
    for fd in (read_fd, from_server, write_fd):
        os.close(fd)
    if leaving is not None:
        os.close(to_server)
    return answered


@period("ferrule.transports.process.stdio.HANG_UP_DELAY")
async def a_client_that_stopped_reading(lasts: float, seconds: float) -> bool:
    read_fd, to_server = os.pipe()
    from_server, write_fd = os.pipe()
    stdio = Stdio(read_fd=read_fd, write_fd=write_fd)
    serving = asyncio.ensure_future(stdio.serve(Server("s").host, lambda: None))
    await asyncio.sleep(1)
    os.close(from_server)
    while asyncio.get_running_loop()._ready:  # type: ignore[attr-defined]
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    await asyncio.sleep(seconds)
    stands = not serving.done()
    os.close(to_server)
    try:
        await serving
    except CarrierError:
        stands = False
    for fd in (read_fd, write_fd):
        os.close(fd)
    return stands


class Lines(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


@period("ferrule.supervision.scope.ABANDONED_AFTER")
async def a_call_that_goes_on(lasts: float, seconds: float) -> bool:
    async def stubborn() -> None:
        while True:
            try:
                await asyncio.sleep(seconds)
                return
            except asyncio.CancelledError:
                continue

    lines = Lines()
    logger = logging.getLogger("ferrule.scope")
    logger.addHandler(lines)
    scope = Scope(asyncio.get_running_loop())
    task = scope.spawn(stubborn())
    await asyncio.sleep(0)
    scope.cancel(task, "it")
    await asyncio.wait([task])
    logger.removeHandler(lines)
    return lines.texts == []


def filtered(error: BaseException | None = None, message: str = "m") -> logging.LogRecord:
    """Return a record of ours as handlers see it."""
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("ferrule.link", logging.ERROR, "p", 1, message, (), info)
    Short().filter(record)
    return record


@probe("ferrule.supervision.logs.MAX_TEXT", clamps=True)
async def a_logged_message(limit: int, size: int) -> bool:
    return filtered(message="x" * size).getMessage() == "x" * size


@probe("ferrule.supervision.logs.MAX_LINE", clamps=True)
async def a_line_of_a_traceback(limit: int, size: int) -> bool:
    odd = "\n".join(["\x1b", "x" * (size - len("  | "))])
    return "x" * (size - len("  | ")) in str(filtered(ValueError(odd)).exc_text).split("  | ")


@probe("ferrule.supervision.logs.MAX_TRACEBACK", clamps=True)
async def a_traceback(limit: int, size: int) -> bool:
    def told(lines: int, rest: int) -> str:
        return str(filtered(ValueError("\n".join(["\x1b", *["x" * 95] * lines, "x" * rest]))).exc_text)

    lines = (min(size, 3 * limit) - 100) // 100
    text = told(lines, 1 + min(size, 3 * limit) - len(told(lines, 1)))
    assert len(text) <= limit
    return len(text) == size


@probe("ferrule.supervision.logs.MAX_CHAIN", clamps=True)
async def a_chain_of_exceptions(limit: int, size: int) -> bool:
    error = ValueError("first")
    for number in range(size - 1):
        after = ValueError(str(number))
        after.__cause__ = error
        error = after
    return filtered(error).exc_text is None  # one that is looked at whole is written as usual


@period("ferrule.supervision.logs.TELL_EVERY")
async def a_log_that_cannot_be_written(lasts: float, seconds: float) -> bool:
    told: list[str] = []
    stderr = SimpleNamespace(write=told.append, flush=lambda: None)
    lost = Unwritable(logging.Handler(), asyncio.get_running_loop().time)
    with mock.patch.object(logs, "sys", SimpleNamespace(exc_info=sys.exc_info, stderr=stderr)):
        for pause in (seconds, 0.0):
            try:
                raise OSError("full")
            except OSError:
                lost(logging.makeLogRecord({}))
            await asyncio.sleep(pause)
    return len(told) == 1
