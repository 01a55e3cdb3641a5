"""What a server offers, asked for once, and how one item of it is shown in a line."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from ferrule.cli.arguments import kind_name
from ferrule.client.client import Client
from ferrule.client.targets import is_several
from ferrule.errors import SetupError
from ferrule.schema.model import SERVER_INFO_KEY, Result
from ferrule.schema.prompts import Prompt
from ferrule.schema.resources import Resource, ResourceTemplate
from ferrule.schema.tools import Tool
from ferrule.settings.option import alike

MOST_PARAMETERS = 12
"""How many parameters of a tool are shown in one line."""
MOST_NAMES = 20
"""How many names an error lists."""


class Offered(Struct, kw_only=True):
    """The lists of a server."""

    tools: list[Tool] = []
    resources: list[Resource] = []
    templates: list[ResourceTemplate] = []
    prompts: list[Prompt] = []

    def to_dict(self) -> dict[str, Any]:
        """Return the lists as plain JSON values, under the specification's names."""
        found: dict[str, Any] = {}
        for name in self.__struct_fields__:
            found[name] = [item.to_dict() for item in getattr(self, name)]
        return found


async def offered(client: Client) -> Offered:
    """Ask a server for everything it declares to have."""
    capabilities = client.server_capabilities
    found = Offered()
    if capabilities is None:
        return found
    if capabilities.tools is not None:
        found.tools = await client.list_tools()
    if capabilities.resources is not None:
        found.resources = await client.list_resources()
        found.templates = await client.list_resource_templates()
    if capabilities.prompts is not None:
        found.prompts = await client.list_prompts()
    return found


def result_members(result: Result) -> dict[str, Any]:
    """Return a result as JSON values, without what the stateless era adds to every one: the same in both eras."""
    members = result.to_dict()
    members.pop("resultType", None)
    meta = members.pop("_meta", None) or {}
    meta.pop(SERVER_INFO_KEY, None)
    if meta:
        members["_meta"] = meta
    return members


def server_name(client: Client) -> str:
    """Return what the server is called, or all of several."""
    if is_several(client.target):
        return ", ".join(client.servers)
    if client.server_info is None:
        return "the server"
    return client.server_info.name


def unknown(kind: str, name: str, known: Iterable[str], where: str) -> SetupError:
    """Return the error about something a server does not have, with what was meant, or what there is."""
    names = list(known)
    meant = alike(name, names)
    if meant:
        return SetupError(f'no {kind} "{name}" in {where}. Did you mean "{meant}"?')
    if not names:
        return SetupError(f'no {kind} "{name}" in {where}: it has none')
    listed = ", ".join(names[:MOST_NAMES])
    if len(names) > MOST_NAMES:
        listed += f" and {len(names) - MOST_NAMES} more"
    return SetupError(f'no {kind} "{name}" in {where}: it has {listed}')


def summary(text: str | None) -> str:
    """Return the first line of a description."""
    return (text or "").strip().partition("\n")[0]


def signature(item: Tool | Prompt) -> str:
    """Return a tool or a prompt with its parameters, as in `add(a: integer, b?: integer)`."""
    parts: list[str] = []
    if isinstance(item, Tool):
        properties = item.input_schema.get("properties")
        required = item.input_schema.get("required")
        if not isinstance(required, list):
            required = []
        if isinstance(properties, dict):
            for name, schema in list(properties.items())[: MOST_PARAMETERS + 1]:
                mark = "" if name in required else "?"
                parts.append(f"{name}{mark}: {kind_name(schema, item.input_schema)}")
    else:
        for argument in item.arguments or ():
            parts.append(argument.name if argument.required else f"{argument.name}?")
    if len(parts) > MOST_PARAMETERS:
        parts = [*parts[:MOST_PARAMETERS], "…"]
    return f"{item.name}({', '.join(parts)})"
