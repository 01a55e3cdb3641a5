"""The machine under test: its cores, what a process used of them, and how to describe it.

CPU time is what the scheduler counted, to the nanosecond, for every thread a process has or had. Waiting for a core
costs nothing there, so the figures can be compared on a machine that others use too.
"""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from bench.places import PROJECT

CORES = sorted(os.sched_getaffinity(0))
SERVER_CORE, GENERATOR_CORE = CORES[0], CORES[-1]

PROCESS_CLOCK = 2
"""The kind of clock that counts what the scheduler gave to a whole process."""


def pin(core: int) -> None:
    """Keep this process on one core."""
    os.sched_setaffinity(0, {core})


@contextlib.contextmanager
def pinned(core: int) -> Iterator[None]:
    """Stay on one core inside the block; what is started there stays on it for good."""
    before = os.sched_getaffinity(0)
    pin(core)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def allow_many_sockets() -> None:
    """Let this process and the servers it starts have as many sockets as they may."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cpu_seconds(pid: int) -> float:
    """Return how long all the threads of a process have run, those that have ended too."""
    clock = (~pid << 3) | PROCESS_CLOCK  # what clock_getcpuclockid(3) gives on Linux
    return time.clock_gettime_ns(clock) / 1e9


def family_cpu_seconds(pid: int) -> float:
    """Return how long a process and its children have run, those that run still."""
    total = cpu_seconds(pid)
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has ended since
            total += cpu_seconds(int(child))
    return total


def resident_mib(pid: int) -> float:
    """Return how much memory a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return round(int(line.split()[1]) / 1024, 1)
    return 0.0


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _revision() -> str:
    asked = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    return asked.stdout.strip() or "unknown"


def environment() -> dict:
    """Describe the machine and the moment, for the record of a run."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "revision": _revision(),
        "hostname": platform.node(),
        "os": platform.system().lower(),
        "os_version": platform.release(),
        "arch": platform.machine(),
        "cpu": _cpu_model(),
        "cores": len(CORES),
        "server_core": SERVER_CORE,
        "generator_core": GENERATOR_CORE,
        "memory_gib": round(memory / 2**30, 1),
        "python_version": platform.python_version(),
        "python_implementation": platform.python_implementation(),
        "load_average": [round(load, 2) for load in os.getloadavg()],
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
