"""The blocking client: the same methods, the same errors, and nothing left when it is interrupted."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import subprocess
import sys
import textwrap
import threading
import time

import pytest

from ferrule import Context, Server, SyncClient, ToolError
from ferrule.errors import (
    AlreadyInitialized,
    CapabilityNotSupported,
    ChildFailed,
    NotConnected,
    PeerError,
    SetupError,
    TimedOut,
)
from ferrule.protocol.session import Phase


@pytest.fixture
def client(app, era):
    with SyncClient(app, mode=era) as client:
        yield client


def test_tools_resources_and_prompts_are_used_as_in_the_other_client(client):
    assert [tool.name for tool in client.list_tools()] == ["add", "fail", "count", "wait"]
    assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
    assert [resource.uri for resource in client.list_resources()] == ["logo://small"]
    assert [template.uri_template for template in client.list_resource_templates()] == ["notes://{number}"]
    assert client.read_resource("notes://7").text == "note 7"
    assert [prompt.name for prompt in client.list_prompts()] == ["review"]
    assert client.get_prompt("review", {"language": "c"}).messages[0].content.text == "Review this c code, short."
    assert client.complete("review", {"name": "language", "value": "r"}).values == ["rust"]
    assert client.ping() > 0
    assert client.request("tools/list")["tools"][0]["name"] == "add"


def test_lists_can_be_iterated_page_by_page(client):
    assert [tool.name for tool in client.iter_tools()] == ["add", "fail", "count", "wait"]
    assert [resource.uri for resource in client.iter_resources()] == ["logo://small"]
    assert [template.uri_template for template in client.iter_resource_templates()] == ["notes://{number}"]
    assert [prompt.name for prompt in client.iter_prompts()] == ["review"]
    assert next(client.iter_tools()).name == "add"


def test_facts_are_the_same(client, era):
    assert client.phase is Phase.INITIALIZED
    assert client.server_info.name == "notes"
    assert client.protocol_version == {"handshake": "2025-11-25", "stateless": "2026-07-28"}[era]
    assert client.server_capabilities.tools is not None
    assert client.instructions == "Use it well."


def test_errors_are_the_same(client, era):
    with pytest.raises(ToolError, match="the disk is full"):
        client.call_tool("fail", {"why": "the disk is full"})
    with pytest.raises(PeerError, match="Unknown tool"):
        client.call_tool("moon")
    with pytest.raises(TimedOut):
        client.call_tool("wait", timeout=0.05)
    with pytest.raises(CapabilityNotSupported):
        client.request("server/discover" if era == "handshake" else "ping")
    with pytest.raises(AttributeError, match="no_such_method"):
        client.no_such_method()


def test_progress_and_log_messages_are_told(app, era):
    reports, messages = [], queue.Queue()
    client = SyncClient(app, mode=era, log_level="info")
    client.on_log(lambda level, data, logger: messages.put(data))
    with client:
        client.call_tool("count", {"to": 3}, on_progress=lambda done, total, message: reports.append(done))
        assert messages.get(timeout=60) == "counted to 3"
    assert reports == [1, 2, 3]


def test_a_client_can_be_opened_and_closed_by_hand(app, era):
    client = SyncClient(app, mode=era)
    assert client.phase is Phase.PRE_INITIALIZATION
    with pytest.raises(NotConnected, match="pre_initialization"):
        client.list_tools()
    assert client.initialize().server_info.name == "notes"
    with pytest.raises(AlreadyInitialized):
        client.connect()
    client.close()
    client.close()
    assert client.phase is Phase.CLOSED
    with pytest.raises(NotConnected, match="closed"):
        client.list_tools()
    client.connect()
    client.reconnect()
    assert client.call_tool("add", {"a": 1, "b": 1}).data == 2
    client.close()


def test_options_are_checked_at_once():
    with pytest.raises(SetupError, match="timout"):
        SyncClient("server.py", timout=3)


def test_a_server_that_cannot_be_started_is_told_of_and_nothing_is_left():
    with pytest.raises(ChildFailed, match="no such file"):
        SyncClient(["/no/such/program"]).connect()
    with pytest.raises(SetupError, match="cannot reach"), SyncClient("nonsense"):
        pass


def test_questions_are_answered_by_plain_functions(era):
    app = Server("asking")

    @app.tool
    async def greet(ctx: Context) -> str:
        return f"Hello {await ctx.ask('Name?', str)}"

    with SyncClient(app, mode=era, elicitation=lambda params: {"value": "Ada"}) as client:
        assert client.call_tool("greet").text == "Hello Ada"


def test_changes_can_be_waited_for(app, era):
    with SyncClient(app, mode=era) as client:
        with client.subscribe("notes://7") as changes:
            app.notify_resource_updated("notes://7")
            assert next(changes) == "notes://7"
            app.notify_resource_updated("notes://7")
            for uri in changes:
                assert uri == "notes://7"
                break
            assert client.subscriptions == {"notes://7"}
        assert client.subscriptions == set()


def test_a_stream_of_changes_ends_when_the_client_is_closed(app, era):
    seen = []
    with SyncClient(app, mode=era) as client, client.subscribe("notes://7") as changes:
        threading.Timer(0.05, client.close).start()
        seen.extend(changes)
    assert seen == []


def test_notifications_reach_handlers_set_at_any_time(era):
    app = Server("changing", list_changed_interval=0)

    @app.tool
    async def one() -> str:
        return ""

    heard = queue.Queue()
    with SyncClient(app, mode=era) as client:
        client.on_notification("notifications/tools/list_changed", heard)
        deadline = time.monotonic() + 60
        while not len(app.host.services.subscriptions) and time.monotonic() < deadline:
            time.sleep(0.001)
        app.add_tool("two", one)
        assert heard.get(timeout=60)[0] == "notifications/tools/list_changed"
        client.remove_notification_handler("notifications/tools/list_changed")


def test_a_notification_handler_that_would_block_its_own_thread_is_refused(app, era):
    said = queue.Queue()
    client = SyncClient(app, mode=era, log_level="info")

    def relist(params):
        try:
            client.list_tools()
        except SetupError as refusal:
            said.put(str(refusal))

    client.on_notification("notifications/message", relist)
    with client:
        client.call_tool("count", {"to": 1})
        assert "would block" in said.get(timeout=60)


def test_a_batch_is_sent_when_its_block_ends(app):
    with SyncClient(app, protocol_version="2025-03-26") as client:
        with client.batch() as batch:
            tools = batch.request("tools/list")
            bad = batch.request("vendor/unknown")
            batch.notify("notifications/vendor", {"n": 1})
            assert batch.count == 2
        assert len(tools.result()["tools"]) == 4
        with pytest.raises(PeerError):
            bad.result()
        assert client.send_batch([("ping", None)]) == [{}]


def test_a_batch_where_there_is_none_is_refused(app, era):
    with SyncClient(app, mode=era) as client, pytest.raises(CapabilityNotSupported), client.batch() as batch:
        batch.request("ping" if era == "handshake" else "tools/list")


def test_many_threads_may_use_one_client(app, era):
    results = []
    with SyncClient(app, mode=era) as client:
        threads = [
            threading.Thread(target=lambda n=n: results.append(client.call_tool("add", {"a": n, "b": 0}).data))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(results) == list(range(20))


def test_it_works_where_a_loop_runs_already(app):
    """As in a notebook."""

    async def cell():
        with SyncClient(app) as client:
            return client.call_tool("add", {"a": 1, "b": 2}).data

    assert asyncio.run(cell()) == 3


def interrupt_soon(seconds=0.05, times=1):
    def press():
        for _ in range(times):
            time.sleep(seconds)
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=press).start()


def test_ctrl_c_stops_a_call_and_the_server_is_told(era, raw):
    server = raw(era, {"tools/call": None})
    with SyncClient(server, mode=era) as client:
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("x")
        client.ping()
        assert len(server.sent("notifications/cancelled")) == 1
        assert not client.pending


def test_ctrl_c_while_connecting_leaves_nothing(tmp_path):
    interrupt_soon(0.3)
    with pytest.raises(KeyboardInterrupt):
        SyncClient([sys.executable, "-c", "import time; time.sleep(600)"]).connect()


def test_ctrl_c_while_closing_still_ends_the_child():
    """The press is not lost: it is raised when all is closed."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\nwhile True: time.sleep(600)"
    serve = textwrap.dedent("""
        import json, sys
        for line in sys.stdin:
            message = json.loads(line)
            if message.get("method") == "initialize":
                info = {"name": "x", "version": "1"}
                result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": info}
                print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
    """)
    client = SyncClient([sys.executable, "-c", serve + stubborn], mode="handshake")
    client.connect()
    pid = client._client._keeper.conversation.transport.pid
    interrupt_soon(0.1, times=3)
    with pytest.raises(KeyboardInterrupt):
        client.close()
    assert not os.path.exists(f"/proc/{pid}")
    assert client.phase is Phase.CLOSED


SCRIPT = """
import sys
from ferrule import SyncClient

with SyncClient(sys.argv[1], stderr="capture") as client:
    print("ready", flush=True)
    client.call_tool("wait")
"""


def test_a_script_ends_at_one_ctrl_c(tmp_path):
    server, script = tmp_path / "server.py", tmp_path / "script.py"
    server.write_text(
        "import asyncio\nfrom ferrule import Server\napp = Server('slow')\n"
        "@app.tool\nasync def wait() -> str:\n    await asyncio.sleep(3600)\n    return ''\n"
    )
    script.write_text(SCRIPT)
    process = subprocess.Popen([sys.executable, script, server], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (1, 130, -signal.SIGINT)
    assert said.strip().endswith(b"KeyboardInterrupt")


def test_a_handler_that_would_close_the_client_in_its_own_thread_is_refused(app, era):
    said = queue.Queue()
    client = SyncClient(app, mode=era, log_level="info")

    def leave(params):
        try:
            client.close()
        except SetupError as refusal:
            said.put(str(refusal))

    client.on_notification("notifications/message", leave)
    with client:
        client.call_tool("count", {"to": 1})
        assert "would block" in said.get(timeout=60)
