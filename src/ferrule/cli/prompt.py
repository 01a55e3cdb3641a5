"""`ferrule prompt TARGET NAME key=value…`: get a prompt, filled in."""

from __future__ import annotations

import argparse

from ferrule.cli.arguments import text_arguments
from ferrule.cli.connection import configure_target, use_server, words_after_target
from ferrule.cli.main import WRONG_USAGE, CommandParser, Ended
from ferrule.cli.media import ContentWriter
from ferrule.cli.offers import result_members, server_name, signature, unknown
from ferrule.cli.output import output_of
from ferrule.client.client import Client
from ferrule.errors import SetupError
from ferrule.schema.prompts import GetPromptResult, Prompt
from ferrule.settings.option import alike


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule prompt`."""
    parser.usage = "ferrule prompt TARGET NAME [key=value …] [options] [-- command of the server]"
    configure_target(parser)
    parser.add_argument(
        "words", nargs="*", metavar="NAME key=value", help="the prompt, and its arguments; key=@file is a file's text"
    )
    parser.add_argument("--save", metavar="DIR", help="keep pictures and files of the messages here")
    parser.hint = "Arguments of a prompt are written key=value."


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Get a prompt, and write its messages."""
    output = output_of(options)
    words = words_after_target(options, passed_on, options.words)
    if not words:
        raise Ended("there is no prompt: give its name; `ferrule list TARGET prompts` shows them", WRONG_USAGE)
    arguments = text_arguments(words[1:])

    async def get(client: Client) -> GetPromptResult:
        return await _get(client, words[0], arguments)

    result = use_server(options, passed_on, output, get)
    if output.json:
        output.document(result_members(result))
        return
    writer = ContentWriter(output, words[0], options.save)
    for message in result.messages:
        if len(result.messages) > 1 or output.terminal:
            output.line(f"{message.role}:")
        writer.block(message.content)


async def _get(client: Client, name: str, arguments: dict[str, str]) -> GetPromptResult:
    prompts: dict[str, Prompt] = {}
    for prompt in await client.list_prompts():
        prompts[prompt.name] = prompt
    if name not in prompts:
        raise unknown("prompt", name, prompts, server_name(client))
    _require_arguments(prompts[name], arguments)
    return await client.get_prompt(name, arguments)


def _require_arguments(prompt: Prompt, arguments: dict[str, str]) -> None:
    known = {argument.name: bool(argument.required) for argument in prompt.arguments or ()}
    for key in arguments:
        if key not in known:
            meant = alike(key, known)
            hint = f'. Did you mean "{meant}"?' if meant else ""
            raise SetupError(f'the prompt "{prompt.name}" takes no "{key}"{hint}\n{signature(prompt)}')
    missing = [name for name, required in known.items() if required and name not in arguments]
    if missing:
        raise SetupError(f'the prompt "{prompt.name}" needs {", ".join(missing)}: write key=value\n{signature(prompt)}')
