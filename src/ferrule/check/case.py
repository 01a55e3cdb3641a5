"""What a rule looks at: one server in one era, with what it offers read once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct

from ferrule.check.answer import Answer, Json
from ferrule.check.era import Era
from ferrule.check.talk import EraNotSpoken, Talk
from ferrule.check.wire import NoAnswer, Wire
from ferrule.errors import SetupError
from ferrule.settings.option import alike

MOST_PAGES = 50
MOST_ITEMS = 5000
MOST_LISTED = 64 * 1024 * 1024
"""How many bytes the pages of one list may have; the one with which there are more is the last that is read."""
MOST_CALLS = 5
"""How many read-only tools are called, resources read and prompts got."""
LISTS = {
    "tools/list": "tools",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
    "prompts/list": "prompts",
}
"""Under which name each list holds its items."""


class Listing(Struct):
    """What a server answered to requests for one list, page by page."""

    answers: list[Answer]
    items: list[Any]
    cursors: list[Any]
    complete: bool
    """Whether the last page named no next one."""

    @property
    def objects(self) -> list[Json]:
        """The items that are objects."""
        return [item for item in self.items if isinstance(item, dict)]


class Call(Struct):
    """One call of a tool that may be called, and its answer."""

    tool: Json
    arguments: Json
    answer: Answer


class OneConversation(Exception):
    """A server that takes one conversation at a time, where a rule needs a second."""


class Case:
    """One server in one era."""

    def __init__(self, new_wire: Callable[[], Wire], era: Era, seconds: float, calls: Mapping[str, Json]) -> None:
        self.era = era
        self.seconds = seconds
        self.noise: list[bytes] = []
        """What came on any wire that is no message."""
        self.talk: Talk = Talk(new_wire(), era, seconds)
        self.refusal = Answer()
        """How a server answers who has no token."""
        self._new_wire = new_wire
        self._allowed = calls
        """The tools a user lets us call, with the arguments."""
        self._one_at_a_time: bool | None = None
        """Whether the server takes one conversation at a time; None while that is not known."""
        self._listings: dict[str, Listing] = {}
        self._calls: list[Call] | None = None

    # -- conversations

    async def open(self) -> None:
        """Open the conversation that rules share; raise EraNotSpoken, NoAnswer or CarrierError where there is none."""
        await self.talk.wire.open(self.seconds)
        await self.talk.open()

    async def reopen(self) -> None:
        """Open another conversation in the place of one that is of no use any more."""
        seen = self.talk.seen
        seen_bytes = self.talk.seen_bytes
        asked = self.talk.asked
        await self.leave(self.talk)
        self.talk = Talk(self._new_wire(), self.era, self.seconds)
        self.talk.seen = seen
        self.talk.seen_bytes = seen_bytes
        self.talk.asked = asked
        await self.open()

    async def leave(self, talk: Talk, grace: float = 1.0) -> None:
        """Close a conversation, and keep what came in it that is no message."""
        await talk.close(grace)
        talk.wire.read_rest()
        self.noise.extend(talk.wire.noise)

    async def _require_another(self) -> None:
        """See once whether the server takes a second conversation; raise OneConversation where it does not."""
        if self._one_at_a_time is None:
            talk = Talk(self._new_wire(), self.era, self.seconds)
            await talk.wire.open(self.seconds)
            try:
                await talk.open()
                self._one_at_a_time = False
            except EraNotSpoken:
                self._one_at_a_time = True
            finally:
                await self.leave(talk)
        if self._one_at_a_time:
            raise OneConversation("the server takes one conversation at a time")

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Talk]:
        """Give a new connection on which nothing was said."""
        if self.talk.wire.kind == "http":
            await self._require_another()
        talk = Talk(self._new_wire(), self.era, self.seconds)
        await talk.wire.open(self.seconds)
        try:
            yield talk
        finally:
            await self.leave(talk)

    @asynccontextmanager
    async def conversation(self, version: str | None = None) -> AsyncIterator[Talk]:
        """Give a new conversation, opened with a version."""
        async with self.connection() as talk:
            await talk.open(version)
            yield talk

    # -- what is offered

    async def listing(self, method: str) -> Listing:
        """Return a whole list of the server's, within bounds."""
        if method not in self._listings:
            self._listings[method] = await self._listed(method)
        return self._listings[method]

    async def _listed(self, method: str) -> Listing:
        listing = Listing([], [], [], False)
        params: dict[str, Any] = {}
        size = 0
        for _ in range(MOST_PAGES):
            answer = await self.talk.request(method, params)
            listing.answers.append(answer)
            size += answer.received
            result = answer.result or {}
            items = result.get(LISTS[method])
            if isinstance(items, list):
                listing.items.extend(items)
            if "nextCursor" not in result or result["nextCursor"] is None:
                listing.complete = True
                break
            if result["nextCursor"] in listing.cursors or len(listing.items) > MOST_ITEMS or size > MOST_LISTED:
                break
            listing.cursors.append(result["nextCursor"])
            params = {"cursor": result["nextCursor"]}
        return listing

    async def tools(self) -> list[Json]:
        """Return the tools."""
        return (await self.listing("tools/list")).objects

    async def calls(self) -> list[Call]:
        """Call the tools that may be called, once: those that say they only read and need nothing, and those named."""
        if self._calls is not None:
            return self._calls
        made: list[Call] = []
        for tool in await self.tools():
            arguments = self._arguments(tool)
            if arguments is None or len(made) >= MOST_CALLS + len(self._allowed):
                continue
            try:
                answer = await self.talk.request("tools/call", {"name": tool["name"], "arguments": arguments})
            except NoAnswer:
                # A slow tool says nothing about the protocol.
                await self.reopen()
                continue
            made.append(Call(tool, arguments, answer))
        self._calls = made
        return made

    async def require_tools(self) -> None:
        """Raise SetupError where a tool is to be called that the server does not have."""
        if not self._allowed:
            return
        known = [str(tool.get("name")) for tool in await self.tools()]
        for name in self._allowed:
            if name not in known:
                meant = alike(name, known)
                hint = f'. Did you mean "{meant}"?' if meant else ""
                raise SetupError(f'there is no tool "{name}" to call{hint}')

    def _arguments(self, tool: Json) -> Json | None:
        """Return with which arguments a tool may be called; None for one that may not."""
        name = tool.get("name")
        if not isinstance(name, str):
            return None
        if name in self._allowed:
            return self._allowed[name]
        if is_read_only(tool) and not required_of(tool):
            return {}
        return None


def is_read_only(tool: Json) -> bool:
    """Whether a tool says of itself that it changes nothing."""
    annotations = tool.get("annotations")
    return isinstance(annotations, dict) and annotations.get("readOnlyHint") is True


def required_of(tool: Json) -> list[Any]:
    """Return the arguments a tool needs."""
    schema = tool.get("inputSchema")
    if not isinstance(schema, dict):
        return []
    required = schema.get("required")
    if not isinstance(required, list):
        return []
    return required
