"""One page of the site: a Markdown file, read."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name

INFO = re.compile(r"(\w*)(?: title=\"([^\"]+)\")?")
NOT_IN_A_SLUG = re.compile(r"[^\w\- ]")
FORMATTER = HtmlFormatter(nowrap=True, classprefix="c-")
PLAIN = {"", "text"}
"""Blocks that have no language."""


@dataclass(frozen=True)
class Heading:
    """A heading of a page, with the text below it."""

    level: int
    anchor: str
    title: str
    text: str


@dataclass
class Page:
    """A Markdown file, its address in the site, and what is in it."""

    source: Path
    address: PurePosixPath
    label: str = ""
    """What it is called in the navigation; its title unless told."""
    tokens: list[Token] = field(init=False)

    def __post_init__(self) -> None:
        self.text = self.source.read_text(encoding="utf-8")
        self.tokens = parser().parse(self.text)
        _add_anchors(self.tokens)
        self.label = self.label or self.title

    @property
    def root(self) -> str:
        """Return the way from this page up to the root of the site."""
        return "../" * (len(self.address.parts) - 1)

    @property
    def title(self) -> str:
        """Return the first heading."""
        return self.headings[0].title

    @cached_property
    def summary(self) -> str:
        """Return the first paragraph as plain text."""
        return next((_plain(self.tokens[at + 1]) for at, token in enumerate(self.tokens) if _opens(token)), "")

    @cached_property
    def headings(self) -> list[Heading]:
        """Return the headings in order; a page without one is an error of its author."""
        found: list[tuple[int, str, str, list[str]]] = []
        for at, token in enumerate(self.tokens):
            if token.type == "heading_open":
                inline = self.tokens[at + 1]
                found.append((int(token.tag[1:]), str(token.attrs["id"]), _plain(inline), []))
            elif found and token.type == "inline" and self.tokens[at - 1].type != "heading_open":
                found[-1][3].append(_plain(token))
        if not found:
            raise ValueError(f"{self.source} has no heading")
        return [Heading(level, anchor, title, " ".join(text)) for level, anchor, title, text in found]

    @property
    def links(self) -> list[Token]:
        """Return the tokens that lead somewhere: links and pictures."""
        inner = [child for token in self.tokens for child in token.children or ()]
        return [token for token in inner if token.type in ("link_open", "image")]

    def render(self) -> str:
        """Return the page as HTML."""
        reader = parser()
        rendered: str = reader.renderer.render(self.tokens, reader.options, {"folder": self.source.parent})
        return rendered


def target_of(token: Token) -> str:
    """Return where a link or a picture leads."""
    return str(token.attrs["href" if token.type == "link_open" else "src"])


@lru_cache
def parser() -> MarkdownIt:
    """Return the reader of Markdown."""
    return MarkdownIt("commonmark", renderer_cls=Renderer).enable("table")


class Renderer(RendererHTML):
    """Writes what the templates need: coloured code, tables that scroll, drawings that follow the colours."""

    def fence(self, tokens: Sequence[Token], at: int, _options: Any, _env: Any) -> str:
        """Write a block of code."""
        language, title = INFO.match(tokens[at].info).groups()  # type: ignore[union-attr]  # the pattern may be empty
        caption = f"<figcaption>{html.escape(title)}</figcaption>" if title else ""
        code = colour(tokens[at].content, language)
        return f'<figure class="code">{caption}<pre tabindex="0"><code>{code}</code></pre></figure>\n'

    def table_open(self, *_given: Any) -> str:
        """Begin a table."""
        return '<div class="table"><table>\n'

    def table_close(self, *_given: Any) -> str:
        """End a table."""
        return "</table></div>\n"

    def image(self, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
        """Write a drawing into the page, so that it has the page's colours."""
        source = target_of(tokens[at])
        if not source.endswith(".svg"):
            return str(super().image(tokens, at, options, env))
        drawing = (env["folder"] / source).read_text(encoding="utf-8")
        return f'<span class="drawing">{drawing}</span>'


def colour(code: str, language: str) -> str:
    """Return code as HTML with a class for each kind of word."""
    if language in PLAIN:
        return html.escape(code)
    return str(highlight(code, get_lexer_by_name(language, stripnl=False), FORMATTER))


def slug(title: str) -> str:
    """Return the anchor of a heading, as GitHub makes it."""
    return NOT_IN_A_SLUG.sub("", title.lower()).replace(" ", "-")


def _add_anchors(tokens: list[Token]) -> None:
    seen: dict[str, int] = {}
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            name = slug(_plain(tokens[at + 1]))
            count = seen.get(name, 0)
            seen[name] = count + 1
            token.attrs["id"] = f"{name}-{count}" if count else name


def _opens(token: Token) -> bool:
    return token.type == "paragraph_open"


def _plain(inline: Token) -> str:
    """Return the text of an inline token without its marks."""
    return "".join(" " if child.type == "softbreak" else child.content for child in inline.children or ())
