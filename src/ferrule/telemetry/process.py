"""What the operating system knows of this process, as metrics with the names every Prometheus client uses."""

from __future__ import annotations

import os
import platform
import sys
import time
from pathlib import Path

from ferrule.telemetry.metrics import Metrics

try:
    import resource
except ImportError:  # on Windows
    resource = None  # type: ignore[assignment]

STATM = Path("/proc/self/statm")
DESCRIPTORS = ("/proc/self/fd", "/dev/fd")


def record_process(metrics: Metrics, version: str) -> None:
    """Let CPU time, memory, descriptors and the age of this process be read with the metrics."""
    began = time.time() - time.monotonic() + _started_after_boot()
    metrics.gauge("process_start_time_seconds").labels().set(began)
    metrics.gauge("ferrule_build_info").labels(version, platform.python_version()).set(1)
    recorded_at = time.monotonic()

    def read() -> None:
        metrics.gauge("ferrule_uptime_seconds").labels().set(time.monotonic() - recorded_at)
        metrics.counter("process_cpu_seconds_total").labels().value = time.process_time()
        metrics.gauge("process_resident_memory_bytes").labels().set(resident_memory())
        metrics.gauge("process_open_fds").labels().set(open_descriptors())
        metrics.gauge("process_max_fds").labels().set(most_descriptors())

    metrics.before_reading(read)


def _started_after_boot() -> float:
    """Return when this process started, in seconds on the monotonic clock."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.monotonic()


def resident_memory() -> int:
    """Return the bytes of memory that this process holds, or the most it ever held; 0 where nobody tells."""
    try:
        pages = int(STATM.read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        pass
    if resource is None:
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if sys.platform == "darwin":
        return most
    return most * 1024


def open_descriptors() -> int:
    """Return how many file descriptors are open; 0 where nobody tells."""
    for folder in DESCRIPTORS:
        try:
            count = len(list(Path(folder).iterdir()))
        except OSError:
            continue
        return count - 1  # without the one that lists them
    return 0


def most_descriptors() -> int:
    """Return the limit of open file descriptors; 0 where nobody tells, -1 where there is none."""
    if resource is None:
        return 0
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def memory_limit(root: Path = Path("/")) -> int:
    """Return how many bytes of memory this process may hold: the limit of its control group, or all there is."""
    limits = [_total_memory(root)]
    for path in _limit_files(root):
        try:
            text = path.read_text(encoding="ascii").strip()
            if text != "max":
                limits.append(int(text))
        except (OSError, ValueError):
            continue
    known = [limit for limit in limits if limit > 0]
    return min(known, default=0)


def _limit_files(root: Path) -> list[Path]:
    """Return the files that hold the limits of our control group and of those above it, in both versions."""
    groups = root / "sys/fs/cgroup"
    found = [groups / "memory.max", groups / "memory/memory.limit_in_bytes"]
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return found
    for line in lines:
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for count in range(1, len(parts) + 1):
            place = "/".join(parts[:count])
            if number == "0":
                found.append(groups / place / "memory.max")
            elif "memory" in controllers.split(","):
                found.append(groups / "memory" / place / "memory.limit_in_bytes")
    return found


def _total_memory(root: Path) -> int:
    try:
        for line in (root / "proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemTotal:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return 0
