"""`ferrule inspect TARGET`: everything a server says of itself; `--registry` writes its entry for the MCP registry."""

from __future__ import annotations

import argparse
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.cli.connection import configure_target, use_server
from ferrule.cli.list import sections_of, write_sections
from ferrule.cli.offers import Offered, offered, server_name
from ferrule.cli.output import Output, output_of
from ferrule.client.client import Client
from ferrule.errors import SetupError

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

SCHEMA = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
REGISTRY_NAME = re.compile(r"[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
LONGEST_TEXT = 100
"""How many characters the registry lets a title and a description have."""
REMOTES = {"http": "streamable-http", "https": "streamable-http", "sse+http": "sse", "sse+https": "sse"}
"""How the registry calls the transport of an address."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule inspect`."""
    parser.usage = "ferrule inspect TARGET [options] [-- command of the server]"
    configure_target(parser)
    group = parser.add_argument_group("the MCP registry")
    group.add_argument(
        "--registry",
        nargs="?",
        const="server.json",
        metavar="FILE",
        help="write the server's entry for the MCP registry (default: server.json); - for stdout",
    )
    group.add_argument("--name", metavar="NAME", help="its name there, such as io.github.USER/NAME")
    group.add_argument(
        "--package", metavar="NAME", help="the package on PyPI (default: the one of the pyproject.toml beside it)"
    )


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Show everything a server says of itself, or write its entry for the registry."""
    output = output_of(options)
    about, found = use_server(options, passed_on, output, _inspect)
    if options.registry is not None:
        _write_entry(registry_entry(about, options), options.registry, output)
        return
    if output.json:
        output.document({**about, **found.to_dict()})
        return
    _show(about, found, output)


async def _inspect(client: Client) -> tuple[dict[str, Any], Offered]:
    info = client.server_info
    capabilities = client.server_capabilities
    about: dict[str, Any] = {
        "server": msgspec.to_builtins(info) if info is not None else {"name": server_name(client)},
        "protocolVersion": client.protocol_version,
        "capabilities": msgspec.to_builtins(capabilities) if capabilities is not None else {},
        "instructions": client.instructions,
    }
    return about, await offered(client)


def _show(about: dict[str, Any], found: Offered, output: Output) -> None:
    server = about["server"]
    output.heading(str(server.get("title") or server.get("name")))
    rows = []
    for key in ("name", "version", "description", "websiteUrl"):
        if server.get(key):
            rows.append([key, str(server[key])])
    rows.append(["protocol", str(about["protocolVersion"])])
    rows.append(["capabilities", ", ".join(_declared(about["capabilities"])) or "none"])
    if about["instructions"]:
        rows.append(["instructions", about["instructions"]])
    output.rows(rows, indent="  ")
    write_sections(output, list(sections_of(found).values()))


def _declared(capabilities: dict[str, Any]) -> list[str]:
    """Return the names of what is declared, with its parts: `resources.subscribe`."""
    names: list[str] = []
    for name, parts in capabilities.items():
        if parts is None:
            continue
        names.append(name)
        if isinstance(parts, dict):
            names.extend(f"{name}.{part}" for part, value in parts.items() if value)
    return names


# -- the registry


def registry_entry(about: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Return the `server.json` of a server; raise SetupError for what the registry would refuse."""
    name = options.name
    if name is None:
        raise SetupError("the registry knows servers by names such as io.github.USER/NAME: give --name")
    if REGISTRY_NAME.fullmatch(name) is None:
        raise SetupError(f"{name!r} is not a name of the registry: write io.github.USER/NAME, with one slash in it")
    server = about["server"]
    version = str(server.get("version") or "")
    if not version:
        raise SetupError("the server has no version, and the registry wants one: Server(…, version='1.0.0')")
    entry: dict[str, Any] = {"$schema": SCHEMA, "name": name}
    if server.get("title"):
        entry["title"] = str(server["title"])[:LONGEST_TEXT]
    entry["description"] = _description(about)
    entry["version"] = version
    if server.get("websiteUrl"):
        entry["websiteUrl"] = server["websiteUrl"]
    target = options.target or ""
    scheme = target.partition("://")[0].lower()
    if scheme in REMOTES:
        entry["remotes"] = [{"type": REMOTES[scheme], "url": target.removeprefix("sse+")}]
        return entry
    package = options.package or _package_beside(target)
    entry["packages"] = [
        {"registryType": "pypi", "identifier": package, "version": version, "transport": {"type": "stdio"}}
    ]
    return entry


def _description(about: dict[str, Any]) -> str:
    said = about["server"].get("description") or about["instructions"] or ""
    line = " ".join(str(said).split())
    if not line:
        raise SetupError("the server has no description, and the registry wants one: Server(…, description='…')")
    if len(line) > LONGEST_TEXT:
        return line[: LONGEST_TEXT - 1].rstrip() + "…"
    return line


def _package_beside(target: str) -> str:
    """Return the name of the project a file belongs to."""
    place = Path(target.partition(".py:")[0] or ".").resolve()
    for folder in (place, *place.parents):
        path = folder / "pyproject.toml"
        if path.is_file():
            try:
                project = tomllib.loads(path.read_text(encoding="utf-8")).get("project", {})
            except (OSError, ValueError) as reason:
                raise SetupError(f"cannot read {path}: {reason}") from None
            if isinstance(project.get("name"), str):
                return str(project["name"])
    raise SetupError("there is no pyproject.toml that names the package: give --package NAME")


def _write_entry(entry: dict[str, Any], path: str, output: Output) -> None:
    text = msgspec.json.format(msgspec.json.encode(entry), indent=2).decode() + "\n"
    if path == "-":
        output.text(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as reason:
        raise SetupError(f"cannot write {path}: {reason.strerror}") from None
    output.line(path)
