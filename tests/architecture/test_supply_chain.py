"""What is installed, what importing it does, and what a static look at it finds."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
MOST_IMPORT_TIME = 0.3
"""CPU seconds."""
IMPORTS = ["import ferrule", "from ferrule import Server", "from ferrule import Client", "from ferrule import Http"]

WATCHED = """
import json, sys, time
seen = []
QUIET = ("socket.", "subprocess.", "os.fork", "os.exec", "os.posix_spawn", "os.system", "os.mkdir", "os.remove",
         "os.rename", "os.rmdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "shutil.", "urllib.", "http.")

def watch(event, given):
    if event.startswith(QUIET):
        seen.append(event)
    elif event == "open" and given[1] is not None and set(str(given[1])) & set("wax+"):
        seen.append(f"open {given[0]} {given[1]}")

sys.addaudithook(watch)
began = time.process_time()
exec(sys.argv[1])
print(json.dumps([time.process_time() - began, seen]))
"""


def watched(statement: str) -> tuple[float, list[str]]:
    """Run a statement in a fresh interpreter; return its CPU time and what it did to the world."""
    command = [sys.executable, "-B", "-c", WATCHED, statement]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    seconds, seen = json.loads(done.stdout)
    return seconds, seen


@pytest.mark.parametrize("statement", IMPORTS)
def test_importing_touches_no_network_file_or_process_and_is_quick(statement: str) -> None:
    """SUP-03: the best of three tries, since others may use this core's caches."""
    for _ in range(3):
        seconds, seen = watched(statement)
        assert seen == []
        if seconds <= MOST_IMPORT_TIME:
            break
    assert seconds <= MOST_IMPORT_TIME


@pytest.mark.parametrize(
    "statement",
    ["import socket; socket.socket()", "import subprocess; subprocess.run(['true'])", "open('/dev/null', 'w').close()"],
)
def test_what_an_import_must_not_do_would_be_seen(statement: str) -> None:
    assert watched(statement)[1] != []


ACCEPTED = {
    ("auth/client/grants.py", "S105"): "the names of grants and kinds of tokens are no secrets",
    ("settings/option.py", "S307"): "evaluates annotations of our own structs, in the namespace of their module",
    ("supervision/supervisor.py", "S311"): "the jitter of a delay is no secret",
    ("workers/overseer.py", "S311"): "when a worker is recycled is no secret",
    ("transports/process/child.py", "S603"): "starting the program a user names is what it is for; there is no shell",
    ("transports/websocket/handshake.py", "S324"): "RFC 6455 §4.2.2 wants SHA-1, which protects nothing there",
}
"""What the rules of bandit find above the lowest level, and why it stays."""
LOWEST = "S101"
"""`assert`: says what holds already, for readers and type checkers."""


def test_static_security_checks_find_nothing_but_what_was_looked_at() -> None:
    """SUP-05: comments that silence a rule do not count here."""
    command = ["ruff", "check", "--select", "S", "--ignore", LOWEST, "--ignore-noqa", "--output-format", "json", "src"]
    command[0] = str(Path(sys.executable).parent / "ruff")
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False, timeout=60)
    found = {(_place(each["filename"]), each["code"]) for each in json.loads(done.stdout)}
    assert found == ACCEPTED.keys()


def _place(filename: str) -> str:
    return filename.partition("src/ferrule/")[2]


def test_nothing_unpickles() -> None:
    """SUP-05: what a stranger wrote is never read by what could run it."""
    unsafe = re.compile(r"^\s*(?:import|from) (?:pickle|marshal|shelve|dill|cloudpickle)\b", re.MULTILINE)
    assert [path.name for path in (PROJECT / "src").rglob("*.py") if unsafe.search(path.read_text("utf-8"))] == []


def test_the_base_install_has_few_dependencies_and_the_readme_counts_them() -> None:
    """SUP-07"""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [re.split(r"[<>=;~! ]", each)[0] for each in project["dependencies"]]
    assert len(names) == 5
    assert "Five dependencies" in (PROJECT / "README.md").read_text(encoding="utf-8")
    page = (PROJECT / "docs" / "design" / "dependencies.md").read_text(encoding="utf-8")
    assert [name for name in names if f"| {name} |" not in page] == []
    optional = [
        re.split(r"[<>=;~! \[]", each)[0] for extra in project["optional-dependencies"].values() for each in extra
    ]
    assert [name for name in optional if f"| {name} |" not in page] == []


STRICT = """
import asyncio, sys
from ferrule import Client, Http, Server
app = Server("strict")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

async def main():
    async with Client(app) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    listener, ready = Http(port=0), asyncio.Event()
    serving = asyncio.create_task(app.serve(listener, ready=ready.set))
    await ready.wait()
    for mode in ("handshake", "stateless"):
        async with Client(listener.url, mode=mode) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    await listener.close(grace=1.0)
    await serving

asyncio.run(main())
"""


def test_the_strict_modes_of_python_warn_of_nothing() -> None:
    command = [sys.executable, "-X", "dev", "-bb", "-W", "error", "-c", STRICT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    # The debug mode of asyncio also tells of turns that took long, as they do where others use this core.
    warned = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert (done.returncode, warned) == (0, [])
