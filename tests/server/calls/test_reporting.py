"""What a handler reports along the way, made fit to be sent."""

from __future__ import annotations

import decimal
import fractions
from typing import Any

import msgspec
import pytest

from ferrule import Context, Server
from ferrule.server.calls.context import MAX_TEXT, amount, loggable
from ferrule.testing import pair


class Own:
    """A number of some library's own."""

    def __float__(self) -> float:
        return 2.5


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (3, 3),
        (0.5, 0.5),
        (2**60, 2**60),
        (Own(), 2.5),
        (decimal.Decimal("1.5"), 1.5),
        (fractions.Fraction(1, 2), 0.5),
        (float("nan"), None),
        (float("inf"), None),
        (10**400, None),
        (decimal.Decimal("1e999"), None),
        ("5", None),
        (True, None),
        (None, None),
        (object(), None),
    ],
    ids=range(14),
)
def test_an_amount_is_a_number_json_has_or_none(value: Any, number: Any) -> None:
    """PROG-01"""
    assert amount(value) == number
    assert type(amount(value)) is type(number)


@pytest.mark.parametrize("data", [ValueError("x"), object(), "half \ud83d", {"a": {object()}}, [[]] * 3], ids=range(5))
def test_whatever_is_logged_can_be_written(data: Any) -> None:
    """LOGG-01"""
    msgspec.json.encode(loggable(data))


def test_what_can_be_written_is_logged_as_it_is() -> None:
    data = {"a": [1, "é", None]}
    assert msgspec.json.decode(msgspec.json.encode(loggable(data))) == data


def test_an_exception_is_logged_by_its_name_and_text() -> None:
    assert loggable(ValueError("no such row")) == "ValueError: no such row"


def test_the_text_that_stands_for_a_value_is_not_endless() -> None:
    assert len(loggable(ValueError("x" * 10 * MAX_TEXT))) == MAX_TEXT


def reporter() -> Server:
    app = Server("reporter")

    @app.tool
    async def odd(ctx: Context) -> str:
        for value in (float("nan"), "1", None, True, 1, float("inf"), Own()):
            await ctx.report_progress(value, float("nan"), "\ud83d")  # type: ignore[arg-type]
        await ctx.error(ValueError("told"))
        return "done"

    return app


async def test_a_report_nobody_can_send_is_dropped_and_the_work_goes_on(era: str) -> None:
    """PROG-01, PROG-05, LOGG-01: what is sent is valid, what is not is left out, and the call is answered."""
    heard: list[Any] = []
    async with pair(reporter(), era, log_level="debug") as client:
        client.on_log(lambda _level, data, _logger: heard.append(data))
        result = await client.call_tool("odd", on_progress=lambda *report: heard.append(report))
        assert result.text == "done"
    assert heard == [(1, None, "\\ud83d"), (2.5, None, "\\ud83d"), "ValueError: told"]
