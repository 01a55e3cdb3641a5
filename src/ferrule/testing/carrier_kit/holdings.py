"""What this process holds that somebody must let go of: tasks, timers, threads, descriptors."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path

DESCRIPTORS = next((Path(place) for place in ("/proc/self/fd", "/dev/fd") if Path(place).is_dir()), None)


def holdings() -> Counter[str]:
    """Count what is held now, by what it is."""
    loop = asyncio.get_running_loop()
    held = Counter(f"task {_nameless(repr(task.get_coro()))}" for task in asyncio.all_tasks(loop))
    # The loop keeps the threads in which it looks up names; how many it has made by now is chance.
    names = (thread.name for thread in threading.enumerate())
    held.update(f"thread {_nameless(name)}" for name in names if not name.startswith("asyncio_"))
    held.update(f"descriptor of {target}" for target in _open_descriptors())
    # The loop does not tell which timers it has; one that keeps them elsewhere is believed to have none.
    scheduled = getattr(loop, "_scheduled", ())
    held.update(f"timer {_what(timer)}" for timer in scheduled if not timer.cancelled())
    return held


def _what(timer: asyncio.TimerHandle) -> str:
    callback = getattr(timer, "_callback", None)
    return _nameless(getattr(callback, "__qualname__", repr(callback)))


def _nameless(text: str) -> str:
    """Leave out addresses and numbers, so that the next one of a kind is called the same."""
    return re.sub(r"\d+", "", text.split(" at 0x", maxsplit=1)[0])


def _open_descriptors() -> list[str]:
    if DESCRIPTORS is None:
        return []
    targets = []
    for found in DESCRIPTORS.iterdir():
        try:
            targets.append(found.readlink().name.split(":")[0])
        except OSError:
            # The one the listing itself used is gone by now.
            continue
    return targets


async def left_over(before: Counter[str], within: float) -> Counter[str]:
    """Give what is held more than before, once it had a while to be let go of."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within
    # Nothing tells when something is let go of.
    while (more := holdings() - before) and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return more
