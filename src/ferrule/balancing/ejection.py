"""Outlier ejection: a target that does worse than the others of its group gets no calls for a while.

The rules and numbers are Envoy's (outlier detection): `failures` failed calls in a row eject at once; every `interval`
a target is ejected whose success rate is below mean - `deviations` * standard deviation of the group. The n-th ejection
in a row lasts n times `base_time`. A group of fewer than `least_group` ejects nobody, and at most a share of it is
ejected at once. Beyond that the panic rule holds: if less than `panic` of a group can be used, ejections are ignored.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated

from msgspec import Meta, Struct

from ferrule.errors import SetupError
from ferrule.settings.option import FiniteSeconds, Fraction, NonNegativeFloat, PositiveInt, check

OnEjection = Callable[[str, str, float], None]
"""Called with the name of an ejected target, the reason and until when."""


class EjectionSettings(Struct, frozen=True, kw_only=True):
    """Who is ejected, and for how long; times are seconds."""

    failures: PositiveInt = 5
    """Failed calls in a row."""
    interval: FiniteSeconds = 10.0
    """How often success rates are compared."""
    deviations: NonNegativeFloat = 1.9
    """How many standard deviations below the mean a success rate has to be."""
    least_targets: PositiveInt = 5
    """How many targets need enough calls before success rates are compared."""
    least_calls: PositiveInt = 100
    """How many calls a target needs in an interval for its success rate to count."""
    base_time: FiniteSeconds = 30.0
    """How long the first ejection lasts; the n-th in a row lasts n times as long."""
    longest_time: FiniteSeconds = 300.0
    """The longest ejection."""
    share: Fraction = 0.1
    """How much of a group may be ejected at once; one target always may."""
    least_group: Annotated[int, Meta(ge=2)] = 3
    """A group of fewer targets ejects none."""
    panic: Fraction = 0.5
    """With less than this share of a group to use, ejections are ignored."""

    def __post_init__(self) -> None:
        check(self)
        if self.longest_time < self.base_time:
            raise SetupError(f"longest_time must be at least base_time, {self.base_time:g} s")


DEFAULTS = EjectionSettings()


class Record(Struct):
    """What is known of one target."""

    calls: int = 0
    """Calls of this interval."""
    failures: int = 0
    """How many of them failed."""
    consecutive: int = 0
    """Failed calls in a row."""
    times: int = 0
    """Ejections in a row."""
    until: float = 0.0
    """When the ejection ends; 0 for one that is not ejected."""


class Ejection:
    """Knows which targets of a group are ejected."""

    def __init__(self, settings: EjectionSettings = DEFAULTS, *, on_ejection: OnEjection | None = None) -> None:
        self.settings = settings
        self.ejections = 0
        """How many there have been."""
        self._on_ejection = on_ejection
        self._records: dict[str, Record] = {}
        self._ejected = 0
        self._sweep_at = -math.inf

    def add(self, name: str) -> Record:
        """Add a target to the group, and return its record; one that is known stays as it is."""
        return self._records.setdefault(name, Record())

    def remove(self, name: str) -> None:
        """Remove a target from the group."""
        record = self._records.pop(name, None)
        if record is not None and record.until:
            self._ejected -= 1

    def is_ejected(self, name: str) -> bool:
        """Whether a target is ejected."""
        record = self._records.get(name)
        return record is not None and record.until > 0

    @property
    def ejected(self) -> list[str]:
        """The names of those that are ejected."""
        return [name for name, record in self._records.items() if record.until]

    def ok(self, name: str) -> None:
        """Called when a target has answered a call."""
        record = self._records.get(name)
        if record is not None:
            record.calls += 1
            record.consecutive = 0

    def failed(self, name: str, now: float) -> None:
        """Called when a target has failed a call."""
        record = self._records.get(name)
        if record is None:
            return
        record.calls += 1
        record.failures += 1
        record.consecutive += 1
        if record.consecutive >= self.settings.failures:
            self._eject(name, record, f"{record.consecutive} failures in a row", now)

    def sweep(self, now: float) -> None:
        """Take back those whose time is over, and compare success rates; does nothing until an interval has passed."""
        if now < self._sweep_at:
            return
        started = self._sweep_at > -math.inf
        self._sweep_at = now + self.settings.interval
        if not started:
            return
        self._take_back(now)
        self._compare(now)
        for record in self._records.values():
            record.calls = 0
            record.failures = 0

    def _take_back(self, now: float) -> None:
        for record in self._records.values():
            if not record.until:
                record.times = max(0, record.times - 1)
            elif now >= record.until:
                record.until = 0.0
                record.consecutive = 0
                self._ejected -= 1

    def _compare(self, now: float) -> None:
        rates: dict[str, float] = {}
        for name, record in self._records.items():
            if record.calls >= self.settings.least_calls:
                rates[name] = (record.calls - record.failures) / record.calls
        if len(rates) < self.settings.least_targets:
            return
        mean = math.fsum(rates.values()) / len(rates)
        variance = math.fsum((rate - mean) ** 2 for rate in rates.values()) / len(rates)
        threshold = mean - self.settings.deviations * math.sqrt(variance)
        for name, rate in rates.items():
            if rate < threshold:
                self._eject(name, self._records[name], f"success rate {rate:.0%}, below {threshold:.1%}", now)

    def _eject(self, name: str, record: Record, reason: str, now: float) -> None:
        size = len(self._records)
        room = max(1, int(size * self.settings.share))
        if record.until or size < self.settings.least_group or self._ejected >= min(room, size - 1):
            return
        record.times += 1
        record.until = now + min(self.settings.base_time * record.times, self.settings.longest_time)
        self._ejected += 1
        self.ejections += 1
        if self._on_ejection is not None:
            self._on_ejection(name, reason, record.until)


def in_panic(usable: int, total: int, panic: float = DEFAULTS.panic) -> bool:
    """Whether so few of a group can be used that ejections and half-open limits are ignored; open breakers are not."""
    return usable < total * panic
