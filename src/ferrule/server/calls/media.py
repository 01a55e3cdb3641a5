"""What a result may hold that is still to be read, and how it is put into the result.

The kinds there are, pictures, sound and files, are imported by whoever makes one.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferrule.schema.content import ContentBlock, ResourceContents, ResourceLink

UNKNOWN = "application/octet-stream"
"""The MIME type of what nothing is known of."""
TEXT = ("text/", "application/json", "application/xml", "application/yaml", "application/toml", "image/svg+xml")

MESSAGE = {"role", "content"}
"""The members of a prompt message that is written as a mapping."""

Keep = Callable[[Callable[[], bytes] | bytes, str, str, int], ResourceLink | None]
"""Keeps bytes, or a way to read them, under a name, a MIME type and a size; gives a link where there can be one."""


class Media:
    """Something to be read when it is sent."""

    @property
    def quick(self) -> bool:
        """Whether it can be written in place, without a thread."""
        raise NotImplementedError

    def block(self, keep: Keep) -> ContentBlock:
        """Make the content block it is sent as; blocks."""
        raise NotImplementedError

    def contents(self, uri: str, mime_type: str | None) -> ResourceContents:
        """Make what a resource holds of it; blocks."""
        raise NotImplementedError


class Linkable(Media):
    """What may be sent as a link, which is read as a resource."""


def contents_of_bytes(uri: str, mime_type: str, data: bytes) -> ResourceContents:
    """Return text as text where it is, anything else as base64."""
    unknown = mime_type == UNKNOWN
    if (mime_type.startswith(TEXT) or unknown) and not (unknown and b"\0" in data):
        with contextlib.suppress(UnicodeDecodeError):
            return ResourceContents(uri=uri, mime_type="text/plain" if unknown else mime_type, text=data.decode())
    return ResourceContents(uri=uri, mime_type=mime_type, blob=in_ascii(data))


def in_ascii(data: bytes) -> str:
    """Write bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def holds_media(value: object) -> bool:
    """Return whether anything in a value is still to be read."""
    if isinstance(value, Media):
        return True
    if isinstance(value, list | tuple):
        return _list_holds_media(value)
    return isinstance(value, Mapping) and value.keys() == MESSAGE and holds_media(value["content"])


def _list_holds_media(values: Sequence[object]) -> bool:
    """Look at the types of the items first: a long list has few."""
    mappings = set()
    for kind in set(map(type, values)):
        if issubclass(kind, Media):
            return True
        if issubclass(kind, Mapping):
            mappings.add(kind)
    for item in values if mappings else ():
        if type(item) in mappings and len(item) == len(MESSAGE) and holds_media(item):  # type: ignore[arg-type]
            return True
    return False


def is_quick(value: object) -> bool:
    """Return whether everything in a value can be written in place."""
    if isinstance(value, Media):
        return value.quick
    if isinstance(value, Mapping):
        return is_quick(value["content"])
    return not isinstance(value, list | tuple) or all(is_quick(item) for item in value if holds_media(item))


def written(value: object, keep: Keep) -> Any:
    """Put content blocks where media are; blocks."""
    if isinstance(value, Media):
        return value.block(keep)
    if isinstance(value, list | tuple):
        return [written(item, keep) if holds_media(item) else item for item in value]
    if isinstance(value, Mapping):
        return {**value, "content": written(value["content"], keep)}
    return value
