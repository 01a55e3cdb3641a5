"""Logging: one line for each call, and no secrets."""

import logging
import re

import pytest

from ferrule import Context, Logging, PeerError, Server, ToolError
from ferrule.server.middleware.logs import MAX_READ
from ferrule.testing import pair


def logged(layer):
    app = Server("s", middleware=[layer])

    @app.tool
    async def login(user: str, password: str = "", options: dict = {}) -> str:  # noqa: B006
        return "in"

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def ask(ctx: Context) -> str:
        return await ctx.ask("Name?", str)

    return app


def calls(caplog):
    return [record for record in caplog.records if getattr(record, "method", "") == "tools/call"]


async def test_a_line_has_its_facts(era, caplog):
    caplog.set_level(logging.INFO, "ferrule.calls")
    ticks = iter(range(10_000))
    async with pair(logged(Logging(clock=lambda: next(ticks) / 1000)), era) as client:
        await client.call_tool("login", {"user": "ada", "password": "hunter2"})
        with pytest.raises(ToolError):
            await client.call_tool("fail")
        with pytest.raises(PeerError):
            await client.call_tool("none\nsuch")
    first, second, third = calls(caplog)
    assert first.getMessage() == "tools/call login: ok in 1.0 ms"
    assert (first.target, first.outcome, first.duration_ms, first.carrier) == ("login", "ok", 1.0, "memory")
    assert second.outcome == "error"
    assert third.outcome == "refused (-32602)"
    assert "\n" not in third.getMessage(), "a caller cannot write lines of our log"
    assert "ada" not in caplog.text
    assert "hunter2" not in caplog.text


async def test_payloads_are_logged_on_request_and_secrets_never(era, caplog):
    caplog.set_level(logging.INFO, "ferrule.calls")
    layer = Logging(payloads=True, max_payload=120)
    async with pair(logged(layer), era) as client:
        secret = {"apiKey": "k1", "nested": [{"refresh_token": "t1", "fine": "yes"}]}
        await client.call_tool("login", {"user": "ada", "password": "hunter2", "options": secret})
        await client.call_tool("login", {"user": "x" * 500})
    first, second = calls(caplog)
    assert '"user":"ada"' in first.getMessage()
    assert '"fine":"yes"' in first.arguments
    for hidden in ("hunter2", "k1", "t1"):
        assert hidden not in caplog.text
    assert len(second.arguments) == 121


async def test_a_question_is_no_failure(caplog):
    caplog.set_level(logging.INFO, "ferrule.calls")
    async with pair(logged(Logging()), "stateless", elicitation=lambda params: {"value": "ada"}) as client:
        await client.call_tool("ask")
    assert [record.outcome for record in calls(caplog)] == ["asks", "ok"]


async def test_a_quiet_logger_costs_no_line(era, caplog):
    logger = logging.getLogger("quiet")
    logger.setLevel(logging.ERROR)
    async with pair(logged(Logging(logger, payloads=True)), era) as client:
        await client.call_tool("login", {"user": "ada"})
    assert calls(caplog) == []


async def test_large_arguments_and_ids_are_not_logged_but_measured(era, caplog):
    """OVL-10: reading a megabyte for the log alone would hold everybody up."""
    caplog.set_level(logging.INFO, "ferrule.calls")
    async with pair(logged(Logging(payloads=True, max_payload=50)), era) as client:
        await client.call_tool("login", {"user": "x" * MAX_READ})
        await client.call_tool("login", {"user": "ada", "options": {"many": [{}] * 10_000}})
    large, many = calls(caplog)
    assert re.fullmatch(r"\(\d{6} bytes\)", large.arguments)
    assert many.arguments.startswith('{"user":"ada","options":{"many":[{},{}')
    assert len(many.arguments) == 51
