"""A SQLite database to look at and not to change: tables, their columns, and queries within bounds.

ferrule call tables -- python examples/sqlite_explorer.py shop.db
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec import Struct

from ferrule import Server, ToolError

LONGEST_QUERY = 5.0
"""Seconds."""
MOST_ROWS = 200
READING = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}

app = Server("sqlite-explorer", version="1.0.0", instructions="List the tables first.")
file = Path(sys.argv[1] if len(sys.argv) > 1 else "data.db")


class Rows(Struct):
    """What a query found."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool = False
    """Whether there were more rows than are shown."""


@contextlib.contextmanager
def opened() -> Iterator[sqlite3.Connection]:
    """Open the file for reading; a query that takes too long is stopped."""
    try:
        database = sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)
    except sqlite3.OperationalError as reason:
        raise ToolError(f"cannot open {file}: {reason}") from None
    until = time.monotonic() + LONGEST_QUERY
    database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
    try:
        yield database
    except sqlite3.Error as reason:
        raise ToolError(f"the database says: {reason}") from None
    finally:
        database.close()


@app.tool(annotations={"readOnlyHint": True})
def tables() -> dict[str, int]:
    """List the tables, with how many rows each has."""
    with opened() as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]
        quoted = {name: '"' + name.replace('"', '""') + '"' for name in names}
        return {name: database.execute(f"SELECT count(*) FROM {quoted[name]}").fetchone()[0] for name in names}


@app.resource("schema://{table}")
def schema(table: str) -> str:
    """The statement that made a table."""
    with opened() as database:
        found = database.execute("SELECT sql FROM sqlite_schema WHERE name = ?", [table]).fetchone()
    if found is None:
        raise ToolError(f"there is no table {table}")
    return str(found[0])


@app.tool(annotations={"readOnlyHint": True})
def query(sql: str, parameters: list[str | int | float | None] | None = None) -> Rows:
    """Run one SELECT; `?` in it stands for a parameter."""
    with opened() as database:
        # The file cannot be written in any case; this also keeps out ATTACH and PRAGMA, which reach other files.
        database.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in READING else sqlite3.SQLITE_DENY)
        cursor = database.execute(sql, parameters or [])
        rows = [list(row) for row in cursor.fetchmany(MOST_ROWS + 1)]
        columns = [column[0] for column in cursor.description or ()]
    return Rows(columns, rows[:MOST_ROWS], len(rows) > MOST_ROWS)


if __name__ == "__main__":
    app.run()
