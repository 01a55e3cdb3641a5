"""`ferrule dev FILE…`: serve with reload, and show what clients say and are answered."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

import msgspec

from ferrule.cli.output import DIM, RED, fitted, painted
from ferrule.cli.run import configure_serving, reloaded, serve
from ferrule.supervision.logs import escaped
from ferrule.telemetry.observer import (
    ObservedLink,
    ObservedNotification,
    ObservedRequest,
    Observer,
    Outcome,
)

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser
    from ferrule.server.server import Server

TRANSPORT = "http"
MOST_CONTENT = 2000
"""How many bytes of a message are written as JSON."""
ARROWS = {"request": "→", "notification": "→", "asks": "←", "told": "←", "asked": "→"}
"""Which way each message goes: to the server, or from it."""
MOST_SHOWN = 300
"""How many columns of a message are shown to people."""


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule dev`: those of `ferrule run`."""
    configure_serving(parser, "dev", TRANSPORT)
    parser.add_argument("--no-messages", action="store_true", help="reload only, and show no messages")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Serve what a file defines, with reload and a view of what is said."""
    if options.transport is None:
        options.transport = TRANSPORT

    def prepare(server: Server, places: Sequence[str], arguments: list[str]) -> None:
        reloaded(server, places, arguments)
        if not options.no_messages:
            # stdout may be the wire, and then was claimed before the file was loaded: this is stderr.
            server.host.observe(MessageView(sys.stdout, json=options.json))

    serve(options, passed_on, prepare)


class MessageView(Observer):
    """Writes a line for every request, notification and link, with contents; as JSON lines where a program reads."""

    def __init__(self, stream: IO[str], *, json: bool = False) -> None:
        self._stream = stream
        self._json = json

    def request_recorded(self, request: ObservedRequest, outcome: Outcome, arguments: bytes, result: bytes) -> None:
        """Show a request and its answer."""
        self._show(
            "request",
            request,
            outcome,
            params=_value(arguments),
            result=_value(result),
        )

    def question_recorded(self, request: ObservedRequest, params: bytes) -> None:
        """Show a request of the server's own, as for elicitation, when it is sent."""
        self._tell("asks", request.method, params)

    def answer_recorded(self, request: ObservedRequest, outcome: Outcome, result: bytes) -> None:
        """Show how the client answered it."""
        self._show("asked", request, outcome, result=_value(result))

    def notification_received(self, notification: ObservedNotification) -> None:
        """Show a notification of a client."""
        self._tell("notification", notification.method, notification.params)

    def notification_sent(self, notification: ObservedNotification) -> None:
        """Show a notification of the server."""
        self._tell("told", notification.method, notification.params)

    def link_opened(self, link: ObservedLink) -> None:
        """Show that a client is connected."""
        self._write({"event": "connected", "transport": link.transport, "address": link.address})

    def link_closed(self, link: ObservedLink, error: Exception | None) -> None:
        """Show that a client is gone."""
        told: dict[str, Any] = {"event": "disconnected", "transport": link.transport, "client": link.peer}
        if error is not None:
            told["error"] = str(error)
        self._write(told)

    def _tell(self, event: str, method: str, params: bytes) -> None:
        told: dict[str, Any] = {"event": event, "method": method}
        if params:
            told["params"] = _value(params)
        self._write(told)

    def _show(self, event: str, request: ObservedRequest, outcome: Outcome, **contents: Any) -> None:
        told: dict[str, Any] = {"event": event, "method": request.method}
        if request.name:
            told["name"] = request.name
        told["outcome"] = outcome.kind
        told["ms"] = round(request.seconds * 1000, 2)
        if outcome.code is not None:
            told["code"] = outcome.code
        if outcome.message:
            told["message"] = outcome.message
        for key, value in contents.items():
            if value is not None:
                told[key] = value
        self._write(told)

    def _write(self, told: dict[str, Any]) -> None:
        if self._json:
            line = msgspec.json.encode({"time": time.time(), **told}).decode()
        else:
            line = self._line(told)
        # Who serves serves on, whether or not anybody can see it.
        with suppress(OSError, ValueError):
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def _line(self, told: dict[str, Any]) -> str:
        """Return one line for people: when, what, and what was in it."""
        parts = [painted(time.strftime("%H:%M:%S"), DIM, self._stream)]
        event = told.pop("event")
        arrow = ARROWS.get(event, "·")
        parts.append(arrow)
        if "method" in told:
            parts.append(escaped(str(told.pop("method"))))
        else:
            parts.append(event)
        if "name" in told:
            parts.append(escaped(str(told.pop("name"))))
        outcome = told.pop("outcome", "")
        params = told.pop("params", None)
        if params is not None:
            parts.append(_shown(params))
        if outcome:
            parts.append("⇒")
            parts.append(outcome if outcome == "ok" else painted(outcome, RED, self._stream))
        result = told.pop("result", None)
        if result is not None:
            parts.append(_shown(result))
        milliseconds = told.pop("ms", None)
        for key, value in told.items():
            if value != "":
                parts.append(f"{key}={escaped(str(value))}")
        if milliseconds is not None:
            parts.append(painted(f"{milliseconds:g} ms", DIM, self._stream))
        return " ".join(parts)


def _value(raw: bytes) -> Any:
    """Return what JSON says; None for nothing, and the beginning of what is long."""
    if not raw:
        return None
    if len(raw) > MOST_CONTENT:
        return f"{raw[:MOST_CONTENT].decode(errors='replace')}… ({len(raw)} bytes)"
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return raw.decode(errors="replace")


def _shown(value: Any) -> str:
    """Return a message for people, without what every message of the stateless era repeats."""
    if isinstance(value, dict):
        value = {key: inner for key, inner in value.items() if key not in ("_meta", "resultType")}
    return fitted(escaped(msgspec.json.encode(value).decode()), MOST_SHOWN)
