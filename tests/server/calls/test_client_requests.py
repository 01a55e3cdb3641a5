"""Steps: what must not happen twice over the rounds of a call; questions are in `test_asking.py`."""

from dataclasses import dataclass

import pytest

from ferrule import Context, Server, ToolError
from ferrule.testing import pair


class TestSteps:
    """Deeds that must not happen twice."""

    async def test_a_step_runs_once_over_all_rounds(self, era):
        app = Server("shop")
        deeds = []

        @app.tool
        async def buy(ctx: Context) -> str:
            receipt = await ctx.step("reserve", lambda: deeds.append("reserve") or {"id": len(deeds)})
            size = await ctx.ask("Which size?", str)
            second = await ctx.step("charge", charge)
            colour = await ctx.ask("Which colour?", str)
            return f"{receipt['id']} {size} {second} {colour}"

        async def charge():
            deeds.append("charge")
            return ("paid", 2)

        answers = iter(["L", "red"])
        async with pair(app, era, elicitation=lambda params: {"value": next(answers)}) as client:
            assert (await client.call_tool("buy")).data == "1 L ['paid', 2] red"
        assert deeds == ["reserve", "charge"]

    async def test_steps_of_the_same_name_are_told_apart_by_their_order(self, era):
        app = Server("counter")
        deeds = []

        @app.tool
        async def count(ctx: Context) -> list[int]:
            results = [await ctx.step("next", lambda: deeds.append(1) or len(deeds)) for _ in range(3)]
            await ctx.ask("Go on?", bool)
            return results

        async with pair(app, era, elicitation=lambda params: {"value": True}) as client:
            assert (await client.call_tool("count")).data == [1, 2, 3]
        assert len(deeds) == 3

    async def test_a_coroutine_is_closed_unrun_when_the_step_is_known(self, era):
        app = Server("coroutines")
        deeds = []

        async def deed():
            deeds.append(1)
            return "done"

        @app.tool
        async def act(ctx: Context) -> str:
            first = await ctx.step("deed", deed())
            await ctx.ask("Go on?", bool)
            return first

        async with pair(app, era, elicitation=lambda params: {"value": True}) as client:
            assert (await client.call_tool("act")).data == "done"
        assert deeds == [1]

    async def test_a_step_that_failed_is_tried_again_by_the_next_call(self, era):
        app = Server("fragile")
        tries = []

        def deed():
            tries.append(1)
            if len(tries) == 1:
                raise ToolError("try again")
            return "ok"

        @app.tool
        async def act(ctx: Context) -> str:
            return await ctx.step("deed", deed)

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="try again"):
                await client.call_tool("act")
            assert (await client.call_tool("act")).data == "ok"

    async def test_what_a_step_gives_has_the_same_form_in_every_round(self, era):
        @dataclass
        class Receipt:
            number: int

        app = Server("forms")
        seen = []

        @app.tool
        async def act(ctx: Context) -> str:
            seen.append(await ctx.step("deed", lambda: Receipt(7)))
            await ctx.ask("Go on?", bool)
            return "done"

        async with pair(app, era, elicitation=lambda params: {"value": True}) as client:
            await client.call_tool("act")
        assert all(receipt == {"number": 7} for receipt in seen)
