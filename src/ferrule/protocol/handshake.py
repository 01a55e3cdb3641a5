"""The era of `initialize`: 2024-11-05, 2025-03-26, 2025-06-18 and 2025-11-25.

Who the peer is was agreed once and is kept in the session; questions to the client are requests it waits for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from msgspec import UNSET, Raw, structs

from ferrule.errors import (
    CapabilityNotSupported,
    InvalidRequest,
    MethodNotFound,
    NotInitialized,
    Refusal,
)
from ferrule.protocol.call import Call, Peer, Revision
from ferrule.protocol.capabilities import require_client
from ferrule.protocol.needs import Answers, Need, Question
from ferrule.protocol.session import Phase, Session
from ferrule.schema.content import AudioContent, EmbeddedResource, ResourceContents, ResourceLink, TextContent
from ferrule.schema.lifecycle import InitializeParams, InitializeResult, ServerCapabilities
from ferrule.schema.methods import Method
from ferrule.schema.model import Annotations, ClientCapabilities, Implementation, Meta
from ferrule.schema.prompts import GetPromptResult, ListPromptsResult, Prompt, PromptMessage
from ferrule.schema.resources import ListResourcesResult, ListResourceTemplatesResult
from ferrule.schema.tools import CallToolResult, ListToolsResult, Tool

ALWAYS_ALLOWED = frozenset({"initialize", "ping"})

SEED_CODES: dict[str, int] = {
    "ResourceNotFound": -32001,
    "ToolNotFound": -32002,
    "PromptNotFound": -32003,
    "CapabilityOff": -32004,
    "NotInitialized": -32005,
    "InvalidUri": -32022,
}
"""The numbers of the `erlmcp` error profile, where they differ from the specification's."""


def _without(*fields: str) -> Callable[[Any], Any]:
    """Make a function that leaves members out, on a copy."""

    def trim(value: Any) -> Any:
        gone = {name: None for name in fields if getattr(value, name, None) is not None}
        return structs.replace(value, **gone) if gone else value

    return trim


def _each(member: str, trim: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Make a function that trims every element of a list member."""

    def trim_all(value: Any) -> Any:
        return structs.replace(value, **{member: [trim(item) for item in getattr(value, member)]})

    return trim_all


def _object_rooted(tool: Tool) -> Tool:
    """Before 2026-07-28 an output schema is an object at its root; a tool that has another shows none."""
    schema = tool.output_schema
    if schema is None or schema.get("type") == "object":
        return tool
    return structs.replace(tool, output_schema=None)


def _object_content(result: CallToolResult) -> CallToolResult:
    value = result.structured_content
    if value is None or isinstance(value, dict):
        return result
    if isinstance(value, Raw) and bytes(value).lstrip()[:1] == b"{":
        return result
    return structs.replace(result, structured_content=None)


def _old_block(block: Any, *, audio: bool, link: bool) -> Any:
    """Say the same with the content types an older revision has."""
    if not audio and isinstance(block, AudioContent):
        contents = ResourceContents(uri=f"data:{block.mime_type}", mime_type=block.mime_type, blob=block.data)
        return EmbeddedResource(contents)
    if not link and isinstance(block, ResourceLink):
        return TextContent(f"{block.title or block.name}: {block.uri}")
    annotations = block.annotations
    if not link and annotations is not None and annotations.last_modified is not None:
        block = structs.replace(block, annotations=structs.replace(annotations, last_modified=None))
    return block if link or block.meta is None else structs.replace(block, meta=None)


def _old_result(*, audio: bool) -> Callable[[CallToolResult], CallToolResult]:
    def trim(result: CallToolResult) -> CallToolResult:
        content = [_old_block(block, audio=audio, link=False) for block in result.content]
        return structs.replace(result, content=content, structured_content=None)

    return trim


def _old_prompt(*, audio: bool) -> Callable[[GetPromptResult], GetPromptResult]:
    def trim(result: GetPromptResult) -> GetPromptResult:
        messages = [
            PromptMessage(role=m.role, content=_old_block(m.content, audio=audio, link=False)) for m in result.messages
        ]
        return structs.replace(result, messages=messages)

    return trim


def _old_prompt_item(prompt: Prompt) -> Prompt:
    arguments = None if prompt.arguments is None else [structs.replace(a, title=None) for a in prompt.arguments]
    return structs.replace(prompt, title=None, icons=None, meta=None, arguments=arguments)


def _oldest_item(item: Any) -> Any:
    item = _without("title", "icons", "meta")(item)
    annotations: Annotations | None = item.annotations
    if annotations is None or annotations.last_modified is None:
        return item
    return structs.replace(item, annotations=structs.replace(annotations, last_modified=None))


NEWEST = Revision(
    "2025-11-25",
    nameless_id=UNSET,
    trims={
        ListToolsResult: _each("tools", _object_rooted),
        CallToolResult: _object_content,
        ServerCapabilities: _without("extensions"),
        ClientCapabilities: _without("extensions"),
    },
)

_no_icons = _without("icons")

BEFORE_ICONS = Revision(
    "2025-06-18",
    nameless_id=None,
    faults_in_results=False,
    trims={
        ListToolsResult: _each("tools", lambda tool: _without("icons", "execution")(_object_rooted(tool))),
        ListResourcesResult: _each("resources", _no_icons),
        ListResourceTemplatesResult: _each("resource_templates", _no_icons),
        ListPromptsResult: _each("prompts", _no_icons),
        CallToolResult: _object_content,
        Implementation: _without("description", "website_url", "icons"),
        ServerCapabilities: _without("extensions", "tasks"),
        ClientCapabilities: _without("extensions", "tasks"),
    },
)


def _old(version: str, *, audio: bool, batches: bool, gone: tuple[str, ...], capabilities: tuple[str, ...]) -> Revision:
    return Revision(
        version,
        nameless_id=None,
        batches=batches,
        faults_in_results=False,
        absent=frozenset({"elicitation/create"}),
        trims={
            ListToolsResult: _each("tools", _without(*gone)),
            ListResourcesResult: _each("resources", _oldest_item),
            ListResourceTemplatesResult: _each("resource_templates", _oldest_item),
            ListPromptsResult: _each("prompts", _old_prompt_item),
            CallToolResult: _old_result(audio=audio),
            GetPromptResult: _old_prompt(audio=audio),
            Implementation: _without("title", "description", "website_url", "icons"),
            ServerCapabilities: _without(*capabilities),
            ClientCapabilities: _without("extensions", "tasks", "elicitation"),
        },
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

REVISIONS = {revision.version: revision for revision in (NEWEST, BEFORE_ICONS, WITH_BATCHES, OLDEST)}


class Handshake:
    """The rules of the handshake era."""

    def __init__(self, versions: tuple[str, ...] = tuple(REVISIONS), *, seed_codes: bool = False) -> None:
        self.versions = tuple(version for version in REVISIONS if version in versions)
        self._codes = SEED_CODES if seed_codes else {}

    def admit(self, session: Session, row: Method, meta: Meta | None) -> Peer:
        """Tell who asks: whoever made the handshake; before it, only `initialize` and `ping` are heard."""
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

    def offered(self, version: str) -> Revision:
        """Give the revision to answer an offer with: the one offered, else our newest."""
        return REVISIONS[version if version in self.versions else self.versions[0]]

    def open(self, session: Session, params: InitializeParams, declared: dict[str, Any]) -> Revision:
        """Make the handshake on the server's side."""
        revision = self.offered(params.protocol_version)
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

    def ask(self, call: Call, missing: Sequence[tuple[str, Question]]) -> list[Awaitable[Raw]]:
        """Send the questions as requests on the call's own channel, to be waited for in place."""
        peer = call.peer
        requests = []
        for _, question in missing:
            if question.method in peer.revision.absent:
                raise CapabilityNotSupported(question.method.partition("/")[0])
            if isinstance(peer.capabilities, ClientCapabilities):
                require_client(peer.capabilities, question.method, question.params)
            requests.append((question.method, _older_question(question, peer.revision)))
        return [call.link.ask(method, params, call.channel) for method, params in requests]

    def pause(self, call: Call, need: Need) -> Any:
        """No handler is interrupted in this era."""
        raise InvalidRequest("this revision cannot ask inside a result")

    def seal(self, call: Call, result: Any) -> Any:
        """Leave out what the agreed revision does not have."""
        trim = call.peer.revision.trims.get(type(result))
        return result if trim is None else trim(result)

    def lacking(self, failure: CapabilityNotSupported) -> Refusal:
        """There is no number for a missing client capability: the request cannot be served as it is."""
        return InvalidRequest(f"This request needs the client capability {failure.capability!r}")

    def code(self, refusal: Refusal) -> int:
        """The specification's numbers, or those of the `erlmcp` profile."""
        if self._codes:
            return self._codes.get(type(refusal).__name__, refusal.own_code)
        return refusal.own_code


STRANGER = Peer(OLDEST, ClientCapabilities())
"""A peer before its handshake."""


def _older_question(question: Question, revision: Revision) -> dict[str, Any]:
    """Write a question in the words of the agreed revision."""
    params = question.params
    if revision is NEWEST:
        return params
    if question.method == "elicitation/create":
        return _plain_form(params)
    if question.method == "sampling/createMessage":
        return {**params, "messages": [_single_content(message) for message in params["messages"]]}
    return params


def _plain_form(params: dict[str, Any]) -> dict[str, Any]:
    """2025-06-18 knows forms only, single choices as `enum` with `enumNames`, and defaults on booleans only."""
    if params.get("mode") == "url":
        raise CapabilityNotSupported("elicitation.url")
    schema = params["requestedSchema"]
    properties = {name: _plain_property(name, rules) for name, rules in schema["properties"].items()}
    plain = {key: value for key, value in schema.items() if key != "$schema"}
    return {"message": params["message"], "requestedSchema": {**plain, "properties": properties}}


def _plain_property(name: str, rules: dict[str, Any]) -> dict[str, Any]:
    if rules.get("type") == "array":
        raise CapabilityNotSupported(
            "elicitation", f"the field {name!r}: this client's revision has no lists of choices"
        )
    plain = {k: v for k, v in rules.items() if k != "oneOf" and (k != "default" or rules.get("type") == "boolean")}
    if "oneOf" in rules:
        plain["enum"] = [choice["const"] for choice in rules["oneOf"]]
        plain["enumNames"] = [choice.get("title", choice["const"]) for choice in rules["oneOf"]]
    return plain


def _single_content(message: dict[str, Any]) -> dict[str, Any]:
    """Before 2025-11-25 a sampling message holds one block, not a list."""
    content = message["content"]
    if not isinstance(content, list):
        return message
    if len(content) != 1:
        raise CapabilityNotSupported("sampling", "this client's revision takes one content block per message")
    return {**message, "content": content[0]}
