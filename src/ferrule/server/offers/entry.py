"""What a server offers: the interface of what is listed and called, and what all of it has in common.

A function is one kind of tool, resource or prompt. An object that says how it is listed and answers its calls is
another: `app.add_tool(entry)`, `app.add_resource(entry)` and `app.add_prompt(entry)` take any that has the members
below. What is said of it besides (`tags`, `visible`, …) is said where it is added.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Any, Protocol, TypeGuard, TypeVar, runtime_checkable

from msgspec import Struct, structs

from ferrule.errors import Forbidden, SetupError
from ferrule.identity.principal import require_scopes
from ferrule.identity.verifier import ALLOW_ALL
from ferrule.protocol.call import Call
from ferrule.schema.prompts import Prompt
from ferrule.schema.resources import Resource, ResourceTemplate
from ferrule.schema.tools import Tool
from ferrule.server.calls.context import Context
from ferrule.server.calls.services import Services
from ferrule.server.functions.depends import Ask
from ferrule.server.offers.mount_point import MountPath
from ferrule.wire.channel import Origin

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger("ferrule.auth")

OWN_PROCESS = frozenset({"stdio", "memory"})
"""Transports whose peer owns this process, or is in it: it may do whatever this process may."""

NO_TAGS: frozenset[str] = frozenset()

Handler = Callable[[Call], Awaitable[Any]]
Visible = Callable[[Context[Any]], bool]


@runtime_checkable
class ToolLike(Protocol):
    """A tool that answers its calls itself."""

    @property
    def tool(self) -> Tool:
        """How it is listed."""

    def call(self, call: Call) -> Awaitable[Any]:
        """Answer a call: `call.params` has the name it is listed under, and the arguments as raw JSON.

        Returns the result: a `CallToolResult`, or whatever else the era of the caller can send.
        """


@runtime_checkable
class ResourceLike(Protocol):
    """A resource, or a template, that is read by asking it."""

    @property
    def resource(self) -> Resource | ResourceTemplate:
        """How it is listed."""

    def read(self, uri: str, call: Call) -> Awaitable[Any]:
        """Read a URI for a call, which may be one of a tool whose handler reads.

        Returns the result: a `ReadResourceResult`, or whatever else the era of the caller can send.
        """


@runtime_checkable
class PromptLike(Protocol):
    """A prompt that fills itself in."""

    @property
    def prompt(self) -> Prompt:
        """How it is listed."""

    def get(self, call: Call) -> Awaitable[Any]:
        """Answer a request for it: `call.params` has the name it is listed under, and the arguments.

        Returns the result: a `GetPromptResult`, or whatever else the era of the caller can send.
        """


def is_tool(given: object) -> TypeGuard[ToolLike]:
    """Return whether something says itself that it is a tool."""
    return isinstance(getattr(given, "tool", None), Tool) and isinstance(given, ToolLike)


def is_resource(given: object) -> TypeGuard[ResourceLike]:
    """Return whether something says itself that it is a resource or a template."""
    return isinstance(getattr(given, "resource", None), Resource | ResourceTemplate) and isinstance(given, ResourceLike)


def is_prompt(given: object) -> TypeGuard[PromptLike]:
    """Return whether something says itself that it is a prompt."""
    return isinstance(getattr(given, "prompt", None), Prompt) and isinstance(given, PromptLike)


def require_only(options: Struct, allowed: Collection[str], what: str) -> None:
    """Refuse options of functions for an object, which says itself how it is listed."""
    usual = type(options)()
    for name, value in structs.asdict(options).items():
        if name not in allowed and value != getattr(usual, name):
            taken = ", ".join(allowed)
            raise SetupError(f"{what} says itself how it is listed: {name}= is for functions; it takes {taken}")


def _has_scopes(origin: Origin, scopes: Collection[str]) -> bool:
    if origin.identity is None:
        return origin.carrier in OWN_PROCESS
    return origin.identity.scopes.issuperset(scopes)


def _hidden_without(scopes: frozenset[str], visible: Visible | None) -> Visible:
    """Let only those see something who have the scopes, of those who would see it anyway."""

    def sees(context: Context[Any]) -> bool:
        if not _has_scopes(context.call.origin, scopes):
            return False
        return visible is None or visible(context)

    return sees


class Entry:
    """One thing a server offers, as its catalogue holds it."""

    __slots__ = ("context", "handler", "logs", "mount_path", "scopes", "services", "tags", "unlisted", "visible")

    def __init__(
        self,
        services: Services,
        *,
        wants_context: bool = False,
        tags: Iterable[str] | None,
        visible: Visible | None,
        scopes: Collection[str] = (),
        hide_without: bool = False,
    ) -> None:
        if isinstance(tags, str):
            raise SetupError(f"tags must be a set of texts, not the text {tags!r}: write tags={{{tags!r}}}")
        self.services = services
        """What the calls of the server it belongs to work with."""
        self.context: Callable[[Call, Services], Context[Any]] | None = Context if wants_context else None
        """Makes the context of a call, where the handler or one of its providers takes one."""
        self.logs = False
        """Whether its handler may send log messages."""
        self.tags = frozenset(tags) if tags else NO_TAGS
        self.scopes = require_scopes(scopes, "scopes")
        """What its callers need, besides what every caller of the server does."""
        self.visible = visible
        if hide_without and self.scopes:
            self.visible = _hidden_without(frozenset(self.scopes), visible)
        self.mount_path: MountPath = ()
        """The mounts it was reached through."""
        self.unlisted = ""
        """The name it is a version of, where it is not listed itself: whoever knows `name@version` can use it."""
        self.handler: Handler | None = None
        """How a call is answered where running the handler is not all: prepared when it is offered."""

    def admit(self, call: Call, services: Services) -> None:
        """Raise Forbidden for a caller without the scopes; `services` are those of the server that was asked."""
        origin = call.origin
        if _has_scopes(origin, self.scopes):
            return
        verifier = services.settings.auth or ALLOW_ALL
        logger.info("%s is asked for more scopes (%s): %s", origin.principal, call.method, " ".join(self.scopes))
        raise Forbidden(
            f"Forbidden: this needs the scopes {' '.join(self.scopes)}",
            {"requiredScopes": list(self.scopes)},
            status=403,
            headers=verifier.demand(self.scopes, origin.headers),
        )

    def choices(self) -> Mapping[str, list[str]]:
        """Return the values each parameter may have, where that is known."""
        return {}


def decorator(register: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that registers a function and leaves it as it is."""

    def decorate(fn: F) -> F:
        register(fn)
        return fn

    return decorate


def handler_name(fn: Any, options: Mapping[str, object]) -> str:
    """Say what a handler is called, for errors."""
    return str(options.get("name") or getattr(fn, "__name__", type(fn).__name__))


def with_questions(
    fn: Callable[..., Any], content_types: tuple[type, ...] = (), *, inline: bool = False
) -> Callable[..., Any]:
    """Return a handler that asks for its `Ask` parameters before it runs; any other as it is."""
    if not _mentions_ask(fn):
        return fn
    from ferrule.server.functions.questions import with_answers

    return with_answers(fn, content_types, inline=inline)


def _mentions_ask(fn: object) -> bool:
    """Look without resolving: few handlers have such parameters, and all would pay."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    if not inspect.isroutine(fn):
        fn = type(fn).__call__
    for annotation in getattr(fn, "__annotations__", {}).values():
        if isinstance(annotation, str):
            if "Ask" in annotation:
                return True
        elif any(isinstance(each, Ask) for each in getattr(annotation, "__metadata__", ())):
            return True
    return False
