"""The resources of a server: add, remove, list, read."""

from __future__ import annotations

import asyncio
import copy
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from ferrule.errors import InvalidUri, ResourceNotFound, SetupError, UrlElicitationRequired
from ferrule.protocol.call import Call
from ferrule.schema.content import ResourceContents
from ferrule.schema.model import Annotations, Icon
from ferrule.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from ferrule.server.asking import ask_to_visit
from ferrule.server.binding import Binding, InvalidArguments, bind
from ferrule.server.catalogue import Catalogue, off
from ferrule.server.context import Context
from ferrule.server.kept_results import PREFIX as KEPT
from ferrule.server.kept_results import read_kept
from ferrule.server.media import Media
from ferrule.server.questions import with_questions
from ferrule.server.results import contents_of
from ferrule.server.threads import Bulkhead, Threads
from ferrule.server.uri_template import UriTemplate

if TYPE_CHECKING:
    from ferrule.server.server import Server

MAX_KEPT = 1000
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")

_write = msgspec.json.Encoder().encode


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a resource besides its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    mime_type: str | None = None
    size: int | None = None
    annotations: Annotations | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = None
    inline: bool = False
    max_threads: int = 32
    ttl: float | None = None
    contents_meta: Mapping[str, Any] | None = None
    """The metadata of what is read, where it gives none of its own."""


class RegisteredResource:
    """A resource or a template, ready to be read."""

    __slots__ = (
        "_threads",
        "binding",
        "bulkhead",
        "contents_meta",
        "listed",
        "mime_type",
        "takes_uri",
        "template",
        "ttl",
        "uri",
    )

    def __init__(
        self, uri: str, binding: Binding, options: ResourceOptions, bulkhead: Bulkhead | None, threads: Threads
    ) -> None:
        self.uri = uri
        self._threads = threads
        self.template = UriTemplate(uri)
        self.binding = binding
        self.bulkhead = bulkhead
        self.mime_type = options.mime_type
        self.ttl = options.ttl
        self.contents_meta = options.contents_meta
        self.takes_uri = "uri" in binding.parameters and "uri" not in self.template.variables
        self.listed = _listed(self.template, uri, binding, options)

    async def read(self, uri: str, variables: Mapping[str, Any], context: Context | None) -> ReadResourceResult:
        """Run the handler and make contents of what it gives."""
        values = {**variables, "uri": uri} if self.takes_uri else variables
        raw = _write(values)
        if self.bulkhead is not None:
            value = await self.bulkhead.run(lambda: self.binding.invoke(raw, context))
        else:
            value = self.binding.invoke(raw, context)
            if self.binding.is_async:
                value = await value
        if isinstance(value, Media):
            media = value
            value = await self._threads.run(lambda: media.contents(uri, self.mime_type))
        result = contents_of(value, uri, self.mime_type)
        if self.contents_meta is not None:
            meta = dict(self.contents_meta)
            result.contents = [structs.replace(part, meta={**meta, **(part.meta or {})}) for part in result.contents]
        return result


class Resources:
    """The resources and templates of one server."""

    def __init__(self, server: Server, *, page_size: int, on_change: Callable[[], None]) -> None:
        self._server = server
        self._reads: dict[str, tuple[ReadResourceResult, float]] = {}
        self.catalogue: Catalogue[RegisteredResource] = Catalogue(
            "resource",
            lambda resources: ListResourcesResult(resources=resources),
            lambda entry: entry.listed,
            page_size=page_size,
            on_change=on_change,
        )
        self.templates: Catalogue[RegisteredResource] = Catalogue(
            "resource template",
            lambda templates: ListResourceTemplatesResult(resource_templates=templates),
            lambda entry: entry.listed,
            page_size=page_size,
            on_change=on_change,
        )

    @property
    def offered(self) -> bool:
        """Whether there is anything to read."""
        return bool(len(self.catalogue) or len(self.templates))

    def add(self, uri: str, fn: Callable[..., Any], options: ResourceOptions) -> RegisteredResource:
        """Offer a function as a resource, or as a template when its URI has variables."""
        if not SCHEME.match(uri):
            raise SetupError(f"the resource URI {uri!r} needs a scheme, such as notes://{uri}")
        content_types = (ResourceContents, ReadResourceResult, Media)
        binding = bind(with_questions(fn), context_type=Context, content_types=content_types)
        if binding.streams:
            raise SetupError(
                f"the resource {uri!r}: {binding.name}() is a generator, and only tools may be; return a list"
            )
        bulkhead = None
        if not binding.is_async and not options.inline:
            bulkhead = Bulkhead(self._server.threads, options.max_threads)
        entry = RegisteredResource(uri, binding, options, bulkhead, self._server.threads)
        _check_parameters(entry)
        if options.ttl is not None and binding.context_parameter is not None:
            raise SetupError(
                f"{binding.name}: what is kept (ttl=) is read for every caller, so it cannot take a Context"
            )
        (self.templates if entry.template.is_template else self.catalogue).add(uri, entry)
        return entry

    def remove(self, uri: str) -> None:
        """Offer a resource or template no longer."""
        (self.templates if uri in self.templates else self.catalogue).remove(uri)
        self._reads.clear()

    async def read(self, call: Call) -> ReadResourceResult:
        """Answer `resources/read`."""
        if self._server.capabilities.resources is None:
            raise off("resources")
        try:
            return await self.read_uri(call.params.uri, lambda: Context(call, self._server))
        except UrlElicitationRequired as refusal:
            ask_to_visit(call, refusal)
            raise

    async def read_uri(self, uri: str, context: Callable[[], Context | None]) -> ReadResourceResult:
        """Read by URI: an exact resource first, then the templates in order of registration."""
        if uri.startswith(KEPT):
            return await self._read_kept(uri, context())
        entry, variables = self.find(uri)
        if entry.ttl is not None:
            return await self._kept(uri, entry, variables)
        wanted = context() if entry.binding.context_parameter is not None else None
        return await self._fresh(uri, entry, variables, wanted)

    async def _read_kept(self, uri: str, context: Context | None) -> ReadResourceResult:
        """Read a result that was too large for its answer."""
        if context is None:
            raise ResourceNotFound(uri)
        kept = self._server.kept_results.find(self._server.links.owner(context.call), uri)
        result: ReadResourceResult = await self._server.threads.run(lambda: read_kept(uri, kept))
        return result

    async def _fresh(
        self, uri: str, entry: RegisteredResource, variables: Mapping[str, Any], context: Context | None
    ) -> ReadResourceResult:
        try:
            return await entry.read(uri, variables, context)
        except InvalidArguments as error:
            raise InvalidUri(uri, str(error)) from None

    async def _kept(self, uri: str, entry: RegisteredResource, variables: Mapping[str, Any]) -> ReadResourceResult:
        """Give what was read a moment ago, as long as the resource says it may be kept."""
        now = asyncio.get_running_loop().time()
        kept = self._reads.get(uri)
        if kept is None or now >= kept[1]:
            result = await self._fresh(uri, entry, variables, None)
            result.ttl_ms = result.ttl_ms or int((entry.ttl or 0.0) * 1000)
            if len(self._reads) >= MAX_KEPT:
                self._reads.pop(next(iter(self._reads)))
            kept = self._reads[uri] = (result, now + (entry.ttl or 0.0))
        return copy.copy(kept[0])

    def forget(self, uri: str) -> None:
        """Read a resource anew the next time: it changed, or it is gone."""
        self._reads.pop(uri, None)

    def find(self, uri: str) -> tuple[RegisteredResource, Mapping[str, Any]]:
        """Find what answers to a URI, and what its variables are."""
        entry = self.catalogue.get(uri)
        if entry is not None:
            return entry, {}
        if not SCHEME.match(uri):
            raise InvalidUri(uri, "it has no scheme")
        for candidate in self.templates:
            variables = candidate.template.match(uri)
            if variables is not None:
                return candidate, variables
        raise ResourceNotFound(uri)


def _check_parameters(entry: RegisteredResource) -> None:
    """A template's variables and its function's parameters must fit."""
    known = set(entry.template.variables) | ({"uri"} if entry.takes_uri else set())
    missing = [name for name in entry.binding.required if name not in known]
    if missing:
        raise SetupError(f"{entry.binding.name}: no variable of {entry.uri!r} fills the parameter {missing[0]!r}")
    unused = [name for name in entry.template.variables if name not in entry.binding.parameters]
    if unused:
        raise SetupError(f"{entry.binding.name}: the variable {unused[0]!r} of {entry.uri!r} has no parameter")


def _listed(template: UriTemplate, uri: str, binding: Binding, options: ResourceOptions) -> Resource | ResourceTemplate:
    facts: dict[str, Any] = {
        "name": options.name or binding.name,
        "title": options.title,
        "description": options.description or binding.description,
        "mime_type": options.mime_type,
        "annotations": options.annotations,
        "icons": options.icons,
        "meta": dict(options.meta) if options.meta else None,
    }
    if template.is_template:
        return ResourceTemplate(uri_template=uri, **facts)
    return Resource(uri=uri, size=options.size, **facts)
