"""MCP Apps: pages a host shows beside a tool's results, and what each asks of the host (an extension)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from msgspec import UNSET, UnsetType, structs

from ferrule.errors import SetupError
from ferrule.schema.model import JsonObject, Value
from ferrule.schema.tools import Tool

APPS = "io.modelcontextprotocol/ui"
"""The name of the extension."""

PAGE_TYPE = "text/html;profile=mcp-app"
SCHEME = "ui://"
ORIGIN = r"(?:https?|wss?)://(?:\*\.)?[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
"""What a page may name as a domain; anything else could end the rule it is put into."""

Viewer = Literal["model", "app"]
EVERYONE: tuple[Viewer, ...] = ("model", "app")
PERMISSIONS = ("camera", "microphone", "geolocation", "clipboard_write")


class Csp(Value, frozen=True, kw_only=True):
    """The origins a page needs; what is not named is blocked."""

    connect_domains: tuple[str, ...] | None = None
    """For requests: fetch, XMLHttpRequest, WebSocket."""
    resource_domains: tuple[str, ...] | None = None
    """For scripts, styles, pictures, fonts, media."""
    frame_domains: tuple[str, ...] | None = None
    """For frames inside the page."""
    base_uri_domains: tuple[str, ...] | None = None
    """For the base of the document."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            for origin in getattr(self, name) or ():
                if not isinstance(origin, str) or not re.fullmatch(ORIGIN, origin):
                    raise SetupError(f"csp: {name} holds {origin!r}; write an origin such as https://api.example.com")


class Permissions(Value, frozen=True, kw_only=True):
    """What of the browser a page would like to use; a host may say no."""

    camera: JsonObject | None = None
    microphone: JsonObject | None = None
    geolocation: JsonObject | None = None
    clipboard_write: JsonObject | None = None


class PageMeta(Value, frozen=True, kw_only=True):
    """What a page asks of its host."""

    csp: Csp | None = None
    permissions: Permissions | None = None
    domain: str | None = None
    prefers_border: bool | UnsetType = UNSET


class ToolUi(Value, frozen=True, kw_only=True):
    """Which page shows a tool's results, and who may call the tool."""

    resource_uri: str | None = None
    visibility: tuple[Viewer, ...] | None = None

    def __post_init__(self) -> None:
        if self.resource_uri is not None:
            check_page_uri(self.resource_uri)
        if self.visibility is not None and (not self.visibility or set(self.visibility) - set(EVERYONE)):
            raise SetupError(f"ui: visibility is one or both of 'model' and 'app', not {list(self.visibility)!r}")

    @property
    def for_model(self) -> bool:
        """Whether a model may see the tool."""
        return self.visibility is None or "model" in self.visibility


def check_page_uri(uri: str) -> None:
    """Refuse the URI of a page that is not one."""
    if not isinstance(uri, str) or not uri.startswith(SCHEME) or len(uri) == len(SCHEME) or "{" in uri:
        raise SetupError(f"{uri!r} is not a valid URI of a page: it begins with {SCHEME} and has no variables")


def csp_of(given: Csp | Mapping[str, Iterable[str]] | None) -> Csp | None:
    """Make the origins of a page of what a user gives."""
    if given is None or isinstance(given, Csp):
        return given
    unknown = sorted(given.keys() - set(Csp.__struct_fields__))
    if unknown:
        raise SetupError(f"csp: there is no {unknown[0]}; it has {', '.join(Csp.__struct_fields__)}")
    members = {}
    for name, origins in given.items():
        members[name] = tuple(origins)
    return Csp(**members)


def permissions_of(names: Iterable[str]) -> Permissions | None:
    """Make the permissions of a page of their names."""
    wanted = [names] if isinstance(names, str) else list(names)
    unknown = []
    for name in wanted:
        if name not in PERMISSIONS:
            unknown.append(name)
    if unknown:
        raise SetupError(f"permissions: there is no {unknown[0]!r}; there are {', '.join(PERMISSIONS)}")
    if wanted:
        return Permissions(**{name: {} for name in wanted})
    return None


def tool_ui(given: ToolUi | Mapping[str, Any] | str) -> ToolUi:
    """Make what a tool says of its page of a URI, or of the members in Python's words."""
    if isinstance(given, ToolUi):
        return given
    if isinstance(given, str):
        return ToolUi(resource_uri=given)
    unknown = sorted(given.keys() - {"resource_uri", "visibility"})
    if unknown:
        raise SetupError(f"ui: there is no {unknown[0]!r}; it has resource_uri and visibility")
    visibility = given.get("visibility")
    return ToolUi(
        resource_uri=given.get("resource_uri"),
        visibility=(visibility,) if isinstance(visibility, str) else visibility and tuple(visibility),
    )


def ui_of(tool: Tool) -> ToolUi | None:
    """Return what a listed tool says of its page; None when it says nothing a host could use."""
    meta = tool.meta or {}
    said = meta.get("ui")
    if not isinstance(said, dict):
        said = {}
    # The flat key is how hosts and servers wrote it before the extension was settled.
    uri = said.get("resourceUri", meta.get("ui/resourceUri"))
    visibility = said.get("visibility")
    if uri is None and visibility is None:
        return None
    try:
        return tool_ui({"resource_uri": uri, "visibility": visibility})
    except (SetupError, TypeError):
        return None


def shows_pages(settings: Mapping[str, object] | None) -> bool:
    """Return whether a client that declares the extension so shows pages of the type there is."""
    if settings is None:
        return False
    types = settings.get("mimeTypes")
    return types is None or (isinstance(types, list) and PAGE_TYPE in types)


def without_ui(tool: Tool) -> Tool:
    """Return a tool as it is listed to who shows no pages."""
    meta = {}
    for key, value in (tool.meta or {}).items():
        if key != "ui":
            meta[key] = value
    return structs.replace(tool, meta=meta or None)
