"""Pictures, sound and files as results: where they come from, what they are, and when they are read.

Nothing is read when one is made: a tool returns it, and it is read in a thread, within its bound.
"""

from __future__ import annotations

import contextlib
import io
import mimetypes
import os
import stat
import urllib.parse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, TypedDict, Unpack

from ferrule.errors import SetupError
from ferrule.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
)
from ferrule.schema.model import Annotations
from ferrule.server.calls.media import UNKNOWN, Keep, Linkable, Media, contents_of_bytes, in_ascii
from ferrule.server.calls.results import UnwritableResult

MAX_MEDIA = 10 * 1024 * 1024
"""How many bytes a picture, a sound or a file may have: in base64 they still fit into a message."""
EMBED_UP_TO = 256 * 1024
"""Up to how many bytes a file is sent within the result; a larger one is sent as a link."""
QUICK = 64 * 1024
"""Up to how many bytes in memory are written in place, without a thread."""

SUFFIXES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".svg": "image/svg+xml",
    ".bmp": "image/bmp",
    ".avif": "image/avif",
    ".tif": "image/tiff",
    ".mp3": "audio/mpeg",
    ".wav": "audio/wav",
    ".ogg": "audio/ogg",
    ".flac": "audio/flac",
    ".m4a": "audio/mp4",
    ".md": "text/markdown",
    ".json": "application/json",
    ".csv": "text/csv",
    ".txt": "text/plain",
}
"""What the system's own table has differently on different systems, or not at all."""
MAGIC = (
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF8", "image/gif"),
    (8, b"WEBP", "image/webp"),
    (4, b"ftypavif", "image/avif"),
    (0, b"BM", "image/bmp"),
    (8, b"WAVE", "audio/wav"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (4, b"ftypM4A", "audio/mp4"),
    (0, b"%PDF-", "application/pdf"),
)
"""How files begin: at which byte, with which bytes, and what they are then."""
FORMATS = {"jpg": "jpeg", "mp3": "mpeg", "svg": "svg+xml", "tif": "tiff", "m4a": "mp4"}


class SourceMedia(Media):
    """Something to be read: from a path, bytes, an open file, or an object that saves itself as an image does."""

    kind = "application"
    default_mime_type = UNKNOWN
    """What it is where neither its name nor its bytes tell."""

    def __init__(
        self,
        source: object = None,
        *,
        path: str | os.PathLike[str] | None = None,
        data: bytes | None = None,
        format: str | None = None,  # noqa: A002  the word users know from other servers
        mime_type: str | None = None,
        name: str | None = None,
        annotations: Annotations | None = None,
        meta: Mapping[str, object] | None = None,
        max_size: int = MAX_MEDIA,
    ) -> None:
        given = []
        for one in (source, path, data):
            if one is not None:
                given.append(one)
        if len(given) != 1:
            raise SetupError(f"{type(self).__name__} takes one of a path, bytes, an open file or an image object")
        self._source: Any = _understood(given[0], type(self).__name__)
        self._format = format.lower().removeprefix(".") if format else None
        self._mime_type = mime_type
        self._name = name
        self.annotations = annotations
        self.meta = dict(meta) if meta else None
        self.max_size = max_size

    @property
    def name(self) -> str:
        """Its name: the given one, else its file's."""
        own: object = self._name
        if not own:
            own = self._source
            if not isinstance(own, Path):
                own = getattr(own, "name", "")
        return Path(str(own)).name or type(self).__name__.lower()

    @property
    def quick(self) -> bool:
        """Whether it can be written in place: it is short, and in memory already."""
        return isinstance(self._source, bytes) and len(self._source) <= QUICK

    def read(self) -> bytes:
        """Read all of it; blocks."""
        try:
            data = self._read()
        except UnwritableResult:
            raise
        except Exception as reason:
            if isinstance(reason, OSError) and reason.strerror:
                why = reason.strerror
            else:
                why = type(reason).__name__
            raise UnwritableResult(f"{self.name!r} cannot be read: {why}") from reason
        if len(data) > self.max_size:
            raise UnwritableResult(f"{self.name!r} has more than the {self.max_size} bytes it may have (max_size=)")
        return data

    def _read(self) -> bytes:
        source = self._source
        if isinstance(source, bytes):
            return source
        if isinstance(source, Path):
            with self._opened(source) as file:
                return file.read(self.max_size + 1) or b""
        if hasattr(source, "read"):
            with contextlib.ExitStack() as after:
                # Whoever gave it has returned: nobody else is left to close it.
                after.callback(getattr(source, "close", lambda: None))
                read = source.read(self.max_size + 1)
                if isinstance(read, str):
                    return read.encode()
                return bytes(read)
        saved = io.BytesIO()
        source.save(saved, format=self._format or "png")
        return saved.getvalue()

    def _opened(self, path: Path) -> BinaryIO:
        """Open a file, and nothing that only looks like one: a pipe or a device would be waited for without end."""
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115  closed by who asked
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            file.close()
            raise UnwritableResult(f"{self.name!r} is not a file")
        return file

    def mime_of(self, data: bytes) -> str:
        """Return its media type: the given one, else by its name, else by its first bytes."""
        if self._mime_type:
            return self._mime_type
        if self._format:
            return f"{self.kind}/{FORMATS.get(self._format, self._format)}"
        for found in (self._by_name(), _by_magic(data)):
            if found is not None and self._is_mine(found):
                return found
        return self.default_mime_type

    def _by_name(self) -> str | None:
        suffix = Path(self.name).suffix.lower()
        return SUFFIXES.get(suffix) or mimetypes.guess_type(f"x{suffix}")[0]

    def _is_mine(self, mime_type: str) -> bool:
        return mime_type.startswith(f"{self.kind}/")

    def contents(self, uri: str, mime_type: str | None) -> ResourceContents:
        """Make what a resource holds of it; blocks."""
        data = self.read()
        return contents_of_bytes(uri, mime_type or self.mime_of(data), data)


class Image(SourceMedia):
    """A picture: `Image("chart.png")`, `Image(data, format="png")`, or an image object that has `save`."""

    kind = "image"
    default_mime_type = "image/png"

    def block(self, keep: Keep) -> ContentBlock:
        """Make an image block; blocks."""
        data = self.read()
        return ImageContent(in_ascii(data), self.mime_of(data), self.annotations, self.meta)


class Audio(SourceMedia):
    """A sound: `Audio("bell.mp3")`, `Audio(data, format="wav")`."""

    kind = "audio"
    default_mime_type = "audio/wav"

    def block(self, keep: Keep) -> ContentBlock:
        """Make an audio block; blocks."""
        data = self.read()
        return AudioContent(in_ascii(data), self.mime_of(data), self.annotations, self.meta)


class MediaKeywords(TypedDict, total=False):
    """The options of a picture, a sound or a file."""

    path: str | os.PathLike[str] | None
    data: bytes | None
    format: str | None
    mime_type: str | None
    name: str | None
    annotations: Annotations | None
    meta: Mapping[str, Any] | None
    max_size: int


class File(SourceMedia, Linkable):
    """Any file: a small one is sent within the result, a large one as a link that the caller can read for a while."""

    def __init__(
        self, source: object = None, *, embed_up_to: int = EMBED_UP_TO, **options: Unpack[MediaKeywords]
    ) -> None:
        super().__init__(source, **options)
        self.embed_up_to = embed_up_to

    def _is_mine(self, mime_type: str) -> bool:
        return True

    def block(self, keep: Keep) -> ContentBlock:
        """Make an embedded resource, or a link to what is kept; blocks."""
        link = self._link(keep)
        if link is not None:
            return link
        data = self.read()
        uri = f"ferrule://files/{urllib.parse.quote(self.name)}"
        return EmbeddedResource(contents_of_bytes(uri, self.mime_of(data), data), self.annotations, self.meta)

    def _link(self, keep: Keep) -> ContentBlock | None:
        """Make a link to what is too large to be embedded; a file at a path is read when it is asked for."""
        link: ResourceLink | None = None
        if isinstance(self._source, Path) and self._source.is_file():
            size = self._source.stat().st_size
            if self.embed_up_to < size <= self.max_size:
                with self._opened(self._source) as file:
                    mime_type = self.mime_of(file.read(64) or b"")
                link = keep(self.read, self.name, mime_type, size)
        else:
            data = self.read()
            self._source = data
            if len(data) > self.embed_up_to:
                link = keep(data, self.name, self.mime_of(data), len(data))
        if link is not None:
            link.annotations = self.annotations
            link.meta = self.meta
        return link


def _at_once(path: str, flags: int) -> int:
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _understood(source: object, kind: str) -> Any:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | os.PathLike):
        return Path(source)
    if hasattr(source, "read") or callable(getattr(source, "save", None)):
        return source
    raise SetupError(f"{kind} cannot be made of {type(source).__name__}: give a path, bytes, or an open file")


def _by_magic(data: bytes) -> str | None:
    for start, signature, mime_type in MAGIC:
        if data.startswith(signature, start):
            return mime_type
    if data[:1] in (b"<", b"\xef") and b"<svg" in data[:512]:
        return "image/svg+xml"
    return None
