"""Ferrule's own log, written for people or as JSON for machines: `Server(log_format="json")`.

Rule: only the logger `ferrule` and those below it are touched, never the root logger; whoever configures logging
elsewhere leaves `log_format` alone, and gets every record as usual.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Literal, TextIO

import msgspec

OURS = "ferrule"
LogFormat = Literal["text", "json"]
TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
MAX_FACT = 500
"""How many characters of a fact are written."""
MAX_FACTS = 50
"""How many facts of a record are written."""
PLAIN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
"""What every record has; all else was given as `extra`."""


class JsonFormatter(logging.Formatter):
    """Writes a record as one line of JSON: time, level, logger, message, what was given as `extra`, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": _writable(record.getMessage()),
        }
        most = len(line) + MAX_FACTS
        for name, value in vars(record).items():
            if len(line) == most:
                break
            if name not in PLAIN and name not in line:
                line[_writable(name)] = _fact(value)
        if record.exc_text:
            line["exception"] = _writable(record.exc_text)
        elif record.exc_info:
            line["exception"] = _writable(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


def _fact(value: object) -> str | int | float | bool | None:
    """Return a value that JSON can say; anything else as text."""
    if value is None or isinstance(value, bool | float):
        return value
    if isinstance(value, int) and value.bit_length() < 64:
        return value
    text = value if isinstance(value, str) else str(value)
    return _writable(text[:MAX_FACT])


def _writable(text: str) -> str:
    """Return a text without halves of surrogate pairs, which cannot be written as UTF-8."""
    return text.encode("utf-8", "backslashreplace").decode()


class OwnHandler(logging.StreamHandler[TextIO]):
    """The handler that `write_logs` has installed."""


def write_logs(how: LogFormat, stream: TextIO | None = None, level: int = logging.INFO) -> logging.Handler:
    """Write Ferrule's log to a stream, stderr if none is given; what was written by an earlier call is not any more."""
    handler = OwnHandler(stream or sys.stderr)
    if how == "json":
        handler.setFormatter(JsonFormatter())
    else:
        handler.setFormatter(logging.Formatter(TEXT))
    logger = logging.getLogger(OURS)
    stop_logs()
    logger.addHandler(handler)
    # Or else a handler of the program would write each record again.
    logger.propagate = False
    if logger.level == logging.NOTSET:
        logger.setLevel(level)
    return handler


def stop_logs() -> None:
    """Write Ferrule's log no more, and pass its records on to the program again."""
    logger = logging.getLogger(OURS)
    for handler in list(logger.handlers):
        if isinstance(handler, OwnHandler):
            logger.removeHandler(handler)
    logger.propagate = True
