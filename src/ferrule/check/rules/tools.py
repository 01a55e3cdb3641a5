"""Rules of tools. No tool is called that does not say it only reads, unless the user named it."""

from __future__ import annotations

import re

import msgspec

from ferrule.check.answer import Answer, Json, shown
from ferrule.check.case import MOST_CALLS, Case, is_read_only, required_of
from ferrule.check.era import STATELESS
from ferrule.check.rule import Verdict, broken, judged, passed, rule, skipped
from ferrule.check.rules.content import block_fault, schema_fault, value_fault
from ferrule.codes import ErrorCode

PAGE = "server/tools"
NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
NO_TOOL = "ferrule-check-no-such-tool"
NOTHING_TO_CALL = "no tool may be called: none says it only reads and needs no arguments; name one with --call"


def named(tool: Json) -> str:
    """Return what a tool is called, for people."""
    return f"tool {shown(tool.get('name'))}"


@rule(
    "tools/list-shape",
    "every tool has a name and an input schema",
    fix='give every tool a "name" and an "inputSchema"',
    page=PAGE,
    capability="tools",
)
async def list_shape(case: Case) -> Verdict:
    """Look at every tool."""
    listing = await case.listing("tools/list")
    faults = []
    for tool in listing.items:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str) or not tool["name"]:
            faults.append(f"a tool without a name: {shown(tool)}")
        elif not isinstance(tool.get("inputSchema"), dict):
            faults.append(f"{named(tool)}: inputSchema is {shown(tool.get('inputSchema'))}")
        elif not isinstance(tool.get("description", ""), str):
            faults.append(f"{named(tool)}: description is {shown(tool.get('description'))}")
    return judged(faults, f"{len(listing.items)} tools")


@rule(
    "tools/names",
    "names of tools have 1 to 128 letters, digits, _, - and dots",
    fix="rename the tool: hosts refuse other names, or change them",
    page=PAGE,
    level="should",
    capability="tools",
)
async def names(case: Case) -> Verdict:
    """Look at the names."""
    faults = []
    for tool in await case.tools():
        name = tool.get("name")
        if isinstance(name, str) and NAME.fullmatch(name) is None:
            faults.append(named(tool))
    return judged(faults)


@rule(
    "tools/unique-names",
    "no two tools have the same name",
    fix="rename one of them: a client can call only one",
    page=PAGE,
    level="should",
    capability="tools",
)
async def unique_names(case: Case) -> Verdict:
    """Look for names that come twice."""
    seen: set[str] = set()
    faults = []
    for tool in await case.tools():
        name = shown(tool.get("name"))
        if name in seen:
            faults.append(f"{named(tool)} is there twice")
        seen.add(name)
    return judged(faults)


@rule(
    "tools/input-schema",
    'the input schema of a tool is a valid JSON Schema with "type": "object"',
    fix='write "type": "object" at the root of inputSchema, and a valid JSON Schema below it',
    page=PAGE,
    capability="tools",
)
async def input_schema(case: Case) -> Verdict:
    """Look at the input schemas."""
    faults = []
    for tool in await case.tools():
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict):
            continue
        if schema.get("type") != "object":
            faults.append(f"{named(tool)}: the type of inputSchema is {shown(schema.get('type'))}")
        elif fault := schema_fault(schema):
            faults.append(f"{named(tool)}: inputSchema is no JSON Schema: {fault}")
    return judged(faults)


@rule(
    "tools/output-schema",
    "the output schema of a tool is a valid JSON Schema, of an object before the stateless versions",
    fix='write a valid JSON Schema; before the stateless versions its root has "type": "object"',
    page=PAGE,
    capability="tools",
)
async def output_schema(case: Case) -> Verdict:
    """Look at the output schemas."""
    faults = []
    for tool in await case.tools():
        if "outputSchema" not in tool:
            continue
        schema = tool["outputSchema"]
        if not isinstance(schema, dict):
            faults.append(f"{named(tool)}: outputSchema is {shown(schema)}")
        elif case.era != STATELESS and schema.get("type") != "object":
            faults.append(f"{named(tool)}: the type of outputSchema is {shown(schema.get('type'))}")
        elif fault := schema_fault(schema):
            faults.append(f"{named(tool)}: outputSchema is no JSON Schema: {fault}")
    return judged(faults)


@rule(
    "tools/annotations",
    "annotations of a tool are bools, and its title a string",
    fix="write true or false for each hint, and a string for the title",
    page=PAGE,
    capability="tools",
)
async def hints(case: Case) -> Verdict:
    """Look at the annotations."""
    faults = []
    for tool in await case.tools():
        found = tool.get("annotations", {})
        if not isinstance(found, dict):
            faults.append(f"{named(tool)}: annotations is {shown(found)}")
            continue
        for hint in HINTS:
            if hint in found and not isinstance(found[hint], bool):
                faults.append(f"{named(tool)}: {hint} is {shown(found[hint])}")
        if "title" in found and not isinstance(found["title"], str):
            faults.append(f"{named(tool)}: title is {shown(found['title'])}")
    return judged(faults)


def _names_in(page: Answer) -> list[str]:
    """Return the names of the tools on a page, in its order."""
    tools = (page.result or {}).get("tools")
    found: list[str] = []
    if isinstance(tools, list):
        for tool in tools:
            if isinstance(tool, dict):
                found.append(str(tool.get("name")))
    return found


@rule(
    "tools/stable-order",
    "tools are listed in the same order each time",
    fix="list tools in a fixed order, so that clients and models can cache the list",
    page=PAGE,
    level="should",
    eras=(STATELESS,),
    capability="tools",
)
async def stable_order(case: Case) -> Verdict:
    """List the first page once more."""
    first = (await case.listing("tools/list")).answers[0]
    second = await case.talk.request("tools/list")
    before = _names_in(first)
    after = _names_in(second)
    if before == after:
        return passed()
    if sorted(before) != sorted(after):
        return skipped("the tools changed meanwhile")
    return broken(f"first {shown(before)}, then {shown(after)}")


@rule(
    "tools/unknown-tool",
    "a call of a tool that does not exist is refused with -32602",
    fix="answer with the error -32602; a result with isError is for a tool that ran and failed",
    page=PAGE,
    level="should",
    capability="tools",
)
async def unknown_tool(case: Case) -> Verdict:
    """Call a tool nobody has."""
    answer = await case.talk.request("tools/call", {"name": NO_TOOL, "arguments": {}})
    if answer.code == ErrorCode.INVALID_PARAMS:
        return passed()
    return broken(f"it was answered with {answer.told}")


@rule(
    "tools/missing-arguments",
    "a call without the arguments that a tool requires is refused",
    fix="validate arguments by the input schema, and answer with isError or -32602",
    page=PAGE,
    capability="tools",
)
async def missing_arguments(case: Case) -> Verdict:
    """Call tools that only read without what they require."""
    faults = []
    tried = 0
    for tool in await case.tools():
        if not is_read_only(tool) or not required_of(tool) or tried >= MOST_CALLS:
            continue
        tried += 1
        answer = await case.talk.request("tools/call", {"name": tool.get("name"), "arguments": {}})
        result = answer.result
        if result is None or result.get("isError") is True or result.get("resultType", "complete") != "complete":
            continue
        faults.append(f"{named(tool)} without {shown(required_of(tool))} was answered with {answer.told}")
    if not tried:
        return skipped("no tool says that it only reads and requires arguments")
    return judged(faults, f"{tried} tools")


@rule(
    "tools/result-shape",
    "the result of a call has a list of content blocks",
    fix='answer with "content": […], each block with its type and what belongs to it',
    page=PAGE,
    capability="tools",
)
async def result_shape(case: Case) -> Verdict:
    """Call the tools that may be called."""
    calls = await case.calls()
    if not calls:
        return skipped(NOTHING_TO_CALL)
    faults = []
    for call in calls:
        result = call.answer.result
        if result is None or result.get("resultType", "complete") != "complete":
            continue
        content = result.get("content")
        if not isinstance(content, list):
            faults.append(f"{named(call.tool)}: content is {shown(content)}")
            continue
        if "isError" in result and not isinstance(result["isError"], bool):
            faults.append(f"{named(call.tool)}: isError is {shown(result['isError'])}")
        for block in content:
            if fault := block_fault(block):
                faults.append(f"{named(call.tool)}: {fault}")
    return judged(faults, f"{len(calls)} calls")


@rule(
    "tools/structured-content",
    "a tool with an output schema returns structured content that fits it",
    fix="return structuredContent that the output schema accepts, or take the schema away",
    page=PAGE,
    capability="tools",
)
async def structured_content(case: Case) -> Verdict:
    """Compare results with output schemas."""
    faults = []
    looked = 0
    for call in await case.calls():
        result = call.answer.result
        schema = call.tool.get("outputSchema")
        if result is None or not isinstance(schema, dict) or result.get("isError") is True:
            continue
        if result.get("resultType", "complete") != "complete":
            continue
        looked += 1
        if "structuredContent" not in result:
            faults.append(f"{named(call.tool)} has an output schema, and its result no structuredContent")
        elif fault := value_fault(result["structuredContent"], schema):
            faults.append(f"{named(call.tool)}: structuredContent does not fit its schema: {fault}")
    if not looked:
        return skipped("no tool with an output schema may be called; name one with --call")
    return judged(faults, f"{looked} calls")


@rule(
    "tools/structured-text",
    "structured content is in the text as well",
    fix="add a text block with the same JSON, for clients that read only text",
    page=PAGE,
    level="should",
    capability="tools",
)
async def structured_text(case: Case) -> Verdict:
    """Look for a text block beside structured content."""
    faults = []
    looked = 0
    for call in await case.calls():
        result = call.answer.result or {}
        if "structuredContent" not in result or result.get("isError") is True:
            continue
        looked += 1
        content = result.get("content")
        if not isinstance(content, list) or not any(_is_text(block) for block in content):
            faults.append(f"{named(call.tool)}: content is {shown(content)}")
    if not looked:
        return skipped("no call brought structured content")
    return judged(faults)


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text"


@rule(
    "tools/header-annotations",
    "parameters that headers repeat are marked as the specification allows",
    fix="mark only strings, integers and booleans that are reached by `properties`, each with a name of its own",
    page="basic/transports/streamable-http",
    eras=(STATELESS,),
    capability="tools",
)
async def header_annotations(case: Case) -> Verdict:
    """Look at every x-mcp-header."""
    faults: list[str] = []
    for tool in await case.tools():
        schema = tool.get("inputSchema")
        if not isinstance(schema, dict) or b"x-mcp-header" not in msgspec.json.encode(schema):
            continue
        found: list[str] = []
        _collect(schema, found, faults, named(tool), 0)
        if len({name.lower() for name in found}) < len(found):
            faults.append(f"{named(tool)}: two parameters share a header")
    return judged(faults)


def _collect(schema: Json, found: list[str], faults: list[str], tool: str, depth: int) -> None:
    """Note the headers of the properties of a schema, and what is wrong with them."""
    properties = schema.get("properties")
    if not isinstance(properties, dict) or depth > 20:
        return
    for key, inner in properties.items():
        if not isinstance(inner, dict):
            continue
        _collect(inner, found, faults, tool, depth + 1)
        if "x-mcp-header" not in inner:
            continue
        name = inner["x-mcp-header"]
        if not isinstance(name, str) or re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name) is None:
            faults.append(f"{tool}: the header of {shown(key)} is {shown(name)}")
            continue
        found.append(name)
        if inner.get("type") in ("number", "object", "array", "null"):
            faults.append(f"{tool}: {shown(key)} has a header, and its type is {shown(inner['type'])}")
