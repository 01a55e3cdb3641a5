"""What one input costs, and what it may cost.

Rule 1: the cost of an input is the CPU time of the whole process from its first byte until it is answered, less what
the smallest message with the same end costs on the same wire. It may be 20 µs for each message in it and 20 ns for each
byte. What costs more and cannot be made cheaper stands in `DEARER`, with its reason.
Rule 2: the machine is measured with a fixed workload, and the allowance grows with it. A suspect is measured again,
twenty times at most with longer and longer pauses, and the least counts: noise never fails a test.
Rule 3: memory is measured only where the input is let go: what is still there after its call has ended, for each of
several inputs that differ in content.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec

CPU_PER_MESSAGE = 20e-6
CPU_PER_BYTE = 20e-9
STRICT = os.environ.get("FERRULE_LONG") == "1"
"""Whether the allowance is held closely, as `make fuzz` does on a machine that has nothing else to do."""
ROOM = 1.5 if STRICT else 5.0
"""How much more than the allowance is granted, for what the fixed workload does not show of a machine.

In `make test` four processes share two cores and their caches: only what grows out of proportion is found there."""


COLD = 50e-6
"""Seconds for each input, however short: on a busy machine the code that takes it is not in the processor's caches."""


class Dearer(NamedTuple):
    """Something that costs more than its bytes may."""

    seconds: float
    """Of CPU for each, beside its bytes."""
    why: str


DEARER = {
    "containers": Dearer(
        120e-9,
        "an empty list of two bytes is an object of the interpreter: made and let go, decoding alone takes 110 ns",
    ),
    "units": Dearer(
        2e-6, "a frame of a WebSocket, a chunk, a header or a line that is no message: where it ends is found in Python"
    ),
    "reads": Dearer(4e-6, "a read of a socket, in which the end of what was begun is looked for"),
    "digits": Dearer(
        80e-9, "a whole number of up to 4,300 digits is read and written in quadratic time; longer ones are refused"
    ),
    "explained": Dearer(300e-6, "arguments that do not fit: the validator makes up to `MAX_ERRORS` errors"),
    "fractions": Dearer(400e-9, "where a whole number is wanted, each 2.0 of up to `MAX_REPAIRED_SIZE` is made a 2"),
}
"""The exceptions: no more than these are made, and each is bounded in the source."""
REFERENCE = 0.0018
"""Seconds of CPU the fixed workload takes on the machine the allowance was written for."""

LONGEST_TURN = 0.1 if STRICT else 0.3
"""Seconds of CPU in one turn of the loop."""

KEPT_PER_BYTE = 4
KEPT_BESIDE = 4 * 1024
"""What an input may leave behind whatever its size: a line in a table, say."""

ANSWER_PER_BYTE = 2
ANSWER_BESIDE = 8 * 1024
"""What a request may be answered with whatever its size: this server's lists are shorter."""

MAX_LOG_TEXT = 2048 + 64
"""Characters of a log record: those of `ferrule.supervision.logs`, and how many were left out."""
MAX_LOG_RECORDS = 4
"""Log records of one input, beside one for each message."""

ATTEMPTS = 20
PAUSE = 0.005
"""Seconds before the second attempt; each is one longer than the one before, for what disturbs may last a while."""
HOPELESS = 2.0
"""Seconds of CPU that no noise explains: an input that took so long is not tried again."""
REPETITIONS = 4

DOCUMENT = msgspec.json.encode(
    {"tools": [{"name": f"tool-{n}", "inputSchema": {"type": "object", "required": ["a", "b"]}} for n in range(40)]}
)


def workload() -> float:
    """Run the fixed workload once. Return the seconds of CPU it took."""
    decode, encode = msgspec.json.decode, msgspec.json.encode
    before = time.process_time()
    for _ in range(60):
        tree = decode(DOCUMENT)
        for tool in tree["tools"]:
            tool["size"] = len(tool["name"]) + sum(len(word) for word in tool["inputSchema"]["required"])
        encode(tree)
    return time.process_time() - before


class Machine:
    """How slow this machine is, as a factor of at least 1."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.measure(7)

    def measure(self, times: int = 3) -> None:
        """Look again; a machine that has become slower gets more."""
        least = min(workload() for _ in range(times))
        self.factor = max(self.factor, least / REFERENCE)


class Records(logging.Handler):
    """Keeps what is logged, to be looked at after the measurement."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.kept: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record."""
        self.kept.append(record)

    def take(self) -> list[logging.LogRecord]:
        """Return what was kept, and keep it no longer."""
        kept, self.kept = self.kept, []
        return kept


class MeasuringLoop(asyncio.SelectorEventLoop):
    """An event loop that knows the CPU time of its longest turn, and what reached its exception handler."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 0.0
        self.failures: list[str] = []
        self.set_exception_handler(self._failed)

    def _run_once(self) -> None:
        before = time.thread_time()
        super()._run_once()  # type: ignore[misc]
        self.longest = max(self.longest, time.thread_time() - before)

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.failures.append(f"{context.get('message')}: {context.get('exception')!r}")

    @property
    def idle(self) -> bool:
        """Whether nothing is due now but the caller."""
        return not self._ready  # type: ignore[attr-defined]


class Cost(NamedTuple):
    """What an input cost."""

    size: int
    """Bytes of the input, as they went over the wire."""
    messages: int
    cpu: float
    turn: float
    answered: int
    """Bytes of the answers."""
    answers: int
    """How many answers."""
    requests: int
    """How many of the messages ask for an answer."""
    dearer: Mapping[str, int] = {}
    """How many things it holds that cost more than their bytes may, by their names in `DEARER`."""

    def allowed(self, base: float, factor: float) -> float:
        """Return how many seconds of CPU it may cost, on a wire where the smallest such message costs `base`."""
        seconds = COLD + CPU_PER_MESSAGE * self.messages + CPU_PER_BYTE * self.size
        for name, count in self.dearer.items():
            seconds += DEARER[name].seconds * count
        return ROOM * (base + factor * seconds)


class Finding(NamedTuple):
    """An input that costs too much, or breaks another rule."""

    wire: str
    case: str
    what: str

    def __str__(self) -> str:
        return f"{self.wire}: {self.case}: {self.what}"


Run = Callable[[int], Awaitable[Cost]]
"""Brings the same input again; the number makes its content differ from that of other times."""
NewBase = Callable[[], Awaitable[float]]
"""Measures once more what the smallest such message costs: other work on the machine may have begun since."""


class Judge:
    """Measures inputs and collects findings."""

    def __init__(self, loop: MeasuringLoop) -> None:
        self.loop = loop
        self.machine = Machine()
        self.records = Records()
        self.findings: list[Finding] = []
        self.tried = 0
        self.dearest: list[tuple[float, str]] = []
        """The inputs that came nearest to their allowance, with the share of it they took."""
        self._number = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Hear what is logged, and collect garbage only between inputs."""
        logger = logging.getLogger("ferrule")
        level, propagate = logger.level, logger.propagate
        logger.addHandler(self.records)
        logger.setLevel(logging.INFO)
        logger.propagate = False
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()
            gc.unfreeze()
            logger.removeHandler(self.records)
            logger.setLevel(level)
            logger.propagate = propagate

    def next_number(self) -> int:
        """Return a number that no input has had yet."""
        self._number += 1
        return self._number

    def found(self, wire: str, case: str, what: str) -> None:
        """Note a finding."""
        self.findings.append(Finding(wire, case, what))

    async def costs(self, run: Run) -> Cost:
        """Run an input once."""
        self.loop.longest = 0.0
        return await run(self.next_number())

    async def judge(self, wire: str, case: str, base: float, run: Run, new_base: NewBase | None = None) -> Cost:
        """Run an input, and again where it seems to cost too much; note what it breaks. Return its least cost."""
        self.tried += 1
        self.records.take()
        cost = await self.costs(run)
        self._look_at_logs(wire, case, cost)
        cheapest = cost
        for attempt in range(ATTEMPTS):
            if not self._dear(cheapest, base) or cheapest.cpu > HOPELESS:
                break
            await asyncio.sleep(PAUSE * attempt)
            gc.collect()
            self.machine.measure()
            await self.costs(run)  # once more to be in the processor's caches again
            again = await self.costs(run)
            cheapest = cheapest._replace(cpu=min(cheapest.cpu, again.cpu), turn=min(cheapest.turn, again.turn))
        if new_base is not None and self._dear(cheapest, base):
            base = max(base, await new_base())
        self.records.take()
        self._look_at_cpu(wire, case, cheapest, base)
        self._look_at_answers(wire, case, cost)
        if self.tried % 200 == 0:
            gc.collect()
        return cheapest

    def _dear(self, cost: Cost, base: float) -> bool:
        factor = self.machine.factor
        return cost.cpu > cost.allowed(base, factor) or cost.turn > LONGEST_TURN * factor

    def _look_at_cpu(self, wire: str, case: str, cost: Cost, base: float) -> None:
        factor = self.machine.factor
        allowed = cost.allowed(base, factor)
        self.dearest.append((cost.cpu / allowed, f"{wire}: {case} ({cost.size} bytes)"))
        if len(self.dearest) > 1000:
            self.dearest = sorted(self.dearest, reverse=True)[:20]
        if cost.cpu > allowed:
            self.found(
                wire,
                case,
                f"{cost.size} bytes, {cost.messages} messages cost {cost.cpu * 1e3:.2f} ms of CPU, "
                f"{allowed * 1e3:.2f} ms are allowed (machine factor {factor:.2f})",
            )
        if cost.turn > LONGEST_TURN * factor:
            self.found(wire, case, f"{cost.size} bytes hold the loop for {cost.turn * 1e3:.0f} ms of CPU in one turn")

    def _look_at_answers(self, wire: str, case: str, cost: Cost) -> None:
        most = ANSWER_PER_BYTE * cost.size + ANSWER_BESIDE * max(1, cost.requests)
        if cost.answered > most:
            self.found(wire, case, f"{cost.size} bytes are answered with {cost.answered} bytes, {most} are allowed")
        if cost.answers > cost.requests + 1:
            self.found(wire, case, f"{cost.requests} requests are answered {cost.answers} times")

    def _look_at_logs(self, wire: str, case: str, cost: Cost) -> None:
        for failure in self.loop.failures:
            self.found(wire, case, f"reached the loop's exception handler: {failure[:300]}")
        self.loop.failures.clear()
        records = self.records.take()
        if len(records) > cost.messages + MAX_LOG_RECORDS:
            self.found(wire, case, f"{cost.messages} messages made {len(records)} log records")
        for record in records[:100]:
            what = wrong_with(record)
            if what:
                self.found(wire, case, what)
                break

    async def judge_kept(self, wire: str, case: str, beside: int, run: Run) -> float:
        """Run an input several times, each with another content; note when they leave too much behind.

        Return the bytes that each left behind.
        """
        tracemalloc.start(1)
        try:
            size, kept = await self._kept(run)
            if kept > KEPT_PER_BYTE * size + KEPT_BESIDE + beside:
                _, again = await self._kept(run)
                kept = min(kept, again)
        finally:
            tracemalloc.stop()
        most = KEPT_PER_BYTE * size + KEPT_BESIDE + beside
        if kept > most:
            self.found(wire, case, f"{size} bytes leave {kept:.0f} bytes behind each time, {most} are allowed")
        self.records.take()
        self.loop.failures.clear()
        return kept

    async def _kept(self, run: Run) -> tuple[int, float]:
        await run(self.next_number())
        self.records.take()
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        size = 0
        for _ in range(REPETITIONS):
            cost = await run(self.next_number())
            size = max(size, cost.size)
            self.records.take()
        await asyncio.sleep(0)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        return size, (after - before) / REPETITIONS

    def report(self) -> str:
        """Return the findings, the like of them told once with how many there are."""
        lines = [str(each) for each in self.findings[:60]]
        if len(self.findings) > len(lines):
            lines.append(f"… and {len(self.findings) - len(lines)} more")
        return "\n".join(lines)


def wrong_with(record: logging.LogRecord) -> str:
    """Return what is wrong with a log record; empty for a good one."""
    text = record.getMessage()
    if len(text) > MAX_LOG_TEXT:
        return f"a log record of {len(text)} characters: {text[:80]!r}"
    if any(not (each.isprintable() or each == "\t") for each in text):
        return f"a log record with control characters: {text[:120]!r}"
    if record.exc_info and record.exc_info[1] is not None:
        return f"a failure of ours is logged: {text[:120]!r}: {record.exc_info[1]!r:.300}"
    return ""


def run_measured(work: Callable[[Judge], Awaitable[None]]) -> Judge:
    """Run work in a loop that measures, and return the judge it was given."""
    loop = MeasuringLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        judge = Judge(loop)

        async def judged() -> None:
            with judge.listening():
                await work(judge)

        runner.run(judged())
    return judge
