"""What a page of the development server holds."""

from __future__ import annotations

from html.parser import HTMLParser

import httpx


class _Fields(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: dict[str, str] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "input" and given.get("type") == "hidden":
            self.found[given.get("name") or ""] = given.get("value") or ""


def form_of(answer: httpx.Response) -> dict[str, str]:
    """Return the hidden fields of the form on a page."""
    assert answer.status_code == 200, answer.text
    fields = _Fields()
    fields.feed(answer.text)
    return fields.found
