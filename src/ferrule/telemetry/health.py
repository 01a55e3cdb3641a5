"""HealthMonitor: runs checks at their intervals and says whether this process is alive, ready and healthy.

Rule 1: a check that fails once or twice in a row is degraded (`warn`); after `failures` in a row it is unhealthy
(`fail`). One success makes it healthy (`pass`) again. A check that fails is repeated after `recovery` seconds, not
`interval`.
Rule 2: a check that raises, takes longer than `timeout` or never ends is a check that fails. It holds up no other.
Rule 3: the process is unhealthy when a required check is, degraded when any other check is not healthy.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.telemetry.process import memory_limit, most_descriptors, open_descriptors, resident_memory

logger = logging.getLogger("ferrule.telemetry")

Status = Literal["pass", "warn", "fail"]
WORDS = {"pass": "healthy", "warn": "degraded", "fail": "unhealthy"}

SYSTEM_INTERVAL = 15.0
"""Seconds between two looks at memory, descriptors and the event loop."""
WARN_SHARE = 0.85
FAIL_SHARE = 0.95
"""Which shares of memory, or of descriptors, are too much."""
WARN_LAG = 1.0
FAIL_LAG = 5.0
"""How many seconds late the event loop may be."""
STOP_TIME = 1.0
"""Seconds in which checks that are under way may end when the monitor does."""
LAG_INTERVAL = 0.5
LAG_WINDOW = 10.0
"""How often the lag of the loop is measured, and for how many seconds the longest counts."""


class CheckResult(Struct, frozen=True):
    """What a check found."""

    status: Status = "pass"
    observed: str = ""
    """The value it looked at, such as `1/2`."""
    output: str = ""
    """Why it is not well."""


Check = Callable[[], "CheckResult | bool | Awaitable[CheckResult | bool | None] | None"]
"""Looks whether something is well: returns nothing or True where it is, False or a result where not, or raises."""

Condition = Callable[[], Sequence[str]]
"""Returns why a process is not ready, in a few words each; nothing where it is."""

PASSED = CheckResult()


class CheckRecord:
    """The state of one check. Pure: time is an argument."""

    def __init__(
        self, name: str, *, interval: float, timeout: float, failures: int, recovery: float, required: bool
    ) -> None:
        for option, value in (("interval", interval), ("timeout", timeout), ("recovery", recovery)):
            if not value > 0:
                raise SetupError(f"check {name!r}: {option} must be more than 0 seconds, not {value!r}")
        if failures < 1:
            raise SetupError(f"check {name!r}: failures must be 1 or more, not {failures!r}")
        self.name = name
        self.interval = interval
        self.timeout = timeout
        self.failures = failures
        self.recovery = recovery
        self.required = required
        self.status: Status = "pass"
        self.in_a_row = 0
        """How often it failed since it last did not."""
        self.result = PASSED
        self.checked_at: float | None = None

    def record(self, result: CheckResult, now: float) -> Status:
        """Take a result, and return the status that follows."""
        self.result = result
        self.checked_at = now
        if result.status == "fail":
            self.in_a_row += 1
            self.status = "fail" if self.in_a_row >= self.failures else "warn"
        else:
            self.in_a_row = 0
            self.status = result.status
        return self.status

    @property
    def pause(self) -> float:
        """Seconds until the next check."""
        if self.in_a_row:
            return self.recovery
        return self.interval

    def describe(self) -> dict[str, Any]:
        """Return the state as a report shows it."""
        found: dict[str, Any] = {"status": self.status}
        if self.result.observed:
            found["observedValue"] = self.result.observed
        if self.checked_at is not None:
            found["time"] = datetime.fromtimestamp(self.checked_at, UTC).isoformat(timespec="milliseconds")
        if self.result.output:
            found["output"] = self.result.output
        return found


class LoopLag:
    """How late the event loop was: the longest of the last 10 seconds. Pure: time is an argument."""

    def __init__(self, window: float = LAG_WINDOW) -> None:
        self._window = window
        self._lags: deque[tuple[float, float]] = deque()
        """When a lag was measured, and how long it was; each is longer than all behind it."""

    def record(self, lag: float, now: float) -> None:
        """Take a measurement."""
        while self._lags and self._lags[-1][1] <= lag:
            self._lags.pop()
        self._lags.append((now, max(lag, 0.0)))

    def longest(self, now: float) -> float:
        """Return the longest lag of the window."""
        while self._lags and self._lags[0][0] <= now - self._window:
            self._lags.popleft()
        if self._lags:
            return self._lags[0][1]
        return 0.0


def judge_share(used: float, limit: float, what: str) -> CheckResult:
    """Return whether something is used up: 85 % is a warning, 95 % a failure; without a limit it never is."""
    if limit <= 0:
        return CheckResult(observed=f"{used:g}")
    share = used / limit
    observed = f"{share:.0%} of {limit:g}"
    if share >= FAIL_SHARE:
        return CheckResult("fail", observed, f"{what} is used up")
    if share >= WARN_SHARE:
        return CheckResult("warn", observed, f"{what} is nearly used up")
    return CheckResult("pass", observed)


def judge_lag(seconds: float) -> CheckResult:
    """Return whether the event loop turns as it should: a blocked loop answers nobody."""
    observed = f"{seconds:.3f} s"
    if seconds >= FAIL_LAG:
        return CheckResult("fail", observed, "the event loop was blocked: a handler must not block it")
    if seconds >= WARN_LAG:
        return CheckResult("warn", observed, "the event loop is late: a handler blocks it")
    return CheckResult("pass", observed)


class HealthMonitor:
    """Runs checks while `run` does, and says what they found."""

    def __init__(self, *, version: str = "", generation: int = 0, clock: Callable[[], float] | None = None) -> None:
        self.version = version
        self.generation = generation
        self.lag = LoopLag()
        self.draining = False
        """Whether this process is about to stop: it is not ready then, and as healthy as before."""
        self.conditions: list[Condition] = []
        """Asked, beside the checks, why no new work should be sent here."""
        self._clock = clock or _now
        self._checks: dict[str, tuple[CheckRecord, Check]] = {}
        self._keepers: dict[str, asyncio.Task[None]] = {}
        self._running: dict[str, asyncio.Task[CheckResult]] = {}
        """Checks that are under way, by name; also those that do not end."""
        self._started = False

    def register(
        self,
        name: str,
        check: Check,
        *,
        interval: float = 30.0,
        timeout: float = 5.0,
        failures: int = 3,
        recovery: float = 10.0,
        required: bool = False,
    ) -> CheckRecord:
        """Add a check; it runs at once where the monitor does, and counts as passed until it has."""
        if name in self._checks:
            raise SetupError(f"there is a check {name!r} already: choose another name")
        record = CheckRecord(
            name, interval=interval, timeout=timeout, failures=failures, recovery=recovery, required=required
        )
        self._checks[name] = (record, check)
        if self._started:
            self._keep(record, check)
        return record

    def unregister(self, name: str) -> None:
        """Take a check out, if it is there."""
        self._checks.pop(name, None)
        keeper = self._keepers.pop(name, None)
        if keeper is not None:
            keeper.cancel()
        running = self._running.get(name)
        if running is not None:
            running.cancel()

    def register_system(self) -> None:
        """Add the checks of memory, descriptors and the event loop, every 15 seconds."""
        limit = memory_limit()
        looks: dict[str, Check] = {
            "memory": lambda: judge_share(resident_memory(), limit, "memory"),
            "descriptors": lambda: judge_share(open_descriptors(), most_descriptors(), "the number of descriptors"),
            "event loop": lambda: judge_lag(self.lag.longest(asyncio.get_running_loop().time())),
        }
        for name, look in looks.items():
            self.register(name, look, interval=SYSTEM_INTERVAL, recovery=SYSTEM_INTERVAL, failures=1)

    # What others ask

    @property
    def status(self) -> Status:
        """The worst of all checks; `fail` only where a required one fails."""
        worst: Status = "pass"
        for record, _ in self._checks.values():
            if record.status == "fail" and record.required:
                return "fail"
            if record.status != "pass":
                worst = "warn"
        return worst

    @property
    def word(self) -> str:
        """The status as a word: healthy, degraded or unhealthy."""
        return WORDS[self.status]

    def not_ready(self, *, brief: bool = False) -> list[str]:
        """Return why no new work should be sent here; nothing where it may. `brief` only names checks that fail."""
        reasons = []
        if self.draining:
            reasons.append("draining")
        for condition in self.conditions:
            reasons.extend(condition())
        for record, _ in self._checks.values():
            if record.required and record.status == "fail":
                if brief:
                    reasons.append(record.name)
                else:
                    reasons.append(f"{record.name}: {record.result.output or 'fails'}")
        return reasons

    def is_alive(self) -> bool:
        """Return whether the event loop turns; who asks over the network gets no answer from one that does not."""
        return self.lag.longest(asyncio.get_running_loop().time()) < FAIL_LAG

    def report(self) -> dict[str, Any]:
        """Return everything, in the form of `application/health+json`."""
        checks = {}
        for name, (record, _) in self._checks.items():
            checks[name] = [record.describe()]
        found: dict[str, Any] = {"status": self.status}
        if self.version:
            found["version"] = self.version
        found["generation"] = self.generation
        notes = self.not_ready(brief=True)
        if notes:
            found["notes"] = notes
        found["checks"] = checks
        return found

    # Running

    async def run(self, ready: Callable[[], None] | None = None) -> None:
        """Run the checks at their intervals, until cancelled."""
        self._started = True
        for record, check in self._checks.values():
            self._keep(record, check)
        try:
            if ready is not None:
                ready()
            await self._measure_lag()
        finally:
            self._started = False
            tasks: list[asyncio.Task[Any]] = [*self._keepers.values(), *self._running.values()]
            for task in tasks:
                task.cancel()
            self._keepers.clear()
            if tasks:
                await asyncio.wait(tasks, timeout=STOP_TIME)

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self.lag.record(loop.time() - due, loop.time())

    def _keep(self, record: CheckRecord, check: Check) -> None:
        task = asyncio.get_running_loop().create_task(self._repeat(record, check), name=f"check {record.name}")
        self._keepers[record.name] = task

    async def _repeat(self, record: CheckRecord, check: Check) -> None:
        while True:
            before = record.status
            result = await self._check_once(record, check)
            after = record.record(result, self._clock())
            if after != before:
                log = logger.info if after == "pass" else logger.warning
                log("health check %s is %s: %s", record.name, WORDS[after], result.output or "passed")
            await asyncio.sleep(record.pause)

    async def _check_once(self, record: CheckRecord, check: Check) -> CheckResult:
        """Run a check; one that has not ended since the last time is not run twice."""
        task = self._running.get(record.name)
        if task is not None:
            return CheckResult("fail", output="the check before this one has not ended")
        task = asyncio.get_running_loop().create_task(_result_of(check), name=f"checking {record.name}")
        self._running[record.name] = task
        task.add_done_callback(lambda task: self._ended(record.name, task))
        done, _ = await asyncio.wait({task}, timeout=record.timeout)
        if not done:
            task.cancel()
            return CheckResult("fail", output=f"no answer within {record.timeout:g} s")
        if task.cancelled():
            return CheckResult("fail", output="the check was cancelled")
        return task.result()

    def _ended(self, name: str, task: asyncio.Task[CheckResult]) -> None:
        if self._running.get(name) is task:
            del self._running[name]


async def _result_of(check: Check) -> CheckResult:
    """Run a check and return what it found, whatever it raises."""
    try:
        found = check()
        if inspect.isawaitable(found):
            found = await found
    except GeneratorExit:
        raise
    except BaseException as error:
        return CheckResult("fail", output=f"{type(error).__name__}: {error}".removesuffix(": "))
    if isinstance(found, CheckResult):
        return found
    if found is None or found is True:
        return PASSED
    return CheckResult("fail", output="the check returned False")


def _now() -> float:
    return datetime.now(UTC).timestamp()
