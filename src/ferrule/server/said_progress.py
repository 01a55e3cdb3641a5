"""What a handler says of its progress, as it may be sent: numbers that JSON has, and text."""

from __future__ import annotations

import logging
import math
from typing import Any

logger = logging.getLogger("ferrule.context")

Said = tuple[float, float | None, str | None]


def sendable(progress: Any, total: Any, message: Any, method: str) -> Said | None:
    """Give progress as numbers and text; None, and a warning, where it is no number: telling of it breaks no call."""
    done = _number(progress)
    if done is None:
        logger.warning("progress of %s must be a finite number: %r was dropped", method, progress)
        return None
    return done, None if total is None else _number(total), None if message is None else _text(message)


def _number(value: Any) -> float | None:
    if type(value) is int:
        return value
    if isinstance(value, str | bytes):
        return None
    try:
        number = float(value)  # also what other libraries have for numbers
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _text(value: Any) -> str:
    text = str(value)
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
