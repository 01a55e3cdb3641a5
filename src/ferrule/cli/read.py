"""`ferrule read TARGET URI`: read a resource from the shell."""

from __future__ import annotations

import argparse

from ferrule.cli.connection import configure_target, use_server, words_after_target
from ferrule.cli.main import WRONG_USAGE, CommandParser, Ended
from ferrule.cli.media import ContentWriter
from ferrule.cli.offers import offered, result_members, server_name, unknown
from ferrule.cli.output import output_of
from ferrule.client.client import Client
from ferrule.errors import PeerError
from ferrule.schema.resources import ReadResourceResult


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule read`."""
    parser.usage = "ferrule read TARGET URI [options] [-- command of the server]"
    configure_target(parser)
    parser.add_argument("words", nargs="*", metavar="URI", help="the resource")
    parser.add_argument("--save", metavar="DIR", help="write its contents into files here")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Read a resource, and write what it holds: text as text, anything else as bytes in a pipe."""
    output = output_of(options)
    words = words_after_target(options, passed_on, options.words)
    if len(words) != 1:
        raise Ended(f"give one URI, not {len(words)}: `ferrule list TARGET resources` shows them", WRONG_USAGE)

    async def read(client: Client) -> ReadResourceResult:
        return await _read(client, words[0])

    result = use_server(options, passed_on, output, read)
    if output.json:
        output.document(result_members(result))
        return
    writer = ContentWriter(output, words[0], options.save)
    for part in result.contents:
        writer.contents(part)


async def _read(client: Client, uri: str) -> ReadResourceResult:
    try:
        return await client.read_resource(uri)
    except PeerError as refusal:
        if not refusal.not_found:
            raise
        found = await offered(client)
        known = [resource.uri for resource in found.resources]
        known += [template.uri_template for template in found.templates]
        raise unknown("resource", uri, known, server_name(client)) from None
