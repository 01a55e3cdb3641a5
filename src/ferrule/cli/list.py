"""`ferrule list TARGET`: the tools, resources and prompts of a server."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from ferrule.cli.connection import configure_target, use_server, words_after_target
from ferrule.cli.offers import Offered, offered, signature, summary
from ferrule.cli.output import Output, output_of
from ferrule.errors import SetupError
from ferrule.settings.option import alike

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

KINDS = ("tools", "resources", "templates", "prompts")


class Section(Struct, frozen=True):
    """One list: its title, and a row for each of its items."""

    title: str
    rows: list[list[str]]


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule list`."""
    parser.usage = "ferrule list TARGET [tools|resources|templates|prompts …] [options] [-- command of the server]"
    configure_target(parser)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"what to list: {', '.join(KINDS)} (default: all)")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """List what a server offers."""
    output = output_of(options)
    kinds = words_after_target(options, passed_on, options.kinds)
    _require_kinds(kinds)
    found = use_server(options, passed_on, output, offered)
    wanted = [kind for kind in KINDS if kind in kinds] or KINDS
    if output.json:
        lists = found.to_dict()
        output.document({kind: lists[kind] for kind in wanted})
        return
    sections = sections_of(found)
    chosen = [sections[kind] for kind in wanted]
    write_sections(output, chosen)
    if not any(section.rows for section in chosen):
        output.note("the server offers nothing of that")


def _require_kinds(kinds: Sequence[str]) -> None:
    for kind in kinds:
        if kind in KINDS:
            continue
        message = f'there are no "{kind}" to list, but {", ".join(KINDS)}'
        meant = alike(kind, KINDS)
        if meant:
            message += f'. Did you mean "{meant}"?'
        raise SetupError(message)


def sections_of(found: Offered) -> dict[str, Section]:
    """Return the lists of a server, each with its rows."""
    tools: list[list[str]] = []
    for tool in found.tools:
        tools.append(["tool", signature(tool), summary(tool.description)])
    resources: list[list[str]] = []
    for resource in found.resources:
        resources.append(["resource", resource.uri, summary(resource.description or resource.title or resource.name)])
    templates: list[list[str]] = []
    for template in found.templates:
        templates.append(["template", template.uri_template, summary(template.description or template.name)])
    prompts: list[list[str]] = []
    for prompt in found.prompts:
        prompts.append(["prompt", signature(prompt), summary(prompt.description)])
    return {
        "tools": Section("Tools", tools),
        "resources": Section("Resources", resources),
        "templates": Section("Resource templates", templates),
        "prompts": Section("Prompts", prompts),
    }


def write_sections(output: Output, sections: Sequence[Section]) -> None:
    """Write lists, each under its title on a terminal; in a pipe the first word of a row says of which list it is."""
    for section in sections:
        if not section.rows:
            continue
        output.heading(section.title)
        rows = section.rows
        if output.terminal:
            # The heading says what they are.
            rows = [row[1:] for row in rows]
        output.rows(rows, indent="  ")
