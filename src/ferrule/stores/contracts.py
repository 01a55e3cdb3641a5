"""What stores are: the contracts of everything that outlives a request, in one process or shared by many.

Rule 1: a method that is not `async` never waits; a store that lives elsewhere writes behind.
Rule 2: an `async` method has done its work when it returns, and raises StoreUnavailable where it cannot be done.
Rule 3: a store keeps its own time, which never jumps; times to live are seconds of it.
Rule 4: a record is a frozen struct. Fields are only added, with defaults, so that older and newer builds read both.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Protocol

from msgspec import Struct

from ferrule.schema.rounds import InputRequest
from ferrule.schema.tasks import ENDED, TaskError, TaskStatus


class StoredTask(Struct, frozen=True, kw_only=True):
    """One task as it is kept; times are seconds of the server's clock, whichever it is."""

    id: str
    owner: str
    """Who may see it; empty when whoever knows its id may."""
    tool: str
    status: TaskStatus = "working"
    status_message: str | None = None
    created: float
    updated: float
    ttl: float | None
    """How long it is kept from its creation on; None for as long as there is room."""
    poll_interval: float
    progress: tuple[float, float | None] | None = None
    """How far it is, and of how much."""
    input_requests: dict[str, InputRequest] = {}
    result: bytes | None = None
    """The result of the call, encoded."""
    is_error: bool = False
    """Whether the result tells of a failure of the tool."""
    error: TaskError | None = None
    node: str = ""
    """The node that runs it; empty where there is only one."""

    @property
    def ended(self) -> bool:
        """Whether it has come to its end, well or not."""
        return self.status in ENDED

    @property
    def expires(self) -> float | None:
        """When it may be forgotten."""
        if self.ttl is None:
            return None
        return self.created + self.ttl


class TaskStore(Protocol):
    """Tasks by id. What `create` has kept, `get` finds at once, in every process that shares the store.

    `now` is the time on the wall, by which a store that processes share lets tasks expire. One that lives in a process
    has better clocks for that.
    """

    async def create(self, task: StoredTask, now: float) -> None:
        """Keep a new task; raises Busy when there is no room for one more."""

    async def get(self, task_id: str, now: float) -> StoredTask | None:
        """Return a task; None when there is none or it has expired."""

    async def update(self, task: StoredTask, expected: Collection[str]) -> bool:
        """Put a task in the place of the one kept, if that is still in an expected status. Return whether it was."""

    async def page(self, owner: str, after: tuple[float, str] | None, limit: int, now: float) -> list[StoredTask]:
        """Return tasks of one owner by time of creation and id, those after a given pair, at most so many."""

    async def delete(self, task_id: str) -> None:
        """Forget a task; harmless when there is none."""

    async def expire(self, now: float) -> float | None:
        """Forget what has expired. Return when the next will, None when nothing does."""


class Store(Protocol):
    """Values by key, which may expire. Each operation is atomic, for every process that shares the store."""

    async def get(self, key: str) -> bytes | None:
        """Return a value; None when there is none or it expired."""

    async def put(self, key: str, value: bytes, ttl: float | None = None) -> None:
        """Keep a value, for `ttl` seconds where it is given; raises Busy when there is no room for one more."""

    async def add(self, key: str, value: bytes, ttl: float | None = None) -> bool:
        """Keep a value unless there is one. Return whether it was kept; raises Busy like `put`."""

    async def replace(self, key: str, old: bytes, new: bytes, ttl: float | None = None) -> bool:
        """Keep a value in the place of the one that is expected. Return whether that was there."""

    async def take(self, key: str) -> bytes | None:
        """Return a value and forget it: only one of those who ask at once gets it."""

    async def delete(self, key: str) -> None:
        """Forget a value; harmless when there is none."""


class EventLog(Protocol):
    """What was said on a stream, so that a lost reader can catch up.

    A stream numbers its events itself, from 1. Writing never waits: a log that lives elsewhere writes behind.
    The name of a stream begins with its owner (`owner_of`): a log that is full takes from whoever holds most.
    """

    def append(self, stream: str, number: int, event: bytes, now: float) -> None:
        """Keep one event; what is over a bound is forgotten, the oldest first."""

    async def after(self, stream: str, number: int) -> list[bytes] | None:
        """Return the events after a number, in order; None when some of them are forgotten."""

    def shorten(self, stream: str, unacknowledged: int, spare: int) -> None:
        """Keep the last `unacknowledged` bytes of a stream, and at most `spare` bytes of what is older."""

    def forget(self, stream: str) -> None:
        """Forget a stream."""

    def sweep(self, now: float) -> None:
        """Forget what is too old."""


def owner_of(stream: str) -> str:
    """Return whose a stream is: what stands before the first dot of its name, or all of it."""
    return stream.partition(".")[0]


class SessionRecord(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One session, as every node that shares the store can read it."""

    id: str
    revision: str
    """The protocol revision, which decides the era."""
    client_info: dict[str, Any] = {}
    capabilities: dict[str, Any] = {}
    """Those of the client."""
    principal: str = ""
    """Whom the session is bound to; empty where nobody was authenticated."""
    initialized: bool = False
    log_level: str | None = None
    subscriptions: tuple[str, ...] = ()
    """The URIs of resources."""
    introduction: bytes = b""
    """The `initialize` of the client, for a node that goes on with the session."""
    said: tuple[bytes, ...] = ()
    """What the client said since that still holds, as frames."""
    state: bytes = b""
    """The values of `ctx.state`, encoded."""
    caller: str | None = None
    """The key of the principal that opened it; None where nobody was authenticated."""
    address: str = ""
    """Where it was opened from."""
    owner: str = ""
    """The node that serves it; empty where it was left to whoever claims it."""
    epoch: int = 0
    """How often it has changed hands: the fencing token of its owner's writes."""
    created: float = 0.0
    seen: float = 0.0
    """When it was created and last used, by the store's clock."""


class SessionStore(Protocol):
    """Sessions by id, each written by one node at a time. One that was idle for too long is gone."""

    async def create(self, record: SessionRecord) -> SessionRecord | None:
        """Keep a new session and return it with its epoch and times; None where the id is taken."""

    async def get(self, session_id: str) -> SessionRecord | None:
        """Return a session; None when there is none or it has expired."""

    async def save(self, record: SessionRecord) -> bool:
        """Keep what changed. Return False, and change nothing, unless its owner and epoch are those that are kept."""

    def touch(self, record: SessionRecord) -> None:
        """Note that a session is in use; ignored unless its owner and epoch are those that are kept."""

    async def claim(self, session_id: str, node: str) -> SessionRecord | None:
        """Make a node the owner, with the next epoch, if it is the owner or the owner's lease is over.

        Return None where there is no session or its owner lives.
        """

    async def release(self, record: SessionRecord) -> bool:
        """Leave a session to whoever claims it. Return False unless its owner and epoch are those that are kept."""

    async def delete(self, session_id: str) -> None:
        """Forget a session; harmless when there is none."""

    async def expire(self) -> None:
        """Forget what has expired, where the store does not do so by itself."""


class Nodes(Protocol):
    """Which processes live: each has a lease that it must renew."""

    async def renew(self, node: str, about: bytes, ttl: float) -> bool:
        """Take or extend a lease, and keep what the node says about itself. Return whether it still had one."""

    async def release(self, node: str) -> None:
        """End a lease."""

    async def find(self, node: str) -> bytes | None:
        """Return what a living node says about itself; None when its lease is over."""

    async def living(self) -> dict[str, bytes]:
        """Return all living nodes and what they say about themselves."""


class DirectoryEntry(Struct, frozen=True):
    """What a node has to offer to others."""

    node: str
    record: bytes


class Directory(Protocol):
    """What nodes offer, by kind and name; an entry is there as long as its node lives."""

    async def put(self, kind: str, name: str, entry: DirectoryEntry) -> bool:
        """Keep an entry. Return False where a living node other than its own has the name."""

    async def drop(self, kind: str, name: str, node: str) -> None:
        """Take out the entry of a node; harmless when the name is free or another's."""

    async def entries(self, kind: str) -> dict[str, DirectoryEntry]:
        """Return the entries of a kind whose nodes live."""


class Notice(Struct, frozen=True):
    """Something all nodes that subscribed should know."""

    topic: str
    body: bytes
    sender: str


class Subscription(Protocol):
    """What a subscriber holds."""

    def close(self) -> None:
        """End the subscription."""


class Bus(Protocol):
    """Notices between nodes. They arrive in the order one node sent them; what may be lost is told.

    One may be heard twice where the connection to a store was lost, so a notice says what changed and not by how much.
    """

    @property
    def node(self) -> str:
        """The name of this end of the bus."""

    def publish(self, topic: str, body: bytes) -> None:
        """Notify every subscriber of a topic, in this process too."""

    def send(self, node: str, topic: str, body: bytes) -> None:
        """Notify the subscribers of a topic at one node."""

    async def deliver(self, node: str, topic: str, body: bytes) -> bool:
        """Notify the subscribers of a topic at one node now, and once. Return False where there is no such node."""

    def subscribe(
        self, topic: str, heard: Callable[[Notice], None], missed: Callable[[], None] | None = None
    ) -> Subscription:
        """Call back with each notice, and with `missed` where some may be lost and state should be read again."""


class Limits(Protocol):
    """Token buckets that nodes share. A node leases some tokens at a time and decides by itself with those."""

    async def lease(self, name: str, rate: float, burst: float, wanted: float) -> float:
        """Take up to so many tokens out of a bucket. Return how many there were."""


class Locks(Protocol):
    """Locks that end by themselves. The token of a holder is larger than that of every holder before it."""

    async def acquire(self, name: str, ttl: float) -> int | None:
        """Take a lock. Return its token, None where another has it."""

    async def renew(self, name: str, token: int, ttl: float) -> bool:
        """Hold a lock for longer. Return False where it is not held with this token."""

    async def release(self, name: str, token: int) -> bool:
        """Release a lock. Return False where it is not held with this token."""


class Seen(Protocol):
    """What may be used once, such as the `jti` of a DPoP proof (RFC 9449 §11.1)."""

    async def add(self, key: str, ttl: float) -> bool:
        """Note a key. Return False where it was seen within its time; raise Busy where no more can be noted."""
