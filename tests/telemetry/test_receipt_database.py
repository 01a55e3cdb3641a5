"""Receipts in a SQLite file: the same chain as in files, whole after a crash, and read by the same command."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ferrule import Client, Receipts, Server, SetupError
from ferrule.stores.stores import Stores
from ferrule.telemetry import receipt_database
from ferrule.telemetry.receipt_database import ReceiptDatabase
from ferrule.telemetry.receipt_writer import ReceiptSettings, ReceiptWriter, place_of, verify_place
from ferrule.telemetry.receipts import Receipt, Verification, checker, signer

PATIENCE = 60.0
QUICK = ReceiptSettings(commit_interval=0.001)
SECRET = bytes(range(32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the SQLite file is."""
    return tmp_path / "receipts.db"


def call(number: int = 0) -> Receipt:
    """Return the receipt of a call."""
    return Receipt(method="tools/call", target=f"tool_{number}", outcome="ok")


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def records(path: Path) -> list[dict[str, Any]]:
    """Return all records of a SQLite file."""
    place = place_of(path)
    return [json.loads(line) for name in place.names() for line in place.lines(name)]


def found_in(path: Path) -> list[Verification]:
    """Return what a verification finds, file by file."""
    public = Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes_raw()
    return list(verify_place(place_of(path), check=checker(public)).values())


def written(path: Path, count: int, **options: Any) -> ReceiptWriter:
    """Write so many receipts, each in a batch of its own, and end."""
    options.setdefault("settings", QUICK)
    writer = ReceiptWriter(path, **options)
    writer.start()
    for number in range(count):
        assert writer.record(call(number), b"arguments", b"results!")
        until(lambda number=number: writer.written > number)
    assert writer.close()
    return writer


@pytest.fixture
def held(path: Path) -> Iterator[Callable[[str], Any]]:
    """Another program that uses the same file."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    yield connection.execute
    connection.close()


def test_a_row_holds_the_line_that_a_file_would_hold(tmp_path: Path, path: Path) -> None:
    """Hashes, digests and seals are the same; nobody else may read them, and readers do not stop the writer."""
    options = {"node": "a1", "key": b"k" * 16, "sign": signer(SECRET), "clock": lambda: 1_800_000_000.0}
    written(tmp_path / "files", 5, **options)
    written(path, 5, **options)
    [file] = (tmp_path / "files").glob("*.jsonl")
    as_file = [json.loads(line) for line in file.read_bytes().splitlines()]
    as_rows = records(path)
    assert [record["kind"] for record in as_rows] == ["open", *["call"] * 5, "seal"]
    for one, other in zip(as_file, as_rows, strict=True):
        one["about"] = other["about"] = one["prev"] = other["prev"] = None
    assert as_file == as_rows
    [found] = found_in(path)
    assert (found.problem, found.records, found.seals) == ("", 7, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_batch_is_one_transaction(path: Path) -> None:
    writer = ReceiptWriter(path, settings=ReceiptSettings(commit_interval=0.1))
    writer.start()
    statements: list[str] = []
    place = writer._place
    assert isinstance(place, ReceiptDatabase)
    assert place._connection is not None
    place._connection.set_trace_callback(statements.append)
    for number in range(100):
        writer.record(call(number))
    until(lambda: writer.written == 100)
    assert statements.count("COMMIT") == statements.count("BEGIN IMMEDIATE") <= 2
    writer.close()


def test_a_killed_process_leaves_a_chain_that_is_right_and_a_restart_goes_on(path: Path) -> None:
    """What was told to be written is there after kill -9, whole batches only."""
    program = (
        "import os, sys, time\n"
        "from ferrule.telemetry.receipt_writer import ReceiptSettings, ReceiptWriter\n"
        "from ferrule.telemetry.receipts import Receipt\n"
        "writer = ReceiptWriter(sys.argv[1], settings=ReceiptSettings(commit_interval=0.001))\n"
        "writer.start()\n"
        "while True:\n"
        "    writer.record(Receipt(target='x'))\n"
        "    print(writer.written, flush=True)\n"
        "    time.sleep(0.0001)\n"
    )
    told = 0
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            last = 0
            while last < 50:
                last = int(child.stdout.readline())
            child.kill()
            rest = child.stdout.read().splitlines(keepends=True)
        told += max([last, *(int(line) for line in rest if line.endswith(b"\n"))])
        assert path.with_name("receipts.db-wal").stat().st_size, "it was killed before its log was written back"
    found = found_in(path)
    assert [each.problem for each in found] == ["", ""]
    assert sum(record["kind"] == "call" for record in records(path)) >= told
    written(path, 1)
    assert [each.problem for each in found_in(path)] == ["", "", ""]


def test_a_file_that_is_full_is_followed_by_another_and_old_ones_leave_their_hash(path: Path) -> None:
    now = 1_800_000_000.0
    settings = ReceiptSettings(commit_interval=0.001, max_file=2_000, keep_days=1)
    written(path, 30, settings=settings, sign=signer(SECRET), clock=lambda: now)
    names = place_of(path).names()
    assert names == [f"2027-01-15-{number}" for number in range(1, len(names) + 1)]
    assert len(names) > 3
    found = found_in(path)
    assert all(each.ok and each.sealed == each.records - 2 for each in found)
    assert sum(record["kind"] == "call" for record in records(path)) == 30
    now += 86_401
    written(path, 1, settings=settings, clock=lambda: now)
    assert place_of(path).names() == ["2027-01-16-1"]
    assert place_of(path).last_removed() == found[-1].last
    assert [each.problem for each in found_in(path)] == [""]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ("UPDATE records SET line = replace(line, 'tool_1', 'tool_9') WHERE n = 2", "record 2 was changed"),
        ("DELETE FROM records WHERE n = 2", "record 2 is missing"),
        ("UPDATE records SET line = 5 WHERE n = 2", "record 2 cannot be read"),
        ("DELETE FROM files WHERE number = 1", "the chain does not follow the one before it"),
        ("INSERT INTO removed (file, records, last) VALUES ('x', 1, 'y')", "does not follow the one before"),
    ],
)
def test_a_change_shows(path: Path, held: Callable[[str], Any], change: str, problem: str) -> None:
    written(path, 4)
    written(path, 1)
    assert all(each.ok for each in found_in(path))
    held(change)
    assert problem in next(each.problem for each in found_in(path) if each.problem)


def test_while_another_program_holds_the_file_receipts_are_lost_and_counted(
    path: Path, held: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipt_database, "LOCKED_FOR", 0.01)
    writer = ReceiptWriter(path, settings=QUICK)
    writer.start()
    held("BEGIN IMMEDIATE")
    for number in range(3):
        writer.record(call(number))
        until(lambda number=number: writer.lost == number + 1)
    assert writer.failure == "SQLite: database is locked"
    held("ROLLBACK")
    writer.record(call(9))
    until(lambda: writer.written == 1)
    assert writer.failure == ""
    writer.close()
    assert [record["kind"] for record in records(path)] == ["open", "gap", "call"]
    assert found_in(path)[0].lost == 3


def test_a_full_disk_loses_receipts_and_leaves_the_chain_right(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """SUPV-03, OBSV-01"""
    writer = ReceiptWriter(path, settings=QUICK)
    writer.start()
    place = writer._place
    assert isinstance(place, ReceiptDatabase)
    assert place._connection is not None
    [pages] = place._connection.execute("PRAGMA page_count").fetchone()
    place._connection.execute(f"PRAGMA max_page_count={pages}")
    while not writer.lost:
        writer.record(Receipt(target="x" * 200))
        time.sleep(0.001)
    assert writer.failure == "SQLite: database or disk is full"
    place._connection.execute(f"PRAGMA max_page_count={pages + 1000}")
    before = writer.written
    writer.record(call())
    until(lambda: writer.written > before)
    writer.close()
    [found] = found_in(path)
    assert (found.problem, found.lost) == ("", writer.lost)
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1


def test_a_file_of_somebody_else_is_left_as_it_is(path: Path, held: Callable[[str], Any]) -> None:
    held("CREATE TABLE theirs (x)")
    before = path.read_bytes()
    with pytest.raises(SetupError, match="a database of something else"):
        ReceiptWriter(path).start()
    assert path.read_bytes() == before
    path.write_text("no database at all, but long enough to be one" * 100)
    with pytest.raises(SetupError, match="holds no receipts"):
        ReceiptWriter(path).start()


def test_the_file_of_the_stores_is_another(path: Path) -> None:
    async def main() -> None:
        async with Client(Server("a", stores=Stores.sqlite(path))):
            pass

    asyncio.run(main())
    with pytest.raises(SetupError, match="a database of something else"):
        ReceiptWriter(path).start()


def test_what_a_newer_ferrule_wrote_is_refused(path: Path, held: Callable[[str], Any]) -> None:
    written(path, 1)
    held("PRAGMA user_version=2")
    with pytest.raises(SetupError, match="written by a newer Ferrule"):
        place_of(path).names()


def test_two_processes_cannot_write_into_one_file(path: Path) -> None:
    writer = ReceiptWriter(path, settings=QUICK)
    writer.start()
    with pytest.raises(SetupError, match="another process writes receipts"):
        ReceiptWriter(path).start()
    assert place_of(path).is_written_now
    writer.close()
    writer.start()
    assert writer.close()
    assert all(each.ok for each in found_in(path))


def test_a_folder_may_be_named_as_a_file_is(path: Path) -> None:
    path.mkdir()
    written(path, 1)
    assert len(list(path.glob("*.jsonl"))) == 1


def test_a_server_keeps_its_receipts_in_a_file(path: Path) -> None:
    app = Server("kept", receipts=Receipts(path, commit_interval=0.001))

    @app.tool
    async def add(a: int, b: int) -> int:
        return a + b

    async def main() -> None:
        async with Client(app) as client:
            await client.call_tool("add", {"a": 1, "b": 2})

    asyncio.run(main())
    [kept] = [record for record in records(path) if record.get("target") == "add"]
    assert kept["args"].startswith("hmac-sha256:")
    assert stat.S_IMODE(path.with_name("receipts.db.digest.key").stat().st_mode) == 0o600
    assert all(each.ok for each in found_in(path))
