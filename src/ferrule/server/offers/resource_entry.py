"""A resource or a template as a server holds it, whatever reads it."""

from __future__ import annotations

import types
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, Union, get_args, get_origin

import msgspec
from msgspec import Struct, structs

from ferrule.protocol.call import Call
from ferrule.schema.model import Annotations, Icon
from ferrule.schema.resources import PlainContents, ReadResourceResult, Resource, ResourceTemplate
from ferrule.server.calls.execution import value_of
from ferrule.server.calls.media import Media
from ferrule.server.calls.results import contents_of, contents_writer
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.binder import Binding
from ferrule.server.offers.entry import Entry, ResourceLike, Visible
from ferrule.settings.option import NonNegativeInt, PositiveInt, Seconds, check

if TYPE_CHECKING:
    from ferrule.server.offers.uri_template import UriTemplate

NO_ARGUMENTS = b"{}"

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
    """The metadata of what is read, where the result has none of its own."""

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


class FastRead:
    """How a resource is read where awaiting its function and writing the text it returns is all there is to do."""

    __slots__ = ("finish", "run", "write")

    def __init__(
        self,
        run: Callable[[], Awaitable[Any]],
        write: Callable[[str], PlainContents | ReadResourceResult],
        finish: Callable[[Any], Awaitable[ReadResourceResult]],
    ) -> None:
        self.run = run
        self.write = write
        self.finish = finish
        """Makes the result of what is no plain text."""


class ResourceEntry(Entry):
    """A resource or a template, ready to be read; what reads it is a subclass's to say."""

    __slots__ = ("fast_path", "listed", "own_template", "template", "ttl", "uri")

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
        self.fast_path: FastRead | None = None
        """The shortest path to its contents, where there is one."""

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
        self.fast_path = None
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
        self.fast_path = self._find_fast_path()

    async def read(self, uri: str, variables: Mapping[str, Any], call: Call | None) -> ReadResourceResult:
        """Run the function and make contents of its value."""
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
        if type(value) is str and self.contents_meta is None:
            result = contents_of(value, uri, self.mime_type)
        else:
            result = await self._made(value, uri)
        if self.mount_path:
            return self.placed(result)
        return result

    async def _made(self, value: object, uri: str) -> ReadResourceResult:
        """Make contents of what the function gave."""
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
        return result

    def _find_fast_path(self) -> FastRead | None:
        """Return the short way, if all there is to do is to call the function with nothing and write its text."""
        binding = self.binding
        more_to_do = self.ttl is not None or self.scopes or self.contents_meta is not None
        if more_to_do or self.template.is_template or not binding.is_async or not binding.takes_nothing:
            return None
        run = binding.signature.fn
        return FastRead(run, contents_writer(self.uri, self.mime_type), partial(self._made, uri=self.uri))

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
