"""Who sees what: tags, switches, rules by caller, and sessions that see something of their own."""

import threading

import pytest

from ferrule import Context, PeerError, Server, SetupError
from ferrule.testing import pair

CHANGED = "notifications/tools/list_changed"


def office(**options):
    app = Server("office", **options)

    @app.tool(tags={"public"})
    async def read() -> str:
        return "read"

    @app.tool(tags={"admin", "danger"})
    async def wipe() -> str:
        return "wiped"

    @app.tool
    async def other() -> str:
        return "other"

    @app.resource("files://all", tags={"admin"})
    async def files() -> str:
        return "files"

    @app.resource("file://{name}", tags={"admin"})
    async def file(name: str) -> str:
        return name

    @app.prompt(tags={"admin"})
    async def audit(year: str) -> str:
        return year

    @app.completion("audit.year")
    async def years(value):
        return ["1999"]

    return app


async def names(client):
    return [tool.name for tool in await client.list_tools()]


async def said(peer):
    return [tool["name"] for tool in (await peer.request("tools/list"))["result"]["tools"]]


class TestEverybody:
    """What is switched off is neither listed nor used, by anybody."""

    async def test_by_name_and_back_in_its_old_place(self, era):
        app = office()
        async with pair(app, era) as client:
            app.disable("read", "wipe")
            assert await names(client) == ["other"]
            with pytest.raises(PeerError, match="Unknown tool: read"):
                await client.call_tool("read")
            app.enable("read")
            assert await names(client) == ["read", "other"]
            assert (await client.call_tool("read")).data == "read"

    async def test_by_tag_all_kinds_or_one(self, era):
        app = office()
        app.disable(tags={"admin"})
        async with pair(app, era) as client:
            assert await names(client) == ["read", "other"]
            assert await client.list_resources() == await client.list_resource_templates() == []
            with pytest.raises(PeerError):
                await client.read_resource("file://x")
            with pytest.raises(PeerError):
                await client.get_prompt("audit", {"year": "1"})
            app.enable(tags={"admin"}, kind="resource")
            assert len(await client.list_resources()) == 1
            assert await client.list_resource_templates() == []

    async def test_the_last_word_counts(self, era):
        app = office()
        app.disable(tags={"danger"})
        app.enable("wipe")
        async with pair(app, era) as client:
            assert "wipe" in await names(client)
            app.disable(tags={"danger"})
            assert "wipe" not in await names(client)

    @pytest.mark.parametrize(
        ("options", "seen"),
        [
            ({"include_tags": {"public"}}, ["read"]),
            ({"exclude_tags": {"admin"}}, ["read", "other"]),
            ({"include_tags": {"admin", "public"}, "exclude_tags": {"danger"}}, ["read"]),
        ],
    )
    async def test_a_server_may_be_told_its_tags(self, era, options, seen):
        async with pair(office(**options), era) as client:
            assert await names(client) == seen

    async def test_a_change_is_told_and_nothing_else(self, era, wire):
        app = office()
        async with wire(app, era) as peer:
            await peer.watch(toolsListChanged=True, promptsListChanged=True)
            app.disable("wipe")
            await peer.hear(CHANGED)
            app.disable("wipe")
            await peer.request("tools/list")
            assert len(peer.told(CHANGED)) == 1
            assert peer.told("notifications/prompts/list_changed") == []

    async def test_from_another_thread(self, era, wire):
        app = office()
        async with wire(app, era) as peer:
            await peer.watch(toolsListChanged=True)
            thread = threading.Thread(target=lambda: app.disable("wipe"))
            thread.start()
            await peer.hear(CHANGED)
            thread.join()
            assert await said(peer) == ["read", "other"]

    async def test_what_is_added_later_obeys_too(self, era):
        app = office()
        app.disable(tags={"beta"})
        app.add_tool("new", lambda: None, tags=["beta"])
        async with pair(app, era) as client:
            assert "new" not in await names(client)
            app.enable(tags=["beta"])
            assert "new" in await names(client)

    async def test_what_is_switched_off_can_be_removed(self):
        app = office()
        app.disable("wipe")
        app.remove_tool("wipe")
        with pytest.raises(SetupError, match="no tool, prompt or resource 'wipe'"):
            app.enable("wipe")

    async def test_the_common_page_stays_in_use(self, wire):
        app = office()
        app.disable("wipe")
        async with wire(app) as peer:
            await peer.request("tools/list")
            assert len(app.offers.tools.catalogue._pages) == 1
        assert not app.offers.visibility.in_use
        assert app.host.dispatcher.handlers["tools/call"] == app.offers.tools.call


class TestRules:
    """Some see what others do not."""

    async def test_a_tool_says_who_sees_it(self, era, wire):
        app = office()

        @app.tool(visible=lambda ctx: ctx.principal == "ada")
        async def secret() -> str:
            return "gold"

        async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
            assert "secret" in await said(ada)
            assert "secret" not in await said(bob)
            assert (await ada.call("secret"))["result"]["content"][0]["text"] == "gold"
            refused = (await bob.call("secret"))["error"]
            unknown = (await bob.call("secres"))["error"]
            assert refused["code"] == unknown["code"]
            assert refused["message"] == "Unknown tool: secret"
            assert unknown["message"] == "Unknown tool: secres", "no hint gives a hidden name away"

    async def test_a_rule_judges_everything(self, era, wire):
        """COMP-5: nothing is suggested for what one does not see."""
        app = office()
        seen = set()

        @app.visible
        def staff_only(ctx, component):
            seen.add(component.kind)
            return "admin" not in component.tags or ctx.principal == "ada"

        reference = {"type": "ref/prompt", "name": "audit"}
        asked = {"ref": reference, "argument": {"name": "year", "value": ""}}
        template = {"ref": {"type": "ref/resource", "uri": "file://{name}"}, "argument": {"name": "name", "value": ""}}
        async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
            for peer, allowed in ((ada, True), (bob, False)):
                answers = [
                    await peer.call("wipe"),
                    await peer.request("resources/read", {"uri": "files://all"}),
                    await peer.request("resources/read", {"uri": "file://x"}),
                    await peer.request("prompts/get", {"name": "audit", "arguments": {"year": "1"}}),
                    await peer.request("completion/complete", asked),
                    await peer.request("completion/complete", template),
                ]
                if era == "handshake":
                    answers.append(await peer.request("resources/subscribe", {"uri": "files://all"}))
                assert ["result" in answer for answer in answers] == [allowed] * len(answers)
                for method, member in (
                    ("resources/list", "resources"),
                    ("resources/templates/list", "resourceTemplates"),
                    ("prompts/list", "prompts"),
                ):
                    assert bool((await peer.request(method))["result"][member]) is allowed
        assert seen == {"tool", "prompt", "resource", "resource template"}

    async def test_changes_of_what_one_does_not_see_are_not_told(self, wire):
        app = office()
        app.visible(lambda ctx, component: "admin" not in component.tags or ctx.principal == "ada")
        async with wire(app, "stateless", principal="ada") as ada, wire(app, "stateless", principal="bob") as bob:
            for peer in (ada, bob):
                await peer.watch("files://all", "file://x", "unknown://x")
            app.notify_resource_updated("files://all")
            app.notify_resource_updated("unknown://x")
            for peer in (ada, bob):
                await peer.request("tools/list")
            told = [
                [note["params"]["uri"] for note in peer.told("notifications/resources/updated")] for peer in (ada, bob)
            ]
            assert told == [["files://all", "unknown://x"], ["unknown://x"]]

    async def test_pages_are_made_of_what_one_sees(self, era, wire):
        app = Server("many", page_size=2)
        for number in range(9):
            app.add_tool(f"t{number}", lambda: None, tags={"odd"} if number % 2 else set())

        @app.visible
        def odd_only(ctx, component):
            return "odd" in component.tags

        async with wire(app, era) as peer:
            first = (await peer.request("tools/list"))["result"]
            rest = (await peer.request("tools/list", {"cursor": first["nextCursor"]}))["result"]
            assert [tool["name"] for tool in first["tools"] + rest["tools"]] == ["t1", "t3", "t5", "t7"]
            assert "nextCursor" not in rest

    async def test_a_rule_that_comes_later_holds_for_those_who_are_connected(self, era):
        app = office()
        async with pair(app, era) as client:
            assert "wipe" in await names(client)
            app.visible(lambda ctx, component: component.name != "wipe")
            with pytest.raises(PeerError, match="Unknown tool"):
                await client.call_tool("wipe")

    async def test_a_rule_that_fails_shows_nothing(self, era, caplog):
        app = office()

        @app.visible
        def broken(ctx, component):
            raise ZeroDivisionError

        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="reference"):
                await client.call_tool("read")

    async def test_the_rules_of_a_mounted_server_hold_in_its_host(self, era, wire):
        child, host = office(), Server("host")
        host.mount(child, "o")
        child.visible(lambda ctx, component: component.name != "wipe" or ctx.principal == "ada")
        child.disable("other")
        async with wire(host, era, principal="ada") as ada, wire(host, era, principal="bob") as bob:
            assert await said(ada) == ["o_read", "o_wipe"]
            assert await said(bob) == ["o_read"]
            assert "error" in await bob.call("o_wipe")
            child.enable("other")
            assert await said(bob) == ["o_read", "o_other"]

    async def test_the_rules_of_a_mounted_server_are_asked_in_its_own_words(self, era, wire):
        child, host = Server("child"), Server("host")
        asked = []

        @child.visible
        def rule(ctx, component):
            asked.append((ctx.server.name, component.name))
            return True

        child.add_tool("t", lambda: None, visible=lambda ctx: ctx.server is child)
        host.mount(child, "c")
        host.visible(lambda ctx, component: ctx.server is host and component.name == "c_t")
        async with wire(host, era) as peer:
            assert await said(peer) == ["c_t"]
        assert set(asked) == {("child", "t")}


class TestOneSession:
    """A session may see something of its own."""

    @staticmethod
    def app():
        app = office()
        app.disable(tags={"admin"})

        @app.tool
        async def unlock(ctx: Context) -> str:
            await ctx.enable(tags={"admin"})
            return "unlocked"

        @app.tool
        def lock(name: str, ctx: Context) -> str:
            ctx.sync.disable(name)
            return "locked"

        return app

    async def test_it_is_told_alone(self, era, wire):
        """In the stateless era what is remembered belongs to the principal."""
        app = self.app()
        async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
            for peer in (ada, bob):
                await peer.watch(toolsListChanged=True, promptsListChanged=True, resourcesListChanged=True)
            assert "wipe" not in await said(ada)
            assert "error" in await ada.call("wipe")
            await ada.call("unlock")
            await ada.hear(CHANGED)
            assert "wipe" in await said(ada)
            assert (await ada.call("wipe"))["result"]["content"][0]["text"] == "wiped"
            assert (await ada.request("resources/read", {"uri": "file://x"}))["result"]["contents"][0]["text"] == "x"
            assert len((await ada.request("prompts/list"))["result"]["prompts"]) == 1
            assert "result" in await ada.request("prompts/get", {"name": "audit", "arguments": {"year": "1"}})
            argument = {"name": "year", "value": ""}
            asked = {"ref": {"type": "ref/prompt", "name": "audit"}, "argument": argument}
            assert (await ada.request("completion/complete", asked))["result"]["completion"]["values"] == ["1999"]
            assert ada.told("notifications/resources/list_changed")
            assert ada.told("notifications/prompts/list_changed")
            assert "wipe" not in await said(bob)
            assert "error" in await bob.call("wipe")
            assert bob.told(CHANGED) == []

    async def test_something_may_be_hidden_from_it(self, era, wire):
        app = self.app()
        async with wire(app, era, principal="ada") as ada, wire(app, era, principal="bob") as bob:
            await ada.call("lock", {"name": "read"})
            assert "read" not in await said(ada)
            assert "error" in await ada.call("read")
            assert "read" in await said(bob)

    async def test_where_there_is_neither_session_nor_principal_it_is_an_error(self, wire):
        app = self.app()
        async with wire(app, "stateless") as peer:
            failed = (await peer.call("unlock"))["result"]
            assert failed["isError"]
            assert "needs a session or an authenticated principal" in failed["content"][0]["text"]

    async def test_enabling_does_not_overrule_who_may_see(self, era, wire):
        app = self.app()
        app.visible(lambda ctx, component: component.name != "wipe")
        async with wire(app, era, principal="ada") as ada:
            await ada.call("unlock")
            assert "wipe" not in await said(ada)

    async def test_a_mounted_handler_switches_by_the_names_it_knows(self, era, wire):
        host = Server("host")
        host.mount(self.app(), "o")
        async with wire(host, era, principal="ada") as ada, wire(host, era, principal="bob") as bob:
            await ada.call("o_unlock")
            await ada.call("o_lock", {"name": "read"})
            assert await said(ada) == ["o_wipe", "o_other", "o_unlock", "o_lock"]
            assert (await ada.call("o_wipe"))["result"]["content"][0]["text"] == "wiped"
            assert await said(bob) == ["o_read", "o_other", "o_unlock", "o_lock"]

    async def test_a_session_is_forgotten_when_it_ends(self, wire):
        app = self.app()
        async with wire(app, principal="ada") as ada:
            await ada.call("unlock")
            assert "wipe" in await said(ada)
        async with wire(app, principal="ada") as ada:
            assert "wipe" not in await said(ada)


class TestMistakes:
    """Wrong words are refused where they are said."""

    def test_a_name_nobody_has(self):
        with pytest.raises(SetupError, match="no tool, prompt or resource 'raed' to switch; did you mean 'read'"):
            office().disable("raed")

    def test_nothing_at_all(self):
        with pytest.raises(SetupError, match="say what to switch"):
            office().disable()

    def test_a_kind_there_is_not(self):
        with pytest.raises(SetupError, match="kind must be one of tool, prompt"):
            office().disable(tags={"x"}, kind="gadget")

    @pytest.mark.parametrize("name", ["include_tags", "exclude_tags"])
    def test_one_text_instead_of_a_set(self, name):
        with pytest.raises(
            SetupError, match=rf"{name} must be a set or a list or None, not 'admin': write \['admin'\]"
        ):
            Server("s", **{name: "admin"})
        with pytest.raises(SetupError, match="a set of texts"):
            office().disable(tags="admin")
        with pytest.raises(SetupError, match=r"tags must be a set or a list or None, not .*: write \["):
            office().add_tool("x", lambda: None, tags="admin")

    def test_rules_that_wait(self):
        async def rule(ctx, component): ...

        with pytest.raises(SetupError, match="plain `def`"):
            office().visible(rule)
        with pytest.raises(SetupError, match="plain `def`"):
            office().add_tool("x", lambda: None, visible=rule)

    @pytest.mark.parametrize("rule", [5, lambda ctx: True])
    def test_a_rule_that_cannot_be_asked(self, rule):
        with pytest.raises(SetupError, match=r"a function of \(ctx, component\)"):
            Server("s").visible(rule)
        with pytest.raises(SetupError, match=r"visible= is a function of \(ctx\)"):
            Server("s").add_tool("x", lambda: None, visible=lambda: True)

    def test_rules_where_caches_are_shared(self):
        with pytest.raises(SetupError, match="cache_scope"):
            office(cache_scope="public").visible(lambda ctx, component: True)
