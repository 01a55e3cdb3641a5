"""What was found out of tokens, by the hash of the token: who they name, or that they are no good.

Rule: nothing is kept beyond its expiry, and nothing grows without bounds. A token itself is never kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b

from msgspec import Struct

from ferrule.auth.address import network_of
from ferrule.identity.principal import Principal

MOST_GOOD = 10_000
MOST_BAD = 1_000
GOOD_FOR = 300.0
BAD_FOR = 5.0
"""Seconds for which a token that was refused is refused without another look."""
WARY = 60.0
"""For how many seconds after its last bad token an address has few tokens checked at once."""
AT_ONCE = 5.0
"""How many, for each bad token it may still show."""


class KnownToken(Struct, frozen=True):
    """A token that was checked."""

    principal: Principal
    until: float
    key: str = ""
    """The thumbprint of the key that signed it; empty where none did."""


class RefusedToken(Struct, frozen=True):
    """A token that is no good."""

    why: str
    until: float


class TokenCache:
    """Remembers tokens: the good ones by last use, the bad ones for a moment."""

    def __init__(self, most_good: int = MOST_GOOD, most_bad: int = MOST_BAD) -> None:
        self._good: OrderedDict[bytes, KnownToken] = OrderedDict()
        self._bad: OrderedDict[bytes, RefusedToken] = OrderedDict()
        self._most_good = most_good
        self._most_bad = most_bad

    def __len__(self) -> int:
        return len(self._good)

    def find(self, token: bytes, now: float) -> KnownToken | RefusedToken | None:
        """Return what is known of a token."""
        found = self._good.get(token)
        if found is not None:
            if now < found.until:
                self._good.move_to_end(token)
                return found
            del self._good[token]
        refused = self._bad.get(token)
        if refused is not None and now < refused.until:
            return refused
        return None

    def keep(self, token: bytes, known: KnownToken) -> None:
        """Remember a good token that `find` did not find."""
        if self._bad:
            self._bad.pop(token, None)
        self._good[token] = known
        if len(self._good) > self._most_good:
            self._good.popitem(last=False)

    def keep_bad(self, token: bytes, why: str, now: float) -> None:
        """Remember a token that was refused."""
        self._good.pop(token, None)
        self._bad[token] = RefusedToken(why, now + BAD_FOR)
        self._bad.move_to_end(token)
        if len(self._bad) > self._most_bad:
            self._bad.popitem(last=False)

    def forget_where(self, is_gone: Callable[[KnownToken], bool]) -> None:
        """Forget good tokens, such as those of a key that its issuer has withdrawn."""
        gone = []
        for token, known in self._good.items():
            if is_gone(known):
                gone.append(token)
        for token in gone:
            del self._good[token]


def digest(token: str, resource: str = "") -> bytes:
    """Return what stands for a token in a cache; with the resource it was shown to, where that may differ."""
    if resource:
        token = f"{resource}\n{token}"
    return blake2b(token.encode(), digest_size=32).digest()


class FailureLimit:
    """How many bad tokens a second an address may show: checking them costs more than sending them.

    All addresses of one IPv6 network (/64) count as one: whoever has one of them has them all.
    """

    def __init__(self, rate: float = 20.0, most_addresses: int = 10_000) -> None:
        self._rate = rate
        self._most = most_addresses
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """By address, how many more it may show, and since when that is so."""
        self._running: dict[str, int] = {}
        """By address, how many of its tokens are being checked."""

    def is_reached(self, address: str, now: float) -> bool:
        """Return whether an address may show no more tokens that are not known to be good."""
        if not self._left:
            return False
        found = self._left.get(network_of(address))
        if found is None:
            return False
        left = self._now_left(found, now)
        if left < 1.0:
            return True
        # Of what is not decided yet, most may turn out bad again.
        return now - found[1] < WARY and self._running.get(network_of(address), 0) >= left * AT_ONCE

    def begin(self, address: str) -> None:
        """Note that a token is being checked, which takes a while."""
        place = network_of(address)
        self._running[place] = self._running.get(place, 0) + 1

    def end(self, address: str) -> None:
        """Note that this was done."""
        place = network_of(address)
        left = self._running.pop(place, 0) - 1
        if left > 0:
            self._running[place] = left

    def count(self, address: str, now: float) -> None:
        """Note a bad token."""
        place = network_of(address)
        found = self._left.get(place, (self._rate, now))
        self._left[place] = (max(0.0, self._now_left(found, now) - 1.0), now)
        self._left.move_to_end(place)
        while len(self._left) > self._most:
            self._left.popitem(last=False)

    def _now_left(self, found: tuple[float, float], now: float) -> float:
        left, since = found
        return min(self._rate, left + max(0.0, now - since) * self._rate)
