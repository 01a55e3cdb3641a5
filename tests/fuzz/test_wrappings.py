"""What carries messages costs what it weighs too: heads, chunks, frames and records, and reads of a few bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from fuzz_wires import (
    HttpTarget,
    StdioTarget,
    Target,
    TcpTarget,
    TlsTarget,
    WebSocketTarget,
    WireLoop,
    new_server,
    ws_frame,
)
from grammar import NEWEST, to_server
from mutate import Case, any_size
from resource_oracle import Judge
from test_resources import LARGEST, LONG, SECONDS, SEED, TWO_ERAS, Trial, agree, judged, slice_of
from wrappings import HttpWrappings, TlsWrappings, WebSocketWrappings, raw, slowly

INPUTS = 150
"""How many inputs each carrier is tried with in a short run."""

NO_REQUESTS = (b"x\r\n\r\n", b"GET / HTTP/1.1\r\n\r\n")
LAST_FRAMES = (ws_frame(b"\x03\xe8", masked=True, first=0x88), ws_frame(b"", masked=True, first=0xC1))
NO_RECORDS = (b"\x17\x03\x03\x00\x01x",)
"""The smallest bytes that end a connection of HTTP, of a WebSocket and of TLS."""

Cases = Iterator[Case]


def again_and_again(make: Callable[[int, random.Random], Cases], chance: random.Random) -> Cases:
    """Yield cases of many sizes without an end, one in three of them slowly."""
    while True:
        cases = list(make(any_size(LARGEST, chance), chance))
        chance.shuffle(cases)
        for case in cases:
            yield slowly(case, chance) if chance.random() < 0.3 else case


def messages(target: Target, chance: random.Random) -> Cases:
    """Yield spoilt messages, slowly."""
    for _, case in slice_of(to_server(stateless=target.modern), chance):
        yield slowly(case, chance)


def sealed(target: TlsTarget, chance: random.Random) -> Cases:
    """Yield spoilt messages in records of several sizes, and what is no record."""
    others = again_and_again(TlsWrappings(target).cases, chance)
    for _, case in slice_of(to_server(stateless=target.modern), chance):
        target.record = chance.choice((1, 50, 16 * 1024))
        # Each record is read, opened and handed over.
        yield case._replace(units=4 * (len(case.frame) // target.record))
        if chance.random() < 0.2:
            yield next(others)


async def least_of(trial: Trial, refused: Iterable[bytes]) -> float:
    """Return what the smallest inputs cost: a ping, also on a new connection, and bytes that end a connection."""
    target = trial.target
    inputs = [raw("refused", data) for data in refused]
    if isinstance(target, HttpTarget):
        ping = target.ping_case()
        inputs.append(raw("ping", target.encode(ping, ping.frame)))
    return max([trial.bases["ping"], *[await trial.least(each, 10) for each in inputs]])


async def try_cases(
    judge: Judge, target: Target, make: Callable[[random.Random], Cases], refused: Iterable[bytes] = ()
) -> None:
    """Bring cases to a server; every tenth is also looked at for what it leaves behind."""
    trial = Trial(judge, target)
    await trial.start()
    base = await least_of(trial, refused)
    began = time.monotonic()
    try:
        for number, case in enumerate(make(random.Random(f"{target.name} {SEED}"))):
            if time.monotonic() - began > SECONDS if LONG else number >= INPUTS:
                break
            bearable = await trial.bring(case, base)
            if bearable and number % 10 == 0:
                await trial.keeps(case)
    finally:
        await target.stop()


@pytest.mark.parametrize("version", TWO_ERAS)
def test_heads_and_bodies_of_http_cost_what_they_weigh(version: str) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        target = HttpTarget(loop, new_server(), version)
        await try_cases(judge, target, lambda chance: again_and_again(HttpWrappings(target).cases, chance), NO_REQUESTS)

    agree(judged(work))


@pytest.mark.parametrize("compression", [False, True], ids=["plain", "compressed"])
def test_frames_of_a_websocket_cost_what_they_weigh(compression: bool) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        target = WebSocketTarget(loop, new_server(), NEWEST, compression=compression)
        await try_cases(
            judge, target, lambda chance: again_and_again(WebSocketWrappings(target).cases, chance), LAST_FRAMES
        )

    agree(judged(work))


@pytest.mark.parametrize("version", TWO_ERAS)
def test_records_of_tls_cost_what_they_weigh(version: str, tmp_path: Path) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        target = TlsTarget(loop, new_server(), version, tmp_path)
        await try_cases(judge, target, lambda chance: sealed(target, chance), NO_RECORDS)

    agree(judged(work))


SLOW: dict[str, Callable[[WireLoop], Target]] = {
    "lines": lambda loop: TcpTarget(loop, new_server(), NEWEST),
    "blocks": lambda loop: TcpTarget(loop, new_server(), NEWEST, "content-length"),
    "stdio": lambda loop: StdioTarget(loop, new_server(), NEWEST),
    "http": lambda loop: HttpTarget(loop, new_server(), NEWEST),
    "websocket": lambda loop: WebSocketTarget(loop, new_server(), NEWEST),
}


@pytest.mark.parametrize("wire", SLOW)
def test_a_message_that_comes_in_many_reads_costs_little_more(wire: str) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        target = SLOW[wire](loop)
        await try_cases(judge, target, lambda chance: messages(target, chance))

    agree(judged(work))
