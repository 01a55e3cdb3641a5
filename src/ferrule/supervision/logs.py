"""What a process of ours logs: short records of plain text, and one word a minute about a log that cannot be written.

A record may repeat what a peer said. Its line breaks could pass for records of their own, its escape codes could speak
to a terminal, and its marks of direction could show a line in another order than it has: all of them are written as
escapes, as in a Python literal. The line breaks of a traceback stay; those inside the text of an exception are set off.
"""

from __future__ import annotations

import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache

OURS = "ferrule"
NAMES = (
    "ferrule.auth",
    "ferrule.balancing",
    "ferrule.calls",
    "ferrule.client",
    "ferrule.context",
    "ferrule.dispatch",
    "ferrule.extensions",
    "ferrule.graphql",
    "ferrule.http",
    "ferrule.http.access",
    "ferrule.link",
    "ferrule.observer",
    "ferrule.openapi",
    "ferrule.protocol",
    "ferrule.registry",
    "ferrule.results",
    "ferrule.routing",
    "ferrule.scope",
    "ferrule.server",
    "ferrule.skills",
    "ferrule.stores",
    "ferrule.supervision",
    "ferrule.tasks",
    "ferrule.telemetry",
    "ferrule.threads",
    "ferrule.tools",
    "ferrule.transports",
    "ferrule.workers",
)
"""Our loggers: a filter holds only for the very logger it was given to."""

MAX_TEXT = 2048
"""How many characters of a record's message are logged."""
MAX_TRACEBACK = 8192
"""How many characters of a traceback are logged where one of its exceptions has a longer text than a message may."""
LEFT_OUT = "\n…\n"
"""What stands for the middle of such a traceback."""
MAX_LINE = 500
"""How long a line of such a traceback is."""
MAX_CHAIN = 20
"""How many exceptions that led to each other are looked at."""
TELL_EVERY = 60.0
"""How many seconds pass before a log that cannot be written is reported again."""


UNSAFE_RANGES = (
    (0x00, 0x1F),
    (0x7F, 0x9F),
    (0x061C, 0x061C),
    (0x200E, 0x200F),
    (0x2028, 0x202E),
    (0x2066, 0x2069),
    (0xFEFF, 0xFEFF),
    (0xD800, 0xDFFF),
)
"""Control characters of both sets, line and paragraph separators, marks of direction, and halves of pairs."""
UNSAFE = "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in UNSAFE_RANGES) + "]"
"""Any of them, as a regular expression: `re` compiles it when the first record is logged."""


@cache
def _escapes(kept: str) -> dict[int, str]:
    """Return what each unsafe character but some is written as: a table, since a text may hold nothing else."""
    escapes = {}
    for first, last in UNSAFE_RANGES:
        for code in range(first, last + 1):
            if chr(code) in kept:
                continue
            escapes[code] = chr(code).encode("unicode_escape", "surrogatepass").decode("ascii")
    return escapes


class Short(logging.Filter):
    """Cuts and escapes what a record says, before any handler sees it: peers may have said anything at any length."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Cut and escape, and let everything pass."""
        # A failing format is for the handler to report.
        with suppress(Exception):
            if isinstance(record.args, tuple):
                record.args = tuple(cut(each) if isinstance(each, str) else each for each in record.args)
            message = record.getMessage()
            if len(message) > MAX_TEXT or re.search(UNSAFE, message):
                record.msg = one_line(message)
                record.args = ()
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and _is_odd(error):
            record.exc_text = _told(error)
        return True


def one_line(text: str) -> str:
    """Return the beginning of a text, escaped, and how much was left out; an escape is longer than what it shows."""
    shown = escaped(text[:MAX_TEXT])
    if len(text) <= MAX_TEXT and len(shown) <= MAX_TEXT:
        return shown
    return f"{shown[:MAX_TEXT]}… ({len(text)} characters)"


def escaped(text: str, kept: str = "") -> str:
    """Return a text as one line that shows what it holds: control characters as escapes, but those that are kept."""
    return text.translate(_escapes(kept))


def cut(text: str, most: int = MAX_TEXT) -> str:
    """Return the beginning of a text, and how much was left out."""
    if len(text) <= most:
        return text
    return f"{text[:most]}… ({len(text)} characters)"


def _is_odd(error: BaseException | None) -> bool:
    """Whether the text of an exception, or of one that led to it, is long or holds more than plain text."""
    for _ in range(MAX_CHAIN):
        if error is None:
            return False
        try:
            text = str(error)
            if len(text) > MAX_TEXT or re.search(UNSAFE, text):
                return True
        except Exception:
            return True
        if isinstance(error, BaseExceptionGroup):
            return True
        error = error.__cause__ or error.__context__
    return error is not None


def _told(error: BaseException) -> str:
    """Write a traceback as `logging` does, long lines cut, the middle of many left out, control characters escaped."""
    with suppress(Exception):
        parts = list(map(_part, traceback.format_exception(error)))
        lines = "".join(parts).split("\n")
        text = "\n".join(escaped(cut(line, MAX_LINE)) for line in lines).rstrip("\n")
        if len(text) <= MAX_TRACEBACK:
            return text
        half = (MAX_TRACEBACK - len(LEFT_OUT)) // 2
        return text[:half] + LEFT_OUT + text[-half:]
    return f"{type(error).__name__} (its traceback cannot be written)"


def _part(part: str) -> str:
    """Return a part of a traceback; lines behind the first of an exception's own text cannot pass for anything else."""
    if part.startswith((" ", "\n", "Traceback ")):
        return part
    return part.rstrip("\n").replace("\n", "\n  | ") + "\n"


def keep_short() -> None:
    """Let none of our loggers pass on a record that is long or more than plain text."""
    for name in NAMES:
        logging.getLogger(name).addFilter(_short)


_short = Short()


class Unwritable:
    """Stands for a handler's `handleError`: tells now and then that its log cannot be written, not at each record."""

    def __init__(self, handler: logging.Handler, clock: Callable[[], float]) -> None:
        self._handler = handler
        self._clock = clock
        self._told_at = -TELL_EVERY
        self._lost = 0

    def __call__(self, record: logging.LogRecord) -> None:
        """Take notice of a record that could not be written."""
        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            logging.Handler.handleError(self._handler, record)
            return
        self._lost += 1
        if self._clock() - self._told_at < TELL_EVERY:
            return
        self._told_at = self._clock()
        lost = self._lost
        self._lost = 0
        with suppress(OSError, ValueError):
            if sys.stderr is not None:
                records = "record" if lost == 1 else "records"
                sys.stderr.write(f"a log cannot be written ({lost} {records} lost): {error}: {self._handler}\n")
                sys.stderr.flush()


@contextmanager
def unwritable_logs_told(*handlers: logging.Handler, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """For a while, let a full disk under a handler not fill stderr with a traceback for each record.

    For the owner of the handlers to use: a server touches none that it was not given.
    """
    # Handlers that have an answer of their own to errors keep it.
    stock = []
    for each in handlers:
        if _is_stock(each):
            stock.append(each)
    for handler in stock:
        handler.handleError = Unwritable(handler, clock)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for handler in stock:
            vars(handler).pop("handleError", None)


def _is_stock(handler: logging.Handler) -> bool:
    return type(handler).handleError is logging.Handler.handleError and "handleError" not in vars(handler)
