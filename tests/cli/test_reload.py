"""`ferrule run --reload` and `ferrule dev`: clients stay connected while the files change."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule import Client
from ferrule.cli.reload import FileWatch
from patience import PATIENT

SERVER = """
from contextlib import asynccontextmanager
from ferrule import Server
import names_of_mine

@asynccontextmanager
async def lifespan(app):
    with open("life.txt", "a") as file:
        file.write("begin VERSION\\n")
    yield "VERSION"
    with open("life.txt", "a") as file:
        file.write("end VERSION\\n")

app = Server("reloaded", lifespan=lifespan)

@app.tool
async def tool_VERSION() -> str:
    '''A tool.'''
    return names_of_mine.NAME

@app.tool
async def same() -> str:
    return "VERSION"

@app.resource("r://VERSION")
async def resource() -> str:
    return "VERSION"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "server.py").write_text(SERVER.replace("VERSION", "one"))
    (tmp_path / "names_of_mine.py").write_text("NAME = 'first'\n")
    return tmp_path


async def offered(client: Client, wanted: set[str]) -> None:
    """Wait until the server is known to offer just these tools."""
    async with asyncio.timeout(60):
        while {tool.name for tool in await client.list_tools()} != wanted:
            await asyncio.sleep(0.05)


def command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "ferrule", "run", "--reload", "--transport", "stdio", str(folder / "server.py")]


@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_clients_stay_connected_and_are_told_of_new_lists(era: str, folder: Path) -> None:
    told: list[str] = []
    said: list[str] = []

    async def scenario() -> None:
        async with Client(command(folder), mode=era, cwd=str(folder), stderr=said.append, **PATIENT) as client:
            client.on_notification("notifications/tools/list_changed", lambda params: told.append("tools"))
            await client.watch_lists("tools")
            await offered(client, {"tool_one", "same"})
            (folder / "names_of_mine.py").write_text("NAME = 'second'\n")
            (folder / "server.py").write_text(SERVER.replace("VERSION", "two"))
            await offered(client, {"tool_two", "same"})
            assert (await client.call_tool("tool_two")).text == "second"
            assert (await client.call_tool("same")).text == "two"
            assert (await client.read_resource("r://two")).text == "two"

            (folder / "names_of_mine.py").write_text("1 / 0\n")
            async with asyncio.timeout(60):
                while not any("not reloaded" in line for line in said):
                    await asyncio.sleep(0.05)
            assert (await client.call_tool("same")).text == "two"

            (folder / "names_of_mine.py").write_text("NAME = 'third'\n")
            (folder / "server.py").write_text(SERVER.replace("VERSION", "three"))
            await offered(client, {"tool_three", "same"})
            assert (await client.call_tool("tool_three")).text == "third"
            assert client.link_state.restarts == 0

    asyncio.run(scenario())
    assert told
    assert any("ZeroDivisionError: division by zero (names_of_mine.py, line 1)" in line for line in said)
    life = (folder / "life.txt").read_text().splitlines()
    # That of the server that holds the links ends with the process.
    assert sorted(life) == sorted(f"{event} {name}" for event in ("begin", "end") for name in ("one", "two", "three"))
    assert life.index("end two") > life.index("begin three")


def test_dev_shows_what_is_said(folder: Path) -> None:
    async def scenario() -> list[str]:
        words = [sys.executable, "-m", "ferrule", "dev", "--transport", "stdio", "--json", str(folder / "server.py")]
        said: list[str] = []
        async with Client(words, mode="handshake", cwd=str(folder), stderr=said.append, **PATIENT) as client:
            await client.call_tool("same")
        return said

    events = [json.loads(line) for line in asyncio.run(scenario()) if line.startswith("{")]
    shown = {(event["event"], event.get("method"), event.get("name")) for event in events}
    assert {
        ("connected", None, None),
        ("request", "initialize", None),
        ("notification", "notifications/initialized", None),
        ("request", "tools/call", "same"),
    } <= shown
    [call] = [event for event in events if event.get("method") == "tools/call"]
    assert (call["outcome"], call["result"]["content"][0]["text"]) == ("ok", "one")


def test_a_server_with_receipts_is_not_reloaded(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "server.py").write_text("from ferrule import Server\napp = Server('s', receipts='kept')\n")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    import subprocess

    done = subprocess.run(command(folder), cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "a server with receipts cannot be reloaded" in done.stderr


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, Path], None]:
    """Let a module seem to have been loaded from a file."""

    def load(name: str, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
        module = type(sys)(name)
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, name, module)

    return load


def test_loaded_files_of_the_folder_are_watched_and_installed_ones_are_not(
    tmp_path: Path, loaded: Callable[[str, Path], None]
) -> None:
    main = tmp_path / "server.py"
    main.write_text("")
    loaded("watched_neighbour", tmp_path / "deep" / "neighbour.py")
    loaded("installed_thing", tmp_path / ".venv" / "site-packages" / "thing.py")
    watch = FileWatch([main], [tmp_path])
    assert sorted(watch.files) == [str(tmp_path / "deep" / "neighbour.py"), str(main)]
    assert watch.look() == []
    (tmp_path / "deep" / "neighbour.py").write_text("x = 1")
    assert watch.look() == [str(tmp_path / "deep" / "neighbour.py")]
    assert watch.look() == []
    main.unlink()
    assert watch.look() == [str(main)]
    main.write_text("back")
    assert watch.look() == [str(main)]
