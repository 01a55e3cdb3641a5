"""An observer sees every request, whatever becomes of it, on every transport and in both eras."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from event_recorder import Recorder
from raw_wires import NAMELESS, REVISIONS, Wire, raw_wire

from ferrule import Context, Http, Server, ToolError
from ferrule.testing import ERAS
from ferrule.types import Outcome

PATIENCE = 120.0
OK, FAILS, UNKNOWN_TOOL, UNKNOWN_METHOD, BAD_PARAMS, LATE, ASKS, SLOW, BUSY = range(1, 10)


def observed_server(recorder: Recorder) -> Server:
    app = Server(
        "observed",
        observer=recorder,
        max_concurrent_per_session=1,
        max_waiting_per_session=0,
        max_concurrent=1,
        max_waiting=0,
    )

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool(timeout=0.01)
    async def late() -> str:
        await asyncio.Event().wait()
        return "never"

    @app.tool
    async def ask(ctx: Context) -> int:
        return await ctx.ask("How many?", int)

    @app.tool
    async def slow() -> str:
        await asyncio.Event().wait()
        return "never"

    return app


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


async def every_kind_of_request(wire: Wire, recorder: Recorder) -> dict[Any, Any]:
    """Send one request of each kind, and return the answers by id."""
    answers: dict[Any, Any] = {}
    for identity, method, params in (
        (OK, "tools/call", call("add", a=1, b=2)),
        (FAILS, "tools/call", call("fail")),
        (UNKNOWN_TOOL, "tools/call", call("nosuch")),
        (UNKNOWN_METHOD, "no/such", {}),
        (BAD_PARAMS, "tools/list", {"cursor": 5}),
        (LATE, "tools/call", call("late")),
    ):
        answers[identity] = await wire.ask(identity, method, params)
    if wire.era == "stateless":
        answers[ASKS] = await wire.ask(ASKS, "tools/call", call("ask"))
    answers[NAMELESS] = await wire.send_garbage(b"{bad")
    started = len(recorder.all("request_started"))
    slow = asyncio.ensure_future(wire.ask(SLOW, "tools/call", call("slow")))
    await recorder.until("request_started", started + 1)
    answers[BUSY] = await wire.ask(BUSY, "tools/call", call("slow"))
    finished = len(recorder.all("request_finished"))
    await wire.cancel(SLOW)
    await recorder.until("request_finished", finished + 1)
    slow.cancel()
    await asyncio.wait([slow])
    return answers


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["stdio", "tcp", "http", "websocket"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def seen(era: str, transport: str) -> tuple[Recorder, dict[Any, Any]]:
    """What an observer saw of one request of each kind, and how each was answered."""
    recorder = Recorder()

    async def main() -> dict[Any, Any]:
        async with raw_wire(transport, era, observed_server(recorder)) as wire:
            return await every_kind_of_request(wire, recorder)

    async def limited() -> dict[Any, Any]:
        return await asyncio.wait_for(main(), PATIENCE)

    return recorder, asyncio.run(limited())


def test_every_request_is_seen_with_its_outcome(seen: Any, era: str, transport: str) -> None:
    recorder, answers = seen
    outcomes = recorder.outcomes()
    kinds = {identity: (outcome.kind, outcome.reason) for identity, outcome in outcomes.items()}
    expected = {
        OK: ("ok", ""),
        FAILS: ("tool_error", ""),
        UNKNOWN_TOOL: ("error", "unknown_tool"),
        UNKNOWN_METHOD: ("refused", "unknown_method"),
        BAD_PARAMS: ("refused", "invalid_params"),
        LATE: ("timed_out", ""),
        BUSY: ("refused", "busy"),
        None: ("refused", "unreadable"),
        SLOW: ("cancelled", "caller"),
    }
    if era == "handshake":
        expected[0] = ("ok", "")
    else:
        expected[ASKS] = ("input_required", "")
    assert kinds == expected
    for identity, answer in answers.items():
        told = outcomes[None if identity == NAMELESS else identity]
        assert told.code == answer.get("error", {}).get("code"), "an observer hears what the peer hears"
        assert told.message == answer.get("error", {}).get("message", "")
        if "result" in answer:
            assert told.size == len(json.dumps(answer["result"], separators=(",", ":")))


def test_each_request_is_told_of_from_its_beginning_to_its_end(seen: Any) -> None:
    recorder, _ = seen
    whole = ["admitted", "started", "finished", "recorded"]
    for identity in (OK, FAILS, UNKNOWN_TOOL, LATE, SLOW):
        assert recorder.story(identity) == whole
        request = recorder.request(identity)
        assert request.began <= request.started <= request.ended
        assert request.seconds == request.ended - request.began
    assert recorder.story(BUSY) == ["admitted", "finished", "recorded"]
    for identity in (UNKNOWN_METHOD, BAD_PARAMS):
        assert recorder.story(identity) == ["finished", "recorded"]


def test_a_request_says_what_it_is(seen: Any, era: str, transport: str) -> None:
    recorder, _ = seen
    request = recorder.request(OK)
    assert (request.method, request.name) == ("tools/call", "add")
    assert request.size > len('{"name":"add"}')
    for identity in (OK, UNKNOWN_METHOD, BAD_PARAMS, BUSY):
        assert recorder.request(identity).revision == REVISIONS[era]
    assert (recorder.request(None).method, recorder.request(None).name) == ("", "")
    told_otherwise = era == "handshake" or transport == "http"  # by what was agreed, or by a header
    assert recorder.request(None).revision == (REVISIONS[era] if told_otherwise else "")
    assert {request.transport for request in recorder.all("request_finished")} == {transport}
    assert (b"protocolVersion" in request.meta) is (era == "stateless")
    has_link = era == "handshake" or transport != "http"
    assert all((request.link is not None) is has_link for request in recorder.all("request_finished"))


def test_links_and_connections_are_seen_to_open_and_to_close(seen: Any, era: str, transport: str) -> None:
    recorder, _ = seen
    links = recorder.all("link_opened")
    if era == "stateless" and transport == "http":
        assert links == []
    else:
        assert [(link.side, link.transport) for link in links] == [("server", transport)]
        assert recorder.all("link_closed") == links
        assert links[0].opened <= links[0].closed
    if links and transport != "stdio":
        assert links[0].address.startswith("127.0.0.1")
    if era == "handshake":
        assert (links[0].revision, links[0].peer) == (REVISIONS[era], "raw")
    opened = recorder.all("connection_opened")
    assert sorted(map(id, recorder.all("connection_closed"))) == sorted(map(id, opened))
    assert all(connection.opened <= connection.closed for connection in opened)
    kinds = {connection.transport for connection in opened}
    assert kinds == {"stdio": set(), "tcp": {"tcp"}, "http": {"http"}, "websocket": {"http", "websocket"}}[transport]


def test_exchanges_are_seen_with_status_and_bytes(seen: Any, era: str, transport: str) -> None:
    recorder, _ = seen
    exchanges = recorder.all("exchange_finished")
    if transport == "websocket":
        assert [(exchange.method, exchange.status) for exchange in exchanges] == [("GET", 101)]
    elif transport == "http":
        statuses = [exchange.status for exchange in exchanges if exchange.status]
        requests = len(recorder.all("request_finished")) + len(recorder.all("notification_received"))
        assert len(exchanges) == requests
        assert statuses.count(200) >= 3
        assert all(exchange.path == "/mcp" and exchange.received > 0 for exchange in exchanges)
        assert all(exchange.sent > 100 for exchange in exchanges if exchange.status)
    else:
        assert exchanges == []


def test_notifications_are_seen(seen: Any, era: str, transport: str) -> None:
    recorder, _ = seen
    methods = [notification.method for notification in recorder.all("notification_received")]
    expected = ["notifications/initialized"] if era == "handshake" else []
    if (era, transport) != ("stateless", "http"):  # there a request is cancelled by leaving
        expected.append("notifications/cancelled")
    assert methods == expected


@pytest.mark.parametrize("headers", [{"Mcp-Method": "tools/list"}, {}], ids=["wrong", "missing"])
def test_a_request_whose_headers_contradict_it_is_seen_too(headers: dict[str, str]) -> None:
    recorder = Recorder()

    async def main() -> Any:
        async with raw_wire("http", "stateless", observed_server(recorder)) as wire:
            body = json.dumps(wire.request(5, "tools/call", call("add", a=1, b=1))).encode()
            return await wire.post(5, body, headers)  # type: ignore[attr-defined]

    answer = asyncio.run(main())
    outcome = recorder.outcomes()[5]
    assert outcome == Outcome(kind="refused", code=-32020, reason="header_mismatch", message=answer["error"]["message"])
    assert (recorder.request(5).method, recorder.request(5).revision) == ("tools/call", REVISIONS["stateless"])


def test_what_cannot_be_read_before_there_is_a_session_is_seen_too() -> None:
    recorder = Recorder()

    async def main() -> Any:
        async with raw_wire("http", "stateless", observed_server(recorder)) as wire:
            wire.era = "handshake"
            return await wire.send_garbage(b"{bad")

    answer = asyncio.run(main())
    assert answer["error"]["code"] == -32700
    assert recorder.outcomes()[None].reason == "unreadable"


def test_what_is_no_http_is_seen_as_an_exchange_of_nothing() -> None:
    recorder = Recorder()

    async def main() -> tuple[bytes, float, float]:
        app = observed_server(recorder)
        listener = Http(port=0)
        ready = asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await asyncio.wait_for(ready.wait(), PATIENCE)
        before = time.monotonic()
        reader, writer = await asyncio.open_connection("127.0.0.1", listener.address[1])
        writer.write(b"what?\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), PATIENCE)
        after = time.monotonic()
        writer.close()
        await app.stop(5.0)
        await serving
        return answer, before, after

    answer, before, after = asyncio.run(main())
    assert answer.startswith(b"HTTP/1.1 400 ")
    (exchange,) = recorder.all("exchange_finished")
    assert (exchange.method, exchange.path, exchange.status, exchange.address) == ("", "", 400, "127.0.0.1")
    assert (exchange.received, exchange.sent) == (0, 0)
    assert before <= exchange.began <= exchange.ended <= after
    (connection,) = recorder.all("connection_opened")
    assert (connection.transport, connection.address) == ("http", "127.0.0.1")
