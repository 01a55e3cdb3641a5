"""What a handler reports along the way, made fit to be sent: a report must not end the work it is about."""

from __future__ import annotations

import logging
import sys
from typing import Any

from msgspec import Raw

from ferrule.server.calls.results import UnwritableResult, json_of

logger = logging.getLogger("ferrule.server")

MAX_TEXT = 10_000
"""How much is sent of a value that only its text can stand for."""


def amount(value: Any) -> int | float | None:
    """Give an amount as a number JSON has; None for what is none, such as NaN."""
    if type(value) is not int and type(value) is not float:
        if value is None or isinstance(value, str | bool):
            return None
        try:
            value = float(value)  # of a library for numbers, say
        except (TypeError, ValueError, OverflowError):
            return None
    return value if -sys.float_info.max <= value <= sys.float_info.max else None


def progress_amount(value: Any, method: str) -> int | float | None:
    """Give how far the work is as a number; None, and a warning, for what is none."""
    number = amount(value)
    if number is None:
        logger.warning("progress of %s must be a finite number: %r was dropped", method, value)
    return number


def loggable(data: Any) -> Raw | str:
    """Write what a log message is to say, or its text where it cannot be written: an exception, for one."""
    try:
        return Raw(json_of(data))
    except UnwritableResult:
        return text_of(data)


def text_of(data: Any) -> str:
    """Give the text of anything, with escapes for what no text can hold."""
    text = f"{type(data).__name__}: {data}" if isinstance(data, BaseException) else str(data)
    return text[:MAX_TEXT].encode(errors="backslashreplace").decode()
