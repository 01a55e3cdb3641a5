"""Finds out whom a module of tests has left behind: threads that keep the process alive, and child processes."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

OF_PYTEST = "pytest_timeout"
"""The beginning of the name of the thread that ends a test that hangs; each test has one of its own."""
PATIENCE = 30.0
"""How many seconds somebody may take to leave; nothing tells when he does."""


def present() -> dict[object, str]:
    """Tell who is there, by what is his alone: two threads or processes never are the same, however they are called."""
    threads = [each for each in threading.enumerate() if not each.daemon and not each.name.startswith(OF_PYTEST)]
    return {**{each: f"thread {each.name}" for each in threads}, **_children()}


def left_since(before: dict[object, str]) -> list[str]:
    """Return who came and does not leave."""
    until = time.monotonic() + PATIENCE
    while True:
        left = [name for each, name in present().items() if each not in before]
        if not left or time.monotonic() > until:
            return left
        time.sleep(0.05)


def _children() -> dict[object, str]:
    """Give the child processes that run, where the system tells; each by its number and the time it was started at."""
    found: dict[object, str] = {}
    for task in _listed("/proc/self/task"):
        for number in _read(f"/proc/self/task/{task}/children").split():
            fields = _read(f"/proc/{number}/stat").rpartition(")")[2].split()
            if fields and fields[0] not in "ZX":
                words = _read(f"/proc/{number}/cmdline").split("\0")
                found[number, fields[19]] = f"process {number}: {' '.join(words)[:200]}"
    return found


def _listed(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _read(path: str) -> str:
    """Read what the system tells of somebody; nothing when he has just left."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
