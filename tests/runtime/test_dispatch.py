"""Method to handler: whatever a handler does ends in one outcome of its own call, and in nothing else."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from ferrule.errors import CapabilityNotSupported, InvalidParams, PeerError, Refusal
from ferrule.protocol.call import Note
from ferrule.protocol.needs import Need, Question
from ferrule.runtime.dispatch import Dispatcher, internal, label_of, need_within
from ferrule.schema.model import EmptyResult
from ferrule.schema.tools import CallToolParams, CallToolResult

R4 = "2025-11-25"
SEAT = Question("elicitation/create", {"message": "Seat?", "mode": "form", "requestedSchema": {}}, key="seat")
MEAL = Question("elicitation/create", {"message": "Meal?", "mode": "form", "requestedSchema": {}}, key="meal")


class Odd(BaseException):
    """An exception nobody expects."""


def raising(error: BaseException) -> Any:
    async def handler(_: Any) -> Any:
        raise error

    return handler


class TestFailures:
    ERRORS = (
        ValueError("the password is hunter2"),
        KeyError("hunter2"),
        SystemExit(3),
        KeyboardInterrupt(),
        asyncio.CancelledError(),
        GeneratorExit(),
        StopIteration(),
        StopAsyncIteration(),
        Odd("hunter2"),
        TimeoutError("hunter2"),
        RecursionError("hunter2"),
        MemoryError(),
        ExceptionGroup("hunter2", [ValueError("hunter2"), KeyError("x")]),
        BaseExceptionGroup("hunter2", [SystemExit(1), asyncio.CancelledError()]),
        PeerError(-32000, "hunter2"),
    )

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    async def test_whatever_a_handler_raises_ends_its_own_call_only(
        self, linked: Any, settle: Any, error: BaseException, caplog: pytest.LogCaptureFixture
    ) -> None:
        """ERRC-05 ERRC-23 ERRC-25 JRPC-22: -32603 with a reference into our log, and nothing of what was said."""
        far = linked({"tools/call": raising(error), "prompts/get": raising(InvalidParams("no"))}).greet()
        far.call(1)
        far.ask(2, "prompts/get", name="p")
        far.ask(3, "ping")
        await settle()
        told = {m["id"]: m for m in far.take()}
        assert told.keys() == {1, 2, 3}
        assert told[1]["error"]["code"] == -32603
        assert "hunter2" not in json.dumps(told)
        reference = told[1]["error"]["data"]["reference"]
        assert reference in told[1]["error"]["message"]
        assert reference in caplog.text
        assert re.fullmatch(r"[0-9a-f]{8}", reference)
        assert told[2]["error"]["code"] == -32602
        assert not far.link.session.running

    async def test_a_refusal_is_sent_as_it_is(self, linked: Any, settle: Any) -> None:
        """ERRC-23: an error raised on purpose is the handler's answer."""
        far = linked({"tools/call": raising(Refusal("no more", {"why": "tired"}, code=1003))}).greet()
        far.call(1)
        await settle()
        assert far.take()[0]["error"] == {"code": 1003, "message": "no more", "data": {"why": "tired"}}

    async def test_relaying_a_peers_error_is_a_deed_of_its_own(self, linked: Any, settle: Any) -> None:
        """ERR-4: a peer's error does not become ours by accident, but may be handed on."""
        far = linked({"tools/call": raising(Refusal.relay(PeerError(-32602, "bad", {"x": 1})))}).greet()
        far.call(1)
        await settle()
        assert far.take()[0]["error"] == {"code": -32602, "message": "bad", "data": {"x": 1}}

    async def test_a_missing_client_capability_is_told_as_the_era_has_it(self, linked: Any, settle: Any) -> None:
        """STL-6: -32600 in the handshake era, -32021 with the object in the stateless one."""
        far = linked({"tools/call": raising(CapabilityNotSupported("sampling.tools"))}).greet()
        far.call(1)
        far.ask_modern(2, "tools/call", name="t")
        await settle()
        told = {m["id"]: m["error"] for m in far.take()}
        assert told[1]["code"] == -32600
        assert told[2]["code"] == -32021
        assert told[2]["data"] == {"requiredCapabilities": {"sampling": {"tools": {}}}}

    async def test_the_loop_going_down_still_answers(self, linked: Any, settle: Any) -> None:
        """A task cancelled by its owner, not by the peer, ends with an answer that says so."""
        started = []

        async def handler(call: Any) -> Any:
            started.append(call)
            await asyncio.sleep(1000)

        far = linked({"tools/call": handler}).greet()
        far.call(1)
        await settle()
        started[0].task.cancel()
        await settle()
        (told,) = far.take()
        assert told["error"]["code"] == -32603
        assert "shutting down" in told["error"]["message"]

    async def test_the_log_names_what_a_call_was_about_up_to_a_length(
        self, linked: Any, settle: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        far = linked({"prompts/get": raising(ValueError("no"))}).greet()
        far.ask(1, "prompts/get", name="p" * 201)
        await settle()
        assert f"prompts/get '{'p' * 200}' failed (reference" in caplog.text

    def test_references_differ_and_the_log_has_the_traceback(self, caplog: pytest.LogCaptureFixture) -> None:
        first, second = internal("x", ValueError("secret")), internal("x", ValueError("secret"))
        assert first.data != second.data
        assert "secret" not in first.message
        assert caplog.records[0].exc_info is not None
        assert caplog.records[0].levelno == logging.ERROR


class TestNeeds:
    async def asked(self, linked: Any, settle: Any, error: BaseException) -> Any:
        far = linked({"tools/call": raising(error)})
        far.ask_modern(1, "tools/call", name="t")
        await settle()
        (told,) = far.take()
        return told

    NEEDS = (
        (Need([("seat", SEAT)]), {"seat"}),
        (Need([("seat", SEAT), ("meal", MEAL)]), {"seat", "meal"}),
        (BaseExceptionGroup("g", [Need([("seat", SEAT)])]), {"seat"}),
        (BaseExceptionGroup("g", [Need([("seat", SEAT)]), Need([("meal", MEAL)])]), {"seat", "meal"}),
        (BaseExceptionGroup("g", [ValueError(), BaseExceptionGroup("h", [Need([("meal", MEAL)])])]), {"meal"}),
    )

    @pytest.mark.parametrize(("error", "keys"), NEEDS)
    async def test_a_need_becomes_a_question_also_out_of_a_task_group(
        self, linked: Any, settle: Any, error: BaseException, keys: set[str]
    ) -> None:
        """MRTR-2 spec:TOOL-21: all that is missing is asked at once."""
        told = await self.asked(linked, settle, error)
        assert told["result"]["resultType"] == "input_required"
        assert told["result"]["inputRequests"].keys() == keys

    async def test_a_real_task_group_that_asks_twice_asks_once_for_both(self, linked: Any, settle: Any) -> None:
        """MRTR-2: a Need ends the group, and what else was asked in the same turn is asked as well."""

        async def ask(call: Any, key: str, question: Question) -> None:
            call.era.ask(call, [(key, question)])

        async def handler(call: Any) -> Any:
            async with asyncio.TaskGroup() as group:
                group.create_task(ask(call, "seat", SEAT))
                group.create_task(ask(call, "meal", MEAL))

        far = linked({"tools/call": handler})
        capabilities = {"io.modelcontextprotocol/clientCapabilities": {"elicitation": {}}}
        far.ask_modern(1, "tools/call", name="t", _meta=capabilities)
        await settle()
        assert far.take()[0]["result"]["inputRequests"].keys() == {"seat", "meal"}

    async def test_a_need_cannot_be_told_in_the_handshake_era(self, linked: Any, settle: Any) -> None:
        """MRTR-1: input_required exists in the stateless era only."""
        far = linked({"tools/call": raising(Need([("seat", SEAT)]))}).greet()
        far.call(1)
        await settle()
        assert far.take()[0]["error"]["code"] == -32600

    async def test_a_state_that_was_not_issued_here_is_refused_before_the_handler_runs(
        self, linked: Any, settle: Any
    ) -> None:
        """MRTR-6: -32602."""
        ran: list[Any] = []

        async def handler(call: Any) -> Any:
            ran.append(call)
            return EmptyResult()

        far = linked({"tools/call": handler})
        far.ask_modern(1, "tools/call", name="t", requestState="AAAA")
        await settle()
        assert far.take()[0]["error"]["code"] == -32602
        assert ran == []

    def test_other_exceptions_hold_no_need(self) -> None:
        assert need_within(ValueError()) is None
        assert need_within(ExceptionGroup("g", [ValueError(), ExceptionGroup("h", [KeyError()])])) is None


class TestMiddleware:
    def layer(self, name: str, trace: list[str]) -> Any:
        async def around(call: Any, proceed: Any) -> Any:
            trace.append(f"{name} in")
            try:
                return await proceed(call)
            finally:
                trace.append(f"{name} out")

        return around

    async def test_layers_run_around_the_handler_in_their_order(self, linked: Any, settle: Any) -> None:
        trace: list[str] = []

        async def handler(_: Any) -> Any:
            trace.append("handler")
            return CallToolResult(content=[])

        layers = [self.layer("a", trace), self.layer("b", trace)]
        far = linked({"tools/call": handler}, middleware=layers).greet()
        far.call(1)
        await settle()
        assert trace == ["a in", "b in", "handler", "b out", "a out"]
        assert "result" in far.take()[0]

    async def test_layers_are_composed_once_not_for_every_call(self, linked: Any, settle: Any) -> None:
        composed = []

        class MiddlewareStack(list[Any]):
            def __reversed__(self) -> Any:
                composed.append(True)
                return super().__reversed__()

        async def handler(_: Any) -> Any:
            return CallToolResult(content=[])

        far = linked({"tools/call": handler}, middleware=MiddlewareStack([self.layer("a", [])])).greet()
        at_start = len(composed)
        assert at_start > 0
        for n in range(20):
            far.call(n)
        await settle(50)
        assert len(far.take()) == 20
        assert len(composed) == at_start

    async def test_with_layers_instant_answers_go_through_them_too(self, linked: Any, settle: Any) -> None:
        trace: list[str] = []
        far = linked(middleware=[self.layer("a", trace)]).greet()
        far.ask(1, "ping")
        await settle()
        assert trace == ["a in", "a out"]
        assert [m["result"] for m in far.take()] == [{}]

    async def test_a_layer_may_answer_by_itself_or_refuse(self, linked: Any, settle: Any) -> None:
        async def shortcut(call: Any, proceed: Any) -> Any:
            if call.id == 1:
                return EmptyResult()
            raise InvalidParams("not today")

        far = linked({"tools/call": raising(AssertionError("never reached"))}, middleware=[shortcut]).greet()
        far.call(1)
        far.call(2)
        await settle()
        told = {m["id"]: m for m in far.take()}
        assert told[1]["result"] == {}
        assert told[2]["error"]["code"] == -32602

    async def test_a_layer_that_fails_is_an_internal_error(self, linked: Any, settle: Any) -> None:
        async def broken(call: Any, proceed: Any) -> Any:
            raise ValueError("secret")

        far = linked({"tools/call": raising(AssertionError())}, middleware=[broken]).greet()
        far.call(1)
        await settle()
        assert far.take()[0]["error"]["code"] == -32603


class TestNotifications:
    async def test_each_goes_to_its_handler_in_the_order_of_arrival(self, linked: Any) -> None:
        """NOTI-12 NOTI-01: with its params as they came, and no answer."""
        told: list[Any] = []
        notes = {"n/a": lambda note: told.append(("a", bytes(note.params))), "n/b": lambda note: told.append("b")}
        far = linked(notes=notes).greet()
        far.take()
        for method in ("n/a", "n/b", "n/c", "n/b"):
            far.say(method=method, params={"x": 1})
        assert told == [("a", b'{"x": 1}'), "b", "b"]
        assert far.take() == []

    async def test_a_failing_handler_harms_nothing(self, linked: Any, caplog: pytest.LogCaptureFixture) -> None:
        """NOTI-04: it is logged, and the next message is served."""

        def fail(_: Note) -> None:
            raise ValueError("oops")

        far = linked(notes={"n/a": fail}).greet()
        far.take()
        far.say(method="n/a")
        far.ask(1, "ping")
        assert [m["id"] for m in far.take()] == [1]
        assert "n/a" in caplog.text

    async def test_malformed_params_are_a_line_without_a_traceback(
        self, linked: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """What a peer wrote is no failure of a handler."""
        far = linked(notes={"n/a": lambda note: msgspec.json.decode(note.params, type=EmptyResult)}).greet()
        far.say(method="n/a", params=[1])
        found = [record for record in caplog.records if "n/a" in record.getMessage()]
        assert [(record.levelno, record.exc_info) for record in found] == [(logging.WARNING, None)]

    async def test_one_without_a_handler_is_a_line_at_debug(
        self, linked: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """NOTI-05: and ignored."""
        far = linked().greet()
        with caplog.at_level(logging.DEBUG, logger="ferrule"):
            far.say(method="n/unknown")
        assert [r.levelno for r in caplog.records if "n/unknown" in r.message] == [logging.DEBUG]

    def test_one_handler_may_take_all_the_others(self) -> None:
        """What has no handler of its own goes there."""
        told: list[str] = []
        dispatcher = Dispatcher({}, {}, {"n/a": lambda note: None}, other_notes=lambda note: told.append(note.method))
        for method in ("n/a", "n/b"):
            dispatcher.note(Note(method, b"{}", None, None))
        assert told == ["n/b"]


def test_a_call_is_named_for_logs_by_its_tool_or_its_method_and_by_its_id() -> None:
    packing: Any = SimpleNamespace(params=CallToolParams(name="pack"), method="tools/call", id=17)
    listing: Any = SimpleNamespace(params=None, method="tools/list", id="a")
    assert label_of(packing) == "tool 'pack' (request 17)"
    assert label_of(listing) == "tools/list (request 'a')"
