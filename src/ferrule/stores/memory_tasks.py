"""Tasks in this process: bounded in number and size, and gone with it.

They age by a clock that never jumps, the event loop's: when the clock on the wall is set, no task expires before its
time or stays beyond it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Collection, Iterable

from ferrule.errors import Busy, SetupError
from ferrule.stores.tasks import StoredTask

LEAST_LOOKED_AT = 1024
"""How many ends are noted, of tasks that are long gone too, before those are looked for."""

SHARE = 4
"""One owner's results may take one part in so many of the room before they push others' out."""

FULL = "Busy: this server keeps as many tasks as it can, and none of them has ended"


class MemoryTasks:
    """Tasks by id; over a bound, the one that ended longest ago goes first, and one that goes on is never dropped."""

    def __init__(
        self,
        *,
        max_tasks: int = 10_000,
        max_per_owner: int = 1000,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] | None = None,
    ) -> None:
        for name, value in (("max_tasks", max_tasks), ("max_per_owner", max_per_owner), ("max_bytes", max_bytes)):
            if not isinstance(value, int) or value < 1:
                raise SetupError(f"{name} must be a whole number of at least 1, not {value!r}")
        self._max_tasks = max_tasks
        self._max_per_owner = max_per_owner
        self._max_bytes = max_bytes
        self._tasks: dict[str, StoredTask] = {}
        self._of: dict[str, dict[str, None]] = {}
        self._ended: dict[str, None] = {}
        self._clock = clock or _loop_time
        self._ends: dict[str, float] = {}
        """When each task may be forgotten."""
        self._expiring: list[tuple[float, str]] = []
        self.size = 0
        """Bytes of all results together."""

    def __len__(self) -> int:
        return len(self._tasks)

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""
        await self.expire(now)
        own = self._of.get(task.owner, {})
        if task.owner and len(own) >= self._max_per_owner:
            self._make_room(each for each in own if each in self._ended)
        if len(self._tasks) >= self._max_tasks:
            self._make_room(self._ended)
        self._tasks[task.id] = task
        self._of.setdefault(task.owner, {})[task.id] = None
        if task.ttl is not None:
            self._remember_end(self._clock() + task.ttl, task.id)

    def _remember_end(self, expires: float, task_id: str) -> None:
        if len(self._expiring) > 2 * len(self._tasks) + LEAST_LOOKED_AT:
            self._expiring = [entry for entry in self._expiring if entry[1] in self._tasks]
            heapq.heapify(self._expiring)
        heapq.heappush(self._expiring, (expires, task_id))
        self._ends[task_id] = expires

    def _make_room(self, ended: Iterable[str]) -> None:
        oldest = next(iter(ended), None)
        if oldest is None:
            raise Busy(FULL)
        self._forget(oldest)

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Give a task; None when there is none or it has expired."""
        return None if self._expired(task_id) else self._tasks.get(task_id)

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status; tells whether it was."""
        kept = self._tasks.get(task.id)
        if kept is None or kept.status not in expected:
            return False
        self._tasks[task.id] = task
        self.size += len(task.result or b"") - len(kept.result or b"")
        if task.ended:
            self._ended[task.id] = None
            if self.size > self._max_bytes:
                self._make_bytes(task)
        return True

    def _make_bytes(self, task: StoredTask) -> None:
        """Forget results: first the owner's own, as long as it has more than its share, then the oldest of all."""
        own = self._of[task.owner]
        held = sum(len(self._tasks[each].result or b"") for each in own)
        for each in [each for each in self._ended if each in own and each != task.id]:
            if self.size <= self._max_bytes or held <= self._max_bytes // SHARE:
                break
            held -= len(self._tasks[each].result or b"")
            self._forget(each)
        while self.size > self._max_bytes and (oldest := next(iter(self._ended))) != task.id:
            self._forget(oldest)

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Give tasks of one owner by time of creation and id, those after a given pair, at most so many."""
        own = sorted((self._tasks[each] for each in self._of.get(owner, ())), key=lambda task: (task.created, task.id))
        later = (task for task in own if after is None or (task.created, task.id) > after)
        return [task for task in later if not self._expired(task.id)][:limit]

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""
        self._forget(task_id)

    def _forget(self, task_id: str) -> None:
        task = self._tasks.pop(task_id, None)
        if task is None:
            return
        self._ended.pop(task_id, None)
        self._ends.pop(task_id, None)
        self.size -= len(task.result or b"")
        own = self._of[task.owner]
        del own[task_id]
        if not own:
            del self._of[task.owner]

    async def expire(self, now: float) -> float | None:
        """Forget what has expired; gives when the next will, None when nothing does."""
        while self._expiring:
            expires, task_id = self._expiring[0]
            left = expires - self._clock()
            if task_id in self._tasks and left > 0:
                return now + left
            heapq.heappop(self._expiring)
            self._forget(task_id)
        return None

    def _expired(self, task_id: str) -> bool:
        ends = self._ends.get(task_id)
        return ends is not None and ends <= self._clock()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
