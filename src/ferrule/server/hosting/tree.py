"""What runs while a server serves, as one supervision tree.

    app                    one_for_one
    ├─ registry            permanent   keeps the server's entries in its registry
    ├─ stores              permanent   what it shares with other nodes, where it has stores
    ├─ telemetry           permanent   a supervisor of exporters and the like; none is ever given up
    ├─ server              transient   the lifespan
    └─ listeners           ends the tree with its last listener
       ├─ http             transient   bound again when it dies
       └─ stdio            temporary   its one peer does not come back

A listener's death stops no other, so `listeners` is one_for_one as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

from ferrule.errors import SupervisorFailed
from ferrule.server.hosting.host import Host
from ferrule.server.hosting.listeners import Listeners
from ferrule.server.hosting.registration import ServerRegistration
from ferrule.supervision.child import Child, Ready
from ferrule.supervision.restart import RestartPlan
from ferrule.supervision.supervisor import Supervisor
from ferrule.transports.contract import Listener

STORES_GRACE = 10.0
"""Seconds in which what is written behind can be kept at the end."""
NEVER_GIVEN_UP = RestartPlan(give_up=False)


class ServingTree:
    """What runs while a server serves, from one call of `serve` to its end."""

    def __init__(
        self, host: Host, registration: ServerRegistration, listeners: Listeners, exporters: Iterable[Child]
    ) -> None:
        self._host = host
        self._registration = registration
        self._listeners = listeners
        self._waiting: set[str] = set()
        """The listeners that cannot be reached yet."""
        self._end_error: BaseException | None = None
        """What the end of the lifespan raised."""
        self._served = Supervisor("listeners", auto_shutdown="all_significant")
        self._exporters = list(exporters)
        """Those of telemetry's children that are not started yet."""
        self.telemetry = Supervisor("telemetry", plan=NEVER_GIVEN_UP)
        children = [Child("registry", registration.run)]
        if host.node is not None:
            children.append(Child("stores", host.node.run, grace=STORES_GRACE))
        self.supervisor = Supervisor(
            "app",
            *children,
            Child("telemetry", self.telemetry, plan=NEVER_GIVEN_UP),
            Child("server", self._run_server, restart="transient", grace=math.inf, ready_timeout=math.inf),
            Child("listeners", self._served, restart="temporary", significant=True),
            on_event=host.supervised,
        )

    def add(self, listener: Listener, name: str | None, ready: Callable[[], object] | None) -> None:
        """Add a listener before the start; `ready` is called when the last of them can be reached."""
        served = self._listeners.add(listener, name, self._served)
        self._waiting.add(served.name)

        def is_ready() -> None:
            if served.name in self._waiting:
                self._waiting.remove(served.name)
                if not self._waiting and ready is not None:
                    ready()

        served.on_ready = is_ready
        self._served.add(served.child())

    async def run(self) -> None:
        """Run until every listener has ended or `stop` is called.

        Raise what a child raised that could not be started, and SupervisorFailed where a listener died too often.
        """
        failure: SupervisorFailed | None = None
        try:
            await self.supervisor.run()
        except SupervisorFailed as error:
            failure = error
        except asyncio.CancelledError:
            if self._end_error is None:
                raise
        finally:
            for served in self._listeners.under(self._served):
                self._listeners.discard(served)
        if failure is not None:
            raise plain_error(failure)
        if self._end_error is not None:
            raise self._end_error

    async def _run_server(self, ready: Ready) -> None:
        """Keep the lifespan begun; what its end raises is raised by `run`."""
        # Added to a supervisor that runs: one that hangs before it is ready delays nobody.
        while self._exporters:
            self.telemetry.add(self._exporters.pop(0))
        task = asyncio.current_task()
        assert task is not None
        try:
            await self._live(task, ready)
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) or not task.cancelling():
                raise
            self._end_error = error

    async def _live(self, task: asyncio.Task[Any], ready: Ready) -> None:
        async with contextlib.AsyncExitStack() as stack:
            await self._host.enter()
            stack.push_async_callback(self._host.leave)
            for served in self._listeners.under(self._served):
                await served.entrance.enter()
                stack.push_async_callback(served.entrance.leave)
            if task.cancelling():
                # The lifespan has begun although it was cancelled.
                raise asyncio.CancelledError
            self._listeners.context = copy_context()
            self._registration.server_began()
            stack.callback(self._registration.server_ended)
            ready()
            await asyncio.Event().wait()

    async def stop(self, grace: float) -> None:
        """Let running calls end within `grace` seconds and close every listener; give up a start that is under way."""
        states = {state.name: state for state in self.supervisor.children}
        if states["server"].state != "running":
            self.supervisor.request_stop()
            return
        served = self._listeners.under(self._served)
        await asyncio.gather(*(each.close(grace) for each in served))
        for state in self._served.children:
            if state.state in {"restarting", "failed"}:
                await self._served.stop(state.name)


def plain_error(failure: SupervisorFailed) -> BaseException:
    """Return what made a tree fail, without the supervisors it passed: the error of a child, or who gave up."""
    cause = failure.__cause__
    while isinstance(cause, SupervisorFailed) and not failure.gave_up:
        failure = cause
        cause = failure.__cause__
    if failure.gave_up or cause is None:
        return failure
    return cause
