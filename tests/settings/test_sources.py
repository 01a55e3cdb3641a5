"""The environment and `ferrule.toml`: what they set, what they do not, and what is said of a bad value."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Server, SetupError, SyncClient
from ferrule.client.settings import ClientSettings
from ferrule.server.hosting.listeners import new_listener
from ferrule.server.settings import ServerSettings, read_run_settings
from ferrule.settings import sources
from ferrule.settings.sources import read_file, require_tables, sourced, use, use_beside
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.settings import EngineSettings

PROGRAM = """
from ferrule import Client, Server

app = Server("configured", title="argument")

@app.tool
def shown() -> dict[str, float | int | str | None]:
    client = Client("http://127.0.0.1:9/mcp", max_rounds=2).settings
    return {
        "page_size": app.settings.page_size,
        "shutdown_grace": app.settings.shutdown_grace,
        "title": app.settings.title,
        "client.request_timeout": client.request_timeout,
        "client.tool_timeout": client.tool_timeout,
        "client.max_rounds": client.max_rounds,
    }

if __name__ == "__main__":
    app.run()
"""
CONFIGURED = """
[run]
file = "server.py"

[server]
page_size = 7
shutdown_grace = 2
title = "file"

[client]
request_timeout = 11
tool_timeout = 12
max_rounds = 13

[client.http]
pool_size = 3

[stdio]
grace = 1

[http]
port = 0
path = "/from-file"

[tcp]
port = 0
framing = "content-length"

[ws]
port = 0
path = "/ws-from-file"
"""
ENVIRONMENT = {
    "FERRULE_SERVER_SHUTDOWN_GRACE": "3",
    "FERRULE_SERVER_TITLE": "environment",
    "FERRULE_CLIENT_TOOL_TIMEOUT": "22",
    "FERRULE_CLIENT_MAX_ROUNDS": "23",
}
SETTLED = {
    "page_size": 7,
    "shutdown_grace": 3,
    "title": "argument",
    "client.request_timeout": 11,
    "client.tool_timeout": 22,
    "client.max_rounds": 2,
}
"""Of the file, of the environment over the file, of an argument over both; for a server and for a client."""


@pytest.fixture(autouse=True)
def nothing_is_in_use(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Begin and end without a file, and with an environment that says nothing."""
    for name in os.environ:
        if re.match(r"FERRULE_(CONFIG$|RUN_|SERVER_|CLIENT_|HTTP_|SSE_|WS_|TCP_|UNIX_|STDIO_)", name):
            monkeypatch.delenv(name)
    use(None)
    yield
    use(None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A program beside its configuration."""
    (tmp_path / "server.py").write_text(PROGRAM)
    (tmp_path / "ferrule.toml").write_text(CONFIGURED)
    return tmp_path


def in_use(folder: Path, text: str) -> Path:
    """Write a file and use it."""
    path = folder / "ferrule.toml"
    path.write_text(text)
    use(read_file(str(path)))
    return path


# -- in a process of its own


def run(*words: str, environment: dict[str, str] | None = None, cwd: Path) -> subprocess.Popen[str]:
    """Start a program with an environment that says this and no more of us."""
    known = {name: value for name, value in os.environ.items() if not name.startswith("FERRULE_")}
    return subprocess.Popen(
        [sys.executable, *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**known, **(environment or {})},
        cwd=cwd,
    )


def ask_on_stdio(process: subprocess.Popen[str]) -> Any:
    """Call the tool of a program over its stdin and stdout."""
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": {"name": "shown", "arguments": {}}},
    ]
    said, errors = process.communicate("".join(json.dumps({"jsonrpc": "2.0", **each}) + "\n" for each in messages), 60)
    answers = {answer["id"]: answer for answer in map(json.loads, said.splitlines())}
    assert 2 in answers, errors
    return answers[2]["result"]["structuredContent"]


RUNS = {
    "ferrule run FILE": ["-m", "ferrule", "run", "server.py"],
    "ferrule run": ["-m", "ferrule", "run"],
    "ferrule run FOLDER": ["-m", "ferrule", "run", "."],
}


@pytest.mark.parametrize("words", RUNS.values(), ids=RUNS)
def test_a_server_and_a_client_on_stdio_have_what_the_file_and_the_environment_say(
    words: list[str], folder: Path
) -> None:
    assert ask_on_stdio(run(*words, environment=ENVIRONMENT, cwd=folder)) == SETTLED


def test_a_file_is_found_beside_the_program_wherever_it_is_started(folder: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "ferrule.toml").write_text("[server]\npage_size = 99\n")
    process = run("-m", "ferrule", "run", str(folder / "server.py"), environment=ENVIRONMENT, cwd=elsewhere)
    assert ask_on_stdio(process) == SETTLED


def test_a_program_that_runs_itself_reads_the_file_that_a_variable_names(folder: Path) -> None:
    named = {**ENVIRONMENT, "FERRULE_CONFIG": "ferrule.toml"}
    assert ask_on_stdio(run("server.py", environment=named, cwd=folder)) == SETTLED


def shown_at(target: Any, **options: Any) -> Any:
    """Return what the tool of a server says."""
    with SyncClient(target, **options) as client:
        return client.call_tool("shown").data


def test_a_folder_with_a_file_is_a_target(folder: Path) -> None:
    assert shown_at(folder)["page_size"] == 7


SERVED = {
    "http": ("argument", "/from-file", {}),
    "http, environment": ("environment", "/from-environment", {"FERRULE_HTTP_PATH": "/from-environment"}),
    "http, argument": ("file", "/from-argument", {"FERRULE_HTTP_PATH": "/from-environment"}),
    "ws": ("environment", "/ws-from-file", {}),
    "ws, environment": ("file", "/ws-from-environment", {"FERRULE_WS_PATH": "/ws-from-environment"}),
    "tcp": ("file", "", {}),
    "tcp, environment": ("argument", "", {"FERRULE_TCP_FRAMING": "line"}),
}
"""Which transport is served, who chooses it, where, and with which variables."""


@pytest.mark.parametrize("case", SERVED)
def test_a_transport_has_what_the_file_and_the_environment_say(case: str, folder: Path) -> None:
    by, path, environment = SERVED[case]
    transport = case.partition(",")[0]
    words = ["-m", "ferrule", "run", "server.py"]
    if by == "argument":
        words += ["--transport", transport]
    elif by == "environment":
        environment = {**environment, "FERRULE_RUN_TRANSPORT": transport}
    else:
        file = folder / "ferrule.toml"
        file.write_text(file.read_text().replace("[run]\n", f'[run]\ntransport = "{transport}"\n'))
    if "argument" in case:
        words += ["--path", path]
    process = run(*words, environment=environment, cwd=folder)
    try:
        assert process.stderr is not None
        url = process.stderr.readline().partition(" at ")[2].partition(". ")[0]
        assert url.endswith(path)
        framing = "line" if "environment" in case else "content-length"
        assert shown_at(url, tcp={"framing": framing})["page_size"] == 7
    finally:
        process.terminate()
        process.communicate(timeout=60)


def test_a_library_that_makes_a_server_or_a_client_is_not_changed_by_a_file_nearby(folder: Path) -> None:
    (folder / "library.py").write_text(
        "from ferrule import Client, Server\n"
        "print(Server('s').settings.page_size, Client('http://h/mcp').settings.request_timeout)\n"
    )
    said, errors = run("library.py", cwd=folder).communicate(timeout=60)
    assert (said, errors) == ("1000 5.0\n", "")


def test_importing_reads_nothing(folder: Path) -> None:
    program = (
        "import ferrule.cli.main, ferrule.settings.sources as s; from ferrule import Client, Server; print(s._active)"
    )
    said, errors = run("-c", program, environment={"FERRULE_CONFIG": "nowhere.toml"}, cwd=folder).communicate(
        timeout=60
    )
    assert (said, errors) == ("None\n", "")


REFUSED_RUNS = {
    "a value of the file": ("[http]\nport = 'x'", {}, "{file}:2: [http] port must be a whole number, not 'x'"),
    "an option of the file": ("[http]\nprot = 1", {}, "{file}:2: [http]: unknown option 'prot'; did you mean 'port'?"),
    "a table": (
        "[htpp]\nport = 1",
        {},
        "{file}:1: unknown table 'htpp'; did you mean 'http'?",
    ),
    "no table": ("port = 1", {}, "{file}: port stands in no table: write it below [run], [server] or another"),
    "no TOML": ("[http", {}, "{file} is not TOML: "),
    "a server's": ("[server]\npage_size = 0", {}, "{file}:2: [server] page_size must be at least 1, not 0"),
    "a path": (
        "[http]\npath = 'x'",
        {},
        "http: path must begin with a slash, not 'x' (set by [http] path in {file}:2)",
    ),
    "a transport": ("[run]\ntransport = 'x'", {}, "run: transport must be one of stdio, http"),
    "a variable's value": ("", {"FERRULE_HTTP_PORT": "x"}, "FERRULE_HTTP_PORT must be a whole number, not 'x'"),
    "a variable's bounds": (
        "",
        {"FERRULE_SERVER_PAGE_SIZE": "0"},
        "FERRULE_SERVER_PAGE_SIZE must be at least 1, not 0",
    ),
    "a variable": (
        "",
        {"FERRULE_HTTP_PROT": "1"},
        "the environment: unknown variable 'FERRULE_HTTP_PROT'; did you mean 'FERRULE_HTTP_PORT'?",
    ),
    "a variable's path": ("", {"FERRULE_HTTP_PATH": "x"}, "not 'x' (set by FERRULE_HTTP_PATH)"),
    "a file that is not there": (
        "",
        {"FERRULE_CONFIG": "no.toml"},
        "names the file 'no.toml', and there is none",
    ),
}


@pytest.mark.parametrize("case", REFUSED_RUNS)
def test_what_is_wrong_is_one_sentence_that_names_its_place(case: str, folder: Path) -> None:
    text, environment, says = REFUSED_RUNS[case]
    file = folder / "ferrule.toml"
    file.write_text(text)
    chosen = [] if "transport" in text else ["--transport", "http"]
    process = run("-m", "ferrule", "run", "server.py", *chosen, environment=environment, cwd=folder)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert said == ""
    assert len(errors.splitlines()) == 1
    assert says.format(file=file.resolve()) in errors


def test_options_of_a_server_that_come_too_late_are_refused_with_the_way_out(folder: Path) -> None:
    process = run("server.py", cwd=folder)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "[server] comes too late" in errors
    assert "start it with `ferrule run server.py`, or set FERRULE_CONFIG=" in errors


def test_a_program_that_runs_itself_has_its_transport_from_the_file_beside_it(folder: Path) -> None:
    (folder / "ferrule.toml").write_text("[run]\ntransport = 'http'\n[http]\nport = 0\npath = '/beside'\n")
    process = run(str(folder / "server.py"), cwd=folder.parent)
    try:
        assert process.stderr is not None
        assert "/beside. Ctrl-C" in process.stderr.readline()
    finally:
        process.terminate()
        process.communicate(timeout=60)


# -- in this process


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("page_size", "5", 5),
        ("tool_timeout", "2.5", 2.5),
        ("tool_timeout", "none", None),
        ("allow_batch", "true", True),
        ("allow_batch", "Off", False),
        ("title", "none", None),
        ("title", "A title, please", "A title, please"),
        ("error_profile", "erlmcp", "erlmcp"),
        ("include_tags", "a, b", ["a", "b"]),
        ("include_tags", "", []),
        ("extensions", '{"com.example/x": {}}', {"com.example/x": {}}),
    ],
)
def test_a_variable_stands_for_a_value_of_its_option(
    name: str, text: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"FERRULE_SERVER_{name.upper()}", text)
    assert sourced("server", [ServerSettings], {}) == {name: value}
    assert getattr(Server("s").settings, name) == value


@pytest.mark.parametrize(
    ("variable", "text", "says"),
    [
        ("FERRULE_SERVER_ALLOW_BATCH", "maybe", "FERRULE_SERVER_ALLOW_BATCH must be True or False, not 'maybe'"),
        ("FERRULE_SERVER_ERROR_PROFILE", "x", "FERRULE_SERVER_ERROR_PROFILE must be one of erlmcp, spec, not 'x'"),
        ("FERRULE_SERVER_EXTENSIONS", "[1]", "FERRULE_SERVER_EXTENSIONS must be a mapping or None, not '[1]'"),
        ("FERRULE_SERVER_OBSERVER", "x", "FERRULE_SERVER_OBSERVER can be set in a program only"),
    ],
)
def test_a_variable_that_stands_for_none_is_refused(
    variable: str, text: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(SetupError, match=f"^{re.escape(says)}$"):
        Server("s")


def test_a_list_with_a_wrong_item_is_refused_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_HTTP_RETRY_STATUSES", "500, 503")
    assert sourced("http", [HttpOptions], {}) == {"retry_statuses": [500, 503]}
    monkeypatch.setenv("FERRULE_HTTP_RETRY_STATUSES", "500,often,503")
    with pytest.raises(SetupError, match="FERRULE_HTTP_RETRY_STATUSES must be"):
        sourced("http", [HttpOptions], {})


def test_variables_for_other_things_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_TRACEBACK", "1")
    monkeypatch.setenv("FERRULE_FUZZ_SEED", "x")
    assert sourced("server", [ServerSettings], {}) == {}


def test_arguments_win_over_the_environment_and_that_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_use(tmp_path, "[http]\nhost = 'file'\nport = 1\nbacklog = 3\n")
    monkeypatch.setenv("FERRULE_HTTP_HOST", "environment")
    monkeypatch.setenv("FERRULE_HTTP_PORT", "2")
    options = sourced("http", [EngineSettings], {"host": "argument"})
    assert options == {"host": "argument", "port": 2, "backlog": 3}


def test_what_an_argument_says_is_not_even_blamed_on_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_HTTP_PATH", "/fine")
    with pytest.raises(SetupError, match=r"^http: path must begin with a slash, not 'x'$"):
        new_listener("http", {"path": "x"})


def test_a_path_in_a_file_is_meant_from_where_the_file_is(tmp_path: Path) -> None:
    in_use(tmp_path, "[http]\ncertificate = 'tls/cert.pem'\n[client]\ncwd = 'work'\n[client.http]\ncert = ['a', 'b']\n")
    assert sourced("http", [EngineSettings], {}) == {"certificate": str(tmp_path / "tls" / "cert.pem")}
    options = sourced("client", [ClientSettings], {})
    assert options == {"cwd": str(tmp_path / "work"), "http": {"cert": ["a", "b"]}}


def test_none_is_written_as_a_word_in_a_file(tmp_path: Path) -> None:
    in_use(tmp_path, "[server]\ninit_timeout = 'none'\n")
    assert Server("s").settings.init_timeout is None


def test_a_client_hands_the_tables_of_its_transports_on(tmp_path: Path) -> None:
    in_use(tmp_path, "[client.http]\npool_size = 3\n[client.headers]\nX = 'y'\n")
    options = Client("http://127.0.0.1:9/mcp").settings.transport_options["http"]
    assert options == {"pool_size": 3, "headers": {"X": "y"}}


def test_a_file_is_read_once_and_the_first_one_stays(folder: Path, tmp_path_factory: Any) -> None:
    first = use_beside(str(folder))
    (folder / "ferrule.toml").write_text("[run]\n")
    assert use_beside(str(folder)) is first
    assert use_beside(str(tmp_path_factory.mktemp("other"))) is first


def test_a_folder_without_a_file_sets_nothing(tmp_path: Path) -> None:
    assert use_beside(str(tmp_path)).tables == {}
    assert read_run_settings({}).transport == "stdio"


def test_every_table_that_is_read_is_known(tmp_path: Path) -> None:
    configuration = read_file(str(in_use(tmp_path, "[run]\n[server]\n")))
    require_tables(configuration, ["run", "server"])
    with pytest.raises(SetupError, match="unknown table 'server'; the tables are run"):
        require_tables(configuration, ["run"])


def test_a_file_that_cannot_be_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"^cannot read .*: No such file or directory$"):
        read_file(str(tmp_path / "nothing.toml"))
    assert sources.active().tables == {}
