"""Media: values of a result that are read when it is sent, and the content blocks they become.

The kinds of media are in `files.py`, which is imported by whoever makes one.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ferrule.schema.content import ContentBlock, ResourceContents, ResourceLink

UNKNOWN = "application/octet-stream"
"""The MIME type of bytes of which nothing is known (RFC 2046 §4.5.1)."""
TEXT = ("text/", "application/json", "application/xml", "application/yaml", "application/toml", "image/svg+xml")

MESSAGE = {"role", "content"}
"""The members of a prompt message that is written as a mapping."""

Keep = Callable[[Callable[[], bytes] | bytes, str, str, int], ResourceLink | None]
"""Keep bytes, or a function that reads them, under a name, a MIME type and a size; returns a link, or None."""


class Media:
    """A value that is read when it is sent."""

    @property
    def quick(self) -> bool:
        """Whether it can be written in the event loop, without a thread."""
        raise NotImplementedError

    def block(self, keep: Keep) -> ContentBlock:
        """Return the content block it is sent as; may block the thread."""
        raise NotImplementedError

    def contents(self, uri: str, mime_type: str | None) -> ResourceContents:
        """Return it as the contents of a resource; may block the thread."""
        raise NotImplementedError


class Linkable(Media):
    """Media that may be sent as a link to a resource."""


def contents_of_bytes(uri: str, mime_type: str, data: bytes) -> ResourceContents:
    """Return bytes as text where they are text, else as base64."""
    text_type = mime_type
    if mime_type == UNKNOWN:
        text_type = "text/plain"
        may_be_text = b"\0" not in data
    else:
        may_be_text = mime_type.startswith(TEXT)
    if may_be_text:
        with contextlib.suppress(UnicodeDecodeError):
            return ResourceContents(uri=uri, mime_type=text_type, text=data.decode())
    return ResourceContents(uri=uri, mime_type=mime_type, blob=in_ascii(data))


def in_ascii(data: bytes) -> str:
    """Write bytes as base64."""
    return base64.b64encode(data).decode("ascii")


def holds_media(value: object) -> bool:
    """Return whether a value is media, or a list or a prompt message with media in it."""
    if isinstance(value, Media):
        return True
    if isinstance(value, list | tuple):
        return _list_holds_media(value)
    return isinstance(value, Mapping) and value.keys() == MESSAGE and holds_media(value["content"])


def _list_holds_media(values: Sequence[object]) -> bool:
    """Return whether a list has media in it: the types of the items are looked at first, a long list has few."""
    mappings = set()
    for kind in set(map(type, values)):
        if issubclass(kind, Media):
            return True
        if issubclass(kind, Mapping):
            mappings.add(kind)
    if not mappings:
        return False
    for item in values:
        if type(item) not in mappings or len(item) != len(MESSAGE):  # type: ignore[arg-type]
            continue
        if holds_media(item):
            return True
    return False


def is_quick(value: object) -> bool:
    """Return whether all media in a value can be written in the event loop."""
    if isinstance(value, Media):
        return value.quick
    if isinstance(value, Mapping):
        return is_quick(value["content"])
    if isinstance(value, list | tuple):
        for item in value:
            if holds_media(item) and not is_quick(item):
                return False
    return True


def written(value: object, keep: Keep) -> Any:
    """Return a value with content blocks in place of media; may block the thread."""
    if isinstance(value, Media):
        return value.block(keep)
    if isinstance(value, list | tuple):
        items: list[Any] = []
        for item in value:
            if holds_media(item):
                items.append(written(item, keep))
            else:
                items.append(item)
        return items
    if isinstance(value, Mapping):
        return {**value, "content": written(value["content"], keep)}
    return value
