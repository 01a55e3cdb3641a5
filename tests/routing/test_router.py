"""Several servers used as one: calls find one that works, and what could do harm is never sent twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from flaky import Flaky

from ferrule import Client, Observer, Server, ToolError
from ferrule.balancing.breaker import BreakerSettings
from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.balancing.hedge import Hedge
from ferrule.balancing.retry import RetrySettings
from ferrule.errors import (
    CallFailed,
    ConnectFailed,
    ConnectionTimedOut,
    LinkLost,
    NoTarget,
    NotConnected,
    OutcomeUnknown,
    Overloaded,
    SetupError,
    TimedOut,
)
from ferrule.protocol.handshake import Handshake
from ferrule.routing.decisions import RouterEvent
from ferrule.routing.replica import Replica
from ferrule.routing.router import Router, RouterStats, _first_answer
from ferrule.telemetry.observer import ObservedRequest

virtual_time = pytest.mark.virtual_time


def sites(*names: str) -> dict[str, Flaky]:
    """Return servers that can fail, by name."""
    return {name: Flaky(name) for name in names}


async def who(router: Router, **how: Any) -> str:
    """Call the tool that returns the name of its server."""
    result = await router.call_tool("who", **how)
    name: str = result.data
    return name


async def read(router: Router, **how: Any) -> str:
    """Read the resource that is the name of its server."""
    result = await router.request("resources/read", {"uri": "note://who"}, **how)
    name: str = result["contents"][0]["text"]
    return name


class TestBalance:
    @virtual_time
    @pytest.mark.parametrize("balance", ["round_robin", "least_loaded", "random", "adaptive", "hash"])
    async def test_calls_are_spread_over_all_targets(self, balance: str) -> None:
        """ROUT-01"""
        async with Router(sites("a", "b", "c"), balance=balance) as router:
            counted = Counter([await who(router, key=f"key {number}") for number in range(150)])
        assert counted.keys() == {"a", "b", "c"}
        assert sum(state.calls for state in router.targets) == 150

    @virtual_time
    async def test_weights_are_kept(self) -> None:
        """ROUT-03"""
        async with Router(sites("a", "b"), balance="round_robin", weights={"a": 3}) as router:
            counted = Counter([await who(router) for _ in range(40)])
        assert counted == {"a": 30, "b": 10}

    @virtual_time
    async def test_the_less_loaded_gets_the_next_call(self) -> None:
        targets = sites("a", "b")
        async with Router(targets) as router:
            targets["a"].pause = targets["b"].pause = 1.0
            counted = Counter(await asyncio.gather(*(who(router) for _ in range(40))))
        assert counted == {"a": 20, "b": 20}

    @virtual_time
    async def test_one_key_stays_with_one_target(self) -> None:
        async with Router(sites("a", "b", "c"), balance="hash") as router:
            assert len({await who(router, key="session 1") for _ in range(30)}) == 1

    @virtual_time
    async def test_servers_may_be_given_as_a_list(self) -> None:
        servers = []
        for number in range(2):
            server = Server(f"s{number}")

            @server.tool
            async def add(a: int, b: int) -> int:
                """Add."""
                return a + b

            servers.append(server)
        async with Router(servers, balance="round_robin") as router:
            for _ in range(4):
                assert (await router.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert [(state.name, state.calls) for state in router.targets] == [("0", 2), ("1", 2)]


class TestFailover:
    @virtual_time
    async def test_a_target_that_cannot_be_reached_costs_no_call(self) -> None:
        """Not even unsafe ones: nothing was sent."""
        targets = sites("a", "b")
        targets["a"].down = True
        async with Router(targets, balance="round_robin") as router:
            assert {await who(router) for _ in range(20)} == {"b"}
            assert router.targets[0].breaker.state == "open"
            assert router.stats().retries == 5
            assert targets["a"].connects == 1 + 5

    @virtual_time
    async def test_all_but_one_may_be_away(self) -> None:
        targets = sites("a", "b", "c", "d")
        for name in "abc":
            targets[name].down = True
        async with Router(targets, balance="round_robin") as router:
            assert {await who(router) for _ in range(30)} == {"d"}

    @virtual_time
    async def test_safe_calls_in_flight_are_answered_by_another(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin") as router:
            for target in targets.values():
                target.pause = 1.0
            calls = [asyncio.ensure_future(read(router)) for _ in range(6)]
            await asyncio.sleep(0.5)
            targets["a"].cut()
            assert await asyncio.gather(*calls) == ["b"] * 6
            assert router.stats().retries == 3
            assert router.stats().errors == 0

    @virtual_time
    async def test_unsafe_calls_in_flight_are_never_sent_again(self) -> None:
        targets, told = sites("a", "b"), []
        async with Router(targets, balance="round_robin", on_event=told.append) as router:
            for target in targets.values():
                target.pause = 1.0
            calls = [asyncio.ensure_future(who(router, arguments={"text": str(number)})) for number in range(6)]
            await asyncio.sleep(0.5)
            targets["a"].cut()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert sorted(targets["a"].calls + targets["b"].calls) == list("012345")
        lost = [end for end in ends if isinstance(end, Exception)]
        assert len(lost) == 3
        for error in lost:
            assert type(error) is OutcomeUnknown
            assert str(error).startswith("unknown outcome: a was lost after tools/call was sent")
        assert [event.kind for event in told].count("outcome_unknown") == 3 == router.stats().outcome_unknown

    @virtual_time
    async def test_a_tool_that_is_said_to_be_safe_is_sent_again(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin", safe_tools=["who"]) as router:
            for target in targets.values():
                target.pause = 1.0
            call = asyncio.ensure_future(who(router))
            await asyncio.sleep(0.5)
            targets["a"].cut()
            assert await call == "b"

    @virtual_time
    async def test_retries_keep_to_their_budget(self) -> None:
        targets = sites("a", "b")
        retry = RetrySettings(budget=0.0, least=2)
        async with Router(targets, balance="round_robin", retry=retry) as router:
            for target in targets.values():
                target.pause = 1.0
            calls = [asyncio.ensure_future(read(router)) for _ in range(20)]
            await asyncio.sleep(0.5)
            targets["a"].cut()
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert ends.count("b") == 10 + 2
        assert [type(end) for end in ends if end != "b"] == [LinkLost] * 8
        assert (router.stats().errors, router.stats().retries) == (8, 2)

    @virtual_time
    async def test_the_budget_is_a_share_of_the_calls(self) -> None:
        targets = sites("a", "b")
        retry = RetrySettings(budget=0.3, least=0)
        async with Router(targets, balance="round_robin", retry=retry) as router:
            for target in targets.values():
                target.pause = 1.0
            calls = [asyncio.ensure_future(read(router)) for _ in range(20)]
            await asyncio.sleep(0.5)
            targets["a"].cut()
            ends = await asyncio.gather(*calls, return_exceptions=True)
        assert ends.count("b") == 10 + 6

    @virtual_time
    async def test_a_call_is_sent_again_once(self) -> None:
        targets = sites("a", "b", "c")
        async with Router(targets, balance="round_robin") as router:
            for target in targets.values():
                target.pause = 1.0
            call = asyncio.ensure_future(read(router))
            for name in "ab":
                await asyncio.sleep(0.5)
                targets[name].cut()
            with pytest.raises(LinkLost):
                await call
            assert targets["c"].calls == []

    @virtual_time
    async def test_answers_that_are_errors_are_answers(self) -> None:
        async with Router(sites("a", "b")) as router:
            for _ in range(20):
                with pytest.raises(ToolError):
                    await router.call_tool("broken")
            assert [state.breaker.state for state in router.targets] == ["closed", "closed"]
            assert router.stats().retries == 0

    @virtual_time
    async def test_one_that_comes_back_is_connected_to_again(self) -> None:
        targets = sites("a")
        async with Router(targets) as router:
            assert await who(router) == "a"
            targets["a"].cut(down=False)
            assert await who(router) == "a"
            assert targets["a"].connects == 2

    @virtual_time
    async def test_a_request_for_a_tool_is_as_safe_as_the_tool(self) -> None:
        for safe_tools, lost in ((["who"], None), ([], OutcomeUnknown)):
            targets = sites("a", "b")
            async with Router(targets, balance="round_robin", safe_tools=safe_tools) as router:
                for target in targets.values():
                    target.pause = 1.0
                call = asyncio.ensure_future(router.request("tools/call", {"name": "who", "arguments": {}}))
                await asyncio.sleep(0.5)
                targets["a"].cut()
                [end] = await asyncio.gather(call, return_exceptions=True)
                if lost is None:
                    assert isinstance(end, dict)
                    assert end["content"][0]["text"] == "b"
                else:
                    assert type(end) is lost

    def test_what_only_reads_is_safe_and_what_nobody_knows_is_not(self) -> None:
        router = Router(sites("a"), safe_tools=["who"])
        for method in ("tools/list", "resources/read", "prompts/get", "ping"):
            assert router.is_safe(method, None)
        for method in ("vendor/own", "tasks/cancel", "tools/call"):
            assert not router.is_safe(method, None)
        assert router.is_safe("tools/call", {"name": "who"})

    @virtual_time
    async def test_what_is_done_with_a_client_is_unsafe_unless_it_is_said_to_be_safe(self) -> None:
        async def lose(client: Client, seconds: float | None) -> None:
            raise LinkLost("lost")

        async with Router(sites("a", "b")) as router:
            with pytest.raises(OutcomeUnknown):
                await router.call(lose, "vendor/own")
            assert router.stats().retries == 0
            with pytest.raises(LinkLost) as lost:
                await router.call(lose, "vendor/own", safe=True)
            assert not isinstance(lost.value, OutcomeUnknown)
            assert router.stats().retries == 1


class TestTime:
    @virtual_time
    async def test_a_call_takes_no_longer_than_it_may(self) -> None:
        targets = sites("a", "b")
        async with Router(targets) as router:
            for target in targets.values():
                target.pause = 100.0
            for safe in (True, False):
                began = asyncio.get_running_loop().time()
                with pytest.raises(TimedOut):
                    await who(router, timeout=3.0, safe=safe)
                assert asyncio.get_running_loop().time() - began == pytest.approx(3.0)
            assert router.stats().retries == 0
            assert [state.breaker.failures for state in router.targets] == [0, 0]

    @virtual_time
    async def test_connecting_takes_no_longer_than_the_call_may(self) -> None:
        targets = sites("a", "b")
        targets["a"].down = True
        async with Router(targets, balance="round_robin") as router:
            targets["a"].down = False
            targets["a"].connect_pause = 100.0
            began = asyncio.get_running_loop().time()
            with pytest.raises(ConnectFailed, match="a did not let us connect within 2 s"):
                await who(router, timeout=2.0)
            assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
            assert await who(router, timeout=8.0) == "b"
            assert await who(router, timeout=8.0) == "b"
            assert asyncio.get_running_loop().time() - began == pytest.approx(2.0 + 3.0)

    @virtual_time
    async def test_a_slow_read_is_asked_of_another_only_if_the_target_answers_nothing(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin") as router:
            targets["a"].pause = 100.0
            with pytest.raises(TimedOut):
                await read(router)
            assert targets["b"].calls == []

    @virtual_time
    async def test_the_first_try_of_a_read_is_short_and_a_tool_has_its_own_time(self) -> None:
        targets = sites("a", "b")
        options: dict[str, Any] = {"breaker": BreakerSettings(call_timeout=2.0), "safe_tools": ["who"]}
        async with Router(targets, balance="round_robin", **options) as router:
            for target in targets.values():
                target.pause = 3.0
            assert await who(router) == "a"
            began = asyncio.get_running_loop().time()
            with pytest.raises(TimedOut):
                await read(router)
            assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
            call = asyncio.ensure_future(read(router))
            await asyncio.sleep(1.0)
            targets["a"].cut()
            assert await call == "b"

    @virtual_time
    @pytest.mark.parametrize("mode", ["stateless", "handshake"])
    async def test_a_stateless_target_that_timed_out_is_asked_to_discover_itself(
        self, mode: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """One of the handshake era has answered a ping before the client says that it only took too long."""
        targets, asked = sites("a", "b"), []

        async def works(replica: Replica, scope: Any) -> bool:
            asked.append(replica.name)
            return answers

        monkeypatch.setattr(Replica, "works", works)
        async with Router(targets, balance="round_robin", mode=mode, tool_timeout=1.0) as router:
            for target in targets.values():
                target.pause = 100.0
            for answers in (True, False):
                with pytest.raises(TimedOut) as failed:
                    await who(router)
                silent = mode == "stateless" and not answers
                assert isinstance(failed.value, ConnectionTimedOut) is silent
            assert asked == (["a", "b"] if mode == "stateless" else [])
            assert router.targets[1].breaker.failures == (1 if mode == "stateless" else 0)


class TestEjection:
    @virtual_time
    async def test_one_that_fails_five_times_in_a_row_gets_no_calls_for_a_while(self) -> None:
        targets, told = sites("a", "b", "c"), list[RouterEvent]()
        breaker = BreakerSettings(failures=100, window=100)
        async with Router(targets, balance="round_robin", breaker=breaker, on_event=told.append) as router:
            targets["a"].down = True
            targets["a"].cut()
            for _ in range(15):
                await who(router)
            assert [event.target for event in told if event.kind == "ejected"] == ["a"]
            assert [state.ejected for state in router.targets] == [True, False, False]
            before = targets["a"].connects
            targets["a"].down = False
            assert {await who(router) for _ in range(12)} == {"b", "c"}
            assert targets["a"].connects == before
            await asyncio.sleep(45.0)
            assert {await who(router) for _ in range(12)} == {"a", "b", "c"}

    @virtual_time
    async def test_in_a_panic_an_ejected_one_is_used(self) -> None:
        targets = sites("a", "b", "c")
        breaker = BreakerSettings(failures=100, window=100)
        async with Router(targets, balance="round_robin", breaker=breaker) as router:
            targets["a"].cut()
            for _ in range(15):
                await who(router)
            assert router.targets[0].ejected
            targets["a"].down = False
            router.force_open("b")
            assert {await who(router) for _ in range(12)} == {"a", "c"}
            router.drain("c")
            assert {await who(router) for _ in range(12)} == {"a"}

    @virtual_time
    async def test_in_a_panic_a_half_open_target_takes_all_calls_and_each_is_a_trial(self) -> None:
        targets = sites("a", "b", "c")
        async with Router(targets, balance="round_robin") as router:
            router.drain("b")
            router.drain("c")
            targets["a"].cut()
            for _ in range(5):
                with pytest.raises(ConnectFailed):
                    await who(router)
            targets["a"].down = False
            await asyncio.sleep(1.5)
            assert router.targets[0].breaker.state == "half_open"
            targets["a"].pause = 1.0
            assert await asyncio.gather(who(router), who(router)) == ["a", "a"]
            assert router.targets[0].breaker.state == "closed"
            assert router.targets[0].breaker.refused == 0


class TestBreaker:
    @virtual_time
    async def test_without_a_target_the_refusal_says_why(self) -> None:
        """ROUT-06: 1086 in the profile of the seeds, 503 over HTTP."""
        targets = sites("a", "b")
        async with Router(targets) as router:
            router.force_open("a")
            router.drain("b")
            with pytest.raises(NoTarget) as refused:
                await who(router)
            error = refused.value
            assert error.reasons == {"a": "the breaker is open", "b": "draining"}
            assert (error.status, error.headers) == (503, {"Retry-After": "30"})
            assert Handshake(erlmcp_codes=True).data(error) == {"retryAfter": 30, "refusal": 1086}
            assert router.stats().no_target == 1
            router.reset("a")
            assert await who(router) == "a"
            router.drain("b", draining=False)
            assert {await who(router) for _ in range(20)} == {"a", "b"}

    @virtual_time
    async def test_an_open_breaker_falls_back_to_the_others(self) -> None:
        """ROUT-06"""
        async with Router(sites("a", "b")) as router:
            router.force_open("a")
            assert {await who(router) for _ in range(20)} == {"b"}

    @virtual_time
    async def test_it_works_again_within_two_seconds_after_the_fault(self) -> None:
        """The open time of 60 s does not matter: open targets are probed."""
        targets, told = sites("a"), []
        async with Router(targets, on_event=told.append) as router:
            targets["a"].cut()
            for _ in range(5):
                with pytest.raises(ConnectFailed):
                    await who(router)
            with pytest.raises(NoTarget):
                await who(router)
            targets["a"].down = False
            await asyncio.sleep(2.0)
            assert await who(router) == "a"
            assert await who(router) == "a"
            assert router.targets[0].breaker.state == "closed"
        changes = [event.reason for event in told if event.kind == "breaker"]
        assert changes == ["closed>open", "open>half_open", "half_open>closed"]

    @virtual_time
    async def test_one_that_stays_away_is_probed_less_and_less(self) -> None:
        targets = sites("a")
        async with Router(targets, breaker=BreakerSettings(open_time=300.0)) as router:
            targets["a"].cut()
            for _ in range(5):
                with pytest.raises(ConnectFailed):
                    await who(router)
            before = targets["a"].connects
            await asyncio.sleep(64.0)
            assert targets["a"].connects - before == 7  # after 1, 1, 2, 4, 8, 16 and 30 s

    @virtual_time
    async def test_a_second_call_of_a_half_open_target_is_refused_with_the_reason(self) -> None:
        targets = sites("a")
        async with Router(targets) as router:
            targets["a"].cut()
            for _ in range(5):
                with pytest.raises(ConnectFailed):
                    await who(router)
            targets["a"].down = False
            await asyncio.sleep(1.5)
            targets["a"].pause = 1.0
            first = asyncio.ensure_future(who(router))
            await asyncio.sleep(0.1)
            with pytest.raises(NoTarget) as refused:
                await who(router)
            assert refused.value.reasons == {"a": "the breaker is half-open and a call is being tried"}
            assert await first == "a"

    @virtual_time
    async def test_in_the_half_open_state_one_call_at_a_time_is_tried(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin") as router:
            targets["a"].cut()
            for _ in range(10):
                await who(router)
            targets["a"].down = False
            await asyncio.sleep(1.5)
            assert router.targets[0].breaker.state == "half_open"
            for target in targets.values():
                target.pause = 1.0
            ends = await asyncio.gather(*(who(router) for _ in range(20)))
            assert Counter(ends) == {"a": 1, "b": 19}


class TestBulkhead:
    @virtual_time
    async def test_who_cannot_be_served_in_time_is_refused_at_once(self) -> None:
        """ROUT-05"""
        targets = sites("a")
        settings = BulkheadSettings(in_flight=2, queue=4)
        async with Router(targets, bulkhead=settings) as router:
            targets["a"].pause = 1.0
            calls = [asyncio.ensure_future(who(router)) for _ in range(6)]
            await asyncio.sleep(0.1)
            assert (router.stats().in_flight, router.stats().waiting) == (2, 4)
            assert router.stats().under_pressure
            with pytest.raises(Overloaded) as refused:
                await who(router)
            assert (refused.value.retry_after, refused.value.status) == (1, 503)
            assert await asyncio.gather(*calls) == ["a"] * 6
            assert router.stats().overloaded == 1
            assert router.stats().in_flight == 0

    @virtual_time
    async def test_who_waits_too_long_is_refused(self) -> None:
        targets = sites("a")
        async with Router(targets, bulkhead=BulkheadSettings(in_flight=1, queue_time=5.0)) as router:
            targets["a"].pause = 20.0
            first = asyncio.ensure_future(who(router))
            await asyncio.sleep(0.1)
            began = asyncio.get_running_loop().time()
            with pytest.raises(Overloaded):
                await who(router)
            assert asyncio.get_running_loop().time() - began == pytest.approx(5.0)
            assert await first == "a"
            assert (router.stats().in_flight, router.stats().waiting) == (0, 0)

    @virtual_time
    async def test_retry_after_is_at_most_thirty_seconds(self) -> None:
        """It is an estimate of those ahead; behind the last that leaves nobody waits."""
        targets = sites("a")
        async with Router(targets, bulkhead=BulkheadSettings(in_flight=1, queue_time=5.0)) as router:
            targets["a"].pause = 20.0
            calls = [asyncio.ensure_future(who(router)) for _ in range(4)]
            await asyncio.sleep(0.1)
            router._bulkhead.service_time = 100.0
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert [end.retry_after for end in ends if isinstance(end, Overloaded)] == [30, 30, 1]

    @virtual_time
    async def test_cancelled_calls_leave_no_hole(self) -> None:
        targets = sites("a")
        async with Router(targets, bulkhead=BulkheadSettings(in_flight=1)) as router:
            targets["a"].pause = 1.0
            calls = [asyncio.ensure_future(who(router)) for _ in range(4)]
            await asyncio.sleep(0.1)
            calls[0].cancel()
            calls[2].cancel()
            ends = await asyncio.gather(*calls, return_exceptions=True)
            assert [type(end) for end in ends] == [asyncio.CancelledError, str, asyncio.CancelledError, str]
            assert (router.stats().in_flight, router.stats().waiting) == (0, 0)
            assert router.targets[0].in_flight == 0

    @virtual_time
    async def test_one_principal_has_a_share_of_the_calls_that_run(self) -> None:
        targets = sites("a")
        async with Router(targets, bulkhead=BulkheadSettings(in_flight=4, share=0.25)) as router:
            targets["a"].pause = 1.0
            calls = [asyncio.ensure_future(who(router, principal="one")) for _ in range(2)]
            calls += [asyncio.ensure_future(who(router)) for _ in range(2)]
            await asyncio.sleep(0.1)
            assert (router.stats().in_flight, router.stats().waiting) == (3, 1)
            assert await asyncio.gather(*calls) == ["a"] * 4
            assert (router.stats().in_flight, router.stats().waiting) == (0, 0)

    @virtual_time
    async def test_principals_take_turns(self) -> None:
        targets = sites("a")
        settings = BulkheadSettings(in_flight=1, queue=100, share=0.5, queue_time=60.0)
        async with Router(targets, bulkhead=settings) as router:
            targets["a"].pause = 1.0
            calls = []
            for number in range(10):
                calls.append(who(router, arguments={"text": f"flood {number}"}, principal="flood"))
            calls.append(who(router, arguments={"text": "quiet"}, principal="quiet"))
            await asyncio.gather(*calls)
        assert targets["a"].calls.index("quiet") == 2


class TestHedge:
    @virtual_time
    async def test_a_slow_safe_call_is_answered_by_a_second_target(self) -> None:
        targets, told = sites("a", "b"), []
        hedge = Hedge(after=0.5, budget=1.0)
        async with Router(targets, balance="round_robin", hedge=hedge, on_event=told.append) as router:
            targets["a"].pause = 4.0
            began = asyncio.get_running_loop().time()
            assert await read(router) == "b"
            assert asyncio.get_running_loop().time() - began == pytest.approx(0.5)
            await asyncio.sleep(0.1)
            assert [state.in_flight for state in router.targets] == [0, 0]
        assert [event.kind for event in told] == ["hedged"]
        assert router.stats().hedges == 1

    @virtual_time
    async def test_an_unsafe_call_is_never_hedged(self) -> None:
        targets = sites("a", "b")
        hedge = Hedge(after=0.5, budget=1.0)
        async with Router(targets, balance="round_robin", hedge=hedge) as router:
            targets["a"].pause = 4.0
            assert await who(router) == "a"
            assert targets["b"].calls == []

    @virtual_time
    async def test_what_is_slow_is_learnt_from_the_calls_before(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin", hedge=Hedge(budget=1.0)) as router:
            for target in targets.values():
                target.pause = 0.2
            for _ in range(40):
                await read(router)
            targets["a"].pause = 4.0
            began = asyncio.get_running_loop().time()
            assert await read(router) == "b"
            assert asyncio.get_running_loop().time() - began == pytest.approx(0.4, abs=0.01)

    @virtual_time
    async def test_one_target_alone_is_never_hedged(self) -> None:
        targets = sites("a")
        async with Router(targets, hedge=Hedge(after=0.5, budget=1.0)) as router:
            targets["a"].pause = 2.0
            assert await read(router) == "a"
            assert router.stats().hedges == 0

    @virtual_time
    async def test_where_both_fail_the_error_of_the_first_is_raised(self) -> None:
        async def fail(after: float) -> str:
            await asyncio.sleep(after)
            raise ValueError(f"after {after:g} s")

        tasks = [asyncio.ensure_future(fail(2.0)), asyncio.ensure_future(fail(1.0))]
        with pytest.raises(ValueError, match="after 2 s"):
            await _first_answer(tasks)
        tasks = [asyncio.ensure_future(fail(2.0)), asyncio.ensure_future(fail(1.0))]
        tasks[0].cancel()
        with pytest.raises(NotConnected, match="the router was closed"):
            await _first_answer(tasks)

    @virtual_time
    async def test_a_share_of_the_calls_at_most_is_hedged(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, hedge=Hedge(after=0.1, budget=0.05)) as router:
            for target in targets.values():
                target.pause = 1.0
            await asyncio.gather(*(read(router) for _ in range(100)))
        assert router.stats().hedges == 5

    @virtual_time
    async def test_a_cancelled_hedged_call_cancels_both(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, hedge=Hedge(after=0.1, budget=1.0)) as router:
            for target in targets.values():
                target.pause = 4.0
            call = asyncio.ensure_future(read(router))
            await asyncio.sleep(1.0)
            assert [state.in_flight for state in router.targets] == [1, 1]
            call.cancel()
            await asyncio.sleep(0.1)
            assert [state.in_flight for state in router.targets] == [0, 0]

    @virtual_time
    async def test_a_hedged_call_of_a_router_that_closes_fails(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, hedge=Hedge(after=0.1, budget=1.0)) as router:
            for target in targets.values():
                target.pause = 4.0
            call = asyncio.ensure_future(read(router))
            await asyncio.sleep(1.0)
            await router.close(0.0)
            [end] = await asyncio.gather(call, return_exceptions=True)
            assert isinstance(end, CallFailed)


class TestNotifications:
    @virtual_time
    async def test_one_that_cannot_be_delivered_is_a_dead_letter(self) -> None:
        """ROUT-05"""
        targets = sites("a")
        async with Router(targets) as router:
            assert await router.notify("notifications/roots/list_changed")
            targets["a"].cut()
            assert not await router.notify("notifications/roots/list_changed", {"secret": 1})
            [letter] = router.dead_letters.letters(asyncio.get_running_loop().time())
            assert (letter.method, letter.target) == ("notifications/roots/list_changed", "a")
            assert letter.payload is None
            assert "nobody answers at a" in letter.reason
            assert router.stats().dead_letters == 1
            assert router.targets[0].in_flight == 0


class TestPick:
    @virtual_time
    async def test_the_client_of_a_target_can_be_lent(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin") as router:
            async with router.pick() as client:
                assert (await client.call_tool("who")).data == "a"
            assert router.targets[0].calls == 1

            async def lose() -> None:
                async with router.pick() as client:
                    targets["b"].cut()
                    await client.call_tool("who")

            with pytest.raises(LinkLost):
                await lose()
            assert router.targets[1].errors == 1
            assert (router.stats().calls, router.stats().in_flight) == (2, 0)


class TestMeasures:
    @virtual_time
    async def test_everything_is_counted(self) -> None:
        """ROUT-07, ROUT-01"""
        targets, told = sites("a", "b"), list[RouterEvent]()
        async with Router(targets, balance="round_robin", on_event=told.append) as router:
            targets["a"].pause = 0.2
            targets["b"].pause = 0.1
            for _ in range(20):
                await who(router)
            targets["b"].cut()
            for _ in range(20):
                await who(router)
            first, second = router.targets
            assert (first.calls, first.errors, second.calls, second.errors) == (30, 0, 15, 5)
            assert first.latency == pytest.approx(0.2)
            assert first.percentiles == pytest.approx({"p50": 0.2, "p95": 0.2, "p99": 0.2})
            assert (first.breaker.state, second.breaker.state) == ("closed", "open")
            assert (first.connected, second.connected) == (True, False)
            stats = router.stats()
            assert (stats.calls, stats.errors, stats.retries, stats.waiting) == (40, 0, 5, 0)
        assert [event.kind for event in told] == ["retried"] * 4 + ["breaker", "retried"]

    @virtual_time
    async def test_while_all_goes_well_nothing_is_counted_but_calls(self) -> None:
        async with Router(sites("a", "b")) as router:
            for _ in range(10):
                await who(router)
            assert router.stats() == RouterStats(
                calls=10,
                errors=0,
                retries=0,
                hedges=0,
                overloaded=0,
                no_target=0,
                outcome_unknown=0,
                dead_letters=0,
                in_flight=0,
                waiting=0,
                under_pressure=False,
            )

    @virtual_time
    async def test_a_listener_that_fails_harms_nothing(self, caplog: pytest.LogCaptureFixture) -> None:
        def fail(event: RouterEvent) -> None:
            raise ValueError("a bug of the listener")

        targets = sites("a", "b")
        targets["a"].down = True
        async with Router(targets, balance="round_robin", on_event=fail) as router:
            assert await who(router) == "b"
        assert caplog.messages == [
            "the target a could not be reached, and will be tried again: nobody answers at a",
            "a listener of a router failed",
        ]


class TestMembers:
    @virtual_time
    async def test_targets_come_and_go(self) -> None:
        targets = sites("a", "b")
        async with Router({"a": targets["a"]}, balance="round_robin") as router:
            router.add("b", targets["b"])
            assert Counter([await who(router) for _ in range(20)]) == {"a": 10, "b": 10}
            await router.remove("a")
            assert {await who(router) for _ in range(20)} == {"b"}
            assert [state.name for state in router.targets] == ["b"]

    @virtual_time
    async def test_a_removed_target_may_answer_what_it_was_asked(self) -> None:
        targets = sites("a", "b")
        async with Router(targets, balance="round_robin") as router:
            targets["a"].pause = 1.0
            call = asyncio.ensure_future(who(router))
            await asyncio.sleep(0.1)
            await router.remove("a")
            assert await call == "a"

    @virtual_time
    async def test_what_could_not_work_is_refused(self) -> None:
        router = Router(sites("a"))
        with pytest.raises(SetupError, match="there is a target 'a' already"):
            router.add("a", Flaky("a"))
        with pytest.raises(SetupError, match="there is no target 'x': there are a"):
            router.drain("x")
        with pytest.raises(SetupError, match="is a Client"):
            router.add("c", Client(Flaky("c")))
        with pytest.raises(SetupError, match="weights names unknown targets: x"):
            Router(sites("a"), weights={"x": 2})
        with pytest.raises(SetupError, match="given twice"):
            Router(["tcp://127.0.0.1:1", "tcp://127.0.0.1:1"])
        with pytest.raises(SetupError, match="must be a list"):
            Router("tcp://127.0.0.1:1")
        with pytest.raises(SetupError, match=r"balance must be one of .*least_loaded, .*, not 'fastest'"):
            Router(sites("a"), balance="fastest")
        with pytest.raises(SetupError, match="reconnect cannot be used"):
            Router(sites("a"), reconnect=True)

    @virtual_time
    async def test_a_router_that_does_not_run_says_so(self) -> None:
        router = Router(sites("a"))
        with pytest.raises(NotConnected, match="async with Router"):
            await who(router)
        async with router:
            assert await who(router) == "a"
        with pytest.raises(NotConnected, match="async with Router"):
            await who(router)
        await router.close()


@virtual_time
async def test_an_observer_is_told_which_target_a_request_goes_to_and_which_attempt_it_is() -> None:
    class Sent(Observer):
        def __init__(self) -> None:
            self.requests: list[tuple[str, str, int]] = []

        def request_sent(self, request: ObservedRequest) -> None:
            if request.method == "tools/call" and request.link is not None:
                self.requests.append((request.link.upstream, request.link.replica, request.attempt))

    targets = sites("a", "b")
    sent = Sent()
    options: Any = {"observer": sent, "upstream": "names", "safe_tools": ["who"], "balance": "round_robin"}
    async with Router(targets, **options) as router:
        targets["a"].pause = 1.0
        calling = asyncio.create_task(who(router))
        while not targets["a"].calls:
            await asyncio.sleep(0.01)
        targets["a"].cut()
        assert await calling == "b"
        assert await who(router) == "b"
    assert sent.requests == [("names", "a", 1), ("names", "b", 2), ("names", "b", 1)]
