"""Requests whose results are read, may come in pages, and may be kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, structs

from ferrule.budgets.collector import decode_long
from ferrule.budgets.weight import full_weight
from ferrule.client.era.contract import Params
from ferrule.client.features.cache import Cache, without_hints
from ferrule.client.features.progress import ProgressHandler
from ferrule.client.link.conversation import RequestOptions
from ferrule.client.link.keeper import Keeper
from ferrule.client.settings import ClientSettings
from ferrule.errors import EncodeError, InvalidAnswer, InvalidParams, PeerError
from ferrule.protocol.foreign import Foreign
from ferrule.schema.methods import Method
from ferrule.schema.model import CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY, VERSION_KEY
from ferrule.schema.resources import ReadResourceResult

T = TypeVar("T")

OF_ONE_HOP = frozenset({VERSION_KEY, CLIENT_INFO_KEY, CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY, "progressToken"})
"""Keys of `_meta` that speak of one connection: what is forwarded has ours in their place."""

_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_any = msgspec.json.Decoder().decode

MAX_PAGES = 10_000

PER_ITEM = 400
"""Bytes an item of a list takes, besides what its text does."""


class Requests:
    """Asks, reads the results, and keeps those that may be kept."""

    def __init__(self, keeper: Keeper, settings: ClientSettings, rows: Mapping[str, Method]) -> None:
        self._keeper = keeper
        self._settings = settings
        self._rows = rows
        self.cache = Cache()

    def how(
        self, timeout: float | None, on_progress: ProgressHandler | None = None, meta: dict[str, Any] | None = None
    ) -> RequestOptions:
        """Return the options of a request that may take so long, within what the client allows for any."""
        limit = self._settings.max_request_time
        if limit is not None:
            if timeout is None:
                timeout = limit
            else:
                timeout = min(timeout, limit)
        return RequestOptions(timeout, limit, on_progress, meta)

    def plain(self, timeout: float | None = None) -> RequestOptions:
        """Return the options of a usual request."""
        return self.how(given(timeout, self._settings.request_timeout))

    async def ask(self, method: str, params: Params, timeout: float | None = None) -> Any:
        """Ask, and read the result."""
        return self.read(method, await self._keeper.ask(method, params, self.plain(timeout)))

    async def fetch(self, method: str, params: Params, timeout: float | None) -> Any:
        """Ask for something that may be kept, unless it is kept already."""
        result, _ = await self._fetch_raw(method, params, timeout)
        return result

    async def read_resource(self, uri: str, timeout: float | None) -> ReadResourceResult:
        """Read a resource."""
        result: ReadResourceResult = await self.fetch("resources/read", {"uri": str(uri)}, timeout)
        return result

    async def _fetch_raw(self, method: str, params: Params, timeout: float | None) -> tuple[Any, Raw]:
        """Ask as `fetch` does, and return besides the text that was read."""
        conversation = self._keeper.current()
        if self._keeper.reconnection.active:
            conversation = await self._keeper.when_connected(given(timeout, self._settings.request_timeout))
        clock = conversation.live().loop.time
        keeps = self._settings.cache and conversation.era.caches
        if keeps:
            kept = self.cache.find(method, params, clock())
            if kept is not None:
                return self.read(method, kept), kept
        changes = self.cache.changes
        raw, simple = await self._keeper.ask_in_rounds(method, params, self.plain(timeout))
        result = self.read(method, raw)
        if keeps and simple and self.cache.changes == changes:
            self.cache.keep(method, params, raw, clock())
        return result, raw

    async def forward(
        self,
        method: str,
        params: Raw | bytes | None,
        timeout: float | None,
        on_progress: ProgressHandler | None = None,
        caller: object = None,
    ) -> Foreign:
        """Send params as somebody wrote them, and return the complete result as the server wrote it."""
        members = _members(method, params)
        meta = {}
        for key, value in _members(method, members.pop("_meta", None)).items():
            if key not in OF_ONE_HOP:
                meta[key] = value
        how = self.how(given(timeout, self._settings.request_timeout), on_progress, meta or None)
        # Whoever forwards a call wants its result; who asks about tasks knows them.
        how = structs.replace(how, caller=caller)
        if method == "tools/call" or method.startswith("tasks/"):
            how = structs.replace(how, tasks=method != "tools/call")
        raw = await self._keeper.ask(method, members, how)
        return Foreign(raw, self._keeper.current().version)

    async def listed(self, each: Callable[[], AsyncIterator[T]]) -> list[T]:
        """Gather all pages; a cursor that has gone stale in the cache means to start over."""
        hits = self.cache.hits
        try:
            return [item async for item in each()]
        except PeerError as error:
            if error.code != InvalidParams.code or self.cache.hits == hits:
                raise
        return [item async for item in each()]

    async def pages(
        self, method: str, member: str, timeout: float | None, asked: Mapping[str, object] | None = None
    ) -> AsyncIterator[Any]:
        """Yield the items of a list one after another, page by page."""
        cursor: str | None = None
        seen: set[str] = set()
        items = weight = 0
        for _ in range(MAX_PAGES):
            params = dict(asked or {})
            if cursor is not None:
                params["cursor"] = cursor
            try:
                page, raw = await self._fetch_raw(method, params, timeout)
            except PeerError:
                self.cache.drop_pages(method)
                raise
            found = getattr(page, member)
            items += len(found)
            weight += full_weight(bytes(raw)) + PER_ITEM * len(found)
            self._require_bounded(method, items, weight)
            for item in found:
                yield item
            cursor = page.next_cursor
            if cursor is None:
                return
            if cursor in seen:
                raise InvalidAnswer(f"{method}: the server gave the same cursor again")
            seen.add(cursor)
        raise InvalidAnswer(f"{method}: more than {MAX_PAGES} pages")

    def _require_bounded(self, method: str, items: int, weight: int) -> None:
        """Raise `InvalidAnswer` when a list has become longer than a list may be."""
        most = self._settings.max_list_items
        heaviest = self._settings.max_list_bytes
        if items > most:
            raise InvalidAnswer(f"{method}: the server lists more than {most} items; see Client(max_list_items=…)")
        if weight > heaviest:
            raise InvalidAnswer(
                f"{method}: the server's list takes more than {heaviest} bytes once it is read; "
                "see Client(max_list_bytes=…)"
            )

    def read(self, method: str, raw: Raw) -> Any:
        """Read a result; raises InvalidAnswer for one that is malformed or of an unknown kind."""
        row = self._rows[method]
        try:
            result = decode_long(row.result_decoder(), raw, len(raw))
        except (msgspec.DecodeError, RecursionError) as reason:
            if not row.cacheable:
                raise malformed(method, reason) from None
            result = _read_without_hints(row, raw)
        self.require_complete(method, result.result_type)
        return result

    def require_complete(self, method: str, kind: str | None) -> None:
        """Raise InvalidAnswer for a kind of result that nobody here has declared."""
        if not self._keeper.current().era.knows_kind(kind):
            raise InvalidAnswer(f"{method}: the server answered with an unknown kind of result: {kind!r}")


def _members(method: str, written: Raw | bytes | None) -> dict[str, Any]:
    """Return the members of a JSON object: text and arguments are read, since headers may repeat them."""
    if written is None:
        return {}
    try:
        members: Params = dict(_read_members(written))
        for name, value in members.items():
            if name == "arguments" or bytes(value).lstrip()[:1] == b'"':
                members[name] = _read_any(value)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise EncodeError(f"{method} cannot be sent: its params are not a JSON object: {reason}") from None
    return members


def _read_without_hints(row: Method, raw: Raw) -> Any:
    """Read a result again without its caching hints: hints that make no sense do not spoil it."""
    try:
        return row.result_decoder()(without_hints(raw))
    except (msgspec.DecodeError, RecursionError) as reason:
        raise malformed(row.name, reason) from None


def malformed(method: str, reason: Exception) -> InvalidAnswer:
    """Make the exception for an answer that cannot be read."""
    return InvalidAnswer(f"the server's answer to {method} is malformed: {reason}")


def given(value: float | None, otherwise: object) -> Any:
    """Return a value, or what stands for it when there is none; zero is a value."""
    if value is None:
        return otherwise
    return value
