"""What large messages need is kept while they come, and given back after."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, resource, sys
from ferrule.budgets import process
from ferrule.budgets.allocator import Allocator

MESSAGE, TIMES = 20_000_000, 20

def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def held():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()

def large_messages():
    for _ in range(TIMES):
        bytes(bytearray(MESSAGE))

async def main():
    allocator = Allocator(quiet=0.05)
    if "owned" in sys.argv:
        allocator.own_process()
    before = held()
    allocator.large_message()
    large_messages()
    first = faults()
    large_messages()
    again = faults() - first
    kept = held() - before
    await asyncio.sleep(0.2)
    print(json.dumps({"faults": again / TIMES, "kept": kept, "after": held() - before}))

async def late():
    # A call holds its message until long after it was read; blocks of others lie behind it.
    allocator = Allocator(quiet=0.05)
    allocator.own_process()
    before = held()
    allocator.large_message()
    message = bytes(bytearray(MESSAGE))
    others = [bytes(10_000) for _ in range(10)]
    process.requests.take(MESSAGE)
    await asyncio.sleep(0.2)
    kept = held() - before
    del message
    process.requests.give(MESSAGE)
    await asyncio.sleep(0.2)
    print(json.dumps({"kept": kept, "after": held() - before}))

asyncio.run(late() if "late" in sys.argv else main())
"""


def measured(*arguments: str) -> dict[str, Any]:
    """Run the program in a process of its own."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, check=True, timeout=60)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="the thresholds are those of glibc")
def test_what_large_messages_need_is_taken_once_and_given_back_when_they_stop() -> None:
    found = measured("owned")
    assert found["faults"] < 100
    assert found["kept"] > 15_000_000
    assert found["after"] < 5_000_000


@pytest.mark.skipif(sys.platform != "linux", reason="the thresholds are those of glibc")
def test_the_process_of_somebody_else_is_left_as_it_is() -> None:
    found = measured()
    assert found["faults"] > 1000


@pytest.mark.skipif(sys.platform != "linux", reason="the thresholds are those of glibc")
def test_what_is_held_when_large_messages_stop_is_given_back_when_it_is_let_go() -> None:
    found = measured("late")
    assert found["kept"] > 15_000_000
    assert found["after"] < 5_000_000
