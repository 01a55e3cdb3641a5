"""Hearing of changed lists, which the handshake era tells unasked and the stateless era only when listened to."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client, Server
from ferrule.errors import SetupError
from ferrule.testing import pair

LISTS = ("tools", "prompts", "resources")
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


def kind(name):
    return f"notifications/{name}/list_changed"


@pytest.fixture
def changing():
    """A server with lists that can change, and the deeds that change them."""
    app = Server("changing", list_changed_interval=0)

    async def nothing() -> str:
        return ""

    deeds = {
        "tools": lambda: app.add_tool("more", nothing),
        "prompts": lambda: app.add_prompt("more", nothing),
        "resources": lambda: app.add_resource("more://1", nothing),
    }
    app.add_tool("first", nothing)
    app.add_prompt("first", nothing)
    app.add_resource("first://1", nothing)
    return app, deeds


async def soon(heard, count=1):
    while len(heard) < count:
        await asyncio.sleep(0.001)


@pytest.mark.parametrize("name", LISTS)
async def test_a_handler_set_before_connecting_hears_of_its_list(name, era, changing):
    """NOTI-02"""
    app, deeds = changing
    heard = []
    client = pair(app, era)
    client.on_notification(kind(name), lambda method, params: heard.append(method))
    async with client:
        for deed in deeds.values():
            deed()
        await soon(heard)
    assert heard == [kind(name)]


@pytest.mark.parametrize("name", LISTS)
async def test_a_handler_set_while_connected_hears_of_its_list(name, era, changing):
    app, deeds = changing
    heard = []
    async with pair(app, era) as client:
        client.on_notification(kind(name), lambda method, params: heard.append(method))
        while not len(app.host.services.subscriptions):
            await asyncio.sleep(0.001)
        deeds[name]()
        await soon(heard)
    assert heard == [kind(name)]


async def test_lists_can_be_watched_so_that_what_is_kept_of_them_is_dropped(era, changing):
    """CACHE-4, NOTI-10"""
    app, deeds = changing
    async with pair(app, era) as client:
        await client.watch_lists(*LISTS)
        await client.watch_lists("tools")
        assert len(await client.list_tools()) == 1
        changes = client.cache.changes
        deeds["tools"]()
        while client.cache.changes == changes:
            await asyncio.sleep(0.001)
        assert len(await client.list_tools()) == 2


async def test_every_client_hears_of_a_change(era, changing):
    """NOTI-09"""
    app, deeds = changing
    heard = []
    clients = [pair(app, era) for _ in range(3)]
    for number, client in enumerate(clients):
        client.on_notification(kind("tools"), lambda params, number=number: heard.append(number))
        await client.connect()
    deeds["tools"]()
    await soon(heard, 3)
    for client in clients:
        await client.close()
    assert sorted(heard) == [0, 1, 2]


async def test_there_are_three_lists_to_watch(era, changing):
    async with pair(changing[0], era) as client:
        with pytest.raises(SetupError, match="tools, prompts and resources"):
            await client.watch_lists("moons")


async def test_all_lists_are_listened_to_by_one_subscription(raw):
    """SUB-1"""
    server = raw("stateless")

    def acknowledge(request):
        wanted = request["params"]["notifications"]
        meta = {SUBSCRIPTION: request["id"]}
        server.tell("notifications/subscriptions/acknowledged", {"_meta": meta, "notifications": wanted})

    server.answers["subscriptions/listen"] = acknowledge
    client = Client(server, mode="stateless")
    for name in LISTS:
        client.on_notification(kind(name), print)
    async with client:
        pass
    (listen,) = server.sent("subscriptions/listen")
    assert listen["params"]["notifications"] == {
        "toolsListChanged": True,
        "promptsListChanged": True,
        "resourcesListChanged": True,
    }


async def test_a_handler_for_what_the_server_never_tells_is_no_reason_to_fail(era, raw):
    server = raw(era, capabilities={"tools": {}})
    client = Client(server, mode=era)
    client.on_notification(kind("tools"), print)
    client.on_notification(kind("prompts"), print)
    async with client:
        pass
    assert not server.sent("subscriptions/listen")


async def test_a_server_that_refuses_to_tell_is_no_reason_to_fail(raw, refused, caplog):
    server = raw("stateless", {"subscriptions/listen": refused(-32601, "Method not found")})
    client = Client(server, mode="stateless")
    client.on_notification(kind("tools"), print)
    async with client:
        pass
    assert "refuses to tell of changes" in caplog.text
