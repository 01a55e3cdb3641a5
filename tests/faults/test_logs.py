"""Logs under stress: messages of a megabyte at level DEBUG, a disk that is full, and a file that is rotated."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

import pytest
from http_mcp import MIB, Client, Process, serving
from pace import LONG

from ferrule.supervision.logs import MAX_TEXT, MAX_TRACEBACK, keep_short, unwritable_logs_told

PATIENCE = 120.0
HUGE = "x" * MIB
START = "<record> "


def run(work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
    asyncio.run(asyncio.wait_for(work(*args), PATIENCE))


async def storm(client: Client) -> None:
    """Make a server log what somebody else wrote: names, ids, tokens, arguments and errors of a megabyte."""
    notes: tuple[dict[str, Any], ...] = (
        {"method": "x" * 512},
        {"method": HUGE},
        {"method": "notifications/cancelled", "params": {"requestId": HUGE}},
        {"method": "notifications/progress", "params": {"progressToken": "x" * 4096, "progress": 1}},
        {"method": "notifications/progress", "params": {"progressToken": HUGE, "progress": 1}},
        {"id": HUGE, "result": {}},
        {"id": "odd", "error": {"code": 1, "message": HUGE}},
    )
    for note in notes:
        assert (await client.send("POST", json.dumps({"jsonrpc": "2.0", **note}).encode())).status in (202, 400)
    assert "error" in (await client.ask(HUGE)).messages[-1]
    assert "error" in (await client.call(HUGE)).messages[-1]
    assert len((await client.call("echo", text=HUGE)).text) == MIB
    assert (await client.call("fail", size=MIB)).messages[-1]["result"]["isError"]


def test_ovl_10_megabytes_are_cut_short_in_a_debug_log_and_never_hold_the_loop(tmp_path: Path) -> None:
    """Of each record 2 KiB are logged, more of a traceback; none takes 10 ms of the loop's own time to write."""
    path = tmp_path / "log"
    log = {"level": "DEBUG", "filename": str(path), "format": f"{START}%(name)s %(message)s"}

    async def shout(server: Process) -> None:
        async with Client(server.port) as client:
            slow = [0]
            for _ in range(3):
                await storm(client)
                slow.append((await client.stats()).get("slow records", 0))
        # A busy machine may spoil a storm or two; what is slow by itself is slow in each.
        assert any(before == after for before, after in itertools.pairwise(slow)), slow

    with serving({"access_log": True}, log, payloads=True) as server:
        run(shout, server)
    records = path.read_text().split(START)[1:]
    assert len(records) > 3 * 15
    for what in ("ignored: a response to an unknown", "no handler for the notification", "progress for", "tools/call"):
        assert sum(what in record for record in records) >= 3, what
    assert sum(f"{MIB}" in record or "characters)" in record for record in records) >= 3 * 3, "something was to be cut"
    for record in records:
        most = MAX_TRACEBACK if "Traceback" in record else 0
        assert len(record) < MAX_TEXT + most + 200, record[:300]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_dsk_03_a_full_disk_under_the_log_stops_nobody_and_floods_nothing() -> None:
    """Each request would be a line of the log; stderr gets one line about all of them."""

    async def ask(server: Process) -> None:
        for era in ("handshake", "stateless"):
            async with Client(server.port, era) as client:
                for number in range(100):
                    assert (await client.call("echo", text=str(number))).text == str(number)
                assert (await client.call("fail", size=10)).messages[-1]["result"]["isError"]
                assert (await client.stats())["records"] > 100, "something was to be logged"
        server.signal(signal.SIGTERM)
        assert await server.ended(60) == 0

    with serving({"access_log": True}, {"level": "DEBUG", "filename": "/dev/full"}, payloads=True) as server:
        run(ask, server)
    lines = server.log.splitlines()
    assert sum("a log cannot be written" in line for line in lines) == 1, server.log
    assert "No space left on device" in server.log
    assert len(lines) <= 4, server.log


LINES = 1_000_000 if LONG else 20_000


def test_a_log_that_is_rotated_loses_no_line(tmp_path: Path) -> None:
    """SOK-06: a million lines with FERRULE_LONG; the file is renamed under the handler, as logrotate does."""
    path = tmp_path / "log"
    descriptors = len(os.listdir("/proc/self/fd"))
    handler = WatchedFileHandler(path)
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger = logging.getLogger("ferrule.calls")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        keep_short()
        with unwritable_logs_told(handler):
            for number in range(LINES):
                if number % (LINES // 10) == LINES // 20:
                    path.rename(tmp_path / f"log.{number:07}")
                logger.info("line %d", number)
    finally:
        logger.removeHandler(handler)
        handler.close()
        logger.setLevel(level)
        logger.propagate = True
    files = [*sorted(tmp_path.glob("log.*")), path]
    assert len(files) == 11
    lines = [line for each in files for line in each.read_text().splitlines()]
    assert lines == [f"line {number}" for number in range(LINES)]
    assert len(os.listdir("/proc/self/fd")) == descriptors
