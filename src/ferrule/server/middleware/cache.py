"""`Caching`: what a tool that only reads has said, said again without asking it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from ferrule.errors import Refusal, SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.runtime.sessionless import SessionlessLink
from ferrule.schema.content import ResourceLink
from ferrule.schema.resources import ReadResourceResult
from ferrule.schema.tools import CallToolResult
from ferrule.server.calls.kept_results import PREFIX
from ferrule.server.functions.types.extra_types import encode_hook
from ferrule.server.middleware.caller_key import caller
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.offers.offers import Offers
from ferrule.settings.option import NonNegativeFloat, PositiveInt, require

_canonical = msgspec.json.Encoder(order="deterministic").encode
_read = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder(decimal_format="number", enc_hook=encode_hook).encode
_readers: dict[type, Callable[[bytes], Any]] = {
    kind: msgspec.json.Decoder(kind).decode for kind in (CallToolResult, ReadResourceResult)
}


class Caching(Middleware):
    """Keeps results for `ttl` seconds, for each tool, arguments and caller.

    Without `tools`, it keeps what tools with `readOnlyHint` give. A result is given only to the principal it was made
    for, without one only within its session; callers that have neither get everything fresh. `shared=True` gives it to
    everybody who sees the tool. Errors, results that needed an answer of the user's, and links to what was too large
    are never kept.
    """

    def __init__(
        self,
        ttl: float = 60.0,
        *,
        tools: Collection[str] | None = None,
        resources: bool = False,
        shared: bool = False,
        max_entries: int = 1000,
        max_bytes: int = 64 * 1024 * 1024,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if isinstance(tools, str):
            raise SetupError(f"Caching: tools must be a set of names, not the text {tools!r}")
        require("Caching: ttl", ttl, NonNegativeFloat)
        require("Caching: max_entries", max_entries, PositiveInt)
        require("Caching: max_bytes", max_bytes, PositiveInt)
        self._ttl = ttl
        if tools is None:
            self._tools = None
        else:
            self._tools = frozenset(tools)
        self._resources = resources
        self._shared = shared
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._clock = clock
        self._kept: dict[Any, tuple[type, bytes, float]] = {}
        self._offers: Offers | None = None
        self.size = 0
        """Bytes of all results that are kept, and of the names and URIs they are kept under."""
        self.hits = 0
        self.misses = 0

    def joined(self, server: Any) -> None:
        """Called when the cache is added to a server; one cache is for one server."""
        if self._offers is not None and self._offers is not server.offers:
            raise SetupError("Caching: this one belongs to another server already; make one for each")
        self._offers = server.offers

    @property
    def entries(self) -> int:
        """How many results are kept."""
        return len(self._kept)

    def clear(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self.size = 0

    async def on_call_tool(self, call: Call, proceed: Handler) -> Any:
        """Return what was said before, or keep what is said now."""
        if not self._keeps(call):
            return await proceed(call)
        return await self._through(call, proceed, ("tool", call.params.name, _arguments(call)))

    async def on_read_resource(self, call: Call, proceed: Handler) -> Any:
        """Do the same for resources, if they are kept at all."""
        if not self._resources or not self._is_readable(call):
            return await proceed(call)
        return await self._through(call, proceed, ("resource", call.params.uri, b""))

    def _keeps(self, call: Call) -> bool:
        """Return whether the results of a tool are kept; of one that the caller does not see, nothing is told."""
        name = call.params.name
        offers = self._offers
        if offers is None:
            return name in (self._tools or ())
        entry = offers.visibility.find(call, offers.tools.catalogue, name)
        if entry is None:
            return False
        return bool(entry.tool.hints.read_only if self._tools is None else name in self._tools)

    def _is_readable(self, call: Call) -> bool:
        """Return whether the caller sees a resource that others may see too."""
        uri = call.params.uri
        offers = self._offers
        if offers is None or uri.startswith(PREFIX):
            return False
        try:
            offers.resources.find_for(call, uri)
        except Refusal:
            return False
        return True

    async def _through(self, call: Call, proceed: Handler, what: tuple[str, str, bytes | None]) -> Any:
        whose = self._whose(call)
        if whose is None or what[-1] is None or call.retry:
            return await proceed(call)
        key = (what, whose)
        kept = self._kept.get(key)
        if kept is not None and self._clock() < kept[2]:
            self.hits += 1
            # Read anew for each caller: layers around this one may change what they are given.
            return _readers[kept[0]](kept[1])
        self.misses += 1
        result = await proceed(call)
        if type(result) in _readers and _may_be_kept(result) and call.answers is None:
            self._keep(key, result)
        return result

    def _keep(self, key: Any, result: Any) -> None:
        try:
            written = _write(result)
        except Exception:  # what cannot be written is refused where it is sent
            return
        self._forget(key)
        size = len(written) + len(key[0][1])
        if size > self._max_bytes:
            return
        now = self._clock()
        while self._kept:
            oldest = next(iter(self._kept))
            has_room = len(self._kept) < self._max_entries and self.size + size <= self._max_bytes
            if has_room and self._kept[oldest][2] > now:
                break
            self._forget(oldest)
        self._kept[key] = (type(result), written, now + self._ttl)
        self.size += size

    def _forget(self, key: Any) -> None:
        kept = self._kept.pop(key, None)
        if kept is not None:
            self.size -= len(kept[1]) + len(key[0][1])

    def _whose(self, call: Call) -> tuple[str, Any] | None:
        """Return for whom a result may be kept; None if we cannot tell callers apart."""
        if self._shared:
            return "everybody", None
        if call.origin.principal is None and isinstance(call.link, SessionlessLink):
            return None
        return caller(call)


def _may_be_kept(result: CallToolResult | ReadResourceResult) -> bool:
    """Return whether a result may be kept: an error may not, nor a link that only this caller can read, for a while."""
    if isinstance(result, ReadResourceResult):
        return True
    for block in result.content:
        if isinstance(block, ResourceLink) and block.uri.startswith(PREFIX):
            return False
    return not result.is_error


def _arguments(call: Call) -> bytes | None:
    """Return what stands for arguments, in whatever order they came and however long; None for what is no JSON."""
    try:
        return hashlib.sha256(_canonical(_read(call.params.arguments))).digest()
    except (ValueError, RecursionError):
        return None
