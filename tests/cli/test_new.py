"""The first minutes: a new project is called, tested and served, in a terminal."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ferrule.cli.main import main

FERRULE = [sys.executable, "-m", "ferrule"]
ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


class Terminal:
    """A program in a pseudo-terminal, and what is on the screen."""

    def __init__(self, *words: str, folder: Path) -> None:
        ours, theirs = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
        environment.pop("NO_COLOR", None)
        self._process = subprocess.Popen(
            words, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment, start_new_session=True
        )
        os.close(theirs)
        self._ours = ours
        self.raw = ""

    @property
    def screen(self) -> str:
        """What was written, without escape sequences."""
        return ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def read_until(self, text: str, patience: float = 60.0) -> None:
        """Read until a text is there."""
        until = time.monotonic() + patience
        while text not in self.screen:
            assert time.monotonic() < until, f"{text!r} is not in {self.screen!r}"
            if not self._read(0.5) and self._process.poll() is not None:
                assert text in self.screen, f"{text!r} is not in {self.screen!r}"

    def _read(self, patience: float) -> bool:
        ready, _, _ = select.select([self._ours], [], [], patience)
        if not ready:
            return False
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            return False
        self.raw += data.decode()
        return bool(data)

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._ours, text.encode())

    def press_ctrl_c(self) -> None:
        """Press Ctrl-C once."""
        os.killpg(self._process.pid, signal.SIGINT)

    def end(self) -> int:
        """Wait for the end; return the exit code."""
        while self._read(0.5) or self._process.poll() is None:
            pass
        os.close(self._ours)
        return self._process.wait(60)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new project."""
    folder = tmp_path_factory.mktemp("new")
    main(["new", str(folder / "hello")])
    return folder / "hello"


def test_a_new_project_has_a_server_its_test_and_its_configuration(project: Path) -> None:
    assert sorted(path.name for path in project.iterdir()) == ["ferrule.toml", "server.py", "test_server.py"]


def test_its_tool_is_called_from_a_pipe(project: Path) -> None:
    done = subprocess.run([*FERRULE, "call", ".", "add", "a=1", "b=2"], cwd=project, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"3\n", b"")


def test_its_tests_pass(project: Path) -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(words, cwd=project, capture_output=True, text=True, check=False)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0


def test_a_typo_is_answered_on_a_terminal(project: Path) -> None:
    terminal = Terminal(*FERRULE, "call", ".", "ad", "a=1", folder=project)
    assert terminal.end() == 1
    assert terminal.screen == 'error: no tool "ad" in hello. Did you mean "add"?\n'
    assert "\x1b[31merror:\x1b[0m" in terminal.raw


def test_a_list_on_a_terminal_has_headings_and_fits(project: Path) -> None:
    terminal = Terminal(*FERRULE, "list", ".", folder=project)
    assert terminal.end() == 0
    assert terminal.screen.splitlines()[:2] == ["Tools", "  add(a: integer, b: integer)  Add two numbers."]
    assert max(map(len, terminal.screen.splitlines())) <= 80


ASKING = """
import asyncio
from ferrule import Context, Server
app = Server("asking")

@app.tool
async def order(ctx: Context) -> str:
    await ctx.report_progress(1, 2, "half way")
    await asyncio.sleep(0.2)
    return "one " + await ctx.ask("What will it be?", str)

@app.tool
async def sleep(ctx: Context) -> str:
    await ctx.report_progress(1, 4, "sleeping")
    await asyncio.sleep(600)
"""


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
def test_a_question_is_asked_and_progress_is_drawn(mode: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(ASKING)
    terminal = Terminal(*FERRULE, "call", "server.py", "order", "--mode", mode, folder=tmp_path)
    terminal.read_until("value: ")
    terminal.type("tea\n")
    assert terminal.end() == 0
    assert "[############------------]  50% half way" in terminal.screen
    assert "The server asks: What will it be?\n" in terminal.screen
    assert terminal.screen.endswith("one tea\n")


@pytest.mark.parametrize(("tool", "shown"), [("sleep", "sleeping"), ("order", "value: ")])
def test_one_ctrl_c_ends_a_call_and_a_question(tool: str, shown: str, tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(ASKING)
    terminal = Terminal(*FERRULE, "call", "server.py", tool, folder=tmp_path)
    terminal.read_until(shown)
    terminal.press_ctrl_c()
    assert terminal.end() == 130
    after = terminal.screen.rpartition(shown)[2].strip()
    assert after == ""


def test_a_server_that_cannot_start_is_told_once(tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text("from ferrule import Server\nimport no_such_module\n")
    done = subprocess.run([*FERRULE, "list", "server.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr.count("no_such_module") == 1
    assert done.stderr.startswith("error: ")


def test_nothing_is_written_over(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (project / "server.py").read_text()
    with pytest.raises(SystemExit) as end:
        main(["new", str(project)])
    assert end.value.code == 1
    assert "server.py exists already" in capsys.readouterr().err
    assert (project / "server.py").read_text() == before


@pytest.mark.parametrize("name", ["a b", 'x"', "-x/..;", "ü"])
def test_a_name_that_cannot_be_is_refused(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["new", f"{tmp_path}/{name}"])
    assert "is not a valid name of a server" in capsys.readouterr().err
