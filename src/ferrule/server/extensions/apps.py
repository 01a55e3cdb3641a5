"""The MCP Apps extension: pages for hosts that show them, and plain tools for those that do not."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

import msgspec
from msgspec import UNSET, UnsetType

from ferrule.errors import SetupError
from ferrule.protocol.call import Call, Peer
from ferrule.schema.apps import (
    APPS,
    PAGE_TYPE,
    Csp,
    PageMeta,
    check_page_uri,
    csp_of,
    permissions_of,
    shows_pages,
    ui_of,
    without_ui,
)
from ferrule.schema.tools import Tool
from ferrule.server.application import Application
from ferrule.server.calls.context import Context
from ferrule.server.extensions.extension import Extension
from ferrule.server.offers.catalogue import View
from ferrule.server.offers.resource_entry import ResourceOptions
from ferrule.settings.option import check, pick, read, require_known

if TYPE_CHECKING:
    from ferrule.server.keywords import PageKeywords

F = TypeVar("F", bound=Callable[..., Any])

DOCUMENT = re.compile(r"<(?:!doctype\s+html|html)\b", re.IGNORECASE)
LONGEST_LEAD = 64 * 1024
"""Characters of spaces and comments that may stand before a document."""


class PageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a page asks of the host that shows it."""

    csp: Csp | Mapping[str, Iterable[str]] | None = None
    """The origins it needs; what is not named is blocked."""
    permissions: str | Collection[str] = ()
    """What of the browser it would like to use: camera, microphone, geolocation, clipboard_write."""
    domain: str | None = None
    """The origin it would like to have for its own."""
    prefers_border: bool | None = None
    """Whether the host should draw a border around it; None leaves that to the host."""

    def __post_init__(self) -> None:
        check(self)


RESOURCE_OPTIONS = frozenset(ResourceOptions.__struct_fields__) - {"mime_type", "meta", "contents_meta"}
"""The options of a page's resource; the others are the page's own to say."""


class AppPage(msgspec.Struct, frozen=True):
    """A page as it was offered: its URI, its function, and the options of its resource."""

    uri: str
    fn: Callable[..., Any]
    options: dict[str, Any]


class Apps(Extension):
    """Offers pages that a host shows beside the results of tools: see `@app.tool(ui=…)`."""

    def __init__(self) -> None:
        super().__init__(APPS)
        self._pages: dict[str, AppPage] = {}

    @overload
    def page(self, uri: str, html: str | os.PathLike[str], **options: Unpack[PageKeywords]) -> None: ...
    @overload
    def page(self, uri: str, html: None = None, **options: Unpack[PageKeywords]) -> Callable[[F], F]: ...
    def page(self, uri: str, html: str | os.PathLike[str] | None = None, **options: Unpack[PageKeywords]) -> Any:
        """Offer a page: its text, its file, or, as a decorator, a function that returns its text."""
        check_page_uri(uri)
        where = f"the page {uri}"
        require_known(where, options, (*PageOptions.__struct_fields__, *RESOURCE_OPTIONS))
        meta = _meta(read(PageOptions, pick(PageOptions, options), where))
        offered = pick(ResourceOptions, options)
        if html is None:

            def add(fn: F) -> F:
                self._add(uri, fn, meta, offered)
                return fn

            return add
        self._add(uri, _giver(uri, html), meta, {"name": uri.rpartition("/")[2], **offered})
        return None

    def _add(self, uri: str, fn: Callable[..., Any], meta: dict[str, Any], options: Mapping[str, object]) -> None:
        if uri in self._pages:
            raise SetupError(f"there is a page {uri} already")
        facts = {**options, "mime_type": PAGE_TYPE, "meta": meta or None, "contents_meta": meta or None}
        page = self._pages[uri] = AppPage(uri, fn, facts)
        for server in self.servers:
            server.add_resource(page.uri, page.fn, **page.options)

    def joined(self, server: Application) -> None:
        """Offer the pages as resources, and list tools to each client as it can use them."""
        for page in self._pages.values():
            server.add_resource(page.uri, page.fn, **page.options)

    def tool_view(self, call: Call) -> View | None:
        """Hide what only pages use from a client that shows none; one that never said what it shows is given all."""
        if _may_show(call.peer):
            return None
        return PLAIN

    def lifespan(self, server: Application) -> AbstractAsyncContextManager[Any] | None:
        """Make sure, before anyone is served, that every page a tool names is there."""
        return self._checked(server)

    @contextlib.asynccontextmanager
    async def _checked(self, server: Application) -> AsyncIterator[None]:
        offered = {resource.uri for resource in server.list_resources()}
        for tool in server.list_tools():
            uri = getattr(ui_of(tool), "resource_uri", None)
            if uri is not None and uri not in offered:
                raise SetupError(f"tool {tool.name!r} names the page {uri}, and there is none: offer it with app.page")
        yield

    def shown(self, context: Context) -> bool:
        """Return whether the caller shows pages."""
        return shows_pages(context.extension(APPS))


def _meta(asked: PageOptions) -> dict[str, Any]:
    """Return what a page asks of its host, as the metadata of its resource."""
    if asked.prefers_border is None:
        border: bool | UnsetType = UNSET
    else:
        border = asked.prefers_border
    page = PageMeta(
        csp=csp_of(asked.csp),
        permissions=permissions_of(asked.permissions),
        domain=asked.domain,
        prefers_border=border,
    )
    written = msgspec.to_builtins(page)
    if written:
        return {"ui": written}
    return {}


def _giver(uri: str, html: str | os.PathLike[str]) -> Callable[[], object]:
    if not isinstance(html, str):
        file = Path(html)
        if not file.is_file():
            raise SetupError(f"page {uri}: there is no file {str(file)!r} (looked for it at {file.absolute()})")
        _check_document(uri, file.read_text(encoding="utf-8"))

        def read() -> str:
            return file.read_text(encoding="utf-8")

        return read
    _check_document(uri, html)

    async def give() -> str:
        return html

    return give


def _check_document(uri: str, html: str) -> None:
    if not DOCUMENT.match(html, _start(html)):
        raise SetupError(f"page {uri}: it is not a document that begins with <!DOCTYPE html>; for a file give its Path")


def _start(html: str) -> int:
    """Return where a document begins: after a byte order mark, spaces and comments."""
    at = 0
    while at < LONGEST_LEAD:
        if html.startswith("<!--", at):
            end = html.find("-->", at + 4)
            if end < 0:
                break
            at = end + 3
        elif html[at : at + 1] == "\ufeff" or html[at : at + 1].isspace():
            at += 1
        else:
            break
    return at


def _may_show(peer: Peer) -> bool:
    introduced = peer.implementation is not None or not peer.revision.two_way
    return not introduced or shows_pages(peer.extension(APPS))


def _plain(tool: Tool) -> Tool | None:
    ui = ui_of(tool)
    if ui is None:
        return tool
    if ui.for_model:
        return without_ui(tool)
    return None


PLAIN = View("plain", _plain)
"""The tools of a server as a client sees them that shows no pages."""
