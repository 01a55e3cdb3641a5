"""A store file: survives crashes, belongs to its owner alone, is not mistaken for another's, never blocks the loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from ferrule.errors import Busy, SetupError, StoreUnavailable
from ferrule.schema.tasks import GOING_ON
from ferrule.stores.contracts import SessionRecord, StoredTask
from ferrule.stores.memory import LogBounds
from ferrule.stores.sqlite import database as module
from ferrule.stores.sqlite.database import SCHEMA_VERSION, Database
from ferrule.stores.sqlite.stores import SqliteSessions, SqliteTasks, SqliteValues
from ferrule.stores.stores import Stores

WRITER = Path(__file__).with_name("writer.py")


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def record(name: str = "s1") -> SessionRecord:
    return SessionRecord(id=name, revision="r", owner="n1")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.mark.parametrize("written", [1, 2, 5, 20, 60])
def test_a_process_that_is_killed_loses_nothing_it_was_told_is_kept(path: Path, written: int) -> None:
    """Killed with SIGKILL while it writes: what was acknowledged is there, and the rest is whole or not there."""
    with subprocess.Popen([sys.executable, str(WRITER), str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip() != "open" and int(line) >= written:
                process.kill()
                break
        acknowledged = written
        for line in process.stdout:
            acknowledged = int(line)

    async def check() -> None:
        async with Stores.sqlite(path) as stores:
            for number in range(1, acknowledged + 1):
                name = str(number)
                session = await stores.sessions.get(name)
                assert session is not None
                assert session.log_level == name
                assert await stores.values.get(name) == name.encode() * 100
                found = await stores.tasks.get(name, 1.0)
                assert found is not None
                assert found.tool == name
            # Written behind before those, and so kept before those.
            last = acknowledged * 10
            first = max(last - 500, 0)
            events = await stores.events.after("ann.1", first)
            assert events is not None
            assert len(events) >= last - first
            assert events[0] == b"x" * ((first // 10 + 1) % 2000)

    run(check())
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_what_is_written_behind_is_on_the_disk_soon_though_nobody_waits(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            stores.events.append("ann.1", 1, b"said", 0.0)
            until = time.monotonic() + 20
            with sqlite3.connect(path) as stranger:
                while not stranger.execute("SELECT * FROM events").fetchall():
                    assert time.monotonic() < until
                    await asyncio.sleep(0.01)
            stranger.close()

    run(use())


def test_what_waits_is_kept_when_the_store_is_closed(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            for number in range(1, 3000):
                stores.events.append("ann.1", number, b"x", 0.0)
        async with Stores.sqlite(path) as stores:
            assert await stores.events.after("ann.1", 2000) == [b"x"] * 999
        assert stores.backend.state == "closed"
        with pytest.raises(StoreUnavailable, match="not open"):
            await stores.values.get("a")

    run(use())


def test_many_writes_share_one_commit(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            await stores.values.get("a")
            before = stores.backend.stats.commits
            await asyncio.gather(*[stores.values.put(str(number), b"x") for number in range(500)])
            assert stores.backend.stats.commits - before <= 10

    run(use())


def test_the_file_is_its_owners_alone(path: Path) -> None:
    path.touch(mode=0o666)
    path.chmod(0o666)

    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            await stores.values.put("a", b"1")
            files = list(path.parent.iterdir())
            assert len(files) == 3
            for file in files:
                assert stat.S_IMODE(file.stat().st_mode) == 0o600, file

    run(use())


def a_database(path: Path, *statements: str) -> None:
    with sqlite3.connect(path) as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: a_database(path, "CREATE TABLE notes (a)"), "of another program"),
        (lambda path: a_database(path, "CREATE TABLE notes (a)", "PRAGMA user_version=1"), "of another program"),
        (lambda path: path.write_bytes(b"not a database at all, " * 100), "not a database"),
        (lambda path: path.mkdir(), "cannot be opened"),
        (lambda path: path.symlink_to("elsewhere.db"), "cannot be opened"),
    ],
    ids=["foreign", "foreign with a version", "text", "folder", "link"],
)
def test_a_file_that_is_not_ours_is_refused_and_left_as_it_is(path: Path, make: Any, says: str) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else None
    if before is not None:
        path.chmod(0o640)

    async def use() -> None:
        with pytest.raises(SetupError, match=says) as wrong:
            await Stores.sqlite(path).open()
        assert path.name in str(wrong.value)

    run(use())
    if before is not None:
        assert path.read_bytes() == before
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert [path] == list(path.parent.iterdir())


def test_a_file_of_a_newer_ferrule_is_refused(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path):
            pass
        a_database(path, f"PRAGMA user_version={SCHEMA_VERSION + 1}")
        with pytest.raises(SetupError, match=r"newer Ferrule.*upgrade"):
            await Stores.sqlite(path).open()

    run(use())


def test_a_file_can_be_opened_again_and_by_many_at_once(path: Path) -> None:
    async def use() -> None:
        many = [Stores.sqlite(path) for _ in range(8)]
        await asyncio.gather(*[stores.open() for stores in many])
        await asyncio.gather(*[stores.values.add("a", b"%d" % n) for n, stores in enumerate(many)])
        assert len({await stores.values.get("a") for stores in many}) == 1
        await many[0].open()
        await asyncio.gather(*[stores.close() for stores in many])
        await many[0].close()

    run(use())


def test_the_loop_goes_on_while_another_process_holds_the_file(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            await stores.values.put("a", b"1")
            held, release = threading.Event(), threading.Event()

            def hold() -> None:
                connection = sqlite3.connect(path)
                connection.execute("BEGIN EXCLUSIVE")
                held.set()
                release.wait(30)
                connection.rollback()
                connection.close()

            holder = threading.Thread(target=hold)
            holder.start()
            await asyncio.to_thread(held.wait, 30)
            writing = asyncio.ensure_future(stores.values.put("a", b"2"))
            for _ in range(50):
                stores.events.append("ann.1", 1, b"x", 0.0)
                await asyncio.sleep(0.002)
            assert not writing.done()
            release.set()
            await writing
            holder.join()
            assert await stores.values.get("a") == b"2"

    run(use())


def test_a_file_that_stays_locked_fails_what_is_awaited_and_keeps_what_is_written_behind(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOCKED_FOR", 0.05)

    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            holder = sqlite3.connect(path)
            holder.execute("BEGIN EXCLUSIVE")
            for number in range(1, 30):
                stores.events.append("ann.1", number, b"x", 0.0)
            for _ in range(3):
                with pytest.raises(StoreUnavailable, match="locked"):
                    await stores.values.put("a", b"1")
            holder.rollback()
            holder.close()
            await stores.values.put("a", b"1")
            assert await stores.events.after("ann.1", 0) == [b"x"] * 29
            assert (stores.backend.stats.dropped, stores.backend.stats.failed) == (0, 0)

    run(use())


def test_a_file_that_stays_locked_does_not_keep_a_server_from_ending(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waits is tried for a while, all together, and then given up and counted."""
    monkeypatch.setattr(module, "GRACE", 0.3)

    async def use() -> None:
        stores = Stores.sqlite(path)
        await stores.open()
        with contextlib.closing(sqlite3.connect(path)) as holder:
            holder.execute("BEGIN EXCLUSIVE")
            for number in range(1, 2500):
                stores.events.append("ann.1", number, b"x", 0.0)
            awaited = asyncio.ensure_future(stores.values.put("a", b"1"))
            await asyncio.sleep(0.05)
            began = time.monotonic()
            await stores.close()
            assert time.monotonic() - began < 3.0
            with pytest.raises(StoreUnavailable, match="locked"):
                await awaited
            assert stores.backend.stats.failed == 2499

    run(use())


def test_a_full_disk_refuses_what_is_written_and_nothing_else(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        database = Database(path)
        await database.open()
        values = SqliteValues(database)
        await values.put("kept", b"1")
        pages = await database.execute(lambda connection: connection.execute("PRAGMA page_count").fetchone()[0])
        await database.execute(lambda connection: connection.execute(f"PRAGMA max_page_count={pages + 2}").fetchone())
        large, small = await asyncio.gather(
            values.put("large", b"x" * 100_000), values.get("kept"), return_exceptions=True
        )
        assert isinstance(large, StoreUnavailable)
        assert "full" in large.reason
        assert small == b"1"
        for _ in range(3):
            database.write(
                lambda connection: connection.execute("INSERT INTO stored_values VALUES ('a', 0, zeroblob(99999))")
            )
        assert await values.get("kept") == b"1"
        assert database.stats.failed == 3
        await database.close()

    run(use())
    assert caplog.text.count("failed") == 1


def test_what_waits_for_the_thread_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_WAITING", 100)

    async def use() -> None:
        database = Database(path)
        await database.open()
        going, release = threading.Event(), threading.Event()

        def stuck(connection: sqlite3.Connection) -> None:
            going.set()
            release.wait(30)

        waiting = asyncio.ensure_future(database.execute(stuck))
        await asyncio.to_thread(going.wait, 30)
        done: list[int] = []
        for number in range(250):
            database.write(lambda connection, number=number: done.append(number))
        assert database.stats.dropped == 150
        awaited = asyncio.ensure_future(database.execute(lambda connection: "awaited"))
        await asyncio.sleep(0)
        assert database.stats.dropped == 151
        release.set()
        assert await awaited == "awaited"
        await waiting
        assert done == list(range(151, 250))
        await database.close()

    run(use())


def test_a_caller_that_goes_away_does_not_undo_what_it_asked_for(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            putting = asyncio.ensure_future(stores.values.put("a", b"1"))
            await asyncio.sleep(0)
            putting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await putting
            assert await stores.values.get("a") == b"1"

    run(use())


def test_time_goes_on_over_a_restart_and_does_not_jump_with_the_clock(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SES-11: an hour that the clock on the wall jumps is no hour for sessions."""

    async def use() -> None:
        clock = time.time
        async with Stores.sqlite(path, idle=1800) as stores:
            await stores.sessions.create(record())
            monkeypatch.setattr(time, "time", lambda: clock() + 7200)
            assert await stores.sessions.get("s1") is not None
        async with Stores.sqlite(path, idle=1800) as stores:
            assert await stores.sessions.get("s1") is not None
            # After a restart of the machine the clock on the wall is all there is.
        a_database(path, "UPDATE clock SET boot = 'another'")
        async with Stores.sqlite(path, idle=1800) as stores:
            assert await stores.sessions.get("s1") is None
            await stores.sessions.create(record())
        monkeypatch.setattr(time, "time", lambda: clock() - 7200)
        a_database(path, "UPDATE clock SET boot = 'another'")
        async with Stores.sqlite(path, idle=1800) as stores:
            found = await stores.sessions.get("s1")
            assert found is not None
            assert stores.backend.now() >= found.seen, "time went back"

    run(use())


def test_records_that_cannot_be_read_are_nobodys(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path) as stores:
            await stores.sessions.create(record())
            await stores.tasks.create(task("t1"), 1.0)
            a_database(path, "UPDATE sessions SET record = x'7f00'", "UPDATE tasks SET record = x'01ff'")
            assert await stores.sessions.get("s1") is None
            assert await stores.tasks.get("t1", 1.0) is None
            assert await stores.tasks.page("ann", None, 10, 1.0) == []

    run(use())


def task(name: str, owner: str = "ann") -> StoredTask:
    return StoredTask(id=name, owner=owner, tool="t", created=1.0, updated=1.0, ttl=None, poll_interval=1.0)


def test_every_table_is_bounded(path: Path) -> None:
    async def use() -> None:
        import msgspec

        database = Database(path)
        await database.open()
        sessions = SqliteSessions(database, max_sessions=2)
        values = SqliteValues(database, max_values=2)
        tasks = SqliteTasks(database, max_tasks=3, max_per_owner=2)
        for name in ("a", "b"):
            await sessions.create(record(name))
            await values.put(name, b"1")
            await tasks.create(task(name), 1.0)
        with pytest.raises(Busy):
            await sessions.create(record("c"))
        with pytest.raises(Busy):
            await values.put("c", b"1")
        await values.put("b", b"2")
        with pytest.raises(Busy):
            await tasks.create(task("c"), 1.0)
        await tasks.create(task("c", "bob"), 1.0)
        with pytest.raises(Busy):
            await tasks.create(task("d", "bob"), 1.0)
        assert await tasks.update(msgspec.structs.replace(task("b"), status="failed"), GOING_ON)
        await tasks.create(task("d", "bob"), 1.0)
        assert await tasks.get("b", 1.0) is None
        await sessions.delete("a")
        await sessions.create(record("c"))
        await database.close()

    run(use())


def test_streams_in_the_file_are_bounded_as_in_the_process_and_grow_old(path: Path) -> None:
    async def use() -> None:
        async with Stores.sqlite(path, bounds=LogBounds(events=10, total=1000)) as stores:
            for number in range(1, 101):
                stores.events.append("ann.1", number, b"x" * 10, 0.0)
            for stream in range(100):
                stores.events.append(f"bob.{stream}", 1, b"x" * 100, 0.0)
            assert await stores.events.after("ann.1", 90) == [b"x" * 10] * 10
        with sqlite3.connect(path) as stranger:
            assert stranger.execute("SELECT count(*), sum(length(event)) FROM events").fetchone() <= (20, 1100)
        stranger.close()

    run(use())


def test_nothing_of_the_thread_is_left_when_opening_fails(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)

    async def use() -> None:
        database = Database(path)
        for _ in range(3):
            with pytest.raises(SetupError):
                await database.open()
            assert database.state == "closed"

    before = threading.active_count()
    run(use())
    assert threading.active_count() <= before + 1  # the loop's own executor
    assert len(os.listdir(path.parent)) == 1
