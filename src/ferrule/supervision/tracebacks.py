"""Tracebacks as the author of a handler reads them: from the first frame that is theirs."""

from __future__ import annotations

import asyncio
from types import TracebackType

OURS = __file__.rpartition("supervision")[0]
ASYNCIO = asyncio.__file__.rpartition("__init__")[0]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def shown(error: BaseException) -> ExcInfo:
    """Return what a log is told of an error: its traceback without the frames of ours that led to the handler."""
    return type(error), error, beyond_ours(error.__traceback__)


def beyond_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame outside this package on; all of it where every frame is inside."""
    at = trace
    while at is not None and at.tb_frame.f_code.co_filename.startswith((OURS, ASYNCIO)):
        at = at.tb_next
    return at or trace
