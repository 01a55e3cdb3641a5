"""Two fixed tools in front of a large catalogue: one finds tools, the other calls what was found.

Rule: both see what their caller sees. A tool that is found is called as if the client had named it: scopes, rules of
visibility and middleware hold.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ferrule.errors import SetupError, ToolError
from ferrule.protocol.call import Call
from ferrule.protocol.foreign import Foreign, read_as
from ferrule.schema.methods import METHODS
from ferrule.schema.tools import EMPTY_OBJECT, CallToolParams, CallToolResult, Tool, ToolAnnotations
from ferrule.server.calls.results import whole
from ferrule.server.calls.services import Services
from ferrule.server.discovery.server_tool import ServerTool, object_schema, read_arguments, told
from ferrule.server.discovery.text_index import TextIndex
from ferrule.server.offers.offers import Offers
from ferrule.server.offers.tool_entry import ToolEntry

SEARCH = "search_tools"
CALL = "call_tool"
MAX_QUERY = 1_000
MOST_RESULTS = 50
NAME_WEIGHT = 3
"""How many times a word of a tool's name counts."""


class SearchArguments(Struct, forbid_unknown_fields=True):
    """What to look for."""

    query: str
    limit: int | None = None


class CallArguments(Struct, forbid_unknown_fields=True):
    """What to call."""

    name: str
    arguments: Raw = EMPTY_OBJECT


class ToolSearch:
    """The search tools of one server, and the index they look into."""

    def __init__(self, offers: Offers, max_results: int, always_visible: Collection[str]) -> None:
        if not 0 < max_results <= MOST_RESULTS:
            raise SetupError(f"tool_search: max_results must be from 1 to {MOST_RESULTS}, not {max_results}")
        if isinstance(always_visible, str):
            raise SetupError(f"tool_search: always_visible is a list of tools: write [{always_visible!r}]")
        self._offers = offers
        self._catalogue = offers.tools.catalogue
        self._max_results = max_results
        self._listed = frozenset((SEARCH, CALL, *always_visible))
        self._index: TextIndex | None = None
        self._indexed: dict[str, Tool] = {}

    def offer(self) -> None:
        """Offer the two tools, and list no others but those that are always visible."""
        tools = self._offers.tools
        for tool, action in ((_search_tool(self._max_results), self._search), (_call_tool(), self._call)):
            entry = ServerTool(self._offers.services, tool, action)
            entry.prepare(tools)
            tools.offer(entry)
        self._catalogue.lists = self._lists
        self._catalogue.changed()
        self.index()

    def _lists(self, entry: ToolEntry) -> bool:
        return entry.name in self._listed

    def index(self) -> TextIndex:
        """Return the index of the tools there are now; it is made anew after a change."""
        tools = {}
        for name, entry in self._catalogue.registered.items():
            if name not in (SEARCH, CALL) and not entry.unlisted:
                tools[name] = entry.tool
        if self._index is None or tools != self._indexed:
            texts = {}
            for name, tool in tools.items():
                texts[name] = _texts(tool)
            self._index = TextIndex(texts)
            self._indexed = tools
        return self._index

    async def _search(self, outer: Services, call: Call) -> CallToolResult:
        given = read_arguments(call, SearchArguments)
        if len(given.query) > MAX_QUERY:
            raise ToolError(f"the query is longer than {MAX_QUERY} characters: name a few words of what is wanted")
        limit = self._max_results
        if given.limit is not None:
            limit = min(max(given.limit, 1), MOST_RESULTS)
        seen: dict[str, Tool] = {}
        for tool in outer.listed("tool", call, self._offers.services):
            seen[tool.name] = tool
        found: list[dict[str, Any]] = []
        for name in self.index().search(given.query):
            if name in seen and len(found) < limit:
                found.append(_shown(seen[name]))
        return told({"tools": found})

    async def _call(self, outer: Services, call: Call) -> CallToolResult:
        given = read_arguments(call, CallArguments)
        if given.name in (SEARCH, CALL):
            raise ToolError(f"{given.name} cannot be called by {CALL}: call it directly")
        services = self._offers.services
        if outer is not services and all(tool.name != given.name for tool in outer.listed("tool", call, services)):
            raise ToolError(f"there is no tool {given.name!r}: {SEARCH} finds those there are")
        params = CallToolParams(name=given.name, arguments=given.arguments)
        result: Any = await services.answer("tools/call", params, call)
        if isinstance(result, Foreign):
            result = read_as(METHODS["tools/call"], result.raw)
        return whole(result)


def _texts(tool: Tool) -> list[str]:
    """Return what a tool can be found by: its name, its description, and its parameters."""
    texts = [tool.name] * NAME_WEIGHT
    texts += [tool.title or "", tool.description or ""]
    properties = tool.input_schema.get("properties")
    if isinstance(properties, dict):
        for name, rules in properties.items():
            texts.append(name)
            if isinstance(rules, dict):
                texts.append(str(rules.get("description") or ""))
    return texts


def _shown(tool: Tool) -> dict[str, Any]:
    members: dict[str, Any] = {"name": tool.name, "inputSchema": tool.input_schema}
    if tool.description:
        members["description"] = tool.description
    if tool.output_schema is not None:
        members["outputSchema"] = tool.output_schema
    plain: dict[str, Any] = msgspec.to_builtins(members)
    return plain


def _search_tool(max_results: int) -> Tool:
    limit = {"type": "integer", "minimum": 1, "maximum": MOST_RESULTS, "default": max_results}
    return Tool(
        name=SEARCH,
        description=f"Find tools by a few words. Returns their names, descriptions and schemas; call one with {CALL}.",
        input_schema=object_schema(
            {
                "query": {"type": "string", "maxLength": MAX_QUERY, "description": "what the tool should do"},
                "limit": {**limit, "description": "how many to return at most"},
            },
            "query",
        ),
        annotations=ToolAnnotations(read_only_hint=True),
    )


def _call_tool() -> Tool:
    return Tool(
        name=CALL,
        description=f"Call a tool that {SEARCH} found, with arguments that fit its input schema.",
        input_schema=object_schema(
            {
                "name": {"type": "string", "description": "the name of the tool"},
                "arguments": {"type": "object", "description": "its arguments"},
            },
            "name",
        ),
    )
