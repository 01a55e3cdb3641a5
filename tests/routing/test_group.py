"""The targets of a router: who is marked as usable, what is told of each, and what is left of a removed one."""

from __future__ import annotations

import asyncio

import pytest
from flaky import Flaky

from ferrule.errors import ConnectFailed, LinkLost, NoTarget
from ferrule.protocol.session import Phase
from ferrule.routing.group import Group, named_targets
from ferrule.routing.router import Router

pytestmark = pytest.mark.virtual_time


def group_of(router: Router) -> Group:
    """Return the group of a router."""
    return router._group


async def test_while_all_goes_well_no_call_looks_at_every_target() -> None:
    async with Router({"a": Flaky("a"), "b": Flaky("b")}) as router:
        group = group_of(router)
        await router.call_tool("who")
        assert group._steady
        router.drain("a")
        assert not group._steady
        await router.call_tool("who")
        assert not group._steady
        router.drain("a", draining=False)
        await router.call_tool("who")
        assert group._steady
        router.force_open("b")
        assert not group._steady


async def test_an_ejection_between_two_calls_holds_for_the_next() -> None:
    targets = {name: Flaky(name) for name in "abc"}
    async with Router(targets, balance="round_robin") as router:
        group = group_of(router)
        await router.call_tool("who")
        for _ in range(5):
            group._ejection.failed("b", 0.0)
        for _ in range(10):
            await router.call_tool("who")
        assert targets["b"].calls == []


async def test_the_figures_are_looked_at_every_second(monkeypatch: pytest.MonkeyPatch) -> None:
    """ROUT-03: the adaptive policy is refreshed each second."""
    async with Router({"a": Flaky("a")}, balance="adaptive") as router:
        times: list[float] = []
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(group_of(router)._policy, "refresh", lambda targets: times.append(loop.time()))
        began = loop.time()
        await asyncio.sleep(5.5)
        assert [round(at - began, 3) for at in times] == [1, 2, 3, 4, 5]


async def test_a_refusal_says_when_the_next_probe_is() -> None:
    targets = {"a": Flaky("a")}
    async with Router(targets) as router:
        await asyncio.sleep(100.0)
        targets["a"].cut()
        for _ in range(5):
            with pytest.raises(ConnectFailed):
                await router.call_tool("who")
        await asyncio.sleep(8.5)  # the probes after 1, 1, 2 and 4 s have failed; the next comes after 8
        with pytest.raises(NoTarget) as refused:
            await router.call_tool("who")
        assert refused.value.retry_after == 8


async def test_a_failed_call_counts_with_the_time_it_took() -> None:
    targets = {"a": Flaky("a")}
    async with Router(targets) as router:
        await asyncio.sleep(50.0)
        targets["a"].pause = 10.0
        call = asyncio.ensure_future(router.call_tool("who"))
        await asyncio.sleep(0.5)
        targets["a"].cut()
        with pytest.raises(LinkLost):
            await call
        assert router.targets[0].latency == pytest.approx(0.5)


async def test_nothing_is_left_of_a_removed_target() -> None:
    targets = {"a": Flaky("a"), "b": Flaky("b")}
    async with Router(targets, balance="hash") as router:
        group = group_of(router)
        for number in range(20):
            await router.call_tool("who", key=str(number))
        client = group.replica("a").client
        await router.remove("a")
        assert client.phase is Phase.CLOSED
        assert group._policy._weights == {"b": 1.0}  # type: ignore[attr-defined]
        assert group._ejection._records.keys() == {"b"}
        assert [facts.name for facts in group._facts] == ["b"]


async def test_probes_end_with_the_router() -> None:
    targets = {"a": Flaky("a")}
    async with Router(targets) as router:
        targets["a"].cut()
        for _ in range(5):
            with pytest.raises(ConnectFailed):
                await router.call_tool("who")
    before = targets["a"].connects
    await asyncio.sleep(100.0)
    assert targets["a"].connects == before


async def test_one_that_is_forced_open_is_not_probed() -> None:
    targets = {"a": Flaky("a")}
    async with Router(targets) as router:
        targets["a"].cut()
        for _ in range(5):
            with pytest.raises(ConnectFailed):
                await router.call_tool("who")
        replica = group_of(router).replica("a")
        assert replica.probe_timer is not None
        router.reset("a")
        router.force_open("a")
        assert replica.probe_timer is None


async def test_one_that_is_removed_gets_no_calls_while_its_last_ones_end() -> None:
    targets = {"a": Flaky("a"), "b": Flaky("b")}
    async with Router(targets, balance="round_robin") as router:
        targets["a"].pause = 3.0
        call = asyncio.ensure_future(router.call_tool("who", {"text": "last"}))
        await asyncio.sleep(0.1)
        removing = asyncio.ensure_future(router.remove("a", 5.0))
        await asyncio.sleep(0.1)
        for _ in range(4):
            assert (await router.call_tool("who")).data == "b"
        assert (await call).data == "a"
        await removing
        assert targets["a"].calls == ["last"]


async def test_answers_are_counted_for_the_breaker_for_ejection_and_for_the_policy() -> None:
    targets = {"a": Flaky("a")}
    async with Router(targets) as router:
        targets["a"].pause = 2.0
        for _ in range(3):
            await router.call_tool("who")
        replica = group_of(router).replica("a")
        assert (replica.record.calls, replica.record.failures) == (3, 0)
        assert (replica.facts.calls, replica.facts.errors, replica.facts.in_flight) == (3, 0, 0)
        assert (replica.breaker.successes, len(replica.latencies)) == (3, 3)
        assert replica.facts.latency == pytest.approx(2.0)
        targets["a"].pause = 12.0
        await router.call_tool("who")
        assert replica.facts.latency == pytest.approx(3.0)
        assert router._bulkhead.service_time == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("http://a:8000/mcp", "http://a:8000/mcp"),
        ("https://ada:secret@a/mcp?token=secret#secret", "https://a/mcp"),
        ("tcp://[::1]:7000", "tcp://[::1]:7000"),
        ("unix:/run/a.sock", "unix:/run/a.sock"),
        ("server.py", "server.py"),
    ],
)
def test_a_target_is_named_by_its_address_without_what_may_be_secret_in_it(address: str, name: str) -> None:
    """Names are shown in logs, metrics and spans."""
    assert list(named_targets([address])) == [name]
