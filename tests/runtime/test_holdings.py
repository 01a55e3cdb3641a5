"""What calls hold while they stay: debited to their peer and to the process, credited when their work has ended."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from ferrule import Server
from ferrule.budgets import process
from ferrule.budgets.weight import LIGHT
from ferrule.runtime.requests import LinkOptions
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.schema.model import EmptyResult
from ferrule.schema.tools import CallToolResult
from ferrule.wire.channel import Origin

R4 = "2025-11-25"
BUSY = -32000
LONG = "x" * (2 * LIGHT)
WEIGHT = 2 * 2 * LIGHT
"""What a call with that text weighs, at least."""


@pytest.fixture(autouse=True)
def balance() -> Iterator[None]:
    """Whatever a test did: in the end nothing is held."""
    before = process.requests.held, process.standing.held
    yield
    assert (process.requests.held, process.standing.held) == before


class Gate:
    """A handler that waits until it is let through; a stubborn one does not heed its first cancellation."""

    def __init__(self, *, stubborn: bool = False) -> None:
        self.open = asyncio.Event()
        self.started: list[Any] = []
        self._stubborn = stubborn

    async def __call__(self, call: Any) -> CallToolResult:
        self.started.append(call.id)
        while not self.open.is_set():
            try:
                await self.open.wait()
            except asyncio.CancelledError:
                if not self._stubborn:
                    raise
                self._stubborn = False
        return CallToolResult(content=[])


def held(far: Any) -> int:
    return int(far.link.holdings.account.held)


def codes(far: Any) -> dict[Any, int | None]:
    return {message["id"]: message.get("error", {}).get("code") for message in far.take()}


async def test_a_call_that_ends_where_it_began_pays_nothing(linked: Any) -> None:
    async def at_once(_: Any) -> CallToolResult:
        return CallToolResult(content=[])

    most = process.requests.most
    far = linked({"tools/call": at_once}).greet(R4)
    far.call(1)
    far.ask(2, "ping")
    assert codes(far) == {1: None, 2: None}
    assert held(far) == 0
    assert process.requests.most == most


async def test_a_call_that_stays_is_debited_until_it_is_answered(linked: Any, settle: Any) -> None:
    gate = Gate()
    far = linked({"tools/call": gate}).greet(R4)
    far.call(1, text="short")
    assert 0 < held(far) < LIGHT
    far.call(2, text=LONG)
    assert held(far) > WEIGHT
    assert process.requests.held >= held(far)
    gate.open.set()
    await settle()
    assert codes(far) == {1: None, 2: None}
    assert held(far) == 0


async def test_a_long_call_without_room_is_refused_before_it_starts(linked: Any, settle: Any) -> None:
    gate = Gate()
    far = linked({"tools/call": gate}, max_held=2 * WEIGHT).greet(R4)
    far.call(1, text=LONG)
    far.call(2, text=LONG)
    far.call(3)
    assert codes(far) == {2: BUSY}
    assert gate.started == [1, 3]
    gate.open.set()
    await settle()
    far.call(4, text=LONG)
    await settle()
    assert codes(far) == {1: None, 3: None, 4: None}


async def test_a_call_larger_than_the_bound_is_taken_alone(linked: Any, settle: Any) -> None:
    gate = Gate()
    far = linked({"tools/call": gate}, max_held=1000).greet(R4)
    far.call(1, text=LONG)
    far.call(2, text=LONG)
    assert codes(far) == {2: BUSY}
    gate.open.set()
    await settle()
    assert codes(far) == {1: None}


async def test_a_full_process_refuses_short_calls_too_and_still_answers_pings(
    linked: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process.requests, "limit", process.requests.held + WEIGHT // 2)
    gate, other = Gate(), Gate()
    far, near = linked({"tools/call": gate}).greet(R4), linked({"tools/call": other}).greet(R4)
    far.call(1, text=LONG)
    near.call(1)
    near.ask(2, "ping")
    assert codes(near) == {1: BUSY, 2: None}
    assert other.started == []
    gate.open.set()
    await settle()
    near.call(3)
    other.open.set()
    await settle()
    assert codes(near) == {3: None}


async def test_a_call_of_just_the_size_that_is_light_is_begun_without_a_look_at_the_room(
    linked: Any, settle: Any
) -> None:
    gate = Gate()
    far = linked({"tools/call": gate}, max_held=LIGHT).greet(R4)
    room = LIGHT - len(b'{"name": "t", "arguments": {"text": ""}}')
    far.call(1, text=LONG)
    far.call(2, text="x" * room)
    far.call(3, text="x" * (room + 1))
    assert gate.started == [1, 2]
    assert codes(far) == {3: BUSY}
    gate.open.set()
    await settle()
    assert codes(far) == {1: None, 2: None}


@pytest.mark.parametrize(("overdraft", "started"), [(0, [1]), (99, [1]), (100, []), (101, [])])
async def test_a_short_call_is_begun_until_the_process_is_overdrawn_by_a_sixteenth(
    linked: Any, settle: Any, monkeypatch: pytest.MonkeyPatch, overdraft: int, started: list[int]
) -> None:
    """BUD-09: bodies that hold all there is keep nobody out who asks for little."""
    gate = Gate()
    far = linked({"tools/call": gate}).greet(R4)
    monkeypatch.setattr(process.requests, "limit", 1600)
    held_by_others = 1600 + overdraft - process.requests.held
    process.requests.add(held_by_others)
    far.call(1)
    assert gate.started == started
    process.requests.give(held_by_others)
    gate.open.set()
    await settle()
    assert len(far.take()) == 1


@pytest.mark.parametrize(("overdraft", "refused"), [(99, {}), (100, {2: BUSY})])
async def test_a_short_call_may_wait_in_line_until_the_process_is_overdrawn_by_a_sixteenth(
    linked: Any, settle: Any, monkeypatch: pytest.MonkeyPatch, overdraft: int, refused: dict[int, int]
) -> None:
    gate = Gate()
    far = linked({"tools/call": gate}, max_running=1).greet(R4)
    far.call(1)
    monkeypatch.setattr(process.requests, "limit", 1600)
    held_by_others = 1600 + overdraft - process.requests.held
    process.requests.add(held_by_others)
    far.call(2)
    assert codes(far) == refused
    process.requests.give(held_by_others)
    gate.open.set()
    await settle()


async def test_calls_that_wait_in_line_are_debited_as_well(linked: Any, settle: Any) -> None:
    gate = Gate()
    far = linked({"tools/call": gate}, max_running=1, max_held=2 * WEIGHT).greet(R4)
    far.call(1)
    far.call(2, text=LONG)
    far.call(3, text=LONG)
    assert codes(far) == {3: BUSY}
    assert held(far) > WEIGHT
    far.cancel(2)
    assert held(far) < LIGHT
    far.call(4, text=LONG)
    gate.open.set()
    await settle()
    assert codes(far) == {1: None, 4: None}


@pytest.mark.parametrize("end", ["cancel", "loss"])
async def test_a_handler_that_goes_on_still_holds_what_it_was_given(linked: Any, settle: Any, end: str) -> None:
    """Cancelled or left alone by its peer, it has its params until it ends."""
    gate = Gate(stubborn=True)
    far = linked({"tools/call": gate}).greet(R4)
    far.call(1, text=LONG)
    if end == "cancel":
        far.cancel(1)
    else:
        far.link.channel_lost(far, None)
    await settle()
    assert held(far) > WEIGHT
    gate.open.set()
    await settle()
    assert held(far) == 0


async def test_a_lost_peer_gives_back_what_ran_and_what_waited(linked: Any, settle: Any) -> None:
    far = linked({"tools/call": Gate()}, max_running=2).greet(R4)
    for number in range(5):
        far.call(number, text=LONG)
    assert held(far) > 5 * WEIGHT
    far.link.channel_lost(far, None)
    await settle()
    assert held(far) == 0


async def test_draining_gives_everything_back(linked: Any, settle: Any) -> None:
    far = linked({"tools/call": Gate()}, max_running=1).greet(R4)
    far.call(1, text=LONG)
    far.call(2, text=LONG)
    await far.link.drain(1.0)
    await settle()
    assert held(far) == 0


class TestStanding:
    LISTEN: ClassVar = {"notifications": {"toolsListChanged": True}}

    async def test_only_so_many_calls_stand_at_once(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"subscriptions/listen": gate}, max_standing=2)
        for number in (1, 2, 3):
            far.ask_modern(number, "subscriptions/listen", **self.LISTEN)
        assert list(codes(far)) == [3]
        assert gate.started == [1, 2]
        far.cancel(1)
        far.ask_modern(4, "subscriptions/listen", **self.LISTEN)
        assert gate.started == [1, 2, 4]
        assert process.standing.held == 2
        gate.open.set()
        await settle()
        assert process.standing.held == 0

    async def test_all_peers_together_have_a_bound(
        self, linked: Any, settle: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(process.standing, "limit", 2)
        gate = Gate()
        ends = [linked({"subscriptions/listen": gate}) for _ in range(3)]
        for far in ends:
            far.ask_modern(1, "subscriptions/listen", **self.LISTEN)
        assert [len(far.take()) for far in ends] == [0, 0, 1]
        ends[0].link.channel_lost(ends[0], None)
        ends[2].ask_modern(2, "subscriptions/listen", **self.LISTEN)
        assert ends[2].take() == []
        for far in ends[1:]:
            far.link.channel_lost(far, None)
        await settle()
        assert process.standing.held == 0

    async def test_what_a_standing_call_says_is_debited_while_it_stands(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"subscriptions/listen": gate}, max_held=2 * WEIGHT)
        uris = ["a:" + "x" * 4000] * 8
        for number in (1, 2, 3):
            far.ask_modern(number, "subscriptions/listen", notifications={"resourceSubscriptions": uris})
        assert len(far.take()) >= 1
        assert process.standing.held == len(gate.started) < 3
        gate.open.set()
        await settle()
        assert held(far) == 0

    async def test_a_standing_call_that_ends_at_once_is_not_counted(self, linked: Any, settle: Any) -> None:
        async def at_once(_: Any) -> EmptyResult:
            return EmptyResult()

        far = linked({"subscriptions/listen": at_once}, max_standing=1)
        for number in range(5):
            far.ask_modern(number, "subscriptions/listen", **self.LISTEN)
        await settle()
        assert all("result" in message for message in far.take())


async def test_a_tool_that_became_a_task_holds_its_arguments_beyond_its_answer(far_end: Any, settle: Any) -> None:
    app, go = Server("s", tasks=TaskSettings(), keepalive_interval=None), asyncio.Event()

    @app.tool(task="optional")
    async def wait(text: str) -> str:
        await go.wait()
        return "done"

    far = far_end(app.link(Origin("memory"))).greet(R4)
    far.ask(1, "tools/call", name="wait", arguments={"text": LONG}, task={})
    await settle()
    assert "task" in far.replies(1)[0]["result"]
    assert held(far) > WEIGHT
    assert not far.link.session.running
    go.set()
    await settle(50)
    assert held(far) == 0
    await app.host.tasks.close()


def test_a_tool_in_a_thread_holds_its_arguments_until_its_call_has_ended() -> None:
    """A real loop: the thread is real too."""
    go, started = threading.Event(), threading.Event()

    async def scene() -> None:
        from ferrule.transports.memory import memory_pair

        app = Server("s", keepalive_interval=None)

        @app.tool
        def wait(text: str) -> str:
            started.set()
            go.wait(10)
            return "done"

        class Peer:
            def channel_opened(self, channel: Any) -> None:
                """Nothing to do."""

            def frame_received(self, frame: bytes, channel: Any) -> None:
                """Nothing to do."""

            def channel_lost(self, channel: Any, error: Exception | None) -> None:
                """Nothing to do."""

        link = app.link(Origin("memory"))
        _, channel = memory_pair(Peer(), link)
        init = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%b","capabilities":{},'
        link.frame_received(init % R4.encode() + b'"clientInfo":{"name":"c","version":"1"}}}', channel)
        arguments = b'{"name":"wait","arguments":{"text":"%b"}}' % LONG.encode()
        link.frame_received(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":%b}' % arguments, channel)
        await asyncio.to_thread(started.wait, 10)
        assert link.holdings.account.held > WEIGHT
        go.set()
        while link.holdings.account.held:
            await asyncio.sleep(0.01)
        link.close()

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_peer_may_hold_half_of_what_the_process_may() -> None:
    assert LinkOptions().max_held == process.requests.limit // 2
