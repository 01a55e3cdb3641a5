"""What a guide has to say in so many words is there."""

from __future__ import annotations

import doc_pages
import pytest

GUIDES = doc_pages.PROJECT / "docs" / "guides"

STATEMENTS = [
    # SSEV-15: where WebSocket is not available.
    ("http-sse.md", "Serve it for clients that know nothing newer, and where WebSocket is not available."),
    # SSEV-16
    ("http-sse.md", "One connection a client is held open, and nothing is compressed."),
    # STDI-09: no authentication, local scope, one direction a descriptor.
    ("stdio.md", "Both are on one machine, and nobody is authenticated"),
    ("stdio.md", "stdin carries only what the client says, stdout only what the server says."),
]


@pytest.mark.parametrize(("page", "words"), STATEMENTS)
def test_a_guide_says_it(page: str, words: str) -> None:
    text = " ".join((GUIDES / page).read_text(encoding="utf-8").split())
    assert words in text
