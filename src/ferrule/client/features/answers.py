"""What a client answers: sampling, elicitation and roots, in either era by the same functions."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from ferrule.balancing.token_bucket import TokenBucket
from ferrule.budgets.bounds import MAX_URI_LENGTH
from ferrule.client.features.root_access import RootAccess, is_inside
from ferrule.errors import Declined, InvalidParams, MethodNotFound, RateLimited, Refusal, SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler, Instant
from ferrule.schema.content import TextContent, ToolResultContent, ToolUseContent
from ferrule.schema.elicitation import ElicitParams, ElicitResult
from ferrule.schema.keys import check_extensions
from ferrule.schema.model import (
    ClientCapabilities,
    ElicitationCapability,
    EmptyResult,
    RootsCapability,
    SamplingCapability,
)
from ferrule.schema.roots import ListRootsResult, Root
from ferrule.schema.sampling import CreateMessageParams, CreateMessageResult, SamplingMessage
from ferrule.validation.checker import foreign_checker
from ferrule.wire.messages import Id

if TYPE_CHECKING:
    from ferrule.runtime.tasks.settings import TaskSettings

logger = logging.getLogger("ferrule.client")

AnswerHandler = Callable[[Any], Any]

_read_sampling = msgspec.json.Decoder(CreateMessageParams).decode
_read_elicitation = msgspec.json.Decoder(ElicitParams).decode
EMPTY = Raw(b"{}")

COSTLY = ("sampling/createMessage", "elicitation/create")
"""Questions that take a model's or a person's time."""

USER_REFUSED = -1
"""What a server is told when the user refuses to let the model be asked."""


class AskedOn(Struct, frozen=True):
    """The call of ours on which a server asks its question."""

    id: Id | None
    """The id of our request, or of the task it became."""
    method: str
    subject: str | None = None
    """The tool, prompt or resource that was asked for."""
    caller: object = None
    """What was given with the call, as in `Client.forward(…, caller=…)`."""


ASKED_ON: ContextVar[AskedOn | None] = ContextVar("ferrule_asked_on", default=None)
"""Set while a question is answered, for the handler that answers it."""


def root(given: str | Path | Root | Mapping[str, object]) -> Root:
    """Make a root of a path, a file URI or a root."""
    if isinstance(given, Mapping):
        given = msgspec.convert(given, Root)
    if not isinstance(given, Root | str | Path):
        raise SetupError(f"a root is the path or the file URI of a folder, not {given!r}")
    if not isinstance(given, Root):
        text = str(given)
        if "://" not in text:
            text = Path(text).resolve().as_uri()
        given = Root(uri=text)
    if not given.uri.startswith("file://") or not is_inside(given.uri):
        raise SetupError(f"a root is the path or the file URI of a folder, without '..', not {given.uri!r}")
    return given


def _listed(roots: Iterable[Any]) -> list[Root]:
    # Letter by letter, the text of a path would offer the root of the file system.
    if isinstance(roots, str | Path | Root | Mapping) or not isinstance(roots, Iterable):
        raise SetupError(f"Client: roots must be a list of folders, or a function that gives one: write [{roots!r}]")
    return list(map(root, roots))


def _require_functions(**handlers: object) -> None:
    for name, handler in handlers.items():
        if handler is not None and not callable(handler):
            raise SetupError(f"Client: {name} must be a function of the question, not {handler!r}")


class QuestionHandlers:
    """The questions one client can answer."""

    def __init__(
        self,
        sampling: AnswerHandler | None = None,
        elicitation: AnswerHandler | None = None,
        url_elicitation: AnswerHandler | None = None,
        roots: Iterable[object] | Callable[[], object] | None = None,
        *,
        sampling_tools: bool = False,
        sampling_context: bool = False,
        extensions: Mapping[str, object] | None = None,
        rate: float | None = None,
        tasks: TaskSettings | None = None,
    ) -> None:
        _require_functions(sampling=sampling, elicitation=elicitation, url_elicitation=url_elicitation)
        self.sampling = sampling
        self.tasks = tasks
        """How questions that become tasks are kept; None where none does."""
        self.elicitation = elicitation
        self.url_elicitation = url_elicitation
        self.sampling_tools = sampling_tools
        self.sampling_context = sampling_context
        check_extensions(extensions or (), "Client")
        self.extensions: dict[str, Any] | None = None
        if extensions:
            self.extensions = dict(extensions)
        self._paces: dict[str, TokenBucket] = {}
        if rate:
            for kind in COSTLY:
                self._paces[kind] = TokenBucket(rate, max(rate, 1.0))
        self.roots_source: Callable[[], object] | None = None
        self.roots: list[Root] | None = None
        if callable(roots):
            self.roots_source = roots
        elif roots is not None:
            self.roots = _listed(roots)
        self.root_access = RootAccess(_in_thread)

    def keep_roots(self, roots: list[Root]) -> None:
        """Work in these folders from now on."""
        if self.roots_source is not None:
            raise SetupError("the roots of this client come from a function: change what it gives")
        self.roots = roots

    @property
    def capabilities(self) -> ClientCapabilities:
        """What this client declares: just what it can answer."""
        sampling = elicitation = roots = None
        if self.sampling is not None:
            sampling = SamplingCapability(
                tools={} if self.sampling_tools else None, context={} if self.sampling_context else None
            )
        if self.elicitation is not None or self.url_elicitation is not None:
            elicitation = ElicitationCapability(
                form={} if self.elicitation is not None else None, url={} if self.url_elicitation is not None else None
            )
        if self.roots is not None or self.roots_source is not None:
            roots = RootsCapability(list_changed=True)
        return ClientCapabilities(
            sampling=sampling,
            elicitation=elicitation,
            roots=roots,
            tasks=self._declared_tasks(sampling is not None, elicitation is not None),
            extensions=self.extensions,
        )

    def _declared_tasks(self, sampling: bool, elicitation: bool) -> dict[str, Any] | None:
        if self.tasks is None or not (sampling or elicitation):
            return None
        requests: dict[str, Any]
        if sampling:
            requests = {"sampling": {"createMessage": {}}}
        else:
            requests = {}
        return self.tasks.declared(requests | ({"elicitation": {"create": {}}} if elicitation else {}))

    def handlers(self) -> dict[str, Handler]:
        """The questions as requests of a server."""
        names = ("sampling/createMessage", "elicitation/create", "roots/list")
        return dict.fromkeys(names, self._requested)

    def instant(self) -> dict[str, Instant]:
        """What is answered on the spot."""
        return {"ping": lambda _call: EmptyResult()}

    async def _requested(self, call: Call) -> Any:
        try:
            return await self.answer(call.method, call.raw)
        except Declined:
            raise Refusal("User rejected the request", code=USER_REFUSED) from None

    async def answer_on(self, asked_on: AskedOn, method: str, params: Raw | bytes | UnsetType) -> Any:
        """Answer as `answer` does, for a handler that wants to know on which call the question came."""
        token = ASKED_ON.set(asked_on)
        try:
            return await self.answer(method, params)
        finally:
            ASKED_ON.reset(token)

    async def answer(self, method: str, params: Raw | bytes | UnsetType) -> Any:
        """Answer one question; raises Refusal for one this client cannot answer, Declined for one its user refuses."""
        if self._paces:
            self._take_turn(method)
        raw = EMPTY if params is UNSET else params
        try:
            if method == "sampling/createMessage":
                question: Any = _read_sampling(raw)
            elif method == "elicitation/create":
                question = _read_elicitation(raw)
        except (msgspec.DecodeError, RecursionError) as reason:
            raise InvalidParams(f"Invalid params: {reason}") from None
        if method == "sampling/createMessage":
            return await self._sample(question)
        if method == "elicitation/create":
            return await self._elicit(question)
        if method == "roots/list" and (self.roots is not None or self.roots_source is not None):
            return await self._list_roots()
        raise MethodNotFound(f"Method not found: {method}", {"method": method})

    def _take_turn(self, method: str) -> None:
        """Refuse a question that comes too soon after those before it."""
        pace = self._paces.get(method)
        now = asyncio.get_running_loop().time()
        if pace is not None and not pace.take(now):
            raise RateLimited(pace.wait(now))

    async def _sample(self, params: CreateMessageParams) -> CreateMessageResult:
        if self.sampling is None:
            raise MethodNotFound("Method not found: this client has no model", {"capability": "sampling"})
        if (params.tools is not None or params.tool_choice is not None) and not self.sampling_tools:
            raise InvalidParams("Invalid params: this client did not declare sampling.tools")
        check_tool_use(params.messages)
        value = await _called(self.sampling, params)
        if value is None or value is False:
            raise Declined("decline")
        return _sampled(value)

    async def _elicit(self, params: ElicitParams) -> ElicitResult:
        handler = self.url_elicitation if params.mode == "url" else self.elicitation
        if handler is None:
            if self.url_elicitation is None and self.elicitation is None:
                raise MethodNotFound("Method not found: this client cannot ask", {"capability": "elicitation"})
            raise InvalidParams(f"Invalid params: this client did not declare elicitation mode {params.mode or 'form'}")
        if params.mode == "url" and (wrong := wrong_with_url(params.url or "")):
            logger.warning("the server wants a URL opened that %s; it is refused", wrong)
            raise InvalidParams(f"Invalid params: url {wrong}")
        try:
            result = _elicited(await _called(handler, params))
        except Declined as declined:
            return ElicitResult(action="cancel" if declined.action == "cancel" else "decline")
        if result.action != "accept" or params.mode == "url":
            return structs.replace(result, content=None)
        return structs.replace(result, content=_checked(result.content or {}, params.requested_schema or {}))

    async def _list_roots(self) -> ListRootsResult:
        given: Any = self.roots or ()
        if self.roots_source is not None:
            given = self.roots_source()
            if inspect.isawaitable(given):
                given = await given
        return ListRootsResult(roots=await self.root_access.readable(list(map(root, given))))


async def _called(handler: AnswerHandler, params: object) -> Any:
    """Call a handler; a plain function runs in a thread, since it may wait for a person."""
    if inspect.iscoroutinefunction(handler):
        return await handler(params)
    value = await _in_thread(lambda: handler(params))
    if inspect.isawaitable(value):
        return await value
    return value


async def _in_thread(work: Callable[[], object]) -> Any:
    """Run work in a thread of its own, which keeps no process alive: the person may never answer."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()

    def settle(value: object, error: BaseException | None) -> None:
        if not done.done():
            done.set_result((value, error))

    def run() -> None:
        value = None
        error = None
        try:
            value = context.run(work)
        except BaseException as raised:  # handed to whoever waits
            error = raised
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, value, error)

    context = contextvars.copy_context()
    threading.Thread(target=run, name="ferrule-question", daemon=True).start()
    value, error = await done
    if error is not None:
        raise error
    return value


def wrong_with_url(url: str) -> str:
    """Return what is wrong with a URL that a server wants a user to visit; empty when nothing is (RFC 3986 §3)."""
    if len(url) > MAX_URI_LENGTH:
        return f"is longer than {MAX_URI_LENGTH} characters"
    if any(character <= " " or character in "\x7f\\" for character in url):
        return "has spaces, control characters or backslashes in it"
    try:
        parts = urlsplit(url)
        host = parts.hostname
        _ = parts.port
    except ValueError:
        return "cannot be read"
    if parts.scheme not in ("http", "https") or not host:
        return "is not an absolute http or https URL"
    if "@" in parts.netloc:
        return "has credentials in it"
    return ""


def _sampled(value: Any) -> CreateMessageResult:
    """Read what a model gave: a result, its members, text, or content blocks."""
    if isinstance(value, CreateMessageResult):
        return value
    members: dict[str, Any] = {"role": "assistant", "model": "unknown"}
    whole = isinstance(value, Mapping) and "content" in value
    members.update(value if whole else {"content": value, "stopReason": "endTurn"})
    if isinstance(members["content"], str):
        members["content"] = TextContent(members["content"])
    try:
        return msgspec.convert(msgspec.to_builtins(members), CreateMessageResult)
    except (TypeError, msgspec.ValidationError) as reason:
        raise SetupError(f"the sampling handler gave no message: {reason}") from None


def _elicited(value: object) -> ElicitResult:
    """Read what a handler gave: a result, the content of an accepted form, an action, or a yes or no."""
    if isinstance(value, ElicitResult):
        return value
    if value in ("accept", "decline", "cancel"):
        return ElicitResult(action=value)
    if isinstance(value, Mapping):
        if value.get("action") in ("accept", "decline", "cancel"):
            return msgspec.convert(value, ElicitResult)
        return ElicitResult(action="accept", content=dict(value))
    if value is None or value is False:
        return ElicitResult(action="decline")
    if value is True:
        return ElicitResult(action="accept")
    if hasattr(value, "action"):
        return ElicitResult(action=value.action, content=getattr(value, "content", None))
    content = msgspec.to_builtins(value)
    if not isinstance(content, dict):
        raise SetupError(f"the elicitation handler gave {value!r}: give the form's values by name, or an action")
    return ElicitResult(action="accept", content=content)


def _checked(content: dict[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in the form's defaults, and refuse to send an answer that does not fit it."""
    properties = schema.get("properties") or {}
    defaults = {}
    for name, rules in properties.items():
        if isinstance(rules, dict) and "default" in rules:
            defaults[name] = rules["default"]
    filled = {**defaults, **content}
    if not properties:
        return filled
    try:
        checker = foreign_checker(schema, "the requested schema")
    except SetupError as reason:
        raise InvalidParams(f"Invalid params: {reason}") from None
    found = checker.violations(filled, len(msgspec.json.encode(filled)))
    if found:
        raise InvalidParams(f"The answer does not fit the requested schema: {found[0].path}: {found[0].message}")
    return filled


def check_tool_use(messages: list[SamplingMessage]) -> None:
    """Every use of a tool is answered by the next message, and answers stand alone."""
    open_uses: set[str] = set()
    for message in messages:
        if isinstance(message.content, list):
            blocks = message.content
        else:
            blocks = [message.content]
        answers = set()
        for block in blocks:
            if isinstance(block, ToolResultContent):
                answers.add(block.tool_use_id)
        if answers and not (message.role == "user" and all(isinstance(block, ToolResultContent) for block in blocks)):
            raise InvalidParams("Invalid params: a message with tool results is the user's and may hold nothing else")
        if open_uses != answers:
            raise InvalidParams("Invalid params: every tool use must be answered by the next message")
        open_uses = set()
        for block in blocks:
            if isinstance(block, ToolUseContent):
                open_uses.add(block.id)
    if open_uses:
        raise InvalidParams("Invalid params: every tool use must be answered by the next message")
