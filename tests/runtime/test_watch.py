"""What a link tells its observers: order, waiting, ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from msgspec import Raw

from ferrule.errors import LinkLost
from ferrule.runtime.watch import LinkWatch, kind_of, watch_on
from ferrule.schema.model import EmptyResult
from ferrule.schema.rounds import InputRequired
from ferrule.schema.tools import CallToolResult
from ferrule.telemetry.observer import EVENTS, Observer, Observers
from ferrule.testing import run_in_virtual_time

CALL = {"name": "x", "arguments": {}}


class Recorder(Observer):
    """Keeps the events of requests."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any, str]] = []

    def note(self, event: str, request: Any, outcome: Any = None) -> None:
        """Keep one event: its name, the id of the request, and how it ended."""
        self.events.append((event.removeprefix("request_"), getattr(request, "id", None), getattr(outcome, "kind", "")))


def _noting(event: str) -> Any:
    return lambda self, *values: self.note(event, *values)


for _event in EVENTS:
    if _event.startswith("request_"):
        setattr(Recorder, _event, _noting(_event))


@pytest.fixture
def observed(linked: Callable[..., Any]) -> Callable[..., Any]:
    """Make a link with these handlers and an observer; gives the far end and the observer."""

    def make(handlers: Any = None, **options: Any) -> tuple[Any, Recorder]:
        recorder = Recorder()
        far = linked(handlers, **options)
        far.link.observe(LinkWatch(Observers([recorder]), far.link.session, "test", "server"))
        return far.greet(), recorder

    return make


def test_a_call_that_waits_for_its_turn_is_told_to_start_when_it_does(observed: Any, settle: Any) -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def wait(call: Any) -> EmptyResult:
            await gate.wait()
            return EmptyResult()

        far, recorder = observed({"tools/call": wait}, max_running=1)
        far.say(id=1, method="tools/call", params=CALL)
        far.say(id=2, method="tools/call", params=CALL)
        await settle()
        assert recorder.events == [("admitted", 1, ""), ("started", 1, ""), ("admitted", 2, "")]
        gate.set()
        await settle()
        assert recorder.events[3:] == [("finished", 1, "ok"), ("started", 2, ""), ("finished", 2, "ok")]

    run_in_virtual_time(main())


def test_a_call_that_is_cancelled_while_it_waits_for_its_turn_never_starts(observed: Any, settle: Any) -> None:
    async def main() -> None:
        async def wait(call: Any) -> EmptyResult:
            await asyncio.Event().wait()
            return EmptyResult()

        far, recorder = observed({"tools/call": wait}, max_running=1)
        far.say(id=1, method="tools/call", params=CALL)
        far.say(id=2, method="tools/call", params=CALL)
        far.say(method="notifications/cancelled", params={"requestId": 2})
        await settle()
        assert recorder.events[2:] == [("admitted", 2, ""), ("finished", 2, "cancelled")]
        far.link.close()

    run_in_virtual_time(main())


def test_a_call_whose_link_closes_is_told_once_to_be_cancelled(observed: Any, settle: Any) -> None:
    async def main() -> None:
        async def wait(call: Any) -> EmptyResult:
            await asyncio.Event().wait()
            return EmptyResult()

        far, recorder = observed({"tools/call": wait})
        far.say(id=1, method="tools/call", params=CALL)
        await settle()
        far.link.close(LinkLost("gone"))
        await settle()
        assert recorder.events == [("admitted", 1, ""), ("started", 1, ""), ("finished", 1, "cancelled")]

    run_in_virtual_time(main())


def test_a_result_that_cannot_be_written_is_told_as_the_error_it_became(observed: Any, settle: Any) -> None:
    async def main() -> None:
        async def wrong(call: Any) -> Any:
            return {"value": object()}

        far, recorder = observed({"tools/call": wrong})
        far.say(id=1, method="tools/call", params=CALL)
        await settle()
        assert far.replies(1)[0]["error"]["code"] == -32603
        assert recorder.events[-1] == ("finished", 1, "error")

    run_in_virtual_time(main())


def test_a_call_that_fails_is_told_with_its_error(observed: Any, settle: Any) -> None:
    async def main() -> None:
        async def wrong(call: Any) -> Any:
            raise RuntimeError("oh")

        far, recorder = observed({"tools/call": wrong})
        far.say(id=1, method="tools/call", params=CALL)
        await settle()
        assert recorder.events[-1] == ("finished", 1, "error")

    run_in_virtual_time(main())


def test_a_second_request_with_an_id_in_use_is_told_as_refused(observed: Any, settle: Any) -> None:
    async def main() -> None:
        async def wait(call: Any) -> EmptyResult:
            await asyncio.Event().wait()
            return EmptyResult()

        far, recorder = observed({"tools/call": wait})
        far.say(id=1, method="tools/call", params=CALL)
        far.say(id=1, method="tools/call", params=CALL)
        await settle()
        assert recorder.events == [("admitted", 1, ""), ("started", 1, ""), ("finished", 1, "refused")]
        far.link.close()

    run_in_virtual_time(main())


def test_a_long_call_is_told_to_start_like_any_other(observed: Any, settle: Any) -> None:
    async def main() -> None:
        async def done(call: Any) -> EmptyResult:
            return EmptyResult()

        far, recorder = observed({"tools/call": done})
        far.say(id=1, method="tools/call", params={"name": "x", "arguments": {"text": "a" * 100_000}})
        await settle()
        assert recorder.events == [("admitted", 1, ""), ("started", 1, ""), ("finished", 1, "ok")]

    run_in_virtual_time(main())


def test_an_initialize_inside_a_batch_is_told_as_refused(observed: Any) -> None:
    async def main() -> None:
        far, recorder = observed(allow_batch=True)
        far.say([{"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {}}])
        assert recorder.events == [("finished", 7, "refused")]

    run_in_virtual_time(main())


@pytest.mark.parametrize(("answers", "kind"), [(True, "ok"), (False, "timed_out")])
def test_keep_alive_pings_are_requests_of_ours(observed: Any, settle: Any, answers: bool, kind: str) -> None:
    async def main() -> None:
        far, recorder = observed({}, keepalive_interval=10.0, pong_timeout=5.0)
        far.link.keep_alive()
        await asyncio.sleep(11.0)
        identity = far.asked("ping")[0]["id"]
        if answers:
            far.say(id=identity, result={})
        await asyncio.sleep(6.0)
        assert recorder.events[:2] == [("sent", identity, ""), ("answered", identity, kind)]
        far.link.close()

    run_in_virtual_time(main())


def test_a_ping_that_is_under_way_when_the_link_closes_is_lost(observed: Any) -> None:
    async def main() -> None:
        far, recorder = observed({}, keepalive_interval=10.0)
        far.link.keep_alive()
        await asyncio.sleep(11.0)
        far.link.close()
        assert [event[0::2] for event in recorder.events] == [("sent", ""), ("answered", "lost")]

    run_in_virtual_time(main())


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (b'{"content":[]}', "ok"),
        (b'{"content":[],"isError":true}', "tool_error"),
        (b'{"content":[],"isError" : true}', "tool_error"),
        (b'{"content":[],"isError":false}', "ok"),
        (b'{"content":[],"isError":null}', "ok"),
        (b'{"structuredContent":{"isError":true}}', "ok"),
        (b'{"content":[{"type":"text","text":"\\"isError\\":true"}]}', "ok"),
        (b'{"resultType":"input_required","inputRequests":{}}', "input_required"),
        (b'{"resultType":"complete","note":"input_required"}', "ok"),
        (b'{"isError":"yes"}', "ok"),
        (b'"isError"', "ok"),
    ],
)
def test_a_result_tells_how_a_request_ended(result: bytes, kind: str) -> None:
    assert kind_of(Raw(result)) == kind


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (EmptyResult(), "ok"),
        (CallToolResult(content=[]), "ok"),
        (CallToolResult(content=[], is_error=True), "tool_error"),
        (InputRequired(), "input_required"),
    ],
)
def test_a_result_that_is_not_written_yet_tells_it_too(result: Any, kind: str) -> None:
    assert kind_of(result) == kind


def test_a_link_is_not_watched_for_observers_that_want_to_know_of_connections_only(linked: Any) -> None:
    class Doorkeeper(Observer):
        def connection_opened(self, connection: Any) -> None:
            """Look up."""

    async def main() -> None:
        session = linked().link.session
        assert watch_on(session, Observers([Doorkeeper()]), "test", "server") is None
        assert watch_on(session, Observers([Recorder()]), "test", "server") is not None

    asyncio.run(main())


def test_a_link_is_of_one_peer_unless_it_is_said_to_be_shared(linked: Callable[..., Any]) -> None:
    async def main() -> None:
        session = linked().link.session
        observers = Observers([Recorder()])
        assert LinkWatch(observers, session, "test", "server")._link is not None
        assert LinkWatch(observers, session, "test", "server", shared=True)._link is None

    asyncio.run(main())
