"""What a process used of the machine."""

from __future__ import annotations

import subprocess
import sys

from bench.machine import cpu_seconds

WORKS_IN_A_THREAD = """
import os, threading, time

def work():
    while time.thread_time() < 0.2:
        pass
    input()

thread = threading.Thread(target=work)
thread.start()
while time.process_time() < 0.2:
    time.sleep(0.01)
print("worked", flush=True)
thread.join()
while len(os.listdir("/proc/self/task")) > 1:  # it is joined a moment before the system has ended it
    time.sleep(0.01)
print("ended", flush=True)
input()
"""


def test_what_a_thread_used_still_counts_when_it_has_ended() -> None:
    """Else a window in which an idle thread ends costs nothing, or less, and is taken for the best."""
    command = [sys.executable, "-c", WORKS_IN_A_THREAD]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "worked\n"
        worked = cpu_seconds(process.pid)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "ended\n"
        ended = cpu_seconds(process.pid)
        process.stdin.close()
    assert 0.2 <= worked <= ended
