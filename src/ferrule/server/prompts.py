"""The prompts of a server: add, remove, list, get."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from ferrule.errors import InvalidParams, PromptNotFound, Refusal, SetupError, UrlElicitationRequired
from ferrule.protocol.call import Call
from ferrule.schema.content import CONTENT_TYPES
from ferrule.schema.model import Icon
from ferrule.schema.prompts import GetPromptResult, ListPromptsResult, Prompt, PromptArgument, PromptMessage
from ferrule.server.asking import ask_to_visit
from ferrule.server.binding import Binding, InvalidArguments, bind
from ferrule.server.catalogue import Catalogue, off
from ferrule.server.context import Context
from ferrule.server.finishing import read_media
from ferrule.server.media import Media, holds_media
from ferrule.server.questions import with_questions
from ferrule.server.results import prompt_of
from ferrule.server.threads import Bulkhead

if TYPE_CHECKING:
    from ferrule.server.server import Server

_write = msgspec.json.Encoder().encode


Read = Callable[[Any], Awaitable[Any]]


class PromptOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a prompt besides its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    arguments: Sequence[PromptArgument] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = None
    schema: Mapping[str, Any] | None = None
    inline: bool = False
    max_threads: int = 32


class RegisteredPrompt:
    """A prompt, ready to be filled in."""

    __slots__ = ("binding", "bulkhead", "prompt", "required")

    def __init__(self, prompt: Prompt, binding: Binding, bulkhead: Bulkhead | None) -> None:
        self.prompt = prompt
        self.binding = binding
        self.bulkhead = bulkhead
        self.required = [argument.name for argument in prompt.arguments or () if argument.required]

    async def fill(self, arguments: Mapping[str, str], context: Context | None, read: Read) -> GetPromptResult:
        """Run the handler and make messages of what it gives; `read` reads the pictures and files among it."""
        missing = [name for name in self.required if name not in arguments]
        if missing:
            raise InvalidParams(
                f"Missing required argument {missing[0]!r} of the prompt {self.prompt.name!r}", {"missing": missing}
            )
        raw = _write(arguments)
        if self.bulkhead is not None:
            value = await self.bulkhead.run(lambda: self.binding.invoke(raw, context))
        else:
            value = self.binding.invoke(raw, context)
            if self.binding.is_async:
                value = await value
        if holds_media(value):
            value = await read(value)
        return prompt_of(value, self.prompt.description)


class Prompts:
    """The prompts of one server."""

    def __init__(self, server: Server, *, page_size: int, on_change: Callable[[], None]) -> None:
        self._server = server
        self.catalogue: Catalogue[RegisteredPrompt] = Catalogue(
            "prompt",
            lambda prompts: ListPromptsResult(prompts=prompts),
            lambda entry: entry.prompt,
            page_size=page_size,
            on_change=on_change,
        )

    def add(self, fn: Callable[..., Any], options: PromptOptions) -> RegisteredPrompt:
        """Offer a function as a prompt."""
        schema = options.schema or _free_form(options.arguments)
        content_types = (*CONTENT_TYPES, PromptMessage, GetPromptResult, Media)
        asking = with_questions(fn, content_types)
        binding = bind(asking, context_type=Context, schema=schema, content_types=content_types)
        if binding.streams:
            raise SetupError(f"the prompt {binding.name}() is a generator, and only tools may be; return a list")
        arguments = list(options.arguments) if options.arguments is not None else _arguments(binding)
        prompt = Prompt(
            name=options.name or binding.name,
            title=options.title,
            description=options.description or binding.description,
            arguments=arguments or None,
            icons=options.icons,
            meta=dict(options.meta) if options.meta else None,
        )
        threaded = not binding.is_async and not options.inline
        bulkhead = Bulkhead(self._server.threads, options.max_threads) if threaded else None
        entry = RegisteredPrompt(prompt, binding, bulkhead)
        self.catalogue.add(prompt.name, entry)
        return entry

    async def fill(self, call: Call) -> GetPromptResult:
        """Answer `prompts/get`."""
        entry = self.catalogue.get(call.params.name)
        if entry is None:
            raise self._missing(call.params.name)
        context = Context(call, self._server) if entry.binding.context_parameter is not None else None
        try:
            return await entry.fill(call.params.arguments, context, lambda value: read_media(self._server, call, value))
        except InvalidArguments as error:
            raise InvalidParams(f"Invalid arguments for the prompt {call.params.name!r}: {error}") from None
        except UrlElicitationRequired as refusal:
            ask_to_visit(call, refusal)
            raise

    def _missing(self, name: str) -> Refusal:
        if self._server.capabilities.prompts is None:
            return off("prompts")
        return PromptNotFound(name, self.catalogue.hint(name))


def _arguments(binding: Binding) -> list[PromptArgument]:
    properties = binding.input_schema.get("properties", {})
    return [
        PromptArgument(
            name=name, description=rules.get("description"), required=True if name in binding.required else None
        )
        for name, rules in properties.items()
    ]


def _free_form(arguments: Sequence[PromptArgument] | None) -> Mapping[str, Any] | None:
    """A handler with declared arguments takes exactly those, as text."""
    if arguments is None:
        return None
    return {
        "type": "object",
        "properties": {argument.name: {"type": "string"} for argument in arguments},
        "required": [argument.name for argument in arguments if argument.required],
    }
