"""The prompts of a server: add, remove, list, get."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct, structs

from ferrule.errors import InvalidParams, PromptNotFound, Refusal, SetupError, UrlElicitationRequired
from ferrule.protocol.call import Call
from ferrule.schema.content import CONTENT_TYPES
from ferrule.schema.model import Icon
from ferrule.schema.prompts import (
    GetPromptParams,
    GetPromptResult,
    ListPromptsResult,
    Prompt,
    PromptArgument,
    PromptMessage,
)
from ferrule.server.calls.context import Context
from ferrule.server.calls.execution import value_of
from ferrule.server.calls.media import Media, holds_media
from ferrule.server.calls.results import prompt_of
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.calls.tool_results import read_media
from ferrule.server.functions.binder import Binding, InvalidArguments, bind
from ferrule.server.offers.catalogue import Catalogue, off
from ferrule.server.offers.entry import Entry, PromptLike, Visible, require_only, with_questions
from ferrule.server.offers.mount_point import through
from ferrule.server.offers.versions import Versions
from ferrule.server.offers.visibility import Visibility
from ferrule.settings.option import PositiveInt, check


class Message(dict[str, Any]):
    """One message of a prompt: a text, a content block, a picture, or a list of them, and who says it."""

    def __init__(self, content: object, role: str = "user") -> None:
        super().__init__(role=role, content=content)

    @property
    def role(self) -> str:
        """Who says it: `user` or `assistant`."""
        return str(self["role"])

    @property
    def content(self) -> Any:
        """What is said."""
        return self["content"]


class UserMessage(Message):
    """What the user says."""

    def __init__(self, content: object) -> None:
        super().__init__(content, "user")


class AssistantMessage(Message):
    """What the assistant says."""

    def __init__(self, content: object) -> None:
        super().__init__(content, "assistant")


_write = msgspec.json.Encoder().encode


class PromptOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a prompt besides its function."""

    name: str | None = None
    """What it is called by; None for the name of its function."""
    title: str | None = None
    """The name that hosts show to people."""
    version: str | None = None
    """Which version of the prompt it is; of several of one name the newest is listed."""
    description: str | None = None
    """What it is for; None for the docstring of its function."""
    arguments: Sequence[PromptArgument] | None = None
    """Its arguments as they are listed; None for those of its function."""
    icons: list[Icon] | None = None
    """Pictures that hosts show beside the name."""
    meta: Mapping[str, object] | None = None
    """The `_meta` it is listed with."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of its arguments, in the place of the one made from its signature."""
    inline: bool = False
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    max_threads: PositiveInt = 32
    """How many calls of a plain function may run in threads at once."""
    tags: Collection[str] | None = ()
    """Words to switch it on and off by, together with others."""
    visible: Visible | None = None
    """Whether a caller sees it, asked for each call and list."""
    scopes: Collection[str] = ()
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool = False
    """Whether it does not exist for a caller without the scopes."""

    def __post_init__(self) -> None:
        check(self)


class PromptEntry(Entry):
    """A prompt, ready to be filled in; what fills it in is a subclass's to say."""

    __slots__ = ("prompt",)

    def __init__(
        self, services: Services, prompt: Prompt, options: PromptOptions, *, wants_context: bool = False
    ) -> None:
        super().__init__(
            services,
            wants_context=wants_context,
            tags=options.tags,
            visible=options.visible,
            scopes=options.scopes,
            hide_without=options.hide_without,
        )
        self.prompt = prompt

    async def answer(self, call: Call, outer: Services) -> GetPromptResult:
        """Fill the prompt in for a call of a host's client."""
        raise NotImplementedError


class FunctionPrompt(PromptEntry):
    """A prompt that a function fills in."""

    __slots__ = ("binding", "bulkhead", "required")

    def __init__(
        self, services: Services, prompt: Prompt, binding: Binding, options: PromptOptions, bulkhead: Bulkhead | None
    ) -> None:
        wants_context = binding.context_parameter is not None
        super().__init__(services, prompt, options, wants_context=wants_context)
        self.binding = binding
        self.logs = wants_context
        self.bulkhead = bulkhead
        self.required: list[str] = []
        for argument in prompt.arguments or ():
            if argument.required:
                self.required.append(argument.name)

    async def answer(self, call: Call, outer: Services) -> GetPromptResult:
        """Run the function and make messages of its value."""
        arguments = call.params.arguments
        context = None
        if self.context is not None:
            context = self.context(call, self.services)
        missing = []
        for name in self.required:
            if name not in arguments:
                missing.append(name)
        if missing:
            raise InvalidParams(
                f"Missing required argument {missing[0]!r} of the prompt {self.prompt.name!r}", {"missing": missing}
            )
        value = await value_of(self.binding, self.bulkhead, _write(arguments), context)
        if holds_media(value):
            value = await read_media(outer, call, value)
        return prompt_of(value, self.prompt.description)

    def choices(self) -> Mapping[str, list[str]]:
        """Return the values each parameter may have, where its type lists them."""
        return self.binding.choices()


class ObjectPrompt(PromptEntry):
    """A prompt that an object fills in."""

    __slots__ = ("_object", "_own_name")

    def __init__(self, services: Services, given: PromptLike, options: PromptOptions) -> None:
        super().__init__(services, given.prompt, options)
        self._object = given
        self._own_name = given.prompt.name

    async def answer(self, call: Call, outer: Services) -> GetPromptResult:
        """Ask the object, by its own name."""
        said = call.params
        call.params = structs.replace(said, name=self._own_name)
        try:
            return await self._object.get(call)  # type: ignore[no-any-return]  # what the era can send
        finally:
            call.params = said


class Prompts:
    """The prompts of one server."""

    def __init__(
        self,
        services: Services,
        visibility: Visibility,
        *,
        on_change: Callable[[], None],
        on_versions: Callable[[], None],
    ) -> None:
        self._services = services
        self._visibility = visibility
        self.catalogue: Catalogue[PromptEntry] = Catalogue(
            "prompt",
            lambda prompts: ListPromptsResult(prompts=prompts),
            lambda entry: entry.prompt,
            page_size=services.settings.page_size,
            on_change=on_change,
            is_on=visibility.is_on,
        )
        self.versions: Versions[PromptEntry] = Versions(self.catalogue, _renamed, on_versions)

    def add(self, fn: Callable[..., Any], options: PromptOptions) -> PromptEntry:
        """Offer a function as a prompt."""
        schema = options.schema or _free_form(options.arguments)
        content_types = (*CONTENT_TYPES, PromptMessage, GetPromptResult, Media)
        binding = bind(
            with_questions(fn, content_types, inline=options.inline),
            context_type=Context,
            schema=schema,
            content_types=content_types,
            in_thread=None if options.inline else lambda: Bulkhead(self._services.threads, options.max_threads).run,
        )
        if binding.streams:
            raise SetupError(f"the prompt {binding.name}() is a generator, and only tools may be; return a list")
        if options.arguments is not None:
            arguments = list(options.arguments)
        else:
            arguments = _arguments(binding)
        prompt = Prompt(
            name=options.name or binding.name,
            title=options.title,
            description=options.description or binding.description,
            arguments=arguments or None,
            icons=options.icons,
            meta=dict(options.meta) if options.meta else None,
        )
        threaded = not binding.is_async and not options.inline
        if threaded:
            bulkhead = Bulkhead(self._services.threads, options.max_threads)
        else:
            bulkhead = None
        entry = FunctionPrompt(self._services, prompt, binding, options, bulkhead)
        self._visibility.notice(entry)
        if options.version is None:
            self.catalogue.add(prompt.name, entry)
        else:
            self.versions.add(prompt.name, options.version, entry)
        return entry

    def add_object(self, given: PromptLike, options: PromptOptions) -> PromptEntry:
        """Offer an object as a prompt."""
        require_only(options, ("tags", "visible", "scopes", "hide_without"), f"the prompt {given.prompt.name}")
        entry = ObjectPrompt(self._services, given, options)
        self._visibility.notice(entry)
        self.catalogue.add(entry.prompt.name, entry)
        return entry

    def remove(self, name: str) -> None:
        """Offer a prompt no longer, or one version of it."""
        if not self.versions.remove(name):
            self.catalogue.remove(name)

    def adopt(self, entry: PromptEntry, name: str) -> PromptEntry:
        """Make a copied prompt of a mounted server one of this server's."""
        entry.prompt = structs.replace(entry.prompt, name=name)
        entry.handler = None
        inner = copy.copy(entry)
        entry.handler = through(entry.mount_path, "prompts/get", lambda call: self.fill(call, inner))
        return entry

    async def fill(self, call: Call, entry: PromptEntry | None = None) -> GetPromptResult:
        """Answer `prompts/get`, with the prompt it names or with the one that is given."""
        entry = entry or self.catalogue.get(call.params.name)
        if entry is None:
            raise self._missing(call.params.name)
        if entry.scopes:
            entry.admit(call, self._services)
        if entry.handler is not None:
            return await entry.handler(call)  # type: ignore[no-any-return]  # a prompt's handler gives its result
        try:
            return await entry.answer(call, self._services)
        except InvalidArguments as error:
            raise InvalidParams(f"Invalid arguments for the prompt {call.params.name!r}: {error}") from None
        except UrlElicitationRequired as refusal:
            from ferrule.server.calls.forms import ask_to_visit

            ask_to_visit(call, refusal)
            raise

    async def fill_within(self, name: str, arguments: Mapping[str, str] | None, call: Call) -> GetPromptResult:
        """Fill in a prompt for a handler of this process, as part of its call and without middleware."""
        entry = self.catalogue.get(name)
        if entry is None:
            raise self._missing(name)
        said = call.params
        call.params = GetPromptParams(name=name, arguments=dict(arguments or {}))
        try:
            return await entry.answer(call, self._services)
        except InvalidArguments as error:
            raise InvalidParams(f"Invalid arguments for the prompt {name!r}: {error}") from None
        finally:
            call.params = said

    def _missing(self, name: str) -> Refusal:
        return self.missing(name, self.catalogue.hint(name))

    def missing(self, name: str, hint: str = "") -> Refusal:
        """Make the refusal of a request for a prompt that is not there, or not for this caller."""
        if self._services.capabilities().prompts is None:
            return off("prompts")
        return PromptNotFound(name, hint)


def _renamed(entry: PromptEntry, name: str, meta: dict[str, Any]) -> None:
    """Let a prompt be listed by another name."""
    entry.prompt = structs.replace(entry.prompt, name=name, meta={**(entry.prompt.meta or {}), **meta})


def _arguments(binding: Binding) -> list[PromptArgument]:
    properties = binding.input_schema.get("properties", {})
    arguments = []
    for name, rules in properties.items():
        required = True if name in binding.required else None
        arguments.append(PromptArgument(name=name, description=rules.get("description"), required=required))
    return arguments


def _free_form(arguments: Sequence[PromptArgument] | None) -> Mapping[str, Any] | None:
    """Return the schema of declared arguments: exactly those, as text."""
    if arguments is None:
        return None
    properties = {}
    required = []
    for argument in arguments:
        properties[argument.name] = {"type": "string"}
        if argument.required:
            required.append(argument.name)
    return {"type": "object", "properties": properties, "required": required}
