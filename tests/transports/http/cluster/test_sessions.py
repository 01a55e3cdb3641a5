"""Any node answers any session: two nodes, a real Redis, and a client that comes to another node at every request."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from balancer import Balancer
from nodes import Nodes
from plain_http import Tokens, delete, initialize, post
from redis_server import RedisServer

from ferrule import Client
from ferrule.errors import StoreUnavailable
from ferrule.identity.principal import Principal
from ferrule.stores.contracts import SessionRecord
from ferrule.stores.stores import Stores
from ferrule.transports.http.cluster.sessions import ClusterSessions
from ferrule.transports.http.endpoint.sessions import MovedSession

PATIENCE = 20.0


async def answer(question: Any) -> dict[str, str]:
    """The answer of a user to any question."""
    return {"value": "tea"}


async def test_a_client_changes_node_at_every_request(redis: RedisServer, era: str) -> None:
    async with Nodes(redis.url) as nodes, Balancer(nodes.ports, each_request=True) as balancer:
        async with Client(balancer.url, mode=era) as client:
            answers = [(await client.call_tool("node")).data for _ in range(20)]
            assert (await client.read_resource("notes://1")).contents
        assert balancer.connections >= 20
        if era == "handshake":
            assert len(set(answers)) == 1
        else:
            assert set(answers) == {0, 1}


async def test_questions_are_answered_at_another_node(redis: RedisServer, era: str) -> None:
    """In the handshake era the answer reaches the call that waits; in the stateless era any node opens the state."""
    async with Nodes(redis.url) as nodes, Balancer(nodes.ports, each_request=True) as balancer:
        orders: list[str] = []
        async with Client(balancer.url, mode=era, elicitation=answer) as client:
            orders += [str((await client.call_tool("order")).data) for _ in range(6)]
        assert all(order.startswith("tea from") for order in orders)


async def test_who_subscribed_hears_of_changes_at_every_node(redis: RedisServer, era: str) -> None:
    async with Nodes(redis.url) as nodes, Balancer(nodes.ports, each_request=True) as balancer:
        urls = [node.url for node in nodes.each]
        async with (
            Client(balancer.url, mode=era) as listener,
            listener.subscribe("notes://1") as changes,
            Client(urls[0], mode=era) as first,
            Client(urls[1], mode=era) as second,
        ):
            for changing in (first, second, first, second):
                await changing.call_tool("change")
                assert await asyncio.wait_for(anext(changes), PATIENCE) == "notes://1"


async def test_a_list_that_changed_at_one_node_is_told_at_all(redis: RedisServer, era: str) -> None:
    async with Nodes(redis.url) as nodes, Client(nodes.each[1].url, mode=era) as listener:
        told = asyncio.Event()
        listener.on_notification("notifications/tools/list_changed", lambda *_: told.set())
        await listener.watch_lists("tools")
        async with Client(nodes.each[0].url, mode=era) as client:
            await client.call_tool("grow")
            await asyncio.wait_for(told.wait(), PATIENCE)


async def test_a_stream_that_was_cut_goes_on_at_another_node(redis: RedisServer) -> None:
    """RES-04: the client comes back with the last event it has read, to the other node."""
    async with Nodes(redis.url) as nodes, Balancer(nodes.ports) as balancer:
        steps: list[float] = []
        async with Client(balancer.url, mode="handshake") as client:
            calling = asyncio.create_task(
                client.call_tool("slow", {"steps": 12, "pause": 0.1}, on_progress=lambda done, *_: steps.append(done))
            )
            for _ in range(3):
                await asyncio.sleep(0.3)
                balancer.cut()
            assert (await calling).data in (0, 1)
            assert steps == [float(step) for step in range(1, 13)]
            assert sum(node.app.host.node.sessions.forwarder.forwarded for node in nodes.each) > 0


async def test_a_node_that_stops_leaves_its_sessions_to_others(redis: RedisServer) -> None:
    """Rolling updates: state, subscriptions and the session go on; its standing stream is resumed."""
    async with Nodes(redis.url) as nodes, Balancer(nodes.ports, each_request=True) as balancer:
        assert len(nodes.each) == 2
        async with (
            Client(balancer.url, mode="handshake") as client,
            client.subscribe("notes://1") as changes,
            Client(balancer.url, mode="handshake") as second,
        ):
            for expected in (1, 2, 3):
                assert (await client.call_tool("count")).data == expected
            owner = (await client.call_tool("node")).data
            stopped = nodes.each.pop(owner)
            balancer.ports = nodes.ports
            await stopped.stop(1.0)
            assert (await client.call_tool("count")).data == 4
            assert (await client.call_tool("node")).data == 1 - owner
            assert await asyncio.wait_for(anext(changes), PATIENCE) == "notes://1", "it may have missed a change"
            await second.call_tool("change")
            assert await asyncio.wait_for(anext(changes), PATIENCE) == "notes://1"


async def test_a_session_is_nobody_elses_at_any_node(redis: RedisServer) -> None:
    """SES-03 across nodes: another's session does not exist, and what ends at one node has ended at all."""
    tokens = {"ada": Principal(issuer="test", subject="ada"), "bob": Principal(issuer="test", subject="bob")}
    async with Nodes(redis.url, auth=Tokens(tokens)) as nodes:
        first, second = nodes.each
        ada = await initialize(first.url, "ada")
        assert await post(second.url, "bob", ada) == 404
        assert await post(second.url, "ada", ada) == 200
        assert await post(second.url, "ada", ada[:-1] + "!") == 404
        assert await delete(second.url, "bob", ada) == 404
        assert await post(first.url, "ada", ada) == 200
        assert await delete(second.url, "ada", ada) == 204
        assert await post(first.url, "ada", ada) == 404
        assert await post(second.url, "ada", ada) == 404


async def test_a_session_that_comes_back_to_a_node_is_one_of_another_generation() -> None:
    """So its streams have names that none of its owners gave, this node included."""
    stores = Stores.memory()
    sessions = ClusterSessions(stores, Remembered())
    generations: list[int] = []

    def adopt(moved: MovedSession) -> Any:
        generations.append(moved.generation)
        return SimpleNamespace(id=moved.id, link=object(), used=0.0)

    endpoint: Any = SimpleNamespace(
        sessions=SimpleNamespace(record=lambda session, said: MovedSession(session.id, b"{}"), adopt=adopt)
    )
    sessions.open()
    await sessions.keep(endpoint, SimpleNamespace(id="moving", link=object(), used=0.0))
    for _ in range(3):
        await sessions.leave(endpoint)
        sessions.join(endpoint)
        assert await sessions._adopt(endpoint, "moving")
    assert min(generations) > 1
    assert len(set(generations)) == 3
    await sessions.close()


@pytest.mark.parametrize("error", [StoreUnavailable("away"), ValueError("unforeseen")])
async def test_a_session_that_cannot_be_left_is_told_and_keeps_no_other_from_it(error: Exception) -> None:
    stores = Stores.memory()
    remembered = Remembered()
    sessions = ClusterSessions(stores, remembered)
    endpoint: Any = SimpleNamespace(
        sessions=SimpleNamespace(record=lambda session, said: MovedSession(session.id, b"{}"))
    )
    first, second = [SimpleNamespace(id=name, link=object(), used=0.0) for name in ("first", "second")]
    sessions.open()
    for each in (first, second):
        await sessions.keep(endpoint, each)

    def fail(link: Any) -> None:
        if link is first.link:
            raise error

    remembered.on_look = fail
    assert await sessions.leave(endpoint) == [first]
    owners = [found.owner for name in ("first", "second") if (found := await stores.sessions.get(name))]
    assert owners == [sessions.node, ""]
    await sessions.close()


async def test_a_session_that_the_store_has_never_seen_is_not_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """It began while the store was away, and nobody would find it there."""
    stores = Stores.memory()
    sessions = ClusterSessions(stores, Remembered())
    endpoint: Any = SimpleNamespace(
        sessions=SimpleNamespace(record=lambda session, said: MovedSession(session.id, b"{}"))
    )
    session: Any = SimpleNamespace(id="unseen", link=object(), used=0.0)

    async def fail(record: SessionRecord) -> None:
        raise StoreUnavailable("away")

    sessions.open()
    with monkeypatch.context() as away:
        away.setattr(stores.sessions, "create", fail)
        await sessions.keep(endpoint, session)
    assert await sessions.leave(endpoint) == [session]
    await sessions.close()


async def test_a_session_that_is_opened_while_its_endpoint_leaves_is_left_too() -> None:
    stores = Stores.memory()
    sessions = ClusterSessions(stores, Remembered())
    endpoint: Any = SimpleNamespace(
        sessions=SimpleNamespace(record=lambda session, said: MovedSession(session.id, b"{}"))
    )
    sessions.open()
    await sessions.leave(endpoint)
    await sessions.keep(endpoint, SimpleNamespace(id="late", link=object(), used=0.0))
    found = await stores.sessions.get("late")
    assert found is not None
    assert found.owner == ""
    assert not sessions.owns("late")
    await sessions.close()


class Remembered:
    """What a server remembers of sessions, for one test to say."""

    def __init__(self) -> None:
        self.said: dict[Any, list[bytes]] = {}
        self.on_look: Any = lambda link: None

    def replay_frames(self, link: Any) -> list[bytes]:
        self.on_look(link)
        return self.said.get(link, [])

    def written_values(self, link: Any) -> bytes:
        return b""

    def restore_session(self, link: Any, key: str, values: bytes | None) -> None: ...


@pytest.mark.parametrize("trouble", ["a session ends meanwhile", "an unforeseen error", "the store goes away"])
async def test_what_changed_is_still_written_after_a_write_that_went_wrong(trouble: str) -> None:
    stores = Stores.memory()
    remembered = Remembered()
    sessions = ClusterSessions(stores, remembered)
    place: Any = SimpleNamespace(
        sessions=SimpleNamespace(
            record=lambda session, said: MovedSession(session.id, b"{}"),
            resume=lambda session: None,
            end=lambda session, moves: None,
        )
    )
    first, second = [SimpleNamespace(id=name, link=object(), used=0.0) for name in ("first", "second")]
    sessions.open()
    for each in (first, second):
        await sessions.keep(place, each)

    def go_wrong(link: Any) -> None:
        remembered.on_look = lambda link: None
        if trouble == "a session ends meanwhile":
            sessions.ended(second)
        elif trouble == "an unforeseen error":
            raise ValueError(trouble)
        else:
            raise StoreUnavailable(trouble)

    remembered.on_look = go_wrong
    for each in (first, second):
        sessions.changed(each.link)
    await asyncio.sleep(0.1)
    if sessions.unkept:
        await sessions.make_sure()
    remembered.said[first.link] = [b"later"]
    sessions.changed(first.link)
    await asyncio.sleep(0.1)
    found = await stores.sessions.get("first")
    assert found is not None
    assert found.said == (b"later",)
    await sessions.close()
