"""`ferrule run`, as a person types it and as a client starts it."""

from __future__ import annotations

import json
import os
import pty
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import SimpleNamespace

import pytest

from ferrule import __version__
from ferrule.cli.main import COMMANDS as COMMAND_TABLE
from ferrule.cli.main import Ended, main
from ferrule.errors import ConnectFailed, LinkLost, SetupError, TimedOut
from uncounted import uncounted_environment

SERVER = """
import os, sys
from ferrule import Server

print("printed while loading")
os.write(1, b"written while loading\\n")
app = Server("app")

@app.tool
def shout(text: str) -> str:
    print("printed while running")
    return text.upper()
"""

OFFER = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
READY = {"jsonrpc": "2.0", "method": "notifications/initialized"}
CALL = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "shout", "arguments": {"text": "hi"}},
}

COMMANDS = {
    "python -m ferrule": [sys.executable, "-m", "ferrule"],
    "ferrule": [str(Path(sysconfig.get_path("scripts")) / "ferrule")],
}


@pytest.fixture
def server(tmp_path):
    path = tmp_path / "server.py"
    path.write_text(SERVER)
    (tmp_path / "two.py").write_text(SERVER + "\nother = Server('other')\n")
    return path


def ferrule(*arguments, command=COMMANDS["python -m ferrule"], said=b"", cwd=None):
    words = [*command, *arguments]
    return subprocess.run(words, input=said, capture_output=True, cwd=cwd, timeout=60, check=False)


def lines(*messages):
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_a_file_is_served_on_stdio_until_its_input_ends(command, server):
    """Nothing it prints reaches the wire, and it exits 0."""
    done = ferrule("run", "server.py", command=command, said=lines(OFFER, READY, CALL), cwd=server.parent)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == [1, 2]
    assert answers[0]["result"]["serverInfo"]["name"] == "app"
    assert answers[1]["result"]["content"][0]["text"] == "HI"
    assert done.returncode == 0
    for word in (b"printed while loading", b"written while loading", b"printed while running"):
        assert word in done.stderr


def test_the_transport_may_be_named(server):
    done = ferrule("run", str(server), "--transport", "stdio", said=lines(OFFER))
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "app"


def test_one_of_several_servers_is_named_after_a_colon(server):
    done = ferrule("run", f"{server.with_name('two.py')}:other", said=lines(OFFER))
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "other"


def test_a_file_has_its_own_arguments(server):
    server.write_text("import sys\nfrom ferrule import Server\napp = Server(' '.join(sys.argv))")
    done = ferrule("run", "server.py", "--", "--port", "7", "a b", said=lines(OFFER), cwd=server.parent)
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "server.py --port 7 a b"


def test_a_module_is_served_by_its_name(server):
    package = server.parent / "shop"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "stock.py").write_text("NAME = 'shop'")
    (package / "main.py").write_text("from ferrule import Server\nfrom .stock import NAME\napp = Server(NAME)")
    for place in ("shop.main", "shop.main:app", "shop/main.py", "shop/main.py:app"):
        done = ferrule("run", place, said=lines(OFFER), cwd=server.parent)
        assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "shop", done.stderr


LIFESPAN = """
from contextlib import asynccontextmanager
from ferrule import Server

@asynccontextmanager
async def database(app):
    raise RuntimeError("no database")
    yield

app = Server("shop", lifespan=database)

if __name__ == "__main__":
    app.run()
"""


@pytest.mark.parametrize("program", [[], ["-m", "ferrule", "run"]], ids=["python", "ferrule run"])
def test_a_lifespan_that_fails_is_one_sentence_with_the_line(program, server):
    server.write_text(LIFESPAN)
    done = subprocess.run(
        [sys.executable, *program, server.name], cwd=server.parent, input=b"", capture_output=True, check=False
    )
    assert (done.returncode, done.stdout) == (1, b"")
    said = done.stderr.decode().splitlines()
    assert said[-1] == "error: the lifespan of the server 'shop' failed: RuntimeError: no database (server.py, line 7)"
    assert "Traceback" not in done.stderr.decode()


@pytest.mark.parametrize("program", [[], ["-m", "ferrule", "run"]], ids=["python", "ferrule run"])
def test_a_port_in_use_is_one_sentence(program, server):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server.write_text(
            "from ferrule import Server\napp = Server('s')\n"
            f"if __name__ == '__main__':\n    app.run('http', port={port})\n"
        )
        options = ["--transport", "http", "--port", str(port)] if program else []
        done = subprocess.run(
            [sys.executable, *program, server.name, *options], cwd=server.parent, capture_output=True, check=False
        )
    assert done.returncode == 1
    [line] = done.stderr.decode().splitlines()
    assert line.startswith(f"error: cannot listen on 127.0.0.1:{port}: the port is in use")


def test_the_traceback_is_shown_where_it_is_asked_for(server):
    server.write_text("def f():\n    return 1 / 0\nf()")
    brief = ferrule("run", str(server)).stderr.decode().splitlines()
    assert brief == [f"error: {server} cannot be loaded: ZeroDivisionError: division by zero (line 2)"]
    long = ferrule("run", str(server), "--traceback").stderr.decode()
    assert "return 1 / 0" in long
    assert long.splitlines()[-1] == brief[-1]


def test_there_is_no_banner_and_no_advert(server):
    server.write_text("from ferrule import Server\napp = Server('quiet')")
    done = ferrule("run", str(server))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_ends_it_in_order_with_exit_0(number, server):
    process = subprocess.Popen(
        [*COMMANDS["python -m ferrule"], "run", str(server)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdin.write(lines(OFFER))
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["id"] == 1
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert b"Traceback" not in said


def test_a_person_at_a_terminal_gets_one_hint(server):
    server.write_text("from ferrule import Server\napp = Server('hello')")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMANDS["python -m ferrule"], "run", str(server)], stdin=theirs, stdout=theirs, stderr=subprocess.PIPE
    )
    os.close(theirs)
    hint = process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    os.close(ours)
    assert b"hello speaks MCP" in hint
    assert rest == b""
    assert process.returncode in (0, 130)


def test_ctrl_c_while_a_file_is_loaded_is_no_traceback(server):
    server.write_text("import sys, time\nprint('loading', file=sys.stderr, flush=True)\ntime.sleep(600)")
    process = subprocess.Popen(
        [*COMMANDS["python -m ferrule"], "run", str(server)], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr.readline() == b"loading\n"
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert (process.returncode, rest) == (130, b"")


MOMENTS = {
    "before there is a loop": ("asyncio.Runner.get_loop", []),
    "before the loop has the program": ("asyncio.Runner.run", []),
    "before the loop hears of signals": ("signal.getsignal", []),
    "before the server hears of signals": ("signals.Shutdown.__enter__", []),
    "before the overseer begins": ("asyncio.Runner.run", ["--transport", "http", "--port", "0", "--workers", "2"]),
}


def interrupted_at(function: str, arguments: list[str]) -> tuple[int, bytes, bytes]:
    """Run a command that Ctrl-C reaches just before such a function is called."""
    program = (
        "import asyncio, signal, sys\n"
        "from ferrule.__main__ import main\n"
        "from ferrule.supervision import signals\n"
        f"interrupted = {function}\n"
        "def interrupt(*given):\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    return interrupted(*given)\n"
        f"{function} = interrupt\n"
        f"sys.argv = ['ferrule', *{arguments!r}]\n"
        "main()\n"
    )
    command = [sys.executable, "-W", "always", "-c", program]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("moment", MOMENTS)
def test_ctrl_c_while_a_server_starts_is_no_traceback_and_no_warning(moment, server):
    server.write_text("from ferrule import Server\napp = Server('hello')")
    function, options = MOMENTS[moment]
    assert interrupted_at(function, ["run", str(server), *options]) == (130, b"", b"")


OTHERS = {
    "list": ["list", "http://127.0.0.1:1/mcp"],
    "check": ["check", "http://127.0.0.1:1/mcp"],
    "doctor": ["doctor", "http://127.0.0.1:1/mcp"],
    "doctor of hosts": ["doctor"],
    "doctor of a login": ["doctor", "auth", "http://127.0.0.1:1/mcp"],
    "login": ["login", "http://127.0.0.1:1/mcp"],
    "logout": ["logout", "http://127.0.0.1:1/mcp"],
}


@pytest.mark.parametrize("command", OTHERS)
@pytest.mark.parametrize("function", ["asyncio.Runner.get_loop", "asyncio.Runner.run"])
def test_ctrl_c_before_a_command_has_its_loop_is_no_traceback_and_no_warning(command, function):
    assert interrupted_at(function, OTHERS[command]) == (130, b"", b"")


def test_ctrl_c_before_a_file_has_made_its_server_is_no_traceback_and_no_warning(server):
    server.write_text("from ferrule import Server\nasync def make():\n    return Server('hello')")
    assert interrupted_at("asyncio.Runner.get_loop", ["list", f"{server}:make"]) == (130, b"", b"")


WRONG = {
    "a missing file": (["run", "missing.py"], 1, "error: no such file: missing.py"),
    "another name": (["run", "two.py:moon"], 1, "error: two.py has no server named 'moon'; it has app, other"),
    "two servers": (
        ["run", "two.py"],
        1,
        "error: two.py defines 2 servers, app and other: name the one to run, as in two.py:app",
    ),
    "a file with a typo": (["run", "servre.py"], 1, 'no such file: servre.py. Did you mean "server.py"?'),
    "a target with a typo": (["list", "servre.py"], 1, 'no such file: servre.py. Did you mean "server.py"?'),
    "another ending": (["run", "server.pi"], 1, 'no such file or module: server.pi. Did you mean "server.py"?'),
    "an argument as an option": (
        ["call", "server.py", "shout", "--loudness=hi"],
        2,
        "unrecognized arguments: --loudness=hi. Arguments of a tool are written key=value.",
    ),
    "two files of one name": (["run", "server.py", "server.py"], 1, "would both be 'server': give one another name"),
    "a module nobody has": (["run", "no.such.module"], 1, "error: no such file or module: no.such.module"),
    "a file that fails": (["run", "broken.py"], 1, "error: broken.py cannot be loaded: ZeroDivisionError"),
    "no command": ([], 2, "required: command"),
    "a typo": (["rum", "server.py"], 2, 'there is no command "rum". Did you mean "run"?'),
    "a transport nobody knows": (["run", "server.py", "--transport", "pigeon"], 2, "invalid choice: 'pigeon'"),
    "a transport with a typo": (["run", "server.py", "--transport", "htp"], 2, 'Did you mean "http"?'),
    "an option with a typo": (["run", "server.py", "--prot", "8000"], 2, 'Did you mean "--port"?'),
    "a typo of a command's command": (["receipts", "show", ".", "--outcom", "ok"], 2, 'Did you mean "--outcome"?'),
    "an option before the command": (["--port", "run"], 2, "name the command first"),
    "an option nobody knows": (["run", "server.py", "--moon"], 2, "unrecognized arguments: --moon"),
}


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_one_sentence_and_a_failure(arguments, code, said, server):
    (server.parent / "broken.py").write_text("1 / 0")
    done = ferrule(*arguments, cwd=server.parent)
    assert done.returncode == code
    assert done.stdout == b""
    last = done.stderr.decode().splitlines()[-1]
    assert said in last
    assert "Traceback" not in done.stderr.decode()


MISUSED = {
    "a command": (["rum", "--json"], 'there is no command "rum". Did you mean "run"?'),
    "an option": (
        ["run", "server.py", "--prot=1", "--json"],
        'unrecognized arguments: --prot=1. Did you mean "--port"?',
    ),
    "a choice": (["receipts", "shw", "--json"], "invalid choice: 'shw'"),
    "a word that is missing": (["receipts", "show", "--json"], "the following arguments are required"),
}


@pytest.mark.parametrize(("words", "sentence"), MISUSED.values(), ids=MISUSED)
def test_a_wrong_command_line_is_json_for_programs(words, sentence, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    said = capsys.readouterr()
    told = json.loads(said.out)["error"]
    assert (left.value.code, told["exit_code"], told["type"], said.err) == (2, 2, "WrongUsage", "")
    assert sentence in told["message"]


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["help"]])
def test_help_names_the_commands(words, capsys):
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == 0
    said = capsys.readouterr().out
    for command in COMMAND_TABLE:
        assert f"  {command.name:<12}{command.help}\n" in said


@pytest.mark.parametrize("command", COMMAND_TABLE, ids=[command.name for command in COMMAND_TABLE])
def test_every_command_has_help_and_takes_json(command, capsys):
    with pytest.raises(SystemExit) as left:
        main([command.name, "--help"])
    assert left.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: ferrule {command.name}")
    assert "--json" in said
    assert "--traceback" in said


def test_help_loads_nothing_it_does_not_need():
    """So that it is there in no time."""
    program = (
        "import sys\nfrom ferrule.cli.main import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = ('msgspec', 'asyncio', 'logging', 'ferrule.client', 'ferrule.server', 'difflib', 'json')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=uncounted_environment(), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as left:
        main(["--version"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"ferrule {__version__}\n")


def failing(error):
    """Return the module of a command that raises."""

    def execute(options, passed_on):
        raise error

    return SimpleNamespace(configure=lambda parser: parser.set_defaults(uses_server=True), execute=execute)


CODES = [
    (SetupError("bad file"), 1),
    (ConnectFailed("nobody there"), 4),
    (TimedOut("no answer"), 4),
    (LinkLost("gone"), 4),
    (Ended("the tool said no", 3), 3),
    (KeyboardInterrupt(), 130),
]


@pytest.mark.parametrize(("error", "code"), CODES, ids=[type(error).__name__ for error, _ in CODES])
@pytest.mark.parametrize("json_wanted", [False, True])
def test_the_exit_code_tells_how_it_failed(error, code, json_wanted, monkeypatch, capsys):
    monkeypatch.setattr("ferrule.cli.main.import_module", lambda name: failing(error))
    with pytest.raises(SystemExit) as left:
        main(["version", *(["--json"] if json_wanted else [])])
    assert left.value.code == code
    said = capsys.readouterr()
    if code == 130:
        assert (said.out, said.err) == ("", "")
    elif json_wanted:
        told = json.loads(said.out)["error"]
        assert (told["message"], told["type"], told["exit_code"]) == (str(error), type(error).__name__, code)
    else:
        assert said.err == f"error: {error}\n"


def test_an_error_shows_what_a_peer_said_and_obeys_none_of_it(monkeypatch, capsys):
    error = SetupError("the server said \x1b[2Jhello\nerror: not ours")
    monkeypatch.setattr("ferrule.cli.main.import_module", lambda name: failing(error))
    with pytest.raises(SystemExit):
        main(["version"])
    assert capsys.readouterr().err == "error: the server said \\x1b[2Jhello\n  error: not ours\n"


# -- streams, and Ctrl-C at any time


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("words", [["--help"], ["version"], ["version", "--json"]], ids=" ".join)
def test_a_full_disk_is_one_sentence(words):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*COMMANDS["ferrule"], *words], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"error: cannot write the output: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_stream_that_is_closed_does_no_harm(closed):
    line = f"{sys.executable} -m ferrule version {closed}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_path_that_may_not_be_looked_at_is_one_sentence(monkeypatch, capsys):
    error = PermissionError(13, "Permission denied", "/secret/server.py")
    monkeypatch.setattr("ferrule.cli.main.import_module", lambda name: failing(error))
    with pytest.raises(SystemExit) as left:
        main(["version"])
    assert (left.value.code, capsys.readouterr().err) == (1, "error: cannot use /secret/server.py: Permission denied\n")


@pytest.mark.parametrize("module", ["ferrule.cli.main", "ferrule.cli.list"])
def test_ctrl_c_while_a_command_is_imported_is_no_traceback(module):
    program = (
        "import sys\n"
        "class Impatient:\n"
        "    def find_spec(self, name, *more):\n"
        f"        if name == {module!r}:\n"
        "            raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Impatient())\n"
        "sys.argv = ['ferrule', 'list', '.']\n"
        "from ferrule.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


WRONG = [
    (["--port", "8000"], "--port is for a transport that listens: add --transport http"),
    (["--reload", "--workers", "2", "--transport", "http"], "a file is followed in one process: leave --workers out"),
]


@pytest.mark.parametrize(("words", "said"), WRONG, ids=["port", "workers"])
def test_options_that_do_not_go_together_are_refused(words, said, server, capsys):
    with pytest.raises(SystemExit) as left:
        main(["run", str(server), *words])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "dev"])
@pytest.mark.parametrize("named", [True, False])
def test_a_folder_without_a_server_is_one_sentence_with_the_fix(command, named, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as left:
        main([command, *([str(tmp_path)] if named else [])])
    assert left.value.code == 2
    said = capsys.readouterr().err
    wrong = (
        f"the folder {tmp_path} does not say which file to run" if named else "there is no file to run in this folder"
    )
    fix = "it has no server.py, app.py or main.py; name the file, or start a project with `ferrule new NAME`"
    assert said.endswith(f"error: {wrong}: {fix}\n")


@pytest.mark.parametrize("words", [[], ["."]])
def test_a_folder_with_a_usual_file_is_served_without_more(words, server):
    done = ferrule("run", *words, said=lines(OFFER), cwd=server.parent)
    assert json.loads(done.stdout)["result"]["serverInfo"]["name"] == "app"
