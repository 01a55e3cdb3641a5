"""Extensions of the protocol: their name, their settings, their methods and notifications, in one place."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.protocol.call import Call, Note
from ferrule.protocol.capabilities import require_extension
from ferrule.runtime.dispatch import Handler, NoteHandler
from ferrule.schema.keys import check_extensions
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.model import MetaOnly, Params, Result
from ferrule.schema.notices import NOTICES
from ferrule.server.calls.context import Context
from ferrule.server.calls.services import Services
from ferrule.server.calls.threads import Bulkhead
from ferrule.server.functions.signatures import probe
from ferrule.server.offers.catalogue import Catalogue, View

if TYPE_CHECKING:
    from ferrule.server.application import Application

logger = logging.getLogger("ferrule.extensions")

F = TypeVar("F", bound=Callable[..., Any])


class Answered(Struct, frozen=True):
    """A method of an extension, and who answers it."""

    row: Method
    fn: Callable[..., Any]
    required: bool


class Heard(Struct, frozen=True):
    """A notification of an extension, and who listens to it."""

    read: Callable[[Any], Any]
    fn: Callable[..., Any]


class Extension:
    """An optional part of the protocol that a server speaks once it is told to: `app.extend(extension)`.

    A subclass may do more when it joins a server: see `joined`.
    """

    def __init__(
        self,
        name: str,
        settings: Mapping[str, object] | None = None,
        *,
        required: bool = False,
        handshake: bool = True,
    ) -> None:
        check_extensions([name], "Extension")
        if settings is not None and not isinstance(settings, Mapping):
            raise SetupError(f"{name}: the settings of an extension are an object, not {settings!r}")
        self.name = name
        self.settings = dict(settings or {})
        self.required = required
        """Whether its methods are refused to a client that does not declare the extension too."""
        self.handshake = handshake
        """Whether it exists in the handshake era as well."""
        self.methods: dict[str, Answered] = {}
        self.notifications: dict[str, Heard] = {}
        self.servers: list[Application] = []
        self.speakers: list[Extensions] = []
        """The extensions of those servers, which answer its methods."""

    def method(
        self,
        name: str,
        *,
        params: type[Params] = MetaOnly,
        result: type[Result] = Result,
        required: bool | None = None,
        read_only: bool = False,
    ) -> Callable[[F], F]:
        """Answer a method: the function gets its params, a Context if it takes one, and the values of its providers."""
        self._check_new(name, METHODS, self.methods, "method")
        row = Method(name, params, result, handshake=self.handshake, read_only=read_only)

        def add(fn: F) -> F:
            from ferrule.server.extensions.own_methods import read_function

            read_function(fn)
            answered = Answered(row, fn, self.required if required is None else required)
            for speaker in self.speakers:
                speaker.answer(self, answered)
            self.methods[name] = answered
            return fn

        return add

    def notification(self, name: str, *, params: type[object] = dict) -> Callable[[F], F]:
        """Listen to a notification of the client: the function gets its params."""
        self._check_new(name, NOTICES, self.notifications, "notification")
        read = msgspec.json.Decoder(params).decode

        def add(fn: F) -> F:
            heard = Heard(read, fn)
            for speaker in self.speakers:
                speaker.hear(self, name, heard)
            self.notifications[name] = heard
            return fn

        return add

    def _check_new(self, name: str, core: Any, own: Mapping[str, object], kind: str) -> None:
        if name in core:
            raise SetupError(f"{self.name}: {name} is a {kind} of the protocol itself; choose another name")
        if name in own:
            raise SetupError(f"{self.name}: there is a {kind} {name} already")

    # `server` is a Server; a subclass may say so, or say less.

    def joined(self, server: Any) -> None:
        """Do what is to be done when a server takes this extension in; a subclass may offer resources here."""

    def lifespan(self, server: Any) -> AbstractAsyncContextManager[Any] | None:
        """Return what is to be entered while the server is in use, if there is anything."""
        return None

    def tool_view(self, call: Call) -> View | None:
        """Return how a caller sees the list of tools, where this extension changes it."""
        return None

    def page_size(self, context: Context) -> int:
        """Return how many entries a page of the server has that a context belongs to."""
        for speaker in self.speakers:
            if speaker.app is context.server:
                return speaker.services.settings.page_size
        raise SetupError(f"{self.name}: the extension has not joined the server {context.server.name!r}")

    def settings_of(self, context: Context) -> dict[str, Any] | None:
        """Return the settings with which the caller declares this extension too, None when it does not."""
        return context.peer.extension(self.name)


class MethodTable:
    """The methods one server answers: the protocol's, and its own with their handlers."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.rows: dict[str, Method] = {}
        for name, row in METHODS.items():
            if not row.by_client:
                self.rows[name] = row
        self.handlers: dict[str, Handler] = {}

    def add(self, row: Method, handler: Handler) -> None:
        """Answer one more method."""
        self.rows[row.name] = row
        self.handlers[row.name] = handler
        self._on_change()


class Extensions:
    """The extensions of one server."""

    def __init__(
        self, services: Services, methods: MethodTable, tools: Catalogue[Any], on_change: Callable[[], None]
    ) -> None:
        self.services = services
        self.app = services.app
        self._methods = methods
        self._tools = tools
        self._on_change = on_change
        self._declared = dict(services.settings.extensions or {})
        self._joined: dict[str, Extension] = {}
        self.notes: dict[str, NoteHandler] = {}

    def __iter__(self) -> Iterator[Extension]:
        return iter(self._joined.values())

    def __contains__(self, name: str) -> bool:
        return name in self._joined

    def __getitem__(self, name: str) -> Extension:
        return self._joined[name]

    def join(self, extension: Extension) -> None:
        """Take an extension in, whole or not at all."""
        name = extension.name
        if name in self._joined:
            raise SetupError(f"the extension {name} has joined this server already")
        if name in self._declared:
            raise SetupError(f"the extension {name} is declared by Server(extensions=…) already: leave it out there")
        for method in extension.methods:
            self._check_free(name, method, self._methods.rows, "method")
        for note in extension.notifications:
            self._check_free(name, note, self.notes, "notification")
        extension.joined(self.app)
        if type(extension).tool_view is not Extension.tool_view:
            self._tools.view = extension.tool_view
        self._joined[name] = extension
        for answered in extension.methods.values():
            self.answer(extension, answered)
        for note, heard in extension.notifications.items():
            self.hear(extension, note, heard)
        extension.servers.append(self.app)
        extension.speakers.append(self)
        self._on_change()

    def _check_free(self, name: str, what: str, taken: Any, kind: str) -> None:
        if what in taken:
            raise SetupError(f"{name}: another extension or app.method has the {kind} {what} already")

    def answer(self, extension: Extension, answered: Answered) -> None:
        """Answer a method of an extension that has joined."""
        method = answered.row.name
        self._check_free(extension.name, method, self._methods.rows, "method")
        from ferrule.server.extensions.own_methods import answerer

        handler = answerer(self.services, answered.fn)
        if answered.required:
            handler = _gated(extension.name, handler)
        self._methods.add(answered.row, handler)

    def hear(self, extension: Extension, name: str, heard: Heard) -> None:
        """Listen to a notification of an extension that has joined."""
        self._check_free(extension.name, name, self.notes, "notification")
        self.notes[name] = _listener(self.services, name, heard)
        self._on_change()

    def declared(self, *, handshake: bool) -> dict[str, Any] | None:
        """Return what is declared in one of the eras: what `Server(extensions=…)` names is the stateless one's."""
        if handshake and not self._joined:
            return None
        joined = {}
        for name, each in self._joined.items():
            if each.handshake or not handshake:
                joined[name] = each.settings
        return ({} if handshake else self._declared) | joined or None


def _gated(name: str, handler: Handler) -> Handler:
    async def handle(call: Call) -> Any:
        require_extension(call.peer, name)
        return await handler(call)

    return handle


def _listener(services: Services, name: str, heard: Heard) -> NoteHandler:
    bulkhead = Bulkhead(services.threads)
    fn = heard.fn
    is_async = inspect.iscoroutinefunction(probe(fn))

    async def deliver(params: object) -> None:
        try:
            value = await (fn(params) if is_async else bulkhead.run(lambda: fn(params)))
            if isinstance(value, Coroutine):
                await value
        except Exception:
            logger.exception("the handler of the notification %s failed", name)

    def listen(note: Note) -> None:
        try:
            params = heard.read(note.params)
        except msgspec.DecodeError as reason:
            logger.warning("a malformed notification %s is ignored: %s", name, reason)
            return
        services.links.behind(note).scope.spawn(deliver(params))

    return listen
