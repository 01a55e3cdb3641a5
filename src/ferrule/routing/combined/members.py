"""The servers of a combined client: their lifetimes, and which of them a name or a URI belongs to.

Rule: a server that is away does not affect the others. One that was lost is connected again by its own client, as its
`reconnect` says; one that could not be reached at the start is tried again here.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from ferrule.client.client import Client
from ferrule.client.link.keeper import Phases
from ferrule.client.link.reconnect import is_final
from ferrule.client.settings import ANSWERS, read_settings
from ferrule.client.targets import named_targets
from ferrule.errors import CallFailed, FerruleError, NotConnected, PeerError, SetupError
from ferrule.protocol.session import Phase
from ferrule.routing.broadcast import Broadcast
from ferrule.routing.combined.member import Member
from ferrule.routing.combined.source import answering
from ferrule.schema.prefix import Prefix
from ferrule.settings.option import alike
from ferrule.supervision.backoff import Backoff
from ferrule.supervision.scope import Scope

logger = logging.getLogger("ferrule.routing")

T = TypeVar("T")

CONNECT_TIMEOUT = 30.0
"""Seconds to connect to one server: it may be a program that is downloaded first."""
RECONNECT_BACKOFF = Backoff(1.0, 2.0, 60.0, jitter=0.5)
"""The delays after which a server that could not be reached at the start is tried again."""
SECRETS = ("headers", "auth")
"""Options with credentials: what is sent to one server must not be sent to all."""
UNFIT = re.compile(r"[^A-Za-z0-9_.\-]")
"""Characters that a prefix of names and URIs cannot have."""


class Members:
    """The servers of a combined client, by name."""

    def __init__(self, target: object, answers: Mapping[str, Any], options: Mapping[str, Any]) -> None:
        targets = named_targets(target)
        _refuse_secrets(options)
        self.settings = read_settings(dict(options))  # type: ignore[arg-type]  # checked there
        self.phases = Phases()
        self.running = False
        self._closed = False
        self._scope: Scope | None = None
        self.servers: dict[str, Member] = {}
        prefixes = _prefixes(targets)
        for name, each in targets.items():
            client = _client_of(name, each, answers, options)
            client.on_phase_change(self._phase_changed)
            self.servers[name] = Member(name, Prefix(prefixes[name]), client)
        self._longest_first = sorted(self.servers.values(), key=_prefix_length, reverse=True)
        self.broadcast = Broadcast(self._clients)

    @property
    def connected(self) -> list[Member]:
        """The servers that can be used now."""
        return [member for member in self.servers.values() if member.connected]

    def _clients(self) -> list[Client]:
        """Return the clients of the servers that can be used now."""
        return [member.client for member in self.connected]

    # -- lifetime

    async def start(self, timeout: float | None) -> None:
        """Connect to all servers at the same time; those that cannot be reached are tried again later."""
        self.running = True
        self._closed = False
        self._scope = Scope(asyncio.get_running_loop())
        limit = timeout or self.settings.init_timeout or CONNECT_TIMEOUT
        members = list(self.servers.values())
        errors = await asyncio.gather(*[self._try(member, limit) for member in members])
        for member, error in zip(members, errors, strict=True):
            if error is not None:
                logger.info("the server %s cannot be used: %s", member.name, error)
                self._try_later(member, error)

    async def _try(self, member: Member, timeout: float) -> Exception | None:
        """Connect to a server. Return None, or why it failed."""
        try:
            await member.connect(timeout)
        except (FerruleError, OSError) as error:
            return error
        return None

    def _try_later(self, member: Member, error: Exception) -> None:
        if self._scope is not None and self.settings.reconnect is not False and not is_final(error):
            self._scope.spawn(self._keep_connecting(member))

    async def _keep_connecting(self, member: Member) -> None:
        """Connect to a server that could not be reached, however long it takes; a final error ends it."""
        attempt = 0
        while not member.connected:
            attempt += 1
            await asyncio.sleep(RECONNECT_BACKOFF.delay(attempt, random.random))
            error = await self._try(member, CONNECT_TIMEOUT)
            if error is None:
                await self.broadcast.restore(member.client)
            elif is_final(error):
                logger.warning("the server %s is not tried again: %s", member.name, error)
                return

    async def reconnect(self, name: str) -> None:
        """Close the session with one server and start a new one; the others are not touched."""
        if not self.running:
            raise NotConnected("the client is not connected: use `async with Client(...)` or `await client.connect()`")
        member = self.named(name)
        await member.reconnect(CONNECT_TIMEOUT)
        await self.broadcast.restore(member.client)

    async def close(self, drain: float) -> None:
        """Close every client; harmless when called again."""
        self.running = False
        self._closed = True
        self.broadcast.end()
        scope = self._scope
        self._scope = None
        if scope is not None:
            await scope.close()
        await asyncio.gather(*[member.client.close(drain) for member in self.servers.values()])
        self.phases.tell(self.phase)

    @property
    def phase(self) -> Phase:
        """How far the conversations are: initialized while any server is connected."""
        if self._closed:
            return Phase.CLOSED
        if self.connected:
            return Phase.INITIALIZED
        if self.phases.last in (Phase.INITIALIZED, Phase.ERROR):
            return Phase.ERROR
        return Phase.PRE_INITIALIZATION

    def _phase_changed(self, before: Phase, after: Phase) -> None:
        if self.running:
            self.phases.tell(self.phase)

    # -- finding

    def named(self, name: str) -> Member:
        """Return a server by its name; raise SetupError where there is none."""
        member = self.servers.get(name)
        if member is None:
            message = f"there is no server {name!r}"
            meant = alike(name, self.servers)
            if meant:
                raise SetupError(f"{message}; did you mean {meant!r}?")
            raise SetupError(f"{message}: there are {', '.join(self.servers)}")
        return member

    def of_uri(self, uri: str) -> tuple[Member, str]:
        """Return the server a URI belongs to, and the URI it has there; raise CallFailed where there is none."""
        fitting = self._fitting(lambda prefix: prefix.own_uri(uri))
        if not fitting:
            first = next(iter(self.servers.values()))
            example = first.prefix.placed("scheme://path")
            raise CallFailed(f"no server has the resource {uri!r}: its URI names the server, as in {example}")
        return self._usable(fitting[0])

    async def of_name(
        self, kind: str, name: str, listed: Callable[[Client], Awaitable[Iterable[str]]]
    ) -> tuple[Member, str]:
        """Return the server a tool or prompt belongs to, and its name there; where several fit, their lists decide."""
        fitting = self._fitting(lambda prefix: prefix.own_name(name))
        if not fitting:
            starts = ", ".join(member.prefix.named("") for member in self.servers.values())
            raise CallFailed(f"no server has the {kind} {name!r}: its name begins with one of {starts}")
        if len(fitting) > 1:
            for member, own in fitting:
                if member.connected and own in await listed(member.client):
                    return member, own
        return self._usable(fitting[0])

    def _fitting(self, own: Callable[[Prefix], str | None]) -> list[tuple[Member, str]]:
        """Return the servers whose prefix a name or a URI has, with what it is there; the longest prefix first."""
        found: list[tuple[Member, str]] = []
        for member in self._longest_first:
            part = own(member.prefix)
            if part is not None:
                found.append((member, part))
        return found

    def _usable(self, found: tuple[Member, str]) -> tuple[Member, str]:
        """Raise NotConnected for a server that was never reached; the client of one that was lost waits for it."""
        member = found[0]
        if not member.connected and not member.client.reconnecting:
            raise NotConnected(f"the server {member.name} cannot be used now: {member.error or 'it is not connected'}")
        return found

    # -- asking all

    async def gather(self, what: str, ask: Callable[[Member], Awaitable[T]]) -> list[tuple[Member, T]]:
        """Ask every connected server; one that fails is logged and left out, unless all do."""
        asked = self.connected
        if not asked:
            raise NotConnected(f"none of the servers can be used now: {self.complaints}")
        ends = await asyncio.gather(*[ask(member) for member in asked], return_exceptions=True)
        found: list[tuple[Member, T]] = []
        failed: list[FerruleError] = []
        for member, end in zip(asked, ends, strict=True):
            if isinstance(end, CallFailed | PeerError):
                logger.warning("%s of the server %s failed, and is left out: %s", what, member.name, end)
                failed.append(end)
            elif isinstance(end, BaseException):
                raise end
            else:
                found.append((member, end))
        if not found:
            raise failed[0]
        return found

    @property
    def complaints(self) -> str:
        """Why servers are not connected, as one line."""
        parts = []
        for member in self.servers.values():
            if not member.connected:
                parts.append(f"{member.name}: {member.error or 'not connected'}")
        return "; ".join(parts)


def _prefix_length(member: Member) -> int:
    return len(member.prefix.text)


def _refuse_secrets(options: Mapping[str, Any]) -> None:
    for name in ("http", "websocket"):
        inner = options.get(name)
        if isinstance(inner, Mapping):
            _refuse_secrets(inner)
    for name in SECRETS:
        if options.get(name) is not None:
            raise SetupError(
                f"{name} would be shown to every server: give it to the one it is for, "
                f'as in Client({{"a": Client(url, {name}=…), "b": target}})'
            )


def _client_of(name: str, target: object, answers: Mapping[str, Any], options: Mapping[str, Any]) -> Client:
    """Return the client of one server; a target that is a client already keeps its own options and handlers."""
    if isinstance(target, Client):
        return target
    told = {"upstream": name, **options}
    for kind in ANSWERS:
        handler = answers.get(kind)
        if callable(handler):
            told[kind] = answering(name, handler)
        else:
            told[kind] = handler
    return Client(target, **told)


def _prefixes(names: Iterable[str]) -> dict[str, str]:
    """Return the prefix of each server; raise SetupError where two would be the same."""
    found: dict[str, str] = {}
    taken: dict[str, str] = {}
    for name in names:
        prefix = UNFIT.sub("_", name)
        if not prefix.strip("."):
            raise SetupError(f"the name {name!r} of a server cannot begin names of tools: use letters and digits")
        if prefix in taken:
            raise SetupError(f"the servers {taken[prefix]!r} and {name!r} would both be {prefix}_…: rename one of them")
        taken[prefix] = name
        found[name] = prefix
    return found


async def tool_names(client: Client) -> list[str]:
    """Return the names of the tools of one server."""
    return [tool.name for tool in await client.list_tools()]


async def prompt_names(client: Client) -> list[str]:
    """Return the names of the prompts of one server."""
    return [prompt.name for prompt in await client.list_prompts()]
