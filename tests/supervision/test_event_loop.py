"""What runs without asyncio is told so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from ferrule import Client, Server, SetupError
from ferrule.supervision.event_loop import require_asyncio, running_loop


def start_elsewhere(work: Coroutine[Any, Any, Any]) -> None:
    """Start a coroutine as another library's event loop would: asyncio's does not run."""
    try:
        work.send(None)
    finally:
        work.close()


def test_a_client_names_asyncio_and_the_way_without_it() -> None:
    with pytest.raises(SetupError, match=r"^Client needs asyncio, .* or SyncClient in a thread$"):
        start_elsewhere(Client(Server("s")).connect())


def test_a_server_names_asyncio_and_the_way_without_it() -> None:
    with pytest.raises(SetupError, match=r"^app\.run_async\(\) needs asyncio, .*: use app\.run\(\)"):
        start_elsewhere(Server("s").run_async("http", port=0))


def test_where_asyncio_runs_its_loop_is_returned() -> None:
    async def scene() -> bool:
        return require_asyncio("x", "y") is asyncio.get_running_loop()

    assert asyncio.run(scene())


def test_the_loop_of_this_thread_is_none_where_none_runs() -> None:
    async def scene() -> bool:
        return running_loop() is asyncio.get_running_loop()

    assert running_loop() is None
    assert asyncio.run(scene())
