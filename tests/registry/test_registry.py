"""What every registry does, in one process or in a store that several share."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import pytest
from hub_registry import Hub, HubRegistry

from ferrule.errors import AlreadyRegistered, NoRoute, SetupError
from ferrule.registry.local import LocalRegistry
from ferrule.registry.registry import Event, Registry
from ferrule.supervision.child import Child
from ferrule.supervision.supervisor import Supervisor

BACKENDS: dict[str, Callable[[], Registry]] = {"local": LocalRegistry, "shared": lambda: HubRegistry(Hub())}


@pytest.fixture(params=BACKENDS)
def registry(request: pytest.FixtureRequest) -> Registry:
    """REGY-08: the same tests hold for a backend of another kind."""
    return BACKENDS[request.param]()


def told(events: list[Event]) -> list[tuple[str, str, str]]:
    """Return events as short texts."""
    return [(event.change, f"{event.entry.kind} {event.entry.name}", event.cause) for event in events]


class Inbox:
    """Takes data and writes it down."""

    def __init__(self) -> None:
        self.got: list[tuple[str, bytes]] = []

    def deliver(self, sender: str, data: bytes) -> None:
        """Take data."""
        self.got.append((sender, data))


# Entries


def test_what_is_registered_is_found_until_it_is_unregistered(registry: Registry) -> None:
    """REGY-01, REGY-02: transports and servers alike."""
    for kind in ("transport", "server", "link"):
        value = object()
        registry.register(kind, "a", value, capabilities=["tools"], meta={"port": 8000})
        found = registry.find(kind, "a")
        assert found is not None
        assert (found.kind, found.name, found.value) == (kind, "a", value)
        assert (found.capabilities, dict(found.meta)) == ({"tools"}, {"port": 8000})
        registry.unregister(kind, "a")
        assert registry.find(kind, "a") is None
        registry.unregister(kind, "a")
        assert registry.find_all(kind) == []


def test_a_name_is_taken_once_in_its_kind(registry: Registry) -> None:
    registry.register("server", "a", 1)
    registry.register("transport", "a", 2)
    with pytest.raises(AlreadyRegistered, match="server 'a' is registered already"):
        registry.register("server", "a", 3)
    found = registry.find("server", "a")
    assert found is not None
    assert found.value == 1


def test_entries_are_listed_by_kind_and_capability_in_order(registry: Registry) -> None:
    """REGY-11: list_servers and list_transports."""
    registry.register("server", "b", 1, capabilities=["tools", "prompts"])
    registry.register("server", "a", 2, capabilities=["tools"])
    registry.register("transport", "c", 3, capabilities=["tools"])

    def names(kind: str, capability: str | None = None) -> list[str]:
        return [entry.name for entry in registry.find_all(kind, capability=capability)]

    assert names("server") == ["b", "a"]
    assert names("server", "tools") == ["b", "a"]
    assert names("server", "prompts") == ["b"]
    assert names("server", "tasks") == []
    assert names("nothing") == []
    registry.unregister("server", "b")
    assert names("server", "tools") == ["a"]
    assert names("server", "prompts") == []


async def test_an_entry_goes_when_what_it_depends_on_has_ended(registry: Registry) -> None:
    """REGY-07: a task that returns, raises or is cancelled."""

    async def work() -> None:
        await asyncio.sleep(1000)

    events: list[Event] = []
    registry.watch(events.append)
    task = asyncio.create_task(work())
    registry.register("server", "a", 1, until=task)
    assert registry.find("server", "a") is not None
    task.cancel()
    await asyncio.sleep(0.001)
    assert registry.find("server", "a") is None
    assert told(events)[-1] == ("gone", "server a", "ended")


async def test_a_late_end_does_not_remove_the_successor(registry: Registry) -> None:
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    first = registry.register("server", "a", 1, until=ended)
    registry.unregister("server", "a")
    registry.register("server", "a", 2)
    ended.set_result(None)
    first.unregister()
    await asyncio.sleep(0.001)
    found = registry.find("server", "a")
    assert found is not None
    assert found.value == 2


def test_a_registration_is_a_context_manager_and_can_be_updated(registry: Registry) -> None:
    with registry.register("server", "a", 1, capabilities=["tools"]) as registration:
        registration.update(capabilities=["prompts"])
        registration.update(meta={"load": 3})
        assert registration.entry is registry.find("server", "a")
        assert [entry.name for entry in registry.find_all("server", capability="prompts")] == ["a"]
        assert registry.find_all("server", capability="tools") == []
        assert dict(registration.entry.meta) == {"load": 3}
    assert registry.find("server", "a") is None


# Bindings and data


def test_a_transport_and_a_server_are_found_both_ways(registry: Registry) -> None:
    """REGY-03"""
    for name in ("s1", "s2"):
        registry.register("server", name, print)
    for name in ("t1", "t2", "t3"):
        registry.register("transport", name, print)
    registry.bind("t1", "s1")
    registry.bind("t2", "s1")
    assert (registry.server_for("t1"), registry.server_for("t3")) == ("s1", None)
    assert (registry.transports_for("s1"), registry.transports_for("s2")) == (["t1", "t2"], [])
    registry.bind("t1", "s2")
    assert (registry.transports_for("s1"), registry.transports_for("s2")) == (["t2"], ["t1"])
    registry.unbind("t1")
    registry.unbind("t1")
    assert (registry.server_for("t1"), registry.transports_for("s2")) == (None, [])


def test_only_what_is_registered_can_be_bound(registry: Registry) -> None:
    registry.register("server", "s", print)
    with pytest.raises(NoRoute, match="transport 't' is not registered"):
        registry.bind("t", "s")
    registry.register("transport", "t", print)
    with pytest.raises(NoRoute, match="server 'x' is not registered"):
        registry.bind("t", "x")


def test_bindings_go_with_either_end(registry: Registry) -> None:
    for gone in (("transport", "t"), ("server", "s")):
        registry.register("server", "s", print)
        registry.register("transport", "t", print)
        registry.bind("t", "s")
        registry.unregister(*gone)
        assert registry.server_for("t") is None
        assert registry.transports_for("s") == []
        registry.unregister("server", "s")
        registry.unregister("transport", "t")


async def test_data_goes_from_a_transport_to_its_server_and_back(registry: Registry) -> None:
    """REGY-01, REGY-04, REGY-05"""
    transport = Inbox()

    async def server(sender: str, data: bytes) -> None:
        await asyncio.sleep(0)
        await registry.respond(sender, b"answer to " + data)

    registry.register("server", "s", server)
    registry.register("transport", "t", transport)
    registry.bind("t", "s")
    await registry.route("t", b"question")
    assert transport.got == [("s", b"answer to question")]


async def test_data_without_a_way_is_told_why(registry: Registry) -> None:
    with pytest.raises(NoRoute, match="transport 't' is not registered"):
        await registry.route("t", b"")
    with pytest.raises(NoRoute, match="transport 't' is not registered"):
        await registry.respond("t", b"")
    registry.register("transport", "t", 7)
    with pytest.raises(NoRoute, match="transport 't' is bound to no server"):
        await registry.route("t", b"")
    with pytest.raises(NoRoute, match="transport 't' takes no data"):
        await registry.respond("t", b"")
    registry.register("server", "s", 8)
    registry.bind("t", "s")
    with pytest.raises(NoRoute, match="server 's' takes no data"):
        await registry.route("t", b"")


async def test_what_a_server_raises_reaches_who_routed(registry: Registry) -> None:
    def broken(sender: str, data: bytes) -> None:
        raise ValueError(data.decode())

    registry.register("server", "s", broken)
    registry.register("transport", "t", print)
    registry.bind("t", "s")
    with pytest.raises(ValueError, match="x"):
        await registry.route("t", b"x")


async def test_a_broadcast_reaches_every_transport_that_takes_it(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """REGY-11"""

    async def broken(sender: str, data: bytes) -> None:
        raise OSError("gone")

    inboxes = [Inbox(), Inbox()]
    registry.register("server", "s", print)
    for name, value in (("t1", inboxes[0]), ("t2", broken), ("t3", inboxes[1]), ("t4", inboxes[0])):
        registry.register("transport", name, value)
    for name in ("t1", "t2", "t3"):
        registry.bind(name, "s")
    assert await registry.broadcast("s", b"news") == 2
    assert [inbox.got for inbox in inboxes] == [[("s", b"news")], [("s", b"news")]]
    assert await registry.broadcast("nobody", b"news") == 0
    assert "transport 't2' did not take a broadcast of server 's'" in caplog.text


# Watchers


def test_watchers_hear_every_change_in_order(registry: Registry) -> None:
    events: list[Event] = []
    subscription = registry.watch(events.append)
    registration = registry.register("server", "s", 1)
    registry.register("transport", "t", 2)
    registry.bind("t", "s")
    registry.unbind("t")
    registration.update(capabilities=["tools"])
    registry.bind("t", "s")
    registry.bind("t", "s")
    registration.unregister()
    registry.unregister("transport", "t")
    assert told(events) == [
        ("added", "server s", "registered"),
        ("added", "transport t", "registered"),
        ("changed", "transport t", "bound"),
        ("changed", "transport t", "unbound"),
        ("changed", "server s", "updated"),
        ("changed", "transport t", "bound"),
        ("gone", "server s", "unregistered"),
        ("changed", "transport t", "unbound"),
        ("gone", "transport t", "unregistered"),
    ]
    assert events[4].entry.capabilities == {"tools"}
    subscription.close()
    subscription.close()
    registry.register("server", "s", 1)
    assert len(events) == 9


def test_a_watcher_that_changes_the_registry_does_not_mix_up_the_order(registry: Registry) -> None:
    heard: list[list[str]] = [[], []]

    def follow(event: Event) -> None:
        heard[0].append(f"{event.change} {event.entry.name}")
        if event.entry.name == "a" and event.change == "added":
            registry.register("server", "b", 1)
            assert registry.stats().waiting_events == 1

    registry.watch(follow)
    registry.watch(lambda event: heard[1].append(f"{event.change} {event.entry.name}"))
    registry.register("server", "a", 1)
    assert heard == [["added a", "added b"], ["added a", "added b"]]
    assert registry.stats().waiting_events == 0


def test_a_watcher_that_fails_or_leaves_does_not_trouble_others(
    registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    heard: list[str] = []

    def broken(event: Event) -> None:
        later.close()
        raise ValueError("no")

    registry.watch(broken)
    later = registry.watch(lambda event: heard.append("later"))
    registry.watch(lambda event: heard.append(event.entry.name))
    with caplog.at_level(logging.ERROR, "ferrule.registry"):
        registry.register("server", "a", 1)
    assert heard == ["a"]
    assert "a watcher of the registry failed, which was ignored" in caplog.text


# The whole


def test_stats_count_entries_bindings_and_watchers(registry: Registry) -> None:
    """REGY-11"""
    registry.register("server", "s", 1)
    registry.register("transport", "t1", 1)
    registry.register("transport", "t2", 1)
    registry.bind("t1", "s")
    registry.watch(print)
    stats = registry.stats()
    assert stats.entries == {"server": 1, "transport": 2}
    assert (stats.bindings, stats.watchers, stats.waiting_events) == (1, 1, 0)


async def test_a_snapshot_brings_back_entries_and_bindings(registry: Registry) -> None:
    """REGY-09, REGY-11: those who come back register again and find their bindings."""
    registry.register("server", "s", print, capabilities=["tools"], meta={"load": 0.5})
    registry.register("transport", "t", print)
    registry.bind("t", "s")
    dump = registry.snapshot()

    revived = LocalRegistry()
    events: list[Event] = []
    revived.watch(events.append)
    revived.restore(dump)
    found = revived.find("server", "s")
    assert found is not None
    assert (found.value, found.is_restored, dict(found.meta)) == (None, True, {"load": 0.5})
    assert revived.find_all("server", capability="tools") == [found]
    assert revived.snapshot() == dump
    with pytest.raises(NoRoute, match="server 's' takes no data"):
        await revived.route("t", b"early")
    inbox = Inbox()
    revived.register("server", "s", inbox)
    await revived.route("t", b"late")
    assert inbox.got == [("t", b"late")]
    with pytest.raises(AlreadyRegistered):
        revived.register("server", "s", inbox)
    assert told(events) == [
        ("added", "server s", "restored"),
        ("added", "transport t", "restored"),
        ("changed", "transport t", "bound"),
        ("changed", "server s", "registered"),
    ]


def test_what_is_there_is_not_overwritten_by_a_snapshot(registry: Registry) -> None:
    registry.register("server", "s", print, meta={"old": 1})
    registry.register("server", "s2", print)
    registry.register("transport", "t", print)
    registry.bind("t", "s")
    dump = registry.snapshot()
    registry.unregister("server", "s")
    registry.register("server", "s", len)
    registry.bind("t", "s2")
    registry.restore(dump)
    found = registry.find("server", "s")
    assert found is not None
    assert (found.value, dict(found.meta)) == (len, {})
    assert registry.server_for("t") == "s2"


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"registry":2,"entries":[],"bindings":{}}', b"\xff", b"[" * 100_000]
)
def test_what_is_no_snapshot_is_refused(data: bytes) -> None:
    with pytest.raises(SetupError, match="not a snapshot of a registry"):
        LocalRegistry().restore(data)


def test_an_entry_that_cannot_be_saved_is_named() -> None:
    registry = LocalRegistry()
    registry.register("server", "s", 1, meta={"socket": object()})
    with pytest.raises(SetupError, match="server 's': its meta cannot be written as JSON"):
        registry.snapshot()


async def test_wrong_use_is_told_at_once() -> None:
    async def watcher(event: Event) -> None:
        pass

    registry = LocalRegistry()
    with pytest.raises(SetupError, match="until must be a task or a future"):
        registry.register("server", "s", 1, until="tomorrow")  # type: ignore[arg-type]
    with pytest.raises(SetupError, match="plain function"):
        registry.watch(watcher)  # type: ignore[arg-type]
    registration = registry.register("server", "s", 1)
    registration.unregister()
    with pytest.raises(SetupError, match="not registered any more"):
        registration.update(meta={})


# Several nodes


async def test_what_one_node_registers_another_finds_and_reaches() -> None:
    """REGY-08"""
    hub = Hub()
    here, there = HubRegistry(hub), HubRegistry(hub)
    events: list[Event] = []
    there.watch(events.append)
    inbox = Inbox()
    here.register("server", "s", inbox, capabilities=["tools"])
    there.register("transport", "t", print)
    there.bind("t", "s")
    assert [entry.name for entry in there.find_all("server", capability="tools")] == ["s"]
    await there.route("t", b"over there")
    assert inbox.got == [("t", b"over there")]
    with pytest.raises(AlreadyRegistered):
        there.register("server", "s", print)
    here.unregister("server", "s")
    assert there.find("server", "s") is None
    assert told(events)[-2:] == [("gone", "server s", "unregistered"), ("changed", "transport t", "unbound")]


# Dead things


async def test_nothing_is_held_of_what_is_gone() -> None:
    """REGY-07: ten thousand entries that ended leave nothing, and what lives on holds none of them."""
    registry = LocalRegistry()
    loop = asyncio.get_running_loop()
    alive: asyncio.Future[None] = loop.create_future()
    values: list[weakref.ref[Any]] = []
    for number in range(10_000):
        inbox = Inbox()
        values.append(weakref.ref(inbox))
        ended: asyncio.Future[None] = loop.create_future()
        until = ended if number % 2 else alive
        registry.register("transport", f"t{number}", inbox, capabilities=["x"], until=until)
        if number % 2:
            ended.set_result(None)
        else:
            registry.unregister("transport", f"t{number}")
        del inbox
    await asyncio.sleep(0.001)
    gc.collect()
    assert registry.stats().entries == {}
    assert [value for value in values if value() is not None] == []


async def test_a_crashed_registry_comes_back_and_those_who_were_there_register_again() -> None:
    """REGY-09, SUPV-02: it is a permanent child."""
    current: list[LocalRegistry] = []
    crash: list[asyncio.Future[None]] = []

    async def keep_registry(ready: Callable[[], None]) -> None:
        registry = LocalRegistry()
        if current:
            registry.restore(current[-1].snapshot())
        current.append(registry)
        crash.append(asyncio.get_running_loop().create_future())
        ready()
        await crash[-1]

    async def keep_server(ready: Callable[[], None]) -> None:
        inbox = Inbox()
        with current[-1].register("server", "s", inbox):
            ready()
            await asyncio.sleep(1000)

    registry = Child("registry", keep_registry, restart="permanent")
    server = Child("server", keep_server, restart="transient")
    async with Supervisor("app", registry, server, strategy="rest_for_one"):
        current[0].register("transport", "t", print)
        current[0].bind("t", "s")
        crash[0].set_exception(RuntimeError("corrupt"))
        await asyncio.sleep(0.01)
        assert len(current) == 2
        found = current[1].find("server", "s")
        assert found is not None
        assert not found.is_restored
        assert current[1].find("transport", "t") is not None
