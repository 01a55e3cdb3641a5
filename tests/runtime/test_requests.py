"""Our own requests: waiting with a deadline, probing a silent peer, and keeping a link alive. Hours pass in no time."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import weakref
from typing import Any

import pytest

from ferrule import Server
from ferrule.errors import (
    CallFailed,
    ConnectionTimedOut,
    EncodeError,
    LinkLost,
    PeerError,
    Refusal,
    SetupError,
    TimedOut,
)
from ferrule.protocol.session import Phase
from ferrule.runtime.requests import LinkOptions, Pong, lost
from ferrule.wire.channel import ChannelDefaults, Origin

R4 = "2025-11-25"
PARAMS = {"protocolVersion": R4, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


def started(far: Any, method: str = "tools/call", **options: Any) -> asyncio.Task[Any]:
    """A request of ours, on its way."""
    return asyncio.ensure_future(far.link.request(method, {}, **options))


async def failure_of(task: asyncio.Task[Any]) -> BaseException:
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, BaseException)
    return result


class TestAnswers:
    async def test_a_thousand_answers_in_any_order_reach_their_own_callers(self, linked: Any, settle: Any) -> None:
        """CORR-03 CORR-01 CORR-11: ids count from 1, and each caller gets its own value."""
        far = linked(client=R4)
        waiting = [started(far) for _ in range(1000)]
        await settle()
        assert [m["id"] for m in far.take()] == list(range(1, 1001))
        for identity in random.Random(7).sample(range(1, 1001), 1000):
            far.answer(identity, {"n": identity})
        answers = [json.loads(bytes(raw)) for raw in await asyncio.gather(*waiting)]
        assert answers == [{"n": n} for n in range(1, 1001)]
        assert not far.link.session.awaited

    async def test_the_peers_error_is_told_as_it_came(self, linked: Any, settle: Any) -> None:
        """RPC-7 ERR-4: code, message, data and the method that was asked; nothing of ours."""
        far = linked(client=R4)
        waiting = started(far, "resources/read")
        await settle()
        far.say(id=1, error={"code": -32002, "message": "gone", "data": {"uri": "x"}})
        error = await failure_of(waiting)
        assert isinstance(error, PeerError)
        assert (error.code, error.message, error.data, error.method) == (-32002, "gone", {"uri": "x"}, "resources/read")
        assert error.not_found

    async def test_a_server_matches_the_answers_to_its_own_requests(self, linked: Any, settle: Any) -> None:
        """CORR-08 PING-03: the same ids may be in use in the other direction."""
        far = linked().greet()
        waiting = started(far, "roots/list")
        await settle()
        far.ask(1, "ping")
        far.answer(1, {"roots": []})
        assert json.loads(bytes(await waiting)) == {"roots": []}
        assert far.replies(1) == [{"jsonrpc": "2.0", "id": 1, "result": {}}]

    async def test_what_is_asked_before_the_peer_is_ready_waits_for_it(self, linked: Any, settle: Any) -> None:
        """LIFE-5: what is asked afterwards is sent at once."""
        far = linked().greet(ready=False)
        early = asyncio.ensure_future(far.link.ask("roots/list", {}, far))
        await settle()
        assert far.asked("roots/list") == []
        far.say(method="notifications/initialized")
        await settle()
        assert far.link._ready == (), "whoever was woken is not kept"
        late = far.link.ask("roots/list", {}, far)
        assert [request["id"] for request in far.asked("roots/list")] == [1, 2]
        for identity, waiting in ((1, early), (2, late)):
            far.answer(identity, {"n": identity})
            assert json.loads(bytes(await waiting)) == {"n": identity}

    async def test_an_unknown_answer_is_a_warning(self, linked: Any, caplog: pytest.LogCaptureFixture) -> None:
        """CORR-04: logged and ignored."""
        far = linked(client=R4)
        far.answer(999)
        assert [record.levelno for record in caplog.records] == [logging.WARNING]
        assert "999" in caplog.text

    async def test_a_request_that_cannot_be_written_waits_for_nothing(self, linked: Any) -> None:
        """FRM-04 CORR-09: the caller learns it at once, and the book stays empty."""
        far = linked(client=R4)
        with pytest.raises(EncodeError, match=r"tools/call cannot be sent: .* type object"):
            await far.link.request("tools/call", {"x": object()}, timeout=5.0)
        assert not far.link.session.awaited
        assert far.take() == []

    async def test_a_request_that_cannot_be_sent_waits_for_nothing(
        self, linked: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        far = linked(client=R4)

        def fail(message: Any) -> None:
            raise LinkLost("the pipe is broken", sent=False)

        monkeypatch.setattr(far, "send", fail)
        with pytest.raises(LinkLost, match="the pipe is broken"):
            await far.link.request("tools/call", {}, timeout=5.0)
        assert not far.link.session.awaited

    async def test_params_may_be_made_from_the_id(self, linked: Any, settle: Any) -> None:
        """PROG-1: so the progress token is one of a kind."""
        far = linked(client=R4)
        far.link.start("tools/call", lambda identity: {"_meta": {"progressToken": identity}})
        far.link.start("tools/call", lambda identity: {"_meta": {"progressToken": identity}})
        assert [m["params"]["_meta"]["progressToken"] for m in far.take()] == [1, 2]

    async def test_the_failure_of_a_request_nobody_waits_for_is_ignored(self, linked: Any, settle: Any) -> None:
        far = linked(client=R4)
        waiting = started(far)
        await settle()
        for identity in (99, 1, 1):
            far.link.request_failed(identity, LinkLost("gone"))
        assert isinstance(await failure_of(waiting), LinkLost)

    async def test_a_caller_that_goes_away_cancels_its_request(self, linked: Any, settle: Any) -> None:
        """CANC-1 CANC-2 CANC-5 CORR-09: the peer is told, and a late answer is nobody's."""
        far = linked(client=R4)
        waiting = started(far)
        await settle()
        waiting.cancel()
        await settle()
        assert waiting.cancelled()
        (notice,) = far.asked("notifications/cancelled")
        assert notice["params"]["requestId"] == 1
        assert notice["params"]["reason"]
        far.answer(1)
        assert not far.link.session.awaited

    async def test_a_request_without_a_channel_of_its_own_is_cancelled_on_the_links(self, linked: Any) -> None:
        """A request of a batch was sent with the others of it."""
        far = linked(client=R4)
        awaited = far.link.session.expect("tools/call", far.link.loop.create_future(), 0.0)
        far.link.abandon(awaited)
        assert [told["params"]["requestId"] for told in far.asked("notifications/cancelled")] == [awaited.id]

    async def test_a_cancelled_initialize_is_not_told(self, linked: Any, settle: Any) -> None:
        """LIFE-8: initialize is never cancelled, not when its caller leaves and not when its time is up."""
        far = linked(client=R4)
        leaving, late = started(far, "initialize"), started(far, "initialize", timeout=10.0)
        await settle()
        leaving.cancel()
        error = await failure_of(late)
        assert isinstance(error, TimedOut)
        assert not isinstance(error, ConnectionTimedOut)
        assert [m["method"] for m in far.take()] == ["initialize", "initialize"]


class TestTimeouts:
    async def test_a_peer_that_lives_but_does_not_answer(self, linked: Any, settle: Any) -> None:
        """TIME-1 SESS-31 PING-12 CORR-09 ERR-4: cancelled, then a ping; it is answered, so only the call timed out."""
        far = linked(client=R4)
        waiting = started(far, timeout=30.0)
        await asyncio.sleep(29.9)
        assert [m["method"] for m in far.heard] == ["tools/call"]
        await asyncio.sleep(0.2)
        assert [m["method"] for m in far.heard] == ["tools/call", "notifications/cancelled", "ping"]
        assert far.times[1:] == [30.0, 30.0]
        assert far.heard[1]["params"]["requestId"] == 1
        assert not waiting.done()
        far.answer(far.heard[2]["id"])
        error = await failure_of(waiting)
        assert type(error) is TimedOut
        assert "tools/call" in str(error)
        assert not isinstance(error, PeerError | Refusal)
        assert not far.link.session.awaited

    async def test_the_time_that_was_waited_is_told(self, linked: Any, settle: Any) -> None:
        far = linked(client=R4, probe_on_timeout=False)
        await asyncio.sleep(100)
        error = await failure_of(started(far, timeout=30.0))
        assert str(error) == "tools/call got no answer within 30 s"
        (cancelled,) = far.asked("notifications/cancelled")
        assert cancelled["params"]["reason"] == "no answer within 30 s"

    async def test_a_peer_that_is_gone(self, linked: Any) -> None:
        """SESS-31 PING-12 PING-05: no pong within five seconds either, so the connection timed out."""
        far = linked(client=R4)
        error = await failure_of(started(far, timeout=30.0))
        assert type(error) is ConnectionTimedOut
        assert far.link.loop.time() == 35.0
        assert not far.link.session.awaited

    async def test_a_peer_that_refuses_pings_lives(self, linked: Any, settle: Any) -> None:
        """SESS-31: an error is an answer."""
        far = linked(client=R4)
        waiting = started(far, timeout=1.0)
        await asyncio.sleep(1.1)
        far.say(id=2, error={"code": -32601, "message": "no ping"})
        assert type(await failure_of(waiting)) is TimedOut

    async def test_a_peer_that_withdraws_from_the_ping_leaves_nobody_hanging(self, linked: Any) -> None:
        """SESS-31: whatever becomes of the probe, the caller is told."""
        far = linked(client=R4)
        waiting = started(far, timeout=1.0)
        await asyncio.sleep(1.1)
        far.cancel(2)
        assert type(await failure_of(waiting)) is ConnectionTimedOut

    async def test_a_link_that_ends_during_the_probe_leaves_nobody_hanging(self, linked: Any) -> None:
        """SESS-31 CORR-10: by loss, or by closing the scope."""
        for end in ("lost", "closed"):
            far = linked(client=R4)
            waiting = started(far, timeout=1.0)
            await asyncio.sleep(1.1)
            if end == "lost":
                far.link.channel_lost(far, None)
            else:
                await far.link.scope.close()
            assert isinstance(await failure_of(waiting), CallFailed)

    async def test_probing_can_be_switched_off(self, linked: Any) -> None:
        """SESS-31 TIME-1: then the call just times out."""
        far = linked(client=R4, probe_on_timeout=False)
        assert type(await failure_of(started(far, timeout=2.0))) is TimedOut
        assert far.link.loop.time() == 2.0
        assert far.asked("ping") == []

    async def test_the_ping_of_a_probe_waits_as_told(self, linked: Any) -> None:
        """PING-05 SESS-31: five seconds, or the option."""
        far = linked(client=R4, ping_timeout=0.5)
        await failure_of(started(far, timeout=1.0))
        assert far.link.loop.time() == 1.5

    async def test_a_ping_that_times_out_is_not_probed_by_another(self, linked: Any) -> None:
        far = linked(client=R4)
        assert type(await failure_of(started(far, "ping", timeout=5.0))) is TimedOut
        assert len(far.asked("ping")) == 1

    async def test_who_has_made_no_handshake_is_not_pinged(self, linked: Any) -> None:
        far = linked()
        assert type(await failure_of(started(far, "roots/list", timeout=5.0))) is TimedOut
        assert far.asked("ping") == []

    async def test_a_link_that_is_closed_is_held_by_no_timer(self, linked: Any) -> None:
        far = linked(client=R4, keepalive_interval=1e6)
        far.link.keep_alive()
        far.link.close()
        link = weakref.ref(far.link)
        del far
        gc.collect()
        assert link() is None

    async def test_every_request_has_its_own_limit(self, linked: Any, settle: Any) -> None:
        """TIME-1: settable per request, in any order; one without a limit waits on."""
        far = linked(client=R4, probe_on_timeout=False)
        ended: list[tuple[float, float]] = []

        async def wait(limit: float) -> None:
            await failure_of(started(far, timeout=limit))
            ended.append((limit, far.link.loop.time()))

        patient = started(far)
        await asyncio.gather(*(wait(limit) for limit in (7.0, 1.0, 30.0, 2.5, 1.0)))
        assert ended == [(1.0, 1.0), (1.0, 1.0), (2.5, 2.5), (7.0, 7.0), (30.0, 30.0)]
        assert not patient.done()
        far.answer(1)
        await patient

    async def test_there_is_one_timer_for_the_earliest_deadline(self, linked: Any) -> None:
        link = linked(client=R4).link
        link.arm(50.0)
        later = link._timer
        link.arm(60.0)
        assert link._timer is later
        link.arm(20.0)
        assert later.cancelled()
        assert (link._timer.when(), link._timer_at) == (20.0, 20.0)
        link.stop_timers()
        assert link._timer.cancelled()

    async def test_an_answer_in_time_stops_the_clock(self, linked: Any) -> None:
        """TIME-1 CORR-09: nothing happens later."""
        far = linked(client=R4)
        waiting = started(far, timeout=5.0)
        await asyncio.sleep(4.9)
        far.answer(1)
        await waiting
        await asyncio.sleep(100)
        assert [m["method"] for m in far.take()] == ["tools/call"]

    async def test_ten_thousand_timeouts_leave_nothing(self, linked: Any) -> None:
        """CORR-09: neither in the book nor among the timers."""
        far = linked(client=R4, probe_on_timeout=False)
        failures = await asyncio.gather(
            *(far.link.request("tools/call", {}, timeout=1.0) for _ in range(10_000)), return_exceptions=True
        )
        assert {type(failure) for failure in failures} == {TimedOut}
        assert not far.link.session.awaited
        assert not far.link.scope.tasks


class TestProgress:
    def progress(self, far: Any, token: Any, value: Any, **more: Any) -> None:
        far.say(method="notifications/progress", params={"progressToken": token, "progress": value, **more})

    async def test_progress_restarts_the_clock_until_the_limit(self, linked: Any) -> None:
        """TIME-2: news every four seconds keep a five-second call alive, for twelve seconds in all."""
        far = linked(client=R4, probe_on_timeout=False)
        waiting = started(far, timeout=5.0, limit=12.0)
        for n in range(1, 4):
            await asyncio.sleep(4)
            self.progress(far, 1, n)
        error = await failure_of(waiting)
        assert type(error) is TimedOut
        assert far.link.loop.time() == 12.0

    async def test_without_news_the_timeout_holds(self, linked: Any) -> None:
        """TIME-2 PROG-3: progress that does not grow is no news."""
        far = linked(client=R4, probe_on_timeout=False)
        waiting = started(far, timeout=5.0)
        for _ in range(3):
            await asyncio.sleep(2)
            if not waiting.done():
                self.progress(far, 1, 1)
        await failure_of(waiting)
        assert far.link.loop.time() == 7.0

    @pytest.mark.parametrize(("timeout", "limit", "end"), [(None, 3.0, 3.0), (10.0, 3.0, 3.0), (2.0, 30.0, 2.0)])
    async def test_the_absolute_limit_holds_from_the_start(
        self, linked: Any, timeout: float | None, limit: float, end: float
    ) -> None:
        """TIME-2: also without a timeout, and when it is the shorter of the two."""
        far = linked(client=R4, probe_on_timeout=False)
        assert type(await failure_of(started(far, timeout=timeout, limit=limit))) is TimedOut
        assert far.link.loop.time() == end

    @pytest.mark.parametrize(("timeout", "end"), [(5.0, 65.0), (None, 71.0)], ids=["timeout", "limit"])
    async def test_the_time_of_a_request_that_is_held_goes_on_where_it_is_sent(
        self, linked: Any, timeout: float | None, end: float
    ) -> None:
        far = linked(client=R4, probe_on_timeout=False)
        waiting = started(far, timeout=timeout, limit=12.0)
        await asyncio.sleep(1)
        far.link.request_held(1)
        await asyncio.sleep(59)
        assert not waiting.done()
        far.link.request_released(1, 59.0)
        assert type(await failure_of(waiting)) is TimedOut
        assert far.link.loop.time() == end

    async def test_the_callback_gets_what_grows_and_nothing_after_the_end(
        self, linked: Any, settle: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """PROG-2 PROG-3 PROG-04: progress, total and message; a failing callback harms nothing."""
        far = linked(client=R4)
        told: list[Any] = []

        def tell(*news: Any) -> None:
            told.append(news)
            raise ValueError("the caller's own fault")

        waiting = started(far, on_progress=tell)
        await settle()
        for value in (0, 0.5, 0.5, 0.2, 1):
            self.progress(far, 1, value, total=2, message=f"at {value}")
        self.progress(far, "1", 5)
        self.progress(far, 2, 5)
        far.answer(1)
        await waiting
        assert caplog.text.count("the progress callback of tools/call failed") == 3
        caplog.clear()
        with caplog.at_level(logging.DEBUG, "ferrule.link"):
            self.progress(far, 1, 9)
        assert "progress for 1 that is unknown" in caplog.text
        assert told == [(0, 2, "at 0"), (0.5, 2, "at 0.5"), (1, 2, "at 1")]

    MALFORMED = (
        {},
        {"progressToken": 1},
        {"progressToken": 1, "progress": "x"},
        {"progressToken": None, "progress": 1},
    )

    @pytest.mark.parametrize("params", [*MALFORMED, [], 3, None])
    async def test_malformed_progress_is_ignored(self, linked: Any, settle: Any, params: Any, caplog: Any) -> None:
        """FRM-12 PROG-3: the request waits on."""
        far = linked(client=R4)
        waiting = started(far)
        await settle()
        far.say(method="notifications/progress", params=params)
        far.answer(1)
        await waiting
        if isinstance(params, dict):
            assert "malformed progress" in caplog.text


class TestKeepingAlive:
    def greeted(self, far_end: Any, **options: Any) -> Any:
        """A server's link after the handshake, as a carrier would bring it about."""
        far = far_end(Server("s", **options).link(Origin("tcp")))
        far.say(id=1, method="initialize", params=PARAMS)
        far.say(method="notifications/initialized")
        far.take()
        return far

    async def answering(self, far: Any, until: float, delay: float = 0.0) -> list[float]:
        """Answer every ping after a while; give the times they came."""
        times: list[float] = []
        while far.link.loop.time() < until:
            await asyncio.sleep(0.5)
            for ping in far.asked("ping"):
                times.append(far.times[far.heard.index(ping)])
                far.take()
                await asyncio.sleep(delay)
                far.answer(ping["id"])
        return times

    @pytest.mark.parametrize(("delay", "beat"), [(0.0, [30, 60, 90, 120]), (4.0, [30, 64, 98, 132])])
    async def test_a_server_pings_every_thirty_seconds(self, far_end: Any, delay: float, beat: list[float]) -> None:
        """PING-06 PING-2 PING-07: at 30, 60 and 90; a late answer schedules the next ping later."""
        far = self.greeted(far_end)
        assert await self.answering(far, 135.0, delay) == pytest.approx(beat, abs=2.0)
        assert far.closed is None

    async def test_a_silent_peer_is_closed_ten_seconds_later(self, far_end: Any) -> None:
        """PING-08 PING-2 PING-09 PING-10: at forty seconds; a warning, the channel closed, the link forgotten."""
        server = Server("s")
        far = far_end(server.link(Origin("tcp")))
        far.say(id=1, method="initialize", params=PARAMS)
        far.say(method="notifications/initialized")
        await asyncio.sleep(39.9)
        assert far.closed is None
        assert len(server.host.links) == 1
        await asyncio.sleep(0.2)
        assert far.closed == "keep-alive failed"
        assert far.link.closed
        assert isinstance(far.link.error, LinkLost)
        assert far.link.session.phase is Phase.ERROR
        assert not server.host.links

    async def test_a_missed_ping_is_a_warning_in_the_log(self, far_end: Any, caplog: pytest.LogCaptureFixture) -> None:
        """PING-10: and so is a ping that could not be sent, since no answer comes to it."""
        far = self.greeted(far_end)
        far.send = lambda message: None
        await asyncio.sleep(41.0)
        assert [record.levelno for record in caplog.records if "keep-alive" in record.message] == [logging.WARNING]
        assert far.link.closed

    async def test_calls_that_run_end_with_a_dead_link(self, far_end: Any, settle: Any) -> None:
        """PING-09: resources are released."""
        server, cancelled = Server("s"), []

        @server.tool
        async def slow() -> str:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                cancelled.append(True)
                raise
            return ""

        far = far_end(server.link(Origin("tcp")))
        far.say(id=1, method="initialize", params=PARAMS)
        far.say(method="notifications/initialized")
        far.call(2, "slow")
        await asyncio.sleep(41.0)
        assert cancelled == [True]
        assert not far.link.scope.tasks

    async def test_several_misses_may_be_forgiven(self, far_end: Any) -> None:
        """PING-08: with max_missed=3 the third silence kills; one answer forgives all before."""
        far = self.greeted(far_end, max_missed=3)
        await asyncio.sleep(30 + 10 + 30 + 10 + 30 + 9.9)
        assert far.closed is None
        await asyncio.sleep(0.2)
        assert far.closed is not None
        assert far.asked("notifications/cancelled") == [], "a ping that is not answered is not cancelled"
        far = self.greeted(far_end, max_missed=2)
        for _ in range(3):
            await asyncio.sleep(30 + 10 + 30 + 1)
            far.answer(far.asked("ping")[-1]["id"])
        assert far.closed is None

    async def test_an_error_answers_a_ping_as_well(self, far_end: Any) -> None:
        """PING-07: whoever refuses pings lives."""
        far = self.greeted(far_end)
        await asyncio.sleep(31)
        far.say(id=far.asked("ping")[0]["id"], error={"code": -32601, "message": "what?"})
        await asyncio.sleep(20)
        assert far.closed is None

    async def test_interval_and_patience_can_be_set(self, far_end: Any) -> None:
        """PING-13 PING-2: and None switches it off."""
        quick = self.greeted(far_end, keepalive_interval=1.0, pong_timeout=0.5)
        await asyncio.sleep(1.6)
        assert quick.closed is not None
        off = self.greeted(far_end, keepalive_interval=None)
        await asyncio.sleep(10_000)
        assert off.asked("ping") == []
        assert off.closed is None

    async def test_nobody_is_pinged_before_it_is_ready(self, far_end: Any) -> None:
        """LIFE-5 SESS-26: the keep-alive begins with notifications/initialized."""
        far = far_end(Server("s").link(Origin("tcp")))
        far.say(id=1, method="initialize", params=PARAMS)
        await asyncio.sleep(45)
        assert far.asked("ping") == []

    async def test_a_link_that_ends_with_a_ping_under_way_warns_of_nothing(
        self, far_end: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """PING-10: an orderly end is no missed ping."""
        far = self.greeted(far_end)
        await asyncio.sleep(31)
        far.link.channel_lost(far, None)
        await asyncio.sleep(100)
        assert "keep-alive" not in caplog.text
        assert len(far.asked("ping")) == 1

    async def test_a_second_initialized_starts_no_second_keep_alive(self, far_end: Any) -> None:
        """FRM-12: one ping at a time."""
        far = self.greeted(far_end)
        for _ in range(5):
            far.say(method="notifications/initialized")
        await asyncio.sleep(31)
        assert len(far.asked("ping")) == 1


class TestPong:
    class Watched:
        """As much of a link as a ping touches."""

        def __init__(self) -> None:
            self.heard: list[bool] = []

        def ponged(self, *, alive: bool) -> None:
            self.heard.append(alive)

    def test_any_answer_will_do_and_settles_it(self) -> None:
        for tell, alive in (
            (lambda pong: pong.set_result({}), True),
            (lambda pong: pong.set_exception(PeerError(-32601, "no ping")), True),
            (lambda pong: pong.set_exception(TimedOut("no pong")), False),
        ):
            link = self.Watched()
            pong = Pong(link)  # type: ignore[arg-type]
            assert pong.done() is False
            tell(pong)
            assert pong.done() is True
            assert link.heard == [alive]


class Slow(ChannelDefaults):
    """A channel whose peer reads when it is told to."""

    def __init__(self) -> None:
        self.congested = True
        self.taken = asyncio.Event()

    async def wait_writable(self) -> None:
        await self.taken.wait()


class TestRoom:
    async def test_what_is_left_of_the_time_is_told(self, linked: Any) -> None:
        """A caller whose peer reads slowly waits for it within its own time-out."""
        far = linked(client=R4)
        far.link.channel = slow = Slow()
        asyncio.get_running_loop().call_later(3.0, slow.taken.set)
        assert far.link.congested is True
        await asyncio.sleep(1.0)
        assert await far.link.make_room("tools/call", 10.0) == 8.0
        assert await far.link.make_room("tools/call", 0.5) == 0.5
        assert await far.link.make_room("tools/call", None) is None
        assert linked(client=R4).link.congested is False, "its channel does not say"

    async def test_a_peer_that_takes_nothing_is_told_of_in_time(self, linked: Any) -> None:
        far = linked(client=R4)
        far.link.channel = Slow()
        with pytest.raises(TimedOut, match="tools/call was not sent: within 5 s the peer did not read enough"):
            await far.link.make_room("tools/call", 5.0)
        assert far.link.loop.time() == 5.0

    async def test_a_link_without_a_channel_has_room(self, linked: Any) -> None:
        far = linked(client=R4)
        far.link.channel = None
        assert await far.link.make_room("tools/call", 5.0) == 5.0
        assert far.link.congested is False

    async def test_a_link_that_has_no_channel_yet_sends_nothing(self, linked: Any) -> None:
        far = linked(client=R4)
        far.link.channel = None
        with pytest.raises(LinkLost, match="closed") as lost:
            await far.link.request("tools/call", {})
        assert lost.value.sent is False

    async def test_a_closed_link_is_not_congested(self, linked: Any) -> None:
        far = linked(client=R4)
        far.link.channel = Slow()
        far.link.closed = True
        assert far.link.congested is False


class TestOptions:
    @pytest.mark.parametrize("size", [1024, 16 * 1024 * 1024, 100 * 1024 * 1024])
    def test_the_size_limit_has_a_range(self, size: int) -> None:
        """SIZE-11: from 1 KiB to 100 MiB."""
        assert LinkOptions(max_message_size=size).max_message_size == size

    @pytest.mark.parametrize("size", [0, 1023, -1, 100 * 1024 * 1024 + 1])
    def test_a_size_limit_outside_it_is_refused(self, size: int) -> None:
        """SIZE-11: a configuration error that names the range."""
        with pytest.raises(SetupError, match="1 KiB to 100 MiB"):
            LinkOptions(max_message_size=size)

    def test_the_defaults_are_those_of_the_documents(self) -> None:
        """PING-05 PING-08: five seconds for a ping, ten for a pong, one miss."""
        options = LinkOptions()
        assert (options.ping_timeout, options.pong_timeout, options.max_missed) == (5.0, 10.0, 1)
        assert (options.max_running, options.max_waiting, options.allow_batch) == (100, 1024, False)


class TestTheFirstAnswer:
    """An answer to `server/discover` says that its server may ask nothing, before anybody has looked at it."""

    async def test_what_is_asked_behind_it_is_ignored(self, linked: Any, caplog: pytest.LogCaptureFixture) -> None:
        """RPC-14 STDIO-6"""
        far = unopened(linked)
        waiting = asyncio.ensure_future(far.link.request("server/discover", {}))
        await asyncio.sleep(0)
        (asked,) = far.take()
        far.ask(1, "ping")
        assert [message["id"] for message in far.take()] == [1]
        far.answer(asked["id"], {"supportedVersions": []})
        far.ask(2, "ping")
        far.ask(3, "roots/list")
        far.say(b"garbage")
        assert far.take() == []
        assert b"supportedVersions" in bytes(await waiting)

    async def test_a_handshake_after_all_lets_the_server_ask_again(self, linked: Any) -> None:
        far = unopened(linked)
        waiting = asyncio.ensure_future(far.link.request("server/discover", {}))
        await asyncio.sleep(0)
        far.answer(far.take()[0]["id"], {"odd": True})
        await waiting
        far.link.session.enter(Phase.INITIALIZING)
        far.ask(1, "ping")
        assert [message["id"] for message in far.take()] == [1]

    async def test_a_refusal_changes_nothing(self, linked: Any) -> None:
        far = unopened(linked)
        waiting = asyncio.ensure_future(far.link.request("server/discover", {}))
        await asyncio.sleep(0)
        far.say(id=far.take()[0]["id"], error={"code": -32601, "message": "no"})
        far.ask(1, "ping")
        assert [message["id"] for message in far.take()] == [1]
        with pytest.raises(PeerError):
            await waiting

    async def test_a_lost_link_fails_it(self, linked: Any) -> None:
        far = unopened(linked)
        waiting = asyncio.ensure_future(far.link.request("server/discover", {}))
        await asyncio.sleep(0)
        far.link.channel_lost(far, None)
        with pytest.raises(LinkLost):
            await waiting


def unopened(linked: Any) -> Any:
    """A client's link before anything is agreed."""
    far = linked(client="2025-11-25")
    far.link.session.peer = None
    far.link.session.phase = Phase.PRE_INITIALIZATION
    far.link.session.admitted = frozenset()
    return far


def test_a_call_whose_link_ended_says_why_where_that_is_known() -> None:
    assert str(lost(None)) == "the link was closed"
    reason = OSError("reset")
    assert str(lost(reason)) == "the link was lost before the answer came: reset"
    assert lost(reason).__cause__ is reason
