"""The policies that pick one of several targets. Each is told the facts; random numbers are an argument.

| policy | picks |
|---|---|
| `round_robin` | the next one; by weight, smoothly, as nginx does |
| `least_loaded` | the less loaded of two taken at random ("power of two choices"); of up to three, the least loaded |
| `random` | any, by weight |
| `hash` | the same one for the same key, unless it has more than its share of the load |
| `adaptive` | the better of two taken at random, by queue, error rate and latency of the last second |

Comparing only two avoids that every caller runs to the same target on the same slightly old figures.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Annotated, Literal, Protocol

from msgspec import Meta, Struct

from ferrule.errors import SetupError
from ferrule.settings.option import require

Random = Callable[[], float]
"""Returns a random number from 0 to less than 1."""

Balance = Literal["least_loaded", "round_robin", "random", "hash", "adaptive"]
"""The names of the policies."""

SMOOTHING = 0.1
"""How much the newest call counts in the moving averages of a target."""
Weight = Annotated[float, Meta(gt=0, le=1000)]
"""How many calls a target gets compared with the others."""
FEW = 3
"""Up to this many targets are all compared."""
POINTS = 160
"""Points on the hash ring for each unit of weight."""
BOUND = 1.25
"""How much more than its fair share of the calls a target of the hash ring may have in flight."""
SPACE = 2**64
"""How many places the hash ring has."""
QUEUE_PART = 0.5
ERROR_PART = 0.3
LATENCY_PART = 0.2
"""What counts how much in the score of `adaptive`."""


class Target(Struct, eq=False):
    """The facts about one target that policies compare."""

    name: str
    weight: float = 1.0
    in_flight: int = 0
    latency: float = 0.0
    """Seconds a call takes, as a moving average; 0 before the first."""
    calls: int = 0
    """How many calls have ended with a verdict on it."""
    errors: int = 0
    """How many of them it failed."""
    admitted: bool = True
    """Whether it may be picked."""

    def __post_init__(self) -> None:
        require(f"the weight of {self.name!r}", self.weight, Weight)

    @property
    def load(self) -> float:
        """Calls in flight for each unit of weight."""
        return self.in_flight / self.weight

    def started(self) -> None:
        """Called when a call is sent to it."""
        self.in_flight += 1

    def answered(self, seconds: float) -> None:
        """Called when it has answered a call, with the time it took."""
        self.in_flight -= 1
        if self.calls:
            self.latency += SMOOTHING * (seconds - self.latency)
        else:
            self.latency = seconds
        self.calls += 1

    def failed(self, seconds: float) -> None:
        """Called when it has failed a call, with the time it took."""
        self.answered(seconds)
        self.errors += 1

    def released(self) -> None:
        """Called when a call has ended that says nothing about it."""
        self.in_flight -= 1


class Policy(Protocol):
    """Picks one of several targets."""

    def pick(self, targets: Sequence[Target], key: str | None, random: Random) -> Target | None:
        """Return the target that takes the next call; None if none is admitted. Only `hash` looks at the key."""

    def refresh(self, targets: Sequence[Target]) -> None:
        """Called once a second with all targets."""

    def forget(self, name: str) -> None:
        """Called when a target is removed."""


class MemorylessPolicy:
    """What a policy without memory has in common with the others."""

    def refresh(self, targets: Sequence[Target]) -> None:
        """Nothing is kept."""

    def forget(self, name: str) -> None:
        """Nothing is kept."""


def admitted(targets: Sequence[Target]) -> list[Target]:
    """Return the targets that may be picked."""
    return [target for target in targets if target.admitted]


class RoundRobin(MemorylessPolicy):
    """Each in turn; a heavier one more often, spread evenly over the round.

    Each pick gives every target its weight as credit. Whoever has most is picked and pays the sum of all weights.
    """

    def __init__(self) -> None:
        self._credit: dict[str, float] = {}

    def pick(self, targets: Sequence[Target], key: str | None, random: Random) -> Target | None:
        """Return the next target."""
        owed = self._credit
        total = 0.0
        chosen = None
        most = -math.inf
        for target in targets:
            if not target.admitted:
                continue
            total += target.weight
            credit = owed.get(target.name, 0.0) + target.weight
            owed[target.name] = credit
            if credit > most:
                most = credit
                chosen = target
        if chosen is not None:
            owed[chosen.name] = most - total
        return chosen

    def forget(self, name: str) -> None:
        """Forget the credit of a target that is removed."""
        self._credit.pop(name, None)


class LeastLoaded(MemorylessPolicy):
    """The one with the fewest calls in flight for its weight; of equals the faster one."""

    def pick(self, targets: Sequence[Target], key: str | None, random: Random) -> Target | None:
        """Return the least loaded of a few, or of two taken at random."""
        if len(targets) > FEW:
            targets = admitted(targets)
            if len(targets) > FEW:
                targets = two_of(targets, random)
        best = None
        load = latency = math.inf
        equals = 1
        for target in targets:
            own = target.in_flight / target.weight
            if own > load or not target.admitted:
                continue
            if own < load or target.latency < latency:
                best = target
                load = own
                latency = target.latency
                equals = 1
            elif target.latency == latency:
                equals += 1
                if random() * equals < 1:
                    best = target
        return best


class Weighted(MemorylessPolicy):
    """Any of them, by weight."""

    def pick(self, targets: Sequence[Target], key: str | None, random: Random) -> Target | None:
        """Return a target at random."""
        candidates = admitted(targets)
        if not candidates:
            return None
        total = 0.0
        for target in candidates:
            total += target.weight
        left = random() * total
        for target in candidates:
            left -= target.weight
            if left < 0:
                return target
        return candidates[-1]


class Ring(MemorylessPolicy):
    """The same target for the same key, by consistent hashing with bounded loads.

    Each target has 160 points a unit of weight on a ring of 64-bit numbers; a key belongs to the first point after its
    own hash. Without one of n targets only that one's keys move, about 1/n of all. A target that has 1.25 times its
    share of the calls in flight is passed over.
    """

    def __init__(self) -> None:
        self._points: list[tuple[int, str]] = []
        self._weights: dict[str, float] = {}

    def pick(self, targets: Sequence[Target], key: str | None, random: Random) -> Target | None:
        """Return the target of a key; without a key, that of a random place."""
        open_to: dict[str, Target] = {}
        weights = 0.0
        in_flight = 1
        for target in targets:
            if self._weights.get(target.name) != target.weight:
                self._place(target)
            if target.admitted:
                open_to[target.name] = target
                weights += target.weight
                in_flight += target.in_flight
        if not open_to:
            return None
        most = BOUND * in_flight / weights
        place = int(random() * SPACE) if key is None else place_of(key)
        points = self._points
        start = bisect_left(points, (place, ""))
        for index in range(start - len(points), start):
            found = open_to.get(points[index][1])
            if found is not None and found.in_flight < math.ceil(most * found.weight):
                return found
        raise AssertionError("every target has more than its share of the calls: the shares do not add up")

    def forget(self, name: str) -> None:
        """Take the points of a target that is removed from the ring."""
        if self._weights.pop(name, None) is not None:
            self._points = [point for point in self._points if point[1] != name]

    def _place(self, target: Target) -> None:
        self.forget(target.name)
        self._weights[target.name] = target.weight
        for number in range(max(1, round(POINTS * target.weight))):
            self._points.append((place_of(f"{target.name}#{number}"), target.name))
        self._points.sort()


class Score(Struct):
    """What `adaptive` keeps of one target between two refreshes."""

    calls: int = 0
    errors: int = 0
    error_rate: float = 0.0
    latency: float = 0.0
    value: float = 0.0
    """The lower, the better."""


class Adaptive:
    """The better of two by a score of queue, error rate and latency, each in proportion to the worst of the group.

    The figures of a target without calls are halved each second: who was bad is tried again.
    """

    def __init__(self) -> None:
        self._scores: dict[str, Score] = {}

    def pick(self, targets: Sequence[Target], key: str | None, random: Random) -> Target | None:
        """Return the one with the better score of two taken at random."""
        candidates = admitted(targets)
        if not candidates:
            return None
        if len(candidates) == 1:
            return candidates[0]
        first, second = two_of(candidates, random)
        if self.score(second.name) < self.score(first.name):
            return second
        return first

    def score(self, name: str) -> float:
        """Return the score of a target, from 0 (best) to 1 (worst in everything); 0 before the first refresh."""
        known = self._scores.get(name)
        if known is None:
            return 0.0
        return known.value

    def refresh(self, targets: Sequence[Target]) -> None:
        """Score every target anew."""
        queue = errors = latency = 0.0
        for target in targets:
            score = self._scores.setdefault(target.name, Score())
            _count_in(target, score)
            queue = max(queue, target.load)
            errors = max(errors, score.error_rate)
            latency = max(latency, score.latency)
        for target in targets:
            score = self._scores[target.name]
            score.value = QUEUE_PART * part_of(target.load, queue)
            score.value += ERROR_PART * part_of(score.error_rate, errors)
            score.value += LATENCY_PART * part_of(score.latency, latency)

    def forget(self, name: str) -> None:
        """Forget the score of a target that is removed."""
        self._scores.pop(name, None)


def _count_in(target: Target, score: Score) -> None:
    """Bring the figures of a target up to date with the calls since the last time."""
    calls = target.calls - score.calls
    errors = target.errors - score.errors
    score.calls = target.calls
    score.errors = target.errors
    if calls > 0:
        score.error_rate = (score.error_rate + errors / calls) / 2
        score.latency = target.latency
    else:
        score.error_rate /= 2
        score.latency /= 2


def part_of(value: float, worst: float) -> float:
    """Return a figure in proportion to the worst of the group."""
    if worst <= 0:
        return 0.0
    return value / worst


def two_of(targets: Sequence[Target], random: Random) -> list[Target]:
    """Return two different targets at random."""
    count = len(targets)
    first = int(random() * count)
    second = int(random() * (count - 1))
    if second >= first:
        second += 1
    return [targets[first], targets[second]]


def place_of(key: str) -> int:
    """Return the place of a key on the hash ring."""
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest())


POLICIES: dict[Balance, Callable[[], Policy]] = {
    "round_robin": RoundRobin,
    "least_loaded": LeastLoaded,
    "random": Weighted,
    "hash": Ring,
    "adaptive": Adaptive,
}


def policy_named(name: Balance) -> Policy:
    """Return a new policy of a name; raise SetupError if there is none."""
    make = POLICIES.get(name)
    if make is None:
        raise SetupError(f"there is no policy {name!r}: it is one of {', '.join(POLICIES)}")
    return make()
