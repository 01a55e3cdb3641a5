"""What commands write: tables and progress bars on a terminal, plain text in a pipe, JSON where it is asked for.

Rule 1: a terminal never obeys a peer: control characters of what it wrote are shown as escapes.
Rule 2: what goes into a pipe is the same at every width, without colour and without headings; a row is cells with
tabs between them. The text of a result goes there as it came.
Rule 3: questions, progress and errors are on stderr, so that stdout holds what was asked for and nothing else.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Sequence
from typing import IO, Any, TextIO

import msgspec

from ferrule.supervision.logs import UNSAFE, escaped

BOLD = "1"
DIM = "2"
RED = "31"
GREEN = "32"
YELLOW = "33"
GAP = "  "
NARROWEST = 40
"""How many columns a terminal is taken to have at least."""
LEAST_CELL = 12
"""To how many columns the last cell of a row is cut at most."""
BAR = 24
"""How many columns the bar of a progress bar has."""


def is_terminal(stream: IO[str]) -> bool:
    """Return whether a person sees what is written to a stream."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def has_colour(stream: IO[str]) -> bool:
    """Return whether a stream is a terminal that shows colours (https://no-color.org)."""
    return is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def painted(text: str, style: str, stream: IO[str]) -> str:
    """Return a text in a style, where the stream shows it."""
    if not has_colour(stream):
        return text
    return f"\x1b[{style}m{text}\x1b[0m"


def error_line(sentence: str) -> str:
    """Return an error as it is written to stderr; lines of a peer in it are set off."""
    return f"{painted('error:', RED, sys.stderr)} {shown(sentence)}".rstrip().replace("\n", "\n  ") + "\n"


def shown(text: str) -> str:
    """Return a text of a peer for a terminal: its lines and tabs stay, other control characters are escapes."""
    if re.search(UNSAFE, text) is None:
        return text
    return escaped(text, kept="\n\t")


def width_of(text: str) -> int:
    """Return how many columns a text takes; wide characters take two, those that stand on others none."""
    if text.isascii():
        return len(text)
    columns = 0
    for character in text:
        if unicodedata.east_asian_width(character) in "WF":
            columns += 2
        elif not unicodedata.combining(character):
            columns += 1
    return columns


def fitted(text: str, columns: int) -> str:
    """Return a text cut to a number of columns."""
    if width_of(text) <= columns:
        return text
    kept = ""
    for character in text:
        if width_of(kept) + width_of(character) >= columns:
            break
        kept += character
    return f"{kept}…"


class Output:
    """Where a command writes, and how."""

    def __init__(self, *, json: bool = False, out: TextIO | None = None, err: TextIO | None = None) -> None:
        self.json = json
        self.out = out or sys.stdout
        self.err = err or sys.stderr
        self.terminal = is_terminal(self.out)
        """Whether a person sees stdout."""
        self._bar: ProgressBar | None = None

    @property
    def columns(self) -> int:
        """How wide the terminal is."""
        return max(shutil.get_terminal_size().columns, NARROWEST)

    # -- stdout

    def document(self, value: object) -> None:
        """Write a value as one JSON document."""
        text = msgspec.json.encode(value)
        if not self.terminal:
            self._write(text.decode() + "\n")
            return
        lines = msgspec.json.format(text, indent=2).decode().split("\n")
        # JSON lets through what is no control character of ASCII; in a string it may be an escape of JSON's own.
        self._write("\n".join(re.sub(UNSAFE, _json_escape, line) for line in lines) + "\n")

    def text(self, text: str) -> None:
        """Write a text of a peer, and the end of its last line."""
        if self.terminal:
            text = shown(text)
        if not text.endswith("\n"):
            text += "\n"
        self._write(text)

    def line(self, text: str) -> None:
        """Write one line, whatever a peer said in it."""
        self._write(f"{escaped(text)}\n")

    def marked(self, mark: str, text: str) -> None:
        """Write one line of a peer's behind a mark of our own, which may have colours."""
        self._write(f"{mark}{escaped(text)}\n")

    def heading(self, text: str) -> None:
        """Write the title of what follows, on a terminal."""
        if self.terminal:
            self._write(f"{painted(escaped(text), BOLD, self.out)}\n")

    def rows(self, rows: Sequence[Sequence[str]], indent: str = "") -> None:
        """Write rows of cells: aligned, the last cut, on a terminal; with tabs between them in a pipe."""
        cleaned = [[escaped(cell) for cell in row] for row in rows]
        if not self.terminal:
            for row in cleaned:
                self._write("\t".join(row) + "\n")
            return
        widths: list[int] = []
        for row in cleaned:
            widths.extend([0] * (len(row) - len(widths)))
            for position, cell in enumerate(row):
                widths[position] = max(widths[position], width_of(cell))
        for row in cleaned:
            self._write(f"{indent}{self._aligned(row, widths, self.columns - len(indent))}\n")

    def _aligned(self, row: Sequence[str], widths: Sequence[int], columns: int) -> str:
        line = ""
        for cell, width in zip(row[:-1], widths, strict=False):
            line += cell + " " * (width - width_of(cell)) + GAP
        room = max(columns - width_of(line), LEAST_CELL)
        return (line + fitted(row[-1], room)).rstrip()

    def raw(self, data: bytes) -> None:
        """Write bytes as they are; for a pipe, or for a terminal what we made ourselves."""
        self.clear_bar()
        self.out.flush()
        self.out.buffer.write(data)
        self.out.buffer.flush()

    def _write(self, text: str) -> None:
        self.clear_bar()
        self.out.write(text)

    # -- stderr

    def note(self, text: str) -> None:
        """Write a note for a person, beside the result."""
        self.clear_bar()
        self.err.write(f"{shown(text)}\n")
        self.err.flush()

    def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """Show how far a call is, where a person sees stderr and no program reads stdout."""
        if self.json or not is_terminal(self.err):
            return
        if self._bar is None:
            self._bar = ProgressBar(self.err)
        self._bar.show(done, total, message or "", self.columns)

    def clear_bar(self) -> None:
        """Take the progress bar away, so that something else can be written."""
        if self._bar is not None:
            self._bar.clear()


class ProgressBar:
    """One line of a terminal that shows how far something is."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._drawn = False

    def show(self, done: float, total: float | None, message: str, columns: int) -> None:
        """Draw the line anew."""
        line = progress_line(done, total, escaped(message))
        self._stream.write(f"\r\x1b[K{fitted(line, columns - 1)}")
        self._stream.flush()
        self._drawn = True

    def clear(self) -> None:
        """Take the line away."""
        if self._drawn:
            self._drawn = False
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def progress_line(done: float, total: float | None, message: str) -> str:
    """Return how far something is, in one line; a peer may have sent any numbers."""
    if total is None or not total > 0:
        return f"{done:g} {message}".rstrip()
    share = min(max(done / total, 0.0), 1.0)
    if math.isnan(share):
        share = 0.0
    filled = round(share * BAR)
    bar = "#" * filled + "-" * (BAR - filled)
    return f"[{bar}] {share:4.0%} {message}".rstrip()


def _json_escape(found: Any) -> str:
    return f"\\u{ord(found.group()):04x}"


def output_of(options: Any) -> Output:
    """Return where a command writes, as its options say."""
    return Output(json=options.json)
