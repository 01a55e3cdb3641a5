"""Asking for suggestions once a person has stopped typing."""

import asyncio

import pytest

from ferrule import Server
from ferrule.client.features.completions import Debounce
from ferrule.errors import Cancelled
from ferrule.testing import pair


def library(asked):
    app = Server("library")

    @app.prompt
    def find(title: str, author: str) -> str:
        return title

    @app.completion("find")
    async def suggest(value: str) -> list[str]:
        asked.append(value)
        return [value + "!"]

    return app


@pytest.mark.virtual_time
async def test_only_the_last_of_what_is_typed_is_asked(era):
    """COMP-5: a server is asked once, and the earlier questions end as cancelled."""
    asked = []
    async with pair(library(asked), era) as client:

        async def typed(value, after, name="title"):
            await asyncio.sleep(after)
            return await client.complete("find", {"name": name, "value": value}, debounce=0.2)

        keys = [typed("d", 0), typed("du", 0.1), typed("dun", 0.25), typed("h", 0.3, "author")]
        first, second, third, other = await asyncio.gather(*keys, return_exceptions=True)
    assert isinstance(first, Cancelled)
    assert isinstance(second, Cancelled)
    assert (third.values, other.values) == (["dun!"], ["h!"])
    assert asked == ["dun", "h"]


@pytest.mark.virtual_time
async def test_without_a_pause_every_question_is_asked(era):
    asked = []
    async with pair(library(asked), era) as client:
        for value in ("d", "du"):
            await client.complete("find", {"name": "title", "value": value})
    assert asked == ["d", "du"]


@pytest.mark.virtual_time
async def test_who_gives_up_leaves_nothing_behind():
    debounce = Debounce()
    waiting = asyncio.ensure_future(debounce.settle("field", 1.0))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await debounce.settle("field", 1.0)
    assert debounce._waiting == {}
