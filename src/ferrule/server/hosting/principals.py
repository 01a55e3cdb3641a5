"""What a server remembers of principals that have no session, and whose share a sender takes from."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ferrule.server.offers.switches import Switches
from ferrule.wire.channel import Origin

MOST_PRINCIPALS = 10_000
"""Principals without a session whose `ctx.state` and switches are remembered; one more forgets the idlest."""
PRINCIPAL_LIFETIME = 86_400.0
"""Seconds after its last use for which a principal is remembered."""


class PrincipalState(Struct, eq=False):
    """What is remembered of one principal that has no session."""

    used: float
    values: dict[str, Any] = {}
    switches: Switches | None = None


class Principals:
    """What is remembered of principals that have no session: of so many, and of each for so long after its last use."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._states: dict[str, PrincipalState] = {}
        """The one that was used longest ago stands first."""

    def __len__(self) -> int:
        return len(self._states)

    def find(self, principal: str) -> PrincipalState | None:
        """Return what is remembered of a principal, if anything is."""
        state = self._states.get(principal)
        if state is None:
            return None
        state.used = self._clock()
        self._states[principal] = self._states.pop(principal)
        return state

    def state(self, principal: str) -> PrincipalState:
        """Return what is remembered of a principal, from now on if nothing was."""
        state = self.find(principal)
        if state is None:
            self._forget_old(MOST_PRINCIPALS - 1)
            state = self._states[principal] = PrincipalState(self._clock())
        return state

    def _forget_old(self, most: int) -> None:
        before = self._clock() - PRINCIPAL_LIFETIME
        while self._states:
            oldest = next(iter(self._states))
            if len(self._states) <= most and self._states[oldest].used > before:
                break
            del self._states[oldest]


def holder_of(origin: Origin) -> str:
    """Return whose share of what all clients may hold a sender takes from: its principal's, else its address's."""
    if origin.principal is not None:
        return f"principal {origin.principal}"
    return sys.intern(f"address {origin.host or origin.address}")  # many sessions may come from one address
