"""The example of a database explorer reads, and changes nothing."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from example_files import Load

from ferrule import Client, ToolError


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    path = tmp_path / "shop.db"
    with sqlite3.connect(path) as database:
        database.execute('CREATE TABLE "the items" (name TEXT, price INTEGER)')
        database.executemany('INSERT INTO "the items" VALUES (?, ?)', [(f"tea {n}", n) for n in range(300)])
    database.close()
    return path


async def test_tables_schemas_and_rows_are_read(load: Load, shop: Path, era: str) -> None:
    async with Client(load("sqlite_explorer.py", shop).app, mode=era) as client:
        assert (await client.call_tool("tables")).data == {"the items": 300}
        assert "price INTEGER" in (await client.read_resource("schema://the%20items")).text
        found = await client.call_tool(
            "query", {"sql": 'SELECT name FROM "the items" WHERE price = ?', "parameters": [7]}
        )
        assert found.data == {"columns": ["name"], "rows": [["tea 7"]], "more": False}
        many = (await client.call_tool("query", {"sql": 'SELECT * FROM "the items"'})).data
        assert (len(many["rows"]), many["more"]) == (200, True)


@pytest.mark.parametrize(
    "sql",
    [
        'DELETE FROM "the items"',
        "ATTACH 'other.db' AS other",
        "PRAGMA user_version = 7",
        "CREATE TABLE t (a)",
        "nonsense",
    ],
)
async def test_whatever_is_not_a_query_is_refused(load: Load, shop: Path, sql: str) -> None:
    before = shop.read_bytes()
    async with Client(load("sqlite_explorer.py", shop).app) as client:
        with pytest.raises(ToolError, match="the database says: "):
            await client.call_tool("query", {"sql": sql})
    assert shop.read_bytes() == before


async def test_a_query_without_end_is_stopped(load: Load, shop: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("sqlite_explorer.py", shop)
    monkeypatch.setattr(module, "LONGEST_QUERY", 0.05)
    endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
    async with Client(module.app) as client:
        with pytest.raises(ToolError, match="the database says: interrupted"):
            await client.call_tool("query", {"sql": endless})
