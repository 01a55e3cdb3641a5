"""`ferrule doctor`: set-ups that are really broken, each found by its own name, and fixed where that is safe."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from ferrule import Http, Server
from ferrule.cli.main import main

GOOD = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        result = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "x", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""
OLD = GOOD.replace("2025-11-25", "2024-11-05")
PYTHON = [sys.executable, "-S"]

Doctor = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, with a working server in it."""
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.py").write_text(GOOD)
    return tmp_path


@pytest.fixture
def doctor(home: Path, capsys: pytest.CaptureFixture[str]) -> Doctor:
    """Run the doctor, and return its exit code and what it found."""

    def run(*words: str) -> tuple[int, list[dict[str, Any]]]:
        code = 0
        try:
            main(["doctor", "--json", *words])
        except SystemExit as end:
            code = int(end.code or 0)
        return code, json.loads(capsys.readouterr().out)

    return run


def written(home: Path, host: str = "claude-desktop", **servers: Any) -> Path:
    """Write the file of a host."""
    path = home / {"claude-desktop": ".config/Claude/claude_desktop_config.json", "codex": ".codex/config.toml"}[host]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"mcpServers": servers}, indent=2))
    return path


def names(found: list[dict[str, Any]]) -> list[str]:
    return [each["what"] for each in found if not each["ok"]]


def test_shells_complete_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash"])
    lines = capsys.readouterr().out.splitlines()
    line = next(line for line in lines if "claude-desktop" in line and "--no-start" in line)
    assert " auth " in line


# -- files of hosts


def test_a_working_server_is_well_and_nothing_is_changed(home: Path, doctor: Doctor) -> None:
    path = written(home, x={"command": sys.executable, "args": ["-S", str(home / "good.py")]})
    before = path.read_bytes()
    code, found = doctor("claude-desktop", "--fix")
    assert (code, [each["what"] for each in found]) == (0, ["starts"])
    assert path.read_bytes() == before


def test_no_host_at_all_is_no_failure_and_a_host_without_a_file_is_one(doctor: Doctor) -> None:
    code, found = doctor()
    assert (code, found[0]["found"]) == (0, "no host has a configuration here")
    code, found = doctor("cursor")
    assert (code, names(found)) == (1, ["no-file"])
    assert "ferrule install cursor" in found[0]["fix"]


@pytest.mark.parametrize(
    ("entry", "what", "words"),
    [
        ({"command": "no-such-program-anywhere"}, "command", "there is no program"),
        ({"command": "/gone/venv/bin/python", "args": ["x"]}, "interpreter", "deleted or moved"),
        ({"command": sys.executable, "args": ["/gone/server.py"]}, "file", "there is no file /gone/server.py"),
        ({"command": sys.executable, "args": ["gone.py"]}, "relative-path", "a folder of its own"),
        ({"command": sys.executable, "args": ["-c", ""], "env": {"API_KEY": "YOUR_API_KEY"}}, "environment", "API_KEY"),
        ({"command": sys.executable, "args": ["-c", ""], "env": {"API_KEY": "${KEY}"}}, "environment", "API_KEY"),
        ({}, "entry", "neither a command nor a URL"),
    ],
    ids=["command", "interpreter", "file", "relative", "example", "reference", "empty"],
)
def test_a_broken_entry_is_found(entry: dict[str, Any], what: str, words: str, home: Path, doctor: Doctor) -> None:
    path = written(home, x=entry)
    code, found = doctor("claude-desktop", *(["--no-start"] if entry else []))
    assert (code, names(found)) == (1, [what])
    assert words in found[0]["found"]
    assert found[0]["fix"]
    assert (found[0]["server"], found[0]["file"]) == ("x", str(path))


def test_relative_paths_and_a_program_of_the_shell_are_fixed_and_brought_back(
    home: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = home / "tools"
    folder.mkdir()
    (folder / "my-python").symlink_to(sys.executable)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    secret = {"TOKEN": "s3cret"}
    path = written(home, x={"command": "my-python", "args": ["-S", "good.py"], "env": secret}, other={"url": "x://y"})
    before = path.read_bytes()
    code, found = doctor("claude-desktop", "--server", "x")
    assert (code, names(found)) == (1, ["command-path", "relative-path"])
    code, found = doctor("claude-desktop", "--server", "x", "--fix")
    assert (code, [(each["what"], each["fixed"]) for each in found]) == (
        0,
        [("command-path", True), ("relative-path", True), ("starts", False)],
    )
    config = json.loads(path.read_text())["mcpServers"]
    assert config["x"] == {"command": str(folder / "my-python"), "args": ["-S", str(home / "good.py")], "env": secret}
    assert config["other"] == {"url": "x://y"}
    main(["install", "claude-desktop", "--undo"])
    assert path.read_bytes() == before, "all that was fixed is brought back at once"


def test_what_is_fixed_is_shown_without_secrets(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written(home, x={"command": sys.executable, "args": ["-S", "good.py"], "env": {"TOKEN": "s3cret"}})
    main(["doctor", "claude-desktop", "--fix"])
    said = capsys.readouterr().out
    assert f'+        "{home}/good.py"' in said
    assert "fixed  x: relative-path" in said
    assert "s3cret" not in said
    main(["install", "claude-desktop", "--undo"])
    assert "good.py" in (home / ".config/Claude/claude_desktop_config.json").read_text()


def test_a_broken_and_a_commented_file_are_told_apart(home: Path, doctor: Doctor) -> None:
    path = written(home)
    path.write_text('{"mcpServers": {\n  "x": {"command": }\n}}')
    code, found = doctor("claude-desktop", "--fix")
    assert (code, names(found)) == (1, ["file-broken"])
    assert "line 2" in found[0]["found"]
    assert path.read_text().startswith('{"mcpServers"'), "what cannot be read is not changed"
    good = f'"x": {{"command": "{sys.executable}", "args": ["-S", "{home}/good.py"]}}'
    path.write_text(f'{{\n  // mine\n  "mcpServers": {{{good},}}\n}}')
    code, found = doctor("claude-desktop", "--no-start")
    assert (code, names(found)) == (1, ["comments"])
    assert doctor("claude-desktop", "--fix")[0] == 0
    assert "x" in json.loads(path.read_text())["mcpServers"]


def test_a_file_that_may_not_be_read_hides_no_other(
    home: Path, doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = written(home, x={"command": sys.executable, "args": ["-S", str(home / "good.py")]})
    other = home / ".cursor" / "mcp.json"
    other.parent.mkdir()
    other.mkdir()
    code, found = doctor("--no-start")
    assert (code, names(found)) == (1, ["not-read"])
    assert [each["file"] for each in found if each["ok"]] == [str(good)]


def test_a_host_with_a_typo_is_answered_with_the_right_one(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["doctor", "vscod"])
    assert end.value.code == 1
    assert capsys.readouterr().err.endswith('. Did you mean "vscode"?\n')


def test_servers_under_the_name_of_another_host_are_found(home: Path, doctor: Doctor) -> None:
    path = home / ".config/Code/User/mcp.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {"x": {"command": "y"}}}')
    code, found = doctor("vscode")
    assert (code, names(found)) == (1, ["table"])
    assert '"servers"' in found[0]["fix"]


def test_toml_is_read_and_fixed_too(home: Path, doctor: Doctor) -> None:
    path = written(home, "codex")
    path.write_text(f'[mcp_servers.x]\ncommand = "{sys.executable}"\nargs = ["-S", "good.py"]\n')
    assert names(doctor("codex", "--no-start")[1]) == ["relative-path"]
    assert doctor("codex", "--fix")[0] == 0
    assert str(home / "good.py") in path.read_text()


def test_yaml_is_read_and_fixed_too_and_what_is_switched_off_is_left_alone(home: Path, doctor: Doctor) -> None:
    path = home / "goose.yaml"
    path.write_text(
        f"extensions:\n  x:\n    cmd: {sys.executable}\n    args: [-S, good.py]\n"
        "  off:\n    enabled: false\n    cmd: /gone/python\n"
    )
    code, found = doctor("goose", "--config", str(path), "--no-start")
    assert (code, names(found)) == (1, ["relative-path"])
    assert doctor("goose", "--config", str(path), "--fix")[0] == 0
    assert str(home / "good.py") in path.read_text()
    path.write_text("extensions: [\n")
    assert names(doctor("goose", "--config", str(path))[1]) == ["file-broken"]


# -- programs


@pytest.mark.parametrize(
    ("code", "what", "words"),
    [
        ("import no_such_library", "dependency", "no_such_library"),
        ("raise SystemExit('no database')", "exits", "no database"),
        ("print('done')", "exits", "exit code 0"),
        ("import os; os.environ['API_TOKEN']", "environment", "API_TOKEN"),
        ("import time; time.sleep(60)", "silent", "does not answer within"),
        (f"print('Starting…', flush=True){GOOD}", "stdout", "Starting"),
        (OLD, "old-version", "2024-11-05"),
    ],
    ids=["dependency", "exits", "ends well", "environment", "silent", "stdout", "old"],
)
def test_a_program_that_does_not_work_is_diagnosed(code: str, what: str, words: str, doctor: Doctor) -> None:
    ended, found = doctor("--timeout", "20" if what != "silent" else "1", "--", *PYTHON, "-c", code)
    assert (ended, names(found)) == (1, [what])
    assert words in next(each for each in found if not each["ok"])["found"]
    assert found[-1]["fix"]


def test_a_program_that_needs_the_shell_is_told_apart_from_a_broken_one(
    doctor: Doctor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_TOKEN", "s3cret")
    code, found = doctor("--", *PYTHON, "-c", f"import os; os.environ['API_TOKEN']{GOOD}")
    assert (code, names(found)) == (1, ["environment"])
    assert "starts in your shell" in found[0]["found"]
    assert '"API_TOKEN"' in found[0]["fix"]
    assert "s3cret" not in json.dumps(found)
    assert doctor("--env", "API_TOKEN=x", "--", *PYTHON, "-c", f"import os; os.environ['API_TOKEN']{GOOD}")[0] == 0


def test_a_slow_start_is_found(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.cli.diagnosis.SLOW", 0.0)
    assert names(doctor("--", *PYTHON, "-c", GOOD)[1]) == ["slow-start"]


# -- URLs


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A server of ours over HTTP."""
    found: list[str] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    app = Server("x")

    async def serve() -> None:
        listener = Http(port=0, path="/mcp")

        def tell() -> None:
            found.append(listener.url)
            ready.set()

        await app.serve(listener, ready=tell)

    thread = threading.Thread(target=loop.run_until_complete, args=[serve()])
    thread.start()
    assert ready.wait(60)
    yield found[0]
    asyncio.run_coroutine_threadsafe(app.stop(0.0), loop).result(60)
    thread.join()
    loop.close()


def test_a_url_is_well_or_its_path_is_found(url: str, home: Path, doctor: Doctor) -> None:
    assert doctor(url)[0] == 0
    for wrong in (url.removesuffix("/mcp"), url.replace("/mcp", "/api")):
        code, found = doctor(wrong)
        assert (code, names(found)) == (1, ["path"])
        assert url in found[0]["fix"]
    path = written(home, x={"url": url.replace("/mcp", "/")})
    assert doctor("claude-desktop", "--fix")[0] == 0
    assert json.loads(path.read_text())["mcpServers"]["x"] == {"url": url}


def test_https_where_http_is_spoken_a_foreign_host_and_nobody_are_told_apart(url: str, doctor: Doctor) -> None:
    code, found = doctor(url.replace("http:", "https:"))
    assert (code, names(found)) == (1, ["scheme"])
    assert found[0]["fix"] == f"write {url}"
    assert names(doctor(url, "--header", "Host: elsewhere.example")[1]) == ["host-refused"]
    assert names(doctor("http://127.0.0.1:1/mcp", "--timeout", "5")[1]) == ["unreachable"]


@pytest.fixture(params=[401, 500])
def refusing(request: pytest.FixtureRequest) -> Iterator[tuple[int, str]]:
    """A server that answers every request with a status."""
    status: int = request.param

    class Refusing(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        yield status, f"http://127.0.0.1:{server.server_address[1]}/mcp"
        server.shutdown()
        thread.join()


def test_a_login_and_an_error_of_the_server_are_told_apart(refusing: tuple[int, str], doctor: Doctor) -> None:
    status, url = refusing
    code, found = doctor(url)
    assert (code, names(found)) == (1, ["login" if status == 401 else "server-error"])
    assert status != 401 or f"ferrule login {url}" in found[0]["fix"]
