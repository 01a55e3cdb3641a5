"""Our servers, called by the pages of another origin in a real browser."""

from __future__ import annotations

from typing import Any

import pytest

JSON, EVENTS = "application/json", "text/event-stream"

GUEST = {
    "initialize": {"status": 200, "version": "2025-11-25", "hasSession": True},
    "initialized": 202,
    "call": {"kind": JSON, "text": "5"},
    "stream": {"kind": EVENTS, "steps": [1, 2], "text": "counted"},
    "unknown_session": {"status": 404, "isReadable": True},
    "goodbye": [True, 404],
    "stateless_call": {"kind": JSON, "resultType": "complete", "text": "5"},
    "stateless_argument_header": "sunny in Rome",
    "stateless_wrong_header": {"status": 400, "code": -32020},
    "stateless_stream": {"kind": EVENTS, "steps": [1, 2], "text": "counted"},
    "stateless_abort": {"failed": "AbortError", "server": "cancelled"},
    "event_source": {"status": 202, "version": "2025-11-25", "text": "5"},
}
"""What a page of an allowed origin observes."""

STRANGER = {
    "asked": "TypeError: Failed to fetch",
    "sent_unasked": "opaque",
    "event_source": "closed",
}
"""What any other page observes."""


@pytest.fixture(scope="module")
def stranger(visit: Any, site: Any) -> Any:
    return visit(f"{site.stranger}/stranger.html")


@pytest.fixture(scope="module")
def guest(visit: Any, site: Any) -> Any:
    return visit(f"{site.guest}/guest.html")


@pytest.mark.parametrize("step", STRANGER)
def test_a_page_of_a_foreign_origin_gets_nothing(step: str, stranger: Any) -> None:
    """HTTP-2, SSE-5."""
    assert stranger.observed[step] == STRANGER[step]


def test_what_a_foreign_page_sends_is_refused_and_runs_nothing(stranger: Any) -> None:
    """HTTP-2, SSE-5, AUT-18."""
    assert sorted(stranger.answered) == [("GET", "/sse", 403), ("OPTIONS", "/mcp", 403), ("POST", "/mcp", 403)]
    assert stranger.ran == []


@pytest.mark.parametrize("step", GUEST)
def test_a_page_of_an_allowed_origin_is_served(step: str, guest: Any) -> None:
    """SSEV-14: with fetch in both eras, and with EventSource."""
    assert guest.observed[step] == GUEST[step]


def test_a_browser_asks_before_a_page_may_call(guest: Any) -> None:
    assert {("OPTIONS", "/mcp", 204), ("OPTIONS", "/messages", 204)} <= set(guest.answered)
    assert guest.ran == ["add"] * 3


PORTS = ("tcp", "tcp of any framing", "tcp of blocks", "unix", "websocket")
REFUSED = {
    "fetch lines": "failed",
    "fetch blocks": "failed",
    "fetch https": "failed",
    "beacon": True,  # it is sent, and nobody learns of the answer
    "form": "submitted",
    "image": "failed",
    "script": "failed",
    "websocket": "failed",
    "websocket at its path": "failed",
}
"""What a page observes at a port that does not speak HTTP."""
ANSWERED = {"fetch lines": "opaque", "fetch blocks": "opaque"}
"""What it observes where HTTP is spoken: that there was an answer, not which."""


@pytest.fixture(scope="module")
def intrusion(intrude: Any) -> Any:
    return intrude()


@pytest.mark.parametrize("port", PORTS)
def test_no_page_runs_anything_on_a_port_of_messages(port: str, intrusion: Any) -> None:
    """AUT-18: whatever the browser can be made to send."""
    expected = REFUSED | ANSWERED if port == "websocket" else REFUSED
    assert intrusion.observed[port] == expected
    assert intrusion.ran[port] == []


def test_what_the_page_tries_would_run_if_nobody_looked(intrude: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this the test above would prove nothing."""
    monkeypatch.setattr("ferrule.transports.stream.foreign_protocol", lambda line: "")
    monkeypatch.setattr("ferrule.runtime.link.MAX_UNREADABLE", 1000)  # else the headers alone would end the connection
    ran = intrude().ran
    assert {name for name, tools in ran.items() if "add" in tools} == {"tcp", "tcp of any framing", "unix"}
