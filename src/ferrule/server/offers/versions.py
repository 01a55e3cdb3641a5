"""Versions of tools and prompts: several of one name, of which the newest is listed.

Rule: each version has an entry of its own under `name@version`, which is not listed. The newest is listed under the
name alone. A caller chooses one by that longer name, or in the `_meta` of its request.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct, field, structs

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Dispatcher, Handler
from ferrule.schema.keys import FOREIGN_VERSION_KEY, VERSION_KEY
from ferrule.server.offers.catalogue import Catalogue
from ferrule.server.offers.entry import Entry

VERSIONS_KEY = "ferrule/versions"
"""The key of `_meta` that has all versions of what is listed, the newest first."""
GOOD_VERSION = r"[A-Za-z0-9._+\-]{1,64}"
NUMBERED = r"(?s)v?(\d{1,18}(?:[.\-]\d{1,18})*)(.*)"

E = TypeVar("E", bound=Entry)


def order_of(version: str) -> tuple[bool, list[int], bool, str]:
    """Return what versions are compared by: their numbers, then a release above its `rc1`; words alone come first."""
    found = re.fullmatch(NUMBERED, version)
    if found is None:
        return (False, [], False, version)
    numbers = [int(part) for part in re.split(r"[.\-]", found[1])]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return (True, numbers, not found[2], found[2])


class Versions(Generic[E]):
    """The entries of one catalogue that have versions."""

    def __init__(
        self, catalogue: Catalogue[E], renamed: Callable[[E, str, dict[str, Any]], None], on_use: Callable[[], None]
    ) -> None:
        self._catalogue = catalogue
        self._renamed = renamed
        """Lets an entry be listed by another name, with more in its `_meta`."""
        self._on_use = on_use
        """Called when the first version is offered."""
        self._known: dict[str, dict[str, E]] = {}

    def add(self, name: str, version: str, entry: E) -> None:
        """Offer one version of a name; raise SetupError for one that is there, or cannot be one."""
        kind = self._catalogue.kind
        if not re.fullmatch(GOOD_VERSION, version):
            raise SetupError(f"the {kind} {name!r}: version={version!r} must be 1 to 64 of letters, digits and .-_+")
        same = self._known.get(name, {})
        if not same:
            self._catalogue.check(name)
        for other in same:
            if order_of(other) == order_of(version):
                raise SetupError(f"there is a version {other} of the {kind} {name!r} already")
        older = copy.copy(entry)
        older.unlisted = name
        self._renamed(older, f"{name}@{version}", {VERSION_KEY: version})
        self._catalogue.add(f"{name}@{version}", older)
        self._known.setdefault(name, {})[version] = entry
        self._show(name)
        self._on_use()

    def remove(self, key: str) -> bool:
        """Offer all versions of a name no longer, or the one of `name@version`. Return False where there are none."""
        name, _, version = key.partition("@")
        same = self._known.get(name, {})
        if key == name and same:
            for each in same:
                self._catalogue.remove(f"{name}@{each}")
            self._catalogue.remove(name)
            del self._known[name]
            return True
        if version not in same:
            return False
        if len(same) == 1:
            return self.remove(name)
        self._catalogue.remove(key)
        del same[version]
        self._show(name)
        return True

    def _show(self, name: str) -> None:
        """List the newest version under the name alone."""
        same = self._known[name]
        versions = sorted(same, key=order_of, reverse=True)
        newest = copy.copy(same[versions[0]])
        self._renamed(newest, name, {VERSION_KEY: versions[0], VERSIONS_KEY: versions})
        self._catalogue.add(name, newest, replace=True)


class ForeignVersion(Struct):
    """How clients of FastMCP ask for a version."""

    version: str | None = None


class AskedMeta(Struct):
    """Of a request's `_meta`, which version is asked for."""

    ours: str | None = field(default=None, name=VERSION_KEY)
    fastmcp: ForeignVersion | None = field(default=None, name=FOREIGN_VERSION_KEY)


class Asked(Struct):
    """Of a request, its `_meta`."""

    meta: AskedMeta | None = field(default=None, name="_meta")


@cache
def _decoder() -> msgspec.json.Decoder[Asked]:
    """Return what reads it; few ever ask for a version, so it is made for the first."""
    return msgspec.json.Decoder(Asked)


def choose_versions(dispatcher: Dispatcher, catalogues: Iterable[tuple[str, Catalogue[Any]]]) -> None:
    """Let callers of some methods choose a version in the `_meta` of their request."""
    for method, catalogue in catalogues:
        dispatcher.handlers[method] = _chosen(catalogue, dispatcher.handlers[method])


def _chosen(catalogue: Catalogue[Any], handler: Handler) -> Handler:
    async def handle(call: Call) -> Any:
        name = call.params.name
        version = _asked_version(call)
        # What has no versions is the same for whoever asks for one.
        if version is not None and "@" not in name and _is_versioned(catalogue, name):
            call.params = structs.replace(call.params, name=f"{name}@{version}")
        return await handler(call)

    return handle


def _is_versioned(catalogue: Catalogue[Any], name: str) -> bool:
    entry = catalogue.registered.get(name)
    return entry is not None and VERSION_KEY in (catalogue.listed(entry).meta or {})


def _asked_version(call: Call) -> str | None:
    try:
        meta = _decoder().decode(call.raw).meta
    except (msgspec.DecodeError, RecursionError):
        return None
    if meta is None:
        return None
    if meta.ours is None and meta.fastmcp is not None:
        return meta.fastmcp.version
    return meta.ours
