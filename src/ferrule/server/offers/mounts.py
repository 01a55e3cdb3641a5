"""Mounting: what one server offers, offered by another under a prefix.

Rule: what is mounted is copied into the catalogues of the server that mounts, where it is found like anything else; a
change of either server changes the copies, never a call.
"""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec import structs

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler, composed
from ferrule.schema.completion import CompleteParams, PromptReference
from ferrule.schema.resources import ReadResourceParams, ReadResourceResult
from ferrule.schema.tools import Tool
from ferrule.server.calls.context import Context
from ferrule.server.offers.catalogue import Catalogue
from ferrule.server.offers.entry import Entry

if TYPE_CHECKING:
    from ferrule.server.server import Server

PREFIX = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.\-]*")
"""Not dots alone: in a URI they are steps, which somebody on the way may take."""
URI = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*:(?://)?)(.*)", re.DOTALL)


class MountedContext(Context[Any]):
    """The context of a handler whose server is mounted in another: `server` is its own, the client is the other's."""

    __slots__ = ("_outer",)

    def __init__(self, host: Server, call: Call, server: Server) -> None:
        super().__init__(call, server)
        self._outer = host

    @property
    def _host(self) -> Server:
        return self._outer


class Mount:
    """One server inside another."""

    def __init__(self, host: Server, child: Server, prefix: str) -> None:
        if not PREFIX.fullmatch(prefix):
            raise SetupError(f"the prefix {prefix!r} is part of names and URIs: letters, digits, '_', '-' and '.' only")
        if host is child or _holds(child, host):
            raise SetupError(
                f"the server {child.name!r} cannot be mounted in {host.name!r}: it is, or holds, that server"
            )
        self.host = host
        self.child = child
        self.prefix = prefix
        self._branches = [
            Branch(self, child.tools.catalogue, host.tools.catalogue, self.named, host.tools.adopt),
            Branch(self, child.prompts.catalogue, host.prompts.catalogue, self.named, host.prompts.adopt),
            Branch(self, child.resources.catalogue, host.resources.catalogue, self.placed, host.resources.adopt),
            Branch(self, child.resources.templates, host.resources.templates, self.placed, host.resources.adopt),
        ]

    # -- names

    def named(self, name: str) -> str:
        """Return the name a tool or prompt of the child has in the host."""
        return f"{self.prefix}_{name}" if self.prefix else name

    def placed(self, uri: str) -> str:
        """Return the URI a resource of the child has in the host."""
        found = URI.match(uri)
        if found and self.prefix:
            return f"{found[1]}{self.prefix}/{found[2]}"
        return uri

    def own_uri(self, uri: str) -> str:
        """Return the URI a resource of the host has in the child."""
        found = URI.match(uri)
        if not found or not self.prefix:
            return uri
        return found[1] + found[2].removeprefix(f"{self.prefix}/")

    def shown(self, tool: Tool, name: str) -> Tool:
        """Return a tool of the child as the host lists it; a page it names is where the host has it."""
        ui = (tool.meta or {}).get("ui")
        if not isinstance(ui, dict) or "resourceUri" not in ui:
            return structs.replace(tool, name=name)
        placed = {**ui, "resourceUri": self.placed(ui["resourceUri"])}
        return structs.replace(tool, name=name, meta={**(tool.meta or {}), "ui": placed})

    # -- life

    def begin(self, *, live: bool) -> None:
        """Take over all the child offers, and follow its changes if it is mounted for good."""
        for branch in self._branches:
            branch.check_all()
        try:
            for branch in self._branches:
                branch.take_all()
        except BaseException:
            for branch in self._branches:
                branch.leave()
            raise
        self.child.mounted_in.append(self)
        if live:
            for branch in self._branches:
                branch.follow()

    def end(self) -> None:
        """Offer nothing of the child any more."""
        self.child.mounted_in.remove(self)
        for branch in self._branches:
            branch.leave()

    def recompose(self) -> None:
        """Take over again what depends on the child's middleware."""
        for branch in self._branches:
            branch.retake()

    # -- calls

    def adopted(self, entry: Any, key: str) -> Any:
        """Copy an entry of the child for the host."""
        taken = copy.copy(entry)
        taken.way = ((self, key), *entry.way)
        if entry.context is None:
            taken.context = None
        else:
            taken.context = functools.partial(MountedContext, self.host)
        return taken

    def speaking(self, handler: Handler, key: str) -> Handler:
        """Let a handler see calls as the child names them."""

        async def handle(call: Call) -> Any:
            said = call.params
            call.params = self._own_words(said, key)
            try:
                result = await handler(call)
            finally:
                call.params = said
            if isinstance(result, ReadResourceResult):
                return self.placed_in(result)
            return result

        return handle

    def _own_words(self, params: Any, key: str) -> Any:
        """Write params as the child would have got them."""
        if isinstance(params, CompleteParams):
            if isinstance(params.ref, PromptReference):
                named = {"name": key}
            else:
                named = {"uri": key}
            return structs.replace(params, ref=structs.replace(params.ref, **named))
        if isinstance(params, ReadResourceParams):
            return structs.replace(params, uri=self.own_uri(params.uri))
        return structs.replace(params, name=key)

    def placed_in(self, result: ReadResourceResult) -> ReadResourceResult:
        """Write the URIs of what was read as the host does; the child may keep its own copy."""
        placed = copy.copy(result)
        placed.contents = [structs.replace(part, uri=self.placed(part.uri)) for part in result.contents]
        return placed


class Branch:
    """One catalogue of a mounted server, followed into the same catalogue of its host."""

    def __init__(
        self,
        mount: Mount,
        source: Catalogue[Any],
        target: Catalogue[Any],
        rename: Callable[[str], str],
        adopt: Callable[[Any, str], Any],
    ) -> None:
        self._mount = mount
        self._source = source
        self._target = target
        self._rename = rename
        self._adopt = adopt
        self._taken: dict[str, str] = {}

    def check_all(self) -> None:
        """Raise SetupError if anything has a name the host has already."""
        for key in self._source.registered:
            self.check(key)

    def check(self, key: str) -> None:
        """Raise SetupError if one of this key has a name the host has already."""
        try:
            self._target.check(self._rename(key))
        except SetupError as reason:
            mount = self._mount
            raise SetupError(
                f"{self._source.kind} {key!r} of the server {mount.child.name!r} cannot be mounted in"
                f" {mount.host.name!r} with the prefix {mount.prefix!r}: {reason}"
            ) from None

    def take_all(self) -> None:
        """Take over every entry."""
        for key, entry in self._source.registered.items():
            self.added(key, entry)

    def added(self, key: str, entry: Any) -> None:
        """Take over one entry."""
        renamed = self._rename(key)
        self._target.add(renamed, self._adopt(self._mount.adopted(entry, key), renamed))
        self._taken[key] = renamed

    def removed(self, key: str) -> None:
        """Let go of one entry."""
        self._target.remove(self._taken.pop(key))

    def switched(self) -> None:
        """Follow what was switched on or off."""
        self._target.switch()

    def exchanged(self, key: str, entry: Any) -> None:
        """Put a new copy in the place of the old one."""
        renamed = self._taken[key]
        old = self._target.registered[renamed]
        new = self._adopt(self._mount.adopted(entry, key), renamed)
        self._target.exchange(renamed, new)
        if self._source.kind == "tool":
            self._mount.host.tools.remake(old, new)

    def retake(self) -> None:
        """Put new copies in the place of the old ones, in the same order."""
        for key in list(self._taken):
            if key in self._source.registered:
                self.exchanged(key, self._source.registered[key])

    def follow(self) -> None:
        """Learn of changes."""
        self._source.followers.append(self)

    def leave(self) -> None:
        """Learn of no more changes and let go of every entry."""
        if self in self._source.followers:
            self._source.followers.remove(self)
        for key in list(self._taken):
            self.removed(key)


def through(entry: Entry, method: str, run: Handler) -> Handler | None:
    """Surround the running of an entry with the middleware of the servers it is from; None if they have none."""
    around = [mount.child.layers.around(method) for mount, _ in entry.way]
    if not any(around):
        return None
    handler = run
    for (mount, key), layers in zip(reversed(entry.way), reversed(around), strict=True):
        handler = mount.speaking(composed(handler, layers), key)
    return handler


def _holds(outer: Server, inner: Server) -> bool:
    return any(mount.child is inner or _holds(mount.child, inner) for mount in outer.mounts)
