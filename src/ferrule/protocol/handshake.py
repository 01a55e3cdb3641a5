"""The era of `initialize`: 2024-11-05, 2025-03-26, 2025-06-18 and 2025-11-25.

Who the peer is was agreed once and is kept in the session; questions to the client are requests it waits for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from ferrule.codes import ErrorCode
from ferrule.errors import (
    CapabilityNotSupported,
    HeaderMismatch,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    NotInitialized,
    Refusal,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from ferrule.protocol.call import Agreement, Call, Peer, Revision
from ferrule.protocol.capabilities import require_client
from ferrule.protocol.era import STANDARD_CODES, sendable
from ferrule.protocol.foreign import Foreign, read_as, without_stateless
from ferrule.protocol.needs import Answers, Need, Question
from ferrule.protocol.session import Phase, Session
from ferrule.protocol.tasks import TaskWish, first_form, wrapped
from ferrule.protocol.trims import (
    as_invalid_request,
    each,
    empty,
    no_hints,
    no_icons,
    no_meta,
    object_content,
    object_rooted,
    old_client,
    old_message,
    old_prompt,
    old_prompt_item,
    old_result,
    old_sampled,
    oldest_item,
    oldest_sampled,
    plain_form,
    single_content,
    without,
    written_ahead,
)
from ferrule.schema.completion import CompletionContext, PromptReference
from ferrule.schema.lifecycle import InitializeParams, InitializeResult, ServerCapabilities
from ferrule.schema.methods import Method
from ferrule.schema.model import (
    ClientCapabilities,
    Implementation,
    Meta,
)
from ferrule.schema.notices import ELICITATION_COMPLETE, ProgressParams
from ferrule.schema.prompts import GetPromptResult, ListPromptsResult
from ferrule.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PlainContents,
    ReadResourceResult,
)
from ferrule.schema.roots import ListRootsResult
from ferrule.schema.sampling import CreateMessageResult
from ferrule.schema.tasks import TASKS_EXTENSION, CancelTaskResult, CreateTaskResult, ListTasksResult, Task
from ferrule.schema.tools import CallToolResult, ListToolsResult, PlainResult


class Numbers(Struct, frozen=True):
    """The two numbers that an error has in the profile `erlmcp` (`Server(error_profile="erlmcp")`)."""

    code: int
    """The error's own number."""
    refusal: int
    """The reason, from 1001 to 1089, as `refusal` in the error's data."""


ERLMCP: dict[str, Numbers] = {
    "ParseError": Numbers(ErrorCode.PARSE_ERROR.value, 1070),
    "InvalidRequest": Numbers(ErrorCode.INVALID_REQUEST.value, 1066),
    "MethodNotFound": Numbers(ErrorCode.METHOD_NOT_FOUND.value, 1007),
    "InvalidParams": Numbers(ErrorCode.INVALID_PARAMS.value, 1021),
    "Internal": Numbers(ErrorCode.INTERNAL_ERROR.value, 1079),
    "Busy": Numbers(ErrorCode.SERVER_ERROR.value, 1081),
    "Overloaded": Numbers(ErrorCode.SERVER_ERROR.value, 1085),
    "NoTarget": Numbers(ErrorCode.SERVER_ERROR.value, 1086),
    "StoreUnavailable": Numbers(ErrorCode.SERVER_ERROR.value, 1081),
    "RateLimited": Numbers(ErrorCode.RATE_LIMITED.value, 1003),
    "ResourceNotFound": Numbers(ErrorCode.RESOURCE_MISSING.value, 1046),
    "ToolNotFound": Numbers(ErrorCode.TOOL_MISSING.value, 1048),
    "PromptNotFound": Numbers(ErrorCode.PROMPT_MISSING.value, 1050),
    "CapabilityOff": Numbers(ErrorCode.CAPABILITY_OFF.value, 1007),
    "NotInitialized": Numbers(ErrorCode.NOT_INITIALIZED.value, 1076),
    "MessageTooLarge": Numbers(ErrorCode.MESSAGE_TOO_LARGE.value, 1068),
    "InvalidUri": Numbers(ErrorCode.INVALID_URI.value, 1023),
    "ToolFailed": Numbers(ErrorCode.TOOL_FAILED.value, 1079),
    "ToolTimedOut": Numbers(ErrorCode.TOOL_TIMED_OUT.value, 1069),
    "ResultTooLarge": Numbers(ErrorCode.RESULT_TOO_LARGE.value, 1068),
    "ToolBusy": Numbers(ErrorCode.TOOL_BUSY.value, 1081),
    "Forbidden": Numbers(ErrorCode.INVALID_REQUEST.value, 1014),
    "OfferRefused": Numbers(ErrorCode.OFFER_REFUSED.value, 1027),
}
"""The numbers of that profile, by class of refusal. What is not here keeps the specification's number; in the stateless
era everything does."""


LATER_EXTENSIONS = frozenset({TASKS_EXTENSION})
"""Extensions of the stateless era only; this one has tasks of its own."""

ALWAYS_ALLOWED = frozenset({"initialize", "ping"})

KNOWN_CODES = (
    STANDARD_CODES
    | frozenset(
        {
            ErrorCode.SERVER_ERROR.value,
            ErrorCode.RESOURCE_NOT_FOUND.value,
            ErrorCode.MESSAGE_TOO_LARGE.value,
            ErrorCode.HEADER_MISMATCH.value,
            ErrorCode.MISSING_CAPABILITY.value,
            ErrorCode.UNSUPPORTED_VERSION.value,
            ErrorCode.URL_ELICITATION_REQUIRED.value,
        }
    )
    | frozenset(numbers.code for numbers in ERLMCP.values())
)


class OfferRefused(UnsupportedVersion):
    """The version offered in `initialize` is not met with another: there is none, or the profile forbids it."""


LATER_REFUSALS = dict.fromkeys((HeaderMismatch, MissingCapability, UnsupportedVersion), as_invalid_request)
"""What only the next era has a number for, when a handler raises it in this one."""

BEFORE_TASKS = frozenset({"tasks/get", "tasks/result", "tasks/list", "tasks/cancel"})
"""What revisions without tasks do not have."""

NEWEST = Revision(
    "2025-11-25",
    nameless_id=UNSET,
    tasks_by_request=True,
    polls=True,
    trims={
        **LATER_REFUSALS,
        type(None): empty,
        ReadResourceResult: no_hints,
        ListToolsResult: each("tools", object_rooted),
        CallToolResult: object_content,
        PlainResult: written_ahead,
        PlainContents: written_ahead,
        ServerCapabilities: without("extensions"),
        ClientCapabilities: without("extensions"),
        Task: first_form,
        CreateTaskResult: wrapped,
        CancelTaskResult: first_form,
        ListTasksResult: each("tasks", first_form),
    },
)

BEFORE_ICONS = Revision(
    "2025-06-18",
    nameless_id=None,
    faults_in_results=False,
    absent=BEFORE_TASKS | {ELICITATION_COMPLETE},
    trims={
        **LATER_REFUSALS,
        type(None): empty,
        ReadResourceResult: no_hints,
        ListToolsResult: each("tools", lambda tool: without("icons", "execution")(object_rooted(tool))),
        ListResourcesResult: each("resources", no_icons),
        ListResourceTemplatesResult: each("resource_templates", no_icons),
        ListPromptsResult: each("prompts", no_icons),
        CallToolResult: lambda result: object_content(each("content", no_icons)(result)),
        PlainResult: written_ahead,
        PlainContents: written_ahead,
        GetPromptResult: each("messages", lambda m: structs.replace(m, content=no_icons(m.content))),
        Implementation: without("description", "website_url", "icons"),
        ServerCapabilities: without("extensions", "tasks"),
        ClientCapabilities: old_client(),
        CreateMessageResult: old_sampled,
        UrlElicitationRequired: as_invalid_request,
    },
)


def _old(version: str, *, audio: bool, batches: bool, gone: tuple[str, ...], capabilities: tuple[str, ...]) -> Revision:
    """Return one of the two oldest revisions; `gone` names the members that tools did not have yet."""
    trims: dict[type, Callable[[Any], Any]] = {
        **LATER_REFUSALS,
        type(None): empty,
        ReadResourceResult: lambda result: each("contents", no_meta)(no_hints(result)),
        ListToolsResult: each("tools", without(*gone)),
        ListResourcesResult: each("resources", oldest_item),
        ListResourceTemplatesResult: each("resource_templates", oldest_item),
        ListPromptsResult: each("prompts", old_prompt_item),
        CallToolResult: old_result(audio=audio),
        PlainResult: lambda result: old_result(audio=audio)(result.whole()),
        PlainContents: written_ahead,
        GetPromptResult: old_prompt(audio=audio),
        Implementation: without("title", "description", "website_url", "icons"),
        ServerCapabilities: without(*capabilities),
        ClientCapabilities: old_client("elicitation"),
        CreateMessageResult: oldest_sampled,
        UrlElicitationRequired: as_invalid_request,
        ListRootsResult: each("roots", without("meta")),
        PromptReference: without("title"),
        CompletionContext: lambda _: None,
    }
    if not batches:
        # Messages of progress came with the revision that had batches.
        trims[ProgressParams] = without("message")
    return Revision(
        version,
        nameless_id=None,
        batches=batches,
        faults_in_results=False,
        absent=BEFORE_TASKS | {"elicitation/create", ELICITATION_COMPLETE},
        trims=trims,
    )


WITH_BATCHES = _old(
    "2025-03-26",
    audio=True,
    batches=True,
    gone=("title", "output_schema", "icons", "execution", "meta"),
    capabilities=("extensions", "tasks"),
)
OLDEST = _old(
    "2024-11-05",
    audio=False,
    batches=False,
    gone=("title", "output_schema", "icons", "execution", "meta", "annotations"),
    capabilities=("extensions", "tasks", "completions"),
)

HEADERLESS = WITH_BATCHES.version
"""What an HTTP request without session and version header is taken to speak: later revisions demand the header."""

REVISIONS = {revision.version: revision for revision in (NEWEST, BEFORE_ICONS, WITH_BATCHES, OLDEST)}


LISTS = frozenset({ListToolsResult, ListTasksResult, CancelTaskResult})
"""Results that another peer gave and that are read before they are handed on: their items have another form here."""


class Handshake:
    """The rules of the handshake era."""

    def __init__(
        self, versions: tuple[str, ...] = tuple(REVISIONS), *, erlmcp_codes: bool = False, strict: bool = False
    ) -> None:
        self.versions = tuple(version for version in REVISIONS if version in versions)
        self._numbers = ERLMCP if erlmcp_codes else {}
        self._strict = strict or erlmcp_codes

    def admit(self, session: Agreement, row: Method, meta: Meta | None) -> Peer:
        """Return who asks: whoever made the handshake; before it, only `initialize` and `ping` are answered."""
        session.met_stateless = False
        peer = session.peer
        if peer is None:
            if row.name not in ALWAYS_ALLOWED:
                raise NotInitialized(data={"method": row.name})
            return STRANGER
        if row.name == "initialize":
            raise InvalidRequest("Already initialized: this session has made its handshake")
        if not row.handshake or row.name in peer.revision.absent:
            raise MethodNotFound(f"Method not found: {row.name}", {"method": row.name})
        return peer

    def stranger(self, version: str) -> Peer:
        """Return the peer that speaks a revision and never made its handshake: nothing is known of what it can do."""
        return Peer(REVISIONS[version], ClientCapabilities())

    def offered(self, version: str) -> Revision:
        """Return the revision to answer an offer with: the one offered, else our newest."""
        if version in self.versions:
            return REVISIONS[version]
        return REVISIONS[self.versions[0]]

    def open(self, session: Session, params: InitializeParams, declared: dict[str, object]) -> Revision:
        """Make the handshake on the server's side."""
        asked = params.protocol_version
        if asked not in self.versions and (self._strict or not self.versions):
            raise OfferRefused(asked, self.versions or session.eras.stateless.versions)
        revision = self.offered(asked)
        session.agree(Peer(revision, params.capabilities, params.client_info, None, declared))
        return revision

    def opened(self, session: Session, result: InitializeResult, offered: ClientCapabilities) -> bool:
        """Make the handshake on the client's side; False when the server answers with a version we do not speak."""
        revision = REVISIONS.get(result.protocol_version)
        if revision is None or revision.version not in self.versions:
            session.enter(Phase.ERROR)
            return False
        session.agree(Peer(revision, result.capabilities, result.server_info))
        return True

    def recall(self, call: Call) -> Answers:
        """Nothing is run twice in this era, so there is nothing to recall."""
        return Answers()

    def require(self, call: Call, question: Question) -> None:
        """Raise CapabilityNotSupported for what the agreed revision does not have or the client did not declare."""
        peer = call.peer
        if question.method in peer.revision.absent:
            raise CapabilityNotSupported(question.method.partition("/")[0])
        if isinstance(peer.capabilities, ClientCapabilities):
            require_client(peer.capabilities, question.method, _gated(question.params, peer.revision))

    def ask(self, call: Call, missing: Sequence[tuple[str, Question]]) -> list[Awaitable[Raw]]:
        """Send the questions as requests on the call's own channel, to be waited for in place."""
        requests = []
        for _, question in missing:
            self.require(call, question)
            requests.append((question.method, _older_question(question, call.peer.revision)))
        return [call.link.ask(method, params, call.channel) for method, params in requests]

    def pause(self, call: Call, need: Need) -> object:
        """No handler is interrupted in this era."""
        raise InvalidRequest("this revision cannot ask inside a result")

    def shape_result(self, call: Call, result: object) -> object:
        """Leave out what the agreed revision does not have."""
        trim = call.peer.revision.trims.get(type(result))
        if trim is None:
            if type(result) is Foreign:
                return self._relayed(call, result)
            return result
        return trim(result)

    def _relayed(self, call: Call, foreign: Foreign) -> object:
        """Leave out of another peer's result what the agreed revision does not have."""
        call.relayed = True
        revision = call.peer.revision
        if foreign.version == revision.version:
            return foreign.raw
        if revision is NEWEST and call.row.result not in LISTS:
            if foreign.version in REVISIONS:
                return foreign.raw
            return without_stateless(foreign)
        members = without_stateless(foreign)
        return self.shape_result(call, read_as(call.row, msgspec.json.encode(members)))

    def lacking(self, failure: CapabilityNotSupported) -> Refusal:
        """Return the refusal for a missing client capability: an invalid request, for there is no number of its own."""
        return InvalidRequest(f"This request needs the client capability {failure.capability!r}")

    def status(self, refusal: Refusal) -> int | None:
        """Return the HTTP status of a refusal, where it has one; most errors are answers like any other."""
        return refusal.status

    def code(self, refusal: Refusal) -> int:
        """Return the number of a refusal: the specification's, or that of the `erlmcp` profile."""
        if isinstance(refusal, OfferRefused) and self.versions and not self._numbers:
            return InvalidParams.code
        known = self._numbers.get(type(refusal).__name__)
        # A number that was given by hand is meant; only the class's own is another in the profile.
        has_class_code = refusal.own_code == refusal.code
        if known is not None and has_class_code:
            return sendable(known.code, KNOWN_CODES)
        return sendable(refusal.own_code, KNOWN_CODES)

    def data(self, refusal: Refusal) -> Any:
        """Return what a refusal tells besides; in the `erlmcp` profile with the number of its reason."""
        known = self._numbers.get(type(refusal).__name__)
        if known is None or not (refusal.data is None or isinstance(refusal.data, dict)):
            return refusal.data
        return {**(refusal.data or {}), "refusal": known.refusal}

    def task_wish(self, call: Call) -> TaskWish:
        """Return whether the request asks to become a task, by a member of its params."""
        if not call.peer.revision.tasks_by_request:
            return TaskWish.UNKNOWN
        if call.params.task is UNSET:
            return TaskWish.NO
        return TaskWish.ASKED

    def task_demanded(self, tool: str) -> Refusal:
        """Return the refusal of a call that is not a task: no such method."""
        return MethodNotFound(f"The tool {tool} runs as a task only: call it with the member `task`", {"tool": tool})

    def admit_to_tasks(self, call: Call) -> None:
        """Return: whoever made the handshake may ask."""


STRANGER = Peer(OLDEST, ClientCapabilities())
"""A peer before its handshake."""


def _older_question(question: Question, revision: Revision) -> dict[str, object]:
    """Write a question in the words of the agreed revision."""
    params = question.params
    if revision is NEWEST:
        return params
    if question.method == "elicitation/create":
        return plain_form(params)
    if question.method == "sampling/createMessage":
        before_metadata = revision is not BEFORE_ICONS
        messages = []
        for message in params["messages"]:
            messages.append(old_message(single_content(message), before_metadata=before_metadata))
        return {**params, "messages": messages}
    return params


def _gated(params: dict[str, object], revision: Revision) -> dict[str, object]:
    """Return the params by which a capability is demanded: `includeContext` needed none at first."""
    if revision is NEWEST:
        return params
    gated = dict(params)
    gated.pop("includeContext", None)
    return gated
