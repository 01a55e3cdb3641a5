"""What a handler may use: progress, logging, and what it knows of its call."""

import asyncio
import contextlib
import logging
import math
import threading
from fractions import Fraction
from pathlib import Path

import pydantic
import pytest

from ferrule import Client, Context, Http, Middleware, PeerError, Server, SetupError, ToolError
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.lifecycle import ListCapability, ServerCapabilities
from ferrule.testing import pair

PROGRESS = "notifications/progress"
MESSAGE = "notifications/message"
LEVELS = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]


class TestProgress:
    """Telling how far the work is."""

    @staticmethod
    def app(**options):
        app = Server("worker", **options)

        @app.tool
        async def work(steps: list[float], ctx: Context, total: float | None = None) -> str:
            for step in steps:
                await ctx.report_progress(step, total, f"at {step:g}")
            return "done"

        return app

    @pytest.mark.parametrize("as_task", [False, True])
    async def test_what_cannot_be_sent_is_dropped_or_written_so_that_it_can(self, era, as_task, caplog):
        """PROG-2: what is sent is a number, and telling of it breaks no call."""
        app, heard = Server("odd"), []

        @app.tool(task=True)
        async def work(ctx: Context) -> str:
            for progress in (math.nan, math.inf, "50%", None):
                await ctx.report_progress(progress)
            await ctx.report_progress(Fraction(3, 2), math.nan, ValueError("half \ud800"))
            return "done"

        async with pair(app, era) as client:
            tell = {"on_progress": lambda *told: heard.append(told)}
            assert (await client.call_tool("work", task=as_task, **tell)).data == "done"
        assert [record.getMessage() for record in caplog.records] == [
            f"progress of tools/call must be a finite number: {dropped} was dropped"
            for dropped in ("nan", "inf", "'50%'", "None")
        ]
        if not as_task or era == "handshake":  # the other form of tasks has no notice of each
            assert heard == [(1.5, None, "ValueError: half \\ud800")]

    async def test_reports_arrive_in_order_before_the_result(self, era):
        """PROG-01, PROG-04, PROG-06, PROG-2, SPEC-20, SRVR-04"""
        heard = []
        async with pair(self.app(), era) as client:
            steps = [number / 4 for number in range(1, 201)]
            call = client.call_tool("work", {"steps": steps, "total": 50}, on_progress=lambda *told: heard.append(told))
            await call
        assert heard == [(step, 50.0, f"at {step:g}") for step in steps]

    @pytest.mark.parametrize("token", ["abc", "", 0, 7, 2**53], ids=repr)
    async def test_the_token_is_the_requests_own(self, era, wire, token):
        """PROG-03, PROG-2"""
        async with wire(self.app(), era) as peer:
            answer = await peer.call("work", {"steps": [0.5], "total": 1}, meta={"progressToken": token})
            [notice] = peer.told(PROGRESS)
        assert notice["params"] == {"progressToken": token, "progress": 0.5, "total": 1, "message": "at 0.5"}
        assert type(notice["params"]["progressToken"]) is type(token)
        assert peer.heard.index(notice) < peer.heard.index(answer)

    async def test_without_a_token_nothing_is_sent(self, era, wire):
        """PROG-03, PROG-02"""
        async with wire(self.app(), era) as peer:
            await peer.call("work", {"steps": [1, 2]})
            assert peer.told(PROGRESS) == []

    @pytest.mark.parametrize("version", ["2025-11-25", "2025-03-26", "2024-11-05"])
    async def test_a_revision_without_messages_in_progress_is_told_the_rest(self, wire, version):
        async with wire(self.app(), "handshake", version=version) as peer:
            await peer.call("work", {"steps": [1, 2], "total": 2}, meta={"progressToken": 1})
            told = [notice["params"] for notice in peer.told(PROGRESS)]
        assert [(each["progress"], each["total"]) for each in told] == [(1, 2), (2, 2)]
        assert [("message" in each) for each in told] == [version != "2024-11-05"] * 2

    async def test_only_growing_progress_is_sent(self, era, wire, caplog):
        """PROG-3, SPEC-20"""
        async with wire(self.app(), era) as peer:
            with caplog.at_level(logging.WARNING):
                await peer.call("work", {"steps": [1, 3, 3, 2, 4]}, meta={"progressToken": 1})
            assert [m["params"]["progress"] for m in peer.told(PROGRESS)] == [1, 3, 4]
        assert "must increase" in caplog.text

    async def test_after_the_end_nothing_is_sent(self, era, wire):
        """PROG-3, PROG-02, SPEC-20"""
        app = Server("late")
        contexts = []

        @app.tool
        async def leave(ctx: Context) -> str:
            contexts.append(ctx)
            return "done"

        async with wire(app, era) as peer:
            await peer.call("leave", meta={"progressToken": 1})
            await contexts[0].report_progress(1)
            assert peer.told(PROGRESS) == []

    async def test_a_cancelled_call_reports_no_more(self, era, wire):
        """PROG-3"""
        app = Server("cancelled")
        started, ended = asyncio.Event(), asyncio.Event()

        @app.tool
        async def stubborn(ctx: Context) -> str:
            started.set()
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            await ctx.report_progress(1)
            ended.set()
            return "too late"

        async with wire(app, era) as peer:
            identity = peer.ask("tools/call", {"name": "stubborn"}, meta={"progressToken": 1})
            await started.wait()
            peer.notify("notifications/cancelled", {"requestId": identity, "reason": "enough"})
            await ended.wait()
            assert peer.told(PROGRESS) == []

    @pytest.mark.usefixtures("virtual_time")
    async def test_the_rate_is_limited_per_link(self, era, wire):
        """PROG-4"""
        app = Server("chatty", progress_rate=10)

        @app.tool
        async def chatter(ctx: Context) -> str:
            for number in range(1, 101):
                await ctx.report_progress(number)
            await asyncio.sleep(0.5)
            for number in range(101, 201):
                await ctx.report_progress(number)
            return "done"

        async with wire(app, era) as peer, wire(app, era) as other:
            await peer.call("chatter", meta={"progressToken": 1})
            assert [m["params"]["progress"] for m in peer.told(PROGRESS)] == [*range(1, 11), *range(101, 106)]
            await other.call("chatter", meta={"progressToken": 1})
            assert len(other.told(PROGRESS)) == 15

    async def test_reporting_waits_while_the_client_does_not_read(self, era, wire, monkeypatch):
        """What waits is the report, and nothing else on the server."""
        app = self.app()
        writable = asyncio.Event()
        async with wire(app, era) as peer:
            monkeypatch.setattr(type(peer.channel), "wait_writable", lambda self: writable.wait())
            identity = peer.ask(
                "tools/call", {"name": "work", "arguments": {"steps": [1, 2]}}, meta={"progressToken": 1}
            )
            await asyncio.sleep(0.01)
            assert len(peer.told(PROGRESS)) == 1
            assert "result" in await peer.request("tools/list")
            writable.set()
            await peer.response(identity)
            assert len(peer.told(PROGRESS)) == 2

    async def test_a_client_slow_to_take_progress_does_not_slow_the_tool(self, era):
        """PROG-05"""
        taken = []

        async def slow(done, total, message):
            taken.append(done)
            await asyncio.sleep(60)

        async with pair(self.app(), era) as client:
            started = asyncio.get_running_loop().time()
            result = await client.call_tool("work", {"steps": list(range(1, 101))}, on_progress=slow)
            assert asyncio.get_running_loop().time() - started < 50
            await asyncio.sleep(0)
        assert result.data == "done"
        assert taken == list(range(1, 101))

    async def test_progress_is_the_short_name(self, era):
        app = Server("short")
        heard = []

        @app.tool
        async def work(ctx: Context) -> None:
            await ctx.progress(1, 2)

        async with pair(app, era) as client:
            await client.call_tool("work", on_progress=lambda *told: heard.append(told))
        assert heard == [(1.0, 2.0, None)]


class TestElicitationComplete:
    """Telling a client that what its user was sent to a URL for is done."""

    COMPLETE = "notifications/elicitation/complete"

    @staticmethod
    def app(contexts):
        app = Server("till")

        @app.tool
        async def pay(ctx: Context) -> str:
            contexts.append(ctx)
            await ctx.elicitation_complete("bill-7")
            return "paid"

        return app

    async def test_only_the_client_that_was_asked_is_told(self, wire):
        """ELIC-9"""
        app = self.app([])
        async with wire(app) as peer, wire(app) as other:
            await peer.call("pay")
            assert [m["params"] for m in peer.told(self.COMPLETE)] == [{"elicitationId": "bill-7"}]
            assert other.told(self.COMPLETE) == []

    async def test_a_visit_may_end_after_the_call_that_asked_for_it(self, wire):
        """ELIC-9"""
        contexts = []
        async with wire(self.app(contexts)) as peer:
            await peer.call("pay")
            await contexts[0].elicitation_complete("bill-8")
            assert peer.told(self.COMPLETE)[-1]["params"] == {"elicitationId": "bill-8"}

    async def test_to_a_client_that_is_gone_it_is_told_in_vain(self, wire):
        contexts = []
        async with wire(self.app(contexts)) as peer:
            await peer.call("pay")
            await peer.leave()
            await contexts[0].elicitation_complete("bill-8")
            assert len(peer.told(self.COMPLETE)) == 1

    @pytest.mark.parametrize("version", ["2026-07-28", "2025-06-18", "2025-03-26", "2024-11-05"])
    async def test_a_revision_without_the_notice_is_spared_it(self, wire, version):
        """ELIC-9"""
        era = "stateless" if version == "2026-07-28" else "handshake"
        async with wire(self.app([]), era, version=version) as peer:
            assert "result" in await peer.call("pay")
            assert peer.told(self.COMPLETE) == []


class TestLogging:
    """Log messages for the client."""

    @staticmethod
    def app(**options):
        app = Server("logger", **options)

        @app.tool
        async def log(ctx: Context, levels: list[str] = LEVELS) -> None:
            for level in levels:
                await ctx.log(level, {"said": level}, logger="mine")

        return app

    async def test_a_message_has_level_logger_and_data(self, era):
        """LOGG-01, LOGG-03, LOG-2, SRVR-05"""
        heard = []
        client = pair(self.app(), era, log_level="debug" if era == "stateless" else None)
        client.on_log(lambda level, data, logger: heard.append((level, data, logger)))
        async with client:
            await client.call_tool("log", {"levels": ["info", "error"]})
            await asyncio.sleep(0)
        assert heard == [("info", {"said": "info"}, "mine"), ("error", {"said": "error"}, "mine")]

    async def test_whatever_is_logged_is_told_and_breaks_no_call(self, era):
        class Model(pydantic.BaseModel):
            n: int = 1

        app, heard = Server("odd"), []

        @app.tool
        async def work(ctx: Context) -> str:
            for data in (ValueError("lost"), Model(), Path("a/b"), float("nan"), "half \ud800"):
                await ctx.info(data)
            return "done"

        client = pair(app, era, log_level="debug")
        client.on_log(lambda level, data, logger: heard.append(data))
        async with client:
            assert (await client.call_tool("work")).data == "done"
            await asyncio.sleep(0)
        assert heard == ["ValueError: lost", {"n": 1}, "a/b", "nan", "half \\ud800"]

    @pytest.mark.parametrize("level", LEVELS)
    async def test_a_client_gets_the_level_it_set_and_above(self, era, wire, level):
        """LOGG-02, LOGG-05, LOG-3, LOG-6, SPEC-11"""
        async with wire(self.app(), era, log_level=level) as peer:
            if era == "handshake":
                assert (await peer.request("logging/setLevel", {"level": level}))["result"] == {}
            answer = await peer.call("log")
            told = peer.told(MESSAGE)
        assert [m["params"]["level"] for m in told] == LEVELS[LEVELS.index(level) :]
        assert all(peer.heard.index(message) < peer.heard.index(answer) for message in told)

    async def test_only_so_many_a_second_are_sent(self, era, wire, virtual_time):
        """SPEC-27: log messages; progress is counted for itself."""
        app = self.app(log_rate=5, progress_rate=2)

        @app.tool
        async def both(ctx: Context) -> None:
            for number in range(10):
                await ctx.info(str(number))
                await ctx.report_progress(number)
            await asyncio.sleep(1)
            await ctx.info("later")

        async with wire(app, era, log_level="info") as peer:
            await peer.call("both", meta={"progressToken": 1})
            assert [m["params"]["data"] for m in peer.told(MESSAGE)] == ["0", "1", "2", "3", "4", "later"]
            assert [m["params"]["progress"] for m in peer.told("notifications/progress")] == [0, 1]

    async def test_before_any_level_is_set_info_and_above_are_sent(self, wire):
        """LOG-3"""
        async with wire(self.app()) as peer:
            await peer.call("log")
            assert [m["params"]["level"] for m in peer.told(MESSAGE)] == LEVELS[1:]

    async def test_without_a_level_in_the_request_nothing_is_sent(self, wire):
        """LOG-5"""
        async with wire(self.app(), "stateless") as peer:
            await peer.call("log")
            assert peer.told(MESSAGE) == []

    async def test_one_sessions_level_is_not_anothers(self, wire):
        """LOG-3"""
        app = self.app()
        async with wire(app) as first, wire(app) as second:
            await first.request("logging/setLevel", {"level": "emergency"})
            for peer in (first, second):
                await peer.call("log")
            assert [len(peer.told(MESSAGE)) for peer in (first, second)] == [1, 7]

    async def test_an_unknown_level_is_refused(self, era, wire):
        """LOG-4, LOG-6, LOGG-02"""
        async with wire(self.app(), era, log_level="loud") as peer:
            method, params = ("logging/setLevel", {"level": "loud"}) if era == "handshake" else ("tools/list", {})
            assert (await peer.request(method, params))["error"]["code"] == -32602

    async def test_a_level_that_cannot_be_set_is_an_internal_error(self, wire, caplog):
        """LOG-4"""

        class Broken(Middleware):
            async def on_request(self, call, proceed):
                if call.method == "logging/setLevel":
                    raise OSError("the disk is full")
                return await proceed(call)

        app = self.app()
        app.add_middleware(Broken())
        with caplog.at_level(logging.CRITICAL, "ferrule"):
            async with wire(app) as peer:
                error = (await peer.request("logging/setLevel", {"level": "error"}))["error"]
        assert error["code"] == -32603
        assert "disk" not in str(error)

    async def test_a_handler_cannot_log_at_an_unknown_level(self, era):
        """LOGG-02"""
        async with pair(self.app(), era) as client:
            with pytest.raises(ToolError, match="Internal error"):
                await client.call_tool("log", {"levels": ["loud"]})

    @pytest.mark.parametrize("name", ["debug", "info", "warning", "error"])
    async def test_the_common_levels_have_methods(self, era, wire, name):
        app = Server("short")

        @app.tool
        async def log(ctx: Context) -> None:
            await getattr(ctx, name)("text")

        async with wire(app, era, log_level="debug") as peer:
            if era == "handshake":
                await peer.request("logging/setLevel", {"level": "debug"})
            await peer.call("log")
            assert [m["params"] for m in peer.told(MESSAGE)] == [{"level": name, "data": "text"}]

    async def test_without_the_capability_nothing_is_sent(self, era, wire):
        """LOGG-04, LOG-1, CAPN-10"""
        app = self.app(capabilities=ServerCapabilities(tools=ListCapability()))
        async with wire(app, era, log_level="debug") as peer:
            await peer.call("log")
            assert peer.told(MESSAGE) == []
            assert (await peer.request("logging/setLevel", {"level": "info"}))["error"]["code"] == -32601

    def test_a_server_whose_handlers_take_a_context_declares_logging(self):
        """LOG-1"""
        assert self.app().host.capabilities.logging == {}
        quiet = Server("quiet")
        quiet.add_tool("quiet", lambda: None)
        assert quiet.host.capabilities.logging is None

    async def test_after_the_end_of_a_stateless_call_nothing_is_logged(self, wire):
        """LOG-5, LOG-6"""
        app = Server("late")
        contexts = []

        @app.tool
        async def leave(ctx: Context) -> None:
            contexts.append(ctx)

        async with wire(app, "stateless", log_level="debug") as peer:
            await peer.call("leave")
            await contexts[0].error("too late")
            assert peer.told(MESSAGE) == []


class TestFacts:
    """What a handler knows of its call, its client and its server."""

    async def test_a_handler_knows_who_asks(self, era):
        """CAPN-04"""
        app = Server("facts")
        seen = {}

        @app.tool
        async def look(ctx: Context) -> None:
            seen.update(
                client=(ctx.client.name, ctx.client.version),
                version=ctx.peer.version,
                server=ctx.server,
                principal=ctx.principal,
                headers=dict(ctx.headers),
                cancelled=ctx.cancelled,
                roots=ctx.peer.capabilities.roots is not None,
                method=ctx.call.method,
            )

        async with pair(app, era, name="tester", version="2", roots=[]) as client:
            await client.call_tool("look")
            version = client.protocol_version
        assert seen == {
            "client": ("tester", "2"),
            "version": version,
            "server": app,
            "principal": None,
            "headers": {},
            "cancelled": False,
            "roots": True,
            "method": "tools/call",
        }

    async def test_metadata_of_the_request_reaches_the_handler_whole(self, era):
        """META-1, META-5, SPEC-19"""
        app = Server("meta")
        seen = {}

        @app.tool
        async def look(ctx: Context) -> None:
            seen.update(ctx.meta)

        own = {"com.example/a": {"b": [1]}, "traceparent": "00-ab", "io.modelcontextprotocol/unknown": 5}
        async with pair(app, era) as client:
            await client.call_tool("look", meta=own)
        assert {key: seen[key] for key in own} == own

    @pytest.mark.parametrize("identity", ["text", 5], ids=repr)
    async def test_the_request_id_is_the_clients(self, era, wire, identity):
        app = Server("ids")
        seen = []

        @app.tool
        async def look(ctx: Context) -> None:
            seen.append(ctx.request_id)

        async with wire(app, era) as peer:
            await peer.call("look", id=identity)
        assert seen == [identity]

    async def test_a_thread_sees_that_its_call_was_cancelled(self, era):
        """CANC-2"""
        app = Server("threads")
        started, seen = threading.Event(), threading.Event()

        @app.tool
        def wait(ctx: Context) -> str:
            started.set()
            while not ctx.cancelled:
                seen.wait(0.005)
            seen.set()
            return "late"

        async with pair(app, era) as client:
            call = asyncio.ensure_future(client.call_tool("wait"))
            while not started.is_set():
                await asyncio.sleep(0.001)
            assert not seen.is_set()
            call.cancel()
            while not seen.is_set():
                await asyncio.sleep(0.001)

    async def test_a_handler_reads_the_servers_own_resources(self, era):
        app = Server("reader")
        app.add_resource("notes://{id}", lambda id: f"note {id}")  # noqa: A006

        @app.tool
        async def read(ctx: Context) -> str:
            return (await ctx.read_resource("notes://7")).text

        @app.tool
        def read_sync(ctx: Context) -> str:
            return ctx.sync.read_resource("notes://8").text

        async with pair(app, era) as client:
            assert (await client.call_tool("read")).data == "note 7"
            assert (await client.call_tool("read_sync")).data == "note 8"


class TestState:
    """Values kept between requests."""

    @staticmethod
    def app():
        app = Server("state")

        @app.tool
        async def count(ctx: Context) -> int:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            return ctx.state["n"]

        return app

    async def test_a_session_keeps_its_own_values(self):
        app = self.app()
        async with pair(app) as first, pair(app) as second:
            assert [(await first.call_tool("count")).data for _ in range(3)] == [1, 2, 3]
            assert (await second.call_tool("count")).data == 1
        async with pair(app) as third:
            assert (await third.call_tool("count")).data == 1

    async def test_without_session_or_principal_there_is_a_clear_error(self):
        async with pair(self.app(), "stateless") as client:
            with pytest.raises(ToolError, match=r"ctx\.state needs a session .*mode=\"handshake\""):
                await client.call_tool("count")

    async def test_in_the_stateless_era_a_principal_keeps_values_across_links(self, wire):
        app = self.app()
        counts = []
        for who in ("alice", "alice", "bob"):
            async with wire(app, "stateless", principal=who) as peer:
                counts.append((await peer.call("count"))["result"]["structuredContent"]["result"])
        assert counts == [1, 2, 1]


@pytest.mark.parametrize("version", REVISIONS)
async def test_every_handshake_revision_has_set_level(wire, version):
    """LOG-3"""
    async with wire(TestLogging.app(), version=version) as peer:
        assert (await peer.request("logging/setLevel", {"level": "error"}))["result"] == {}
        await peer.call("log")
        assert [m["params"]["level"] for m in peer.told(MESSAGE)] == LEVELS[4:]


async def test_the_stateless_era_has_no_set_level(wire):
    async with wire(TestLogging.app(), "stateless") as peer:
        assert (await peer.request("logging/setLevel", {"level": "error"}))["error"]["code"] == -32601


def test_a_handler_may_take_only_one_context():
    with pytest.raises(SetupError, match="two contexts"):

        @Server("x").tool
        async def two(first: Context, second: Context) -> None: ...


async def test_a_handler_knows_how_its_request_came(era):
    app = Server("s")

    @app.tool
    async def how(ctx: Context) -> str:
        return ctx.transport

    async with pair(app, era) as client:
        assert (await client.call_tool("how")).data == "memory"
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with Client(listener.url, mode=era) as client:
        assert (await client.call_tool("how")).data == "http"
    await app.stop()
    await serving


class TestTheServersOwnOffers:
    """What a handler may ask of its own server."""

    @staticmethod
    def app():
        app = Server("shelf")

        @app.tool
        async def look(ctx: Context) -> list[str]:
            found = [tool.name for tool in await ctx.list_tools()]
            found += [resource.uri for resource in await ctx.list_resources()]
            found += [template.uri_template for template in await ctx.list_resource_templates()]
            found += [prompt.name for prompt in await ctx.list_prompts()]
            return found

        @app.tool(visible=lambda ctx: False)
        async def secret() -> str:
            return ""

        @app.tool
        def fill(ctx: Context) -> str:
            result = ctx.sync.get_prompt("review", {"language": "Go"})
            return f"{result.messages[0].content.text} {ctx.transport}"

        @app.tool
        async def misfill(ctx: Context, name: str) -> None:
            await ctx.get_prompt(name)

        app.add_resource("note://now", lambda: "n")
        app.add_resource("note://{day}", lambda day: day)

        @app.prompt
        async def review(language: str, ctx: Context) -> str:
            return f"review {language} for {ctx.call.method}"

        return app

    async def test_the_lists_are_what_the_client_sees_also_in_a_mounted_server(self, era):
        app = self.app()
        host = Server("host")
        host.mount(app, prefix="in")
        seen = ["look", "fill", "misfill", "note://now", "note://{day}", "review"]
        async with Client(app, mode=era) as client, Client(host, mode=era) as outside:
            assert (await client.call_tool("look")).data == seen
            assert (await outside.call_tool("in_look")).data == seen
            assert (await client.call_tool("fill")).data == "review Go for tools/call memory"
            assert (await outside.call_tool("in_fill")).data == "review Go for tools/call memory"
            with pytest.raises(PeerError, match="Unknown prompt: reveiw; did you mean 'review'"):
                await client.call_tool("misfill", {"name": "reveiw"})
            with pytest.raises(PeerError, match="Missing required argument 'language'"):
                await client.call_tool("misfill", {"name": "review"})

    async def test_a_session_has_an_id_of_its_own_and_the_stateless_era_has_none(self, era):
        app = Server("s")

        @app.tool
        async def session(ctx: Context) -> tuple[str | None, str | None]:
            return ctx.session_id, ctx.headers.get("mcp-session-id")

        listener = Http(port=0)
        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(listener, ready=ready.set))
        await ready.wait()
        ids = []
        try:
            for target in (app, app, listener.url):
                async with Client(target, mode=era) as client:
                    first, named = (await client.call_tool("session")).data
                    again, _ = (await client.call_tool("session")).data
                    assert first == again
                    assert named in (None, first)
                    ids.append(first)
        finally:
            await app.stop()
            await serving
        if era == "handshake":
            assert len(set(ids)) == 3
            assert all(ids)
        else:
            assert ids == [None, None, None]
