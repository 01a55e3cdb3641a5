"""Rates: how one is written, several held at once, and the HTTP headers that tell a caller of them.

A rate is written `100/min` or `10/s burst 50`. The burst is how much may come at once; without one it is the number
before the slash. Header fields: draft-ietf-httpapi-ratelimit-headers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Protocol

from msgspec import Struct

from ferrule.balancing.token_bucket import TOKEN_SLACK, TokenBucket
from ferrule.errors import SetupError

UNITS = {
    "s": 1,
    "sec": 1,
    "second": 1,
    "m": 60,
    "min": 60,
    "minute": 60,
    "h": 3600,
    "hour": 3600,
    "d": 86_400,
    "day": 86_400,
}
"""Names of units of time, in seconds."""

WRITTEN = re.compile(
    r"\s*+(?P<count>\d++(?:\.\d++)?)\s*+/\s*+(?P<times>\d++)?\s*+(?P<unit>[a-z]++)(?:\s++burst\s++(?P<burst>\d++(?:\.\d++)?))?+\s*+",
    re.ASCII,
)
NAME = re.compile(r"[\x20-\x7e]+")
"""What a string of a structured header may hold (RFC 9651 §3.3.3)."""


class Rate(Struct, frozen=True):
    """So many in so many seconds, and so many at once."""

    count: float
    seconds: float
    burst: float

    def __post_init__(self) -> None:
        if not (self.count > 0 and self.seconds > 0 and self.burst >= 1):
            raise SetupError(
                f"a rate needs a count and a time of more than 0 and a burst of at least 1, "
                f"not {self.count:g} in {self.seconds:g} s with a burst of {self.burst:g}"
            )

    @classmethod
    def parse(cls, text: str) -> Rate:
        """Read a rate such as `100/min` or `10/s burst 50`; raise SetupError if it is none."""
        found = WRITTEN.fullmatch(text)
        unit = None
        if found is not None:
            unit = unit_of(found["unit"])
        if found is None or unit is None:
            raise SetupError(f"a rate is written like 100/min or 10/s burst 50, not {text!r}")
        count = float(found["count"])
        seconds = float(found["times"] or 1) * unit
        if found["burst"] is None:
            return cls(count, seconds, max(1.0, count))
        return cls(count, seconds, float(found["burst"]))

    @property
    def per_second(self) -> float:
        """How many a second in the long run."""
        return self.count / self.seconds

    def bucket(self) -> TokenBucket:
        """Return a new, full bucket of this rate."""
        return TokenBucket(self.per_second, self.burst)


def unit_of(word: str) -> int | None:
    """Return the seconds of a unit of time by its name, in the singular or plural; None if it is none."""
    if len(word) >= 4:
        # Not shorter: `ms` is no plural of a minute.
        word = word.removesuffix("s")
    return UNITS.get(word)


class Bucket(Protocol):
    """What tokens are taken from; the time comes in as an argument."""

    def take(self, now: float, n: float = 1) -> bool:
        """Take `n` tokens if there are as many."""

    def wait(self, now: float) -> float:
        """Return the seconds until one token can be taken."""

    def left(self, now: float) -> int:
        """Return how many whole tokens there are."""

    def full_in(self, now: float) -> float:
        """Return the seconds until the bucket is full."""


class Quota:
    """A named bucket: one of those a call must have a token of."""

    __slots__ = ("bucket", "name", "rate")

    def __init__(self, name: str, rate: Rate, bucket: Bucket | None = None) -> None:
        if not NAME.fullmatch(name):
            raise SetupError(f"the name of a quota must be printable ASCII, not {name!r}")
        self.name = name
        self.rate = rate
        self.bucket: Bucket = bucket or rate.bucket()


class Exhausted(Struct, frozen=True):
    """The quota that refuses a call."""

    name: str
    retry_after: float
    """Seconds until every quota has a token again; infinite for one that is never refilled."""


def take_together(quotas: Sequence[Quota], now: float) -> Exhausted | None:
    """Take a token of every quota and return None; or take none and return the one that is empty the longest."""
    longest = 0.0
    emptiest = ""
    for quota in quotas:
        wait = quota.bucket.wait(now)
        if wait > longest:
            longest = wait
            emptiest = quota.name
    if longest > 0:
        return Exhausted(emptiest, longest)
    for quota in quotas:
        quota.bucket.take(now)
    return None


def policy_header(quotas: Iterable[Quota]) -> str:
    """Return the value of `RateLimit-Policy`: what each quota allows, `"principal";q=100;w=60`.

    The window is the time in which an empty bucket is filled.
    """
    items = []
    for quota in quotas:
        items.append(_policy(quota.name, quota.rate))
    return ", ".join(items)


@lru_cache(maxsize=256)
def _policy(name: str, rate: Rate) -> str:
    """Return what one quota allows; the same for every caller, so it is written once."""
    window = math.ceil(rate.burst / rate.per_second - TOKEN_SLACK)
    return f"{_quoted(name)};q={math.floor(rate.burst)};w={window}"


def limit_header(quotas: Iterable[Quota], now: float) -> str:
    """Return the value of `RateLimit`: what each quota has left and when it is full, `"principal";r=42;t=17`."""
    items = []
    for quota in quotas:
        left = quota.bucket.left(now)
        full_in = math.ceil(quota.bucket.full_in(now) - TOKEN_SLACK)
        items.append(f"{_quoted(quota.name)};r={left};t={full_in}")
    return ", ".join(items)


def _quoted(name: str) -> str:
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
