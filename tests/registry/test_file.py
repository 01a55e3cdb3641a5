"""The file of a registry's snapshot is never torn."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.errors import SetupError
from ferrule.registry import file as registry_file
from ferrule.registry.file import SnapshotFile
from ferrule.registry.local import LocalRegistry

SAVER = """
import sys
from ferrule.registry.file import SnapshotFile
from ferrule.registry.local import LocalRegistry

def filled(letter):
    registry = LocalRegistry()
    for number in range(500):
        registry.register("tool", f"{letter}{number}", None)
    return registry

both = filled("a"), filled("b")
kept = SnapshotFile(sys.argv[1])
kept.save(both[0])
print("saving", flush=True)
while True:
    for registry in both:
        kept.save(registry)
"""
DYING = """
import os, signal, sys
from ferrule.registry.file import SnapshotFile
from ferrule.registry.local import LocalRegistry

old, new = LocalRegistry(), LocalRegistry()
old.register("server", "old", None)
new.register("server", "new", None)
kept = SnapshotFile(sys.argv[1])
kept.save(old)
setattr(os, sys.argv[2], lambda *arguments: os.kill(os.getpid(), signal.SIGKILL))
kept.save(new)
"""
KILLS = 4


def registry_of(*names: str) -> LocalRegistry:
    registry = LocalRegistry()
    for name in names:
        registry.register("server", name, None)
    return registry


def names_in(path: Path) -> list[str]:
    registry = LocalRegistry()
    assert SnapshotFile(path).load(registry)
    return sorted(entry.name for kind in ("server", "tool") for entry in registry.find_all(kind))


def test_a_registry_is_what_it_was_after_it_was_saved_and_loaded(tmp_path: Path) -> None:
    path = tmp_path / "registry"
    SnapshotFile(path).save(registry_of("a", "b"))
    assert names_in(path) == ["a", "b"]
    SnapshotFile(path).save(registry_of("c"))
    assert names_in(path) == ["c"]
    assert os.listdir(tmp_path) == ["registry"]


def test_where_there_is_no_file_nothing_is_loaded(tmp_path: Path) -> None:
    registry = registry_of("a")
    assert not SnapshotFile(tmp_path / "registry").load(registry)
    assert [entry.name for entry in registry.find_all("server")] == ["a"]


def test_a_file_of_somebody_else_s_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "registry"
    path.write_bytes(b"\x00not a snapshot")
    with pytest.raises(SetupError):
        SnapshotFile(path).load(LocalRegistry())
    SnapshotFile(path).save(registry_of("a"))
    monkeypatch.setattr(registry_file, "LARGEST_FILE", path.stat().st_size - 1)
    with pytest.raises(SetupError, match="is not a snapshot of a registry: it is larger than"):
        SnapshotFile(path).load(LocalRegistry())


def test_a_crash_at_any_moment_leaves_a_whole_file(tmp_path: Path) -> None:
    """CRA-09: a process that saves all the time is killed again and again."""
    path = tmp_path / "registry"
    seen = set()
    for _ in range(KILLS):
        saver = subprocess.Popen([sys.executable, "-c", SAVER, str(path)], stdout=subprocess.PIPE)
        assert saver.stdout is not None
        with saver.stdout:
            saver.stdout.readline()
            time.sleep(random.uniform(0, 0.05))
            saver.kill()
            saver.wait()
        names = names_in(path)
        assert len(names) == 500
        assert len({name[0] for name in names}) == 1
        seen.add(names[0][0])
    assert seen <= {"a", "b"}


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_a_crash_in_any_step_leaves_the_old_file(tmp_path: Path, step: str) -> None:
    """CRA-09"""
    path = tmp_path / "registry"
    dying = subprocess.run([sys.executable, "-c", DYING, str(path), step], check=False, timeout=60)
    assert dying.returncode == -signal.SIGKILL
    assert names_in(path) == ["old"]


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EROFS])
@pytest.mark.parametrize("step", ["write", "fsync", "replace", "close"])
def test_an_error_at_any_step_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int
) -> None:
    """DSK-04: nothing else is left behind, and the next save goes well."""
    path = tmp_path / "registry"
    kept = SnapshotFile(path)
    kept.save(registry_of("old"))

    def fail(*arguments: object) -> int:
        if step == "close":
            real(*arguments)
        raise OSError(code, os.strerror(code))

    real: Callable[..., object] = getattr(os, step)
    with monkeypatch.context() as broken:
        broken.setattr(registry_file.os, step, fail)
        with pytest.raises(OSError, match=os.strerror(code)):
            kept.save(registry_of("new"))
    assert names_in(path) == ["old"]
    assert os.listdir(tmp_path) == ["registry"]
    kept.save(registry_of("new"))
    assert names_in(path) == ["new"]


def test_an_error_after_the_file_was_replaced_leaves_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DSK-04: the folder could not be synchronized."""
    path = tmp_path / "registry"
    kept = SnapshotFile(path)
    kept.save(registry_of("old"))
    calls = []
    fsync = os.fsync

    def fail_the_second_time(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == 2:
            raise OSError(errno.EIO, "input/output error")
        fsync(descriptor)

    with monkeypatch.context() as broken:
        broken.setattr(registry_file.os, "fsync", fail_the_second_time)
        with pytest.raises(OSError, match="input/output error"):
            kept.save(registry_of("new"))
    assert names_in(path) == ["new"]


def test_a_snapshot_that_is_written_in_parts_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    monkeypatch.setattr(registry_file.os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    SnapshotFile(tmp_path / "registry").save(registry_of("a", "b", "c"))
    assert names_in(tmp_path / "registry") == ["a", "b", "c"]
