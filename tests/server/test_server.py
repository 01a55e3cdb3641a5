"""The server itself: options, lifespan, middleware, extensions, serving and stopping."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from typing import Any

import msgspec
import pytest

from ferrule import CallFailed, Client, Context, PeerError, Server, SetupError, ToolError
from ferrule.errors import Forbidden, MissingCapability
from ferrule.schema.model import Params, Result
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.results import unstructured
from ferrule.testing import pair
from ferrule.transports.http.listener import Http
from ferrule.transports.process.stdio import Stdio
from patience import PATIENT

MESSAGE = {"jsonrpc": "2.0"}
HELLO = {
    **MESSAGE,
    "id": 0,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}


def greeter(**options: Any) -> Server:
    app = Server("greeter", **options)

    @app.tool
    async def greet(name: str = "you") -> str:
        return f"Hello {name}"

    return app


class TestOptions:
    """What a server is told when it is made."""

    @pytest.mark.parametrize(
        ("option", "value"),
        [
            ("page_size", 0),
            ("page_size", "many"),
            ("tool_timeout", -1),
            ("max_concurrent_per_session", 0),
            ("progress_rate", 0),
            ("list_changed_interval", -0.1),
            ("error_profile", "loose"),
            ("cache_scope", "world"),
            ("versions", ("2019-01-01",)),
            ("keepalive_interval", "often"),
        ],
    )
    def test_a_wrong_value_is_refused_and_its_option_named(self, option, value):
        with pytest.raises(SetupError, match=f"Server: {option} must be"):
            Server("x", **{option: value})

    def test_an_unknown_option_is_named(self):
        with pytest.raises(
            SetupError,
            match=r"Server: .*'pagesize'; did you mean 'page_size'.$",
        ):
            Server("x", pagesize=5)

    def test_short_sealing_keys_are_refused(self):
        with pytest.raises(SetupError, match="sealing key 0 is too short"):
            Server("x", request_state_keys=("short",))

    def test_options_have_their_defaults_and_none_switches_off(self):
        """SRVR-01"""
        app = Server("x", version="3", keepalive_interval=None, init_timeout=None)
        assert (app.name, app.version, app.host.services.settings.page_size) == ("x", "3", 1000)
        assert app.host.services.settings.keepalive_interval is None
        assert Server("y").host.services.settings.shutdown_grace == 5.0

    async def test_only_the_given_revisions_are_spoken(self, wire):
        """VER-2"""
        app = greeter(versions=("2025-06-18", "2025-03-26"))
        async with wire(app, "stateless") as peer:
            peer.send({**HELLO, "id": 1})
            assert (await peer.response(1))["result"]["protocolVersion"] == "2025-06-18"

    async def test_state_sealed_by_another_server_is_refused_though_the_keys_are_the_same(self, wire):
        """BUD-20."""
        key, ran = os.urandom(32), []

        def make(name: str) -> Server:
            app = Server(name, request_state_keys=(key,))

            @app.tool
            async def ask(ctx: Context) -> str:
                ran.append(name)
                return await ctx.ask("Name?", str, key="name")

            return app

        able = {"capabilities": {"elicitation": {}}}
        async with wire(make("one"), "stateless", **able) as peer:
            state = (await peer.call("ask"))["result"]["requestState"]
        params = {"name": "ask", "arguments": {}, "inputResponses": {}, "requestState": state}
        async with wire(make("two"), "stateless", **able) as peer:
            error = (await peer.request("tools/call", params))["error"]
        assert (error["code"], ran) == (-32602, ["one"])

    async def test_shared_keys_let_another_server_go_on(self, wire):
        """MRTR-8"""
        key = os.urandom(32)

        def make() -> Server:
            app = Server("shared", request_state_keys=(key,))

            @app.tool
            async def ask(ctx: Context) -> str:
                return await ctx.ask("Name?", str, key="name")

            return app

        able = {"capabilities": {"elicitation": {}}}
        async with wire(make(), "stateless", **able) as peer:
            state = (await peer.call("ask"))["result"]["requestState"]
        answers = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        params = {"name": "ask", "arguments": {}, "inputResponses": answers, "requestState": state}
        async with wire(make(), "stateless", **able) as peer:
            assert (await peer.request("tools/call", params))["result"]["structuredContent"] == {"result": "Ada"}


class TestLifespan:
    """What is started before the first user and ended after the last."""

    async def test_it_is_entered_once_for_many_users(self, era):
        events = []

        @contextlib.asynccontextmanager
        async def lifespan(server):
            events.append(("enter", server.name))
            await asyncio.sleep(0)
            yield {"db": "open"}
            events.append(("leave", server.name))

        app = greeter(lifespan=lifespan)

        @app.tool
        async def database(ctx: Context) -> str:
            return ctx.lifespan["db"]

        async with pair(app, era) as first:
            clients = [pair(app, era) for _ in range(5)]
            await asyncio.gather(*(client.connect() for client in clients))
            assert [(await client.call_tool("database")).data for client in (first, *clients)] == ["open"] * 6
            assert events == [("enter", "greeter")]
            await asyncio.gather(*(client.close() for client in clients))
            assert events == [("enter", "greeter")]
        assert events == [("enter", "greeter"), ("leave", "greeter")]
        async with pair(app, era):
            assert len(events) == 3

    async def test_a_plain_generator_will_do(self, era):
        async def lifespan(server):
            yield 7

        app = Server("plain", lifespan=lifespan)

        @app.tool
        async def value(ctx: Context) -> int:
            return ctx.lifespan

        async with pair(app, era) as client:
            assert (await client.call_tool("value")).data == 7

    async def test_a_lifespan_that_cannot_begin_tells_why_and_may_be_tried_again(self, era):
        tries = []

        @contextlib.asynccontextmanager
        async def lifespan(server):
            tries.append(1)
            if len(tries) == 1:
                raise ConnectionError("no database")
            yield

        app = greeter(lifespan=lifespan)
        with pytest.raises(ConnectionError, match="no database"):
            async with pair(app, era):
                pass
        assert app.host.services.changes.loop is None
        async with pair(app, era) as client:
            assert (await client.call_tool("greet")).data == "Hello you"

    async def test_a_lifespan_that_cannot_end_tells_why_and_may_begin_again(self, era):
        @contextlib.asynccontextmanager
        async def lifespan(server):
            yield
            raise ConnectionError("cannot close")

        app = greeter(lifespan=lifespan)
        for _ in range(2):
            with pytest.raises(ConnectionError, match="cannot close"):
                async with pair(app, era) as client:
                    await client.call_tool("greet")
            assert app.host.services.changes.loop is None

    def test_one_server_may_live_in_several_loops_one_after_another(self):
        @contextlib.asynccontextmanager
        async def lifespan(server):
            await asyncio.sleep(0.001)
            yield

        app = greeter(lifespan=lifespan)

        async def use() -> None:
            clients = [pair(app) for _ in range(5)]
            await asyncio.gather(*(client.connect() for client in clients))
            await asyncio.gather(*(client.call_tool("greet") for client in clients))
            await asyncio.gather(*(client.close() for client in clients))

        for _ in range(2):
            asyncio.run(use())


class TestMiddleware:
    """What runs around every call."""

    async def test_layers_run_in_the_order_they_were_added(self, era):
        app = greeter()
        order = []

        def layer(name):
            async def around(call, proceed):
                order.append(f"{name} in {call.method}")
                result = await proceed(call)
                order.append(f"{name} out")
                return result

            return around

        app.middleware(layer("outer"))
        app.middleware(layer("inner"))
        async with pair(app, era) as client:
            order.clear()
            await client.call_tool("greet")
        assert order == ["outer in tools/call", "inner in tools/call", "inner out", "outer out"]

    async def test_every_method_passes_through(self, era):
        app = greeter()
        app.add_resource("x://y", lambda: "")
        app.add_prompt("p", lambda: "")
        seen = []

        @app.middleware
        async def watch(call, proceed):
            seen.append(call.method)
            return await proceed(call)

        async with pair(app, era) as client:
            await client.list_tools()
            await client.read_resource("x://y")
            await client.get_prompt("p")
            await client.ping()
        assert seen[0] == ("initialize" if era == "handshake" else "server/discover")
        assert seen[1:4] == ["tools/list", "resources/read", "prompts/get"]

    async def test_a_layer_may_answer_by_itself(self, era):
        app = greeter()

        @app.middleware
        async def shortcut(call, proceed):
            if call.method == "tools/call" and call.params.name == "secret":
                return unstructured("from the middle")
            return await proceed(call)

        async with pair(app, era) as client:
            assert (await client.call_tool("secret")).text == "from the middle"
            assert (await client.call_tool("greet")).text == "Hello you"

    async def test_a_layer_may_refuse(self, era):
        app = greeter()

        @app.middleware
        async def guard(call, proceed):
            if call.method == "tools/call":
                raise Forbidden("not today")
            return await proceed(call)

        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="not today"):
                await client.call_tool("greet")
            assert await client.list_tools()

    async def test_a_layer_that_breaks_fails_that_call_only(self, era):
        """ERRC-05"""
        app = greeter()

        @app.middleware
        async def broken(call, proceed):
            if call.method == "tools/call":
                raise ZeroDivisionError("secret")
            return await proceed(call)

        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="Internal error") as caught:
                await client.call_tool("greet")
            assert len(await client.list_tools()) == 1
        assert caught.value.code == -32603
        assert "secret" not in str(caught.value)

    async def test_a_layer_may_change_the_result_and_questions_pass_through_it(self, era):
        app = Server("asking")

        @app.tool
        async def ask(ctx: Context) -> str:
            return await ctx.ask("Name?", str)

        @app.middleware
        async def shout(call, proceed):
            result = await proceed(call)
            if isinstance(result, CallToolResult):
                return unstructured(result.text.upper())
            return result

        async with pair(app, era, elicitation=lambda params: {"value": "ada"}) as client:
            assert (await client.call_tool("ask")).text == "ADA"


class Sum(Params, kw_only=True):
    numbers: list[int]


class Total(Result, kw_only=True):
    total: int


class TestExtensions:
    """Methods of one's own."""

    @staticmethod
    def app() -> Server:
        app = Server("extended")

        @app.method("vendor/sum", params=Sum, result=Total)
        async def add_up(params: Sum) -> Total:
            return Total(total=sum(params.numbers))

        @app.method("vendor/thread")
        def thread(params, ctx: Context):
            return Total(total=len(ctx.server.name), meta={"com.example/t": threading.current_thread().name})

        @app.method("vendor/nothing")
        async def nothing(params) -> None: ...

        @app.method("vendor/bug")
        async def bug(params) -> None:
            raise ValueError("secret")

        return app

    async def test_a_method_gets_its_params_and_gives_its_result(self, era):
        """EXT-4"""
        async with pair(self.app(), era) as client:
            result = await client.request("vendor/sum", {"numbers": [1, 2, 3]})
            assert result["total"] == 6
            assert result.get("resultType") == ("complete" if era == "stateless" else None)

    async def test_a_plain_function_runs_in_a_thread_and_may_have_a_context(self, era):
        async with pair(self.app(), era) as client:
            result = await client.request("vendor/thread")
        assert result["total"] == len("extended")
        assert result["_meta"]["com.example/t"].startswith("ferrule-worker")

    async def test_nothing_to_return_is_an_empty_object(self, era):
        """RPC-18, RPC-6"""
        async with pair(self.app(), era) as client:
            result = await client.request("vendor/nothing")
        assert not result.keys() - {"resultType", "_meta"}

    async def test_bad_params_are_refused_before_the_handler_runs(self, era):
        """EXT-5"""
        async with pair(self.app(), era) as client:
            with pytest.raises(PeerError, match="Invalid params") as caught:
                await client.request("vendor/sum", {"numbers": ["x"]})
        assert caught.value.code == -32602

    async def test_a_bug_is_masked(self, era):
        """ERRC-05"""
        async with pair(self.app(), era) as client:
            with pytest.raises(PeerError, match="Internal error") as caught:
                await client.request("vendor/bug")
        assert "secret" not in str(caught.value)

    async def test_what_only_one_side_has_falls_back_or_is_refused(self, wire):
        """EXT-2"""
        app = self.app()
        needed = {"extensions": {"com.example/maps": {}}}

        @app.method("vendor/map")
        async def draw(params, ctx: Context) -> Total:
            if "com.example/maps" not in (ctx.peer.capabilities.extensions or {}):
                raise MissingCapability(needed)
            return Total(total=1)

        @app.tool
        async def find(ctx: Context) -> str:
            return "map" if ctx.peer.capabilities.extensions else "text"

        async with wire(app, "stateless") as lacking, wire(app, "stateless", capabilities=needed) as having:
            error = (await lacking.request("vendor/map"))["error"]
            assert (error["code"], error["data"]) == (-32021, {"requiredCapabilities": needed})
            assert (await having.request("vendor/map"))["result"]["total"] == 1
            assert (await lacking.call("find"))["result"]["content"][0]["text"] == "text"
            assert (await having.call("find"))["result"]["content"][0]["text"] == "map"
        async with wire(greeter(), "stateless", capabilities=needed) as peer:
            assert (await peer.request("vendor/map"))["error"]["code"] == -32601
            assert "result" in await peer.call("greet")

    async def test_a_server_without_the_extension_does_not_know_the_method(self, era):
        """EXT-3"""
        async with pair(greeter(), era) as client:
            with pytest.raises(PeerError) as caught:
                await client.request("vendor/sum", {"numbers": []})
        assert caught.value.code == -32601


class TestBatches:
    """Arrays of messages."""

    @staticmethod
    def batch():
        return [
            {**MESSAGE, "id": 10, "method": "ping"},
            {**MESSAGE, "method": "notifications/nix"},
            {**MESSAGE, "id": 11, "method": "tools/call", "params": {"name": "greet"}},
            {**MESSAGE, "id": 12, "method": "nix"},
        ]

    async def heard(self, app, version, wire):
        async with wire(app, version=version) as peer:
            before = len(peer.heard)
            peer.channel.send(self.batch())
            for _ in range(10):
                await asyncio.sleep(0)
            return peer.heard[before:]

    @pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2024-11-05"])
    async def test_most_revisions_refuse_them(self, wire_lists, version):
        """RPC-13, BATC-09"""
        [error] = await self.heard(greeter(), version, wire_lists)
        assert error["error"]["code"] == -32600

    async def test_one_revision_takes_them(self, wire_lists):
        """RPC-11, BATC-09, BATC-02"""
        [answers] = await self.heard(greeter(), "2025-03-26", wire_lists)
        assert {answer["id"]: "result" in answer for answer in answers} == {10: True, 11: True, 12: False}

    async def test_a_client_batches_subscribes_and_calls_side_by_side(self):
        """GUAR-09"""
        app = greeter(allow_batch=True)
        app.add_resource("x://{n}", lambda n: n)
        async with pair(app, allow_batch=True) as client, contextlib.AsyncExitStack() as subscriptions:

            async def batch():
                return await client.send_batch([("tools/list", {})] * 10)

            async def subscribe(number):
                return await subscriptions.enter_async_context(client.subscribe(f"x://{number}"))

            batches, changes, calls = await asyncio.gather(
                asyncio.gather(*(batch() for _ in range(5))),
                asyncio.gather(*(subscribe(number) for number in range(5))),
                asyncio.gather(*(client.call_tool("greet", {"name": str(number)}) for number in range(20))),
            )
            assert all(len(page["tools"]) == 1 for pages in batches for page in pages)
            assert [call.data for call in calls] == [f"Hello {number}" for number in range(20)]
            for number in range(5):
                app.notify_resource_updated(f"x://{number}")
            assert [await anext(change) for change in changes] == [f"x://{number}" for number in range(5)]

    async def test_an_option_allows_them_everywhere(self, wire_lists):
        """BATC-09"""
        [answers] = await self.heard(greeter(allow_batch=True), "2025-11-25", wire_lists)
        assert {answer["id"] for answer in answers} == {10, 11, 12}


@pytest.fixture
def wire_lists(wire):
    """A bare peer that takes arrays as well."""

    class Lists(wire):
        def frame_received(self, frame, channel):
            message = json.loads(frame)
            if isinstance(message, list):
                self.heard.append(message)
                self.times.append(0.0)
            else:
                super().frame_received(frame, channel)

    return Lists


class TestServing:
    """Serving a transport, and stopping."""

    @staticmethod
    def pipes():
        """Two pipes: what the server reads and what it writes."""
        return os.pipe(), os.pipe()

    async def test_running_calls_end_before_the_server_does(self):
        """SHUT-03"""
        app = greeter()
        release = asyncio.Event()

        @app.tool
        async def wait() -> str:
            await release.wait()
            return "done"

        (read_in, write_in), (read_out, write_out) = self.pipes()
        try:
            serving = asyncio.ensure_future(app.serve(Stdio(read_fd=read_in, write_fd=write_out)))
            calls = [HELLO, {**MESSAGE, "id": 1, "method": "tools/call", "params": {"name": "wait"}}]
            os.write(write_in, b"".join(json.dumps(call).encode() + b"\n" for call in calls))
            while not app.host.links or not next(iter(app.host.links)).session.running:
                await asyncio.sleep(0.005)
            stopping = asyncio.ensure_future(app.stop())
            await asyncio.sleep(0.02)
            assert not stopping.done()
            release.set()
            await stopping
            await serving
            answers = [json.loads(line) for line in os.read(read_out, 1 << 16).splitlines()]
        finally:
            for fd in (read_in, write_in, read_out, write_out):
                os.close(fd)
        assert [answer["id"] for answer in answers] == [0, 1]
        assert answers[1]["result"]["content"][0]["text"] == "done"
        assert app.host.services.changes.loop is None

    async def test_a_call_that_does_not_end_is_answered_with_an_error_when_the_grace_is_over(self):
        """SHUT-03"""
        app = greeter()

        @app.tool
        async def forever() -> None:
            await asyncio.Event().wait()

        (read_in, write_in), (read_out, write_out) = self.pipes()
        try:
            serving = asyncio.ensure_future(app.serve(Stdio(read_fd=read_in, write_fd=write_out)))
            calls = [HELLO, {**MESSAGE, "id": 1, "method": "tools/call", "params": {"name": "forever"}}]
            os.write(write_in, b"".join(json.dumps(call).encode() + b"\n" for call in calls))
            while not app.host.links or not next(iter(app.host.links)).session.running:
                await asyncio.sleep(0.005)
            started = time.perf_counter()
            await app.stop(grace=0.1)
            await serving
            assert time.perf_counter() - started < 30
            answers = [json.loads(line) for line in os.read(read_out, 1 << 16).splitlines()]
        finally:
            for fd in (read_in, write_in, read_out, write_out):
                os.close(fd)
        assert answers[-1]["id"] == 1
        assert answers[-1]["error"]["code"] == -32603

    async def test_stopping_twice_or_before_serving_is_harmless(self):
        """SRVR-06"""
        app = greeter()
        await app.stop()
        await app.stop(grace=0)
        async with pair(app) as client:
            assert (await client.call_tool("greet")).data == "Hello you"

    @pytest.mark.parametrize("stubborn", [False, True])
    async def test_a_stop_while_the_lifespan_begins_gives_up_the_start(self, stubborn):
        """SHD-04: what had begun is left, whether or not the lifespan hears that it is cancelled."""
        opening, left = asyncio.Event(), []

        @contextlib.asynccontextmanager
        async def lifespan(server):
            opening.set()
            with contextlib.suppress(*([asyncio.CancelledError] if stubborn else [])):
                await asyncio.Event().wait()
            yield
            left.append(server)

        app = Server("slow", lifespan=lifespan)
        listener = Http(port=0)
        serving = asyncio.ensure_future(app.serve(listener))
        await opening.wait()
        await app.stop()
        await asyncio.wait_for(serving, 10)
        assert (len(left), app.host.lifespans.in_use) == (int(stubborn), False)
        with pytest.raises(SetupError, match="does not listen"):
            print(listener.address)

    async def test_a_start_that_is_cancelled_by_its_caller_is_cancelled(self):
        opening = asyncio.Event()

        @contextlib.asynccontextmanager
        async def lifespan(server):
            opening.set()
            await asyncio.Event().wait()
            yield

        app = Server("slow", lifespan=lifespan)
        serving = asyncio.ensure_future(app.serve(Http(port=0)))
        await opening.wait()
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        assert not app.host.lifespans.in_use

    async def test_an_unknown_transport_is_named_with_those_there_are(self):
        with pytest.raises(SetupError, match=r"unknown transport 'carrier-pigeon': there are .*stdio"):
            await greeter().run_async("carrier-pigeon")

    @pytest.mark.parametrize(("option", "value"), [("name", 7), ("version", 1.0), ("instructions", ["a", "b"])])
    def test_what_a_server_says_of_itself_is_text(self, option, value):
        with pytest.raises(SetupError, match=f"Server: {option} must be a str, not"):
            Server(**{option: value})

    async def test_running_where_a_loop_runs_already_names_the_other_way(self):
        with pytest.raises(SetupError, match=r"an event loop runs here already: use `await app\.run_async"):
            greeter().run()

    async def test_a_server_that_ends_tells_its_clients(self, era):
        app = greeter()
        async with pair(app, era) as client:
            for link in app.host.links:
                link.channel.close("going")
            await asyncio.sleep(0.01)
            with pytest.raises(CallFailed):
                await client.call_tool("greet")


PROGRAM = """
import asyncio
from ferrule import Server

app = Server("program", shutdown_grace=1.0)

@app.tool
async def wait(seconds: float) -> str:
    await asyncio.sleep(seconds)
    return "done"

app.run()
"""


def get_once_served(url):
    """Ask a program that has just been started."""
    until = time.monotonic() + 20
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return answer.status
        except urllib.error.URLError:
            assert time.monotonic() < until, "it does not serve"
            time.sleep(0.05)


class TestProgram:
    """A server as a process of its own."""

    @pytest.fixture
    def program(self, tmp_path):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM)
        pipe = subprocess.PIPE
        with subprocess.Popen([sys.executable, path], stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0) as process:
            yield process
            process.kill()

    def ask(self, process, *messages):
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))

    def call(self, seconds, identity=1):
        params = {"name": "wait", "arguments": {"seconds": seconds}}
        return {**MESSAGE, "id": identity, "method": "tools/call", "params": params}

    WAYS = ("app.run()", "asyncio.run(app.run_async())")

    def started_without(self, tmp_path, missing, way):
        """Run the program with a standard stream closed by the shell, as some hosts and daemons start theirs."""
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.replace("app.run()", way))
        script = f'exec "$0" "$1" {missing}'
        asked = json.dumps({**MESSAGE, "id": 1, "method": "ping"}).encode()
        command = ["sh", "-c", script, sys.executable, path]
        return subprocess.run(command, input=asked, capture_output=True, timeout=30, check=False)

    @pytest.mark.parametrize("way", WAYS)
    def test_std_06_a_program_started_without_stderr_serves_and_ends_in_order(self, tmp_path, way):
        """STD-06"""
        done = self.started_without(tmp_path, "2>&-", way)
        assert [json.loads(line)["result"] for line in done.stdout.splitlines()] == [{}]
        assert done.returncode == 0

    @pytest.mark.parametrize(("missing", "name"), [("<&-", b"stdin"), (">&-", b"stdout")])
    @pytest.mark.parametrize("way", WAYS)
    def test_a_program_started_without_the_wire_says_so(self, tmp_path, missing, name, way):
        done = self.started_without(tmp_path, missing, way)
        assert done.returncode == 1
        assert name + b" is closed: start the server with stdin and stdout connected" in done.stderr

    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
    def test_one_signal_drains_and_exits_with_zero(self, program, number):
        """SHUT-03"""
        self.ask(program, HELLO, self.call(0.3))
        assert json.loads(program.stdout.readline())["id"] == 0
        program.send_signal(number)
        assert json.loads(program.stdout.readline())["result"]["content"][0]["text"] == "done"
        assert program.wait(60) == 0
        assert b"Traceback" not in program.stderr.read()

    def test_shd_02_a_hung_call_is_answered_with_an_error_and_the_process_ends(self, program):
        """SHD-02"""
        self.ask(program, HELLO, self.call(60))
        program.stdout.readline()
        started = time.perf_counter()
        program.send_signal(signal.SIGTERM)
        answer = json.loads(program.stdout.readline())
        assert (answer["id"], answer["error"]["code"]) == (1, -32603)
        assert program.wait(60) == 0
        assert 0.9 < time.perf_counter() - started < 50

    def test_shd_03_a_second_signal_ends_at_once_with_its_own_code(self, program):
        """SHD-03"""
        self.ask(program, HELLO, self.call(60))
        program.stdout.readline()
        # Two that come before it looks are one to it.
        while program.poll() is None:
            program.send_signal(signal.SIGINT)
            time.sleep(0.2)
        assert program.returncode == 128 + signal.SIGINT

    def test_the_end_of_its_input_ends_it(self, program):
        self.ask(program, HELLO, self.call(0.1))
        program.stdin.close()
        lines = program.stdout.read().splitlines()
        assert [json.loads(line)["id"] for line in lines] == [0, 1]
        assert program.wait(60) == 0

    @pytest.mark.parametrize("stderr", ["2>&-", "2>/dev/full"])
    def test_it_serves_where_nobody_can_be_told_where(self, tmp_path, stderr):
        """STD-06: stderr is closed, or the disk it goes to is full."""
        path = tmp_path / "program.py"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        path.write_text(PROGRAM.replace("app.run()", f"app.run('http', port={port})"))
        shell = f"exec {sys.executable} {path} {stderr}"
        with subprocess.Popen(["/bin/sh", "-c", shell], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            try:
                assert get_once_served(f"http://127.0.0.1:{port}/livez") == 200
                process.send_signal(signal.SIGTERM)
                assert process.wait(10) == 0
            finally:
                process.kill()

    async def test_a_client_may_start_it(self, tmp_path, era):
        path = tmp_path / "program.py"
        path.write_text(PROGRAM)
        async with Client([sys.executable, str(path)], mode=era, **PATIENT) as client:
            assert (await client.call_tool("wait", {"seconds": 0})).data == "done"


async def test_errors_of_every_kind_have_a_valid_shape(era, wire):
    """ERRC-27, RPC-7, ERR-1"""
    app = greeter()
    app.add_resource("x://y", lambda: 1 / 0)

    @app.tool
    async def refuses() -> None:
        raise Forbidden("no")

    requests = [
        ("nix", {}),
        ("tools/call", {}),
        ("tools/call", {"name": "nix"}),
        ("tools/call", {"name": "refuses"}),
        ("tools/list", {"cursor": "bad"}),
        ("resources/read", {"uri": "x://y"}),
        ("resources/read", {"uri": "x://nothing"}),
        ("resources/read", {"uri": "::"}),
        ("prompts/get", {"name": "x"}),
        ("completion/complete", {}),
    ]
    async with wire(app, era) as peer:
        for method, params in requests:
            answer = await peer.request(method, params)
            assert answer.keys() == {"jsonrpc", "id", "error"}
            error = answer["error"]
            assert error.keys() <= {"code", "message", "data"}
            assert type(error["code"]) is int
            assert error["message"]
            assert "\n" not in error["message"]
            assert "Traceback" not in json.dumps(error)


async def test_a_tool_may_be_served_to_many_clients_at_once(era):
    """GUAR-07"""
    app = greeter()
    clients = [pair(app, era) for _ in range(50)]
    await asyncio.gather(*(client.connect() for client in clients))
    calls = [client.call_tool("greet", {"name": str(at)}) for at, client in enumerate(clients)]
    results = await asyncio.gather(*calls)
    assert [result.data for result in results] == [f"Hello {at}" for at in range(50)]
    await asyncio.gather(*(client.close() for client in clients))
    assert not app.host.links


def test_the_decorators_and_adders_cover_everything_a_server_offers():
    """SRVR-02"""
    app = Server("all")
    app.add_tool("t", lambda: None)
    app.add_resource("x://y", lambda: "")
    app.add_resource_template("x://{z}", lambda z: "")
    app.add_prompt("p", lambda: "")
    app.remove_tool("t")
    app.remove_resource("x://y")
    app.remove_resource_template("x://{z}")
    app.remove_prompt("p")
    assert msgspec.to_builtins(app.host.capabilities) == {}


async def test_a_tool_error_and_a_bug_end_differently(era):
    """ERRC-23"""
    app = Server("two")

    @app.tool
    async def on_purpose() -> None:
        raise ToolError("read me")

    @app.tool
    async def by_accident() -> None:
        raise KeyError("hide me")

    async with pair(app, era) as client:
        told = [(await client.call_tool(name, raise_on_error=False)).text for name in ("on_purpose", "by_accident")]
    assert told[0] == "read me"
    assert "hide me" not in told[1]
