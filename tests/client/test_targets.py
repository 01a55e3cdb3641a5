"""Everything a client can be pointed at, and what it says about everything else."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from ferrule import Client, Server
from ferrule.client.targets import is_group, is_several, named_targets, transport_for
from ferrule.errors import SetupError
from ferrule.transports.http.client.old_sse import SseTransport
from ferrule.transports.http.client.transport import HttpTransport
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildProcess
from ferrule.transports.tcp.transport import TcpTransport
from ferrule.transports.websocket.client import WebSocketTransport

SERVER = """
import os, sys
from ferrule import Server

app = Server("first")

@app.tool
async def place() -> dict[str, str]:
    return {"cwd": os.getcwd(), "mark": os.environ.get("MARK", ""), "args": " ".join(sys.argv[1:])}

print("this must not reach the wire")

if __name__ == "__main__":
    app.run()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a server in it, which is where we are."""
    (tmp_path / "server.py").write_text(SERVER)
    (tmp_path / "my server.py").write_text(SERVER)
    (tmp_path / "two.py").write_text(SERVER + "\nother = Server('second')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def config(key, **extra):
    return {key: {"one": {"command": sys.executable, "args": ["server.py", "x y", 7], "env": {"MARK": "m"}, **extra}}}


async def place(target, **options):
    """Ask the server at a target where it is."""
    async with Client(target, stderr="capture", **options) as client:
        return client.server_info.name, (await client.call_tool("place")).structured_content


async def test_a_server_object_is_reached_in_memory(app):
    async with Client(app) as client:
        assert client.server_info.name == "notes"
    assert isinstance(transport_for(app), Memory)


async def test_a_transport_is_taken_as_it_is(app):
    transport = Memory(app)
    assert transport_for(transport) is transport
    async with Client(transport) as client:
        await client.ping()


async def test_a_file_runs_as_a_child(folder):
    """STDIO-5"""
    name, where = await place("server.py")
    assert (name, where["cwd"]) == ("first", str(folder))


async def test_a_file_may_be_a_path(folder):
    assert (await place(folder / "my server.py"))[0] == "first"


async def test_a_server_of_a_file_is_named_after_a_colon(folder):
    async with Client("two.py:other", stderr="capture") as client:
        assert client.server_info.name == "second"


PLAIN = """
import json, sys

for line in sys.stdin:
    asked = json.loads(line)
    if asked["method"] == "initialize":
        version = asked["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {}, "serverInfo": {"name": "plain", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    elif "id" in asked:
        error = {"code": -32601, "message": "no"}
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "error": error}), flush=True)
"""


async def test_a_program_of_another_kind_is_started_as_it_is(folder):
    (folder / "plain.py").write_text(PLAIN)
    async with Client("plain.py", stderr="capture") as client:
        assert client.server_info.name == "plain"


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("from ferrule import Server", False),
        ("import ferrule.server", False),
        ("def f():\n    import ferrule, mcp", False),
        ("from neighbour import app", False),
        ("from .neighbour import app", False),
        ("def f(:", False),
        ("from neighbour import app\nif __name__ == '__main__':\n    app.run()", True),
        ("from mcp.server.fastmcp import FastMCP", True),
        ("import fastmcp", True),
        ("import json, sys", True),
    ],
)
def test_what_is_started_as_it_is_and_what_is_loaded(text, program, folder):
    (folder / "some.py").write_text(text)
    transport = transport_for("some.py")
    assert isinstance(transport, ChildProcess)
    loaded = [sys.executable, "-m", "ferrule", "run", "--transport", "stdio", str(folder / "some.py")]
    assert transport._command == ([sys.executable, str(folder / "some.py")] if program else loaded)
    named = transport_for("some.py:app")
    assert isinstance(named, ChildProcess)
    assert named._command[1:4] == ["-m", "ferrule", "run"]


async def test_a_relative_file_is_found_from_here_also_when_the_child_runs_elsewhere(folder, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert (await place("server.py", cwd=str(elsewhere)))[1]["cwd"] == str(elsewhere)


async def test_a_command_is_a_list(folder):
    """STDIO-5"""
    command = [sys.executable, folder / "server.py", "a b", "$HOME", ";x"]
    name, where = await place(command, env={"MARK": "given"})
    assert (name, where["args"], where["mark"]) == ("first", "a b $HOME ;x", "given")


async def test_a_command_may_be_written_as_a_shell_would_read_it(folder):
    command = f"stdio:{shlex.quote(sys.executable)} 'my server.py' 'a b'"
    assert (await place(command))[1]["args"] == "a b"


@pytest.mark.parametrize("key", ["mcpServers", "servers"])
@pytest.mark.parametrize("form", ["dict", "file", "path"])
async def test_a_configuration_names_one_server(key, form, folder):
    """STDIO-14: credentials come from the environment."""
    (folder / "mcp.json").write_text(json.dumps({**config(key), "inputs": [], "moon": 1}))
    target = {"dict": config(key), "file": "mcp.json", "path": folder / "mcp.json"}[form]
    name, where = await place(target)
    assert (name, where["args"], where["mark"]) == ("first", "x y 7", "m")


def test_what_is_said_to_the_client_goes_before_the_configuration(folder):
    given = config("servers", cwd="/configured", type="stdio", env={"A": "1", "B": 2, "C": True})
    plain = transport_for(given, env=None, cwd=None, stderr="pass")
    assert (plain._cwd, plain._env) == ("/configured", {"A": "1", "B": "2", "C": "True"})
    told = transport_for(given, env={"A": "told"}, cwd="/told", stderr="pass")
    assert (told._cwd, told._env) == ("/told", {"A": "told", "B": "2", "C": "True"})


def test_a_file_whose_name_holds_a_colon_is_a_file(folder):
    (folder / "a:b.py").write_text(SERVER)
    transport = transport_for("a:b.py")
    assert isinstance(transport, ChildProcess)
    assert transport._command[-1] == str(folder / "a:b.py")


BAD = {
    "nothing": (None, "cannot reach NoneType as a server"),
    "a number": (7, "cannot reach int as a server"),
    "bytes": (b"server.py", "cannot reach bytes as a server"),
    "a set": ({"server.py"}, "cannot reach set as a server"),
    "a class": (Server, "cannot reach type as a server"),
    "an empty list": ([], "the command is empty"),
    "an empty command": ("stdio:", "the command is empty"),
    "an open quote": ("stdio:serve 'a", "cannot read the command"),
    "a missing file": ("missing.py", "no such file: missing.py"),
    "a missing file with a name": ("missing.py:app", "no such file: missing.py"),
    "a missing configuration": ("missing.json", "cannot read missing.json: No such file"),
    "a configuration that is not JSON": ("broken.json", "broken.json is not a JSON object"),
    "a configuration that is a list": ("list.json", "list.json is not a JSON object"),
    "an empty text": ("", "cannot reach ''"),
    "words": ("some server", "cannot reach 'some server'"),
    "a scheme nobody knows": ("gopher://x", "cannot reach 'gopher://x'"),
    "an endless name": ("x" * 5000, "cannot reach"),
    "an empty configuration": ({}, "names no server"),
    "no servers": ({"mcpServers": {}}, "names no server"),
    "servers in a list": ({"mcpServers": [{"command": "x"}]}, "names no server"),
    "a server that is text": ({"servers": {"a": "x"}}, "the server 'a' of the configuration is malformed"),
    "arguments in one text": ({"servers": {"a": {"command": "x", "args": "y z"}}}, "malformed.*args"),
    "an environment in a list": ({"servers": {"a": {"command": "x", "env": []}}}, "malformed.*env"),
    "no command": ({"servers": {"a": {"args": []}}}, "the server .a. of the configuration has neither"),
    "an empty command in it": ({"servers": {"a": {"command": ""}}}, "the server .a. of the configuration has neither"),
}


@pytest.mark.parametrize(("target", "said"), BAD.values(), ids=BAD)
async def test_a_target_nobody_can_reach_is_one_clear_sentence(target, said, folder):
    (folder / "broken.json").write_text("{")
    (folder / "list.json").write_text("[]")
    with pytest.raises(SetupError, match=said) as refusal:
        await Client(target).connect()
    assert "\n" not in str(refusal.value)


def test_a_path_object_names_a_file_too(folder):
    with pytest.raises(SetupError, match="no such file"):
        transport_for(Path("missing.py"))


@pytest.mark.parametrize("url", ["http://localhost:8000/mcp", "https://example.com/mcp", "HTTPS://example.com"])
def test_a_url_is_reached_over_http(url):
    assert isinstance(transport_for(url, http={"pool_size": 2}), HttpTransport)


@pytest.mark.parametrize("url", ["sse+http://localhost:8000/sse", "sse+https://example.com/sse"])
def test_a_url_may_say_that_its_server_is_an_old_one(url):
    assert isinstance(transport_for(url), SseTransport)


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        ({"url": "https://example.com/mcp"}, HttpTransport),
        ({"url": "https://example.com/mcp", "type": "http", "headers": {"Authorization": "Bearer x"}}, HttpTransport),
        ({"url": "https://example.com/mcp", "type": "streamable-http"}, HttpTransport),
        ({"url": "https://example.com/sse", "type": "sse"}, SseTransport),
        ({"url": "sse+https://example.com/sse"}, SseTransport),
    ],
)
def test_a_configuration_may_name_a_url(entry, kind):
    assert isinstance(transport_for({"mcpServers": {"one": entry}}), kind)


def test_a_client_of_several_servers_is_made_of_a_configuration_or_a_dict(tmp_path):
    config = {"a": {"command": "x"}, "b": {"url": "http://h/mcp"}}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"servers": config}))
    expected = {"a": {"mcpServers": {"a": config["a"]}}, "b": {"mcpServers": {"b": config["b"]}}}
    for target in (config, {"mcpServers": config}, path, str(path)):
        assert is_several(target)
        assert named_targets(target) == expected
    assert named_targets({"a": "server.py", "b": ["python", "b.py"]}) == {"a": "server.py", "b": ["python", "b.py"]}
    for one in ({"mcpServers": {"a": {"command": "x"}}}, {"a": "words"}, {"a": []}, "missing.json", {}):
        assert not is_several(one)
    with pytest.raises(SetupError, match="there are 300 servers, and a client uses at most 256"):
        named_targets({str(number): "server.py" for number in range(300)})


async def test_a_script_of_another_language_is_run_by_the_program_for_it(folder, monkeypatch):
    for name in ("server.js", "server.ts"):
        (folder / name).write_text("")
    monkeypatch.setenv("PATH", str(folder))
    with pytest.raises(SetupError, match=r"server.js is run by node, which is not on the PATH: install it"):
        transport_for("server.js")
    with pytest.raises(SetupError, match=r"server.ts is run by tsx or bun or deno or node, which is not on the PATH"):
        transport_for("server.ts")
    with pytest.raises(SetupError, match=r"no such file: missing\.js"):
        transport_for("missing.js")
    # It answers with its arguments as the server's place, as our server of a file does.
    node = folder / "node"
    node.write_text(f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(str(folder / 'server.py'))} $@\n")
    node.chmod(0o755)
    for name, words in (("server.js", ""), ("server.ts", "--experimental-strip-types ")):
        async with Client(name) as client:
            assert (await client.call_tool("place")).data["args"] == f"{words}{folder / name}"


def test_headers_of_the_configuration_go_along_and_ours_win():
    entry = {"url": "https://example.com/mcp", "headers": {"A": "theirs", "B": "theirs"}}
    transport = transport_for({"mcpServers": {"one": entry}}, http={"headers": {"A": "ours"}})
    assert transport.destination.options.headers == {"A": "ours", "B": "theirs"}


@pytest.mark.parametrize("url", ["http://", "http://a b/", "https://x:port/"])
def test_a_url_that_is_none_is_refused(url):
    with pytest.raises(SetupError, match="URL"):
        transport_for(url)


def test_a_configured_url_must_be_one_of_a_transport():
    with pytest.raises(SetupError, match=r"URL|http"):
        transport_for({"mcpServers": {"one": {"url": "gopher://x"}}})


@pytest.mark.parametrize("url", ["tcp://localhost:5000", "TLS://localhost:5000", "unix:/run/mcp.sock"])
def test_a_socket_is_reached_with_the_options_of_sockets(url):
    for target in (url, {"servers": {"one": {"url": url}}}):
        transport = transport_for(target, tcp={"connect_timeout": 2.5}, http={"pool_size": 2})
        assert isinstance(transport, TcpTransport)
        assert transport._options.connect_timeout == 2.5


def test_a_websocket_is_reached_with_its_options_and_the_headers_of_a_configuration():
    entry = {"url": "wss://example.com/mcp/ws", "headers": {"A": "theirs", "B": "theirs"}}
    given = {"headers": {"A": "ours"}, "compression": True}
    transport = transport_for({"mcpServers": {"one": entry}}, websocket=given)
    assert isinstance(transport, WebSocketTransport)
    assert transport._options.headers == {"A": "ours", "B": "theirs"}
    assert transport._options.compression


@pytest.mark.parametrize(
    ("target", "options", "said"),
    [
        ("tcp://localhost:5000", {"tcp": {"time": 1}}, "tcp: unknown option 'time'; the options are buffer_size"),
        ("ws://localhost:5000", {"websocket": {"time": 1}}, "websocket: unknown option 'time'; the options are"),
        ("tcp://localhost:5000", {"tcp": {"framing": "auto"}}, "its framing is line or content-length, not auto"),
    ],
)
async def test_an_option_a_socket_does_not_have_is_one_clear_sentence(target, options, said):
    with pytest.raises(SetupError, match=said):
        await Client(target, **options).connect()


class TestSeveralTargets:
    """`Client([…])`: a command, or several servers that offer the same."""

    @pytest.mark.parametrize(
        "target",
        [
            "http://a/mcp",
            "server.py",
            {"mcpServers": {}},
            Server("a"),
            ["python", "server.py"],
            ["./server.py"],
            ["uvx", "mcp-proxy", "http://a/mcp"],
            ("python", Path("server.py"), 8000),
            [Path("server"), "--port", 1.5],
            ["server.py", "config.json", "--fast"],
            [],
            b"bytes",
        ],
    )
    def test_a_command_and_whatever_is_no_list_is_one_target(self, target: object) -> None:
        assert not is_group(target)

    @pytest.mark.parametrize(
        "target",
        [
            ["http://a/mcp"],
            ["http://a/mcp", "ws://b/mcp", "tcp://c:5000", "unix:/tmp/d", "stdio:python e.py"],
            [Server("a"), Server("b")],
            ("http://a/mcp", Server("b"), {"mcpServers": {}}, ["python", "c.py"]),
            ["http://a/mcp", "server.py", Path("server.py"), "server.py:app", "mcp.json"],
            ["server.py", Server("b")],
            [["python", "a.py"], ["python", "b.py"]],
        ],
    )
    def test_a_list_of_addresses_and_objects_is_several_targets(self, target: object) -> None:
        assert is_group(target)

    def test_a_folder_of_a_project_is_a_target_among_others(self, tmp_path: Path) -> None:
        (tmp_path / "ferrule.toml").write_text("")
        assert is_group(["http://a/mcp", str(tmp_path)])

    @pytest.mark.parametrize("target", [["a.py", "b.py"], [Path("a.py"), "b.json"], ["a.py:app", "b.py:app"]])
    def test_files_alone_are_in_doubt(self, target: list[object]) -> None:
        with pytest.raises(SetupError, match=r"may be a command or several servers: write the command as 'stdio:a\.py"):
            is_group(target)

    @pytest.mark.parametrize(
        ("target", "wrong"),
        [
            (["http://a/mcp", "--verbose"], "'--verbose'"),
            ([Server("a"), "python"], "'python'"),
            (["python", Server("a")], "'python'"),
            (["http://a/mcp", 8000], "8000"),
            (["http://a/mcp", None], "None"),
        ],
    )
    def test_what_is_neither_is_refused_with_what_is_wrong(self, target: list[object], wrong: str) -> None:
        with pytest.raises(
            SetupError, match=rf"{wrong} is not a target, and its list is not a command, since it begins with"
        ):
            Client(target)
