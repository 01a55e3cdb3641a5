"""The vocabulary of MCP, imported from one place."""

from __future__ import annotations

import ferrule.types


def test_every_name_of_the_vocabulary_is_there_once_and_in_order() -> None:
    assert ferrule.types.__all__ == sorted(set(ferrule.types.__all__))
    assert [name for name in ferrule.types.__all__ if not hasattr(ferrule.types, name)] == []


def test_text_and_blobs_are_one_kind_of_contents() -> None:
    text = ferrule.types.TextResourceContents(uri="a:b", text="Hi")
    blob = ferrule.types.BlobResourceContents(uri="a:b", blob="SGk=")
    assert type(text) is type(blob) is ferrule.types.ResourceContents
