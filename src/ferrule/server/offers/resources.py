"""The resources of a server: add, remove, list, read."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from msgspec import structs

from ferrule.errors import InvalidUri, ResourceNotFound, SetupError, UrlElicitationRequired
from ferrule.protocol.call import Call
from ferrule.schema.content import ResourceContents
from ferrule.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PlainContents,
    ReadResourceResult,
    ResourceTemplate,
)
from ferrule.server.calls.context import Context
from ferrule.server.calls.kept_results import PREFIX as KEPT
from ferrule.server.calls.kept_results import read_kept
from ferrule.server.calls.media import Media
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.binder import InvalidArguments, bind
from ferrule.server.offers.catalogue import Catalogue, off
from ferrule.server.offers.entry import ResourceLike, require_only, with_questions
from ferrule.server.offers.mount_point import through
from ferrule.server.offers.resource_entry import (
    FastRead,
    FunctionResource,
    ObjectResource,
    ResourceEntry,
    ResourceOptions,
    uri_of,
)
from ferrule.server.offers.visibility import Visibility

MAX_KEPT = 1000
MAX_KEPT_BYTES = 16 * 1024 * 1024
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")

NO_VARIABLES: Mapping[str, Any] = {}


class Resources:
    """The resources and templates of one server."""

    def __init__(self, services: Services, visibility: Visibility, *, on_change: Callable[[], None]) -> None:
        self._services = services
        self._visibility = visibility
        self._on_change = on_change
        self._reads: dict[str, tuple[ReadResourceResult, float, int]] = {}
        """Results that are kept by URI, each with the time it expires and its size."""
        self.kept_bytes = 0
        """Characters of all kept results."""
        self.catalogue: Catalogue[ResourceEntry] = Catalogue(
            "resource",
            lambda resources: ListResourcesResult(resources=resources),
            lambda entry: entry.listed,
            page_size=services.settings.page_size,
            on_change=self._changed,
            is_on=visibility.is_on,
        )
        self._get = self.catalogue.get
        self.templates: Catalogue[ResourceEntry] = Catalogue(
            "resource template",
            lambda templates: ListResourceTemplatesResult(resource_templates=templates),
            lambda entry: entry.listed,
            page_size=services.settings.page_size,
            on_change=self._changed,
            is_on=visibility.is_on,
        )

    @property
    def catalogues(self) -> tuple[Catalogue[ResourceEntry], Catalogue[ResourceEntry]]:
        """The resources, and the templates."""
        return self.catalogue, self.templates

    @property
    def offered(self) -> bool:
        """Whether there is anything to read."""
        return bool(self.catalogue.registered or self.templates.registered)

    def add(self, uri: str, fn: Callable[..., Any], options: ResourceOptions) -> ResourceEntry:
        """Offer a function as a resource, or as a template when its URI has variables."""
        _check_scheme(uri)
        binding = bind(
            with_questions(fn, inline=options.inline),
            context_type=Context,
            content_types=(ResourceContents, ReadResourceResult, Media),
            in_thread=None if options.inline else lambda: Bulkhead(self._services.threads, options.max_threads).run,
        )
        if binding.streams:
            raise SetupError(
                f"the resource {uri!r}: {binding.name}() is a generator, and only tools may be; return a list"
            )
        bulkhead = None
        if not binding.is_async and not options.inline:
            bulkhead = Bulkhead(self._services.threads, options.max_threads)
        entry = FunctionResource(self._services, uri, binding, options, bulkhead)
        _check_parameters(entry)
        if options.ttl is not None and binding.context_parameter is not None:
            raise SetupError(
                f"{binding.name}: what is kept (ttl=) is read for every caller, so it cannot take a Context"
            )
        self._offer(entry)
        return entry

    def add_object(self, given: ResourceLike, options: ResourceOptions) -> ResourceEntry:
        """Offer an object as a resource or as a template."""
        uri = uri_of(given)
        _check_scheme(uri)
        require_only(options, ("tags", "visible", "scopes", "hide_without"), f"the resource {uri}")
        entry = ObjectResource(self._services, given, options)
        if entry.template.is_template != isinstance(given.resource, ResourceTemplate):
            raise SetupError(f"the resource {uri!r}: a ResourceTemplate has variables in its URI, and a Resource none")
        self._offer(entry)
        return entry

    def _offer(self, entry: ResourceEntry) -> None:
        self._visibility.notice(entry)
        if entry.template.is_template:
            self.templates.add(entry.uri, entry)
        else:
            self.catalogue.add(entry.uri, entry)

    def adopt(self, entry: ResourceEntry, uri: str) -> ResourceEntry:
        """Make a copied resource of a mounted server one of this server's."""
        entry.move_to(uri)
        entry.handler = None
        inner = copy.copy(entry)
        inner.mount_path = ()
        inner.template = entry.own_template
        entry.handler = through(entry.mount_path, "resources/read", lambda call: self._read_inside(inner, call))
        return entry

    def _changed(self) -> None:
        """Called when the offer changes: a kept result may be of another resource now."""
        self._reads.clear()
        self.kept_bytes = 0
        self._on_change()

    async def _read_inside(self, entry: ResourceEntry, call: Call) -> ReadResourceResult:
        """Read what a mounted server's middleware surrounds; the call names it as that server does."""
        uri = call.params.uri
        variables = entry.template.match(uri)
        if variables is None:
            raise ResourceNotFound(uri)
        return await self._fresh(uri, entry, variables, call)

    def remove(self, uri: str) -> None:
        """Offer a resource or template no longer."""
        if uri in self.templates.registered:
            self.templates.remove(uri)
        else:
            self.catalogue.remove(uri)

    def read(self, call: Call, found: FoundResource | None = None) -> Awaitable[ReadResourceResult | PlainContents]:
        """Answer `resources/read`, with the resource it names or with the one that is given."""
        if found is None:
            entry = self._get(call.params.uri)
        else:
            entry = found[0]
        if entry is None or entry.fast_path is None:
            return self.read_whole(call, found)
        return self._read_fast(call, entry.fast_path)

    async def _read_fast(self, call: Call, fast_path: FastRead) -> ReadResourceResult | PlainContents:
        run = fast_path.run
        write = fast_path.write
        try:
            value = await run()
            if type(value) is str:
                return write(value)
            return await fast_path.finish(value)
        except (InvalidArguments, UrlElicitationRequired) as error:
            raise _explained(call, error) from None

    async def read_whole(self, call: Call, found: FoundResource | None = None) -> ReadResourceResult:
        """Answer `resources/read` with a result that is not encoded yet."""
        if self._services.capabilities().resources is None:
            raise off("resources")
        uri = call.params.uri
        try:
            if uri.startswith(KEPT):
                return _private(await self._read_kept(uri, call))
            if found is None:
                known = self._get(uri)
                if known is None:
                    found = self.find(uri)
                else:
                    found = known, NO_VARIABLES
            entry, variables = found
            if entry.scopes:
                entry.admit(call, self._services)
            if entry.ttl is not None:
                result = await self._kept(uri, entry.ttl, partial(self._answer, uri, entry, variables, call))
            elif entry.handler is not None:
                result = await entry.handler(call)
            else:
                result = await entry.read(uri, variables, call)
            if entry.scopes:
                return _private(result)
            return result
        except (InvalidArguments, UrlElicitationRequired) as error:
            raise _explained(call, error) from None

    async def read_within(self, uri: str, call: Callable[[], Call]) -> ReadResourceResult:
        """Read for a handler of this process, which passes no middleware; the call is asked for when it is needed."""
        if uri.startswith(KEPT):
            return await self._read_kept(uri, call())
        entry, variables = self.find(uri)
        its_call: Call | None = None
        if entry.needs_call:
            its_call = call()
        if entry.ttl is None:
            return await self._fresh(uri, entry, variables, its_call)
        return await self._kept(uri, entry.ttl, partial(self._fresh, uri, entry, variables, its_call))

    async def _read_kept(self, uri: str, call: Call) -> ReadResourceResult:
        """Read a result that was too large for its answer."""
        kept = await self._services.kept_results.look_for(self._services.links.owner(call), uri)
        result: ReadResourceResult = await self._services.threads.run(lambda: read_kept(uri, kept))
        return result

    async def _answer(
        self, uri: str, entry: ResourceEntry, variables: Mapping[str, Any], call: Call
    ) -> ReadResourceResult:
        """Read for a call, through the middleware of the server the resource comes from."""
        if entry.handler is not None:
            return await entry.handler(call)  # type: ignore[no-any-return]  # a resource's handler gives its result
        return await self._fresh(uri, entry, variables, call)

    async def _fresh(
        self, uri: str, entry: ResourceEntry, variables: Mapping[str, Any], call: Call | None
    ) -> ReadResourceResult:
        try:
            return await entry.read(uri, variables, call)
        except InvalidArguments as error:
            raise InvalidUri(uri, str(error)) from None

    async def _kept(
        self, uri: str, ttl: float, fresh: Callable[[], Awaitable[ReadResourceResult]]
    ) -> ReadResourceResult:
        """Return the kept result of a URI; a fresh one where there is none or it has expired."""
        now = asyncio.get_running_loop().time()
        kept = self._reads.get(uri)
        if kept is None or now >= kept[1]:
            result = await fresh()
            result.ttl_ms = result.ttl_ms or int(ttl * 1000)
            self._keep_read(uri, result, now, ttl)
            return copy.copy(result)
        return copy.copy(kept[0])

    def _keep_read(self, uri: str, result: ReadResourceResult, now: float, ttl: float) -> None:
        """Keep a result; the oldest are dropped while they have expired or there is no room."""
        self.forget(uri)
        size = _size_of(uri, result)
        if size > MAX_KEPT_BYTES:
            return
        while self._reads:
            oldest = next(iter(self._reads))
            has_room = len(self._reads) < MAX_KEPT and self.kept_bytes + size <= MAX_KEPT_BYTES
            if has_room and self._reads[oldest][1] > now:
                break
            self.forget(oldest)
        self._reads[uri] = (result, now + ttl, size)
        self.kept_bytes += size

    def forget(self, uri: str) -> None:
        """Drop the kept result of a URI: the resource changed, or is gone."""
        kept = self._reads.pop(uri, None)
        if kept is not None:
            self.kept_bytes -= kept[2]

    def find(self, uri: str, sees: Callable[[str, ResourceEntry], bool] | None = None) -> FoundResource:
        """Return the resource of a URI with its variables: of those that are on, or those somebody sees."""
        if sees is None:
            entry = self.catalogue.get(uri)
        else:
            entry = self.catalogue.registered.get(uri)
        if entry is not None and (sees is None or sees(self.catalogue.kind, entry)):
            return entry, {}
        if not SCHEME.match(uri):
            raise InvalidUri(uri, "it has no scheme")
        for candidate in self.templates if sees is None else self.templates.registered.values():
            variables = candidate.template.match(uri)
            if variables is not None and (sees is None or sees(self.templates.kind, candidate)):
                return candidate, variables
        raise ResourceNotFound(uri)

    def find_for(self, call: Call, uri: str) -> FoundResource:
        """Return the resource of a URI with its variables, of those a caller sees."""
        kinds = {catalogue.kind: catalogue for catalogue in self.catalogues}

        def sees(kind: str, entry: ResourceEntry) -> bool:
            return self._visibility.find(call, kinds[kind], entry.uri) is not None

        return self.find(uri, sees)


def _explained(call: Call, error: InvalidArguments | UrlElicitationRequired) -> Exception:
    """Return what a failed reading is refused with; what the caller is to visit is asked for, where it can be."""
    if isinstance(error, InvalidArguments):
        return InvalidUri(call.params.uri, str(error))
    from ferrule.server.calls.forms import ask_to_visit

    ask_to_visit(call, error)
    return error


def _private(result: ReadResourceResult) -> ReadResourceResult:
    """Return a result that no shared cache may keep: not everybody may read it (CACHE-5)."""
    if isinstance(result, ReadResourceResult) and result.cache_scope != "private":
        return structs.replace(result, cache_scope="private")
    return result


def _size_of(uri: str, result: ReadResourceResult) -> int:
    """Return the number of characters of a result and its URI."""
    size = len(uri)
    for part in result.contents:
        size += len(getattr(part, "text", None) or "")
        size += len(getattr(part, "blob", None) or "")
    return size


def _check_scheme(uri: str) -> None:
    if not SCHEME.match(uri):
        raise SetupError(f"the resource URI {uri!r} needs a scheme, such as notes://{uri}")


FoundResource = tuple[ResourceEntry, Mapping[str, Any]]
"""The resource of a URI, and the values of the variables in it."""


def _check_parameters(entry: FunctionResource) -> None:
    """Refuse a function whose parameters do not fit the variables of its template."""
    known = set(entry.template.variables)
    if entry.takes_uri:
        known.add("uri")
    for name in entry.binding.required:
        if name not in known:
            raise SetupError(f"{entry.binding.name}: no variable of {entry.uri!r} fills the parameter {name!r}")
    for name in entry.template.variables:
        if name not in entry.binding.parameters:
            raise SetupError(f"{entry.binding.name}: the variable {name!r} of {entry.uri!r} has no parameter")
