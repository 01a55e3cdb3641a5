"""Subscriptions in both eras: who hears of what, how it begins, and how it ends."""

import asyncio
import contextlib
import json
import logging
import tracemalloc
from typing import Any

import pytest

from ferrule import CapabilityNotSupported, Client, Http, Server, Tcp, WebSocket
from ferrule.budgets import process
from ferrule.budgets.bounds import MAX_ID_LENGTH, MAX_URI_LENGTH
from ferrule.errors import InvalidParams
from ferrule.schema.lifecycle import ResourcesCapability, ServerCapabilities
from ferrule.server.notifications.subscriptions import ChangeNotice, Subscriber, Subscriptions
from ferrule.testing import pair
from ferrule.wire.channel import ChannelDefaults
from ferrule.wire.codec import encode

UPDATED = "notifications/resources/updated"
TOOLS = "notifications/tools/list_changed"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
TAG = "io.modelcontextprotocol/subscriptionId"


def weather(**options):
    app = Server("weather", **options)
    for city in ("oslo", "lima", "bern"):
        app.add_resource(f"weather://{city}", lambda: "mild", name=city)
    app.add_resource("sea://{name}", lambda name: "calm")
    app.add_tool("tool", lambda: None)
    return app


class TestBothEras:
    """What holds whichever way the era has to subscribe."""

    async def test_subscribe_change_notice(self, era):
        """SUBS-01, SUBS-07, NOTI-13, RES-9"""
        app = weather()
        async with pair(app, era) as client:
            async with client.subscribe("weather://oslo") as changes:
                app.notify_resource_updated("weather://oslo")
                app.notify_resource_updated("weather://lima")
                app.notify_resource_updated("weather://oslo")
                assert [await anext(changes), await anext(changes)] == ["weather://oslo"] * 2
            app.notify_resource_updated("weather://oslo")
            await client.ping()
            assert not app.host.services.subscriptions.subscribers("weather://oslo")

    async def test_of_three_clients_the_two_that_subscribed_hear_of_it(self, era, wire):
        """SUBS-06, RES-9"""
        app = weather()
        async with wire(app, era) as first, wire(app, era) as second, wire(app, era) as third:
            await first.watch("weather://oslo")
            await third.watch("weather://oslo", "weather://lima")
            app.notify_resource_updated("weather://oslo")
            assert [len(peer.told(UPDATED)) for peer in (first, second, third)] == [1, 0, 1]
            app.notify_resource_updated("weather://lima")
            assert [len(peer.told(UPDATED)) for peer in (first, second, third)] == [1, 0, 2]
            assert {m["params"]["uri"] for m in third.told(UPDATED)} == {"weather://oslo", "weather://lima"}

    async def test_a_client_that_dies_loses_its_subscriptions(self, era, wire):
        """SUBS-08"""
        app = weather()
        async with wire(app, era) as peer:
            await peer.watch("weather://oslo", "weather://lima")
            assert len(app.host.services.subscriptions.subscribers("weather://oslo")) == 1
            await peer.leave()
            await asyncio.sleep(0)
            assert len(app.host.services.subscriptions) == 0
            assert app.host.services.subscriptions.watched == 0
            app.notify_resource_updated("weather://oslo")
        assert peer.told(UPDATED) == []

    async def test_one_client_may_subscribe_to_many(self, era, wire):
        """SUBS-10"""
        app = weather()
        uris = [f"sea://{number}" for number in range(100)]
        async with wire(app, era) as peer:
            await peer.watch(*uris)
            for uri in reversed(uris):
                app.notify_resource_updated(uri)
            assert {m["params"]["uri"] for m in peer.told(UPDATED)} == set(uris)
            assert len(peer.told(UPDATED)) == 100

    async def test_metadata_comes_with_the_notice_and_the_tag_stays(self, era, wire):
        """RSRC-12, SUB-6"""
        app = weather()
        async with wire(app, era) as peer:
            listening = await peer.watch("weather://oslo")
            app.notify_resource_updated("weather://oslo", lastModified="2026-01-01T00:00:00Z")
            [notice] = peer.told(UPDATED)
        assert notice["params"]["uri"] == "weather://oslo"
        assert notice["params"]["_meta"]["lastModified"] == "2026-01-01T00:00:00Z"
        assert notice["params"]["_meta"].get(TAG) == listening

    async def test_a_client_knows_what_it_subscribed_to(self, era):
        """SUBS-05"""
        async with pair(weather(), era) as client:
            await client.subscribe_resource("weather://oslo")
            await client.subscribe_resource("weather://lima")
            await client.unsubscribe_resource("weather://oslo")
            assert set(client.subscriptions) == {"weather://lima"}

    async def test_without_the_capability_subscribing_fails_or_is_not_honoured(self, era, wire):
        """SUBS-02, CAPN-10, RES-8"""
        app = weather(capabilities=ServerCapabilities(resources=ResourcesCapability(list_changed=True)))
        async with wire(app, era) as peer:
            if era == "handshake":
                for method in ("resources/subscribe", "resources/unsubscribe"):
                    error = (await peer.request(method, {"uri": "weather://oslo"}))["error"]
                    assert (error["code"], error["data"]) == (-32601, {"capability": "resources.subscribe"})
            else:
                peer.ask("subscriptions/listen", {"notifications": {"resourceSubscriptions": ["weather://oslo"]}})
                assert (await peer.hear(ACKNOWLEDGED))["params"]["notifications"] == {}
            app.notify_resource_updated("weather://oslo")
            assert peer.told(UPDATED) == []

    async def test_a_client_says_no_before_the_wire_when_subscribing_is_not_offered(self):
        """SUBS-02, CAPN-08"""
        app = weather(capabilities=ServerCapabilities(resources=ResourcesCapability()))
        async with pair(app) as client:
            with pytest.raises(CapabilityNotSupported):
                await client.subscribe_resource("weather://oslo")


class TestHandshake:
    """`resources/subscribe` and `resources/unsubscribe`."""

    async def test_both_answer_an_empty_object(self, wire):
        """SUBS-04, RES-8"""
        async with wire(weather()) as peer:
            for method in ("resources/subscribe", "resources/unsubscribe", "resources/unsubscribe"):
                assert (await peer.request(method, {"uri": "weather://oslo"}))["result"] == {}

    async def test_subscribing_twice_gives_one_notice(self, wire):
        """SUBS-03"""
        app = weather()
        async with wire(app) as peer:
            await peer.watch("weather://oslo", "weather://oslo")
            app.notify_resource_updated("weather://oslo")
            assert len(peer.told(UPDATED)) == 1

    async def test_unsubscribing_ends_the_notices_and_leaves_nothing_behind(self, wire):
        """SUBS-09, SUBS-01"""
        app = weather()
        async with wire(app) as peer:
            await peer.watch("weather://oslo", "weather://lima")
            await peer.request("resources/unsubscribe", {"uri": "weather://oslo"})
            app.notify_resource_updated("weather://oslo")
            app.notify_resource_updated("weather://lima")
            assert [m["params"]["uri"] for m in peer.told(UPDATED)] == ["weather://lima"]
            assert app.host.services.subscriptions.subscribers("weather://oslo") == []
            assert app.host.services.subscriptions.watched == 1
            await peer.request("resources/unsubscribe", {"uri": "weather://lima"})
            assert app.host.services.subscriptions.watched == 0

    async def test_what_does_not_exist_cannot_be_subscribed_to(self, wire):
        async with wire(weather()) as peer:
            error = (await peer.request("resources/subscribe", {"uri": "other://x"}))["error"]
            assert (error["code"], error["data"]) == (-32002, {"uri": "other://x"})

    async def test_the_stateless_era_has_no_such_methods(self, wire):
        async with wire(weather(), "stateless") as peer:
            for method in ("resources/subscribe", "resources/unsubscribe"):
                assert (await peer.request(method, {"uri": "weather://oslo"}))["error"]["code"] == -32601

    @pytest.mark.usefixtures("virtual_time")
    async def test_a_link_found_dead_by_keepalive_loses_its_subscriptions(self, wire):
        """SUBS-13, PING-2"""
        app = weather(keepalive_interval=30.0, pong_timeout=10.0)
        async with wire(app) as peer:
            await peer.watch("weather://oslo")
            await asyncio.sleep(39)
            assert len(peer.told("ping")) == 1
            assert len(app.host.services.subscriptions.subscribers("weather://oslo")) == 1
            await asyncio.sleep(2)
            assert len(app.host.services.subscriptions) == 0
            assert not app.host.links


class TestListen:
    """`subscriptions/listen`."""

    async def test_the_acknowledgement_comes_first_and_names_what_is_honoured(self, wire):
        """SUB-1, SUB-2, SUB-3, SUB-6"""
        app = weather()
        wanted = {
            "toolsListChanged": True,
            "promptsListChanged": True,
            "resourcesListChanged": False,
            "resourceSubscriptions": ["weather://oslo"],
        }
        async with wire(app, "stateless") as peer:
            peer.ask("subscriptions/listen", {"notifications": wanted}, id="mine")
            first = await peer.hear(ACKNOWLEDGED)
            app.notify_tools_changed()
            app.notify_resources_changed()
            app.notify_prompts_changed()
            app.notify_resource_updated("weather://oslo")
        assert first == peer.heard[0]
        assert first["params"] == {
            "_meta": {TAG: "mine"},
            "notifications": {"toolsListChanged": True, "resourceSubscriptions": ["weather://oslo"]},
        }
        assert [m["method"] for m in peer.heard[1:3]] == [TOOLS, UPDATED]
        assert all(m["params"]["_meta"] == {TAG: "mine"} for m in peer.heard[1:3])

    @pytest.mark.parametrize("identity", [7, "7", "", 0])
    async def test_the_tag_has_the_type_of_the_requests_id(self, wire, identity):
        """SUB-6"""
        app = weather()
        async with wire(app, "stateless") as peer:
            peer.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id=identity)
            await peer.hear(ACKNOWLEDGED)
            app.notify_tools_changed()
            tags = [m["params"]["_meta"][TAG] for m in peer.heard]
        assert tags == [identity, identity]
        assert {type(tag) for tag in tags} == {type(identity)}

    async def test_several_listens_each_get_their_own_copy(self, wire):
        """SUB-7"""
        app = weather()
        async with wire(app, "stateless") as peer:
            for identity, uris in (("a", ["weather://oslo"]), ("b", ["weather://oslo", "weather://lima"])):
                peer.ask("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}}, id=identity)
            await peer.hear(ACKNOWLEDGED, after=1)
            app.notify_resource_updated("weather://oslo")
            app.notify_resource_updated("weather://lima")
            told = [(m["params"]["_meta"][TAG], m["params"]["uri"]) for m in peer.told(UPDATED)]
        assert told == [("a", "weather://oslo"), ("b", "weather://oslo"), ("b", "weather://lima")]

    async def test_a_client_ends_a_listen_by_cancelling_it(self, wire):
        """SUB-8, CANC-2"""
        app = weather()
        async with wire(app, "stateless") as peer:
            listening = await peer.watch("weather://oslo")
            other = await peer.watch("weather://lima")
            peer.notify("notifications/cancelled", {"requestId": listening})
            app.notify_resource_updated("weather://oslo")
            app.notify_resource_updated("weather://lima")
            await asyncio.sleep(0.01)
            assert [m["params"]["_meta"][TAG] for m in peer.told(UPDATED)] == [other]
            assert not [m for m in peer.heard if m.get("id") == listening]

    async def test_a_server_ends_a_listen_with_its_result(self, wire):
        """SUB-9, SUB-10, CANC-6, RPC-16"""
        app = weather()
        async with wire(app, "stateless") as peer:
            listening = await peer.watch("weather://oslo")
            await app.drain(1.0)
            result = (await peer.response(listening))["result"]
            app.notify_resource_updated("weather://oslo")
        assert result["resultType"] == "complete"
        assert result["_meta"][TAG] == listening
        assert not peer.told(UPDATED)
        assert not peer.told("notifications/cancelled")

    async def test_a_listening_client_is_told_of_the_end(self):
        """SUB-9"""
        app = weather()
        async with pair(app, "stateless") as client, client.subscribe("weather://oslo") as changes:
            await app.drain(1.0)
            assert [uri async for uri in changes] == []

    @pytest.mark.parametrize("params", [{}, {"notifications": []}, {"notifications": {"toolsListChanged": "yes"}}])
    async def test_a_malformed_wish_is_refused(self, wire, params):
        """SUB-1"""
        async with wire(weather(), "stateless") as peer:
            assert (await peer.request("subscriptions/listen", params))["error"]["code"] == -32602

    async def test_an_empty_wish_is_acknowledged_and_hears_nothing(self, wire):
        """SUB-2"""
        app = weather()
        async with wire(app, "stateless") as peer:
            await peer.watch()
            app.notify_tools_changed()
            app.notify_resource_updated("weather://oslo")
            assert len(peer.heard) == 1

    async def test_the_handshake_era_has_no_such_method(self, wire):
        async with wire(weather()) as peer:
            answer = await peer.request("subscriptions/listen", {"notifications": {}})
            assert answer["error"]["code"] == -32601


class TestInProcess:
    """Code of this process may listen too."""

    async def test_a_function_hears_of_updates_while_clients_are_served(self, era):
        """SUBS-11, SRVR-03"""
        app = weather()
        heard = []
        async with pair(app, era) as client:
            listener = app.subscribe("weather://oslo", heard.append)
            app.notify_resource_updated("weather://oslo")
            app.notify_resource_updated("weather://lima")
            app.unsubscribe(listener)
            app.notify_resource_updated("weather://oslo")
            await client.ping()
        assert heard == ["weather://oslo"]

    def test_a_function_hears_of_updates_without_any_loop(self):
        """SUBS-11"""
        app = weather()
        heard = []
        app.subscribe("weather://oslo", heard.append)
        app.notify_resource_updated("weather://oslo")
        assert heard == ["weather://oslo"]

    async def test_a_failing_function_harms_nobody_else(self, era, wire, caplog):
        app = weather()
        heard = []
        app.subscribe("weather://oslo", lambda uri: 1 / 0)
        app.subscribe("weather://oslo", heard.append)
        async with wire(app, era) as peer:
            await peer.watch("weather://oslo")
            with caplog.at_level(logging.ERROR):
                app.notify_resource_updated("weather://oslo")
            assert heard == ["weather://oslo"]
            assert len(peer.told(UPDATED)) == 1
        assert "a subscriber of weather://oslo failed" in caplog.text


class TestBounds:
    """How much a client may listen to, and what is left of it."""

    async def test_so_many_subscriptions_and_no_more(self, era, wire):
        """BUD-08"""
        app = weather(max_subscriptions=5)
        held = process.subscriptions.held
        async with wire(app, era) as peer, wire(app, era) as other:
            await peer.watch(*(f"sea://{number}" for number in range(5)))
            refused = await refusal(peer, "sea://5")
            assert "subscriptions of this client already" in refused["message"]
            assert app.host.services.subscriptions.watched == 5
            await other.watch("sea://5")
            await peer.leave()
            await asyncio.sleep(0)
            assert app.host.services.subscriptions.watched == 1
        assert process.subscriptions.held == held

    async def test_what_is_ended_makes_room(self, wire):
        app = weather(max_subscriptions=2)
        async with wire(app) as peer:
            await peer.watch("sea://1", "sea://2", "sea://2")
            assert "error" in await peer.request("resources/subscribe", {"uri": "sea://3"})
            await peer.request("resources/unsubscribe", {"uri": "sea://1"})
            await peer.request("resources/unsubscribe", {"uri": "sea://1"})
            assert (await peer.request("resources/subscribe", {"uri": "sea://3"}))["result"] == {}
            assert "error" in await peer.request("resources/subscribe", {"uri": "sea://4"})

    async def test_a_wish_for_too_much_is_refused_whole(self, wire):
        app = weather(max_subscriptions=5)
        async with wire(app, "stateless") as peer:
            for wish in ([f"sea://{number}" for number in range(6)], ["sea://" + "x" * MAX_URI_LENGTH]):
                answer = await peer.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": wish}})
                assert answer["error"]["code"] == -32602
            tasks = {"notifications": {"taskIds": ["x" * 2000]}}
            assert (await peer.request("subscriptions/listen", tasks))["error"]["code"] == -32602
            assert peer.told(ACKNOWLEDGED) == []
            assert app.host.services.subscriptions.watched == 0

    async def test_a_long_uri_cannot_be_subscribed_to(self, wire):
        """BUD-08"""
        app = weather()
        held = process.subscriptions.held
        async with wire(app) as peer:
            fits = "sea://" + "x" * (MAX_URI_LENGTH - 6)
            assert (await peer.request("resources/subscribe", {"uri": fits}))["result"] == {}
            assert (await peer.request("resources/subscribe", {"uri": fits + "x"}))["error"]["code"] == -32602
            assert process.subscriptions.held > held + MAX_URI_LENGTH
        assert process.subscriptions.held == held

    async def test_one_client_takes_no_more_than_a_share_of_all_bytes(self, era, wire, monkeypatch):
        monkeypatch.setattr(process.subscriptions, "limit", process.subscriptions.held + 40_000)
        app = weather()
        async with wire(app, era, principal="greedy") as greedy, wire(app, era, principal="modest") as modest:
            taken = 0
            for number in range(100):
                peer = greedy
                uri = f"sea://{number:01000}"
                if peer.stateless:
                    peer.ask("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
                    await asyncio.sleep(0)
                else:
                    await peer.request("resources/subscribe", {"uri": uri})
                taken = app.host.services.subscriptions.watched
            assert 4 <= taken <= 7
            await modest.watch("sea://mine")
            assert app.host.services.subscriptions.watched == taken + 1

    async def test_many_listens_of_one_link_are_counted_together(self, wire):
        app = weather(max_subscriptions=3)
        async with wire(app, "stateless") as peer:
            for _ in range(3):
                peer.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
                await asyncio.sleep(0)
            answer = await peer.request("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
            assert "already" in answer["error"]["message"]
            assert len(app.host.services.subscriptions) == 3

    async def test_a_second_handshake_leaves_nothing_behind(self, wire):
        app = weather()
        async with wire(app) as peer:
            await peer.watch("weather://oslo")
            await peer.request("initialize", {"protocolVersion": peer.version, "capabilities": {}, "clientInfo": {}})
        await asyncio.sleep(0)
        assert app.host.services.subscriptions.watched == 0

    @pytest.mark.parametrize("carrier", ["tcp", "websocket", "http", "memory"])
    async def test_nothing_is_left_when_a_client_is_gone(self, carrier, era):
        """BUD-08, SUBS-08, SUBS-09: on every carrier, in both eras."""
        app = weather()
        held = process.subscriptions.held
        async with served(app, carrier) as address, Client(address, mode=era) as client:
            changes = client.subscribe("weather://oslo")
            await changes.__aenter__()
            await client.subscribe("sea://1").__aenter__()
            assert app.host.services.subscriptions.watched == 2
            assert process.subscriptions.held > held
            await client.close(drain=0)
            await until(lambda: app.host.services.subscriptions.watched == 0)
            assert len(app.host.services.subscriptions) == 0
            assert process.subscriptions.held == held


class SlowChannel(ChannelDefaults):
    """A channel whose peer reads when it is told to."""

    def __init__(self):
        self.congested = True
        self.sent = []
        self._room = asyncio.Event()

    def send(self, message):
        self.sent.append(message)

    async def wait_writable(self):
        await self._room.wait()

    def read_on(self):
        self.congested = False
        self._room.set()


class TestSlowReaders:
    """A subscriber that does not read."""

    async def test_it_is_told_of_each_thing_once_when_it_reads_again(self):
        """BUD-08"""
        subscriptions = Subscriptions()
        channel = SlowChannel()
        uris = [f"sea://{number}" for number in range(3)]
        subscriptions.add(Subscriber(channel, [TOOLS], uris, tag=7, holder="a"))
        for number in range(10_000):
            subscriptions.updated(uris[number % 3], {"_meta": {"number": number}})
            subscriptions.changed(TOOLS)
        assert channel.sent == []
        channel.read_on()
        await asyncio.sleep(0.01)
        assert sorted(message.method for message in channel.sent) == [UPDATED] * 3 + [TOOLS]
        assert all(b"999" in bytes(message.params) for message in channel.sent if message.method == UPDATED)
        subscriptions.updated(uris[0], {})
        assert len(channel.sent) == 5

    async def test_what_was_held_back_is_dropped_when_it_leaves(self):
        running = len(asyncio.all_tasks())
        subscriptions = Subscriptions()
        channel = SlowChannel()
        subscriber = Subscriber(channel, (), ["sea://1"], holder="a")
        subscriptions.add(subscriber)
        subscriptions.updated("sea://1", {})
        subscriptions.remove(subscriber)
        channel.read_on()
        await asyncio.sleep(0.01)
        assert channel.sent == []
        assert len(asyncio.all_tasks()) == running

    async def test_over_a_socket_the_server_holds_little_for_it(self):
        """BUD-08: a client that subscribes and never reads."""
        app = weather()
        async with served(app, "tcp") as address:
            host, port = address.removeprefix("tcp://").split(":")
            _, writer = await asyncio.open_connection(host, int(port), limit=1024)
            for message in (
                {"id": 1, "method": "initialize", "params": OPENING},
                {"method": "notifications/initialized"},
                {"id": 2, "method": "resources/subscribe", "params": {"uri": "weather://oslo"}},
            ):
                writer.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
            await until(lambda: app.host.services.subscriptions.watched == 1)
            tracemalloc.start()
            for _ in range(200):
                for _ in range(100):
                    app.notify_resource_updated("weather://oslo", text="x" * 1000)
                await asyncio.sleep(0)
            grown = tracemalloc.get_traced_memory()[0]
            tracemalloc.stop()
            assert grown < 4 * 1024 * 1024
            writer.close()


OPENING = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "slow", "version": "1"}}


@contextlib.asynccontextmanager
async def served(app, carrier):
    """Serve on a carrier; gives what a client connects to."""
    if carrier == "memory":
        yield app
        return
    listener = {"tcp": Tcp, "websocket": WebSocket, "http": Http}[carrier](port=0)
    ready = asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await asyncio.wait([serving, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield f"tcp://127.0.0.1:{listener.address[1]}" if carrier == "tcp" else listener.url
    finally:
        await app.stop(grace=0.0)
        await serving


async def refusal(peer, uri):
    """Return the error that one more subscription is refused with."""
    if peer.stateless:
        answer = await peer.request("subscriptions/listen", {"notifications": {"resourceSubscriptions": [uri]}})
    else:
        answer = await peer.request("resources/subscribe", {"uri": uri})
    return answer["error"]


async def until(holds):
    """Wait until something holds."""
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


def test_a_subscriber_that_has_no_channel_is_told_nothing():
    subscriber = Subscriber(None, uris=["a://b"])
    subscriber.tell(None)
    assert subscriber.uris == {"a://b"}


class Noting(Subscriber):
    """Notes what it is told."""

    def __init__(self, **wanted: Any) -> None:
        super().__init__(None, **wanted)
        self.told: list[tuple[str, dict[str, Any]]] = []

    def tell(self, notice: ChangeNotice) -> None:
        self.told.append((notice.method, notice.params))


def test_where_notices_may_be_lost_everybody_hears_once_of_all_they_listen_to():
    subscriptions = Subscriptions()
    both = Noting(uris=["a://2", "a://1"], kinds={TOOLS})
    one = Noting(uris=["a://1"])
    task = Noting(tasks=["t"])
    for subscriber in (both, one, task):
        subscriptions.add(subscriber)
    subscriptions.tell_all()
    assert both.told == [(TOOLS, {}), (UPDATED, {"uri": "a://1"}), (UPDATED, {"uri": "a://2"})]
    assert one.told == [(UPDATED, {"uri": "a://1"})]
    assert task.told == []
    assert subscriptions.listens_to_task("t")
    subscriptions.remove(task)
    assert not subscriptions.listens_to_task("t")


@pytest.mark.parametrize(
    ("uris", "tasks", "why"),
    [
        (["a://1", "a://2", "a://3"], [], "Too many subscriptions: a server has room for 2 of one client"),
        (["a://" + "x" * MAX_URI_LENGTH], [], "The URI is too long"),
        ([], ["x" * (MAX_ID_LENGTH + 1)], "The id of a task is too long"),
    ],
)
def test_a_wish_that_nobody_may_have_is_refused_before_anything_is_done(uris, tasks, why):
    with pytest.raises(InvalidParams, match=why):
        Subscriptions(most=2).check(uris, tasks)


def test_a_uri_that_is_not_ascii_is_counted_with_four_bytes_a_character():
    """Python keeps a text that has one such character with as many for all of them."""
    subscriptions = Subscriptions()
    plain = Subscriber(None, uris=["a://xxxxx"], holder="ada")
    other = Subscriber(None, uris=["a://xxxx\u20ac"], holder="ada")
    for subscriber in (plain, other):
        subscriptions.add(subscriber)
    assert other.cost - plain.cost == 3 * len("a://xxxxx")
    for subscriber in (plain, other):
        subscriptions.remove(subscriber)


@pytest.mark.parametrize("tag", [None, b"7", b'"a b"'])
@pytest.mark.parametrize(
    "params", [{}, {"uri": "a://b"}, {"uri": "a://\u20ac", "_meta": {"x": [1]}}, {"_meta": {}, "taskId": "1"}]
)
def test_the_text_of_a_notice_is_its_message_encoded(params: dict[str, Any], tag: bytes | None) -> None:
    notice = ChangeNotice("notifications/some", params)
    assert notice.text_under(tag) == encode(notice.under(tag))
