"""What a server knew before a loss, said to it again."""

from __future__ import annotations

import asyncio
import logging

import pytest

from ferrule import Client, Reconnect
from ferrule.errors import ChildFailed, LinkLost
from ferrule.protocol.session import Phase

STEADY = Reconnect(jitter=0, resubscribe=True)
CLEAN = Reconnect(jitter=0)
LISTEN = "subscriptions/listen"
TOOLS_CHANGED = "notifications/tools/list_changed"


def client_of(server, era, plan=STEADY, **options):
    return Client(server, mode=era, reconnect=plan, **options)


def wanted(server, era):
    """Return what the server was last asked to tell of."""
    if era == "handshake":
        return [request["params"]["uri"] for request in server.sent("resources/subscribe")]
    return server.sent(LISTEN)[-1]["params"]["notifications"].get("resourceSubscriptions", [])


async def restored(client):
    while client.reconnecting:
        await asyncio.sleep(0.1)


async def lose(client, server):
    server.die(ChildFailed("gone"))
    await restored(client)
    await asyncio.sleep(0.1)
    assert client.phase is Phase.INITIALIZED


@pytest.mark.virtual_time
async def test_a_stream_of_changes_survives_and_tells_of_what_may_have_been_missed(era, listening):
    """SUBS-12, SUB-11, SUB-9: the server is asked anew, in either era's way."""
    server = listening(era)
    async with client_of(server, era) as client, client.subscribe("a://1") as changes:
        server.received.clear()
        await lose(client, server)
        assert wanted(server, era) == ["a://1"]
        assert await anext(changes) == "a://1"
        server.update("a://1")
        assert await anext(changes) == "a://1"
        assert client.subscriptions == {"a://1"}


@pytest.mark.virtual_time
async def test_every_stream_and_callback_is_restored_once(era, listening):
    server = listening(era)
    heard = []
    async with client_of(server, era) as client:
        await client.subscribe_resource("a://1", heard.append)
        async with client.subscribe("a://2") as two, client.subscribe("a://2") as again:
            server.received.clear()
            await lose(client, server)
            assert sorted(wanted(server, era)) == ["a://1", "a://2"]
            assert [await anext(two), await anext(again)] == ["a://2", "a://2"]
            assert heard == ["a://1"]
            server.update("a://1")
            await asyncio.sleep(0.1)
            assert heard == ["a://1", "a://1"]
        assert client.subscriptions == {"a://1"}


@pytest.mark.virtual_time
async def test_subscriptions_end_with_the_link_where_they_are_not_to_be_restored(era, listening):
    """SESS-13, SUBS-12, SUBS-05: a new conversation begins with none."""
    server = listening(era)
    heard = []
    async with client_of(server, era, CLEAN) as client:
        await client.subscribe_resource("a://1", heard.append)
        async with client.subscribe("a://2") as changes:
            server.received.clear()
            await lose(client, server)
            assert [uri async for uri in changes] == []
            assert client.subscriptions == set()
            assert not server.sent("resources/subscribe")
            assert not server.sent(LISTEN)
            server.update("a://1")
            await asyncio.sleep(0.1)
            assert heard == []


@pytest.mark.virtual_time
async def test_a_subscription_made_meanwhile_waits_for_the_link(era, listening):
    server = listening(era)
    async with client_of(server, era) as client:
        server.die(ChildFailed("gone"))
        async with client.subscribe("a://1") as changes:
            server.update("a://1")
            assert await anext(changes) == "a://1"


@pytest.mark.virtual_time
async def test_a_subscription_that_was_under_way_is_restored(era, listening):
    server = listening(era)
    method = "resources/subscribe" if era == "handshake" else LISTEN
    answer, server.answers[method] = server.answers[method], None
    async with client_of(server, era) as client:
        entering = asyncio.create_task(client.subscribe_resource("a://1"))
        await server.heard(method)
        server.answers[method] = answer
        await lose(client, server)
        await entering
        assert wanted(server, era)[-1:] == ["a://1"]
        assert client.subscriptions == {"a://1"}


@pytest.mark.virtual_time
async def test_a_stream_left_meanwhile_is_not_restored(era, listening):
    server = listening(era)
    async with client_of(server, era) as client:
        async with client.subscribe("a://1"):
            server.received.clear()
            server.die(ChildFailed("gone"))
        await restored(client)
        assert not server.sent("resources/subscribe")
        assert not server.sent(LISTEN)


@pytest.mark.virtual_time
async def test_what_the_server_refuses_now_ends_and_the_rest_goes_on(listening, refused, caplog):
    server = listening("handshake")
    client = client_of(server, "handshake")
    async with client, client.subscribe("a://1") as one, client.subscribe("a://2") as two:
        server.answers["resources/subscribe"] = lambda request: (
            refused(-32002, "no such resource") if request["params"]["uri"] == "a://1" else {}
        )
        await lose(client, server)
        assert [uri async for uri in one] == []
        assert await anext(two) == "a://2"
        assert client.subscriptions == {"a://2"}
        assert "will not tell of a://1 any more" in caplog.text


@pytest.mark.virtual_time
async def test_a_server_that_takes_no_subscriptions_any_more_ends_them(listening, refused):
    server = listening("stateless")
    async with client_of(server, "stateless") as client, client.subscribe("a://1") as changes:
        server.answers[LISTEN] = refused(-32601)
        await lose(client, server)
        assert [uri async for uri in changes] == []


@pytest.mark.virtual_time
@pytest.mark.parametrize("resubscribe", [False, True])
async def test_giving_up_ends_the_streams(era, resubscribe, listening):
    server = listening(era)
    plan = Reconnect(jitter=0, max_attempts=1, resubscribe=resubscribe)
    async with client_of(server, era, plan) as client, client.subscribe("a://1") as changes:
        opening = "initialize" if era == "handshake" else "server/discover"
        server.answers[opening] = lambda request: server.die(ChildFailed("gone again"))
        server.die(ChildFailed("gone"))
        assert [uri async for uri in changes] == []
        await restored(client)
        assert client.phase is Phase.CLOSED


@pytest.mark.virtual_time
async def test_lists_are_watched_again_and_may_have_changed(era, listening):
    server = listening(era)
    heard = []
    async with client_of(server, era) as client:
        client.on_notification(TOOLS_CHANGED, heard.append)
        await client.watch_lists("prompts")
        await asyncio.sleep(0.1)
        server.received.clear()
        await lose(client, server)
        assert heard == [{}]
        if era == "stateless":
            assert server.sent(LISTEN)[-1]["params"]["notifications"] == {
                "promptsListChanged": True,
                "toolsListChanged": True,
            }


@pytest.mark.virtual_time
async def test_a_handler_added_meanwhile_is_heard_of_by_the_server(listening):
    server = listening("stateless")
    async with client_of(server, "stateless") as client:
        server.die(ChildFailed("gone"))
        client.on_notification(TOOLS_CHANGED, lambda params: None)
        await restored(client)
        await asyncio.sleep(0.1)
        assert server.sent(LISTEN)[-1]["params"]["notifications"] == {"toolsListChanged": True}


@pytest.mark.virtual_time
@pytest.mark.parametrize("plan", [STEADY, CLEAN])
async def test_the_log_level_is_set_again(plan, era, listening):
    server = listening(era, **{"tools/list": {"resultType": "complete", "tools": []}})
    async with client_of(server, era, plan) as client:
        await client.set_log_level("warning")
        server.received.clear()
        await lose(client, server)
        if era == "handshake":
            assert [request["params"]["level"] for request in server.sent("logging/setLevel")] == ["warning"]
        else:
            await client.list_tools()
            meta = server.sent("tools/list")[-1]["params"]["_meta"]
            assert meta["io.modelcontextprotocol/logLevel"] == "warning"


@pytest.mark.virtual_time
async def test_a_server_that_takes_no_level_any_more_is_used_all_the_same(listening, refused, caplog):
    server = listening("handshake")
    async with client_of(server, "handshake") as client:
        await client.set_log_level("warning")
        server.answers["logging/setLevel"] = refused(-32601)
        await lose(client, server)
        assert "does not take the log level it had" in caplog.text


@pytest.mark.virtual_time
async def test_what_was_kept_is_forgotten(listening):
    page = {"resultType": "complete", "tools": [], "ttlMs": 3_600_000, "cacheScope": "private"}
    server = listening("stateless", **{"tools/list": page})
    async with client_of(server, "stateless") as client:
        for _ in range(2):
            await client.list_tools()
        assert len(server.sent("tools/list")) == 1
        await lose(client, server)
        await client.list_tools()
        assert len(server.sent("tools/list")) == 2


# A subscription that ends while its link lives, as over HTTP


@pytest.mark.virtual_time
async def test_a_subscription_the_server_ends_is_asked_for_again(listening):
    """SUB-9, SHD-06: later each time, and what may have been missed is told."""
    server = listening("stateless")
    async with client_of(server, "stateless") as client, client.subscribe("a://1") as changes:
        server.answer(server.sent(LISTEN)[0], {"resultType": "complete"})
        assert await anext(changes) == "a://1"
        assert len(server.sent(LISTEN)) == 2
        server.update("a://1")
        assert await anext(changes) == "a://1"
        assert client.phase is Phase.INITIALIZED


@pytest.mark.virtual_time
async def test_a_subscription_the_server_ends_again_and_again_is_asked_for_later_each_time(listening):
    server = listening("stateless")
    loop = asyncio.get_running_loop()
    async with client_of(server, "stateless") as client, client.subscribe("a://1") as changes:
        waits = []
        for stay in (0, 0, 0, 31, 0):
            await asyncio.sleep(stay)
            began = loop.time()
            server.answer(server.sent(LISTEN)[-1], {"resultType": "complete"})
            assert await anext(changes) == "a://1"
            waits.append(loop.time() - began)
        assert waits == pytest.approx([1, 2, 4, 1, 2])


@pytest.mark.virtual_time
@pytest.mark.parametrize(("lasted", "wait"), [(29.5, 2), (30, 1)])
async def test_a_subscription_that_lasted_for_just_the_longest_delay_is_asked_for_soon(listening, lasted, wait):
    server = listening("stateless")
    loop = asyncio.get_running_loop()
    async with client_of(server, "stateless") as client, client.subscribe("a://1") as changes:
        client._keeper._listened_at = loop.time() - lasted
        began = loop.time()
        server.answer(server.sent(LISTEN)[-1], {"resultType": "complete"})
        assert await anext(changes) == "a://1"
        assert loop.time() - began == pytest.approx(wait)


@pytest.mark.virtual_time
async def test_subscriptions_are_restored_only_by_plan_and_while_the_client_is_open(listening):
    clean = client_of(listening("stateless"), "stateless", CLEAN)
    assert not clean._keeper.rescues()
    async with clean:
        assert not clean._keeper.rescues()
    steady = client_of(listening("stateless"), "stateless")
    async with steady:
        assert steady._keeper.rescues()
        steady._keeper.current().closing = True
        assert not steady._keeper.rescues()
    assert not steady._keeper.rescues()


@pytest.mark.virtual_time
async def test_closing_ends_the_streams_before_it_waits_for_what_was_asked(era, listening):
    server = listening(era, **{"tools/call": None})
    loop = asyncio.get_running_loop()
    client = client_of(server, era)
    await client.connect()
    async with client.subscribe("a://1") as changes:
        call = asyncio.create_task(client.call_tool("t"))
        await server.heard("tools/call")
        began = loop.time()
        closing = asyncio.create_task(client.close(drain=5))
        assert [uri async for uri in changes] == []
        assert loop.time() == began
        await closing
        assert loop.time() - began == pytest.approx(5)
    with pytest.raises(LinkLost, match="the client was closed before the answer came"):
        await call


@pytest.mark.virtual_time
async def test_a_subscription_the_server_refuses_then_ends(listening, refused, caplog):
    server = listening("stateless")
    async with client_of(server, "stateless") as client, client.subscribe("a://1") as changes:
        server.answers[LISTEN] = refused(-32603)
        server.answer(server.sent(LISTEN)[0], {"resultType": "complete"})
        assert [uri async for uri in changes] == []
        assert "the server does not take the subscriptions it had: no" in caplog.text
        assert len(server.sent(LISTEN)) == 2


@pytest.mark.virtual_time
async def test_a_subscription_that_is_never_acknowledged_again_is_given_up(listening, caplog):
    caplog.set_level(logging.INFO, "ferrule.client")
    server = listening("stateless")
    plan = Reconnect(jitter=0, max_attempts=3, resubscribe=True)
    async with client_of(server, "stateless", plan) as client, client.subscribe("a://1") as changes:
        server.answers[LISTEN] = None
        server.answer(server.sent(LISTEN)[0], {"resultType": "complete"})
        assert [uri async for uri in changes] == []
        assert len(server.sent(LISTEN)) == 4
        assert "attempt 3 to hear of changes again failed" in caplog.text


async def test_a_subscription_ends_where_nobody_comes_back(era, listening):
    server = listening(era)
    async with client_of(server, era, False) as client, client.subscribe("a://1") as changes:
        server.die(ChildFailed("gone"))
        assert [uri async for uri in changes] == []


@pytest.mark.virtual_time
async def test_a_subscription_can_be_left_while_a_new_link_is_being_opened(era, listening):
    server = listening(era)
    async with client_of(server, era) as client, client.subscribe("a://b"):
        server.answers["server/discover"] = server.answers["initialize"] = None
        server.die(ChildFailed("gone"))
        await asyncio.sleep(2)
        assert client.reconnecting


@pytest.mark.virtual_time
@pytest.mark.parametrize("before", [0, 2], ids=["lost", "replaced"])
async def test_nothing_is_tried_on_a_link_that_was_lost_meanwhile(before, listening):
    server = listening("handshake")
    async with client_of(server, "handshake") as client:
        keeper = client._keeper
        tried = []

        async def deed():
            tried.append(keeper.current())

        trying = asyncio.create_task(keeper._retry(keeper.current(), deed, before))
        await asyncio.sleep(0.5)
        server.die(ChildFailed("gone"))
        assert await trying is False
        assert tried == []
        assert client.reconnecting is (before == 0)
        await restored(client)


@pytest.mark.virtual_time
async def test_the_first_attempt_on_a_living_link_comes_after_the_first_delay(listening):
    loop = asyncio.get_running_loop()
    async with client_of(listening("handshake"), "handshake") as client:
        began = loop.time()
        assert await client._keeper._retry(client._keeper.current(), lambda: asyncio.sleep(0))
        assert loop.time() - began == pytest.approx(1)


# A session that ends while its link lives, as over HTTP


@pytest.mark.virtual_time
async def test_a_session_that_is_lost_with_its_link_is_restored_on_the_new_one(listening, monkeypatch):
    server = listening("handshake")
    async with client_of(server, "handshake") as client:
        keeper = client._keeper
        conversation = keeper.current()
        restored_on = []

        async def renew():
            server.die(ChildFailed("gone"))

        async def restore(*, resubscribe):
            restored_on.append(keeper.current())

        monkeypatch.setattr(conversation, "renew", renew)
        monkeypatch.setattr(keeper.knowledge, "restore", restore)
        await keeper._renew(conversation)
        assert restored_on == []
        await restored(client)
        assert restored_on == [keeper.current()]
        assert keeper.current() is not conversation


async def test_a_new_session_is_told_nothing_where_nobody_comes_back(listening, monkeypatch):
    async with client_of(listening("handshake"), "handshake", False) as client:
        keeper = client._keeper
        conversation = keeper.current()
        called = []

        async def renew():
            called.append("renew")

        async def restore(*, resubscribe):
            called.append("restore")

        monkeypatch.setattr(conversation, "renew", renew)
        monkeypatch.setattr(keeper.knowledge, "restore", restore)
        await keeper._renew(conversation)
        assert called == ["renew"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("plan", "lost", "again"),
    [(STEADY, False, True), (CLEAN, False, False), (STEADY, True, False)],
    ids=["resubscribes", "does not", "link lost"],
)
async def test_a_session_that_could_not_be_told_all_is_told_again_while_its_link_lives(
    plan, lost, again, listening, monkeypatch, caplog
):
    server = listening("handshake")
    async with client_of(server, "handshake", plan) as client:
        keeper = client._keeper
        conversation = keeper.current()
        notices, listened, forgotten = [], [], []
        client.on_connection(notices.append)

        async def renew():
            """The new session is there at once."""

        async def restore(*, resubscribe):
            assert forgotten == [conversation]
            if lost:
                server.die(ChildFailed("gone"))
            raise LinkLost("no answer")

        async def listen_again(renewed):
            listened.append(renewed)

        monkeypatch.setattr(conversation, "renew", renew)
        monkeypatch.setattr(keeper.knowledge, "restore", restore)
        monkeypatch.setattr(keeper.knowledge, "forget", lambda: forgotten.append(keeper.current()))
        monkeypatch.setattr(keeper, "_listen_again", listen_again)
        await keeper._renew(conversation)
        assert listened == ([conversation] if again else [])
        assert "what the session knew could not be restored: no answer" in caplog.text
        assert [str(notice.reason) for notice in notices if notice.what == "restored"] == [
            "the server ended the session"
        ]


@pytest.mark.virtual_time
async def test_lists_to_be_watched_wait_for_the_new_link(era, listening):
    server = listening(era)
    async with client_of(server, era) as client:
        server.die(ChildFailed("gone"))
        await client.watch_lists("tools")
        assert client.phase is Phase.INITIALIZED
