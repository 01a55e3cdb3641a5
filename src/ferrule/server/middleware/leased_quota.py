"""Quotas that nodes share: each decides by itself, with tokens that it has leased."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

import msgspec

from ferrule.balancing.rate import Quota, Rate
from ferrule.stores.contracts import Limits
from ferrule.stores.leases import ASK_EVERY, LeasedBucket


class ClusterBucket:
    """A token bucket that nodes share, in the form of one that they do not."""

    __slots__ = ("_leased", "_rate")

    def __init__(self, leased: LeasedBucket, rate: Rate) -> None:
        self._leased = leased
        self._rate = rate

    def take(self, now: float, n: float = 1) -> bool:
        """Take `n` tokens if there are as many."""
        return self._leased.take(n)

    def wait(self, now: float) -> float:
        """Return the seconds until one token can be taken, as far as this node knows."""
        if self._leased.has(1.0):
            return 0.0
        return max(ASK_EVERY, 1 / self._rate.per_second)

    def left(self, now: float) -> int:
        """Return how many whole tokens this node has."""
        return max(0, math.floor(self._leased.tokens))

    def full_in(self, now: float) -> float:
        """Return the seconds until the bucket is full, if nobody else takes of it."""
        return (self._rate.burst - self.left(now)) / self._rate.per_second


class LeasedQuotas:
    """Makes the quotas that nodes share."""

    def __init__(self, limits: Limits, nodes: Callable[[], int]) -> None:
        self._limits = limits
        self._nodes = nodes

    def quota(self, name: str, rate: Rate, key: Hashable) -> Quota | None:
        """Return a quota of a principal, a tool or the server; None for what one node alone can count."""
        is_of_one_node = isinstance(key, tuple) and key[0] in ("session", "address")
        if not rate.per_second or is_of_one_node or not isinstance(key, tuple | None):
            return None
        whose = msgspec.json.encode([name, key]).decode()
        leased = LeasedBucket(self._limits, whose, rate.per_second, rate.burst, nodes=max(1, self._nodes()))
        return Quota(name, rate, ClusterBucket(leased, rate))
