"""What a client's transport remembers of the tools it has seen listed: what to mirror, and what may be done twice."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw, Struct, UnsetType

from ferrule.budgets.bounds import MAX_KNOWN_TOOLS
from ferrule.errors import FerruleError, HttpFailed, quoted
from ferrule.schema.mirrored import ANNOTATION, NOT_ANNOTATED, Annotated, mirrored_arguments
from ferrule.transports.http.client.headers import About
from ferrule.transports.http.client.request import SingleExchange
from ferrule.transports.http.client.status import hand_on
from ferrule.wire.codec import encode
from ferrule.wire.messages import ErrorObject, Request

if TYPE_CHECKING:
    from ferrule.transports.http.client.post import Post


MAX_PAGES = 50


async def refresh(post: Post, error: ErrorObject) -> None:
    """List the tools, then send the call with what the list says is to be mirrored; else the error stands."""
    try:
        await _list(post)
    except FerruleError:
        hand_on(post, error)
    else:
        post.send_again()


async def _list(post: Post) -> None:
    channel = post.channel
    meta = post.said.meta
    if isinstance(meta, dict):
        meta = {key: value for key, value in meta.items() if key != "progressToken"}
    cursor: str | None = None
    for page in range(MAX_PAGES):
        params: dict[str, Any]
        if cursor is None:
            params = {"_meta": meta}
        else:
            params = {"_meta": meta, "cursor": cursor}
        identity = f"tools-{post.unanswered[0] if post.unanswered else 0}-{page}"
        lines = channel.heading.mirrored("tools/list", About(meta=meta))
        assert lines is not None
        request = channel.heading.post(lines, encode(Request(identity, "tools/list", params)))
        asked = SingleExchange(request, "urgent", channel.options.max_message_size, identity)
        frame = await channel.ask(asked)
        if asked.status != 200:
            raise HttpFailed("the tools cannot be listed", asked.status)
        _, cursor = channel.known.learn(frame)
        if cursor is None:
            return


logger = logging.getLogger("ferrule.transports")

T = TypeVar("T")

MARK = ANNOTATION.encode()


class SeenHints(Struct, rename="camel"):
    """The hints that tell whether a call may be repeated."""

    read_only_hint: bool | None = None
    idempotent_hint: bool | None = None


class SeenTool(Struct, rename="camel"):
    """A listed tool, as far as it matters here."""

    name: str
    input_schema: Raw = Raw(b"{}")
    annotations: SeenHints | None = None


class SeenPage(Struct, rename="camel"):
    """One page of tools."""

    tools: list[SeenTool] = []
    next_cursor: str | None = None


class SeenAnswer(Struct):
    """The answer to tools/list."""

    result: SeenPage | UnsetType = msgspec.UNSET


_read_answer = msgspec.json.Decoder(SeenAnswer).decode
_read_schema = msgspec.json.Decoder(dict[str, object]).decode
_read_members = msgspec.json.Decoder(dict[str, Raw]).decode
_read_list = msgspec.json.Decoder(list[Raw]).decode


class ToolFactsOfTransport:
    """The tools a server has listed, newest listing first."""

    def __init__(self, limit: int = MAX_KNOWN_TOOLS) -> None:
        self._limit = limit
        self._annotated: dict[str, Annotated] = {}
        self._repeatable: dict[str, None] = {}
        """The names, oldest first."""
        self._reason = ""
        """Why the last tool that cannot be called cannot be."""

    def annotated(self, name: str) -> Annotated:
        """Return what to mirror of a tool's arguments; nothing when the tool is unknown."""
        return self._annotated.get(name, NOT_ANNOTATED)

    def repeatable(self, name: str) -> bool:
        """Return whether the server says that calling a tool twice does no more than calling it once."""
        return name in self._repeatable

    def learn(self, frame: bytes) -> tuple[bytes, str | None]:
        """Read an answer to tools/list; gives it without tools that cannot be called, and the next page's cursor."""
        try:
            page = _read_answer(frame).result
            if page is msgspec.UNSET:
                return frame, None
            invalid = []
            for place, tool in enumerate(page.tools):
                if not self._learn(tool):
                    invalid.append(place)
            if invalid:
                # One line for a page, however many there are.
                logger.warning(
                    "%d tools cannot be called over HTTP and are left out; the last: %s", len(invalid), self._reason
                )
            return (_without(frame, invalid) if invalid else frame), page.next_cursor
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
            # Whoever asked for the list will say what is wrong with it.
            return frame, None

    def _learn(self, tool: SeenTool) -> bool:
        hints = tool.annotations
        if hints is not None and (hints.read_only_hint or hints.idempotent_hint):
            _keep(self._repeatable, tool.name, None, self._limit)
        else:
            self._repeatable.pop(tool.name, None)
        self._annotated.pop(tool.name, None)
        if MARK not in bytes(tool.input_schema):
            return True
        try:
            found = mirrored_arguments(_read_schema(tool.input_schema))
        except ValueError as reason:
            logger.debug("the tool %r cannot be called over HTTP and is left out: %s", tool.name, reason)
            self._reason = f"{quoted(tool.name)!r}: {quoted(str(reason))}"
            return False
        if found:
            _keep(self._annotated, tool.name, found, self._limit)
        return True


def _keep(known: dict[str, T], name: str, fact: T, limit: int) -> None:
    """Keep a fact about a tool; the oldest of too many is forgotten."""
    known.pop(name, None)
    known[name] = fact
    if len(known) > limit:
        del known[next(iter(known))]


def _without(frame: bytes, invalid: list[int]) -> bytes:
    """Write an answer again without some of its tools; everything else stays as the server wrote it."""
    answer = _read_members(frame)
    result = _read_members(answer["result"])
    left_out = set(invalid)
    tools = []
    for place, tool in enumerate(_read_list(result["tools"])):
        if place not in left_out:
            tools.append(tool)
    result["tools"] = Raw(msgspec.json.encode(tools))
    answer["result"] = Raw(msgspec.json.encode(result))
    return msgspec.json.encode(answer)
