"""A folder of files whose offers a server has."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import pytest

from ferrule import Client, Server, SetupError

FILE = """
from ferrule import Server

app = Server("file")

@app.tool
def {name}() -> str:
    return "{answer}"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one file, one in a folder below, and one that only it imports."""
    root = tmp_path / "tools"
    (root / "more").mkdir(parents=True)
    (root / "one.py").write_text(FILE.format(name="one", answer="first"))
    (root / "more" / "_words.py").write_text("WORD = 'deep'")
    (root / "more" / "two.py").write_text("from ._words import WORD\n" + FILE.format(name="two", answer="{WORD}"))
    text = (root / "more" / "two.py").read_text().replace('"{WORD}"', "WORD")
    (root / "more" / "two.py").write_text(text)
    (root / ".hidden.py").write_text("1 / 0")
    return root


async def test_files_are_offered_and_changes_reach_the_client(
    era: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = Server("host")
    files = app.add_folder(folder, watch=None)
    changed: asyncio.Queue[object] = asyncio.Queue()
    client = Client(app, mode=era)
    client.on_notification("notifications/tools/list_changed", changed)
    async with client:
        assert {tool.name for tool in await client.list_tools()} == {"one", "two"}
        assert (await client.call_tool("two")).data == "deep"
        assert not await files.refresh()

        (folder / "one.py").write_text(FILE.format(name="one", answer="second time"))
        (folder / "three.py").write_text(FILE.format(name="three", answer="third"))
        assert await files.refresh()
        await changed.get()
        assert (await client.call_tool("one")).data == "second time"
        assert (await client.call_tool("three")).data == "third"

        with caplog.at_level(logging.WARNING, logger="ferrule"):
            (folder / "one.py").write_text("from ferrule import Server\nx = unknown\n")
            (folder / "three.py").write_text(FILE.format(name="two", answer="taken"))
            assert not await files.refresh()
            assert not await files.refresh()
        said = [record.getMessage() for record in caplog.records]
        assert said[0] == (
            "tools/one.py cannot be loaded: NameError: name 'unknown' is not defined (line 2);"
            " what it offered before is offered on"
        )
        assert "there is a tool 'two' already" in said[1]
        assert len(said) == len(files.faults) == 2
        assert (await client.call_tool("one")).data == "second time"
        assert (await client.call_tool("three")).data == "third"

        (folder / "more" / "_words.py").write_text("WORD = 'deeper still'")
        (folder / "one.py").unlink()
        (folder / "three.py").unlink()
        assert await files.refresh()
        assert (await client.call_tool("two")).data == "deeper still"
        assert [tool.name for tool in await client.list_tools()] == ["two"]
        assert (files.faults, files.files) == ([], ["tools/more/two.py"])


async def test_the_folder_is_watched_while_the_server_is_in_use(folder: Path) -> None:
    app = Server("host")
    app.add_folder(folder, prefix="f", watch=0.01)
    changed = asyncio.Event()
    before = asyncio.all_tasks()
    client = Client(app, mode="handshake")
    client.on_notification("notifications/tools/list_changed", lambda params: changed.set())
    async with client:
        (folder / "four.py").write_text(FILE.format(name="four", answer="4"))
        await changed.wait()
        assert (await client.call_tool("f_four")).data == "4"
    assert asyncio.all_tasks() == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1", "tools/bad.py defines no Server: write one `app = Server\\(\\)`"),
        ("def f(:", "tools/bad.py cannot be loaded: SyntaxError: .* \\(line 1\\)"),
        ("raise SystemExit(3)", "tools/bad.py cannot be loaded: SystemExit: 3 \\(line 1\\)"),
        ("from ferrule import Server\na = Server()\nb = Server()", "tools/bad.py defines 2 servers"),
        ("from ferrule import Server\na = Server(lifespan=lambda app: app)", "has no lifespan of its own"),
        (FILE.format(name="one", answer=""), "there is a tool 'one' already"),
    ],
    ids=["no server", "no Python", "an exit", "two servers", "a lifespan", "a name that is taken"],
)
def test_a_file_that_cannot_be_used_at_the_start_is_told_and_nothing_is_offered(
    folder: Path, text: str, said: str
) -> None:
    (folder / "bad.py").write_text(text)
    app = Server("host")
    with pytest.raises(SetupError, match=said):
        app.add_folder(folder)
    assert app.list_tools() == []


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="there is no folder"):
        Server("host").add_folder(tmp_path / "missing")
    with pytest.raises(SetupError, match="watch is a number of seconds above 0"):
        Server("host").add_folder(tmp_path, watch=0)
