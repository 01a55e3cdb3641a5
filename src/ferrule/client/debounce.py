"""Waiting until a person has stopped typing."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable

from ferrule.errors import Cancelled


class Debounce:
    """Lets the last of several questions about one field go on, and ends those before it."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[None]] = {}

    async def settle(self, field: Hashable, pause: float) -> None:
        """Wait until nobody asked about a field for a while; raises Cancelled once somebody asks again."""
        earlier = self._waiting.get(field)
        if earlier is not None and not earlier.done():
            earlier.set_result(None)
        mine = self._waiting[field] = asyncio.get_running_loop().create_future()
        try:
            await asyncio.wait_for(mine, pause)
        except TimeoutError:
            return
        finally:
            if self._waiting.get(field) is mine:
                del self._waiting[field]
        raise Cancelled("a later question about the same argument took the place of this one")
