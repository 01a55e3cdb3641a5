"""What was said: every message of ours, by whom, and which request a response answers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ferrule.testing import Recorded

REVISIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
R1, R2, R3, R4, R5 = REVISIONS
EXTENSION = "com.example/echo"


@dataclass(frozen=True)
class Said:
    """One message of ours; `early` means that no revision was agreed on yet."""

    sender: str
    message: dict[str, Any]
    answers: str | None = None
    early: bool = False

    @property
    def kind(self) -> str:
        """What JSON-RPC calls this message."""
        if "method" in self.message:
            return "request" if "id" in self.message else "notification"
        return "error" if "error" in self.message else "result"

    @property
    def name(self) -> str:
        """The method it names or answers, or the code of an error."""
        if self.kind == "error":
            return str(self.message["error"]["code"])
        return self.message.get("method") or self.answers or ""

    def __str__(self) -> str:
        """Name the message in a line."""
        return f"{self.sender} {self.kind} {self.name}"


@dataclass(repr=False)
class Traffic:
    """The messages of some conversations in one revision, and the arrays among them."""

    revision: str
    said: list[Said]
    arrays: list[tuple[str, list[Any]]]

    def __repr__(self) -> str:
        """Name the traffic in a line."""
        return f"{len(self.said)} messages of {self.revision}"

    def of(self, sender: str, kind: str) -> list[Said]:
        """Return what one side said of one kind."""
        return [said for said in self.said if (said.sender, said.kind) == (sender, kind)]

    @property
    def sayings(self) -> set[tuple[str, str, str]]:
        """Who said what, as sender, kind and method or code."""
        return {(said.sender, said.kind, said.name) for said in self.said}

    def names(self, sender: str, kind: str) -> set[str]:
        """Return the methods or codes one side used in one kind of message."""
        return {said.name for said in self.of(sender, kind)}

    def add(self, other: Traffic) -> None:
        """Take in the messages of another conversation."""
        self.said += other.said
        self.arrays += other.arrays


def traffic_of(revision: str, recorded: Iterable[Recorded]) -> Traffic:
    """Read a recording: arrays are taken apart, responses are matched with their requests."""
    traffic = Traffic(revision, [], [])
    asked: dict[tuple[str, Any], str] = {}
    for sender, message in flat(recorded, traffic):
        if "method" in message and "id" in message:
            asked[sender, message["id"]] = message["method"]
        other = "server" if sender == "client" else "client"
        answers = None if "method" in message else asked.get((other, message.get("id")))
        traffic.said.append(Said(sender, message, answers))
    return traffic


def flat(recorded: Iterable[Recorded], traffic: Traffic) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the messages one by one, noting the arrays."""
    for entry in recorded:
        if isinstance(entry.message, list):
            traffic.arrays.append((entry.sender, entry.message))
            yield from ((entry.sender, message) for message in entry.message)
        else:
            yield entry.sender, entry.message
