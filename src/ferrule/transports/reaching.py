"""Opening the way to a peer within a time; whoever cannot be reached is named, with the reason and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from ferrule.errors import ConnectFailed
from ferrule.transports.tls import explain


@asynccontextmanager
async def reaching(
    peer: object, seconds: float, *, wanted: str = "connection", reason: Callable[[OSError], str] = explain
) -> AsyncIterator[None]:
    """Bound an attempt to reach a peer; one that takes too long or that the system refuses raises ConnectFailed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ConnectFailed(f"cannot reach {peer}: no {wanted} within {seconds:g} s; is the address right?") from None
    except OSError as error:
        raise ConnectFailed(f"cannot reach {peer}: {reason(error)}") from error
