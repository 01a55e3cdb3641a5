"""Traces: which requests become spans, how they hang together, and what is passed on."""

from __future__ import annotations

import asyncio
import builtins
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry import baggage, trace
from opentelemetry.context import attach, detach
from opentelemetry.trace import SpanKind, StatusCode
from raw_wires import INITIALIZE, META, serving
from span_recorder import STAGES, SpanRecorder, attributes, parent_id, span_id, stages, trace_id

from ferrule import Client, Context, Http, PeerError, Server, SetupError, Tcp, ToolError, Tracing, Unix, WebSocket
from ferrule.routing.router import Router
from ferrule.telemetry.tracer import tracer_of
from ferrule.testing import ERAS

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
SAMPLED = f"00-{TRACE}-{SPAN}-01"
UNSAMPLED = f"00-{TRACE}-{SPAN}-00"


@pytest.fixture
def recorder() -> SpanRecorder:
    return SpanRecorder()


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> Any:
    return request.param


def new_app(**options: Any) -> Server:
    """Return a server whose tools end in every way, and one tells what its caller said of the trace."""
    app = Server("traced", **options)

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    @app.tool
    async def fail() -> str:
        raise ToolError("no")

    @app.tool
    async def ask(ctx: Context) -> int:
        return await ctx.ask("How many?", int)

    @app.tool
    async def said(ctx: Context) -> dict[str, str]:
        found = ctx.meta or {}
        return {key: found[key] for key in ("traceparent", "tracestate", "baggage") if key in found}

    @app.tool
    def current_in_a_thread() -> str:
        return trace.format_span_id(trace.get_current_span().get_span_context().span_id)

    return app


def front_of(target: Any, recorder: SpanRecorder, era: Any, **options: Any) -> Server:
    """Return a server whose tools call another server, through a router or a client."""
    app = Server("front", tracing=recorder.tracing(**options))

    @app.tool
    async def routed(a: int) -> int:
        async with Router([target], mode=era, tracing=recorder.tracing(**options)) as router:
            result = await router.call_tool("add", {"a": a, "b": 1})
            return int(result.data)

    @app.tool
    async def relayed() -> dict[str, str]:
        async with Client(target, mode=era, tracing=recorder.tracing(**options)) as client:
            found: dict[str, str] = (await client.call_tool("said")).data
            return found

    return app


# -- one trace


def test_one_trace_goes_through_client_router_and_server(recorder: SpanRecorder, era: Any) -> None:
    """OBSV-02 OBSV-09 seed:TOOL-19"""

    async def main() -> None:
        back = new_app(tracing=recorder.tracing())
        async with Client(front_of(back, recorder, era), mode=era, tracing=recorder.tracing()) as client:
            with recorder.tracer.start_as_current_span("user"):
                assert (await client.call_tool("routed", {"a": 1})).data == 2
            outer = await recorder.one("tools/call routed", SpanKind.SERVER)
            asked = await recorder.one("tools/call routed", SpanKind.CLIENT)
            user = await recorder.one("user")
            inner_asked = await recorder.one("tools/call add", SpanKind.CLIENT)
            inner = await recorder.one("tools/call add", SpanKind.SERVER)
        chain = [user, asked, outer, inner_asked, inner]
        assert len({trace_id(span) for span in chain}) == 1
        for parent, child in itertools.pairwise(chain):
            assert parent_id(child) == span_id(parent)

    asyncio.run(main())


SERVER_PROGRAM = """
import sys
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor
from ferrule import Server

provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=open(sys.argv[1], "w"))))
trace.set_tracer_provider(provider)
app = Server("far")  # OTEL_TRACES_EXPORTER switches the traces on

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

app.run("http", port=0)
"""


@contextmanager
def far_server(folder: Path) -> Iterator[tuple[str, Path]]:
    """Run a server over HTTP in a process of its own; yields its URL and the file its spans are written to."""
    program = folder / "far.py"
    program.write_text(SERVER_PROGRAM)
    written = folder / "spans.json"
    environment = {**os.environ, "OTEL_TRACES_EXPORTER": "console"}
    with subprocess.Popen(
        [sys.executable, str(program), str(written)], stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert " at http" in line, line
            yield line.split(" at ")[1].split(". ")[0].strip(), written
        finally:
            process.terminate()


def spans_in(path: Path) -> list[dict[str, Any]]:
    """Return the spans that were written one after another as JSON."""
    found = []
    text = path.read_text()
    decoder = json.JSONDecoder()
    at = 0
    while at < len(text):
        span, at = decoder.raw_decode(text, at)
        found.append(span)
        while text[at : at + 1].isspace():
            at += 1
    return found


def test_one_trace_goes_into_another_process_over_http(tmp_path: Path) -> None:
    """OBSV-02 OBSV-09"""
    recorder = SpanRecorder()

    async def main(url: str) -> None:
        for era in ERAS:
            async with Client(front_of(url, recorder, era), mode=era, tracing=recorder.tracing()) as client:
                assert (await client.call_tool("routed", {"a": 1})).data == 2

    with far_server(tmp_path) as (url, written):
        asyncio.run(main(url))
    asked = {span_id(span): span for span in recorder.named("tools/call add", SpanKind.CLIENT)}
    served = [span for span in spans_in(written) if span["name"] == "tools/call add"]
    assert len(asked) == len(served) == 2
    for span in served:
        assert span["kind"] == "SpanKind.SERVER"
        parent = asked[int(span["parent_id"], 16)]
        assert int(span["context"]["trace_id"], 16) == trace_id(parent)
        assert [event["name"] for event in span["events"]] == STAGES


@pytest.mark.parametrize("transport", ["memory", "tcp", "unix", "http", "websocket"])
def test_a_span_shows_the_six_stages_of_a_request_on_every_transport(
    recorder: SpanRecorder, era: Any, transport: str, tmp_path: Path
) -> None:
    """JRPC-25 seed:TOOL-19"""
    app = new_app(tracing=recorder.tracing())

    async def use(target: Any) -> None:
        async with Client(target, mode=era) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    async def main() -> None:
        if transport == "memory":
            await use(app)
        elif transport == "unix":
            async with serving(app, Unix(f"{tmp_path}/s")):
                await use(f"unix:{tmp_path}/s")
        else:
            listener: Any = {"tcp": Tcp, "http": Http, "websocket": WebSocket}[transport](port=0)
            url = {
                "tcp": "tcp://127.0.0.1:{}",
                "http": "http://127.0.0.1:{}/mcp",
                "websocket": "ws://127.0.0.1:{}/mcp/ws",
            }
            async with serving(app, listener):
                await use(url[transport].format(listener.address[1]))
        span = await recorder.one("tools/call add")
        assert stages(span) == STAGES
        times = [event.timestamp for event in span.events]
        assert times == sorted(times)
        assert span.start_time == times[0]
        assert span.end_time is not None
        assert span.end_time >= times[-1]
        found = attributes(span)
        networks = {"memory": "memory", "unix": "unix"}
        assert found["network.transport"] == networks.get(transport, "tcp")
        assert found.get("network.protocol.name") == (transport if transport in ("http", "websocket") else None)
        assert found["ferrule.era"] == era

    asyncio.run(main())


def test_a_span_begins_when_its_frame_came(recorder: SpanRecorder, era: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.runtime.link.time_ns", lambda: 1000)
    app = new_app(tracing=recorder.tracing())
    listener = Tcp(port=0)

    async def main() -> None:
        async with serving(app, listener), Client(f"tcp://127.0.0.1:{listener.address[1]}", mode=era) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
        assert (await recorder.one("tools/call add")).start_time == 1000

    asyncio.run(main())


def test_the_handlers_of_a_traced_call_run_inside_its_span_also_in_a_thread(recorder: SpanRecorder, era: Any) -> None:
    """OBSV-02"""

    async def main() -> None:
        async with Client(new_app(tracing=recorder.tracing()), mode=era) as client:
            inside = (await client.call_tool("current_in_a_thread")).data
            assert inside == trace.format_span_id(span_id(await recorder.one("tools/call current_in_a_thread")))

    asyncio.run(main())


def test_a_question_of_the_server_is_a_span_of_both_sides(recorder: SpanRecorder) -> None:
    """OBSV-02"""

    async def user(question: Any) -> dict[str, int]:
        return {"value": 7}

    async def main() -> None:
        app = new_app(tracing=recorder.tracing())
        async with Client(app, mode="handshake", tracing=recorder.tracing(), elicitation=user) as client:
            assert (await client.call_tool("ask")).data == 7
            asked = await recorder.one("elicitation/create", SpanKind.CLIENT)
            answered = await recorder.one("elicitation/create", SpanKind.SERVER)
            call = await recorder.one("tools/call ask", SpanKind.SERVER)
        assert parent_id(asked) == span_id(call)
        assert parent_id(answered) == span_id(asked)

    asyncio.run(main())


def test_the_spans_of_a_call_that_asks_say_which_round_they_are(recorder: SpanRecorder) -> None:
    """Without a session each question ends a round; a call that asks nothing has none."""

    async def user(question: Any) -> dict[str, int]:
        return {"value": 7}

    async def main() -> None:
        app = new_app(tracing=recorder.tracing())

        @app.tool
        async def ask_twice(ctx: Context) -> int:
            first: int = await ctx.ask("How many?", int)
            return first + await ctx.ask("And then?", int)

        async with Client(app, mode="stateless", tracing=recorder.tracing(), elicitation=user) as client:
            assert (await client.call_tool("ask_twice")).data == 14
            await client.call_tool("add", {"a": 1, "b": 2})
            await recorder.one("tools/call add", SpanKind.SERVER)

    asyncio.run(main())
    for kind in (SpanKind.CLIENT, SpanKind.SERVER):
        spans = recorder.named("tools/call ask_twice", kind)
        assert [attributes(span).get("ferrule.round") for span in spans] == [1, 2, 3]
        [plain] = recorder.named("tools/call add", kind)
        assert "ferrule.round" not in attributes(plain)


def test_the_requests_of_a_batch_are_spans(recorder: SpanRecorder) -> None:
    async def main() -> None:
        app = new_app(tracing=recorder.tracing(), allow_batch=True)
        async with Client(app, mode="handshake", tracing=recorder.tracing(), allow_batch=True) as client:
            async with client.batch() as batch:
                answer = batch.request("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}})
            await answer
            asked = await recorder.one("tools/call add", SpanKind.CLIENT)
            served = await recorder.one("tools/call add", SpanKind.SERVER)
        assert parent_id(served) == span_id(asked)

    asyncio.run(main())


# -- which requests are sampled


def request_with(meta: dict[str, Any], tool: str = "add", era: Any = "stateless") -> dict[str, Any]:
    """Return a call whose `_meta` says this."""
    if era == "stateless":
        meta = {**META, **meta}
    params = {"name": tool, "arguments": {"a": 1, "b": 2} if tool == "add" else {}, "_meta": meta}
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


async def post(app: Server, meta: dict[str, Any], headers: dict[str, str], tool: str = "add") -> Any:
    """Send one call over HTTP, as ASGI."""
    transport = httpx.ASGITransport(app=app.asgi("/mcp"))  # type: ignore[arg-type]
    given = {"accept": "application/json, text/event-stream", "mcp-method": "tools/call", "mcp-name": tool}
    given["mcp-protocol-version"] = META["io.modelcontextprotocol/protocolVersion"]
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        answer = await http.post("/mcp", json=request_with(meta, tool), headers=given | headers)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]


@pytest.mark.parametrize(
    ("meta", "headers", "sampled", "parent"),
    [
        ({"traceparent": SAMPLED}, {}, True, SPAN),
        ({"traceparent": UNSAMPLED}, {}, False, ""),
        ({}, {"traceparent": SAMPLED}, True, SPAN),
        ({}, {"traceparent": UNSAMPLED}, False, ""),
        ({"traceparent": SAMPLED}, {"traceparent": f"00-{TRACE}-{'1' * 16}-00"}, True, SPAN),
        ({"traceparent": UNSAMPLED}, {"traceparent": SAMPLED}, False, ""),
        ({"traceparent": "malformed"}, {"traceparent": SAMPLED}, True, SPAN),
        ({"traceparent": 5, "tracestate": [], "baggage": {}}, {}, False, ""),
        ({}, {"traceparent": "malformed"}, False, ""),
    ],
)
def test_meta_decides_before_the_header_and_malformed_ones_are_ignored(
    recorder: SpanRecorder, meta: dict[str, Any], headers: dict[str, str], sampled: bool, parent: str
) -> None:
    """META-7"""

    async def main() -> None:
        app = new_app(tracing=recorder.tracing(ratio=0))
        assert (await post(app, meta, headers))["structuredContent"] == {"result": 3}
        await asyncio.sleep(0)
        spans = recorder.named("tools/call add")
        assert len(spans) == sampled
        if sampled:
            assert parent_id(spans[0]) == int(parent, 16)
            assert trace_id(spans[0]) == int(TRACE, 16)

    asyncio.run(main())


class ForbiddenProvider(trace.TracerProvider):
    """Nobody may ask it for a tracer."""

    def get_tracer(self, *values: Any, **options: Any) -> trace.Tracer:
        raise AssertionError("a request that is not sampled asked for a tracer")


def test_a_request_that_is_not_sampled_makes_no_span_and_asks_nobody(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        tracing = Tracing(ratio=0, provider=ForbiddenProvider())
        async with Client(new_app(tracing=tracing), tracing=tracing) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    asyncio.run(main())
    assert not caplog.records


def test_what_a_request_says_is_passed_on_though_it_is_not_sampled(recorder: SpanRecorder, era: Any) -> None:
    """OBSV-09"""
    carried = {"traceparent": UNSAMPLED, "tracestate": "a=1", "baggage": "user=ada"}

    async def main() -> None:
        async with Client(front_of(new_app(), recorder, era), mode=era) as client:
            result = await client.call_tool("relayed", meta=dict(carried))
            assert result.data == carried
            assert (await client.call_tool("relayed", meta={"baggage": "user=ada"})).data["baggage"] == "user=ada"

    asyncio.run(main())
    assert [span for span in recorder.spans if trace_id(span) == int(TRACE, 16)] == []


def test_a_sampled_request_passes_its_own_span_on_with_state_and_baggage(recorder: SpanRecorder, era: Any) -> None:
    """OBSV-09"""

    async def main() -> None:
        async with Client(front_of(new_app(), recorder, era, ratio=0), mode=era) as client:
            given = {"traceparent": SAMPLED, "tracestate": "a=1", "baggage": "user=ada"}
            told = (await client.call_tool("relayed", meta=given)).data
            asked = await recorder.one("tools/call said", SpanKind.CLIENT)
        assert told["traceparent"] == f"00-{TRACE}-{trace.format_span_id(span_id(asked))}-01"
        assert told["tracestate"] == "a=1"
        assert told["baggage"] == "user=ada"

    asyncio.run(main())


def test_a_client_without_a_current_span_continues_the_trace_it_is_given(recorder: SpanRecorder) -> None:
    """OBSV-09"""

    async def main() -> None:
        async with Client(new_app(), tracing=recorder.tracing(ratio=0)) as client:
            told = (await client.call_tool("said", meta={"traceparent": SAMPLED})).data
            asked = await recorder.one("tools/call said", SpanKind.CLIENT)
            assert parent_id(asked) == int(SPAN, 16)
            assert told["traceparent"] == f"00-{TRACE}-{trace.format_span_id(span_id(asked))}-01"
            assert (await client.call_tool("said", meta={"traceparent": UNSAMPLED})).data["traceparent"] == UNSAMPLED
            assert (await client.call_tool("said")).data == {}

    asyncio.run(main())


def test_a_span_that_is_not_recorded_is_passed_on_as_such(recorder: SpanRecorder) -> None:
    parent = trace.NonRecordingSpan(trace.SpanContext(int(TRACE, 16), int(SPAN, 16), False))

    async def main() -> None:
        async with Client(new_app(), tracing=recorder.tracing()) as client:
            with trace.use_span(parent):
                assert (await client.call_tool("said")).data == {"traceparent": UNSAMPLED}

    asyncio.run(main())
    assert recorder.named("tools/call said") == []


def test_baggage_of_the_program_goes_with_its_spans(recorder: SpanRecorder) -> None:
    """OBSV-09"""

    async def main() -> None:
        async with Client(new_app(), tracing=recorder.tracing()) as client:
            token = attach(baggage.set_baggage("user", "ada"))
            try:
                assert (await client.call_tool("said")).data["baggage"] == "user=ada"
            finally:
                detach(token)

    asyncio.run(main())


@pytest.mark.parametrize(("ratio", "count"), [(0, 0), (1, 2)])
def test_callers_that_are_not_followed_decide_nothing(recorder: SpanRecorder, ratio: float, count: int) -> None:
    async def main() -> None:
        app = new_app(tracing=recorder.tracing(ratio=ratio, follow_callers=False))
        async with Client(app) as client:
            for flag in (SAMPLED, UNSAMPLED):
                await client.call_tool("add", {"a": 1, "b": 2}, meta={"traceparent": flag})
            await asyncio.sleep(0)

    asyncio.run(main())
    spans = recorder.named("tools/call add")
    assert [trace_id(span) for span in spans] == [int(TRACE, 16)] * count


@pytest.mark.parametrize("ratio", [0.0, 0.25, 1.0])
def test_the_ratio_says_how_many_traces_begin_here(recorder: SpanRecorder, ratio: float) -> None:
    async def main() -> None:
        async with Client(new_app(tracing=recorder.tracing(ratio=ratio))) as client:
            for _ in range(400):
                await client.call_tool("add", {"a": 1, "b": 2})
            await asyncio.sleep(0)

    asyncio.run(main())
    count = len(recorder.named("tools/call add"))
    assert 400 * ratio - 60 <= count <= 400 * ratio + 60
    assert ratio == 0.25 or count == 400 * ratio


def test_spans_of_the_program_are_not_recorded_inside_a_request_that_is_not(recorder: SpanRecorder, era: Any) -> None:
    app = Server("traced", tracing=recorder.tracing(ratio=0))

    @app.tool
    async def work() -> bool:
        with recorder.tracer.start_as_current_span("inner") as span:
            return span.is_recording()

    async def main() -> None:
        async with Client(app, mode=era) as client:
            assert (await client.call_tool("work")).data is False
            assert (await client.call_tool("work", meta={"traceparent": UNSAMPLED})).data is False
            assert (await client.call_tool("work", meta={"traceparent": SAMPLED})).data is True

    asyncio.run(main())


# -- HTTP servers with spans of their own


def test_the_span_of_the_http_server_is_a_link_beside_the_parent_of_meta(recorder: SpanRecorder) -> None:
    async def main() -> None:
        app = new_app(tracing=recorder.tracing(ratio=0))
        with recorder.tracer.start_as_current_span("POST /mcp", kind=SpanKind.SERVER) as outer:
            await post(app, {"traceparent": SAMPLED}, {})
            await asyncio.sleep(0)
        span = await recorder.one("tools/call add")
        assert parent_id(span) == int(SPAN, 16)
        assert [link.context.span_id for link in span.links] == [outer.get_span_context().span_id]

    asyncio.run(main())


def test_without_a_parent_in_meta_the_span_of_the_http_server_is_the_parent(recorder: SpanRecorder) -> None:
    async def main() -> None:
        app = new_app(tracing=recorder.tracing(ratio=0))
        with recorder.tracer.start_as_current_span("POST /mcp", kind=SpanKind.SERVER) as outer:
            await post(app, {}, {"traceparent": SAMPLED})
            await asyncio.sleep(0)
        span = await recorder.one("tools/call add")
        assert parent_id(span) == outer.get_span_context().span_id
        assert span.links == ()

    asyncio.run(main())


def test_a_span_around_the_whole_server_is_no_parent_of_its_requests(recorder: SpanRecorder) -> None:
    async def main() -> None:
        app = new_app(tracing=recorder.tracing())
        listener = Http(port=0)
        with recorder.tracer.start_as_current_span("main"):
            async with serving(app, listener):
                async with Client(f"http://127.0.0.1:{listener.address[1]}/mcp", mode="stateless") as client:
                    await client.call_tool("add", {"a": 1, "b": 2})
                span = await recorder.one("tools/call add")
        assert parent_id(span) is None
        assert span.links == ()

    asyncio.run(main())


# -- how requests end


@pytest.mark.parametrize(
    ("tool", "name", "kind", "description"),
    [
        ("add", "tools/call add", None, None),
        ("fail", "tools/call fail", "tool_error", None),
        ("nosuch", "tools/call", "-32602", "Unknown tool: nosuch"),
    ],
)
def test_a_span_says_how_its_request_ended(
    recorder: SpanRecorder, era: Any, tool: str, name: str, kind: str | None, description: str | None
) -> None:
    async def main() -> None:
        async with Client(new_app(tracing=recorder.tracing()), mode=era) as client:
            try:
                await client.call_tool(tool, {"a": 1, "b": 2} if tool == "add" else {})
            except (PeerError, ToolError):
                assert kind
            span = await recorder.one(name)
        assert attributes(span).get("error.type") == kind
        assert (span.status.status_code is StatusCode.ERROR) == bool(kind)
        assert span.status.description == description
        assert attributes(span).get("rpc.response.status_code") == (kind if description else None)

    asyncio.run(main())


def test_a_request_that_is_refused_before_it_runs_is_a_span_with_its_error(recorder: SpanRecorder, era: Any) -> None:
    async def main() -> None:
        async with Client(new_app(tracing=recorder.tracing()), mode=era, strict=False) as client:
            with pytest.raises(PeerError):
                await client.request("no/such", {"_meta": {"traceparent": SAMPLED}})
            span = await recorder.one("no/such")
        assert attributes(span)["error.type"] == "-32601"
        assert trace_id(span) == int(TRACE, 16)
        assert span.status.status_code is StatusCode.ERROR

    asyncio.run(main())


def test_a_cancelled_call_ends_its_span(recorder: SpanRecorder, era: Any) -> None:
    app = Server("traced", tracing=recorder.tracing())
    running = asyncio.Event()

    @app.tool
    async def wait() -> None:
        running.set()
        await asyncio.Event().wait()

    async def main() -> None:
        async with Client(app, mode=era, tracing=recorder.tracing()) as client:
            call = asyncio.ensure_future(client.call_tool("wait"))
            await running.wait()
            call.cancel()
            for kind in (SpanKind.CLIENT, SpanKind.SERVER):
                span = await recorder.one("tools/call wait", kind)
                assert attributes(span)["error.type"] == "cancelled"

    asyncio.run(main())


def test_contents_are_shown_only_where_that_is_asked_for(recorder: SpanRecorder) -> None:
    async def main(**options: Any) -> dict[str, Any]:
        recorder.clear()
        async with Client(new_app(tracing=recorder.tracing(**options))) as client:
            await client.call_tool("add", {"a": 1, "b": 2})
            return attributes(await recorder.one("tools/call add"))

    shown = asyncio.run(main(contents=True))
    assert json.loads(shown["gen_ai.tool.call.arguments"]) == {"a": 1, "b": 2}
    assert json.loads(shown["gen_ai.tool.call.result"])["structuredContent"] == {"result": 3}
    assert not [name for name in asyncio.run(main()) if name.startswith("gen_ai.tool.call")]


def test_a_span_shows_eight_characters_of_a_session_unless_it_may_show_all(recorder: SpanRecorder) -> None:
    """SES-12"""

    async def main(**options: Any) -> tuple[str, str]:
        recorder.clear()
        app = new_app(tracing=recorder.tracing(**options))
        listener = Http(port=0)
        async with serving(app, listener), httpx.AsyncClient() as http:
            url = f"http://127.0.0.1:{listener.address[1]}/mcp"
            headers = {"accept": "application/json, text/event-stream"}
            opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
            answer = await http.post(url, json=opening, headers=headers)
            session = answer.headers["mcp-session-id"]
            headers["mcp-session-id"] = session
            await http.post(url, json=request_with({}, era="handshake"), headers=headers)
            return session, attributes(await recorder.one("tools/call add"))["mcp.session.id"]

    session, shown = asyncio.run(main())
    assert shown == session[:8] != session
    session, shown = asyncio.run(main(full_session_ids=True))
    assert shown == session


@pytest.mark.parametrize("mode", ERAS)
def test_the_spans_of_a_client_show_eight_characters_of_its_session(recorder: SpanRecorder, mode: Any) -> None:
    """SES-12"""

    async def main() -> None:
        listener = Http(port=0)
        async with serving(new_app(), listener):
            url = f"http://127.0.0.1:{listener.address[1]}/mcp"
            async with Client(url, mode=mode, tracing=recorder.tracing(full_session_ids=True)) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
        shown = attributes(await recorder.one("tools/call add"))
        assert shown["network.protocol.version"] == "1.1"
        if mode == "handshake":
            assert len(shown["mcp.session.id"]) == 8
        else:
            assert "mcp.session.id" not in shown

    asyncio.run(main())


@pytest.mark.parametrize("mode", ERAS)
def test_the_span_of_a_routed_call_names_upstream_replica_and_attempt(recorder: SpanRecorder, mode: Any) -> None:
    async def main() -> None:
        options = {"mode": mode, "tracing": recorder.tracing(), "upstream": "sums"}
        async with Client([new_app(), new_app()], **options, balance="round_robin") as client:
            for _ in range(2):
                await client.call_tool("add", {"a": 1, "b": 2})
        found = [attributes(span) for span in recorder.named("tools/call add", SpanKind.CLIENT)]
        assert [each["ferrule.upstream"] for each in found] == ["sums", "sums"]
        assert sorted(each["ferrule.replica"] for each in found) == ["0", "1"]
        assert [each["ferrule.attempt"] for each in found] == [1, 1]

    asyncio.run(main())


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("http2", [False, True])
def test_the_span_of_a_request_over_http_names_the_version_of_http(
    recorder: SpanRecorder, era: Any, *, http2: bool
) -> None:
    async def main() -> None:
        listener = Http(port=0, http2=True)
        async with serving(new_app(tracing=recorder.tracing()), listener):
            async with httpx.AsyncClient(http1=not http2, http2=http2) as http:
                url = f"http://127.0.0.1:{listener.address[1]}/mcp"
                headers = {"accept": "application/json, text/event-stream"}
                if era == "handshake":
                    opening = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INITIALIZE}
                    answer = await http.post(url, json=opening, headers=headers)
                    headers["mcp-session-id"] = answer.headers["mcp-session-id"]
                else:
                    headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "add"}
                await http.post(url, json=request_with({}, era=era), headers=headers)
            span = await recorder.one("tools/call add")
        assert attributes(span)["network.protocol.version"] == ("2" if http2 else "1.1")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("headers", "status", "error"),
    [
        ({"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list"}, 400, "-32020"),
        ({"mcp-session-id": "nobody-has-this-one"}, 404, "-32600"),
        ({}, 400, "-32600"),
    ],
)
def test_a_request_that_the_http_endpoint_refuses_is_a_span(
    recorder: SpanRecorder, headers: dict[str, str], status: int, error: str
) -> None:
    """Its headers say something else than its body; its session is not there; it names none."""

    async def main() -> None:
        listener = Http(port=0)
        era = "stateless" if "mcp-method" in headers else "handshake"
        async with serving(new_app(tracing=recorder.tracing()), listener), httpx.AsyncClient() as http:
            url = f"http://127.0.0.1:{listener.address[1]}/mcp"
            accepted = {"accept": "application/json, text/event-stream", **headers}
            asked = request_with({"traceparent": SAMPLED}, era=era)
            answer = await http.post(url, json=asked, headers=accepted)
            assert answer.status_code == status
            span = await recorder.one("tools/call")
        assert trace_id(span) == int(TRACE, 16)
        assert attributes(span)["error.type"] == error
        assert span.status.status_code is StatusCode.ERROR

    asyncio.run(main())


# -- switching it on


def test_a_processor_that_fails_breaks_no_call(recorder: SpanRecorder, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError("broken provider")

        def get_tracer(self, *values: Any, **options: Any) -> Any:
            return self

    async def main() -> None:
        tracing = Tracing(provider=Broken())
        async with Client(new_app(tracing=tracing), tracing=tracing) as client:
            for _ in range(5):
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    asyncio.run(main())
    told = [record.getMessage() for record in caplog.records if record.name == "ferrule.observer"]
    assert len(told) == 2
    assert "an observer failed in tracing" in told[0]


@pytest.mark.parametrize(
    ("variables", "on"),
    [
        ({}, False),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, True),
        ({"OTEL_TRACES_EXPORTER": "none"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4317"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4317", "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_an_exporter_in_the_environment_switches_traces_on(
    variables: dict[str, str], on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    server, client = Server("traced"), Client(Server("far"))
    observer = server.host.observer
    assert (observer is not None and observer.tracer is not None) == on
    assert (client.settings.observers is not None) == on
    assert Server("traced", tracing=False).host.observer is None


def test_without_a_provider_of_spans_requests_go_on_and_pass_their_trace_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", None)

    async def main() -> None:
        app = Server("front", tracing=True)

        @app.tool
        async def relayed() -> dict[str, str]:
            async with Client(new_app(), tracing=True) as client:
                found: dict[str, str] = (await client.call_tool("said")).data
                return found

        async with Client(app) as client:
            assert (await client.call_tool("relayed", meta={"traceparent": SAMPLED})).data == {"traceparent": SAMPLED}

    asyncio.run(main())


def test_without_the_api_of_opentelemetry_tracing_is_refused_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = builtins.__import__

    def missing(name: str, *values: Any, **options: Any) -> Any:
        if name.startswith("opentelemetry"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *values, **options)

    monkeypatch.delitem(sys.modules, "ferrule.telemetry.request_span", raising=False)
    monkeypatch.setattr(builtins, "__import__", missing)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    assert Server("traced").host.observer is None
    with pytest.raises(SetupError, match=r"pip install 'ferrule\[otel\]'"):
        Server("traced", tracing=True)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("yes", "tracing must be True, False or Tracing"),
        ({"ration": 1}, "ration"),
        ({"ratio": 2}, "ratio must be from 0 to 1, not 2"),
        ({"ratio": True}, "ratio must be from 0 to 1"),
        ({"ratio": "1"}, "ratio must be from 0 to 1"),
        ({"provider": 5}, "provider must be an OpenTelemetry TracerProvider"),
    ],
)
def test_what_is_no_tracing_is_refused(given: Any, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        Server("traced", tracing=given)
    with pytest.raises(SetupError, match=why):
        Client(Server("far"), tracing=given)


def test_tracing_may_be_given_as_a_table_of_options() -> None:
    assert tracer_of({"ratio": 0.5, "contents": True}, "Server").contents
