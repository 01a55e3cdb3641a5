"""The event loop everything here runs on: asyncio's."""

from __future__ import annotations

import asyncio

from ferrule.errors import SetupError


def require_asyncio(what: str, instead: str) -> asyncio.AbstractEventLoop:
    """Return the running loop; raise SetupError where there is none, as under trio."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise SetupError(f"{what} needs asyncio, and no asyncio event loop runs here: {instead}") from None


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs in this thread; None where none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
