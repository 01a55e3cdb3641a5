"""An observer of a client sees what the client asks and is asked, on every transport and in both eras."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from event_recorder import Recorder
from raw_wires import REVISIONS, serving

from ferrule import Client, Context, Http, PeerError, Server, Tcp, TimedOut, ToolError, Unix, WebSocket
from ferrule.errors import LinkLost
from ferrule.testing import ERAS

PATIENCE = 120.0
UNHURRIED = {"request_timeout": PATIENCE, "tool_timeout": PATIENCE}
"""Times no request of these tests takes, however busy the machine is."""
PROGRAM = """
import asyncio
from ferrule import Context, Server, ToolError

app = Server("child")

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
async def slow() -> str:
    await asyncio.Event().wait()
    return "never"

app.run()
"""


def new_app() -> Server:
    space: dict[str, Any] = {"__name__": "program"}
    exec(PROGRAM.replace("app.run()", ""), space)
    app: Server = space["app"]
    return app


async def user(question: Any) -> dict[str, int]:
    return {"value": 7}


async def use(client: Client, recorder: Recorder) -> None:
    """Ask for one thing of each kind."""
    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    with pytest.raises(ToolError):
        await client.call_tool("fail")
    with pytest.raises(PeerError):
        await client.call_tool("nosuch")
    assert (await client.call_tool("ask")).data == 7
    with pytest.raises(TimedOut):
        await client.call_tool("slow", timeout=0.05)
    sent = len(recorder.all("request_sent"))
    slow = asyncio.ensure_future(client.call_tool("slow"))
    await recorder.until("request_sent", sent + 1)
    slow.cancel()
    await asyncio.wait([slow])
    await client.list_tools()


async def at(name: str, folder: Path, body: Any) -> None:
    """Call a function with a target that is served over one transport."""
    if name == "stdio":
        program = folder / "child.py"
        program.write_text(PROGRAM)
        await body([sys.executable, str(program)])
    elif name == "memory":
        await body(new_app())
    else:
        listeners: dict[str, Any] = {"tcp": Tcp, "http": Http, "websocket": WebSocket}
        listener = Unix(f"{folder}/s") if name == "unix" else listeners[name](port=0)
        targets = {"tcp": "tcp://127.0.0.1:{}", "http": "http://127.0.0.1:{}/mcp"}
        targets |= {"websocket": "ws://127.0.0.1:{}/mcp/ws", "unix": f"unix:{folder}/s"}
        async with serving(new_app(), listener):
            port = 0 if name == "unix" else listener.address[1]
            await body(targets[name].format(port))


@pytest.fixture(scope="module", params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=["stdio", "memory", "tcp", "unix", "http", "websocket"])
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def seen(era: Any, transport: str, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """What an observer saw of a client that asked for one thing of each kind."""
    recorder = Recorder()

    async def ask(target: Any) -> None:
        options = UNHURRIED | {"elicitation": user, "probe_on_timeout": False}
        async with Client(target, mode=era, observer=recorder, **options) as client:
            await use(client, recorder)

    folder = tmp_path_factory.mktemp("observed")
    asyncio.run(asyncio.wait_for(at(transport, folder, ask), PATIENCE))
    return recorder


def calls(recorder: Recorder) -> list[tuple[str, str, int | None]]:
    """Return the tool, the kind of outcome and the code of each call, in the order they were answered."""
    return [
        (values[0].name, values[1].kind, values[1].code)
        for name, values in recorder.events
        if name == "request_answered" and values[0].method == "tools/call"
    ]


def test_every_request_of_a_client_is_seen_with_its_outcome(seen: Recorder, era: str) -> None:
    first_round = [("ask", "input_required", None)] if era == "stateless" else []
    assert calls(seen) == [
        ("add", "ok", None),
        ("fail", "tool_error", None),
        ("nosuch", "error", -32602),
        *first_round,
        ("ask", "ok", None),
        ("slow", "timed_out", None),
        ("slow", "cancelled", None),
    ]
    sent, answered = seen.all("request_sent"), seen.all("request_answered")
    assert sorted(map(id, sent)) == sorted(map(id, answered))
    assert all(request.began <= request.ended for request in answered)
    methods = [request.method for request in answered if request.method != "tools/call"]
    assert methods[0] == ("initialize" if era == "handshake" else "server/discover")
    assert methods[-1] == "tools/list"


def test_what_a_server_asks_a_client_is_seen_too(seen: Recorder, era: str) -> None:
    finished = seen.all("request_finished")
    if era == "handshake":
        assert [request.method for request in finished] == ["elicitation/create"]
        assert seen.outcomes()[finished[0].id].kind == "ok"
    else:
        assert finished == [], "the server asks in its answer, not in a request"


def test_a_request_of_a_client_names_its_transport_and_revision(seen: Recorder, era: str, transport: str) -> None:
    tools = [request for request in seen.all("request_answered") if request.method == "tools/call"]
    assert {(request.transport, request.revision) for request in tools} == {(transport, REVISIONS[era])}
    assert all(request.link is tools[0].link for request in tools)


def test_the_link_of_a_client_is_seen_to_open_and_to_close(seen: Recorder, era: str, transport: str) -> None:
    closed = seen.all("link_closed")
    assert seen.all("link_opened") == closed
    assert [(link.side, link.transport) for link in closed] == [("client", transport)]
    assert closed[0].revision == REVISIONS[era]
    assert closed[0].opened < closed[0].closed
    schemes = {"tcp": "tcp://127.0.0.1:", "unix": "unix:/", "http": "http://127.0.0.1:"}
    assert closed[0].address.startswith(schemes.get(transport, ""))


def test_a_child_process_is_seen_to_start_and_to_exit(seen: Recorder, transport: str) -> None:
    started, exited = seen.all("child_started"), seen.all("child_exited")
    assert started == exited
    if transport == "stdio":
        child = exited[0]
        assert child.command == sys.executable
        assert child.pid > 0
        assert child.started < child.exited
        assert child.exit_code == 0
    else:
        assert started == []


def test_a_child_that_is_killed_is_seen_with_its_signal_and_the_call_it_lost(tmp_path: Path, era: Any) -> None:
    recorder = Recorder()

    async def ask(target: Any) -> None:
        async with Client(target, mode=era, observer=recorder, reconnect=False, **UNHURRIED) as client:
            sent = len(recorder.all("request_sent"))
            waiting = asyncio.ensure_future(client.call_tool("slow"))
            await recorder.until("request_sent", sent + 1)
            os.kill(recorder.all("child_started")[0].pid, signal.SIGKILL)
            with pytest.raises(LinkLost):
                await waiting
            await recorder.until("child_exited")

    asyncio.run(asyncio.wait_for(at("stdio", tmp_path, ask), PATIENCE))
    assert recorder.all("child_exited")[0].exit_code == -signal.SIGKILL
    assert calls(recorder) == [("slow", "lost", None)]
    _, (_, error) = next(event for event in recorder.events if event[0] == "link_closed")
    assert "SIGKILL" in str(error)


def test_both_sides_of_one_question_are_seen(era: Any) -> None:
    """One observer may watch a server and a client: what one sends, the other receives."""
    recorder = Recorder()

    async def main() -> None:
        app = Server("observed", observer=recorder)

        @app.tool
        async def ask(ctx: Context) -> int:
            return await ctx.ask("How many?", int)

        async with Client(app, mode=era, observer=recorder, elicitation=user) as client:
            assert (await client.call_tool("ask")).data == 7

    asyncio.run(main())
    sent = [(request.link.side, request.method) for request in recorder.all("request_sent")]
    received = [(request.link.side, request.method) for request in recorder.all("request_finished")]
    other = {"server": "client", "client": "server"}
    assert sorted((other[side], method) for side, method in sent) == sorted(received)
    assert len(recorder.all("request_answered")) == len(sent)
    if era == "handshake":
        assert ("server", "elicitation/create") in sent
    else:
        assert [outcome.kind for outcome in recorder.outcomes().values()].count("input_required") == 1
        assert [request.retry for request in recorder.all("request_finished")].count(True) == 1


def test_the_requests_of_a_batch_are_seen() -> None:
    recorder = Recorder()

    async def main() -> None:
        app = new_app()
        async with Client(app, mode="handshake", protocol_version="2025-03-26", observer=recorder) as client:
            async with client.batch() as batch:
                listed = batch.request("tools/list")
                missing = batch.request("tools/call", {"name": "nosuch", "arguments": {}})
            await listed
            with pytest.raises(PeerError):
                await missing

    asyncio.run(main())
    kinds = {values[0].method: values[1].kind for name, values in recorder.events if name == "request_answered"}
    assert kinds == {"initialize": "ok", "tools/list": "ok", "tools/call": "error"}


def test_a_request_that_cannot_be_written_is_seen_as_lost() -> None:
    recorder = Recorder()

    async def main() -> None:
        async with Client(new_app(), mode="handshake", observer=recorder) as client:
            with pytest.raises(Exception, match="cannot be sent"):
                await client.call_tool("add", {"a": object(), "b": 1})

    asyncio.run(main())
    assert calls(recorder) == [("add", "lost", None)]
