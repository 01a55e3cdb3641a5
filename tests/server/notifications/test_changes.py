"""Telling of changes: at once, then at most once per interval, the last never lost, to whoever may hear of it."""

import asyncio
import itertools
import threading

import pytest

from ferrule import Server
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.testing import pair

TOOLS = "notifications/tools/list_changed"
PROMPTS = "notifications/prompts/list_changed"
RESOURCES = "notifications/resources/list_changed"
UPDATED = "notifications/resources/updated"
EVERYTHING = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}


def offering(**options):
    """A server that offers one of everything."""
    app = Server("changing", **options)
    app.add_tool("tool", lambda: None)
    app.add_prompt("prompt", lambda: "")
    app.add_resource("x://resource", lambda: "")
    app.add_resource("x://template/{id}", lambda id: "")  # noqa: A006
    return app


def add_and_remove(app, kind):
    """Return one way to add something and one to remove it."""
    return {
        "tools": (lambda: app.add_tool("more", lambda: None), lambda: app.remove_tool("more")),
        "prompts": (lambda: app.add_prompt("more", lambda: ""), lambda: app.remove_prompt("more")),
        "resources": (lambda: app.add_resource("x://more", lambda: ""), lambda: app.remove_resource("x://more")),
        "templates": (lambda: app.add_resource("y://{a}", lambda a: ""), lambda: app.remove_resource("y://{a}")),
    }[kind]


@pytest.mark.usefixtures("virtual_time")
class TestLists:
    """Changes of lists."""

    @pytest.mark.parametrize(
        ("kind", "notice"),
        [("tools", TOOLS), ("prompts", PROMPTS), ("resources", RESOURCES), ("templates", RESOURCES)],
    )
    async def test_adding_and_removing_is_announced(self, era, wire, kind, notice):
        """spec:TOOL-17, RES-10, PROMPT-6, TOOL-22, PRMT-11, RSRC-10, NOTI-02"""
        app = offering()
        add, remove = add_and_remove(app, kind)
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            add()
            assert len(peer.told(notice)) == 1
            await asyncio.sleep(1)
            remove()
            assert len(peer.told(notice)) == 2
            await asyncio.sleep(1)
        assert [m["method"] for m in peer.heard if m.get("method", "").endswith("list_changed")] == [notice] * 2

    @pytest.mark.parametrize("uri", ["city://rome", "city://{name}"])
    async def test_changing_a_resource_is_announced(self, era, wire, uri):
        """RSRC-10: switched off and on, and another in the place of the first."""
        app = offering()
        app.add_resource(uri, (lambda name: name) if "{" in uri else (lambda: "sun"), tags={"city"})
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            app.disable(tags={"city"})
            assert len(peer.told(RESOURCES)) == 1
            await asyncio.sleep(1)
            app.enable(tags={"city"})
            assert len(peer.told(RESOURCES)) == 2
            await asyncio.sleep(1)
            app.remove_resource(uri)
            app.add_resource(uri, (lambda name: name) if "{" in uri else (lambda: "rain"), title="Another")
            await asyncio.sleep(1)
            assert len(peer.told(RESOURCES)) == 4
        told = [m["method"] for m in peer.heard if m.get("method", "").endswith("list_changed")]
        assert set(told) == {RESOURCES}

    async def test_a_change_can_be_announced_by_hand(self, era, wire):
        """RSRC-11, SRVR-03"""
        app = offering()
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            app.notify_tools_changed()
            app.notify_prompts_changed()
            app.notify_resources_changed()
            assert [len(peer.told(kind)) for kind in (TOOLS, PROMPTS, RESOURCES)] == [1, 1, 1]

    async def test_a_thousand_changes_make_few_notices_and_the_last_is_not_lost(self, era, wire):
        """NOTI-06"""
        app = offering()
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            for number in range(1000):
                app.add_tool(f"tool{number}", lambda: None)
                await asyncio.sleep(0.00035)
            last = asyncio.get_running_loop().time()
            await asyncio.sleep(1)
            times = peer.told_at(TOOLS)
        assert len(times) == 5
        assert all(later - earlier >= 0.1 - 1e-9 for earlier, later in itertools.pairwise(times))
        assert last <= times[-1] <= last + 0.1

    async def test_each_kind_has_an_interval_of_its_own(self, era, wire):
        """NOTI-07"""
        app = offering()
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            for _ in range(3):
                app.notify_tools_changed()
                app.notify_prompts_changed()
                app.notify_resources_changed()
            assert [len(peer.told(kind)) for kind in (TOOLS, PROMPTS, RESOURCES)] == [1, 1, 1]
            await asyncio.sleep(0.1)
            assert [len(peer.told(kind)) for kind in (TOOLS, PROMPTS, RESOURCES)] == [2, 2, 2]
            await asyncio.sleep(1)
            assert [len(peer.told(kind)) for kind in (TOOLS, PROMPTS, RESOURCES)] == [2, 2, 2]

    async def test_without_list_changed_there_is_silence(self, era, wire):
        """NOTI-08, CAPN-10, SUB-2"""
        silent = ServerCapabilities(
            tools=ListCapability(), prompts=ListCapability(list_changed=True), resources=ResourcesCapability()
        )
        app = offering(capabilities=silent)
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            app.notify_tools_changed()
            app.notify_resources_changed()
            app.notify_prompts_changed()
            await asyncio.sleep(1)
        assert [m["method"] for m in peer.heard if "list_changed" in m.get("method", "")] == [PROMPTS]

    async def test_a_client_that_is_not_ready_yet_hears_nothing(self, wire):
        """LIFE-5"""
        app = offering()
        async with wire(app, "stateless") as peer:
            client = {"name": "slow", "version": "1"}
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
            peer.send({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params})
            await peer.response(1)
            app.notify_tools_changed()
            assert peer.told(TOOLS) == []
            peer.notify("notifications/initialized")
            await asyncio.sleep(1)
            app.notify_tools_changed()
            assert len(peer.told(TOOLS)) == 1

    async def test_every_client_hears_of_it(self, era, wire):
        """NOTI-09"""
        app = offering()
        async with wire(app, era) as first, wire(app, era) as second, wire(app, era) as third:
            peers = (first, second, third)
            for peer in peers:
                await peer.watch(**EVERYTHING)
            app.notify_tools_changed()
            assert [len(peer.told(TOOLS)) for peer in peers] == [1, 1, 1]
            await second.leave()
            await asyncio.sleep(1)
            app.notify_tools_changed()
            assert [len(peer.told(TOOLS)) for peer in peers] == [2, 1, 2]

    async def test_the_interval_can_be_set(self, era, wire):
        """NOTI-06"""
        app = offering(list_changed_interval=5.0)
        async with wire(app, era) as peer:
            await peer.watch(**EVERYTHING)
            app.notify_tools_changed()
            app.notify_tools_changed()
            await asyncio.sleep(4.9)
            assert len(peer.told(TOOLS)) == 1
            await asyncio.sleep(0.2)
            assert len(peer.told(TOOLS)) == 2

    async def test_a_client_lists_again_after_a_change(self, era):
        """NOTI-10, CACHE-4"""
        app = offering(cache_ttl=3600)
        heard = asyncio.Event()
        client = pair(app, era)
        client.on_notification(TOOLS, lambda params: heard.set())
        async with client:
            assert len(await client.list_tools()) == 1
            app.add_tool("more", lambda: None)
            await heard.wait()
            assert len(await client.list_tools()) == 2


@pytest.mark.usefixtures("virtual_time")
class TestUpdates:
    """Changes of single resources."""

    async def test_every_update_is_told_unless_merging_is_asked_for(self, era, wire):
        """SUBS-14"""
        app = offering()
        async with wire(app, era) as peer:
            await peer.watch("x://resource")
            for _ in range(5):
                app.notify_resource_updated("x://resource")
            assert len(peer.told(UPDATED)) == 5

    async def test_rapid_updates_of_one_resource_can_be_merged(self, era, wire):
        """SUBS-14"""
        app = offering(update_interval=1.0)
        app.add_resource("x://other", lambda: "")
        async with wire(app, era) as peer:
            await peer.watch("x://resource", "x://other")
            for version in range(10):
                app.notify_resource_updated("x://resource", version=version)
                await asyncio.sleep(0.05)
            app.notify_resource_updated("x://other")
            await asyncio.sleep(2)
            told = [(m["params"]["uri"], m["params"].get("_meta", {}).get("version")) for m in peer.told(UPDATED)]
        assert told == [("x://resource", 0), ("x://other", None), ("x://resource", 9)]


class TestThreads:
    """A server is told of changes from anywhere, and nobody waits."""

    async def test_another_thread_may_tell_of_changes(self, era, wire):
        app = offering()

        def tell():
            app.notify_resource_updated("x://resource")
            app.add_tool("from-a-thread", lambda: None)

        async with wire(app, era) as peer:
            await peer.watch("x://resource", **EVERYTHING)
            thread = threading.Thread(target=tell)
            thread.start()
            thread.join()
            assert peer.told(UPDATED) == []
            await peer.hear(UPDATED)
            await peer.hear(TOOLS)

    def test_a_server_nobody_uses_may_be_told_of_changes(self):
        app = offering()
        app.notify_tools_changed()
        app.notify_resource_updated("x://resource")
        app.add_tool("more", lambda: None)

    def test_a_server_whose_loop_has_ended_may_be_told_of_changes(self):
        app = offering()

        async def use():
            await app.call_tool("tool")

        asyncio.run(use())
        app.notify_tools_changed()
        app.notify_resource_updated("x://resource")

    def test_a_notice_due_when_one_loop_ended_does_not_silence_the_next(self, wire):
        app = offering()

        async def change_twice():
            async with wire(app) as peer:
                app.notify_tools_changed()
                app.notify_tools_changed()
            return len(peer.told(TOOLS))

        assert asyncio.run(change_twice()) == 1
        assert asyncio.run(change_twice()) == 1
