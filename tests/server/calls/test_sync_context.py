"""The context of a handler in a thread."""

import asyncio
import threading

import pytest

from ferrule import Context, Server, ToolError
from ferrule.errors import Cancelled
from ferrule.testing import pair


class TestSync:
    """The same calls for a plain function."""

    async def test_a_plain_function_reports_and_logs(self, era):
        app = Server("sync")
        heard, logged = [], []

        @app.tool
        def work(ctx: Context) -> str:
            ctx.sync.report_progress(1, 2)
            ctx.sync.info("half way")
            ctx.sync.report_progress(2, 2)
            return f"{ctx.sync.request_id is not None} {threading.current_thread().name[:7]}"

        client = pair(app, era, log_level="info" if era == "stateless" else None)
        client.on_log(lambda level, data, logger: logged.append(data))
        async with client:
            result = await client.call_tool("work", on_progress=lambda *told: heard.append(told[0]))
            await asyncio.sleep(0)
        assert (result.data, heard, logged) == ("True ferrule", [1.0, 2.0], ["half way"])

    async def test_a_plain_function_asks_and_takes_steps(self, era):
        app = Server("sync")
        deeds = []

        @app.tool
        def book(ctx: Context) -> str:
            number = ctx.sync.step("reserve", lambda: deeds.append(1) or len(deeds))
            seat = ctx.sync.ask("Which seat?", str)
            reply = ctx.sync.sample("Say hi")
            [root] = ctx.sync.list_roots()
            return f"{number} {seat} {reply.text} {root.uri}"

        options = {"elicitation": lambda params: {"value": "7A"}, "sampling": lambda params: "hi", "roots": ["/"]}
        async with pair(app, era, **options) as client:
            assert (await client.call_tool("book")).data == "1 7A hi file:///"
        assert deeds == [1]

    async def test_a_failure_is_raised_in_the_thread(self, era):
        app = Server("sync")

        @app.tool
        def work(ctx: Context) -> str:
            try:
                ctx.sync.read_resource("x://nothing")
            except Exception as error:
                return type(error).__name__
            return "no error"

        async with pair(app, era) as client:
            assert (await client.call_tool("work")).data == "ResourceNotFound"

    async def test_on_the_loop_itself_it_refuses_to_block(self, era, caplog):
        app = Server("sync")

        @app.tool
        async def work(ctx: Context) -> None:
            ctx.sync.info("would hang")

        async with pair(app, era) as client:
            with pytest.raises(ToolError):
                await client.call_tool("work")
        assert "would block the event loop: use `await ctx.info`" in caplog.text

    async def test_asking_in_a_thread_ends_with_the_call(self):
        """HND-14: a client that cancels instead of answering leaves no thread behind."""
        app = Server("sync")
        asked, ended = asyncio.Event(), threading.Event()
        raised = []

        @app.tool
        def book(ctx: Context) -> None:
            try:
                ctx.sync.ask("Which seat?", str)
            except Cancelled as error:
                raised.append(error)
            finally:
                ended.set()

        async def never(params):
            asked.set()
            await asyncio.Event().wait()

        async with pair(app, elicitation=never) as client:
            call = asyncio.ensure_future(client.call_tool("book"))
            await asked.wait()
            call.cancel()
            while not ended.is_set():
                await asyncio.sleep(0.001)
        assert len(raised) == 1

    async def test_asking_after_the_end_of_the_call_is_refused(self, era):
        app = Server("late")
        contexts = []

        @app.tool
        async def leave(ctx: Context) -> None:
            contexts.append(ctx)

        async with pair(app, era, elicitation=lambda params: {"value": "x"}) as client:
            await client.call_tool("leave")
            with pytest.raises(Cancelled, match="the call has ended"):
                await contexts[0].ask("Still there?", str)
