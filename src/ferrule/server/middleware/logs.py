"""`Logging`: one line for each call, with its facts for whoever reads logs by machine."""

from __future__ import annotations

import itertools
import logging
import re
import time
from collections.abc import Callable
from typing import Any

import msgspec

from ferrule.errors import Refusal
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Need
from ferrule.runtime.dispatch import Handler
from ferrule.server.middleware.caller_key import target
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.offers.descriptions import PRIVATE_NAME

HIDDEN = "***"
MAX_DEPTH = 20
MAX_READ = 128 * 1024
"""Of how many bytes arguments may be to be read for the log; of larger ones only the size is logged."""
MAX_FACT = 200

_write = msgspec.json.Encoder().encode


class Logging(Middleware):
    """Writes one line for each request, with `method`, `target`, `outcome`, `duration_ms` and more as `extra`.

    Arguments are logged only with `payloads=True`, cut at `max_payload` characters (of large ones only the size), and
    never what is called a password, a token or the like. Headers and results are not logged at all.
    """

    def __init__(
        self,
        logger: logging.Logger | str = "ferrule.calls",
        *,
        level: int = logging.INFO,
        payloads: bool = False,
        max_payload: int = 1000,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        if isinstance(logger, str):
            self._logger = logging.getLogger(logger)
        else:
            self._logger = logger
        self._level = level
        self._payloads = payloads
        self._max_payload = max_payload
        self._clock = clock

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Log how a request ended."""
        start = self._clock()
        outcome = "failed"
        try:
            result = await proceed(call)
            outcome = "error" if getattr(result, "is_error", None) else "ok"
        except Refusal as refusal:
            outcome = f"refused ({refusal.own_code})"
            raise
        except Need:
            outcome = "asks"
            raise
        except BaseException as error:
            outcome = f"failed ({type(error).__name__})"
            raise
        finally:
            if self._logger.isEnabledFor(self._level):
                self._write(call, outcome, (self._clock() - start) * 1000)
        return result

    def _write(self, call: Call, outcome: str, milliseconds: float) -> None:
        what = " ".join(filter(None, (call.method, _safe(target(call)))))
        principal = call.origin.principal
        facts: dict[str, Any] = {
            "method": call.method,
            "target": target(call)[:MAX_FACT],
            "request_id": call.id[:MAX_FACT] if isinstance(call.id, str) else call.id,
            "principal": None if principal is None else principal[:MAX_FACT],
            "carrier": call.origin.carrier,
            "revision": call.peer.revision.version,
            "outcome": outcome,
            "duration_ms": round(milliseconds, 3),
        }
        if self._payloads:
            facts["arguments"] = self._arguments(call)
            what += f" {facts['arguments']}"
        self._logger.log(self._level, "%s: %s in %.1f ms", what, outcome, milliseconds, extra=facts)

    def _arguments(self, call: Call) -> str:
        given = getattr(call.params, "arguments", None)
        if given is None:
            return ""
        if isinstance(given, msgspec.Raw) and len(memoryview(given)) > MAX_READ:
            return f"({len(memoryview(given))} bytes)"
        try:
            if isinstance(given, msgspec.Raw):
                plain = msgspec.json.decode(given)
            else:
                plain = given
            text = _write(Shown(self._max_payload).of(plain)).decode()
        except (ValueError, RecursionError):
            return "(unreadable)"
        if len(text) <= self._max_payload:
            return text
        return f"{text[: self._max_payload]}…"


def _safe(text: str) -> str:
    """Write a caller's text so that it stays one line of a log."""
    if len(text) <= MAX_FACT and text.isprintable():
        return text
    return repr(text[:MAX_FACT])


class Shown:
    """A copy of somebody's arguments without secrets, and without what would be cut off anyway."""

    def __init__(self, most: int) -> None:
        self._left = most
        """How many values are still copied: each takes a character at least."""

    def of(self, value: object, depth: int = 0) -> Any:
        """Return the copy of one value."""
        self._left -= 1
        if depth > MAX_DEPTH:
            return HIDDEN
        if isinstance(value, dict):
            return {
                key: HIDDEN if re.search(PRIVATE_NAME, str(key)) else self.of(item, depth + 1)
                for key, item in itertools.takewhile(self._has_room, value.items())
            }
        if isinstance(value, list):
            return [self.of(item, depth + 1) for item in itertools.takewhile(self._has_room, value)]
        return value

    def _has_room(self, _: object) -> bool:
        return self._left >= 0
