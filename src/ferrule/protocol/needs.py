"""What a handler must know before it can go on, and how answers of earlier rounds are found again.

An answer is found by its question's key and a digest of the question, never by the order of calls alone; only
questions that are equal in both are told apart by counting them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw, Struct

from ferrule.errors import InvalidParams
from ferrule.schema.model import JsonObject

_canonical = msgspec.json.Encoder(order="deterministic").encode


class Question(Struct, frozen=True):
    """Something only the client can answer."""

    method: str
    params: JsonObject
    key: str = ""

    @property
    def digest(self) -> str:
        """A short fingerprint of what is asked."""
        import hashlib

        return hashlib.blake2b(_canonical((self.method, self.params)), digest_size=9).hexdigest()


class Need(BaseException):
    """Raised through a handler that cannot go on without answers.

    It is a BaseException so that `except Exception` in a handler does not swallow it. A task group raises it inside a
    group, where the dispatcher finds it.
    """

    def __init__(self, questions: Sequence[tuple[str, Question]]) -> None:
        super().__init__(", ".join(key for key, _ in questions))
        self.questions = questions


class JournalEntry(Struct, array_like=True):
    """One remembered answer or step result, as JSON."""

    digest: str
    """The fingerprint of the question; empty for a step."""
    value: Raw


class Journal(Struct, rename={"answers": "a", "steps": "s", "relayed": "r", "round": "n"}, omit_defaults=True):
    """What the rounds of one call have learned so far."""

    answers: dict[str, JournalEntry] = {}
    steps: dict[str, JournalEntry] = {}
    relayed: str = ""
    """The `requestState` of another peer, whose result we handed on: it is sent back to that peer with the answers."""
    round: int = 1
    """Which round of its call this is."""


class Answers:
    """The journal of one call, and what this round has brought."""

    __slots__ = ("_seen", "journal", "responses")

    def __init__(self, journal: Journal | None = None, responses: dict[str, Raw] | None = None) -> None:
        self.journal = journal or Journal(answers={}, steps={})
        self.responses = responses or {}
        self._seen: dict[str, int] = {}

    def key_for(self, question: Question) -> str:
        """Return the key a question has in the journal; the same one asked again gets a key of its own."""
        return self._number(question.key or f"{question.method.partition('/')[0]}-{question.digest[:10]}")

    def key_for_step(self, name: str) -> str:
        """Return the key a step has in the journal; one of the same name later in the call gets a key of its own."""
        return self._number(f"step {name}")

    def _number(self, key: str) -> str:
        count = self._seen.get(key, 0) + 1
        self._seen[key] = count
        return key if count == 1 else f"{key}#{count}"

    def find(self, key: str, question: Question) -> Raw | None:
        """Return the answer if an earlier round brought it, or this one just did."""
        digest = question.digest
        known = self.journal.answers.get(key)
        if known is not None:
            if known.digest != digest:
                raise InvalidParams(f"The question {key!r} has changed since it was answered: give it another key")
            return known.value
        response = self.responses.get(key)
        if response is not None:
            self.journal.answers[key] = JournalEntry(digest, response)
        return response

    def find_step(self, key: str) -> Raw | None:
        """Return the value of a step an earlier round has done."""
        known = self.journal.steps.get(key)
        if known is None:
            return None
        return known.value

    def keep_step(self, key: str, value: Raw) -> None:
        """Remember a step that was just done."""
        self.journal.steps[key] = JournalEntry("", value)
