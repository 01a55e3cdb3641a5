"""Receipts in files: written behind the calls, whole after crashes, and lost ones are told of."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.telemetry import receipt_files
from ferrule.telemetry.receipt_files import files_in
from ferrule.telemetry.receipt_writer import ReceiptSettings, ReceiptWriter, last_hash, place_of, verify_place
from ferrule.telemetry.receipts import NO_HASH, Receipt, checker, signer

SECRET = bytes(range(32))
QUICK = ReceiptSettings(commit_interval=0.001)
PATIENCE = 20.0


def call(number: int = 0) -> Receipt:
    """Return a receipt of a call."""
    return Receipt(method="tools/call", target=f"tool_{number}", outcome="ok")


def records(folder: Path) -> list[dict[str, Any]]:
    """Return all records of a folder."""
    found = []
    for path in files_in(folder):
        for line in path.read_bytes().splitlines():
            found.append(json.loads(line))
    return found


def until(condition: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def all_right(folder: Path) -> bool:
    """Whether every file of a folder is right."""
    return all(found.ok for found in verify_place(place_of(folder)).values())


def test_receipts_are_written_in_order_with_the_digests_of_their_contents(tmp_path: Path) -> None:
    """OBSV-03"""
    files = ReceiptWriter(tmp_path / "receipts", node="a1", settings=QUICK)
    files.start()
    for number in range(100):
        assert files.record(call(number), b"arguments", b"results!")
    assert files.close()
    found = records(tmp_path / "receipts")
    assert [record["kind"] for record in found] == ["open"] + ["call"] * 100
    assert [record["target"] for record in found[1:]] == [f"tool_{number}" for number in range(100)]
    assert found[1]["bytes"] == [9, 8]
    assert found[1]["args"].startswith("sha256:")
    assert (files.written, files.lost, files.failure) == (100, 0, "")
    assert all_right(tmp_path / "receipts")


def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    files = ReceiptWriter(tmp_path / "receipts", settings=QUICK)
    files.start()
    files.close()
    [path] = files_in(tmp_path / "receipts")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_file_that_is_full_is_followed_by_another_that_begins_with_its_hash(tmp_path: Path) -> None:
    files = ReceiptWriter(
        tmp_path, settings=ReceiptSettings(commit_interval=0.001, max_file=2_000), sign=signer(SECRET)
    )
    files.start()
    for number in range(60):
        files.record(call(number))
        until(lambda number=number: files.written > number)
    files.close()
    names = [path.name for path in files_in(tmp_path)]
    assert len(names) > 5
    assert [int(name.removesuffix(".jsonl").rpartition("-")[2]) for name in names] == list(range(1, len(names) + 1))
    found = verify_place(place_of(tmp_path), check=checker(_public()))
    assert [each.problem for each in found.values()] == [""] * len(names)
    assert all(each.sealed == each.records - 2 for each in found.values())
    assert sum(record["kind"] == "call" for record in records(tmp_path)) == 60


def _public() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes_raw()


def test_a_file_that_is_missing_or_changed_shows_in_the_next(tmp_path: Path) -> None:
    """OBSV-03"""
    for _ in range(3):
        files = ReceiptWriter(tmp_path, settings=QUICK)
        files.start()
        files.record(call())
        files.close()
    first, second, third = files_in(tmp_path)
    assert all_right(tmp_path)
    kept = second.read_bytes()
    second.write_bytes(kept.replace(b"tool_0", b"tool_1"))
    assert verify_place(place_of(tmp_path))[third.name].problem == "the chain does not follow the one before it"
    second.write_bytes(b"".join(kept.splitlines(keepends=True)[:-1]))
    assert verify_place(place_of(tmp_path))[third.name].problem == "the chain does not follow the one before it"
    second.write_bytes(kept)
    first.unlink()
    assert verify_place(place_of(tmp_path))[second.name].problem == "the chain does not follow the one before it"


def test_a_restart_goes_on_where_a_crash_left_off(tmp_path: Path) -> None:
    """What was half written is no record."""
    program = (
        "import os, sys, time\n"
        "from ferrule.telemetry.receipt_writer import ReceiptSettings, ReceiptWriter\n"
        "from ferrule.telemetry.receipts import Receipt\n"
        "files = ReceiptWriter(sys.argv[1], settings=ReceiptSettings(commit_interval=0.001))\n"
        "files.start()\n"
        "while files.written < 50:\n"
        "    files.record(Receipt(target='x'))\n"
        "    time.sleep(0.0001)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    killed = subprocess.run([sys.executable, "-c", program, str(tmp_path)], timeout=60, check=False)
    assert killed.returncode == -9
    [path] = files_in(tmp_path)
    with open(path, "ab") as file:
        file.write(b'{"v":1,"n":')
    files = ReceiptWriter(tmp_path, settings=QUICK)
    files.start()
    files.record(call())
    files.close()
    found = verify_place(place_of(tmp_path))
    assert [each.problem for each in found.values()] == ["", ""]
    assert next(iter(found.values())).records > 50


def test_a_full_queue_loses_receipts_and_says_how_many(tmp_path: Path) -> None:
    files = ReceiptWriter(tmp_path, settings=ReceiptSettings(commit_interval=0.05, queue=10))
    files.start()
    taken = [files.record(call(number)) for number in range(30)]
    assert taken.count(False) == files.lost >= 19
    until(lambda: files.written == taken.count(True))
    files.record(call())
    files.close()
    assert all_right(tmp_path)
    gaps = [record["about"]["lost"] for record in records(tmp_path) if record["kind"] == "gap"]
    assert sum(gaps) == files.lost


def test_a_full_disk_loses_receipts_says_so_once_and_goes_on_when_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SUPV-03, OBSV-01: nothing waits for the disk, and no file is left torn."""
    full = False
    write = os.write

    def writing(file: int, data: Any) -> int:
        if not full or len(data) < 40:
            return write(file, data)
        write(file, bytes(data)[:30])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(receipt_files.os, "write", writing)
    files = ReceiptWriter(tmp_path, settings=QUICK)
    files.start()
    files.record(call(1))
    until(lambda: files.written == 1)
    full = True
    for number in range(5):
        start = time.monotonic()
        files.record(call(number))
        assert time.monotonic() - start < 1
        until(lambda number=number: files.lost == number + 1)
    assert "No space left" in files.failure
    full = False
    files.record(call(2))
    until(lambda: files.written == 2)
    assert files.failure == ""
    files.close()
    assert all_right(tmp_path)
    assert [record["kind"] for record in records(tmp_path)] == ["open", "call", "gap", "call"]
    assert records(tmp_path)[2]["about"] == {"lost": 5}
    assert len([record for record in caplog.records if "cannot be written" in record.message]) == 1


def test_a_file_that_cannot_be_cut_is_left_and_another_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = False
    fsync = os.fsync

    def failing(file: int, *rest: Any) -> None:
        if broken:
            raise OSError(errno.EIO, "Input/output error")
        fsync(file)

    files = ReceiptWriter(tmp_path, settings=QUICK)
    files.start()
    monkeypatch.setattr(receipt_files.os, "fsync", failing)
    monkeypatch.setattr(receipt_files.os, "ftruncate", failing)
    broken = True
    files.record(call(1))
    until(lambda: files.lost == 1)
    broken = False
    files.record(call(2))
    until(lambda: files.written == 1)
    files.close()
    assert len(files_in(tmp_path)) == 2
    assert [record["kind"] for record in records(tmp_path)][-3:] == ["open", "gap", "call"]


def test_seals_come_after_so_many_records_and_at_the_end(tmp_path: Path) -> None:
    settings = ReceiptSettings(commit_interval=0.001, seal_every=10)
    files = ReceiptWriter(tmp_path, settings=settings, sign=signer(SECRET), key_name="k")
    files.start()
    for number in range(25):
        files.record(call(number))
        until(lambda number=number: files.written > number)
    files.close()
    kinds = [record["kind"] for record in records(tmp_path)]
    assert kinds.count("seal") == 3
    assert kinds[-1] == "seal"
    [found] = verify_place(place_of(tmp_path), check=checker(_public())).values()
    assert (found.ok, found.seals) == (True, 3)


def test_a_seal_comes_after_a_while_without_any_call(tmp_path: Path) -> None:
    settings = ReceiptSettings(commit_interval=0.001, seal_interval=0.05)
    files = ReceiptWriter(tmp_path, settings=settings, sign=signer(SECRET))
    files.start()
    files.record(call())
    until(lambda: any(record["kind"] == "seal" for record in records(tmp_path)))
    size = files_in(tmp_path)[0].stat().st_size
    time.sleep(0.2)
    assert files_in(tmp_path)[0].stat().st_size == size, "nothing new, no new seal"
    files.close()


def test_old_files_are_removed_and_leave_their_last_hash(tmp_path: Path) -> None:
    """Thirty days by default."""
    assert ReceiptSettings().keep_days == 30
    for _ in range(3):
        files = ReceiptWriter(tmp_path, settings=QUICK)
        files.start()
        files.record(call())
        files.close()
    old = time.time() - 31 * 86_400
    for path in files_in(tmp_path)[:2]:
        os.utime(path, (old, old))
    third = files_in(tmp_path)[2]
    files = ReceiptWriter(tmp_path, settings=QUICK)
    files.start()
    files.close()
    assert files_in(tmp_path)[0] == third
    assert len(files_in(tmp_path)) == 2
    assert all_right(tmp_path)
    removed = (tmp_path / "removed.jsonl").read_text().splitlines()
    assert [json.loads(line)["records"] for line in removed] == [2, 2]
    third.unlink()
    assert not all_right(tmp_path)


def test_two_processes_cannot_write_into_one_folder(tmp_path: Path) -> None:
    files = ReceiptWriter(tmp_path, settings=QUICK)
    files.start()
    with pytest.raises(SetupError, match="another process writes receipts"):
        ReceiptWriter(tmp_path).start()
    with pytest.raises(SetupError, match="being written already"):
        files.start()
    files.close()
    files.start()
    assert files.close()
    assert all_right(tmp_path)


def test_nothing_is_kept_before_the_start_or_after_the_end(tmp_path: Path) -> None:
    files = ReceiptWriter(tmp_path, settings=QUICK)
    assert files.close()
    assert not files.record(call())
    assert files.lost == 1
    assert last_hash(place_of(tmp_path)) == NO_HASH
    files.start()
    files.close()
    assert not files.record(call())
    assert [record["kind"] for record in records(tmp_path)] == ["open", "gap"]


def test_recording_costs_the_call_little(tmp_path: Path) -> None:
    """OBSV-01: hashing and writing are the work of another thread."""
    files = ReceiptWriter(tmp_path, settings=ReceiptSettings(commit_interval=10.0))
    files.start()
    best = float("inf")
    for _ in range(5):
        start = time.thread_time()
        for number in range(1_000):
            files.record(call(number), b"{}", b"{}")
        best = min(best, time.thread_time() - start)
    files.close(PATIENCE)
    assert best / 1_000 < 24e-6
    assert all_right(tmp_path)
