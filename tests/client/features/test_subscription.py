"""A stream of changes, in either era."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client, PeerError
from ferrule.client.features.subscription import covers
from ferrule.errors import CallFailed, CapabilityNotSupported, LinkLost, NotConnected, TimedOut
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
UPDATED = "notifications/resources/updated"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTEN = "subscriptions/listen"


async def settled(client):
    """Let every notification that has arrived reach its handlers."""
    await client.request("vendor/nothing")
    for _ in range(3):
        await asyncio.sleep(0)


# Streams


async def test_a_resource_s_changes_come_one_after_another(era, app):
    """SUBS-01, SUBS-07, CLNT-06"""
    async with pair(app, era) as client, client.subscribe("notes://7") as changes:
        for _ in range(3):
            app.notify_resource_updated("notes://7")
            app.notify_resource_updated("notes://8")
        assert [await anext(changes) for _ in range(3)] == ["notes://7"] * 3
        assert client.subscriptions == {"notes://7"}


async def test_a_stream_can_be_iterated_and_left(era, app):
    """SUBS-09"""
    async with pair(app, era) as client:
        async with client.subscribe("notes://7") as changes:
            app.notify_resource_updated("notes://7")
            async for uri in changes:
                assert uri == "notes://7"
                break
        await client.ping()
        assert client.subscriptions == set()
        assert not app.host.services.subscriptions.subscribers("notes://7")


async def test_several_streams_each_hear_of_their_own(era, app):
    """SUB-7, SUBS-05, SUBS-10"""
    async with pair(app, era) as client, client.subscribe("notes://1") as one, client.subscribe("notes://2") as two:
        assert client.subscriptions == {"notes://1", "notes://2"}
        app.notify_resource_updated("notes://2")
        app.notify_resource_updated("notes://1")
        assert await anext(one) == "notes://1"
        assert await anext(two) == "notes://2"


async def test_two_streams_of_one_resource_both_hear_and_end_apart(era, app):
    """SUBS-03"""
    async with pair(app, era) as client, client.subscribe("notes://1") as first:
        async with client.subscribe("notes://1") as second:
            app.notify_resource_updated("notes://1")
            assert await anext(first) == await anext(second) == "notes://1"
        app.notify_resource_updated("notes://1")
        assert await anext(first) == "notes://1"
        assert second._waiting.empty()


async def test_a_hundred_resources_can_be_subscribed_to(era, app):
    """SUBS-10"""
    heard = []
    async with pair(app, era) as client:
        for number in range(100):
            await client.subscribe_resource(f"notes://{number}", heard.append)
        assert len(client.subscriptions) == 100
        for number in range(100):
            app.notify_resource_updated(f"notes://{number}")
        while len(heard) < 100:
            await asyncio.sleep(0.001)
    assert sorted(heard) == sorted(f"notes://{number}" for number in range(100))


async def test_a_callback_hears_of_its_resource_until_it_is_unsubscribed(era, listening):
    """SUBS-01, SUBS-05, NOTI-13, CLNT-06"""
    server, heard = listening(era), []
    async with Client(server, mode=era) as client:
        await client.subscribe_resource("x://1", heard.append)
        assert client.subscriptions == {"x://1"}
        server.update("x://1")
        await settled(client)
        await client.unsubscribe_resource("x://1")
        assert client.subscriptions == set()
        await client.subscribe_resource("x://1")
        server.update("x://1")
        await settled(client)
    assert heard == ["x://1"]


async def test_unsubscribing_from_what_was_never_subscribed_says_nothing(era, listening):
    server = listening(era)
    async with Client(server, mode=era) as client:
        before = len(server.received)
        await client.unsubscribe_resource("x://1")
        assert len(server.received) == before


@pytest.mark.parametrize(
    ("wanted", "uri", "covered"),
    [
        ("x://a", "x://a", True),
        ("x://a", "x://a/b", True),
        ("x://a/", "x://a/b", True),
        ("x://", "x://a", True),
        ("x://a", "x://ab", False),
        ("x://a/b", "x://a", False),
    ],
)
def test_a_change_of_a_part_is_a_change_of_the_whole(wanted, uri, covered):
    assert covers(wanted, uri) is covered


async def test_a_stream_hears_of_the_parts_of_its_resource(era, listening):
    server = listening(era)
    async with Client(server, mode=era) as client, client.subscribe("x://folder") as changes:
        server.update("x://folder/file")
        assert await anext(changes) == "x://folder/file"


# Ends


async def test_a_stream_ends_when_the_link_is_lost(era, listening):
    server = listening(era)
    async with Client(server, mode=era) as client, client.subscribe("x://1") as changes:
        server.update("x://1")
        server.die()
        assert [uri async for uri in changes] == ["x://1"]
        assert [uri async for uri in changes] == []


async def test_a_stream_ends_when_the_client_is_closed(era, listening):
    client = Client(listening(era), mode=era)
    await client.connect()
    async with client.subscribe("x://1") as changes:
        reading = asyncio.create_task(anext(changes, "ended"))
        await asyncio.sleep(0)
        await client.close()
        assert await reading == "ended"


async def test_a_stream_of_an_earlier_conversation_takes_nothing_from_the_next(era, listening):
    server = listening(era)
    client = Client(server, mode=era)
    await client.connect()
    async with client.subscribe("x://1"):
        await client.reconnect()
        assert client.subscriptions == set()
        later = client.subscribe("x://1")
        await later.__aenter__()
    server.update("x://1")
    assert await anext(later) == "x://1"
    assert not server.sent("resources/unsubscribe")
    await later.__aexit__(None, None, None)
    await client.close()


async def test_a_refused_subscription_leaves_nothing_behind(era, raw, refused):
    server = raw(era, {"resources/subscribe": refused(-32002, "no"), LISTEN: refused(-32602, "no")})
    async with Client(server, mode=era) as client:
        with pytest.raises(PeerError):
            async with client.subscribe("x://1"):
                pass
        assert client.subscriptions == set()
        assert not client.pending


async def test_nobody_subscribes_before_connecting(era, app):
    client = pair(app, era)
    with pytest.raises(NotConnected):
        async with client.subscribe("notes://1"):
            pass


async def test_subscribing_needs_the_capability(era, raw):
    """SUBS-02, RES-8"""
    server = raw(era, capabilities={"resources": {"listChanged": True}})
    async with Client(server, mode=era) as client:
        with pytest.raises(CapabilityNotSupported):
            async with client.subscribe("x://1"):
                pass
    assert not server.sent("resources/subscribe")
    assert not server.sent(LISTEN)


# The handshake era on the wire


@pytest.mark.parametrize("answer", [{}, {"moon": "full"}])
async def test_the_handshake_era_subscribes_and_unsubscribes_by_request(answer, raw):
    """RES-8, SUBS-01, SUBS-04"""
    server = raw(answers={"resources/subscribe": answer, "resources/unsubscribe": answer})
    async with Client(server, mode="handshake") as client, client.subscribe("x://1"), client.subscribe("x://1"):
        pass
    assert [request["params"] for request in server.sent("resources/subscribe")] == [{"uri": "x://1"}]
    assert [request["params"] for request in server.sent("resources/unsubscribe")] == [{"uri": "x://1"}]


async def test_a_subscription_answered_with_null_counts(raw):
    """SUBS-04"""
    server = raw(answers={})
    server.answers["resources/subscribe"] = lambda request: server.say(
        {"jsonrpc": "2.0", "id": request["id"], "result": None}
    )
    async with Client(server, mode="handshake") as client:
        await client.subscribe_resource("x://1")
        assert client.subscriptions == {"x://1"}


# The stateless era on the wire


async def test_one_listen_names_all_that_is_wanted(listening):
    """SUB-1, SUB-8: a new one replaces the old, which is cancelled."""
    server = listening("stateless")
    async with Client(server, mode="stateless") as client:
        async with client.subscribe("x://2"), client.subscribe("x://1"):
            await client.watch_lists("tools")
        first, second, third, fourth, fifth = server.sent(LISTEN)
        wanted = [listen["params"]["notifications"] for listen in (first, second, third, fourth, fifth)]
        assert wanted == [
            {"resourceSubscriptions": ["x://2"]},
            {"resourceSubscriptions": ["x://1", "x://2"]},
            {"toolsListChanged": True, "resourceSubscriptions": ["x://1", "x://2"]},
            {"toolsListChanged": True, "resourceSubscriptions": ["x://2"]},
            {"toolsListChanged": True},
        ]
        cancelled = [notice["params"]["requestId"] for notice in server.sent("notifications/cancelled")]
        assert cancelled == [first["id"], second["id"], third["id"], fourth["id"]]
        assert len(client.pending) == 1


async def test_leaving_the_last_stream_ends_the_listen(listening):
    """SUB-8, CANC-5"""
    server = listening("stateless")
    async with Client(server, mode="stateless") as client:
        async with client.subscribe("x://1"):
            assert len(client.pending) == 1
        (listen,) = server.sent(LISTEN)
        assert server.sent("notifications/cancelled")[0]["params"]["requestId"] == listen["id"]
        assert not client.pending


async def test_a_notice_of_a_listen_that_is_over_is_dropped(listening):
    """SUB-7, STDIO-7"""
    server, heard = listening("stateless"), []
    async with Client(server, mode="stateless") as client:
        client.on_notification(UPDATED, lambda params: heard.append(params["uri"]))
        async with client.subscribe("x://1") as one, client.subscribe("x://2"):
            first, second = server.sent(LISTEN)
            server.tell(UPDATED, {"uri": "x://1", "_meta": {SUBSCRIPTION: first["id"]}})
            server.tell(UPDATED, {"uri": "x://1", "_meta": {SUBSCRIPTION: str(second["id"])}})
            server.tell(UPDATED, {"uri": "x://1", "_meta": {SUBSCRIPTION: second["id"]}})
            assert await anext(one) == "x://1"
            assert one._waiting.empty()
        server.tell(UPDATED, {"uri": "x://1", "_meta": {SUBSCRIPTION: second["id"]}})
        await settled(client)
    assert heard == ["x://1"]


async def test_what_follows_the_acknowledgement_at_once_is_not_lost(listening):
    """SUB-3"""
    server = listening("stateless")
    acknowledge = server.answers[LISTEN]

    def acknowledge_and_tell(request):
        acknowledge(request)
        server.tell(UPDATED, {"uri": "x://1", "_meta": {SUBSCRIPTION: request["id"]}})

    server.answers[LISTEN] = acknowledge_and_tell
    async with Client(server, mode="stateless") as client, client.subscribe("x://1") as changes:
        assert await anext(changes) == "x://1"


async def test_a_server_that_honours_less_is_gone_on_with(listening, caplog):
    """SUB-4"""
    server = listening("stateless")
    server.answers[LISTEN] = lambda request: server.tell(
        ACKNOWLEDGED, {"_meta": {SUBSCRIPTION: request["id"]}, "notifications": {"resourceSubscriptions": ["x://1"]}}
    )
    async with Client(server, mode="stateless") as client:
        await client.watch_lists("tools")
        async with client.subscribe("x://1") as changes, client.subscribe("x://2"):
            server.update("x://1")
            assert await anext(changes) == "x://1"
    assert "will not tell of toolsListChanged" in caplog.text
    assert "x://2" in caplog.text


@pytest.mark.parametrize("end", ["result", "cancelled", "both"])
async def test_a_server_may_end_a_listen_by_either_signal(end, listening):
    """SUB-10: a second signal is ignored."""
    server = listening("stateless")
    async with Client(server, mode="stateless") as client, client.subscribe("x://1") as changes:
        (listen,) = server.sent(LISTEN)
        if end != "cancelled":
            server.answer(listen, {"resultType": "complete", "_meta": {SUBSCRIPTION: listen["id"]}})
        if end != "result":
            server.tell("notifications/cancelled", {"requestId": listen["id"]})
        assert [uri async for uri in changes] == []
        assert client.subscriptions == set()
        await client.request("vendor/nothing")
        async with client.subscribe("x://1") as again:
            server.update("x://1")
            assert await anext(again) == "x://1"


@pytest.mark.virtual_time
async def test_a_listen_that_is_not_acknowledged_is_given_up(listening):
    server = listening("stateless", **{LISTEN: None})
    async with Client(server, mode="stateless") as client:
        with pytest.raises(TimedOut, match="within 5 s"):
            async with client.subscribe("x://1"):
                pass
        assert asyncio.get_running_loop().time() == 5
        assert not client.pending
        assert client.subscriptions == set()
    assert len(server.sent("notifications/cancelled")) == 1


async def test_a_listen_that_ends_before_it_began_is_no_subscription(listening):
    server = listening("stateless", **{LISTEN: {"resultType": "complete"}})
    async with Client(server, mode="stateless") as client:
        with pytest.raises(CallFailed, match="at once"):
            async with client.subscribe("x://1"):
                pass
        assert not client.pending


async def test_a_second_listen_that_fails_leaves_the_first_at_work(listening, refused):
    server = listening("stateless")
    async with Client(server, mode="stateless") as client, client.subscribe("x://1") as changes:
        (first,) = server.sent(LISTEN)
        acknowledge = server.answers[LISTEN]
        server.answers[LISTEN] = refused(-32603, "full")
        with pytest.raises(PeerError, match="full"):
            async with client.subscribe("x://2"):
                pass
        server.answers[LISTEN] = acknowledge
        server.tell(UPDATED, {"uri": "x://1", "_meta": {SUBSCRIPTION: first["id"]}})
        assert await anext(changes) == "x://1"


async def test_a_lost_link_ends_waiting_for_the_acknowledgement(listening):
    server = listening("stateless")
    server.answers[LISTEN] = lambda request: server.die()
    async with Client(server, mode="stateless") as client:
        with pytest.raises(LinkLost):
            async with client.subscribe("x://1"):
                pass


async def test_every_notice_of_our_server_carries_its_listen(app):
    """SUB-3, SUB-6"""
    recorder = Recorder(Memory(app))
    async with pair(recorder, "stateless") as client, client.subscribe("notes://1") as changes:
        app.notify_resource_updated("notes://1")
        await anext(changes)
    listen = recorder.sent("client", LISTEN)[0]
    notices = [message for message in recorder.sent("server") if "method" in message]
    assert [notice["method"] for notice in notices] == [ACKNOWLEDGED, UPDATED]
    assert [notice["params"]["_meta"][SUBSCRIPTION] for notice in notices] == [listen["id"]] * 2
