"""The example of a file system keeps inside its folders."""

from __future__ import annotations

from pathlib import Path

import pytest
from example_files import Load

from ferrule import Client, ToolError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "notes"
    (made / "deep").mkdir(parents=True)
    (made / "tea.txt").write_text("green\nblack tea\n")
    (made / "deep" / "salt.txt").write_text("salt for tea")
    (tmp_path / "secret.txt").write_text("secret")
    (made / "link.txt").symlink_to(tmp_path / "secret.txt")
    return made


async def test_files_are_listed_read_searched_and_written(load: Load, folder: Path, era: str) -> None:
    app = load("file_system.py", folder).app
    async with Client(app, mode=era) as client:
        assert (await client.call_tool("list_files")).data == ["deep/", "link.txt", "tea.txt"]
        assert (await client.call_tool("read_file", {"path": "deep/salt.txt"})).text == "salt for tea"
        await client.call_tool("write_file", {"path": "new/a.txt", "text": "more tea"})
        assert (folder / "new" / "a.txt").read_text() == "more tea"
        (folder / "link.txt").unlink()
        found = (await client.call_tool("search", {"text": "tea"})).data
        assert found == ["deep/salt.txt:1: salt for tea", "new/a.txt:1: more tea", "tea.txt:2: black tea"]


@pytest.mark.parametrize("path", ["../secret.txt", "link.txt", "/etc/passwd", "deep/../../secret.txt"])
async def test_what_is_outside_is_neither_read_nor_written(load: Load, folder: Path, path: str) -> None:
    app = load("file_system.py", folder).app
    async with Client(app) as client:
        with pytest.raises(ToolError, match="is outside of"):
            await client.call_tool("read_file", {"path": path})
        with pytest.raises(ToolError, match="is outside of"):
            await client.call_tool("write_file", {"path": path, "text": "x"})
        with pytest.raises(ToolError, match="must stay in its folder"):
            await client.call_tool("list_files", {"pattern": "../*"})
    assert (folder.parent / "secret.txt").read_text() == "secret"


async def test_a_search_passes_over_links_that_lead_outside(load: Load, folder: Path) -> None:
    async with Client(load("file_system.py", folder).app) as client:
        assert (await client.call_tool("search", {"text": "secret"})).data == []
