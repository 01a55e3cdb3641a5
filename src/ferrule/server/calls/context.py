"""What a handler may use: its call, its client, its server."""

from __future__ import annotations

import asyncio
import inspect
import logging
import sys
from collections.abc import Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Generic

import msgspec
from msgspec import Raw

from ferrule.errors import Cancelled, SetupError
from ferrule.identity.principal import Principal
from ferrule.protocol.call import Call, Peer
from ferrule.schema.model import Implementation, LogLevel
from ferrule.schema.notices import ELICITATION_COMPLETE, LOG_LEVELS, LOG_MESSAGE
from ferrule.server.calls.client_requests import ClientRequests
from ferrule.server.calls.results import UnwritableResult, json_of
from ferrule.server.calls.services import Services
from ferrule.server.foreign_names import CONTEXT, answering
from ferrule.server.hosting.progress import ProgressNotices
from ferrule.supervision.event_loop import running_loop
from ferrule.wire.messages import Notification


class SyncContext:
    """The same calls as a context has, each of which blocks the handler's own thread until it is done."""

    __slots__ = ("_context", "_loop")

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop | None) -> None:
        self._context = context
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._context, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute
        loop = self._loop
        call = self._context.call

        def wait(*args: object, **kwargs: object) -> Any:
            if loop is None or running_loop() is loop:
                raise SetupError(f"ctx.sync.{name} would block the event loop: use `await ctx.{name}` in async code")
            return _run_in(loop, call, attribute(*args, **kwargs))

        return wait


def _run_in(loop: asyncio.AbstractEventLoop, call: Call, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the loop from a thread, no longer than the call itself runs."""

    async def contained() -> tuple[Any, BaseException | None]:
        """Return what the work raises, for the thread to raise: also a BaseException such as Need."""
        waiting = asyncio.current_task()
        owner = call.task if call.as_task is None else call.as_task.work

        def give_up(_: object) -> None:
            if waiting is not None:
                waiting.cancel()

        if owner is not None:
            owner.add_done_callback(give_up)
        try:
            return await work, None
        except asyncio.CancelledError:
            return None, Cancelled("the call has ended")
        except BaseException as error:
            return None, error
        finally:
            if owner is not None:
                owner.remove_done_callback(give_up)

    value, error = asyncio.run_coroutine_threadsafe(contained(), loop).result()
    if error is not None:
        raise error
    return value


MAX_TEXT = 10_000
"""How much is sent of a value that only its text can stand for."""


def amount(value: Any) -> int | float | None:
    """Return an amount as a number JSON has; None for what is none, such as NaN."""
    if type(value) is not int and type(value) is not float:
        if value is None or isinstance(value, str | bool):
            return None
        try:
            value = float(value)  # of a library for numbers, say
        except (TypeError, ValueError, OverflowError):
            return None
    return value if -sys.float_info.max <= value <= sys.float_info.max else None


def loggable(data: object) -> Raw | str:
    """Write what a log message is to say, or its text where it cannot be written: an exception, for one."""
    try:
        return Raw(json_of(data))
    except UnwritableResult:
        return text_of(data)


def text_of(data: object) -> str:
    """Return the text of anything, with escapes for what no text can hold."""
    if isinstance(data, BaseException):
        text = f"{type(data).__name__}: {data}"
    else:
        text = str(data)
    # An escape is longer than what it stands for.
    return text[:MAX_TEXT].encode(errors="backslashreplace").decode()[:MAX_TEXT]


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ferrule.schema.prompts import GetPromptResult, Prompt
    from ferrule.schema.resources import ReadResourceResult, Resource, ResourceTemplate
    from ferrule.schema.tools import Tool

    State = TypeVar("State", default=Any)
else:
    # Only type checkers need to know the default that lets `Context` be written alone.
    from typing import TypeVar

    State = TypeVar("State")

logger = logging.getLogger("ferrule.context")

_read_meta = msgspec.json.Decoder(dict[str, Any]).decode


@answering(CONTEXT)
class Context(ClientRequests, Generic[State]):
    """What a handler receives when it asks for a `Context`, or for a `Context[AppState]` to have the lifespan typed."""

    __slots__ = ()

    # -- who asks

    @property
    def request_id(self) -> int | str:
        """The id of the request being answered."""
        return self._call.id

    @property
    def peer(self) -> Peer:
        """The client as far as the protocol lets us know it: revision, capabilities, name."""
        return self._call.peer

    def extension(self, name: str) -> dict[str, Any] | None:
        """Return the settings with which the client declares an extension, None when it does not."""
        return self._call.peer.extension(name)

    @property
    def client(self) -> Implementation | None:
        """The client's own name and version; for display and logs only."""
        return self._call.peer.implementation

    @property
    def principal(self) -> str | None:
        """Who is authenticated, if anyone: the key of `identity`, `issuer#subject` or a certificate's name."""
        return self._call.origin.principal

    @property
    def transport(self) -> str:
        """How the request came: `stdio`, `http`, `websocket`, `tcp`, `unix` or `memory`."""
        return self._call.origin.carrier

    @property
    def session_id(self) -> str | None:
        """The id of the client's session, the same for all its calls; None in the stateless era, which has none.

        Over HTTP it is the `Mcp-Session-Id`: whoever knows it can speak for the session, so it belongs in no result.
        """
        return self._outer_services.links.session_id(self._call)

    @property
    def identity(self) -> Principal | None:
        """Who is authenticated, with issuer, client, scopes and expiry, if anyone."""
        return self._call.origin.identity

    @property
    def headers(self) -> Mapping[str, str]:
        """The HTTP headers of the request, empty on other transports."""
        return self._call.origin.headers

    @property
    def meta(self) -> dict[str, Any]:
        """Everything in the request's `_meta`."""
        meta: dict[str, Any] = _read_meta(self._call.raw).get("_meta") or {}
        return meta

    @property
    def cancelled(self) -> bool:
        """Whether nobody wants the answer any more: cancelled, or out of time; a handler in a thread looks here."""
        if self.task is not None:
            return self.task.kept.ended or self._call.expired
        return self._call.cancelled or self._call.expired

    def raise_if_cancelled(self) -> None:
        """End a handler in a thread whose answer nobody wants any more, by raising `Cancelled`."""
        if self.cancelled:
            raise Cancelled("the call has ended")

    @property
    def hears_progress(self) -> bool:
        """Whether the client asked to be told of progress, or may look for it."""
        return self.task is not None or (self._call.meta is not None and self._call.meta.progress_token is not None)

    @property
    def task_id(self) -> str | None:
        """The id of the task this call runs as, if it does."""
        if self.task is None:
            return None
        return self.task.id

    async def start_task(self, message: str | None = None) -> None:
        """Go on as a task from here: the client is answered now, and learns the result later.

        For tools with `task_start="handler"`; does nothing in a call that is a task already or cannot become one.
        """
        if self._call.as_task is not None:
            await self._call.as_task.begin_from_handler(message)

    @property
    def lifespan(self) -> State:
        """What the server's lifespan yielded."""
        return self._services.lifespan()  # type: ignore[no-any-return]  # whoever writes Context[State] knows

    @property
    def state(self) -> dict[str, Any]:
        """Values kept between requests: per session; in the stateless era per principal."""
        return self._outer_services.links.values(self._call)

    # -- telling

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Send a progress notification; a no-op where the client did not ask for any."""
        call = self._call
        number = amount(progress)
        if number is None:
            logger.warning("progress of %s must be a finite number: %r was dropped", call.method, progress)
            await self._breathe()
            return
        if total is not None:
            total = amount(total)
        if message is not None:
            message = text_of(message)
        if call.as_task is not None and self.task is not None:
            await self.task.report(number, total, message)
        elif call.meta is not None and call.meta.progress_token is not None:
            notices = self._notices
            if notices is None:
                notices = ProgressNotices(call, call.meta.progress_token, self._outer_services.links)
                self._notices = notices
            if notices.tell(number, total, message):
                await call.channel.wait_writable()
                return
        await self._breathe()

    progress = report_progress

    async def log(self, level: LogLevel, data: object, logger: str | None = None) -> None:
        """Send the client a log message, if it wants messages of this level."""
        if level not in LOG_LEVELS:
            raise ValueError(f"unknown log level {level!r}; one of {', '.join(LOG_LEVELS)}")
        call = self._call
        wanted = not call.cancelled and self._outer_services.wants_log(call, LOG_LEVELS[level])
        if not wanted or not self._outer_services.links.may_log(call):
            await self._breathe()
            return
        params: dict[str, Any] = {"level": level, "data": loggable(data)}
        if logger is not None:
            params["logger"] = logger
        if self.task is not None:
            self.task.log(params)
            await self._breathe()
            return
        call.channel.send(Notification(LOG_MESSAGE, params))
        await call.channel.wait_writable()

    async def close_stream(self) -> None:
        """Let go of the client's connection while the work goes on; the client comes back for the rest by itself.

        Does nothing where there is no stream to come back to: in the stateless era, and on other transports than HTTP.
        """
        self._call.channel.release()

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Send the client a notification of an extension, as part of this call."""
        call = self._call
        if call.cancelled:
            await self._breathe()
            return
        call.channel.send(Notification(method, dict(params)) if params else Notification(method))
        await call.channel.wait_writable()

    async def elicitation_complete(self, elicitation_id: str) -> None:
        """Tell the client that what its user was sent to a URL for is done, also after the call has ended.

        Does nothing where the revision has no such notification.
        """
        call = self._call
        links = self._outer_services.links
        channel = call.channel if links.running(call) else links.of(call).channel
        if channel is None or ELICITATION_COMPLETE in call.peer.revision.absent:
            await self._breathe()
            return
        channel.send(Notification(ELICITATION_COMPLETE, {"elicitationId": elicitation_id}))
        await channel.wait_writable()

    async def debug(self, data: object, logger: str | None = None) -> None:
        """Log at level debug."""
        await self.log("debug", data, logger)

    async def info(self, data: object, logger: str | None = None) -> None:
        """Log at level info."""
        await self.log("info", data, logger)

    async def warning(self, data: object, logger: str | None = None) -> None:
        """Log at level warning."""
        await self.log("warning", data, logger)

    async def error(self, data: object, logger: str | None = None) -> None:
        """Log at level error."""
        await self.log("error", data, logger)

    async def _breathe(self) -> None:
        """Yield to the event loop now and then: a handler that only reports would hold it for ever."""
        if self._outer_services.links.owes_a_turn(self._call):
            await asyncio.sleep(0)

    # -- what this client sees

    async def enable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Offer tools, resources or prompts to this session that are switched off; without one, to this principal."""
        self._outer_services.switch(self._call, self._services, names, tags, kind, on=True)

    async def disable(self, *names: str, tags: Iterable[str] = (), kind: str | None = None) -> None:
        """Hide tools, resources or prompts from this session; without one, from this principal."""
        self._outer_services.switch(self._call, self._services, names, tags, kind, on=False)

    async def list_tools(self) -> list[Tool]:
        """Return the tools of the server that this client sees."""
        return self._outer_services.listed("tool", self._call, self._services)

    async def list_resources(self) -> list[Resource]:
        """Return the resources of the server that this client sees."""
        return self._outer_services.listed("resource", self._call, self._services)

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """Return the resource templates of the server that this client sees."""
        return self._outer_services.listed("resource template", self._call, self._services)

    async def list_prompts(self) -> list[Prompt]:
        """Return the prompts of the server that this client sees."""
        return self._outer_services.listed("prompt", self._call, self._services)

    # -- the rest

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read one of the server's own resources."""
        return await self._services.read(uri, lambda: self._call)

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Fill in one of the server's own prompts."""
        return await self._services.fill(name, arguments, self._call)

    @property
    def sync(self) -> SyncContext:
        """The same calls for a plain `def` handler: each blocks the handler's own thread only."""
        return SyncContext(self, self._outer_services.changes.loop)

    @property
    def call(self) -> Call:
        """The call itself, for middleware and extensions."""
        return self._call


class MountedContext(Context[Any]):
    """The context of a handler whose server is mounted in another: `server` is its own, the client is the other's."""

    __slots__ = ("_outermost",)

    def __init__(self, outer: Services, call: Call, services: Services) -> None:
        super().__init__(call, services)
        self._outermost = outer

    @property
    def _outer_services(self) -> Services:
        return self._outermost
