"""A client and a server in one line."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Context, Server
from ferrule.testing import ERAS, pair

FIRST_STATELESS_YEAR = 2026


def make_app() -> Server:
    app = Server("paired")

    @app.tool
    async def ask(ctx: Context) -> str:
        return str(await ctx.ask("Your name?", str))

    @app.tool
    async def odd() -> Any:
        return {1: {2, 3}}

    return app


async def answer(params: Any) -> dict[str, str]:
    return {"value": "Ada"}


@pytest.mark.parametrize("era", ERAS)
def test_the_same_test_runs_in_both_eras(era: Any) -> None:
    async def talk() -> tuple[str, int]:
        async with pair(make_app(), era, elicitation=answer) as client:
            assert client.protocol_version is not None
            return (await client.call_tool("ask")).text, int(client.protocol_version[:4])

    name, year = asyncio.run(talk())
    assert name == "Ada"
    assert (year >= FIRST_STATELESS_YEAR) == (era == "stateless")


@pytest.mark.parametrize("era", ERAS)
def test_a_pair_goes_through_the_codec(era: Any) -> None:
    """A mapping with numbers as keys and a set as value does not survive the wire as it is."""

    async def talk() -> str:
        async with pair(make_app(), era) as client:
            return (await client.call_tool("odd")).text

    assert asyncio.run(talk()) == '{"1":[2,3]}'


def test_the_handshake_is_the_usual_era() -> None:
    async def talk() -> list[str]:
        async with pair(make_app()) as client:
            return [tool.name for tool in await client.list_tools()]

    assert asyncio.run(talk()) == ["ask", "odd"]


def test_options_reach_the_client() -> None:
    assert pair(make_app(), name="tester").settings.name == "tester"
