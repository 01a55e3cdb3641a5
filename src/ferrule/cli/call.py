"""`ferrule call TARGET TOOL key=value…`: call a tool from the shell."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from ferrule.cli.arguments import MAX_INPUT, ArgumentReader
from ferrule.cli.connection import configure_target, use_server, words_after_target
from ferrule.cli.main import TOOL_FAILED, WRONG_USAGE, CommandParser, Ended
from ferrule.cli.media import ContentWriter
from ferrule.cli.offers import result_members, server_name, signature, unknown
from ferrule.cli.output import Output, output_of
from ferrule.cli.question import TerminalUser
from ferrule.client.client import Client
from ferrule.errors import PeerError, SetupError
from ferrule.schema.tools import CallToolResult, Tool


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule call`."""
    parser.usage = "ferrule call TARGET TOOL [key=value …] [options] [-- command of the server]"
    configure_target(parser)
    parser.add_argument("words", nargs="*", metavar="TOOL key=value", help="the tool, and its arguments: see below")
    parser.add_argument("--save", metavar="DIR", help="keep pictures, sound and other files of the result here")
    parser.ending = _arguments
    parser.hint = "Arguments of a tool are written key=value."


def _arguments() -> str:
    lines = [
        "",
        "arguments of the tool:",
        "  key=value     read as the tool's schema says; given twice where it takes a list",
        "  key:=json     JSON, as in size:=3 or tags:='[\"a\"]'",
        "  key=@file     the text of a file; key:=@file for JSON in one",
        "  -             a JSON object from stdin",
        "",
    ]
    return "\n".join(lines)


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Call a tool, and write what it answers; ends with exit code 3 where it answers with an error."""
    output = output_of(options)
    words = words_after_target(options, passed_on, options.words)
    if not words:
        raise Ended("there is no tool: give its name, then key=value; `ferrule list` shows the tools", WRONG_USAGE)
    # Read before the server is started: whoever types it may take their time, or think better of it.
    given = sys.stdin.read(MAX_INPUT + 1) if "-" in words[1:] else ""
    user = TerminalUser(output)
    answers = {}
    # Who cannot be asked is not offered to the server as somebody who can.
    if user.present and not output.json:
        answers = {"elicitation": user.answer, "url_elicitation": user.visit}

    async def call(client: Client) -> CallToolResult:
        return await _call(client, words[0], words[1:], given, output)

    try:
        result = use_server(options, passed_on, output, call, **answers)
    except PeerError as refusal:
        if answers or "elicitation" not in refusal.message:
            raise
        raise Ended(
            f'the tool "{words[0]}" asks a question (elicitation), and nobody can be asked: '
            "call it on a terminal, without --json"
        ) from refusal
    output.clear_bar()
    _write(result, output, ContentWriter(output, words[0], options.save))
    if result.is_error and output.json:
        sys.stdout.flush()
        raise SystemExit(TOOL_FAILED)


async def _call(client: Client, name: str, words: list[str], given: str, output: Output) -> CallToolResult:
    tools: dict[str, Tool] = {}
    for tool in await client.list_tools():
        tools[tool.name] = tool
    if name not in tools:
        raise unknown("tool", name, tools, server_name(client))
    reader = ArgumentReader(name, tools[name].input_schema, given)
    try:
        arguments = reader.read(words)
    except SetupError as reason:
        raise SetupError(f"{reason}\n{signature(tools[name])}") from None
    return await client.call_tool(name, arguments, on_progress=output.progress, raise_on_error=False)


def _write(result: CallToolResult, output: Output, writer: ContentWriter) -> None:
    if output.json:
        output.document(result_members(result))
        return
    if result.is_error:
        raise Ended(f"the tool failed: {result.text or result.data}", TOOL_FAILED)
    for block in result.content:
        writer.block(block)
    value: Any = result.structured_content
    if not result.content and value is not None:
        output.document(result.data)
