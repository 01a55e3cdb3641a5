"""ServerNode: a server as one of several nodes that share stores.

    stores                  opened first, closed last
    ├─ lease                says to others that this node lives
    ├─ sessions             of the handshake era over HTTP
    ├─ sealing keys         so that any node goes on with a call that asked its client
    └─ change notices       reach the clients of all nodes

Rule: nothing here is waited for on the path of a call that comes to the node which has its session.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import logging
import math
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct, structs

from ferrule.errors import Busy
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.runtime.tasks.tasks import Tasks
from ferrule.server.calls.kept_results import KeptResult
from ferrule.server.calls.services import Services
from ferrule.server.cluster.task_bus import TaskBus
from ferrule.server.middleware.leased_quota import LeasedQuotas
from ferrule.server.notifications.changes import Change
from ferrule.stores.contracts import Notice, Subscription
from ferrule.stores.leases import NodeLease
from ferrule.stores.memory import MemoryTasks
from ferrule.stores.stores import Stores
from ferrule.supervision.child import Ready
from ferrule.supervision.counted_lifetime import CountedLifetime
from ferrule.supervision.scope import Scope
from ferrule.telemetry.health import CheckResult

if TYPE_CHECKING:
    from ferrule.transports.http.cluster.sessions import ClusterSessions

logger = logging.getLogger("ferrule.server")

CHANGES = "changes"
"""The topic of change notices."""
RESULT = "result:"
"""How the keys of results begin that were too large for their answers."""
SEALING_KEY = "sealing-key"
"""Where the key is kept that seals the states of calls."""
KEY_BYTES = 32
RESULTS_GRACE = 1.0
"""Seconds in which results can be kept at the end."""
UNCERTAIN = 3.0
"""Seconds after which all nodes have told a store that came back what they have."""
COUNT_EVERY = 30.0
"""Seconds between two counts of the nodes."""
LOOK_EVERY = 0.5
"""Seconds between two looks whether something has to be made good that the store did not take."""

_read_change = msgspec.msgpack.Decoder(Change).decode


class WrittenResult(Struct, frozen=True, array_like=True):
    """A result too large for its answer, as other nodes read it."""

    owner: str | None
    mime_type: str
    body: bytes


_read_result = msgspec.msgpack.Decoder(WrittenResult).decode


class ServerNode:
    """A server as one of several nodes."""

    def __init__(self, stores: Stores, services: Services, seal_with: Callable[[Sequence[bytes]], None] | None) -> None:
        self.stores = stores
        self._services = services
        self._seal_with = seal_with
        """Lets states be sealed with other keys; None where the server was given its own."""
        self.sessions: ClusterSessions | None = None
        """The sessions over HTTP; None while the node is closed."""
        self._lease: NodeLease | None = None
        self._subscription: Subscription | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._tasks: Tasks | None = None
        self._task_bus: TaskBus | None = None
        self._task_scope: Scope | None = None
        self._results_scope: Scope
        self._has_keys = False
        self._back_since: float | None = None
        """When the store came back that was away."""
        self._renews_early = False
        """Whether the store may have forgotten that this node lives."""
        self._is_unsure = False
        """Whether other nodes may have claimed sessions of this one since it last looked."""
        self.leased_quotas = LeasedQuotas(stores.limits, lambda: self._living)
        """Limits that all nodes keep together."""
        self._living = 1
        """How many nodes there were when somebody last looked."""
        self._looked = 0.0
        self._lifetime = CountedLifetime(self._start)

    @property
    def name(self) -> str:
        """What other nodes know this one by."""
        return self.stores.bus.node

    # -- life

    async def run(self, ready: Ready) -> None:
        """Be a node until cancelled."""
        await self.enter()
        try:
            ready()
            await asyncio.Event().wait()
        finally:
            await self.leave()

    async def enter(self) -> None:
        """Become a node with the first user; every enter is matched by a leave."""
        await self._lifetime.enter()

    async def leave(self) -> None:
        """Be a node no more, when the last user leaves."""
        await self._lifetime.leave()

    async def _start(self, stack: contextlib.AsyncExitStack) -> None:
        stack.push_async_callback(self._close)  # first: it may be cancelled while the store is asked
        await self._open()

    async def _open(self) -> None:
        self._results_scope = Scope(asyncio.get_running_loop())
        await self.stores.open()
        links = self._services.links
        # A server knows no transport: the half of HTTP is found by its name.
        module = importlib.import_module("ferrule.transports.http.cluster.sessions")
        sessions: ClusterSessions = module.ClusterSessions(self.stores, links)
        self.sessions = sessions
        lease = self._lease = NodeLease(self.stores.nodes, self.name, ttl=self.stores.lease, lapsed=self._lapsed)
        sessions.held = lambda: lease.held
        sessions.open()
        links.on_session_changed = sessions.changed
        if self.stores.reaches_others:
            self._services.changes.relay = self._tell_others
        self._subscription = self.stores.bus.subscribe(CHANGES, self._told, self._missed)
        self._open_task_bus()
        self._services.kept_results.on_keep = self._keep_result
        self._services.kept_results.on_drop = self._drop_results
        self._services.kept_results.elsewhere = self._find_result
        await lease.start()
        await self._take_keys()
        self._keeping = asyncio.get_running_loop().create_task(self._keep())

    # -- health

    def unready(self) -> list[str]:
        """Return why this node should not be sent requests."""
        if self.sessions is not None and self.sessions.cut_off:
            return ["it has lost its lease, and does not know which sessions are its own"]
        if self.stores.required and self.stores.backend.state == "degraded":
            return ["its stores cannot be used"]
        return []

    def look(self) -> CheckResult:
        """Return whether the stores can be used; where they cannot, the node works on by itself."""
        state = self.stores.backend.state
        if state == "degraded":
            return CheckResult("warn", state, "the stores cannot be used: this node works by itself")
        return CheckResult("pass", state)

    # -- tasks

    def task_settings(self, given: TaskSettings | None) -> TaskSettings:
        """Return how tasks are kept: in the stores, unless a store of their own was given."""
        settings = given or TaskSettings()
        if isinstance(settings.store, MemoryTasks):
            settings = structs.replace(settings, store=self.stores.tasks)
        return settings

    def share_tasks(self, tasks: Tasks) -> None:
        """Let tasks be asked about at every node."""
        self._tasks = tasks
        if self.sessions is not None:
            self._open_task_bus()

    def _open_task_bus(self) -> None:
        tasks = self._tasks
        if tasks is not None and self._task_bus is None:
            scope = self._task_scope = Scope(asyncio.get_running_loop())
            bus = TaskBus(self.stores, tasks.live, tasks.holder.changed, self._services.subscriptions, scope)
            self._task_bus = tasks.others = bus

    async def _close_task_bus(self) -> None:
        if self._task_bus is not None:
            self._task_bus.close()
            self._task_bus = None
        if self._task_scope is not None:
            await self._task_scope.close()
            self._task_scope = None

    async def _close(self) -> None:
        await self._close_task_bus()
        self._services.kept_results.on_keep = None
        self._services.kept_results.on_drop = None
        self._services.kept_results.elsewhere = None
        await self._results_scope.close(RESULTS_GRACE)
        if self._keeping is not None:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
            self._keeping = None
        self._services.links.on_session_changed = None
        self._services.changes.relay = None
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
        if self.sessions is not None:
            await self.sessions.close()
            self.sessions = None
        if self._lease is not None:
            await self._lease.stop()
            self._lease = None
        await self.stores.close()

    async def _keep(self) -> None:
        """Make good what the store did not take while it was away."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            try:
                await self._make_good()
            except Busy:
                continue
            except Exception:
                logger.exception("a node could not make sure of its sessions; it tries again")

    async def _make_good(self) -> None:
        lease = self._lease
        sessions = self.sessions
        if sessions is None or lease is None:
            return
        if self.stores.backend.state != "ready":
            self._back_since = None
            sessions.is_uncertain = True
            return
        now = asyncio.get_running_loop().time()
        if sessions.is_uncertain and self._back_since is None:
            # It may have come back empty.
            self._back_since = now
            self._is_unsure = self._renews_early = True
        elif self._back_since is not None and now - self._back_since > UNCERTAIN:
            sessions.is_uncertain = False
        if self._renews_early:
            self._renews_early = False
            await lease.renew()
        if not self._has_keys:
            await self._take_keys()
        if now - self._looked >= COUNT_EVERY:
            self._looked = now
            self._living = len(await self.stores.nodes.living())
        if lease.held and (self._is_unsure or sessions.unkept):
            self._is_unsure = False
            try:
                await sessions.make_sure()
            except BaseException:
                self._is_unsure = True
                raise

    # -- losing the lease

    def _lapsed(self) -> None:
        """Called when others may count this node as dead."""
        self._is_unsure = True
        if self.sessions is None or (self._lease is not None and self._lease.held):
            return
        if self.stores.backend.is_gone:
            # The others cannot write to it either, so nobody can have claimed anything.
            return
        logger.warning("this node has lost its lease: it serves no session until it has made sure which are its own")
        self.sessions.suspend()

    # -- keys

    async def _take_keys(self) -> None:
        """Seal the states of calls with the key that all nodes have; made by whichever is the first."""
        if self._seal_with is None:
            self._has_keys = True
            return
        own = os.urandom(KEY_BYTES)
        values = self.stores.values
        with contextlib.suppress(Busy):
            await values.add(SEALING_KEY, own)
            key = await values.get(SEALING_KEY)
            if key is not None and len(key) == KEY_BYTES:
                self._seal_with([key])
                self._has_keys = True

    # -- results that are kept

    def _keep_result(self, uri: str, kept: KeptResult) -> None:
        """Let other nodes read a result; from any thread. What is read later, such as a file, stays here."""
        if isinstance(kept.body, bytes):
            shown = WrittenResult(kept.owner if isinstance(kept.owner, str) else None, kept.mime_type, kept.body)
            self._services.changes.soon(lambda: self._results_scope.spawn(self._put_result(uri, shown)))

    async def _put_result(self, uri: str, shown: WrittenResult) -> None:
        with contextlib.suppress(Busy):
            ttl = self._services.kept_results.ttl
            await self.stores.values.put(RESULT + uri, msgspec.msgpack.encode(shown), ttl)

    def _drop_results(self, uris: list[str]) -> None:
        """Take out of the store what made room here, so that it keeps no more than its nodes; from any thread."""
        self._services.changes.soon(lambda: self._results_scope.spawn(self._delete_results(uris)))

    async def _delete_results(self, uris: list[str]) -> None:
        with contextlib.suppress(Busy):
            for uri in uris:
                await self.stores.values.delete(RESULT + uri)

    async def _find_result(self, uri: str) -> KeptResult | None:
        """Return a result that another node keeps."""
        written = await self.stores.values.get(RESULT + uri)
        if written is None:
            return None
        shown = _read_result(written)
        return KeptResult(shown.owner, math.inf, shown.body, shown.mime_type, len(shown.body))

    # -- changes

    def _tell_others(self, change: Change) -> None:
        self.stores.bus.publish(CHANGES, msgspec.msgpack.encode(change))

    def _told(self, notice: Notice) -> None:
        if notice.sender != self.name:
            self._services.changes.here(_read_change(notice.body))

    def _missed(self) -> None:
        """Called when notices may be lost: whoever listens is told that anything may have changed.

        The store may have lost more than that.
        """
        self._services.subscriptions.tell_all()
        self._is_unsure = self._renews_early = True
