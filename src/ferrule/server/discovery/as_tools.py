"""Resources and prompts as tools, for clients that know nothing else.

Rule: each is answered as if the client had asked for the resource or prompt itself: scopes, rules of visibility and
middleware hold.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct

from ferrule.errors import ToolError
from ferrule.protocol.call import Call
from ferrule.protocol.foreign import Foreign, read_as
from ferrule.schema.content import ContentBlock, EmbeddedResource, ImageContent, ResourceContents, TextContent
from ferrule.schema.methods import METHODS
from ferrule.schema.model import Params
from ferrule.schema.prompts import GetPromptParams, GetPromptResult
from ferrule.schema.resources import ReadResourceParams, ReadResourceResult
from ferrule.schema.tools import CallToolResult, Tool, ToolAnnotations
from ferrule.server.calls.services import Services
from ferrule.server.discovery.server_tool import Action, ServerTool, object_schema, read_arguments, told
from ferrule.server.offers.offers import Offers

MOST_LISTED = 500
"""How many items one answer lists; a filter finds the others."""
READS = ToolAnnotations(read_only_hint=True)
MAX_FILTER = 1_000
"""Characters of a filter: it is looked for in every item."""
FILTER = {
    "contains": {
        "type": "string",
        "maxLength": MAX_FILTER,
        "description": "list only those with this text in their name or URI",
    }
}


class ListArguments(Struct, forbid_unknown_fields=True):
    """What to list."""

    contains: str = ""


class ReadArguments(Struct, forbid_unknown_fields=True):
    """What to read."""

    uri: str


class PromptArguments(Struct, forbid_unknown_fields=True):
    """What to fill in, and with what."""

    name: str
    arguments: dict[str, str] = {}


def offer_as_tools(offers: Offers, *, resources: bool, prompts: bool) -> None:
    """Offer tools for resources, for prompts, or for both."""
    if resources:
        _offer_resources(offers)
    if prompts:
        _offer_prompts(offers)


def _offer_resources(offers: Offers) -> None:
    """Offer the tools `list_resources` and `read_resource`."""
    listing = "List the resources and resource templates that read_resource can read."
    _offer(offers, "list_resources", listing, object_schema(FILTER), _list_resources)
    uri = {"uri": {"type": "string", "description": "the URI; a template's variables are filled in"}}
    _offer(offers, "read_resource", "Read a resource.", object_schema(uri, "uri"), _read_resource)


def _offer_prompts(offers: Offers) -> None:
    """Offer the tools `list_prompts` and `get_prompt`."""
    _offer(offers, "list_prompts", "List the prompts get_prompt can fill in.", object_schema(FILTER), _list_prompts)
    given = {
        "name": {"type": "string", "description": "the name of the prompt"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}, "description": "its arguments"},
    }
    _offer(offers, "get_prompt", "Fill in a prompt. Returns its messages.", object_schema(given, "name"), _get_prompt)


def _offer(offers: Offers, name: str, description: str, schema: dict[str, Any], action: Action) -> None:
    tool = Tool(name=name, description=description, input_schema=schema, annotations=READS)
    entry = ServerTool(offers.services, tool, action)
    entry.prepare(offers.tools)
    offers.tools.offer(entry)


async def _list_resources(outer: Services, call: Call) -> CallToolResult:
    wanted = _filter_of(call)
    found: dict[str, Any] = {}
    _list(found, "resources", outer.listed("resource", call, outer), wanted)
    _list(found, "resourceTemplates", outer.listed("resource template", call, outer), wanted)
    return told(found)


async def _list_prompts(outer: Services, call: Call) -> CallToolResult:
    found: dict[str, Any] = {}
    _list(found, "prompts", outer.listed("prompt", call, outer), _filter_of(call))
    return told(found)


def _filter_of(call: Call) -> str:
    """Return the text that listed items have in their name or URI, in lower case."""
    wanted = read_arguments(call, ListArguments).contains
    if len(wanted) > MAX_FILTER:
        raise ToolError(f"`contains` is longer than {MAX_FILTER} characters: no name or URI has it")
    return wanted.lower()


def _list(found: dict[str, Any], name: str, items: list[Any], wanted: str) -> None:
    """Write what fits a filter into an answer, with how many are left out of it."""
    fitting = []
    for item in items:
        members = msgspec.to_builtins(item)
        key = f"{members.get('name', '')} {members.get('uri') or members.get('uriTemplate') or ''}"
        if wanted in key.lower():
            members.pop("_meta", None)
            members.pop("icons", None)
            fitting.append(members)
    found[name] = fitting[:MOST_LISTED]
    if len(fitting) > MOST_LISTED:
        found["leftOut"] = found.get("leftOut", 0) + len(fitting) - MOST_LISTED


async def _read_resource(outer: Services, call: Call) -> CallToolResult:
    uri = read_arguments(call, ReadArguments).uri
    result: ReadResourceResult = await _answered(outer, "resources/read", ReadResourceParams(uri=uri), call)
    return CallToolResult(content=[_block(part) for part in result.contents])


def _block(part: ResourceContents) -> ContentBlock:
    """Return what was read as models take it: text and pictures as such, all else as a resource."""
    if part.text is not None:
        return TextContent(part.text)
    if part.blob is not None and (part.mime_type or "").startswith("image/"):
        return ImageContent(part.blob, part.mime_type or "")
    return EmbeddedResource(part)


async def _get_prompt(outer: Services, call: Call) -> CallToolResult:
    given = read_arguments(call, PromptArguments)
    params = GetPromptParams(name=given.name, arguments=given.arguments)
    result: GetPromptResult = await _answered(outer, "prompts/get", params, call)
    return told({"messages": msgspec.to_builtins(result.messages)})


async def _answered(outer: Services, method: str, params: Params, call: Call) -> Any:
    result = await outer.answer(method, params, call)
    if isinstance(result, Foreign):
        return read_as(METHODS[method], result.raw)
    return result
