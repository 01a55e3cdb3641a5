"""Frames in, answers out: one link, driven by hand, on a clock that jumps."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import random
import time
import tracemalloc
from contextvars import ContextVar, copy_context
from typing import Any

import pytest

from ferrule import Server
from ferrule.budgets import process
from ferrule.budgets.bounds import MAX_UNREADABLE
from ferrule.budgets.collector import LONG
from ferrule.errors import Cancelled, EncodeError, InvalidAnswer, InvalidParams, LinkLost
from ferrule.protocol.session import Phase
from ferrule.schema.model import EmptyResult
from ferrule.schema.tools import CallToolResult
from ferrule.transports.memory import MemoryChannel
from ferrule.transports.process.stdio import StdioChannel
from ferrule.wire.channel import ChannelDefaults, Origin, Traits
from ferrule.wire.codec import encode
from ferrule.wire.messages import EMPTY_PARAMS, Request

R1, R2, R3, R4 = "2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"
PONG = {"jsonrpc": "2.0", "id": "pong", "result": {}}


async def at_once(_: Any) -> CallToolResult:
    return CallToolResult(content=[])


class Gate:
    """A handler that waits until it is let through, and writes down what happened to it."""

    def __init__(self) -> None:
        self.started: list[Any] = []
        self.ended: list[Any] = []
        self.cancelled: list[Any] = []
        self.open = asyncio.Event()

    async def __call__(self, call: Any) -> CallToolResult:
        self.started.append(call.id)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.append(call.id)
            raise
        self.ended.append(call.id)
        return CallToolResult(content=[])


class TestReading:
    GARBAGE = (
        b"",
        b"{bad",
        b"nope",
        b'{"jsonrpc":"2.0","id":1,"method":"ping",}',
        b"\xff\xfe\x00",
        b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xff"}}',
        b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
        b"[" * 100_000,
        b'{"a":' * 50_000,
    )

    @pytest.mark.parametrize("frame", GARBAGE, ids=range(len(GARBAGE)))
    async def test_frm_01_frm_02_frm_03_frm_05_frm_07_garbage_is_answered_and_the_link_lives(
        self, linked: Any, frame: bytes
    ) -> None:
        """JRPC-13 JRPC-14 RPC-8 ERRC-01: -32700 and the next ping is prompt; under its id where only a value is bad."""
        far = linked().greet(R3)
        far.say(frame)
        (told,) = far.take()
        readable = frame.startswith(b"{") and frame.endswith(b"}}")
        assert (told["id"], told["error"]["code"]) == (1 if readable else None, -32700)
        started = time.process_time()
        far.ask("pong", "ping")
        assert far.take() == [PONG]
        assert time.process_time() - started < 0.1

    IDS = ("", "0", 0, -1, 2**53 + 1, 2**63, 10**30, "x" * 4096, "🦀", "1", 1)

    @pytest.mark.parametrize("identity", IDS)
    async def test_frm_09_every_valid_id_is_echoed_exactly(self, linked: Any, identity: Any) -> None:
        """RPC-5 JRPC-09 PING-01 PING-02: same value, same type; odd params do not matter."""
        far = linked()
        far.ask(identity, "ping", odd=[{"x": None}])
        (pong,) = far.take()
        assert pong == {"jsonrpc": "2.0", "id": identity, "result": {}}
        assert type(pong["id"]) is type(identity)

    @pytest.mark.parametrize("identity", [None, 1.5, True, False, [], {}, [1], {"a": 1}])
    async def test_frm_09_every_invalid_id_is_refused(self, linked: Any, identity: Any) -> None:
        """RPC-2: -32600 under no id."""
        far = linked().greet(R1)
        far.ask(identity, "ping")
        (told,) = far.take()
        assert (told["id"], told["error"]["code"]) == (None, -32600)

    TOP_LEVEL = (b"[]", b"3", b'"x"', b"null", b"true", b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', b"[1]", b"[[]]")

    @pytest.mark.parametrize("version", [None, R1, R3, R4])
    @pytest.mark.parametrize("frame", TOP_LEVEL)
    async def test_frm_10_what_is_no_object_is_refused(self, linked: Any, frame: bytes, version: str | None) -> None:
        """RPC-13 RPC-8 BATC-09: one -32600, under null or, from 2025-11-25 on, without an id."""
        far = linked() if version is None else linked().greet(version)
        far.say(frame)
        (told,) = far.take()
        assert told["error"]["code"] == -32600
        assert ("id" in told) is (version != R4)
        assert told.get("id") is None

    ENVELOPES = (
        ({"id": 1, "method": "ping"}, 1),
        ({"jsonrpc": "1.0", "id": 1, "method": "ping"}, 1),
        ({"jsonrpc": 2.0, "id": "a", "method": "ping"}, "a"),
        ({"jsonrpc": "2.0", "id": 1, "method": 7}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": None}, 1),
        ({"jsonrpc": "2.0", "id": 1}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": 3}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": "x"}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": None}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}, "error": {"code": 1, "message": "x"}}, 1),
        ({"jsonrpc": "2.0", "id": 1, "method": "m" * 1024 * 1024}, 1),
        ({"jsonrpc": "2.0"}, None),
        ({}, None),
    )

    @pytest.mark.parametrize(("message", "identity"), ENVELOPES, ids=range(len(ENVELOPES)))
    async def test_frm_11_every_malformed_envelope_is_answered(self, linked: Any, message: Any, identity: Any) -> None:
        """RPC-1 RPC-2 JRPC-07 JRPC-08 ERRC-02 ERRC-21 ERRC-27: with the id where it can be read; never silence."""
        far = linked().greet(R3)
        far.say(message)
        (told,) = far.take()
        assert told["id"] == identity
        assert told["error"]["code"] in (-32600, -32601, -32602)
        assert len(json.dumps(told)) < 2000
        far.ask("pong", "ping")
        assert far.take() == [PONG]

    STRAYS = (
        {"id": 99, "result": {}},
        {"id": "99", "error": {"code": 1, "message": "x"}},
        {"id": None, "error": {"code": 1, "message": "x"}},
        {"error": {"code": 1, "message": "x"}},
        {"method": "notifications/cancelled", "params": {"requestId": 99}},
        {"method": "notifications/cancelled", "params": 3},
        {"method": "notifications/progress", "params": {"progressToken": 99, "progress": 1}},
        {"method": "notifications/progress", "params": {"progressToken": 99}},
        {"method": "notifications/progress", "params": []},
        {"method": "notifications/progress"},
        {"method": "notifications/initialized"},
        {"method": "notifications/unknown", "params": {"x": 1}},
        {"method": ""},
        {"method": "tools/call", "params": {"name": "t"}},
    )

    @pytest.mark.parametrize("message", STRAYS)
    @pytest.mark.parametrize("version", [None, R4])
    async def test_frm_12_strays_are_ignored_in_silence(self, linked: Any, message: Any, version: str | None) -> None:
        """RPC-9 NOTI-01 NOTI-05 CANC-3 CORR-04 JRPC-22: not a byte is sent, and the link lives."""
        ran = []
        far = linked({"tools/call": ran.append}) if version is None else linked().greet(version)
        far.take()
        far.say(**message)
        assert far.take() == []
        far.ask("pong", "ping")
        assert far.take() == [PONG]
        assert not ran

    async def test_frm_12_a_request_before_the_handshake_never_runs(self, linked: Any, settle: Any) -> None:
        """LIFE-6 SESS-01 SESS-16: it is refused with -32600."""
        gate = Gate()
        far = linked({"tools/call": gate})
        far.call(1)
        await settle()
        assert [m["error"]["code"] for m in far.take()] == [-32600]
        assert gate.started == []

    async def test_the_erlmcp_profile_has_its_own_number_for_that(self, linked: Any) -> None:
        """ERRC-12 SESS-16: -32005."""
        far = linked(erlmcp_codes=True)
        far.call(1)
        assert [m["error"]["code"] for m in far.take()] == [-32005]

    async def test_an_oversized_frame_is_answered_and_the_link_lives(self, linked: Any) -> None:
        """SIZE-06 ERRC-13 SIZE-03: by the carrier's refusal, or by the link's own limit; under its id if it is seen."""
        far = linked(max_message_size=1024).greet(R4)
        far.link.frame_refused(2048, far)
        far.link.frame_refused(2048, far, b'{"jsonrpc":"2.0","id":6,"method":"tools/call","params":{"na')
        far.say(id=1, method="ping", params={"x": "y" * 1024})
        for limit, identity in ((2048, None), (2048, 6), (1024, 1)):
            told = far.heard.pop(0)
            assert told["error"]["code"] == -32012
            assert told["error"]["data"] == {"maxSize": limit, "unit": "bytes"}
            assert told.get("id") == identity
        far.ask("pong", "ping")
        assert far.take() == [PONG]

    async def test_an_unknown_method_is_named(self, linked: Any) -> None:
        """ERRC-03 RPC-20 JRPC-23: -32601 with data.method."""
        far = linked().greet()
        far.ask(1, "nope/x")
        (told,) = far.take()
        assert (told["error"]["code"], told["error"]["data"]) == (-32601, {"method": "nope/x"})

    async def test_a_known_method_nobody_handles_is_not_found(self, linked: Any, settle: Any) -> None:
        """RPC-19 RPC-20: like an unknown one."""
        far = linked().greet()
        far.call(1)
        await settle()
        assert [m["error"]["code"] for m in far.take()] == [-32601]


class TestResponsesGoneWrong:
    BAD = (
        {"result": {}, "error": {"code": 1, "message": "x"}},
        {"error": {"code": "x"}},
        {"error": None},
        {"error": []},
    )

    @pytest.mark.parametrize("members", BAD)
    async def test_a_malformed_response_fails_its_caller_and_is_never_answered(self, linked: Any, members: Any) -> None:
        """JRPC-04 RPC-6: an answer under that id would hit one of the peer's own waiting requests."""
        far = linked(client=R4)
        waiting = asyncio.ensure_future(far.link.request("tools/list", {}))
        await asyncio.sleep(0)
        far.take()
        far.say(id=1, **members)
        with pytest.raises(InvalidAnswer, match="tools/list"):
            await waiting
        assert far.take() == []
        assert not far.link.session.awaited

    async def test_one_that_nobody_waits_for_is_told_without_its_id(self, linked: Any) -> None:
        """FRM-11 JRPC-04: never silence, and never under an id that is not the peer's."""
        far = linked().greet(R4)
        far.say(id=1, result={}, error={"code": 1, "message": "x"})
        (told,) = far.take()
        assert "id" not in told
        assert told["error"]["code"] == -32600

    async def test_a_client_skips_what_it_cannot_read(self, linked: Any, caplog: pytest.LogCaptureFixture) -> None:
        """JRPC-21: garbage is logged as an error and the next response still arrives."""
        far = linked(client=R4, tell_unreadable=False)
        waiting = asyncio.ensure_future(far.link.request("tools/list", {}))
        await asyncio.sleep(0)
        far.take()
        for noise in (b"npm warn deprecated", b"{", b"\xff", b"[]", b"7"):
            far.say(noise)
        assert far.take() == []
        assert sum(record.levelno == logging.ERROR for record in caplog.records) == 5
        far.answer(1, {"tools": []})
        assert json.loads(bytes(await waiting)) == {"tools": []}

    async def test_a_client_still_answers_a_broken_request_with_an_id(self, linked: Any) -> None:
        """RPC-20: somebody waits for that answer."""
        far = linked(client=R4, tell_unreadable=False)
        far.say(id=7, method=3)
        assert [(m["id"], m["error"]["code"]) for m in far.take()] == [(7, -32600)]

    async def test_in_the_stateless_era_a_client_sends_no_responses_at_all(self, linked: Any) -> None:
        """RPC-14 STDIO-6: neither to a request the server may not send, nor to garbage."""
        far = linked(client="2026-07-28")
        far.link.session.methods = {}
        far.ask(1, "roots/list")
        far.ask(2, "ping")
        far.say(b"garbage")
        far.say(id=3, method=7)
        assert far.take() == []


class TestGarbage:
    """Messages in a row that cannot be read."""

    ROW = (b"1", b"nope", b"{}", b"[1]", b"[", b'{"jsonrpc":"2.0","id":null,"method":"m"}')

    @pytest.mark.parametrize("frame", ROW)
    async def test_a_socket_is_closed_after_a_few(self, linked: Any, frame: bytes, caplog: Any) -> None:
        far = linked().greet(R3)
        far.traits = Traits(closes_on_garbage=True)
        for _ in range(MAX_UNREADABLE):
            far.say(frame)
        assert far.closed is None
        assert len(far.take()) == MAX_UNREADABLE
        for _ in range(3):
            far.say(frame)
        assert far.closed == "too many messages that cannot be read"
        assert far.take() == []
        assert caplog.text.count("closed a connection: 17 messages in a row cannot be read") == 1
        assert len(caplog.records) < 8

    async def test_garbage_is_counted_from_the_first_message_on(self, linked: Any) -> None:
        far = linked()
        far.traits = Traits(closes_on_garbage=True)
        for _ in range(MAX_UNREADABLE):
            far.say(b"1")
        assert far.closed is None
        far.say(b"1")
        assert far.closed is not None

    async def test_one_that_can_be_read_ends_the_row(self, linked: Any) -> None:
        far = linked().greet(R2)
        far.traits = Traits(closes_on_garbage=True)
        readable = (
            {"jsonrpc": "2.0", "id": 1, "method": "ping"},
            {"jsonrpc": "2.0", "method": "notifications/x"},
            {"jsonrpc": "2.0", "id": 99, "result": {}},
            {"jsonrpc": "2.0", "id": 99, "error": {"code": 1, "message": "x"}},
            [1, {"jsonrpc": "2.0", "id": 1, "method": "ping"}],
        )
        for message in (*readable, *readable):
            for _ in range(MAX_UNREADABLE):
                far.say(b"1")
            far.say(message)
        assert far.closed is None

    @pytest.mark.parametrize("version", [R2, R4])
    async def test_batches_of_which_nothing_can_be_read_count(self, linked: Any, version: str) -> None:
        far = linked().greet(version)
        far.traits = Traits(closes_on_garbage=True)
        for _ in range(MAX_UNREADABLE + 1):
            far.say(b"[1,1,1]")
        assert far.closed is not None
        assert sum(len(told) if isinstance(told, list) else 1 for told in far.take()) == MAX_UNREADABLE

    async def test_a_batch_with_one_that_can_be_read_does_not(self, linked: Any) -> None:
        far = linked().greet(R2)
        far.traits = Traits(closes_on_garbage=True)
        for _ in range(MAX_UNREADABLE + 1):
            far.say([1, {"jsonrpc": "2.0", "id": 1, "method": "ping"}])
        assert far.closed is None

    async def test_a_pipe_stays_open_and_is_no_longer_answered_without_an_id(
        self, linked: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        far = linked().greet(R3)
        for _ in range(1000):
            far.say(b"1")
        assert far.closed is None
        assert len(far.take()) == MAX_UNREADABLE
        assert len(caplog.records) < 20
        far.say(b'{"id":7}')
        assert [message["id"] for message in far.take()] == [7]
        far.ask("pong", "ping")
        assert far.take() == [PONG]
        far.say(b"1")
        assert len(far.take()) == 1

    async def test_what_is_answered_with_an_error_is_logged_each_time_its_number_has_doubled(
        self, linked: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        far = linked().greet(R3)
        logged = []
        for count in range(1, MAX_UNREADABLE):
            caplog.clear()
            far.say(b"1")
            if f"a message cannot be read ({count} so far on this link)" in caplog.text:
                logged.append(count)
            else:
                assert caplog.text == ""
        assert logged == [1, 2, 4, 8]

    async def test_a_client_logs_a_flood_in_few_lines(self, linked: Any, caplog: pytest.LogCaptureFixture) -> None:
        far = linked(client=R4, tell_unreadable=False)
        for _ in range(100_000):
            far.say(b"1")
        assert far.take() == []
        assert len(caplog.records) < 40
        assert "65536 messages in a row" in caplog.text

    async def test_an_exchange_of_its_own_is_always_answered(self, linked: Any, far_end: Any) -> None:
        """Over HTTP each message has a way back of its own: it is not counted, and never left without an answer."""
        far = linked().greet(R3)

        class Exchange(ChannelDefaults):
            traits = Traits(closes_on_garbage=True)

            def __init__(self) -> None:
                self.sent: list[Any] = []

            def send(self, message: Any) -> None:
                self.sent.append(message)

        for _ in range(3 * MAX_UNREADABLE):
            exchange = Exchange()
            assert far.link.frame_received(b"1", exchange)
            assert len(exchange.sent) == 1

    async def test_answers_that_cannot_be_read_are_not_garbage(self, linked: Any) -> None:
        """Somebody waits for each of them, and fails with the reason."""
        far = linked(client=R4, tell_unreadable=False)
        far.traits = Traits(closes_on_garbage=True)
        for _ in range(2 * MAX_UNREADABLE):
            waiting = asyncio.ensure_future(far.link.request("tools/list", {}))
            await asyncio.sleep(0)
            far.say(b'{"jsonrpc":"2.0","id":%d,"error":7}' % far.take()[-1]["id"])
            with pytest.raises(InvalidAnswer):
                await waiting
        assert far.closed is None


class TestTheCostOfRefusals:
    @pytest.mark.parametrize("version", [R2, R4])
    @pytest.mark.parametrize("client", [False, True], ids=["server", "client"])
    @pytest.mark.parametrize("size", [200_000, 1_000_000])
    async def test_an_array_of_numbers_costs_what_it_is_long(
        self, linked: Any, version: str, client: bool, size: int
    ) -> None:
        """One answer, no more time than 20 µs and 20 ns a byte (doubled), and no memory to speak of."""
        far = linked(client=version, tell_unreadable=False) if client else linked().greet(version)
        frame = b"[" + b"1," * (size // 2) + b"1]"
        far.say(frame)
        assert len(far.take()) == (0 if client else 1)
        spent = []
        for _ in range(3):
            before = time.process_time()
            far.say(frame)
            spent.append(time.process_time() - before)
        assert min(spent) < 2 * (20e-6 + 20e-9 * size)
        tracemalloc.start()
        far.say(frame)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < max(size, 300_000)

    async def test_a_refused_call_leaves_nothing_to_collect(self, linked: Any) -> None:
        """The traceback of a refusal would hold the call and all it was given until the garbage collector comes by."""

        async def refuse(call: Any) -> CallToolResult:
            raise InvalidParams("no")

        far = linked({"tools/call": refuse}).greet(R4)
        far.call(0)
        gc.collect()
        gc.disable()
        try:
            tracemalloc.start()
            for number in range(1, 20):
                far.call(number, text="x" * 100_000)
                far.take()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
            gc.enable()
        assert kept < 100_000


class TestRunning:
    async def test_many_requests_run_at_once_and_each_gets_its_own_answer(self, linked: Any, settle: Any) -> None:
        """CORR-11 JRPC-22 RPC-5: fifty overlap; answers come in the order of their ends."""
        gates = {n: asyncio.Event() for n in range(50)}

        async def handler(call: Any) -> Any:
            await gates[call.id].wait()
            return {"n": call.id}

        far = linked({"tools/call": handler}).greet()
        for n in gates:
            far.call(n)
        await settle()
        order = random.Random(5).sample(list(gates), 50)
        for n in order:
            gates[n].set()
            await settle(3)
        assert [(m["id"], m["result"]) for m in far.take()] == [(n, {"n": n}) for n in order]
        assert not far.link.session.running

    async def test_a_slow_call_does_not_hold_up_a_ping(self, linked: Any, settle: Any) -> None:
        """PING-1 PING-04: answered at once, whatever runs."""
        far = linked({"tools/call": Gate()}).greet()
        far.call(1)
        await settle()
        far.ask("pong", "ping")
        assert far.take() == [PONG]

    async def test_an_instant_answer_needs_no_task(self, linked: Any) -> None:
        """PING-1: it is out before the frame's turn is over."""
        far = linked(instant={"tools/list": lambda call: EmptyResult()}).greet()
        tasks = asyncio.all_tasks()
        far.ask(1, "tools/list")
        far.ask(2, "ping")
        assert [m["id"] for m in far.take()] == [1, 2]
        assert asyncio.all_tasks() == tasks

    @pytest.mark.parametrize("error", [ValueError("secret"), KeyError(), AssertionError()])
    async def test_an_instant_handler_that_fails_is_an_internal_error(self, linked: Any, error: Exception) -> None:
        """ERRC-05: -32603 that tells nothing."""

        def fail(_: Any) -> Any:
            raise error

        far = linked(instant={"tools/list": fail}).greet()
        far.ask(1, "tools/list")
        (told,) = far.take()
        assert told["error"]["code"] == -32603
        assert "secret" not in json.dumps(told)

    async def test_a_result_that_cannot_be_written_is_that_calls_error(self, linked: Any, settle: Any) -> None:
        """FRM-04 ERRC-05: -32603 for it, nothing for the others, and the link lives."""
        cycle: list[Any] = []
        cycle.append(cycle)
        bad = {1: "\ud800", 2: object(), 3: cycle, 4: {(1,): 2}}

        async def handler(call: Any) -> Any:
            return {"value": bad.get(call.id, "fine")}

        far = linked({"tools/call": handler}, {"tools/list": lambda call: {"x": object()}}).greet()
        for n in range(1, 6):
            far.call(n)
        far.ask(6, "tools/list")
        await settle()
        told = {m["id"]: m for m in far.take()}
        assert {n: told[n]["error"]["code"] for n in (1, 2, 3, 4, 6)} == dict.fromkeys((1, 2, 3, 4, 6), -32603)
        assert told[5]["result"] == {"value": "fine"}
        assert "reference" in told[1]["error"]["data"]

    async def test_an_error_whose_data_cannot_be_written_is_still_an_answer(self, linked: Any, settle: Any) -> None:
        from ferrule.errors import InvalidParams

        async def handler(_: Any) -> Any:
            raise InvalidParams("no", {"value": object()})

        far = linked({"tools/call": handler}).greet()
        far.call(1)
        await settle()
        assert [m["error"]["code"] for m in far.take()] == [-32603]


class TestTheLine:
    async def test_calls_over_the_limit_wait_and_start_in_their_order(self, linked: Any, settle: Any) -> None:
        """CORR-11: no more than the limit run at once; one starts when one ends."""
        gates = {n: asyncio.Event() for n in range(6)}
        running: list[int] = []

        async def handler(call: Any) -> Any:
            running.append(call.id)
            await gates[call.id].wait()
            running.remove(call.id)
            return {}

        far = linked({"tools/call": handler}, max_running=2).greet()
        for n in gates:
            far.call(n)
        await settle()
        assert running == [0, 1]
        for ending, now in ((1, [0, 2]), (0, [2, 3]), (3, [2, 4]), (2, [4, 5]), (5, [4]), (4, [])):
            gates[ending].set()
            await settle()
            assert running == now
        assert sorted(m["id"] for m in far.take()) == list(range(6))

    async def test_beyond_the_line_a_call_is_refused_as_busy(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=2, max_waiting=3).greet()
        for n in range(7):
            far.call(n)
        await settle()
        assert [(m["id"], m["error"]["code"]) for m in far.take()] == [(5, -32000), (6, -32000)]
        gate.open.set()
        await settle()
        assert sorted(m["id"] for m in far.take()) == [0, 1, 2, 3, 4]

    async def test_by_default_a_hundred_run_and_a_thousand_and_twenty_four_wait(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}).greet()
        for n in range(100 + 1024 + 10):
            far.call(n)
        await settle()
        assert len(gate.started) == 100
        assert [m["id"] for m in far.take()] == list(range(1124, 1134))
        far.ask("pong", "ping")
        assert far.take() == [PONG]
        gate.open.set()
        await settle(40)
        assert len(far.take()) == 1124
        assert not far.link.session.running

    async def test_a_cancelled_waiter_leaves_the_line_and_never_starts(self, linked: Any, settle: Any) -> None:
        """CANC-2 CANC-04: and nobody starts in its stead too early."""
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=1, max_waiting=2).greet()
        for n in (1, 2, 3):
            far.call(n)
        await settle()
        far.cancel(3)
        await settle()
        assert gate.started == [1]
        far.call(4)
        await settle()
        assert far.take() == [], "the place of the cancelled one is free again"
        gate.open.set()
        await settle()
        assert gate.started == [1, 2, 4]
        assert sorted(m["id"] for m in far.take()) == [1, 2, 4]

    async def test_a_cancelled_call_frees_its_slot(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=1).greet()
        far.call(1)
        far.call(2)
        await settle()
        far.cancel(1)
        await settle()
        assert gate.started == [1, 2]

    async def test_standing_calls_take_no_slot(self, linked: Any, settle: Any) -> None:
        """SUB-7: however many listen, others are still served; and ending them frees nothing twice."""
        stand, gate = Gate(), Gate()
        far = linked({"subscriptions/listen": stand, "tools/call": gate}, max_running=2).greet()
        for n in range(5):
            far.ask_modern(f"l{n}", "subscriptions/listen", notifications={})
        for n in range(4):
            far.call(n)
        await settle()
        assert len(stand.started) == 5
        assert gate.started == [0, 1]
        far.cancel("l0")
        stand.open.set()
        await settle()
        assert gate.started == [0, 1], "the slots are still taken"
        gate.open.set()
        await settle()
        assert gate.started == [0, 1, 2, 3]
        assert not far.link.session.running
        gate.open.clear()
        for n in range(4, 8):
            far.call(n)
        await settle()
        assert gate.started == [0, 1, 2, 3, 4, 5]

    async def test_a_slot_is_free_once_the_reply_is_written(self, linked: Any, settle: Any) -> None:
        far = linked({"tools/call": at_once}, max_running=1).greet()
        for n in range(20):
            far.call(n)
        await settle(50)
        assert [m["id"] for m in far.take()] == list(range(20))


class TestCancelling:
    async def test_a_call_cancelled_before_it_starts_never_runs(self, linked: Any, settle: Any) -> None:
        """CANC-2 CANC-04 STDIO-8: and it gets no answer."""
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=1).greet()
        far.call(1)
        far.call(2)
        far.cancel(2)
        await settle()
        assert gate.started == [1]
        assert far.take() == []
        assert list(far.link.session.running) == [1]
        assert not far.link.scope.tasks

    async def test_a_running_call_is_stopped_and_never_answered(self, linked: Any, settle: Any) -> None:
        """CANC-2 CANC-04 STDIO-8: the handler is cancelled in the same turn, then forgotten."""
        gate = Gate()
        far = linked({"tools/call": gate}).greet()
        far.call(1)
        await settle()
        far.cancel(1, reason="enough")
        await settle()
        assert gate.cancelled == gate.started
        assert far.take() == []
        assert not far.link.scope.tasks

    @pytest.mark.parametrize("era", ["handshake", "stateless"])
    @pytest.mark.parametrize("how", ["closed", "cancelled"])
    async def test_what_is_cancelled_before_it_waits_is_stopped_where_it_waits(
        self, linked: Any, settle: Any, how: str, era: str
    ) -> None:
        """Its task is made only then, and nobody would have cancelled that."""
        gate = Gate()

        async def end_itself(call: Any) -> CallToolResult:
            if how == "closed":
                far.link.close()
            else:
                far.cancel(call.id)
            return await gate(call)

        far = linked({"tools/call": end_itself})
        if era == "handshake":
            far.greet().call(1)
        else:
            far.ask_modern(1, "tools/call", name="echo", arguments={})
        await settle()
        assert gate.cancelled == gate.started == [1]
        assert far.take() == []
        assert not far.link.scope.tasks

    @pytest.mark.parametrize("era", ["handshake", "stateless"])
    @pytest.mark.parametrize("how", ["closed", "cancelled"])
    async def test_what_a_task_factory_has_not_begun_holds_nothing_once_it_is_cancelled(
        self, linked: Any, settle: Any, how: str, era: str
    ) -> None:
        """Its loop makes tasks that begin in a later turn; an account that is never credited is full some day."""
        held = process.requests.held
        loop = asyncio.get_running_loop()
        gate = Gate()
        loop.set_task_factory(lambda loop, work, **options: asyncio.Task(work, loop=loop, **options))
        try:
            far = linked({"tools/call": gate})
            if era == "handshake":
                far.greet().call(1)
            else:
                far.ask_modern(1, "tools/call", name="echo", arguments={})
            assert process.requests.held > held
            if how == "closed":
                far.link.close()
            else:
                far.cancel(1)
            await settle()
        finally:
            loop.set_task_factory(None)
        assert process.requests.held == held
        assert gate.cancelled == gate.started
        assert far.take() == []
        assert not far.link.scope.tasks

    async def test_a_call_that_ignores_its_cancellation_is_not_answered_either(self, linked: Any, settle: Any) -> None:
        """CANC-2: whatever it returns, and however late."""

        async def stubborn(_: Any) -> CallToolResult:
            try:
                await asyncio.sleep(10)
            except asyncio.CancelledError:
                await asyncio.sleep(5)
            return CallToolResult(content=[])

        far = linked({"tools/call": stubborn}).greet()
        far.call(1)
        await settle()
        far.cancel(1)
        await asyncio.sleep(20)
        assert far.take() == []
        assert not far.link.scope.tasks

    async def test_a_late_cancellation_does_no_harm(self, linked: Any, settle: Any) -> None:
        """CANC-3: the answer is out, and the id may even be in use again."""
        far = linked({"tools/call": at_once}).greet()
        far.call(1)
        await settle()
        far.cancel(1)
        far.call(1)
        await settle()
        assert [m["id"] for m in far.take()] == [1, 1]

    async def test_a_call_knows_that_it_was_cancelled(self, linked: Any, settle: Any) -> None:
        """CANC-01: for a handler in a thread, and with the reason."""
        seen = []

        async def handler(call: Any) -> Any:
            seen.append(call)
            call.on_cancel = lambda: seen.append("told")
            await asyncio.sleep(10)

        far = linked({"tools/call": handler}).greet()
        far.call(1)
        await settle()
        far.cancel(1, reason="enough")
        assert (seen[0].cancelled, seen[0].reason, seen[1]) == (True, "enough", "told")

    async def test_a_stray_cancelled_error_is_that_calls_error(self, linked: Any, settle: Any) -> None:
        """ERRC-05: the peer asked for no cancel, so it gets an answer."""

        async def handler(_: Any) -> Any:
            raise asyncio.CancelledError

        far = linked({"tools/call": handler}).greet()
        far.call(1)
        await settle()
        assert [m["error"]["code"] for m in far.take()] == [-32603]

    async def test_a_withdrawn_request_of_ours_ends_with_the_peers_reason(self, linked: Any) -> None:
        """CANC-02 CANC-03: a client's caller gets Cancelled."""
        far = linked(client=R4)
        waiting = asyncio.ensure_future(far.link.request("tools/call", {}))
        await asyncio.sleep(0)
        far.cancel(1, reason="too slow")
        with pytest.raises(Cancelled, match="too slow"):
            await waiting


class TestBatches:
    async def test_a_mixed_batch_gets_one_array_with_an_answer_for_each_request(self, linked: Any, settle: Any) -> None:
        """RPC-11 BATC-02 BATC-08 BATC-09: in 2025-03-26; notifications in it get none."""
        notes: list[Any] = []
        far = linked({"tools/call": at_once}, notes={"n/x": notes.append}).greet(R2)
        far.say(
            [
                {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "t"}},
                {"jsonrpc": "2.0", "method": "n/x"},
                {"jsonrpc": "2.0", "id": "2", "method": "ping"},
                {"jsonrpc": "2.0", "id": 3, "method": "nope"},
            ]
        )
        await settle()
        (replies,) = far.take()
        assert {m["id"]: "result" in m for m in replies} == {1: True, "2": True, 3: False}
        assert len(notes) == 1

    async def test_bad_elements_get_errors_of_their_own(self, linked: Any) -> None:
        """RPC-11 BATC-01: under their ids where these can be read; the others share one."""
        far = linked().greet(R2)
        far.say([1, {"jsonrpc": "2.0", "id": 1, "method": "ping"}, {"id": 2, "method": "ping"}, [], {"foo": "bar"}])
        (replies,) = far.take()
        assert sorted((str(m["id"]), m.get("error", {}).get("code")) for m in replies) == [
            ("1", None),
            ("2", -32600),
            ("None", -32600),
        ]

    async def test_a_batch_of_notifications_gets_no_answer(self, linked: Any, settle: Any) -> None:
        """BATC-02 RPC-9: not even an empty array."""
        far = linked().greet(R2)
        far.say([{"jsonrpc": "2.0", "method": "a"}, {"jsonrpc": "2.0", "method": "b"}])
        await settle()
        assert far.take() == []

    async def test_initialize_is_refused_inside_a_batch(self, linked: Any) -> None:
        """RPC-12: the rest of the batch is served."""
        far = linked(allow_batch=True)
        params = {"protocolVersion": R2, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
        far.say(
            [
                {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params},
                {"jsonrpc": "2.0", "id": 2, "method": "ping"},
            ]
        )
        (replies,) = far.take()
        assert [(m["id"], "error" in m) for m in replies] == [(1, True), (2, False)]
        assert far.link.session.peer is None

    @pytest.mark.parametrize("version", [R1, R3, R4])
    async def test_other_revisions_take_arrays_by_option_only(self, linked: Any, version: str) -> None:
        """BATC-09 RPC-13: `allow_batch` is for custom carriers."""
        batch = [{"jsonrpc": "2.0", "id": 1, "method": "ping"}]
        for allowed in (False, True):
            far = linked(allow_batch=allowed).greet(version)
            far.say(batch)
            assert isinstance(far.take()[0], list) is allowed

    async def test_an_answer_that_cannot_be_written_spoils_only_itself(self, linked: Any, settle: Any) -> None:
        """FRM-04 RPC-11: the others of the batch arrive."""

        async def handler(call: Any) -> Any:
            return {"x": object() if call.id == 2 else call.id}

        far = linked({"tools/call": handler}).greet(R2)
        far.say([{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "t"}} for n in (1, 2, 3)])
        await settle()
        (replies,) = far.take()
        told = {m["id"]: m for m in replies}
        assert (told[1]["result"], told[3]["result"]) == ({"x": 1}, {"x": 3})
        assert told[2]["error"]["code"] == -32603

    async def test_a_cancelled_member_is_left_out(self, linked: Any, settle: Any) -> None:
        """CANC-2 BATC-02: the array holds the answers of the others, whenever the cancel comes."""
        gate = Gate()
        far = linked({"tools/call": gate}).greet(R2)

        def request(n: int) -> Any:
            return {"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "t"}}

        far.say([request(1), request(2), {"jsonrpc": "2.0", "id": 3, "method": "ping"}])
        await settle()
        far.cancel(1)
        assert far.take() == []
        far.cancel(2)
        assert [m["id"] for m in far.take()[0]] == [3]
        cancelling = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 4}}
        far.say([request(4), cancelling])
        await settle()
        assert far.take() == []
        gate.open.set()
        far.say([request(5), request(6)])
        far.cancel(5)
        await settle()
        assert [m["id"] for m in far.take()[0]] == [5, 6], "what was answered at once cannot be withdrawn"

    async def test_answers_to_our_own_requests_may_come_in_a_batch(self, linked: Any) -> None:
        """BATC-08: in any order, each reaches its caller."""
        far = linked(client=R2)
        waiting = [asyncio.ensure_future(far.link.request("ping", {})) for _ in range(3)]
        await asyncio.sleep(0)
        far.take()
        far.say([{"jsonrpc": "2.0", "id": n, "result": {"n": n}} for n in (3, 1, 2)])
        assert [json.loads(bytes(raw)) for raw in await asyncio.gather(*waiting)] == [{"n": 1}, {"n": 2}, {"n": 3}]
        assert far.take() == []

    async def test_a_malformed_answer_in_a_batch_fails_its_caller_whatever_stands_before_it(self, linked: Any) -> None:
        """BATC-08: only what has no readable id shares an answer."""
        far = linked().greet(R2)
        waiting = asyncio.ensure_future(far.link.request("roots/list", {}))
        await asyncio.sleep(0)
        far.take()
        far.say([1, {"jsonrpc": "2.0", "id": 1, "error": None}, {"jsonrpc": "2.0", "id": 99, "error": None}])
        with pytest.raises(InvalidAnswer, match="roots/list"):
            await waiting
        (told,) = far.take()
        assert [message["id"] for message in told] == [None]

    async def test_a_batch_obeys_the_limits_of_the_line(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=1, max_waiting=1).greet(R2)
        far.say([{"jsonrpc": "2.0", "id": n, "method": "tools/call", "params": {"name": "t"}} for n in (1, 2, 3)])
        gate.open.set()
        await settle()
        (replies,) = far.take()
        assert {m["id"]: "error" in m for m in replies} == {1: False, 2: False, 3: True}


class TestLine:
    async def test_the_place_of_a_cancelled_call_is_free_at_once(self, linked: Any, settle: Any) -> None:
        """Whoever waits in line need not wait for a handler that does not heed its cancelling."""
        started = []

        async def stubborn(call: Any) -> CallToolResult:
            started.append(call.id)
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(50)
            return CallToolResult(content=[])

        far = linked({"tools/call": stubborn}, max_running=1).greet()
        far.call(1)
        far.call(2)
        await settle()
        assert started == [1]
        far.cancel(1)
        await settle()
        assert started == [1, 2]


class TestEnding:
    async def test_draining_waits_for_what_runs(self, linked: Any, settle: Any) -> None:
        """Every call that ends in time is answered as usual."""
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=1).greet()
        far.call(1)
        far.call(2)
        await settle()
        draining = asyncio.ensure_future(far.link.drain(10.0))
        await asyncio.sleep(5)
        assert not draining.done()
        gate.open.set()
        await draining
        assert far.link.loop.time() == 5.0
        assert sorted(m["id"] for m in far.take()) == [1, 2]

    async def test_draining_answers_what_does_not_end_in_time(self, linked: Any, settle: Any) -> None:
        """No request is left without an answer, those in line included, which are not started for it."""
        gate = Gate()
        far = linked({"tools/call": gate}, max_running=1).greet()
        for n in (1, 2, 3):
            far.call(n)
        await settle()
        await far.link.drain(3.0)
        await settle()
        assert far.link.loop.time() == 3.0
        assert [(m["id"], m["error"]["code"]) for m in far.take()] == [(1, -32603), (2, -32603), (3, -32603)]
        assert gate.cancelled == gate.started
        assert len(gate.started) == 1
        assert not far.link.session.running
        assert not far.link.scope.tasks

    async def test_draining_an_idle_link_takes_no_time(self, linked: Any) -> None:
        far = linked().greet()
        await far.link.drain(10.0)
        assert far.link.loop.time() == 0.0

    async def test_draining_ends_standing_calls_with_their_result(self, linked: Any, settle: Any) -> None:
        """SUB-9: whoever stands is asked to end, not cancelled."""
        ended = asyncio.Event()

        async def stand(call: Any) -> Any:
            call.on_cancel = ended.set
            await ended.wait()
            return EmptyResult()

        far = linked({"subscriptions/listen": stand})
        far.ask_modern("l", "subscriptions/listen", notifications={})
        await settle()
        await far.link.drain(10.0)
        assert far.link.loop.time() == 0.0
        assert [(m["id"], m["result"]["resultType"]) for m in far.take()] == [("l", "complete")]

    async def test_two_may_wait_for_the_same_drain(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}).greet()
        far.call(1)
        await settle()
        both = asyncio.gather(far.link.drain(10.0), far.link.drain(20.0))
        await asyncio.sleep(1)
        far.cancel(1)
        await both
        assert far.link.loop.time() == 1.0

    async def test_a_handler_that_outlasts_a_drain_knows_that_its_time_is_up(self, linked: Any, settle: Any) -> None:
        calls: list[Any] = []

        async def wait(call: Any) -> CallToolResult:
            calls.append(call)
            await asyncio.sleep(100)
            return CallToolResult(content=[])

        far = linked({"tools/call": wait}).greet()
        far.call(1)
        await settle()
        assert calls[0].expired is False
        await far.link.drain(3.0)
        assert calls[0].expired is True

    async def test_a_request_a_server_may_not_send_is_named_in_the_log(
        self, linked: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """RPC-14."""
        far = linked(client="2026-07-28")
        far.link.session.methods = {}
        far.ask(1, "roots/list")
        assert far.take() == []
        assert "ignored: the request roots/list, which this server may not send" in caplog.text

    async def test_a_drain_goes_on_when_one_of_many_is_cancelled(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}).greet()
        far.call(1)
        far.call(2)
        await settle()
        draining = asyncio.ensure_future(far.link.drain(10.0))
        await asyncio.sleep(1)
        far.cancel(1)
        await asyncio.sleep(1)
        assert not draining.done()
        gate.open.set()
        await draining
        assert far.link.loop.time() == 2.0
        assert [m["id"] for m in far.take() if "result" in m] == [2]

    async def test_what_was_cancelled_is_waited_for_no_more_though_its_handler_goes_on(
        self, linked: Any, settle: Any
    ) -> None:
        """Its slot is free at once, and a drain ends with it."""
        started: list[Any] = []

        async def stubborn(call: Any) -> None:
            started.append(call.id)
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(50)

        far = linked({"tools/call": stubborn}, max_running=1).greet()
        far.call(1)
        far.call(2)
        await settle()
        assert started == [1]
        far.cancel(1)
        await settle()
        assert started == [1, 2]
        draining = asyncio.ensure_future(far.link.drain(10.0))
        await settle()
        far.cancel(2)
        await draining
        assert far.link.loop.time() == 0.0

    async def test_whoever_waits_for_a_peer_to_be_ready_fails_with_the_link(self, linked: Any, settle: Any) -> None:
        far = linked().greet(ready=False)
        asking = asyncio.ensure_future(far.link.ask("roots/list", {}, far))
        await settle()
        far.link.close()
        with pytest.raises(LinkLost):
            await asking

    @pytest.mark.parametrize(("size", "collects"), [(10, True), (LONG + 1, False)])
    async def test_a_long_call_begins_without_the_garbage_collector(
        self, linked: Any, settle: Any, size: int, collects: bool
    ) -> None:
        found: list[bool] = []

        async def look(_: Any) -> CallToolResult:
            found.append(gc.isenabled())
            await asyncio.sleep(0)
            found.append(gc.isenabled())
            return CallToolResult(content=[])

        far = linked({"tools/call": look}).greet()
        far.call(1, text="x" * size)
        await settle()
        assert found == [collects, True]

    async def test_no_line_of_the_log_is_long(self, caplog: pytest.LogCaptureFixture) -> None:
        logging.getLogger("ferrule.link").warning("x" * 1_000_000)
        assert 0 < len(caplog.records[0].getMessage()) < 100_000

    async def test_a_drain_ends_with_its_link(self, linked: Any, settle: Any) -> None:
        async def stubborn(call: Any) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(4)

        far = linked({"tools/call": stubborn}).greet()
        far.call(1)
        await settle()
        draining = asyncio.ensure_future(far.link.drain(10.0))
        await asyncio.sleep(1)
        far.link.close()
        await draining
        assert far.link.loop.time() == 1.0

    async def test_a_peer_that_will_say_no_more_still_gets_its_answers(self, linked: Any, settle: Any) -> None:
        """A half-closed link answers what was asked."""
        gate = Gate()
        far = linked({"tools/call": gate}).greet()
        far.call(1)
        await settle()
        far.link.end_received(far)
        gate.open.set()
        await settle()
        assert [m["id"] for m in far.take()] == [1]

    @pytest.mark.parametrize("when", ["after it was asked", "before", "before it was ready"])
    async def test_a_peer_that_ends_its_side_is_not_waited_for(self, linked: Any, settle: Any, when: str) -> None:
        """CORR-10: it cannot answer any more, so what it is asked fails, and the call that asked is answered."""

        async def asks(call: Any) -> Any:
            await asyncio.sleep(0)
            try:
                await call.link.ask("roots/list", {}, call.channel)
            except LinkLost as lost:
                return {"content": [{"type": "text", "text": f"{lost} {lost.sent}"}]}

        far = linked({"tools/call": asks}).greet(ready=when != "before it was ready")
        far.call(1)
        if when != "before":
            await settle()
        far.link.end_received(far)
        await settle()
        text = far.take()[-1]["result"]["content"][0]["text"]
        assert "ended its side" in text
        assert text.endswith(str(when == "after it was asked"))
        assert not far.link.session.awaited

    @pytest.mark.parametrize(("error", "phase"), [(None, Phase.CLOSED), (OSError("cut"), Phase.ERROR)])
    async def test_a_lost_link_ends_everything_at_once(
        self, linked: Any, settle: Any, error: Any, phase: Phase
    ) -> None:
        """CORR-10 SESS-10: handlers are cancelled, callers fail with LinkLost and its cause, the book is empty."""
        gate, closed = Gate(), []
        far = linked({"tools/call": gate}, max_running=1, on_closed=lambda link, why: closed.append(why)).greet()
        far.call(1)
        far.call(2)
        await settle()
        waiting = [asyncio.ensure_future(far.link.request("ping", {}, timeout=60.0)) for _ in range(50)]
        await settle()
        far.link.channel_lost(far, error)
        for failure in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failure, LinkLost)
            assert failure.__cause__ is error
        await settle()
        assert gate.cancelled == gate.started
        assert (far.link.session.phase, closed) == (phase, [error])
        assert not far.link.session.running
        assert not far.link.session.awaited
        assert not far.link.scope.tasks
        far.link.close()
        assert closed == [error], "told once"

    async def test_after_the_end_nothing_starts(self, linked: Any, settle: Any) -> None:
        """SESS-14 SESS-15: a frame that was under way runs no handler, and a new request raises."""
        gate = Gate()
        far = linked({"tools/call": gate}).greet()
        far.link.close()
        far.call(1)
        await settle()
        assert gate.started == []
        assert not far.link.session.running
        with pytest.raises(LinkLost):
            await far.link.request("ping", {})

    async def test_a_second_channel_comes_and_goes_without_ending_the_link(self, linked: Any, far_end: Any) -> None:
        """The first channel is the link's own; a call is answered on the channel it came on."""
        far = linked().greet()
        other = far_end(far.link)
        assert far.link.channel is far
        other.ask(1, "ping")
        assert [m["id"] for m in other.take()] == [1]
        far.link.channel_lost(other, None)
        far.ask("pong", "ping")
        assert far.take() == [PONG]

    async def test_an_ended_link_leaves_no_task_and_no_timer(self, linked: Any, settle: Any) -> None:
        """SESS-20 PING-07: neither of its calls, nor of its deadlines, nor of its keep-alive."""
        tasks = asyncio.all_tasks()
        far = linked({"tools/call": at_once}, keepalive_interval=30.0).greet()
        timers = list(far.link.loop._scheduled)
        far.link.keep_alive()
        waiting = asyncio.ensure_future(far.link.request("ping", {}, timeout=60.0))
        for n in range(100):
            far.call(n)
        await settle(200)
        far.link.channel_lost(far, None)
        with pytest.raises(LinkLost):
            await waiting
        assert asyncio.all_tasks() == tasks
        assert [t for t in far.link.loop._scheduled if not t.cancelled()] == timers


class TestAServersLinks:
    """The server's own links: its handshake, the time it waits for one, its questions and its keep-alive."""

    PARAMS = {"protocolVersion": R4, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}  # noqa: RUF012

    async def test_a_peer_that_never_initializes_is_closed_after_a_minute(self, far_end: Any) -> None:
        """SESS-19: phase error, and the connection is closed; at sixty seconds, not before."""
        far = far_end(Server("s").link(Origin("tcp")))
        await asyncio.sleep(59.9)
        assert far.closed is None
        await asyncio.sleep(0.2)
        assert far.closed is not None
        assert far.link.session.phase is Phase.ERROR

    @pytest.mark.parametrize("channel", [StdioChannel, MemoryChannel])
    async def test_a_peer_that_owns_the_process_may_take_its_time(self, far_end: Any, channel: Any) -> None:
        class Owner(far_end):  # type: ignore[misc]
            traits = channel.traits

        far = Owner(Server("s").link(Origin("any")))
        await asyncio.sleep(10_000)
        assert far.closed is None

    async def test_the_wait_can_be_set_and_switched_off(self, far_end: Any) -> None:
        """SESS-19: by option."""
        short = far_end(Server("s", init_timeout=0.5).link(Origin("tcp")))
        never = far_end(Server("s", init_timeout=None).link(Origin("tcp")))
        await asyncio.sleep(1)
        assert short.closed is not None
        await asyncio.sleep(1000)
        assert never.closed is None

    async def test_the_timer_is_gone_once_the_peer_has_spoken_or_left(self, far_end: Any) -> None:
        """SESS-20: after a handshake, after a close, and in the stateless era."""
        server = Server("s", keepalive_interval=None)
        greeted, gone, modern = (far_end(server.link(Origin("tcp"))) for _ in range(3))
        greeted.say(id=1, method="initialize", params=self.PARAMS)
        gone.link.channel_lost(gone, None)
        modern.ask_modern(1, "server/discover")
        await asyncio.sleep(1000)
        assert (greeted.closed, gone.closed, modern.closed) == (None, None, None)
        assert greeted.link.session.phase is Phase.INITIALIZED

    async def test_pings_alone_do_not_count_as_a_handshake(self, far_end: Any) -> None:
        """SESS-19 PING-04: they are answered, and the minute still ends."""
        far = far_end(Server("s").link(Origin("tcp")))
        for n in range(59):
            await asyncio.sleep(1)
            far.ask(n, "ping")
        assert len(far.take()) == 59
        await asyncio.sleep(2)
        assert far.closed is not None

    async def test_the_handshake_is_made_and_shown(self, far_end: Any) -> None:
        """LIFE-2 SESS-23 SESS-03 LIFE-12: version, the server's own capabilities, name and version."""
        server = Server("s", version="3", instructions="be kind")
        server.add_tool(lambda: 1, name="t")
        far = far_end(server.link(Origin("tcp")))
        far.say(id=0, method="initialize", params=self.PARAMS)
        (answer,) = far.take()
        assert answer["id"] == 0
        assert answer["result"] == {
            "protocolVersion": R4,
            "capabilities": {"tools": {"listChanged": True}},
            "serverInfo": {"name": "s", "version": "3"},
            "instructions": "be kind",
        }

    @pytest.mark.parametrize("offered", [R1, R2, R3, R4, "2026-07-28", "1999-01-01"])
    async def test_every_offer_is_answered_with_a_version_we_speak(self, far_end: Any, offered: str) -> None:
        """VER-2 VER-4 LIFE-9: on the wire, as a success."""
        far = far_end(Server("s").link(Origin("tcp")))
        far.say(id=1, method="initialize", params={**self.PARAMS, "protocolVersion": offered})
        assert far.take()[0]["result"]["protocolVersion"] == (offered if offered in (R1, R2, R3, R4) else R4)

    async def test_a_stateless_server_names_its_versions_to_a_client_that_initializes(self, far_end: Any) -> None:
        """VER-11: -32022 on the wire, with what it serves."""
        far = far_end(Server("s", versions=()).link(Origin("tcp")))
        far.say(id=1, method="initialize", params=self.PARAMS)
        (told,) = far.take()
        assert told["error"]["code"] == -32022
        assert told["error"]["data"] == {"supported": ["2026-07-28"], "requested": R4}

    async def test_the_erlmcp_profile_refuses_an_unknown_version_and_closes(self, far_end: Any, settle: Any) -> None:
        """ERRC-17: -32062, then the end."""
        far = far_end(Server("s", error_profile="erlmcp").link(Origin("tcp")))
        far.say(id=1, method="initialize", params={**self.PARAMS, "protocolVersion": "1999-01-01"})
        (told,) = far.take()
        assert told["error"]["code"] == -32062
        await settle()
        assert far.closed is not None

    GATED = (("tools/call", "tools"), ("resources/read", "resources"), ("prompts/get", "prompts"))

    @pytest.mark.parametrize(("method", "capability"), GATED)
    async def test_a_feature_that_is_off_is_told_before_bad_arguments(
        self, far_end: Any, settle: Any, method: str, capability: str
    ) -> None:
        """SESS-28 CAPN-09: phase, then capability, then arguments."""
        far = far_end(Server("s").link(Origin("memory")))
        far.say(id=1, method="initialize", params=self.PARAMS)
        far.take()
        far.ask(2, method, name=7, uri=7)
        await settle()
        (told,) = far.take()
        assert (told["error"]["code"], told["error"]["data"]["capability"]) == (-32601, capability)

    async def test_a_second_initialize_is_refused_and_the_session_unharmed(self, far_end: Any) -> None:
        """LIFE-13 SESS-17 FRM-12: -32600."""
        far = far_end(Server("s").link(Origin("tcp")))
        for n in (1, 2):
            far.say(id=n, method="initialize", params=self.PARAMS)
        assert [m.get("error", {}).get("code") for m in far.take()] == [None, -32600]
        far.ask("pong", "ping")
        assert far.take() == [PONG]
        assert far.link.session.phase is Phase.INITIALIZED

    async def test_a_question_waits_until_the_client_is_ready(self, far_end: Any, settle: Any) -> None:
        """SESS-26 LIFE-5: requests that race ahead of initialized are served, our own wait for it."""
        from ferrule import Context

        server = Server("s")

        @server.tool
        async def ask(ctx: Context) -> str:
            return (await ctx.list_roots())[0].uri

        far = far_end(server.link(Origin("memory")))
        far.say(id=1, method="initialize", params={**self.PARAMS, "capabilities": {"roots": {}}})
        far.call(2, "ask")
        await asyncio.sleep(5)
        assert far.asked("roots/list") == []
        far.say(method="notifications/initialized")
        await settle()
        (question,) = far.asked("roots/list")
        far.answer(question["id"], {"roots": [{"uri": "file:///x"}]})
        await settle()
        assert far.replies(2)[-1]["result"]["content"][0]["text"] == "file:///x"

    async def test_a_link_lost_before_the_client_was_ready_leaves_nobody_waiting(
        self, far_end: Any, settle: Any
    ) -> None:
        """SESS-26 CORR-10: the held question ends with the link."""
        from ferrule import Context

        server = Server("s")
        ended = []

        @server.tool
        async def ask(ctx: Context) -> str:
            try:
                await ctx.list_roots()
            finally:
                ended.append(True)
            return ""

        far = far_end(server.link(Origin("memory")))
        far.say(id=1, method="initialize", params={**self.PARAMS, "capabilities": {"roots": {}}})
        far.call(2, "ask")
        await settle()
        far.link.channel_lost(far, None)
        await settle()
        assert ended == [True]
        assert not far.link.scope.tasks

    async def test_whoever_waits_for_a_client_to_be_ready_learns_that_it_is_lost(
        self, far_end: Any, settle: Any
    ) -> None:
        """CORR-10: also who is no call of that client, which ends by itself."""
        far = far_end(Server("s").link(Origin("memory")))
        far.say(id=1, method="initialize", params={**self.PARAMS, "capabilities": {"roots": {}}})
        waiting = asyncio.ensure_future(far.link.ask("roots/list", {}, far))
        await settle()
        assert not waiting.done()
        far.link.channel_lost(far, None)
        with pytest.raises(LinkLost):
            await asyncio.wait_for(waiting, 1)

    async def test_in_the_stateless_era_a_server_sends_no_requests(self, far_end: Any, settle: Any) -> None:
        """RPC-14 STDIO-6 spec:TOOL-21 MRTR-2: a handler that asks ends its round instead."""
        from ferrule import Context

        server = Server("s")

        @server.tool
        async def ask(ctx: Context) -> str:
            return (await ctx.list_roots())[0].uri

        far = far_end(server.link(Origin("memory")))
        capabilities = {"io.modelcontextprotocol/clientCapabilities": {"roots": {}}}
        far.ask_modern(1, "tools/call", name="ask", _meta=capabilities)
        await settle()
        (answer,) = far.take()
        assert answer["result"]["resultType"] == "input_required"

    async def test_both_eras_live_on_one_link(self, far_end: Any, settle: Any) -> None:
        """COMPAT-1 VER-10 STL-8: told apart by each message, interleaved at will."""
        server = Server("s", version="1")
        server.add_tool(lambda: "x", name="t", inline=True)
        far = far_end(server.link(Origin("memory")))
        far.ask_modern(1, "tools/call", name="t")
        far.say(id=2, method="initialize", params=self.PARAMS)
        far.call(3, "t")
        far.ask_modern(4, "ping")
        far.ask(5, "ping")
        far.ask(6, "server/discover")
        await settle()
        told = {m["id"]: m for m in far.take()}
        assert told[1]["result"]["resultType"] == "complete"
        assert "resultType" not in told[3]["result"]
        assert (told[4]["error"]["code"], told[5]["result"], told[6]["error"]["code"]) == (-32601, {}, -32601)


class TestLongCalls:
    async def test_the_collector_rests_while_a_long_call_is_read(self, linked: Any) -> None:
        seen = []

        async def look(call: Any) -> CallToolResult:
            seen.append(gc.isenabled())
            return CallToolResult(content=[])

        far = linked({"tools/call": look}).greet(R4)
        far.call(1, text="x" * 20_000)
        far.call(2, text="x" * 300_000)
        assert seen == [True, False]
        assert gc.isenabled()

    async def test_a_long_call_can_be_cancelled(self, linked: Any, settle: Any) -> None:
        gate = Gate()
        far = linked({"tools/call": gate}).greet(R4)
        far.call(1, text="x" * 300_000)
        far.cancel(1)
        await settle()
        assert gate.cancelled == [1]


async def test_a_refusal_too_long_for_its_channel_is_said_in_few_words(linked: Any) -> None:
    far = linked().greet(R4)
    send = far.send

    def narrow(message: Any) -> None:
        if len(encode(message)) > 2000:
            raise EncodeError("too long")
        send(message)

    far.send = narrow
    far.ask("i" * 3000, "no/such/method")
    (answer,) = far.take()
    assert (answer.get("id"), answer["error"]["code"]) == (None, -32601)


async def test_a_request_of_a_peer_in_this_process_is_answered(linked: Any) -> None:
    far = linked().greet(R4)
    far.link.message_received(Request("pong", "ping", EMPTY_PARAMS), far)
    assert far.take() == [PONG]


async def test_a_call_that_stands_learns_that_its_link_is_closed(linked: Any, settle: Any) -> None:
    told = []

    async def stand(call: Any) -> EmptyResult:
        call.on_cancel = lambda: told.append(call.id)
        await asyncio.Event().wait()
        return EmptyResult()

    far = linked({"subscriptions/listen": stand})
    far.ask_modern(1, "subscriptions/listen", notifications={"toolsListChanged": True})
    await settle()
    far.link.close()
    assert told == [1]
    await settle()


async def test_a_channel_says_in_which_context_its_calls_run(far_end: Any, settle: Any) -> None:
    place: ContextVar[str] = ContextVar("place", default="elsewhere")
    there = copy_context()
    there.run(place.set, "there")
    server = Server("s")

    @server.tool
    async def where() -> str:
        await asyncio.sleep(0)
        return place.get()

    for kind, found in ((far_end, "elsewhere"), (type("There", (far_end,), {"context": there}), "there")):
        far = kind(server.link(Origin("memory"))).greet(R4)
        far.call(1, "where")
        await settle()
        assert far.replies(1)[0]["result"]["content"][0]["text"] == found


@pytest.mark.parametrize(
    ("frame", "answered"),
    [
        (b'[{"jsonrpc":"2.0","method":"notifications/x"}]', False),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', True),
        (b'[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":1,"method":"ping"}]', True),
        (b'{"jsonrpc":"2.0","id":1,"method":"ping"}', True),
        (b'{"jsonrpc":"2.0","method":"notifications/x"}', False),
        (b'{"jsonrpc":"2.0","id":7,"result":{}}', False),
    ],
)
async def test_a_carrier_learns_whether_a_frame_will_be_answered(linked: Any, frame: bytes, answered: bool) -> None:
    far = linked().greet(R2)
    assert far.link.frame_received(frame, far) is answered
    assert len(far.take()) == answered


@pytest.mark.parametrize("frame", [b"{bad", b"[1]"])
async def test_a_carrier_learns_that_garbage_is_answered_until_the_channel_is_closed(
    linked: Any, frame: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    far = linked(tell_unreadable=True).greet(R2)
    far.traits = Traits(closes_on_garbage=True)
    for _ in range(MAX_UNREADABLE):
        assert far.link.frame_received(frame, far) is True
    assert far.closed is None
    assert "closed a connection" not in caplog.text
    assert far.link.frame_received(frame, far) is False
    assert far.closed is not None
    assert caplog.text.count("closed a connection") == 1
    assert far.link.frame_received(frame, far) is False
    assert caplog.text.count("closed a connection") == 1
    assert len(far.take()) == MAX_UNREADABLE


async def test_a_carrier_learns_that_garbage_that_is_skipped_is_not_answered(linked: Any) -> None:
    far = linked(tell_unreadable=False).greet(R2)
    for _ in range(2 * MAX_UNREADABLE):
        assert far.link.frame_received(b"{bad", far) is False
    assert far.take() == []


async def test_a_carrier_learns_that_an_answer_that_cannot_be_read_is_not_answered(linked: Any) -> None:
    far = linked().greet(R4)
    asked = far.link.start("ping", {}, far)
    assert far.link.frame_received(b'{"jsonrpc":"2.0","id":%d,"error":7}' % asked.id, far) is False
    with pytest.raises(InvalidAnswer):
        await asked.waiter


async def test_a_link_knows_the_error_it_ended_with_and_has_none_before(linked: Any) -> None:
    far, error = linked().greet(R4), ConnectionResetError("gone")
    assert far.link.error is None
    far.link.channel_lost(far, error)
    assert far.link.error is error
