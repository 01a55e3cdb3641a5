"""No deadline passes while the server waits for us."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client
from ferrule.errors import TimedOut

FORM = {"message": "Name?", "requestedSchema": {"type": "object"}}


def now() -> float:
    return asyncio.get_running_loop().time()


async def thinking(params):
    """Answer a form after as many seconds as its message says."""
    await asyncio.sleep(float(params.message))
    return {}


@pytest.fixture
def form():
    return lambda seconds: {**FORM, "message": str(seconds)}


@pytest.mark.virtual_time
async def test_a_person_may_take_longer_over_a_form_than_a_tool_over_its_work(raw, form):
    server = raw()
    async with Client(server, mode="handshake", elicitation=thinking, probe_on_timeout=False) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        server.ask("elicitation/create", form(600))
        await server.replied()
        assert now() == 600
        with pytest.raises(TimedOut):
            await call
        assert now() == 630


@pytest.mark.virtual_time
async def test_the_clock_runs_again_when_the_last_question_is_answered(raw, form):
    server = raw()
    async with Client(server, mode="handshake", elicitation=thinking, probe_on_timeout=False) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        server.ask("elicitation/create", form(100), "short")
        server.ask("elicitation/create", form(200), "long")
        with pytest.raises(TimedOut):
            await call
        assert now() == 230


@pytest.mark.virtual_time
async def test_no_question_moves_the_longest_time(raw, form):
    server = raw()
    options = {"elicitation": thinking, "probe_on_timeout": False, "max_request_time": 50}
    async with Client(server, mode="handshake", **options) as client:
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        server.ask("elicitation/create", form(600))
        with pytest.raises(TimedOut):
            await call
        assert now() == 50
