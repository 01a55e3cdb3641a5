"""The states of a connection, and what may happen to it in each (RFC 9112 §9)."""

from __future__ import annotations

NEW, IDLE, HEAD, BODY, BUSY, LINGER, CLOSED = range(7)
"""The states: nothing was read yet, between requests, in a head, in a body, being answered, dropping what still comes,
gone. A request may begin or go on in those below BUSY; LINGER and CLOSED are ends."""
STATES = ("NEW", "IDLE", "HEAD", "BODY", "BUSY", "LINGER", "CLOSED")


class Event(dict[int, int]):
    """What happens to a connection: the next state, by each state in which it may happen.

    `self.state = ANSWERED[self.state]` is a transition; one that is not in the table raises.
    """

    def __init__(self, name: str, transitions: dict[int, int]) -> None:
        super().__init__(transitions)
        self.name = name

    def __missing__(self, state: int) -> int:
        raise RuntimeError(f"{self.name} cannot happen to a connection that is {STATES[state]}: see its table")


HEAD_BEGUN = Event("HEAD_BEGUN", {NEW: HEAD, IDLE: HEAD})
"""The first bytes of a request came, without the end of its head."""
BODY_BEGUN = Event("BODY_BEGUN", {NEW: BODY, IDLE: BODY, HEAD: BODY})
"""A head came whole, without the end of its body."""
REQUEST_READ = Event("REQUEST_READ", {NEW: BUSY, IDLE: BUSY, HEAD: BUSY, BODY: BUSY})
"""A request came whole, and is handed on. From here to ANSWERED the connection has an answer."""
ANSWERED = Event("ANSWERED", {BUSY: IDLE})
"""The answer is written."""
LAST_SAID = Event("LAST_SAID", {NEW: LINGER, IDLE: LINGER, HEAD: LINGER, BODY: LINGER})
"""A refusal, or the last answer, is written, and the peer may be sending still."""
HANDED_OVER = Event("HANDED_OVER", {BUSY: CLOSED})
"""Another protocol has the transport from now on, instead of an answer."""
GIVEN_AWAY = Event("GIVEN_AWAY", {NEW: CLOSED, IDLE: CLOSED, HEAD: CLOSED, BUSY: CLOSED})
"""Another process has the connection from now on, and answers what is not answered."""
HTTP2_CHOSEN = Event("HTTP2_CHOSEN", {NEW: CLOSED, HEAD: CLOSED})
"""HTTP/2 has it from now on, before anything was said."""
CLOSING = Event("CLOSING", {NEW: CLOSED, IDLE: CLOSED, HEAD: CLOSED, BODY: CLOSED, LINGER: CLOSED})
"""We close the transport. Never while an answer is owed."""
LOST = Event(
    "LOST", {NEW: CLOSED, IDLE: CLOSED, HEAD: CLOSED, BODY: CLOSED, BUSY: CLOSED, LINGER: CLOSED, CLOSED: CLOSED}
)
"""The transport is gone, by the peer's doing or ours."""

EVENTS = (
    HEAD_BEGUN,
    BODY_BEGUN,
    REQUEST_READ,
    ANSWERED,
    LAST_SAID,
    HANDED_OVER,
    GIVEN_AWAY,
    HTTP2_CHOSEN,
    CLOSING,
    LOST,
)
