"""The resources of a server: add, remove, list, read."""

from __future__ import annotations

import asyncio
import copy
import re
import types
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_args, get_origin

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
from ferrule.server.calls.context import Context
from ferrule.server.calls.execution import value_of
from ferrule.server.calls.forms import ask_to_visit
from ferrule.server.calls.kept_results import PREFIX as KEPT
from ferrule.server.calls.kept_results import read_kept
from ferrule.server.calls.media import Media
from ferrule.server.calls.results import contents_of
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.binder import Binding, InvalidArguments, bind
from ferrule.server.functions.questions import with_questions
from ferrule.server.offers.catalogue import Catalogue, off
from ferrule.server.offers.entry import Entry, ResourceLike, Visible, require_only
from ferrule.server.offers.mount_point import through
from ferrule.server.offers.visibility import Visibility
from ferrule.settings.option import NonNegativeInt, PositiveInt, Seconds, check

if TYPE_CHECKING:
    from ferrule.server.offers.uri_template import UriTemplate

MAX_KEPT = 1000
MAX_KEPT_BYTES = 16 * 1024 * 1024
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")

NO_ARGUMENTS = b"{}"
NO_VARIABLES: Mapping[str, Any] = {}

_write = msgspec.json.Encoder().encode


class ResourceOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a resource besides its function."""

    name: str | None = None
    """What it is called; None for the name of its function."""
    title: str | None = None
    """The name that hosts show to people."""
    description: str | None = None
    """What it holds; None for the docstring of its function."""
    mime_type: str | None = None
    """The media type of its contents; None for what the function returns."""
    size: NonNegativeInt | None = None
    """How many bytes it has, where that is known."""
    annotations: Annotations | Mapping[str, object] | None = None
    """Hints for hosts: for whom it is, and how important."""
    icons: list[Icon] | None = None
    """Pictures that hosts show beside the name."""
    meta: Mapping[str, object] | None = None
    """The `_meta` it is listed with."""
    inline: bool = False
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    max_threads: PositiveInt = 32
    """How many reads by a plain function may run in threads at once."""
    ttl: Seconds | None = None
    """For how many seconds clients may keep what they read; None for what the server says."""
    tags: Collection[str] | None = ()
    """Words to switch it on and off by, together with others."""
    visible: Visible | None = None
    """Whether a caller sees it, asked for each read and list."""
    scopes: Collection[str] = ()
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool = False
    """Whether it does not exist for a caller without the scopes."""
    contents_meta: Mapping[str, object] | None = None
    """The metadata of what is read, where it gives none of its own."""

    def __post_init__(self) -> None:
        check(self)


def _is_text(annotation: object) -> bool:
    """Return whether a type is a text, whatever is said of it, or else nothing."""
    if get_origin(annotation) is Annotated:
        return _is_text(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        return all(part is type(None) or _is_text(part) for part in get_args(annotation))
    return annotation is str


class FixedUri:
    """The URI of a resource that has no variables."""

    is_template = False
    variables: tuple[str, ...] = ()
    lists: Mapping[str, str] = {}

    def __init__(self, uri: str) -> None:
        self.pattern = uri

    def match(self, uri: str) -> dict[str, Any] | None:
        """Return the values of its variables, of which there are none, or None when the URI is another."""
        if uri == self.pattern:
            return {}
        return None


Pattern: TypeAlias = "FixedUri | UriTemplate"


def _pattern(uri: str) -> Pattern:
    if "{" not in uri and "}" not in uri:
        return FixedUri(uri)
    from ferrule.server.offers.uri_template import UriTemplate

    return UriTemplate(uri)


class ResourceEntry(Entry):
    """A resource or a template, ready to be read; what reads it is a subclass's to say."""

    __slots__ = ("listed", "own_template", "template", "ttl", "uri")

    def __init__(self, services: Services, uri: str, options: ResourceOptions, *, wants_context: bool = False) -> None:
        super().__init__(
            services,
            wants_context=wants_context,
            tags=options.tags,
            visible=options.visible,
            scopes=options.scopes,
            hide_without=options.hide_without,
        )
        self.uri = uri
        self.template = self.own_template = _pattern(uri)
        """How its URIs look here, and in the server it is from."""
        self.ttl = options.ttl
        self.listed: Resource | ResourceTemplate

    @property
    def needs_call(self) -> bool:
        """Whether it can only be read for a call."""
        return self.context is not None

    async def read(self, uri: str, variables: Mapping[str, Any], call: Call | None) -> ReadResourceResult:
        """Read a URI of the server it is offered in."""
        raise NotImplementedError

    def own_uri(self, uri: str) -> str:
        """Return a URI as the server that this resource comes from knows it."""
        for point, _ in self.mount_path:
            uri = point.own_uri(uri)
        return uri

    def placed(self, result: ReadResourceResult) -> ReadResourceResult:
        """Write the URIs of what was read as the server does that it is offered in."""
        for point, _ in reversed(self.mount_path):
            result = point.placed_in(result)
        return result

    def move_to(self, uri: str) -> None:
        """Be found under another URI."""
        self.uri = uri
        self.template = _pattern(uri)
        if isinstance(self.listed, ResourceTemplate):
            self.listed = structs.replace(self.listed, uri_template=uri)
        else:
            self.listed = structs.replace(self.listed, uri=uri)


class FunctionResource(ResourceEntry):
    """A resource or a template that a function reads."""

    __slots__ = ("_joined", "_threads", "binding", "bulkhead", "contents_meta", "mime_type", "takes_uri")

    def __init__(
        self, services: Services, uri: str, binding: Binding, options: ResourceOptions, bulkhead: Bulkhead | None
    ) -> None:
        wants_context = binding.context_parameter is not None
        super().__init__(services, uri, options, wants_context=wants_context)
        self._threads = services.threads
        self.binding = binding
        self.logs = wants_context
        self.bulkhead = bulkhead
        self.mime_type = options.mime_type
        self.contents_meta = options.contents_meta
        texts = set()
        for parameter in binding.signature.parameters:
            if _is_text(parameter.annotation):
                texts.add(parameter.key)
        self._joined: dict[str, str] = {}
        """Lists in the URI that the function takes as one text, as FastMCP gives `{path*}`."""
        for name, between in self.template.lists.items():
            if name in texts:
                self._joined[name] = between
        self.takes_uri = "uri" in binding.parameters and "uri" not in self.template.variables
        self.listed = _listed(self.template, uri, binding, options)

    async def read(self, uri: str, variables: Mapping[str, Any], call: Call | None) -> ReadResourceResult:
        """Run the function and make contents of what it gives."""
        context = None
        if self.context is not None and call is not None:
            context = self.context(call, self.services)
        if self.mount_path:
            uri = self.own_uri(uri)
        arguments = NO_ARGUMENTS
        if variables or self.takes_uri:
            arguments = self._arguments(uri, variables)
        if self.binding.is_async:
            value = await self.binding.invoke(arguments, context)
        else:
            value = await value_of(self.binding, self.bulkhead, arguments, context)
        if isinstance(value, Media):
            media = value
            value = await self._threads.run(lambda: media.contents(uri, self.mime_type))
        result = contents_of(value, uri, self.mime_type)
        if self.contents_meta is not None:
            parts = result.contents
            result.contents = []
            for part in parts:
                meta = {**self.contents_meta, **(part.meta or {})}
                result.contents.append(structs.replace(part, meta=meta))
        if self.mount_path:
            return self.placed(result)
        return result

    def _arguments(self, uri: str, variables: Mapping[str, Any]) -> bytes:
        """Write what the function is called with."""
        values = {**variables, "uri": uri} if self.takes_uri else variables
        if self._joined:
            joined = {}
            for name, between in self._joined.items():
                if name in values:
                    joined[name] = between.join(values[name])
            values = {**values, **joined}
        return _write(values)

    def choices(self) -> Mapping[str, list[str]]:
        """Return the values each variable may have, where its type lists them."""
        return self.binding.choices()


class ObjectResource(ResourceEntry):
    """A resource or a template that an object reads."""

    __slots__ = ("_object",)

    def __init__(self, services: Services, given: ResourceLike, options: ResourceOptions) -> None:
        super().__init__(services, uri_of(given), options)
        self._object = given
        self.listed = given.resource

    @property
    def needs_call(self) -> bool:
        """Whether it can only be read for a call: yes."""
        return True

    async def read(self, uri: str, variables: Mapping[str, Any], call: Call | None) -> ReadResourceResult:
        """Ask the object, by its own URI."""
        assert call is not None
        result = await self._object.read(self.own_uri(uri), call)
        if isinstance(result, ReadResourceResult):
            return self.placed(result)
        return result  # type: ignore[no-any-return]  # what the era can send


def uri_of(given: ResourceLike) -> str:
    """Return the URI, or the template, that an object is listed under."""
    if isinstance(given.resource, ResourceTemplate):
        return given.resource.uri_template
    return given.resource.uri


class Resources:
    """The resources and templates of one server."""

    def __init__(self, services: Services, visibility: Visibility, *, on_change: Callable[[], None]) -> None:
        self._services = services
        self._visibility = visibility
        self._on_change = on_change
        self._reads: dict[str, tuple[ReadResourceResult, float, int]] = {}
        """What was read, until when it is kept, and how long it is."""
        self.kept_bytes = 0
        """Characters of all that was read and is kept."""
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
        catalogue = self.templates if entry.template.is_template else self.catalogue
        catalogue.add(entry.uri, entry)

    def adopt(self, entry: ResourceEntry, uri: str) -> ResourceEntry:
        """Make a copied resource of a mounted server one of this server's."""
        entry.move_to(uri)
        entry.handler = None
        inner = copy.copy(entry)
        inner.mount_path, inner.template = (), entry.own_template
        entry.handler = through(entry.mount_path, "resources/read", lambda call: self._read_inside(inner, call))
        return entry

    def _changed(self) -> None:
        """Tell of a change; what was read under a URI may be another resource's by now."""
        self._reads.clear()
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
        (self.templates if uri in self.templates.registered else self.catalogue).remove(uri)

    async def read(self, call: Call, found: FoundResource | None = None) -> ReadResourceResult:
        """Answer `resources/read`, with the resource it names or with the one that is given."""
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
        except InvalidArguments as error:
            raise InvalidUri(uri, str(error)) from None
        except UrlElicitationRequired as refusal:
            ask_to_visit(call, refusal)
            raise

    async def read_within(self, uri: str, call: Callable[[], Call]) -> ReadResourceResult:
        """Read for a handler of this process, which passes no middleware; the call is asked for when it is needed."""
        if uri.startswith(KEPT):
            return await self._read_kept(uri, call())
        entry, variables = self.find(uri)
        its_call = call() if entry.needs_call else None
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
        """Return what was read a moment ago, as long as the resource says it may be kept."""
        now = asyncio.get_running_loop().time()
        kept = self._reads.get(uri)
        if kept is None or now >= kept[1]:
            result = await fresh()
            result.ttl_ms = result.ttl_ms or int(ttl * 1000)
            self._keep_read(uri, result, now, ttl)
            return copy.copy(result)
        return copy.copy(kept[0])

    def _keep_read(self, uri: str, result: ReadResourceResult, now: float, ttl: float) -> None:
        """Keep what was read, in the place of what expired or was read before all else."""
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
        """Read a resource anew the next time: it changed, or it is gone."""
        kept = self._reads.pop(uri, None)
        if kept is not None:
            self.kept_bytes -= kept[2]

    def find(self, uri: str, sees: Callable[[str, ResourceEntry], bool] | None = None) -> FoundResource:
        """Find what answers to a URI, among all that is switched on or that somebody sees, and its variables."""
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
        """Find what answers to a URI among what a caller sees."""
        kinds = {catalogue.kind: catalogue for catalogue in self.catalogues}

        def sees(kind: str, entry: ResourceEntry) -> bool:
            return self._visibility.find(call, kinds[kind], entry.uri) is not None

        return self.find(uri, sees)


def _private(result: ReadResourceResult) -> ReadResourceResult:
    """Let no cache share what not everybody may read, whatever the server says of its results (CACHE-5)."""
    if isinstance(result, ReadResourceResult) and result.cache_scope != "private":
        return structs.replace(result, cache_scope="private")
    return result


def _size_of(uri: str, result: ReadResourceResult) -> int:
    """Return the characters of what was read, and of where."""
    size = len(uri)
    for part in result.contents:
        size += len(getattr(part, "text", None) or "") + len(getattr(part, "blob", None) or "")
    return size


def _check_scheme(uri: str) -> None:
    if not SCHEME.match(uri):
        raise SetupError(f"the resource URI {uri!r} needs a scheme, such as notes://{uri}")


FoundResource = tuple[ResourceEntry, Mapping[str, Any]]
"""What answers to a URI, and the values of its variables."""


def _check_parameters(entry: FunctionResource) -> None:
    """A template's variables and its function's parameters must fit."""
    known = set(entry.template.variables) | ({"uri"} if entry.takes_uri else set())
    missing = []
    for name in entry.binding.required:
        if name not in known:
            missing.append(name)
    if missing:
        raise SetupError(f"{entry.binding.name}: no variable of {entry.uri!r} fills the parameter {missing[0]!r}")
    unused = []
    for name in entry.template.variables:
        if name not in entry.binding.parameters:
            unused.append(name)
    if unused:
        raise SetupError(f"{entry.binding.name}: the variable {unused[0]!r} of {entry.uri!r} has no parameter")


def _listed(template: Pattern, uri: str, binding: Binding, options: ResourceOptions) -> Resource | ResourceTemplate:
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
