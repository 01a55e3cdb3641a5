"""Pictures, sound and other binary content of a peer: shown where the terminal can, or kept in files.

Rule 1: what a terminal is sent is made here of decoded bytes; nothing of the peer's text reaches it.
Rule 2: a file is never written over, and its name is ours.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path

from ferrule.cli.output import Output
from ferrule.errors import SetupError
from ferrule.schema.content import (
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)

CHUNK = 4096
"""How many characters of base64 one piece of kitty's protocol may have."""
MOST_SHOWN = 16 * 1024 * 1024
MOST_FILES = 10_000
PNG = b"\x89PNG\r\n\x1a\n"
SUFFIXES = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "image/svg+xml": ".svg",
    "audio/wav": ".wav",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "application/pdf": ".pdf",
    "application/json": ".json",
    "text/plain": ".txt",
    "text/html": ".html",
}
UNSAFE_NAME = re.compile(r"[^A-Za-z0-9_-]+")


def picture_protocol(environment: Mapping[str, str]) -> str:
    """Return how the terminal shows pictures: `kitty`, `iterm`, or not at all."""
    program = environment.get("TERM_PROGRAM", "")
    if program in ("iTerm.app", "WezTerm", "mintty") or environment.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    if environment.get("KITTY_WINDOW_ID") or "kitty" in environment.get("TERM", "") or program == "ghostty":
        return "kitty"
    return ""


def drawn(data: bytes, protocol: str) -> bytes:
    """Return what makes a terminal show a picture; empty where it cannot show this one."""
    if len(data) > MOST_SHOWN:
        return b""
    encoded = base64.b64encode(data)
    if protocol == "iterm":
        return b"\x1b]1337;File=inline=1;size=%d:%b\x07\n" % (len(data), encoded)
    if protocol != "kitty" or not data.startswith(PNG):
        return b""
    pieces = []
    for start in range(0, len(encoded), CHUNK):
        more = int(start + CHUNK < len(encoded))
        head = b"a=T,f=100,m=%d" % more if start == 0 else b"m=%d" % more
        pieces.append(b"\x1b_G%b;%b\x1b\\" % (head, encoded[start : start + CHUNK]))
    return b"".join(pieces) + b"\n"


def decoded(text: str) -> bytes | None:
    """Return the bytes of base64; None for what is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


class ContentWriter:
    """Writes the content blocks of a result, one after another."""

    def __init__(self, output: Output, name: str, folder: str | None) -> None:
        self._output = output
        self._name = UNSAFE_NAME.sub("-", name).strip("-")[:40] or "content"
        self._folder = folder

    def block(self, block: ContentBlock) -> None:
        """Write one block."""
        if isinstance(block, TextContent):
            self._output.text(block.text)
        elif isinstance(block, ImageContent | AudioContent):
            self._binary(block.data, block.mime_type)
        elif isinstance(block, EmbeddedResource):
            self.contents(block.resource)
        elif isinstance(block, ResourceLink):
            self._output.rows([[block.uri, block.title or block.name]])

    def contents(self, contents: ResourceContents) -> None:
        """Write what a resource holds."""
        if contents.text is not None:
            if self._folder is None:
                self._output.text(contents.text)
            else:
                self._save(contents.text.encode(errors="surrogatepass"), contents.mime_type or "text/plain")
        elif contents.blob is not None:
            self._binary(contents.blob, contents.mime_type or "application/octet-stream")

    def _binary(self, text: str, kind: str) -> None:
        data = decoded(text)
        if data is None:
            self._output.note(f"[{kind} that is not base64]")
            return
        if self._folder is not None:
            self._save(data, kind)
            return
        if not self._output.terminal:
            self._output.raw(data)
            return
        picture = b""
        if kind.startswith("image/"):
            picture = drawn(data, picture_protocol(os.environ))
        if picture:
            self._output.raw(picture)
        else:
            self._output.line(f"[{kind}, {len(data)} bytes: --save DIR keeps it]")

    def _save(self, data: bytes, kind: str) -> None:
        folder = Path(self._folder or ".")
        suffix = SUFFIXES.get(kind.partition(";")[0].strip().lower(), ".bin")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path = _write_new(folder, self._name, suffix, data)
        except OSError as reason:
            raise SetupError(f"cannot write into {folder}: {reason.strerror}") from None
        self._output.line(str(path))


def _write_new(folder: Path, name: str, suffix: str, data: bytes) -> Path:
    """Write a file under the first name that is free."""
    for number in range(1, MOST_FILES):
        path = folder / f"{name}-{number}{suffix}"
        try:
            with path.open("xb") as file:
                file.write(data)
        except FileExistsError:
            continue
        return path
    raise SetupError(f"{folder} has {MOST_FILES} files named {name}-…{suffix} already: give another folder")
