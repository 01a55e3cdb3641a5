"""Which servers speak the handshake era only, kept by their addresses."""

from __future__ import annotations

import time
from collections.abc import Callable

from ferrule.budgets.bounds import MAX_KNOWN_ERAS

LASTS = 300.0
"""Seconds for which a server that was found to be of the handshake era is taken for one."""


class EraMemory:
    """The addresses of servers that speak the handshake era only, oldest first: they are not probed at every connect.

    An address is forgotten when it is old, and when anything fails that relied on it. That a server speaks the
    stateless era need not be kept: it is asked to discover itself anyway.
    """

    def __init__(
        self, limit: int = MAX_KNOWN_ERAS, lasts: float = LASTS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._lasts = lasts
        self._clock = clock
        self._since: dict[str, float] = {}

    def __len__(self) -> int:
        return len(self._since)

    def is_handshake(self, address: str) -> bool:
        """Whether a server was found, not long ago, to speak the handshake era only."""
        since = self._since.get(address)
        if since is None:
            return False
        if self._clock() - since > self._lasts:
            del self._since[address]
            return False
        return True

    def remember(self, address: str) -> None:
        """Keep that a server refused the stateless era and took the handshake."""
        self._since.pop(address, None)
        self._since[address] = self._clock()
        if len(self._since) > self._limit:
            del self._since[next(iter(self._since))]

    def forget(self, address: str) -> None:
        """Probe a server again at the next connect."""
        self._since.pop(address, None)

    def clear(self) -> None:
        """Forget every server."""
        self._since.clear()


known_eras = EraMemory()
"""The memory of this process."""
