"""Several servers side by side, through one client."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest
from flaky import Flaky

from ferrule import Client, Context, Reconnect, Server, SyncClient
from ferrule.errors import CallFailed, ConnectFailed, NotConnected, SetupError
from ferrule.protocol.session import Phase
from ferrule.routing.combined.client import CombinedClient
from ferrule.schema.content import ResourceLink


def shop(name: str) -> Server:
    """A server with one of each, which tells its name."""
    app = Server(name, f"Use {name} well.")

    @app.tool
    async def who(ctx: Context) -> str:
        """Return the name of the server, after a word in its log."""
        await ctx.info(f"from {name}")
        return name

    @app.tool
    async def ask(ctx: Context) -> str:
        """Ask the user and the model, and look at the roots."""
        word = await ctx.ask("a word?", str)
        sampled = await ctx.sample("hello", max_tokens=5)
        roots = await ctx.list_roots()
        return f"{word} {sampled.text} {len(roots)}"

    @app.tool
    async def link() -> list[Any]:
        """Point to a resource of this server."""
        return [ResourceLink(uri="note://now", name="now")]

    @app.resource("note://now")
    async def note() -> str:
        return f"note of {name}"

    @app.resource("note://{day}/text")
    async def text(day: str) -> str:
        return f"{day} of {name}"

    @app.prompt
    def review(language: str) -> str:
        return f"{name} reviews {language}"

    @app.completion("language")
    async def language(value: str) -> list[str]:
        return [f"{value}-{name}"]

    return app


async def test_offers_of_all_have_prefixes_and_calls_go_to_the_right_server(era: str) -> None:
    async with Client({"a": shop("one"), "b": shop("two")}, mode=era) as client:
        assert isinstance(client, CombinedClient)
        names = ["a_who", "a_ask", "a_link", "b_who", "b_ask", "b_link"]
        assert [tool.name for tool in await client.list_tools()] == names
        assert [tool.name async for tool in client.iter_tools()] == names
        assert (await client.call_tool("b_who")).data == "two"
        assert [each.uri for each in await client.list_resources()] == ["note://a/now", "note://b/now"]
        templates = [each.uri_template for each in await client.list_resource_templates()]
        assert templates == ["note://a/{day}/text", "note://b/{day}/text"]
        read = await client.read_resource("note://b/now")
        assert (read.text, read.contents[0].uri) == ("note of two", "note://b/now")
        assert (await client.read_resource("note://a/monday/text")).text == "monday of one"
        link = (await client.call_tool("a_link")).content[0]
        assert isinstance(link, ResourceLink)
        assert (await client.read_resource(link.uri)).text == "note of one"
        assert [prompt.name for prompt in await client.list_prompts()] == ["a_review", "b_review"]
        prompt = await client.get_prompt("b_review", {"language": "Go"})
        assert prompt.messages[0].content.text == "two reviews Go"  # type: ignore[union-attr]
        for ref in ("a_review", {"type": "ref/prompt", "name": "a_review"}):
            assert (await client.complete(ref, {"name": "language", "value": "p"})).values == ["p-one"]
        assert client.instructions == "# a\n\nUse one well.\n\n# b\n\nUse two well."
        assert client.server_capabilities is not None
        assert client.server_capabilities.prompts is not None
        assert await client.ping() < 5
        assert (await client.servers["b"].client.call_tool("who")).data == "two"


async def test_questions_and_notifications_of_all_reach_the_same_handlers_and_say_from_whom(
    era: str, tmp_path: Path
) -> None:
    asked: list[tuple[str, str | None]] = []
    heard: asyncio.Queue[Any] = asyncio.Queue()
    logged: list[tuple[str | None, Any]] = []

    async def answer(question: Any) -> dict[str, str]:
        asked.append(("elicitation", client.source))
        return {"value": "yes"}

    def model(question: Any) -> str:
        asked.append(("sampling", client.source))
        return "hi"

    servers = {"a": shop("one"), "b": shop("two")}
    client = Client(servers, mode=era, elicitation=answer, sampling=model, roots=[tmp_path], log_level="info")
    client.on_log(lambda level, data, logger: logged.append((client.source, data)))
    client.on_notification("notifications/tools/list_changed", heard)
    client.on_notification("notifications/resources/updated", heard)
    async with client:
        assert (await client.call_tool("b_ask")).data == "yes hi 1"
        assert (await client.call_tool("a_ask")).data == "yes hi 1"
        assert sorted(set(asked)) == [
            *(("elicitation", "a"), ("elicitation", "b")),
            *(("sampling", "a"), ("sampling", "b")),
        ]
        assert client.source is None
        await client.call_tool("b_who")
        assert logged == [("b", "from two")]
        async with client.subscribe("note://a/now") as changes:
            assert client.subscriptions == {"note://a/now"}
            servers["a"].notify_resource_updated("note://now")
            assert await anext(changes) == "note://a/now"
            method, params = await heard.get()
            assert (method, params["uri"]) == ("notifications/resources/updated", "note://a/now")
        servers["b"].remove_tool("link")
        method, params = await heard.get()
        assert method == "notifications/tools/list_changed"
        assert params["_meta"]["ferrule/server"] == "b"


async def test_a_sick_server_hides_no_other_and_comes_back_alone() -> None:
    sick, well = Flaky("sick"), Flaky("well")
    sick.down = True
    plan = Reconnect(first_delay=0.0, jitter=0.0)
    async with Client({"a": sick, "b": well}, reconnect=False) as client:
        assert {name: server.error for name, server in client.servers.items()} == {
            "a": "nobody answers at sick",
            "b": "",
        }
        assert {tool.name for tool in await client.list_tools()} == {"b_who", "b_broken"}
        with pytest.raises(NotConnected, match=r"the server a cannot be used now: nobody answers at sick"):
            await client.call_tool("a_who")
        sick.down = False
        await client.reconnect("a")
        assert (await client.call_tool("a_who")).data == "sick"
        assert well.connects == 1
        well.cut(down=False)
        await asyncio.sleep(0)
        assert client.servers["b"].error
        assert {tool.name for tool in await client.list_tools()} == {"a_who", "a_broken"}
        assert client.phase is Phase.INITIALIZED
    async with Client({"a": sick, "b": well}, reconnect=plan) as client:
        well.cut(down=False)
        await asyncio.sleep(0)
        assert (await client.call_tool("b_who")).data == "well"
        assert (sick.connects, well.connects) == (3, 3)


@pytest.mark.virtual_time
async def test_a_server_that_was_away_at_the_start_is_tried_again() -> None:
    sick, well = Flaky("sick"), Flaky("well")
    sick.down = True
    client = Client({"a": sick, "b": well}, reconnect=Reconnect(), mode="stateless")
    back = asyncio.Event()
    client.servers["a"].client.on_connected(back.set)
    async with client:
        await client.watch_lists("tools")
        await asyncio.sleep(100)
        assert sick.connects > 3
        sick.down = False
        await back.wait()
        assert (await client.call_tool("a_who")).data == "sick"
        # It is told what the others were told while it was away.
        assert {each.method for each in client.servers["a"].client.pending} == {"subscriptions/listen"}
    sick.down, sick.connects = True, 0
    async with Client({"a": sick, "b": well}, reconnect=False):
        await asyncio.sleep(100)
        assert sick.connects == 1


async def test_no_server_at_all_is_one_sentence() -> None:
    one, two = Flaky("one"), Flaky("two")
    one.down = two.down = True
    with pytest.raises(ConnectFailed, match=r"none of the 2 servers can be reached: a: nobody .* one; b: nobody"):
        await Client({"a": one, "b": two}).connect()


async def test_a_name_that_fits_two_servers_is_looked_up_in_their_lists() -> None:
    def one_tool(name: str) -> Server:
        app = Server(name)
        app.add_tool(name, lambda: name)
        return app

    async with Client({"git": one_tool("hub_x"), "git_hub": one_tool("y")}) as client:
        assert (await client.call_tool("git_hub_x")).data == "hub_x"
        assert (await client.call_tool("git_hub_y")).data == "y"
        with pytest.raises(CallFailed, match=r"no server has the tool 'x': its name begins with one of git_, git_hub_"):
            await client.call_tool("x")
        with pytest.raises(CallFailed, match="no server has the resource 'note://x'"):
            await client.read_resource("note://x")


async def test_a_server_may_be_a_client_with_options_of_its_own_and_secrets_are_for_one() -> None:
    async with Client({"a": Client(shop("one"), mode="handshake"), "my b": shop("two")}, mode="stateless") as client:
        assert client.servers["a"].client.protocol_version == "2025-11-25"
        assert (await client.call_tool("my_b_who")).data == "two"
        assert client.protocol_version is None
    for options in ({"headers": {"X": "1"}}, {"auth": object()}, {"http": {"headers": {"X": "1"}}}):
        with pytest.raises(SetupError, match="would be shown to every server: give it to the one it is for"):
            Client({"a": shop("one"), "b": shop("two")}, **options)  # type: ignore[arg-type]
    with pytest.raises(SetupError, match=r"'x y' and 'x_y' would both be x_y_…: rename one"):
        Client({"x y": shop("one"), "x_y": shop("two")})
    with pytest.raises(SetupError, match=r"request names no server: use client.servers\['a'\].client.request"):
        await Client({"a": shop("one"), "b": shop("two")}).request("ping")
    with pytest.raises(SetupError, match="only a client of several servers names them"):
        _ = Client(shop("one")).servers


def test_a_blocking_client_takes_several_servers_too() -> None:
    with SyncClient({"a": shop("one"), "b": shop("two")}) as client:
        assert client.call_tool("a_who").data == "one"
        assert list(client.servers) == ["a", "b"]


def test_every_public_method_of_a_client_is_there_for_several_servers() -> None:
    inherited = {"initialize", "read_skill_file", "send_batch", "asked_on", "router"}
    inherited |= {"on_phase_change", "on_connected", "on_disconnected"}
    for name, member in vars(Client).items():
        if name.startswith("_") or name in inherited:
            continue
        own = vars(CombinedClient)[name]
        if inspect.isfunction(member) and name != "reconnect":
            assert inspect.signature(own).parameters == inspect.signature(member).parameters, name


async def test_tasks_skills_and_callbacks_find_their_server(era: str, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "cook"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text("---\nname: cook\ndescription: Cooks.\n---\nBoil it.")
    (folder / "more.md").write_text("Salt it.")
    servers = {"a": shop("one"), "b": shop("two")}
    servers["b"].skills(tmp_path / "skills", watch=None)

    @servers["b"].tool(task="optional")
    async def slow() -> str:
        return "slow"

    async with Client(servers, mode=era, tasks=True) as client:
        task = await client.start_task("b_slow")
        assert (await task.result()).data == "slow"
        assert (await client.get_task(task.id)).status == "completed"
        assert client.task(task.id).id == task.id
        if era == "handshake":
            assert [state.task_id for state in await client.list_tasks()] == [task.id]
        with pytest.raises(CallFailed, match="no server that is connected has the task 'x'"):
            await client.get_task("x")
        with pytest.raises(SetupError, match="no server is known to have the task 'x'"):
            client.task("x")

        [skill] = await client.list_skills()
        assert skill.uri == "skill://b/cook/SKILL.md"
        assert await client.get_skill(skill.uri) == skill
        for given in (skill, skill.uri):
            loaded = await client.load_skill(given)
            assert (await loaded.read("more.md")).text == "Salt it."
        listed = {each.uri for each in await client.read_directory("skill://b/cook")}
        assert listed == {"skill://b/cook/SKILL.md", "skill://b/cook/more.md"}

        heard: asyncio.Queue[tuple[str, str | None]] = asyncio.Queue()
        await client.subscribe_resource("note://b/now", lambda uri: heard.put_nowait((uri, client.source)))
        servers["b"].notify_resource_updated("note://now")
        assert await heard.get() == ("note://b/now", "b")
        await client.unsubscribe_resource("note://b/now")
        assert client.subscriptions == set()
        await client.set_log_level("warning")
        await client.watch_lists("tools")
        assert {"tools", "resources"} <= client.negotiated
        assert {each.method for each in client.pending} <= {"subscriptions/listen"}
        await client.add_root(tmp_path)
        assert [server.client.roots for server in client.servers.values()] == [client.roots] * 2
        await client.remove_root(tmp_path)
        assert client.roots == []
        assert client.extension("io.modelcontextprotocol/skills") is not None
