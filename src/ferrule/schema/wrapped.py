"""Values that are no objects, wrapped as `{"result": …}`, and how a client knows that they were.

Revisions of the handshake era want an object as structured content, so every library puts a plain value under the key
`result`. A tool may just as well return an object of its own with that one key. FastMCP's marks tell the two apart: one
in the output schema, one in the `_meta` of a result. We write the first always, and the second where the content does
not say it by itself; the official SDK writes neither, but its content is the value, not the object around it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import Raw

SCHEMA_MARK = "x-fastmcp-wrap-result"
"""The keyword of an output schema that says that its value stands under `result`."""
RESULT_MARK = {"fastmcp": {"wrap_result": True}}
"""The same in the `_meta` of one result."""


def wrapping(inner: Mapping[str, object]) -> dict[str, object]:
    """Return the schema of an object that wraps a value of the schema `inner`."""
    return {"type": "object", "properties": {"result": inner}, "required": ["result"], SCHEMA_MARK: True}


def unwrapped(structured: object, texts: Sequence[str], meta: Mapping[str, object] | None) -> object:
    """Return structured content without its wrapping, where it has one."""
    value = _decoded(structured)
    if not isinstance(value, dict) or value.keys() != {"result"}:
        return value
    inner = _decoded(value["result"])
    if _is_marked(meta) or _says(texts, inner):
        return inner
    return {"result": inner}


def _decoded(value: object) -> object:
    if isinstance(value, Raw):
        return msgspec.json.decode(value)
    return value


def _is_marked(meta: Mapping[str, object] | None) -> bool:
    mark = meta.get("fastmcp") if meta else None
    return isinstance(mark, Mapping) and mark.get("wrap_result") is True


def _says(texts: Sequence[str], value: object) -> bool:
    """Return whether the text of a result is this value: as one text, or as one for each element of a list."""
    if not texts:
        return value is None or value == []
    if len(texts) == 1 and _is_written(value, texts[0]):
        return True
    return isinstance(value, list) and len(value) == len(texts) and all(map(_is_written, value, texts))


def _is_written(value: object, text: str) -> bool:
    """Return whether a text is a value as JSON, or the value itself."""
    if text == value:
        return True
    if isinstance(value, list):
        return text.lstrip()[:1] == "["
    try:
        return bool(msgspec.json.decode(text) == value)
    except (ValueError, RecursionError):
        return isinstance(value, bool | None) and text == str(value)
