"""Registry: who is there, by kind, name and capability, and which server takes what a transport brings.

Rule 1: every look-up takes the same time at any size.
Rule 2: an entry that was registered `until` something ends is gone when it has ended; nothing polls.
Rule 3: watchers hear of every change after it was made, in order, in the thread that made it. What one raises is
logged.
Rule 4: with an entry its bindings go. An entry of a snapshot has no value until it is registered again, which is
allowed once, and keeps its bindings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import MappingProxyType, TracebackType
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError

SERVER = "server"
TRANSPORT = "transport"
"""The kinds that can be bound to each other; others may be any text."""

NO_META: Mapping[str, Any] = MappingProxyType({})

Deliver = Callable[[str, bytes], Awaitable[None] | None]
"""Takes data: called with the name of the sender, a transport or a server, and the data."""

Change = Literal["added", "changed", "gone"]
Cause = Literal["registered", "updated", "bound", "unbound", "restored", "unregistered", "ended"]


class Ending(Protocol):
    """What ends by itself: a task or a future."""

    def add_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Call back at the end."""

    def remove_done_callback(self, callback: Callable[[Any], object], /) -> object:
        """Do not call back."""


class Entry(Struct, frozen=True, eq=False, kw_only=True):
    """One thing that is there."""

    kind: str
    name: str
    value: object = None
    """The thing itself; None where only a snapshot knows it."""
    capabilities: frozenset[str] = frozenset()
    meta: Mapping[str, Any] = NO_META
    """What else others should know, as JSON could hold it."""
    deliver: Deliver | None = None
    """Takes data for it: its value where that can be called, or the method `deliver` of its value."""
    is_restored: bool = False
    """Whether it comes from a snapshot and was not registered again."""


class Event(Struct, frozen=True, kw_only=True):
    """One change of a registry."""

    change: Change
    entry: Entry
    cause: Cause


class RegistryStats(Struct, frozen=True, kw_only=True):
    """How much a registry holds."""

    entries: Mapping[str, int]
    """How many of each kind."""
    bindings: int
    watchers: int
    waiting_events: int
    """Events that watchers have not heard: more than 0 only while they are told."""


class Registration(Protocol):
    """What whoever registered something holds; also a context manager that ends with it."""

    @property
    def entry(self) -> Entry:
        """The entry as it is now."""

    def update(self, *, capabilities: Iterable[str] | None = None, meta: Mapping[str, object] | None = None) -> None:
        """Change what is said about it; None leaves that as it is."""

    def unregister(self) -> None:
        """Take it out; nothing happens where it is out already, or another has its name."""

    def __enter__(self) -> Registration: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Subscription(Protocol):
    """What a watcher holds."""

    def close(self) -> None:
        """Stop watching."""


class Registry(Protocol):
    """Who is there. A process keeps it for itself, or in a store that several processes share."""

    def register(
        self,
        kind: str,
        name: str,
        value: object,
        *,
        capabilities: Iterable[str] = (),
        meta: Mapping[str, object] | None = None,
        until: Ending | None = None,
    ) -> Registration:
        """Add an entry, which goes when `until` has ended; raise AlreadyRegistered where the name is taken."""

    def unregister(self, kind: str, name: str) -> None:
        """Take an entry out, if it is there."""

    def find(self, kind: str, name: str) -> Entry | None:
        """Return an entry; None where there is none."""

    def find_all(self, kind: str, *, capability: str | None = None) -> list[Entry]:
        """Return the entries of a kind, or those of them that have a capability, in the order they came."""

    def bind(self, transport: str, server: str) -> None:
        """Let a server take what a transport brings; raise NoRoute where one of them is not registered."""

    def unbind(self, transport: str) -> None:
        """Undo `bind`, if the transport is bound."""

    def server_for(self, transport: str) -> str | None:
        """Return the name of the server that a transport is bound to."""

    def transports_for(self, server: str) -> list[str]:
        """Return the names of the transports that are bound to a server."""

    async def route(self, transport: str, data: bytes) -> None:
        """Hand what came from a transport to its server; raise NoRoute where there is none."""

    async def respond(self, transport: str, data: bytes) -> None:
        """Hand what a server answers to the transport; raise NoRoute where there is none."""

    async def broadcast(self, server: str, data: bytes) -> int:
        """Hand data to every transport of a server; return how many took it."""

    def watch(self, callback: Callable[[Event], None]) -> Subscription:
        """Call back after every change."""

    def stats(self) -> RegistryStats:
        """Return how much there is."""

    def snapshot(self) -> bytes:
        """Return all entries, without their values, and all bindings."""

    def restore(self, snapshot: bytes) -> None:
        """Add what a snapshot holds and is not there; raise SetupError for what is no snapshot."""


class SavedEntry(Struct, frozen=True, array_like=True):
    """An entry as a snapshot holds it."""

    kind: str
    name: str
    capabilities: tuple[str, ...] = ()
    meta: dict[str, Any] = {}


class Snapshot(Struct, frozen=True, forbid_unknown_fields=True, tag_field="registry", tag=1):
    """What a registry knew; the tag is the version of this form."""

    entries: tuple[SavedEntry, ...]
    bindings: dict[str, str]


def way_into(value: object) -> Deliver | None:
    """Return what takes data for a value."""
    method = getattr(value, "deliver", None)
    if callable(method):
        return method  # type: ignore[no-any-return]
    if callable(value):
        return value
    return None


def encode_snapshot(entries: Iterable[Entry], bindings: Mapping[str, str]) -> bytes:
    """Return entries and bindings as bytes; raise SetupError for an entry whose `meta` is not JSON."""
    saved = []
    for entry in entries:
        each = SavedEntry(entry.kind, entry.name, tuple(sorted(entry.capabilities)), dict(entry.meta))
        try:
            msgspec.json.encode(each)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise SetupError(f"{entry.kind} {entry.name!r}: its meta cannot be written as JSON: {error}") from error
        saved.append(each)
    return msgspec.json.encode(Snapshot(tuple(saved), dict(bindings)))


def decode_snapshot(data: bytes) -> Snapshot:
    """Return what a snapshot holds; raise SetupError for what is none."""
    try:
        return msgspec.json.decode(data, type=Snapshot)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise SetupError(f"this is not a snapshot of a registry: {error}") from error
