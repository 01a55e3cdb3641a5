"""The pytest plugin, in a pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from ferrule import Server, SyncClient
from ferrule.testing.plugin import Snapshot

SERVER = """
from ferrule import Context, Server
app = Server("tested")

@app.tool
async def shout(text: str) -> str:
    return text.upper()

@app.tool
async def order(ctx: Context) -> str:
    return await ctx.ask("What?", str)
"""

TESTS = """
import asyncio
import pytest
from ferrule import Client, Server, SyncClient

seen = []

@pytest.mark.mcp_eras
def test_both_eras(mcp_client, mcp_era):
    seen.append(mcp_client.protocol_version)
    assert mcp_client.call_tool("shout", {"text": mcp_era}).data == mcp_era.upper()

def test_both_were_seen(mcp_client):
    assert sorted(seen) == ["2025-11-25", "2026-07-28"]
    assert isinstance(mcp_client, SyncClient)

@pytest.mark.mcp_client(elicitation=lambda question: {"value": "tea"})
def test_options(mcp_client):
    assert mcp_client.call_tool("order").text == "tea"

def test_the_server_itself(mcp_server):
    async def scenario():
        async with Client(mcp_server) as client:
            return (await client.call_tool("shout", {"text": "a"})).data
    assert isinstance(mcp_server, Server)
    assert asyncio.run(scenario()) == "A"

def test_time(mcp_clock):
    async def scenario():
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time()
    assert mcp_clock(scenario()) >= 3600

class TestAnother:
    @pytest.fixture
    def mcp_server(self):
        return Server("another")

    def test_own(self, mcp_client):
        assert mcp_client.server_info.name == "another"
"""

SNAPSHOT = "def test_offers(mcp_client, mcp_snapshot):\n    mcp_snapshot(mcp_client)\n"

WRONG = """
import pytest

def test_without_a_server(mcp_client): ...
"""
UNMARKED = "import pytest\n@pytest.mark.mcp_eras\ndef test_it(): ...\n"


@pytest.fixture
def run(tmp_path: Path):
    (tmp_path / "server.py").write_text(SERVER)

    def run(*words: str, **files: str) -> tuple[int, str]:
        for name, text in files.items():
            (tmp_path / name.replace("__", ".")).write_text(text)
        # Without the plugins of everybody else, which take longer to load than the tests to run.
        environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        command = [sys.executable, "-m", "pytest", "-q", "--strict-markers", "-p", "no:cacheprovider"]
        command += ["-p", "ferrule.testing.plugin", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_pytest_finds_the_plugin() -> None:
    [found] = entry_points(group="pytest11", name="ferrule")
    assert found.value == "ferrule.testing.plugin"


def test_fixtures_and_marks_work(run, tmp_path: Path) -> None:
    code, said = run(
        "--mcp-update", ferrule__toml='[run]\nfile = "server.py"\n', test_it__py=TESTS, test_s__py=SNAPSHOT
    )
    assert code == 0, said
    assert "8 passed" in said
    assert '"name": "shout"' in (tmp_path / "snapshots" / "test_offers.json").read_text()


def test_a_project_without_a_server_and_a_mark_without_its_fixture_are_told_what_to_write(run) -> None:
    code, said = run("--continue-on-collection-errors", test_it__py=WRONG, test_u__py=UNMARKED)
    assert code == 1
    assert "there is no server to test: write file" in said
    assert "test_u.py::test_it: mcp_eras needs a fixture that has an era" in said


def test_what_is_offered_is_compared_with_a_file(tmp_path: Path) -> None:
    app = Server("offers")
    app.add_tool("one", lambda: "1")
    path = tmp_path / "snapshots" / "it.json"
    compare, update = Snapshot(path, update=False), Snapshot(path, update=True)
    with SyncClient(app) as client:
        with pytest.raises(pytest.fail.Exception, match="write it with `pytest --mcp-update`"):
            compare(client)
        update(client)
        compare(client)
        app.add_tool("two", lambda: "2")
        until = time.monotonic() + 5
        while len(client.list_tools()) < 2 and time.monotonic() < until:
            time.sleep(0.01)  # it is told of the change
        with pytest.raises(pytest.fail.Exception, match=r'\+ +"name": "two"'):
            compare(client)


def test_loading_it_loads_nothing_of_ours() -> None:
    program = "import sys, ferrule.testing.plugin\nprint([m for m in sys.modules if m.startswith('ferrule')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert eval(done.stdout) == ["ferrule", "ferrule.testing", "ferrule.testing.plugin"]
