"""The check that every module of tests is under can fail, and is not fooled by who has left."""

from __future__ import annotations

import subprocess
import sys
import threading

import pytest

import nobody_left
from nobody_left import left_since, present


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nobody_left, "PATIENCE", 0.1)


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_stays_is_named() -> None:
    before, stop = present(), threading.Event()
    thread = threading.Thread(target=stop.wait, name="lingering")
    thread.start()
    assert left_since(before) == ["thread lingering"]
    stop.set()
    thread.join()
    assert left_since(before) == []


@pytest.mark.usefixtures("impatient")
def test_a_thread_that_keeps_nobody_is_no_matter() -> None:
    before, stop = present(), threading.Event()
    threading.Thread(target=stop.wait, daemon=True).start()
    assert left_since(before) == []
    stop.set()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells of children")
@pytest.mark.usefixtures("impatient")
def test_a_child_that_stays_is_named_and_one_that_ended_is_not() -> None:
    before = present()
    with subprocess.Popen(["sleep", "600"]) as child:
        (left,) = left_since(before)
        assert left.startswith(f"process {child.pid}: ")
        child.kill()
        # Ended, though nobody has asked how.
        while left_since(before):
            pass


def test_who_is_about_to_leave_is_waited_for() -> None:
    before = present()
    threading.Timer(0.2, print).start()
    assert left_since(before) == []
