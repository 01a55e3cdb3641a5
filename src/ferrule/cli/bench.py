"""`ferrule bench TARGET [TOOL key=value…]`: how many calls a second a server answers, and how long they take.

Rule 1: a tool is called only if it says that it only reads, or with `--yes`.
Rule 2: a run ends by its seconds or by its calls, whichever comes first; calls that run then are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import time
from array import array
from collections.abc import Awaitable, Callable
from typing import Any

from ferrule.cli.arguments import ArgumentReader
from ferrule.cli.connection import configure_target, seconds, use_server, words_after_target
from ferrule.cli.main import TOOL_FAILED, UNREACHABLE, CommandParser, Ended
from ferrule.cli.offers import server_name, signature, unknown
from ferrule.cli.output import BAR, Output, output_of
from ferrule.client.client import Client
from ferrule.errors import CarrierError, FerruleError, LinkLost, SetupError
from ferrule.schema.tools import Tool

SECONDS = 5.0
IN_FLIGHT = 16
MAX_SECONDS = 3600.0
MAX_IN_FLIGHT = 1000
MAX_CALLS = 1_000_000
"""How many calls a run has at most: the time of each is kept."""
PERCENTILES = (50, 95, 99)
CHART_ROWS = 8

Call = Callable[[], Awaitable[str]]
"""Makes one call; returns what the tool said where it failed."""


class Measurement:
    """How long the calls of a run took, and how many failed."""

    def __init__(self) -> None:
        self.times = array("d")
        """The seconds of each call that was answered."""
        self.errors = 0
        self.first_error = ""
        self.elapsed = 0.0

    @property
    def calls(self) -> int:
        """How many calls have ended."""
        return len(self.times) + self.errors

    @property
    def rate(self) -> float:
        """How many calls were answered in a second."""
        return len(self.times) / self.elapsed if self.elapsed else 0.0

    def failed(self, reason: str) -> None:
        """Count a call that failed."""
        self.errors += 1
        self.first_error = self.first_error or reason

    def percentiles(self) -> dict[int, float]:
        """Return the seconds within which 50, 95 and 99 of a hundred calls were answered."""
        ordered = sorted(self.times)
        found: dict[int, float] = {}
        for share in PERCENTILES:
            if ordered:
                found[share] = ordered[math.ceil(len(ordered) * share / 100) - 1]
        return found


class Run:
    """Makes the same call again and again, some of them at once, until the time is over."""

    def __init__(self, call: Call, duration: float, in_flight: int) -> None:
        self._call = call
        self._duration = duration
        self._in_flight = in_flight
        self.measurement = Measurement()

    async def run(self) -> Measurement:
        """Measure; raises what a lost server raises."""
        started = time.perf_counter()
        until = started + self._duration
        callers = [asyncio.create_task(self._keep_calling(until)) for _ in range(self._in_flight)]
        try:
            done, _ = await asyncio.wait(callers, timeout=self._duration, return_when=asyncio.FIRST_EXCEPTION)
            self.measurement.elapsed = time.perf_counter() - started
        finally:
            for caller in callers:
                caller.cancel()
            await asyncio.gather(*callers, return_exceptions=True)
        for caller in done:
            caller.result()
        return self.measurement

    async def _keep_calling(self, until: float) -> None:
        measurement = self.measurement
        started = time.perf_counter()
        # An answer that is there at once lets no timer run, so each caller looks at the clock.
        while started < until and measurement.calls < MAX_CALLS:
            try:
                failure = await self._call()
            except (CarrierError, LinkLost):
                raise
            except FerruleError as reason:
                failure = str(reason)
            ended = time.perf_counter()
            if failure:
                measurement.failed(failure)
            else:
                measurement.times.append(ended - started)
            started = ended


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule bench`."""
    parser.usage = "ferrule bench TARGET [TOOL key=value …] [options] [-- command of the server]"
    configure_target(parser)
    parser.add_argument(
        "words", nargs="*", metavar="TOOL key=value", help="the tool and its arguments, as for call; a ping without one"
    )
    parser.add_argument(
        "--seconds", type=_duration, default=SECONDS, metavar="S", help=f"how long to call (default: {SECONDS:g})"
    )
    parser.add_argument(
        "--in-flight", type=_count, default=IN_FLIGHT, metavar="N", help=f"calls at once (default: {IN_FLIGHT})"
    )
    parser.add_argument("--era", dest="mode", choices=("handshake", "stateless"), help="the same as --mode")
    parser.add_argument("--yes", action="store_true", help="call a tool that may change something, many times")


def _duration(text: str) -> float:
    value = seconds(text)
    if value > MAX_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is too long: give at most {MAX_SECONDS:g} seconds")
    return value


def _count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text[:9]) <= MAX_IN_FLIGHT:
        raise argparse.ArgumentTypeError(f"{text} is not a number of calls: give 1 to {MAX_IN_FLIGHT}")
    return int(text)


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Measure a server, and write the figures; ends with exit code 3 where calls failed."""
    output = output_of(options)
    words = words_after_target(options, passed_on, options.words)

    async def measure(client: Client) -> Measurement:
        call = await _chosen(client, words, may_change=options.yes)
        # The first call is for caches and imports, and shows whether the call can work at all.
        failure = await call()
        if failure:
            raise Ended(f"the tool failed: {failure}", TOOL_FAILED)
        return await Run(call, options.seconds, options.in_flight).run()

    measurement = use_server(options, passed_on, output, measure)
    if not measurement.calls:
        raise Ended(f"no call ended within {options.seconds:g} s: give more --seconds", UNREACHABLE)
    _write(measurement, words[0] if words else "ping", options.in_flight, output)
    if measurement.errors and output.json:
        output.out.flush()
        raise SystemExit(TOOL_FAILED)
    if measurement.errors:
        raise Ended(f"{measurement.errors} calls failed, the first: {measurement.first_error}", TOOL_FAILED)


async def _chosen(client: Client, words: list[str], *, may_change: bool) -> Call:
    """Return the call that is made; raise SetupError for a tool that is unknown or may change something."""
    if not words:

        async def ping() -> str:
            await client.ping()
            return ""

        return ping
    tool = await _tool(client, words[0])
    if not may_change and not (tool.annotations and tool.annotations.read_only_hint):
        raise SetupError(
            f'the tool "{tool.name}" does not say that it only reads, and it would be called thousands of times: '
            f"choose another, or add --yes"
        )
    try:
        arguments = ArgumentReader(tool.name, tool.input_schema).read(words[1:])
    except SetupError as reason:
        raise SetupError(f"{reason}\n{signature(tool)}") from None

    async def call() -> str:
        result = await client.call_tool(tool.name, arguments, raise_on_error=False)
        if not result.is_error:
            return ""
        return result.text or str(result.data)

    return call


async def _tool(client: Client, name: str) -> Tool:
    tools = {tool.name: tool for tool in await client.list_tools()}
    if name not in tools:
        raise unknown("tool", name, tools, server_name(client))
    return tools[name]


# -- what is written


def _write(measurement: Measurement, name: str, in_flight: int, output: Output) -> None:
    figures: dict[str, Any] = {
        "call": name,
        "in_flight": in_flight,
        "seconds": round(measurement.elapsed, 3),
        "calls": measurement.calls,
        "errors": measurement.errors,
        "calls_per_second": round(measurement.rate, 1),
    }
    for share, taken in measurement.percentiles().items():
        figures[f"p{share}_ms"] = round(taken * 1000, 3)
    if output.json:
        output.document(figures)
        return
    output.rows([(key.replace("_", " "), str(value)) for key, value in figures.items()])
    if output.terminal and measurement.times:
        output.rows([("", ""), *chart(measurement.times)])


def chart(times: array[float]) -> list[tuple[str, str]]:
    """Return how many calls took how long, a row for each doubling of the shortest time."""
    shortest = max(min(times), 1e-9)
    counts = [0] * CHART_ROWS
    for taken in times:
        doublings = int(math.log2(max(taken / shortest, 1.0)))
        counts[min(doublings, CHART_ROWS - 1)] += 1
    while not counts[-1]:
        counts.pop()
    rows: list[tuple[str, str]] = []
    for row, count in enumerate(counts):
        bar = "#" * math.ceil(BAR * count / max(counts))
        rows.append((f"from {shortest * 2**row * 1000:.3g} ms", f"{bar} {count}".strip()))
    return rows
