"""`Logging`: one line for each call, with structured fields as `extra`."""

from __future__ import annotations

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
"""Bytes of arguments up to which they are logged; of larger ones only the size is."""
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
            outcome = "ok"
            if getattr(result, "is_error", None):
                outcome = "error"
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
        called = target(call)
        what = call.method
        if called:
            what += f" {_safe(called)}"
        request_id = call.id
        if isinstance(request_id, str):
            request_id = request_id[:MAX_FACT]
        principal = call.origin.principal
        if principal is not None:
            principal = principal[:MAX_FACT]
        facts: dict[str, Any] = {
            "method": call.method,
            "target": called[:MAX_FACT],
            "request_id": request_id,
            "principal": principal,
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
    """Return a caller's text as a part of one line of a log."""
    if len(text) <= MAX_FACT and text.isprintable():
        return text
    return repr(text[:MAX_FACT])


class Shown:
    """Copies arguments without their secrets, and without what would be cut off anyway."""

    def __init__(self, most: int) -> None:
        self._left = most
        """How many more values are copied: each is at least one character."""

    def of(self, value: object, depth: int = 0) -> Any:
        """Return the copy of one value."""
        self._left -= 1
        if depth > MAX_DEPTH:
            return HIDDEN
        if isinstance(value, dict):
            members: dict[Any, Any] = {}
            for key, item in value.items():
                if self._left < 0:
                    break
                if re.search(PRIVATE_NAME, str(key)):
                    members[key] = HIDDEN
                else:
                    members[key] = self.of(item, depth + 1)
            return members
        if isinstance(value, list):
            items: list[Any] = []
            for item in value:
                if self._left < 0:
                    break
                items.append(self.of(item, depth + 1))
            return items
        return value
