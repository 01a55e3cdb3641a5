"""The registry does what a simple model of it does, whatever is done to it, and takes the same time at any size."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ferrule.errors import AlreadyRegistered, NoRoute
from ferrule.registry.local import LocalRegistry
from ferrule.registry.registry import Event

kinds = st.sampled_from(["server", "transport", "link"])
names = st.sampled_from(["a", "b", "c"])
capabilities = st.frozensets(st.sampled_from(["tools", "prompts", "tasks"]))


class Ending:
    """Ends when it is told to, and calls back at once."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[Any], object]] = []

    def add_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Keep a callback."""
        self.callbacks.append(callback)

    def remove_done_callback(self, callback: Callable[[Any], object]) -> None:
        """Forget a callback."""
        self.callbacks.remove(callback)

    def end(self) -> None:
        """Call back."""
        for callback in list(self.callbacks):
            callback(self)


class RegistryMachine(RuleBasedStateMachine):
    """Does the same to a registry and to plain dictionaries; watchers are told what turns the one into the other."""

    def __init__(self) -> None:
        super().__init__()
        self.registry = LocalRegistry()
        self.entries: dict[tuple[str, str], tuple[int, frozenset[str]]] = {}
        self.restored: set[tuple[str, str]] = set()
        self.bindings: dict[str, str] = {}
        self.endings: dict[tuple[str, str], Ending] = {}
        self.registrations: dict[tuple[str, str], Any] = {}
        self.old_registrations: list[Any] = []
        self.number = 0
        self.seen: dict[tuple[str, str], Any] = {}
        self.registry.watch(self._hear)

    def _hear(self, event: Event) -> None:
        key = (event.entry.kind, event.entry.name)
        assert (key in self.seen) == (event.change != "added")
        if event.change == "gone":
            del self.seen[key]
        else:
            self.seen[key] = event.entry

    def _forget(self, key: tuple[str, str]) -> None:
        if self.entries.pop(key, None) is None:
            return
        self.restored.discard(key)
        self.endings.pop(key, None)
        registration = self.registrations.pop(key, None)
        if registration is not None:
            self.old_registrations.append(registration)
        kind, name = key
        if kind == "transport":
            self.bindings.pop(name, None)
        if kind == "server":
            self.bindings = {t: s for t, s in self.bindings.items() if s != name}

    @rule(kind=kinds, name=names, wanted=capabilities)
    def register(self, kind: str, name: str, wanted: frozenset[str]) -> None:
        """Register something that may end."""
        key = (kind, name)
        self.number += 1
        ending = Ending()
        if key in self.entries and key not in self.restored:
            with pytest.raises(AlreadyRegistered):
                self.registry.register(kind, name, self.number, capabilities=wanted, until=ending)
            assert ending.callbacks == []
            return
        self.registrations[key] = self.registry.register(kind, name, self.number, capabilities=wanted, until=ending)
        self.restored.discard(key)
        # Who registers again comes last.
        self.entries.pop(key, None)
        self.entries[key] = (self.number, wanted)
        self.endings[key] = ending

    @rule(kind=kinds, name=names)
    def unregister(self, kind: str, name: str) -> None:
        """Unregister by name."""
        ending = self.endings.get((kind, name))
        self.registry.unregister(kind, name)
        self._forget((kind, name))
        if ending is not None:
            assert ending.callbacks == []

    @rule(kind=kinds, name=names)
    def end(self, kind: str, name: str) -> None:
        """Let what an entry depends on end."""
        ending = self.endings.get((kind, name))
        if ending is not None:
            ending.end()
            self._forget((kind, name))

    @rule(position=st.integers(0, 100))
    def unregister_late(self, position: int) -> None:
        """Unregister through what whoever had it still holds."""
        if self.old_registrations:
            self.old_registrations[position % len(self.old_registrations)].unregister()

    @rule(kind=kinds, name=names, wanted=capabilities)
    def update(self, kind: str, name: str, wanted: frozenset[str]) -> None:
        """Change the capabilities."""
        registration = self.registrations.get((kind, name))
        if registration is not None:
            registration.update(capabilities=wanted)
            self.entries[kind, name] = (self.entries[kind, name][0], wanted)

    @rule(transport=names, server=names)
    def bind(self, transport: str, server: str) -> None:
        """Bind what may not be there."""
        if ("transport", transport) in self.entries and ("server", server) in self.entries:
            self.registry.bind(transport, server)
            self.bindings[transport] = server
        else:
            with pytest.raises(NoRoute):
                self.registry.bind(transport, server)

    @rule(transport=names)
    def unbind(self, transport: str) -> None:
        """Unbind what may not be bound."""
        self.registry.unbind(transport)
        self.bindings.pop(transport, None)

    @rule()
    def crash_and_restore(self) -> None:
        """Begin with a new registry and the snapshot of the old."""
        dump = self.registry.snapshot()
        self.registry = LocalRegistry()
        self.seen.clear()
        self.registry.watch(self._hear)
        self.registry.restore(dump)
        self.restored = set(self.entries)
        self.endings.clear()
        self.registrations.clear()
        self.old_registrations.clear()
        for key, (_, wanted) in self.entries.items():
            self.entries[key] = (0, wanted)

    @invariant()
    def every_entry_is_found(self) -> None:
        """By name, by kind and by capability."""
        for kind in ("server", "transport", "link"):
            for name in ("a", "b", "c"):
                found = self.registry.find(kind, name)
                known = self.entries.get((kind, name))
                assert (found is None) == (known is None)
                if found is not None and known is not None:
                    assert (found.value or 0, found.capabilities) == known
                    assert self.seen[kind, name] is found
            assert {entry.name for entry in self.registry.find_all(kind)} == {n for k, n in self.entries if k == kind}
            for capability in ("tools", "prompts", "tasks"):
                expected = {n for (k, n), (_, had) in self.entries.items() if k == kind and capability in had}
                assert {entry.name for entry in self.registry.find_all(kind, capability=capability)} == expected
        assert self.seen.keys() == self.entries.keys()

    @invariant()
    def every_binding_is_found_both_ways(self) -> None:
        """And no other."""
        for name in ("a", "b", "c"):
            assert self.registry.server_for(name) == self.bindings.get(name)
            assert set(self.registry.transports_for(name)) == {t for t, s in self.bindings.items() if s == name}
        assert self.registry.stats().bindings == len(self.bindings)

    @invariant()
    def no_table_is_left_empty(self) -> None:
        """Names that come and go leave nothing behind."""
        for tables in (self.registry._kinds, self.registry._capable, self.registry._transports):
            assert all(tables.values())  # type: ignore[attr-defined]


TestTheRegistryAgainstItsModel = RegistryMachine.TestCase
TestTheRegistryAgainstItsModel.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# Time


def filled(count: int) -> LocalRegistry:
    """Return a registry with so many servers, each bound to a transport."""
    registry = LocalRegistry()
    for number in range(count):
        registry.register("server", f"s{number}", lambda sender, data: None, capabilities=[f"c{number}"])
        registry.register("transport", f"t{number}", lambda sender, data: None)
        registry.bind(f"t{number}", f"s{number}")
    return registry


def seconds_for(registry: LocalRegistry, count: int, rounds: int = 5_000) -> float:
    """Measure the CPU time of look-ups of all kinds in a registry of this size; the best of several."""
    chosen = [(f"s{n}", f"t{n}", f"c{n}") for n in range(0, count, max(1, count // 10))][:10]

    async def look_up() -> float:
        best = float("inf")
        for _ in range(7):
            start = time.process_time()
            for round_number in range(rounds):
                server, transport, capability = chosen[round_number % 10]
                registry.find("server", server)
                registry.find_all("server", capability=capability)
                registry.server_for(transport)
                registry.transports_for(server)
                await registry.route(transport, b"")
            best = min(best, time.process_time() - start)
        return best

    return asyncio.run(look_up())


def test_look_ups_take_the_same_time_from_ten_to_a_hundred_thousand_entries() -> None:
    """REGY-06: a scan would take ten thousand times as long; caches of the processor may take twice."""
    small = filled(10)
    large = filled(100_000)
    ratios = []
    for _ in range(3):
        ratios.append(seconds_for(large, 100_000) / seconds_for(small, 10))
        if ratios[-1] < 2:
            break
    assert min(ratios) < 4


def test_a_look_up_and_a_route_are_fast() -> None:
    """REGY-10: the seeds name 553,000 a second; of CPU time it takes far less."""
    registry = filled(1000)

    async def look_up_and_route() -> float:
        best = float("inf")
        for _ in range(10):
            start = time.process_time()
            for _ in range(10_000):
                registry.find("transport", "t500")
                await registry.route("t500", b"data")
            best = min(best, time.process_time() - start)
        return 10_000 / best

    rate = asyncio.run(look_up_and_route())
    assert rate > 553_000
