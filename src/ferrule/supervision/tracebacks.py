"""Tracebacks as the author of a handler reads them: from the first frame that is theirs."""

from __future__ import annotations

import asyncio
import os
import threading
from types import TracebackType

OURS = __file__.rpartition("supervision")[0]
ASYNCIO = asyncio.__file__.rpartition("__init__")[0]
LIBRARY = os.__file__.rpartition("os.py")[0]
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def shown(error: BaseException) -> ExcInfo:
    """Return what a log shows of an error: its traceback without the frames of ours that led to the handler."""
    return type(error), error, beyond_ours(error.__traceback__)


def beyond_ours(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback from the first frame outside this package on; all of it where every frame is inside."""
    at = trace
    while at is not None and at.tb_frame.f_code.co_filename.startswith((OURS, ASYNCIO)):
        at = at.tb_next
    return at or trace


def in_one_sentence(error: Exception, sentence: str) -> BaseException:
    """Return an error that ends a program with one sentence on stderr and status 1, where nobody catches it.

    It is of the same class as before, so whoever catches that still does. Where `FERRULE_TRACEBACK` is set, and in
    another thread than the main one, where such an end would be silent, it is the error itself.
    """
    if os.environ.get("FERRULE_TRACEBACK") or threading.current_thread() is not threading.main_thread():
        return error
    kind = type(error)
    line = _line(error.__traceback__)
    ending = type(kind.__name__, (kind, SystemExit), {"__module__": kind.__module__})
    shown: SystemExit = ending.__new__(ending, *error.args)
    shown.__dict__.update(error.__dict__)
    shown.code = f"error: {sentence}{line}"
    return shown


def _line(trace: TracebackType | None) -> str:
    """Return where in the author's own code an error came from, if it did."""
    last = ""
    at = beyond_ours(trace)
    while at is not None:
        name = at.tb_frame.f_code.co_filename
        theirs = name.endswith(".py") and not name.startswith((OURS, LIBRARY)) and "site-packages" not in name
        if theirs:
            last = f" ({name.rpartition(os.sep)[2]}, line {at.tb_lineno})"
        at = at.tb_next
    return last
