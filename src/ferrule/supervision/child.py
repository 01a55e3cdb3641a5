"""Child: what a supervisor starts, watches and starts again. One run of it is contained: nothing it raises gets out."""

from __future__ import annotations

import asyncio
import math
import traceback
from collections.abc import Callable, Coroutine, Sequence
from types import CodeType, FrameType
from typing import Any, Literal, Protocol

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.supervision.restart import RestartPlan

Ready = Callable[[], None]
"""Called by a child, in the thread of the event loop, when what depends on it may start."""
Run = Callable[[Ready], Coroutine[Any, Any, None]]
"""The work of a child: it ends normally by returning, abnormally by raising."""

RestartKind = Literal["permanent", "transient", "temporary"]
RESTART_KINDS = ("permanent", "transient", "temporary")

State = Literal["waiting", "starting", "running", "restarting", "failed", "stopping", "stopped", "ended"]
"""
| state | meaning |
|---|---|
| `waiting` | not started yet |
| `starting` | runs, and has not said that it is ready |
| `running` | is ready |
| `restarting` | is dead and will be started again after a delay |
| `failed` | was restarted too often; is tried again from time to time |
| `stopping` | was cancelled and has not ended |
| `stopped` | was stopped on purpose |
| `ended` | ended by itself and is not restarted |
"""


class ChildState(Struct, frozen=True, kw_only=True):
    """What is known of a child at one moment."""

    name: str
    path: str
    """The name behind those of all supervisors above, as `app/listeners/http`."""
    state: State
    restart: RestartKind
    restarts: int = 0
    """How often it was restarted since its supervisor was started."""
    error: str = ""
    """What it last ended with; empty where it ended normally or not at all."""
    children: Sequence[ChildState] = ()
    """The children of a child that is a supervisor."""


class Tree(Protocol):
    """A supervisor, as another supervisor's child."""

    name: str

    async def run(self, ready: Ready | None = None) -> None:
        """Start every child, call `ready`, and return when the tree has ended; raise SupervisorFailed."""

    def attach(self, path: str, on_event: Callable[[Any], None] | None) -> None:
        """Called when it was given to a supervisor, with its path and what hears its events by default."""

    @property
    def children(self) -> Sequence[ChildState]:
        """The states of its children."""


class Child:
    """What a supervisor starts, watches and starts again."""

    __slots__ = ("grace", "name", "plan", "ready_timeout", "restart", "run", "significant", "tree")

    def __init__(
        self,
        name: str,
        run: Run | Tree,
        *,
        restart: RestartKind = "permanent",
        grace: float | None = None,
        ready_timeout: float = 30.0,
        significant: bool = False,
        plan: RestartPlan | None = None,
    ) -> None:
        if not isinstance(name, str) or not name or "/" in name:
            raise SetupError(f"the name of a child must be a str without '/', not {name!r}")
        if restart not in RESTART_KINDS:
            raise SetupError(f"child {name!r}: restart must be one of {', '.join(RESTART_KINDS)}, not {restart!r}")
        self.name = name
        self.tree: Tree | None = None
        """The supervisor this child is; None for a child that works itself."""
        if callable(run):
            self.run: Run = run
        elif hasattr(run, "run"):
            self.tree = run
            self.run = run.run
            ready_timeout = math.inf
        else:
            raise SetupError(f"child {name!r}: run must be an async function that takes ready, not {run!r}")
        self.restart: RestartKind = restart
        self.grace = grace
        """Seconds to end in after it was cancelled, `math.inf` for any time; None for those of its supervisor."""
        self.ready_timeout = ready_timeout
        """Seconds to call `ready` in; `math.inf` for a child, such as a supervisor, that takes as long as it takes."""
        self.significant = significant
        """Whether its end ends the whole tree: see `auto_shutdown` of Supervisor."""
        self.plan = plan
        """Its own plan, counted by itself; None for that of its supervisor."""


async def contained(run: Run, ready: Ready) -> BaseException | None:
    """Run a child and return what it raised, whatever that is: SystemExit would end the event loop otherwise."""
    try:
        await run(ready)
    except GeneratorExit:
        raise
    except BaseException as error:
        return error
    return None


def sentence(error: BaseException | None) -> str:
    """Return an error as one line; empty without one."""
    if error is None:
        return ""
    kind = type(error).__name__
    try:
        text = str(error)
    except Exception:
        text = ""
    if not text:
        return kind
    return f"{kind}: {text}"


def stack_of(task: asyncio.Task[Any]) -> str:
    """Return where a task waits, as lines like those of a traceback: the innermost frame last."""
    summary = traceback.StackSummary.extract(_frames(task.get_coro()))
    return "".join(summary.format()).rstrip("\n")


def _frames(work: object) -> list[tuple[FrameType, int]]:
    """Return the frames of a coroutine and of those it awaits."""
    found: list[tuple[FrameType, int]] = []
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None)
        if frame is None or not isinstance(getattr(frame, "f_code", None), CodeType):
            break
        found.append((frame, frame.f_lineno))
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None)
    return found
