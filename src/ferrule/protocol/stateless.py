"""The era of per-request metadata: 2026-07-28.

Every request says who asks; nothing is kept between requests. A handler that must ask ends its round with what it
needs, and is run again when the client retries with the answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType, structs

from ferrule.codes import ErrorCode
from ferrule.errors import (
    CapabilityNotSupported,
    Internal,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingCapability,
    Refusal,
    UnsupportedVersion,
)
from ferrule.protocol.call import Agreement, Call, Peer, Revision
from ferrule.protocol.capabilities import nested, require_client, require_extension
from ferrule.protocol.era import STANDARD_CODES, sendable
from ferrule.protocol.foreign import Foreign, kind_of, members_of, meta_of, read_as, spliced
from ferrule.protocol.needs import Answers, Journal, Need, Question
from ferrule.protocol.seal import Keyring, Seal, SealTooLarge, request_binding
from ferrule.protocol.tasks import TaskWish, acknowledged, input_request
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import Method
from ferrule.schema.model import (
    SERVER_INFO_KEY,
    CacheableResult,
    ClientCapabilities,
    EmptyResult,
    Implementation,
    Meta,
    Result,
)
from ferrule.schema.notices import ELICITATION_COMPLETE
from ferrule.schema.resources import PlainContents
from ferrule.schema.rounds import COMPLETE, INPUT_REQUIRED, InputRequest, InputRequired
from ferrule.schema.tasks import TASKS_EXTENSION, CancelTaskResult
from ferrule.schema.tools import ListToolsResult, PlainResult, Tool


def _no_execution(tool: Tool) -> Tool:
    if tool.execution is None:
        return tool
    return structs.replace(tool, execution=None)


def _listed(result: ListToolsResult) -> ListToolsResult:
    return structs.replace(result, tools=list(map(_no_execution, result.tools)))


def _no_tasks(capabilities: Any) -> object:
    if capabilities.tasks is None:
        return capabilities
    return structs.replace(capabilities, tasks=None)


NEWEST = Revision(
    "2026-07-28",
    nameless_id=UNSET,
    two_way=False,
    absent=frozenset({ELICITATION_COMPLETE}),
    trims={
        ListToolsResult: _listed,
        ServerCapabilities: _no_tasks,
        ClientCapabilities: _no_tasks,
        CancelTaskResult: acknowledged,
    },
)
REVISIONS = {NEWEST.version: NEWEST}

REPLACED_CODES = {
    ErrorCode.RESOURCE_NOT_FOUND.value: ErrorCode.INVALID_PARAMS.value,
    ErrorCode.MESSAGE_TOO_LARGE.value: ErrorCode.INVALID_REQUEST.value,
    ErrorCode.URL_ELICITATION_REQUIRED.value: ErrorCode.INVALID_REQUEST.value,
    ErrorCode.SERVER_ERROR.value: ErrorCode.INTERNAL_ERROR.value,
}
"""Numbers this revision forbids or discourages, and what stands for them."""

KNOWN_CODES = STANDARD_CODES | frozenset(
    {ErrorCode.HEADER_MISMATCH.value, ErrorCode.MISSING_CAPABILITY.value, ErrorCode.UNSUPPORTED_VERSION.value}
)

_read_responses = msgspec.json.Decoder(dict[str, Raw]).decode
_read_text = msgspec.json.Decoder(str).decode
_write = msgspec.json.Encoder().encode


class CacheHints(msgspec.Struct, frozen=True):
    """How long a result may be kept, and by whom."""

    ttl_ms: int = 0
    scope: str = "private"


NO_HINTS = CacheHints()

NOTHING_DECLARED: Mapping[str, object] = MappingProxyType({})
"""What a server has told a client of itself in a handshake, where there is none."""


class Sealing(msgspec.Struct, frozen=True):
    """The sealing of request state, with the clock and the randomness it is handed."""

    seal: Seal
    now: Callable[[], float]
    nonce: Callable[[], bytes]
    lifetime: float


class Stateless:
    """The rules of the stateless era."""

    def __init__(
        self,
        sealing: Sealing,
        *,
        implementation: Implementation | None = None,
        beside: tuple[str, ...] = (),
        hints: CacheHints = NO_HINTS,
    ) -> None:
        self.versions = tuple(REVISIONS)
        self.supported = [*self.versions, *beside]
        self._sealing = sealing
        self._hints = hints
        self._server = "" if implementation is None else implementation.name
        self._identity: dict[str, object] | None = None
        if implementation is not None:
            self._identity = {SERVER_INFO_KEY: Raw(_write(implementation))}
        self._plain_head = _write(EmptyResult(result_type=COMPLETE, meta=self._identity))[:-1] + b","
        """What stands before the members of a result that was written ahead."""
        hinted = {"ttlMs": hints.ttl_ms, "cacheScope": hints.scope}
        self._contents_head = self._plain_head + _write(hinted)[1:-1] + b","
        """The same, of a result that may be kept."""

    def seal_with(self, keys: Sequence[bytes | str]) -> None:
        """Seal and open states with other keys from now on: those that other processes have too."""
        self._sealing = msgspec.structs.replace(self._sealing, seal=Seal(Keyring(keys)))

    def admit(self, session: Agreement, row: Method, meta: Meta | None) -> Peer:
        """Return who asks from the request alone."""
        session.met_stateless = True
        if meta is None or meta.version is UNSET or meta.client_capabilities is UNSET:
            if meta is None or meta.version is UNSET:
                missing = "protocolVersion"
            else:
                missing = "clientCapabilities"
            raise InvalidParams(f"Missing _meta: io.modelcontextprotocol/{missing} is required on every request")
        revision = REVISIONS.get(meta.version)
        if revision is None:
            raise UnsupportedVersion(meta.version, self.supported)
        if not row.stateless:
            raise MethodNotFound(f"Method not found: {row.name}", {"method": row.name})
        info = meta.client_info
        level = meta.log_level
        return Peer(
            revision,
            meta.client_capabilities,
            None if info is UNSET else info,
            None if level is UNSET else level,
            NOTHING_DECLARED,
        )

    def recall(self, call: Call) -> Answers:
        """Open the sealed journal the client brought back, and read its answers."""
        journal = None
        if call.params.request_state is not None:
            self._sealing.seal.recognise(call.params.request_state)
            payload = self._sealing.seal.open(
                call.params.request_state, binding=self._binding(call), now=self._sealing.now()
            )
            journal = msgspec.json.decode(payload, type=Journal)
        return Answers(journal, _responses(call.params.input_responses))

    def _binding(self, call: Call) -> bytes:
        return request_binding(call.origin.principal, call.method, bytes(call.raw), self._server)

    def require(self, call: Call, question: Question) -> None:
        """Raise CapabilityNotSupported for what this request did not declare."""
        capabilities = call.peer.capabilities
        if isinstance(capabilities, ClientCapabilities):
            require_client(capabilities, question.method, question.params)

    def ask(self, call: Call, missing: Sequence[tuple[str, Question]]) -> list[Awaitable[Raw]]:
        """Raise Need: in this era the client gets no requests of ours, and the handler runs again with its answers."""
        if not call.row.may_ask:
            raise InvalidRequest(
                f"{call.method} cannot ask the client for input: in this revision tools, prompts and resources may"
            )
        for _, question in missing:
            self.require(call, question)
        raise Need(missing)

    def pause(self, call: Call, need: Need) -> InputRequired:
        """Return the result that names what is missing, with the journal of what is known sealed beside it."""
        if call.answers is not None:
            journal = call.answers.journal
        else:
            journal = Journal()
        requests = {key: input_request(question) for key, question in need.questions}
        return InputRequired(
            result_type=INPUT_REQUIRED,
            meta=self._identity,
            input_requests=requests,
            request_state=self._sealed(call, journal),
        )

    def _sealed(self, call: Call, journal: Journal) -> str:
        earlier = 1
        if call.answers is not None:
            earlier = call.answers.journal.round
        try:
            return self._sealing.seal.seal(
                _write(msgspec.structs.replace(journal, round=earlier + 1)),
                binding=self._binding(call),
                expires=self._sealing.now() + self._sealing.lifetime,
                nonce=self._sealing.nonce(),
            )
        except SealTooLarge as reason:
            raise Internal(f"{reason}; the largest entry is {_largest(journal)}") from None

    def shape_result(self, call: Call, result: object) -> object:
        """Mark a result as complete, with who made it and how long it may be kept."""
        if type(result) is PlainResult:
            return Raw(b"%b%b}" % (self._plain_head, result.members))
        if type(result) is PlainContents:
            return Raw(b"%b%b}" % (self._contents_head, result.members))
        if not isinstance(result, Result):
            if type(result) is Foreign:
                return self._relayed(call, result)
            return self._completed(result)
        if result.result_type is None:
            result.result_type = COMPLETE
        if result.meta is None:
            result.meta = self._identity
        elif self._identity is not None:
            result.meta = {**self._identity, **result.meta}
        if isinstance(result, CacheableResult):
            self._hint(result)
        trim = call.peer.revision.trims.get(type(result))
        if trim is None:
            return result
        return trim(result)

    def _relayed(self, call: Call, foreign: Foreign) -> object:
        """Say of another peer's result what we say of our own."""
        call.relayed = True
        row = call.row
        if row.result in call.peer.revision.trims and foreign.version not in self.versions:
            return self.shape_result(call, read_as(row, foreign.raw))
        if not row.cacheable:
            quick = spliced(foreign, self._plain_head)
            if quick is not None:
                return quick
        members = members_of(foreign)
        kind = kind_of(members)
        if kind == INPUT_REQUIRED:
            return self._relayed_round(call, members)
        if not kind:
            members["resultType"] = Raw(_write(COMPLETE))
        if row.cacheable:
            members.setdefault("ttlMs", Raw(_write(self._hints.ttl_ms)))
            members.setdefault("cacheScope", Raw(_write(self._hints.scope)))
        meta = {**meta_of(members), **(self._identity or {})}
        if meta:
            members["_meta"] = Raw(_write(meta))
        return members

    def _relayed_round(self, call: Call, members: dict[str, Raw]) -> InputRequired:
        """Ask what another peer asks, with its state inside ours: it is bound to this caller and this request."""
        try:
            requests = msgspec.json.decode(members.get("inputRequests", Raw(b"{}")), type=dict[str, InputRequest])
            state = _read_text(members.get("requestState", Raw(b'""')))
        except (msgspec.DecodeError, RecursionError) as reason:
            raise Internal(f"the server behind this one asks in a form that cannot be read: {reason}") from None
        for request in requests.values():
            params = {} if request.params is UNSET else msgspec.json.decode(request.params)
            self.require(call, Question(request.method, params))
        return InputRequired(
            result_type=INPUT_REQUIRED,
            meta=self._identity,
            input_requests=requests,
            request_state=self._sealed(call, Journal(relayed=state)),
        )

    def _completed(self, result: object) -> object:
        """Mark a result that is None or a dict, as extensions give; what is encoded already was marked before."""
        if result is not None and not isinstance(result, dict):
            return result
        given = result or {}
        completed = {"resultType": COMPLETE, **given}
        meta = {**(self._identity or {}), **(given.get("_meta") or {})}
        if meta:
            completed["_meta"] = meta
        return completed

    def _hint(self, result: CacheableResult) -> None:
        if result.result_type != COMPLETE:
            return
        if result.ttl_ms is None:
            result.ttl_ms = self._hints.ttl_ms
        if result.cache_scope is None:
            result.cache_scope = self._hints.scope  # type: ignore[assignment]

    def lacking(self, failure: CapabilityNotSupported) -> Refusal:
        """Return the refusal that names the capability the client would have to declare."""
        return MissingCapability(nested(failure.capability))

    def status(self, refusal: Refusal) -> int | None:
        """Return the HTTP status of a refusal, from which proxies see what it is."""
        if refusal.status is not None:
            return refusal.status
        return refusal.stateless_status

    def code(self, refusal: Refusal) -> int:
        """Return the number of a refusal; this revision replaces some."""
        return sendable(REPLACED_CODES.get(refusal.own_code, refusal.own_code), KNOWN_CODES)

    def data(self, refusal: Refusal) -> Any:
        """Return what a refusal tells besides its number and its message."""
        return refusal.data

    def task_wish(self, call: Call) -> TaskWish:
        """Return whether the request may be answered with a task, as it declares; whether it is, the server decides."""
        if call.peer.extension(TASKS_EXTENSION) is None:
            return TaskWish.NO
        return TaskWish.ALLOWED

    def task_demanded(self, tool: str) -> Refusal:
        """Return the refusal that names the extension the client would have to declare."""
        return MissingCapability({"extensions": {TASKS_EXTENSION: {}}}, f"The tool {tool} runs as a task only")

    def admit_to_tasks(self, call: Call) -> None:
        """Raise MissingCapability unless the request declares the extension."""
        require_extension(call.peer, TASKS_EXTENSION)


def _responses(raw: Raw | UnsetType) -> dict[str, Raw]:
    if raw is UNSET:
        return {}
    try:
        return _read_responses(raw)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise InvalidParams(f"Invalid inputResponses: {reason}") from None


def _largest(journal: Journal) -> str:
    if journal.relayed:
        return "the state of the server behind this one"
    entries = {**journal.answers, **journal.steps}
    return max(entries, key=lambda key: len(bytes(entries[key].value)))
