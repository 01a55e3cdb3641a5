"""`Client([target, …])`: every method of a client, over several servers that offer the same."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from flaky import Flaky

from ferrule import Client, Context, Server, SyncClient, ToolError
from ferrule.balancing.breaker import BreakerSettings
from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.balancing.hedge import Hedge
from ferrule.balancing.policy import POLICIES
from ferrule.client.features.tasks import Task
from ferrule.client.link.reconnect import ConnectionNotice
from ferrule.client.settings import ROUTING
from ferrule.errors import (
    AlreadyInitialized,
    CapabilityNotSupported,
    ConnectFailed,
    NoTarget,
    NotConnected,
    OutcomeUnknown,
    Overloaded,
    PeerError,
    SetupError,
)
from ferrule.protocol.session import Phase
from ferrule.routing.client import MAX_TASKS, RoutedClient
from ferrule.routing.settings import RoutingSettings

virtual_time = pytest.mark.virtual_time

INHERITED = {
    *("__aenter__", "__aexit__", "initialize", "reconnect", "read_skill_file", "send_batch", "asked_on"),
    *("on_phase_change", "on_connected", "on_disconnected", "servers", "source"),
}
"""What a client does by its other methods alone."""


def full_server(name: str) -> Server:
    """Return a server that offers something of everything."""
    app = Server(name, instructions=f"Ask {name}.")

    @app.tool
    async def who() -> str:
        """Return the name of the server."""
        return name

    @app.tool(task="optional")
    async def slow() -> str:
        """Return the name of the server after a while."""
        await asyncio.sleep(1.0)
        return name

    @app.resource("note://who")
    async def note() -> str:
        """Return the name of the server."""
        return name

    @app.resource("note://{number}/text")
    async def text(number: str) -> str:
        """Return a text."""
        return number

    @app.prompt
    async def greet(word: str) -> str:
        """Greet."""
        return f"{word} from {name}"

    @app.completion("greet")
    async def complete(value: str) -> list[str]:
        """Complete a word."""
        return [f"{value}!"]

    return app


async def say_twice(ctx: Context) -> None:
    """Log something unimportant, and something important."""
    await ctx.info("unimportant")
    await ctx.error("important")


async def step_twice(ctx: Context) -> int:
    """Tell of two steps, and return what the caller wrote."""
    await ctx.report_progress(1, 2)
    await ctx.report_progress(2, 2)
    written: int = ctx.meta["vendor/x"]
    return written


def pair(**options: Any) -> tuple[list[Server], RoutedClient]:
    """Return two servers and a client of both, which takes them in turn."""
    servers = [full_server("a"), full_server("b")]
    client = Client(servers, **{"balance": "round_robin", **options})
    assert isinstance(client, RoutedClient)
    return servers, client


class TestTheSurface:
    def test_a_list_of_targets_makes_a_client_that_routes(self) -> None:
        assert type(Client([Server("a"), Server("b")])) is RoutedClient
        assert type(Client(["http://a/mcp"])) is RoutedClient
        assert type(Client(["python", "server.py"])) is Client
        assert isinstance(Client([Server("a")]), Client)

    def test_every_public_method_of_a_client_is_there_for_several_targets(self) -> None:
        missing = []
        for name, member in vars(Client).items():
            public = not name.startswith("_") or name in ("__aenter__", "__aexit__")
            if public and name not in vars(RoutedClient) and name not in INHERITED:
                missing.append(name)
            own = vars(RoutedClient).get(name)
            if own is not None and inspect.isfunction(member) and public:
                assert inspect.signature(own).parameters == inspect.signature(member).parameters, name
        assert missing == []

    def test_the_options_of_several_targets_are_refused_for_one(self) -> None:
        assert set(ROUTING) == set(RoutingSettings.__struct_fields__)
        for name in ROUTING:
            with pytest.raises(SetupError, match=rf"instead of {name}=… write Client\(\[target, …\], {name}=…\)"):
                Client(Server("a"), **{name: None})  # type: ignore[arg-type]

    def test_a_client_of_one_target_has_no_router(self) -> None:
        with pytest.raises(SetupError, match="only a client of several targets has a router"):
            _ = Client(Server("a")).router

    def test_every_policy_is_a_choice_of_balance(self) -> None:
        for name in POLICIES:
            assert Client([Server("a")], balance=name).router.settings.balance == name  # type: ignore[attr-defined]
        with pytest.raises(SetupError, match=r"balance must be one of .*least_loaded"):
            Client([Server("a")], balance="fastest")  # type: ignore[arg-type]

    def test_an_option_there_is_not_is_named(self) -> None:
        with pytest.raises(SetupError, match="Client: unknown option 'balanse'; did you mean"):
            Client([Server("a")], balanse="hash")  # type: ignore[call-arg]
        with pytest.raises(SetupError, match="reconnect cannot be used with several targets"):
            Client([Server("a")], reconnect=True)

    def test_options_may_come_from_the_environment(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FERRULE_ROUTING_BALANCE", "random")
        client = Client([Server("a")])
        assert isinstance(client, RoutedClient)
        assert client.router.settings.balance == "random"


class TestRequests:
    @virtual_time
    async def test_everything_that_can_be_asked_is_asked_of_one_of_them(self) -> None:
        _, client = pair()
        async with client:
            assert {(await client.call_tool("who")).data for _ in range(4)} == {"a", "b"}
            assert {tool.name for tool in await client.list_tools()} == {"who", "slow"}
            assert {tool.name async for tool in client.iter_tools()} == {"who", "slow"}
            assert [str(each.uri) for each in await client.list_resources()] == ["note://who"]
            assert [str(each.uri) async for each in client.iter_resources()] == ["note://who"]
            assert [each.uri_template for each in await client.list_resource_templates()] == ["note://{number}/text"]
            assert [each.uri_template async for each in client.iter_resource_templates()] == ["note://{number}/text"]
            assert (await client.read_resource("note://7/text")).text == "7"
            assert [prompt.name for prompt in await client.list_prompts()] == ["greet"]
            assert [prompt.name async for prompt in client.iter_prompts()] == ["greet"]
            assert "hello from" in str((await client.get_prompt("greet", {"word": "hello"})).messages)
            assert (await client.complete("greet", {"name": "word", "value": "hi"})).values == ["hi!"]
            assert (await client.complete("greet", {"name": "word", "value": "hi"}, debounce=0.1)).values == ["hi!"]
            assert await client.ping() >= 0
            assert (await client.request("tools/call", {"name": "who", "arguments": {}}))["content"]
            forwarded = await client.forward("tools/call", b'{"name": "who", "arguments": {}}')
            assert b'"content"' in bytes(forwarded.raw)
            assert client.router.stats().errors == 0

    @virtual_time
    async def test_what_is_known_is_that_of_the_first_one_connected(self) -> None:
        _, client = pair()
        assert (client.phase, client.connection_state) == (Phase.PRE_INITIALIZATION, "disconnected")
        assert (client.protocol_version, client.server_info) == (None, None)
        introduced = await client.initialize()
        assert introduced.server_info.name == "a"
        assert introduced.instructions == client.instructions == "Ask a."
        assert client.server_info is not None
        assert client.server_info.name == "a"
        assert client.server_capabilities is not None
        assert client.protocol_version
        assert "tools" in client.negotiated
        assert client.extension("none") is None
        assert client.pending == []
        assert client.cache is not None
        assert (client.phase, client.connection_state, client.reconnecting) == (Phase.INITIALIZED, "ready", False)
        with pytest.raises(AlreadyInitialized):
            await client.connect()
        await client.close()
        await client.close()
        assert (client.phase, client.connection_state) == (Phase.CLOSED, "disconnected")

    @virtual_time
    async def test_a_closed_client_can_be_connected_again(self) -> None:
        _, client = pair()
        async with client:
            await client.reconnect()
            assert (await client.call_tool("who")).data in ("a", "b")
        await client.connect()
        assert client.phase is Phase.INITIALIZED
        await client.close()

    @virtual_time
    async def test_who_cannot_be_cancelled_by_id_is_told_how(self) -> None:
        _, client = pair()
        async with client:
            with pytest.raises(SetupError, match="cancel the task that waits"):
                await client.cancel(1)

    @virtual_time
    async def test_a_batch_goes_to_one_target(self) -> None:
        _, client = pair(protocol_version="2025-03-26")
        async with client:
            first, second = await client.send_batch([("tools/list", None), ("tools/call", {"name": "who"})])
            assert len(first["tools"]) == 2
            assert second["content"][0]["text"] == "a"

    @virtual_time
    async def test_the_options_of_a_call_reach_its_target(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        for target in targets:
            target.server.add_tool(step_twice)
        told: list[float] = []
        async with Client(targets) as client:
            result = await client.call_tool("broken", raise_on_error=False)
            assert result.is_error
            with pytest.raises(ToolError):
                await client.call_tool("broken")
            written = {"vendor/x": 7}
            result = await client.call_tool("step_twice", meta=written, on_progress=lambda done, *_: told.append(done))
            assert result.data == 7
            assert told == [1, 2]
            with pytest.raises(PeerError):
                await client.forward("tools/call")

    async def test_skills_are_those_of_one_target(self, tmp_path: Path) -> None:
        (tmp_path / "refunds").mkdir()
        text = "---\nname: refunds\ndescription: Money back\n---\nSee mail.md.\n"
        (tmp_path / "refunds" / "SKILL.md").write_text(text)
        (tmp_path / "refunds" / "mail.md").write_text("Dear customer")
        servers = [Server("a"), Server("b")]
        for server in servers:
            server.skills(tmp_path)
        async with Client(servers, balance="round_robin") as client:
            [skill] = await client.list_skills()
            assert [each.name async for each in client.iter_skills()] == ["refunds"]
            assert (await client.get_skill(skill.uri)).uri == skill.uri
            loaded = await client.load_skill(skill)
            assert loaded.instructions.strip() == "See mail.md."
            assert (await client.read_skill_file(loaded, "mail.md")).text == "Dear customer"
            found = await client.read_directory(skill.uri.removesuffix("/SKILL.md"))
            assert {str(each.uri).rpartition("/")[2] for each in found} == {"SKILL.md", "mail.md"}


class TestFailover:
    @virtual_time
    async def test_a_client_goes_on_while_one_target_is_there(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        async with Client(targets, balance="round_robin") as client:
            targets[0].cut()
            assert {(await client.call_tool("who")).data for _ in range(20)} == {"b"}
            assert (await client.read_resource("note://who")).text == "b"
            assert client.server_info is not None
            assert client.server_info.name == "b"
            assert client.phase is Phase.INITIALIZED

    @virtual_time
    async def test_safe_calls_in_flight_go_to_another_and_unsafe_ones_do_not(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        async with Client(targets, balance="round_robin") as client:
            for target in targets:
                target.pause = 1.0
            calls = [asyncio.ensure_future(client.read_resource("note://who")) for _ in range(2)]
            unsafe = [asyncio.ensure_future(client.call_tool("who")) for _ in range(2)]
            await asyncio.sleep(0.5)
            targets[0].cut()
            assert [result.text for result in await asyncio.gather(*calls)] == ["b", "b"]
            ends = await asyncio.gather(*unsafe, return_exceptions=True)
            assert sorted(type(end).__name__ for end in ends) == ["CallToolResult", "OutcomeUnknown"]

    @virtual_time
    async def test_a_forwarded_call_of_a_safe_tool_is_safe(self) -> None:
        for safe_tools, safe in ((["who"], True), ([], False)):
            targets = [Flaky("a"), Flaky("b")]
            async with Client(targets, balance="round_robin", safe_tools=safe_tools) as client:
                for target in targets:
                    target.pause = 1.0
                call = asyncio.ensure_future(client.forward("tools/call", b'{"name": "who", "arguments": {}}'))
                await asyncio.sleep(0.5)
                targets[0].cut()
                [end] = await asyncio.gather(call, return_exceptions=True)
                assert isinstance(end, OutcomeUnknown) is not safe

    @virtual_time
    async def test_without_any_target_it_says_so_and_comes_back(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        phases: list[Phase] = []
        notices: list[ConnectionNotice] = []
        errors: list[tuple[str, str]] = []
        client = Client(targets, breaker=BreakerSettings(failures=1))
        client.on_phase_change(lambda old, new: phases.append(new))
        client.on_connection(notices.append)
        client.on_error(lambda kind, reason: errors.append((kind, reason)))
        async with client:
            for target in targets:
                target.cut()
            assert (client.phase, client.reconnecting, client.connection_state) == (Phase.ERROR, True, "disconnected")
            with pytest.raises(ConnectFailed):
                await client.call_tool("who")
            with pytest.raises(NoTarget):
                await client.call_tool("who")
            targets[1].down = False
            await asyncio.sleep(1.5)
            assert (await client.call_tool("who")).data == "b"
        assert phases == [Phase.INITIALIZED, Phase.ERROR, Phase.INITIALIZED, Phase.CLOSED]
        assert [notice.what for notice in notices] == ["lost", "restored"]
        assert errors == [("LinkLost", "the link to 1 was lost")]

    @virtual_time
    async def test_a_handler_of_notices_that_fails_harms_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        target = Flaky("a")

        def fail(notice: ConnectionNotice) -> None:
            raise ValueError("a bug")

        client = Client([target])
        client.on_connection(fail)
        async with client:
            target.cut(down=False)
            assert (await client.call_tool("who")).data == "a"
        assert caplog.messages.count("a handler of the connection's notice 'lost' failed") == 1

    @virtual_time
    async def test_a_client_that_reaches_nobody_does_not_open(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        for target in targets:
            target.down = True
        client = Client(targets)
        with pytest.raises(
            ConnectFailed, match=r"none of the 2 targets can be reached: 0: nobody answers at a; 1: nobody answers at b"
        ):
            await client.connect()
        assert client.phase is Phase.CLOSED
        targets[0].down = False
        async with client:
            assert (await client.call_tool("who")).data == "a"

    @virtual_time
    async def test_overload_and_hedges_are_those_of_the_options(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        options: dict[str, Any] = {"bulkhead": BulkheadSettings(in_flight=1, queue=0), "safe_tools": ["who"]}
        async with Client(targets, balance="round_robin", hedge=Hedge(after=0.5, budget=1.0), **options) as client:
            assert isinstance(client, RoutedClient)
            targets[0].pause = 4.0
            call = asyncio.ensure_future(client.call_tool("who"))
            await asyncio.sleep(0.1)
            with pytest.raises(Overloaded):
                await client.call_tool("who")
            assert (await call).data == "b"
            assert client.router.stats().hedges == 1

    @virtual_time
    async def test_a_notification_nobody_takes_is_a_dead_letter(self) -> None:
        target = Flaky("a")
        async with Client([target], keep_payload=True) as client:
            assert isinstance(client, RoutedClient)
            await client.notify("notifications/x", {"n": 1})
            target.cut()
            await client.notify("notifications/x", {"n": 2})
            [letter] = client.router.dead_letters.letters(asyncio.get_running_loop().time())
            assert (letter.method, letter.payload) == ("notifications/x", {"n": 2})


class TestAffinity:
    @virtual_time
    async def test_by_hash_one_client_stays_with_one_target(self) -> None:
        targets = [Flaky("a"), Flaky("b"), Flaky("c")]
        found = Counter[str]()
        for _ in range(20):
            async with Client(targets, balance="hash") as client:
                names = {(await client.call_tool("who")).data for _ in range(10)}
                assert len(names) == 1
                found.update(names)
        assert len(found) > 1

    @virtual_time
    async def test_clients_with_the_same_text_use_the_same_target(self) -> None:
        targets = [Flaky("a"), Flaky("b"), Flaky("c")]
        found = set()
        for _ in range(10):
            async with Client(targets, balance="hash", affinity="tenant 7") as client:
                found.add((await client.call_tool("who")).data)
                found.add((await client.request("tools/call", {"name": "who", "arguments": {}}))["content"][0]["text"])
        assert len(found) == 1


class TestTasks:
    @virtual_time
    async def test_a_task_is_looked_for_where_it_was_started(self) -> None:
        _, client = pair(mode="handshake")
        async with client:
            tasks = [await client.start_task("slow") for _ in range(4)]
            states = [await client.get_task(task.id) for task in tasks]
            assert {state.status for state in states} == {"working"}
            assert {state.task_id for state in await client.list_tasks()} == {task.id for task in tasks}
            assert {state.task_id async for state in client.iter_tasks()} == {task.id for task in tasks}
            await client.cancel_task(tasks[3].id)
            results = [(await client.task(task.id).result()).data for task in tasks[:3]]
            assert results == ["a", "b", "a"]
            assert (await client.get_task(tasks[3].id)).status == "cancelled"

    @virtual_time
    async def test_a_task_of_another_client_is_found(self) -> None:
        servers, client = pair(tasks=True)
        async with Client(servers[1], tasks=True) as other, client:
            task = await other.start_task("slow")
            assert (await client.get_task(task.id)).status == "working"
            found = client.task(task.id)
            assert isinstance(found, Task)
            assert (await found.result()).data == "b"

    @virtual_time
    async def test_a_task_nobody_has_is_refused(self) -> None:
        _, client = pair(tasks=True)
        async with client:
            with pytest.raises(PeerError):
                await client.get_task("none")
            with pytest.raises(PeerError):
                await client.cancel_task("none")

    def test_ten_thousand_tasks_are_remembered(self) -> None:
        assert MAX_TASKS == 10_000

    @virtual_time
    async def test_the_oldest_tasks_are_forgotten_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ferrule.routing.client.MAX_TASKS", 2)
        _, client = pair(tasks=True)
        async with client:
            tasks = [await client.start_task("slow") for _ in range(3)]
            assert list(client._owners) == [task.id for task in tasks[1:]]
            assert (await client.get_task(tasks[0].id)).task_id == tasks[0].id


class TestSubscriptions:
    @virtual_time
    @pytest.mark.parametrize("mode", ["handshake", "stateless"])
    async def test_changes_are_heard_from_every_target(self, mode: str) -> None:
        servers, client = pair(mode=mode)
        async with client:
            async with client.subscribe("note://who") as changes:
                assert client.subscriptions == {"note://who"}
                for server in servers:
                    server.notify_resource_updated("note://who")
                assert [await anext(changes), await anext(changes)] == ["note://who"] * 2
            assert client.subscriptions == set()

    @virtual_time
    async def test_a_callback_is_called_until_it_is_unsubscribed(self) -> None:
        servers, client = pair()
        told: list[str] = []

        async def changed(uri: str) -> None:
            told.append(uri)

        async with client:
            await client.subscribe_resource("note://who", changed)
            servers[1].notify_resource_updated("note://who")
            await asyncio.sleep(1)
            assert told == ["note://who"]
            await client.unsubscribe_resource("note://who")
            servers[1].notify_resource_updated("note://who")
            await asyncio.sleep(1)
            assert told == ["note://who"]

    @virtual_time
    async def test_a_subscription_outlives_a_target_and_is_made_again_at_it(self) -> None:
        """The link that came back tells of a change by itself: one may have been missed."""
        targets = [Flaky("a"), Flaky("b")]
        async with Client(targets) as client, client.subscribe("note://who") as changes:
            targets[0].cut()
            targets[1].server.notify_resource_updated("note://who")
            assert await anext(changes) == "note://who"
            targets[0].down = False
            async with asyncio.timeout(60):
                assert await anext(changes) == "note://who"
            targets[0].server.notify_resource_updated("note://who")
            async with asyncio.timeout(60):
                assert await anext(changes) == "note://who"

    @virtual_time
    async def test_streams_end_with_the_client(self) -> None:
        _, client = pair()
        await client.connect()
        async with client.subscribe("note://who") as changes:
            await client.close()
            assert [uri async for uri in changes] == []

    @virtual_time
    async def test_what_no_target_takes_is_refused(self) -> None:
        bare = [Server("a"), Server("b")]
        async with Client(bare) as client:
            with pytest.raises(CapabilityNotSupported):
                await client.subscribe_resource("note://who")
            assert client.subscriptions == set()
        with pytest.raises(NotConnected, match="none of the targets is connected"):
            await client.subscribe_resource("note://who")


class TestHearing:
    @virtual_time
    async def test_notifications_of_every_target_are_heard(self) -> None:
        servers, client = pair(mode="handshake")
        heard: list[str] = []
        client.on_notification("notifications/tools/list_changed", lambda params: heard.append("tools"))

        @client.on_notification("notifications/prompts/list_changed")
        def prompts(params: Any) -> None:
            heard.append("prompts")

        assert client.notification_handlers >= {"notifications/tools/list_changed"}
        async with client:
            for server in servers:
                server.notify_tools_changed()
                server.notify_prompts_changed()
            await asyncio.sleep(1)
            assert Counter(heard) == {"tools": 2, "prompts": 2}
            client.remove_notification_handler("notifications/tools/list_changed")
            servers[0].notify_tools_changed()
            await asyncio.sleep(1)
            assert heard.count("tools") == 2

    @virtual_time
    async def test_lists_are_watched_at_every_target(self) -> None:
        servers, client = pair(mode="stateless")
        heard: list[str] = []
        async with client:
            await client.watch_lists("tools")
            client.on_notification("notifications/tools/list_changed", lambda params: heard.append("tools"))
            for server in servers:
                server.notify_tools_changed()
            await asyncio.sleep(1)
            assert heard == ["tools", "tools"]

    @virtual_time
    async def test_a_target_that_is_heard_of_is_connected_again_without_a_call(self) -> None:
        target = Flaky("a")
        client = Client([target])
        client.on_notification("notifications/tools/list_changed", lambda params: None)
        async with client:
            target.cut()
            await asyncio.sleep(10)
            assert client.phase is Phase.ERROR
            target.down = False
            await asyncio.sleep(31)
            assert client.phase is Phase.INITIALIZED
            assert target.calls == []

    @virtual_time
    async def test_it_comes_back_after_one_two_four_seconds(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ferrule.routing.members.random.random", lambda: 0.0)
        target, times = Flaky("a"), []
        connect = target.connect

        async def noted(receiver: Any) -> Any:
            times.append(asyncio.get_running_loop().time())
            return await connect(receiver)

        target.connect = noted  # type: ignore[method-assign]
        client = Client([target])
        client.on_notification("notifications/tools/list_changed", lambda params: None)
        async with client:
            target.cut()
            await asyncio.sleep(8)
            assert [round(at - times[0], 3) for at in times] == [0, 1, 3, 7]

    @virtual_time
    async def test_one_that_was_removed_does_not_come_back(self) -> None:
        targets = [Flaky("a"), Flaky("b")]
        client = Client(targets)
        client.on_notification("notifications/tools/list_changed", lambda params: None)
        async with client:
            targets[0].cut(down=False)
            await client.router.remove("0")
            before = targets[0].connects
            await asyncio.sleep(100)
            assert targets[0].connects == before

    def test_what_is_registered_is_returned_so_that_it_can_be_a_decorator(self) -> None:
        client = Client([Server("a")])

        def handler(*values: object) -> None:
            """Do nothing."""

        for register in (client.on_log, client.on_connection, client.on_error, client.on_phase_change):
            assert register(handler) is handler
        assert client.on_notification("notifications/x", handler) is handler
        assert client.on_notification("notifications/y")(handler) is handler

    @virtual_time
    async def test_handlers_are_given_to_a_target_that_is_added(self) -> None:
        _, client = pair(mode="handshake")
        heard: list[str] = []
        client.on_notification("notifications/tools/list_changed", lambda params: heard.append("tools"))
        async with client:
            added = full_server("c")
            client.router.add("c", added)
            await client.router.connect("c")
            added.notify_tools_changed()
            await asyncio.sleep(1)
            assert heard == ["tools"]

    @virtual_time
    async def test_log_messages_come_from_every_target_at_the_level_that_was_set(self) -> None:
        """Also after a target was connected again: it is told the level anew."""
        targets = [Flaky("a"), Flaky("b")]
        for target in targets:
            target.server.add_tool(say_twice)
        logged: list[object] = []
        async with Client(targets, balance="round_robin", mode="handshake") as client:
            client.on_log(lambda level, data, logger: logged.append(level))
            await client.set_log_level("error")
            for _ in range(2):
                await client.call_tool("say_twice")
            await asyncio.sleep(0.1)
            assert logged == ["error", "error"]
            targets[0].cut(down=False)
            await asyncio.sleep(2)
            logged.clear()
            for _ in range(2):
                await client.call_tool("say_twice")
            await asyncio.sleep(0.1)
            assert logged == ["error", "error"]


class TestAnswers:
    @virtual_time
    async def test_roots_are_the_same_for_all(self, tmp_path: Any) -> None:
        _, client = pair(roots=[str(tmp_path)], mode="handshake")
        async with client:
            assert [root.uri for root in client.roots] == [tmp_path.as_uri()]
            more = tmp_path / "more"
            more.mkdir()
            await client.add_root(more)
            for member in client.router.clients.values():
                assert len(member.roots) == 2
            client.router.add("c", full_server("c"))
            assert len(client.router.clients["c"].roots) == 2
            await client.remove_root(more)
            assert len(client.roots) == 1

    @virtual_time
    async def test_the_sampling_handler_is_the_same_for_all(self) -> None:
        _, client = pair(sampling=lambda request: "x")

        def answer(request: Any) -> str:
            return "y"

        client.set_sampling_handler(answer)
        assert {member.answering.sampling for member in client.router.clients.values()} == {answer}
        client.remove_sampling_handler()
        assert {member.answering.sampling for member in client.router.clients.values()} == {None}


def test_a_sync_client_routes_too() -> None:
    servers = [full_server("a"), full_server("b")]
    with SyncClient(servers, balance="round_robin") as client:
        assert {client.call_tool("who").data for _ in range(4)} == {"a", "b"}
        assert [tool.name for tool in client.iter_tools()] == ["who", "slow"]
        assert client.router.stats().calls == 5
        with client.subscribe("note://who") as changes:
            servers[1].notify_resource_updated("note://who")
            assert next(changes) == "note://who"


def test_params_that_cannot_be_read_are_refused_when_they_are_sent() -> None:
    async def main() -> None:
        _, client = pair()
        async with client:
            with pytest.raises(Exception, match="params are not a JSON object"):
                await client.forward("tools/call", msgspec.Raw(b"{"))

    asyncio.run(main())
