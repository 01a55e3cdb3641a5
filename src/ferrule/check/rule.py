"""A rule: what a server must or should do, how to see whether it does, and what was seen."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

from msgspec import Struct

from ferrule.check.case import Case
from ferrule.check.era import BOTH, VERSIONS, Era

Level = Literal["must", "should"]
Outcome = Literal["pass", "fail", "warn", "skip"]

SITE = "https://modelcontextprotocol.io/specification"


class Verdict(Struct, frozen=True):
    """What looking for one thing has shown."""

    outcome: Literal["pass", "broken", "doubtful", "skip"]
    """`broken` counts as the level of the rule says, `doubtful` as a warning whatever the level."""
    seen: str = ""


def passed(seen: str = "") -> Verdict:
    """Return the verdict on a server that keeps a rule."""
    return Verdict("pass", seen)


def broken(seen: str) -> Verdict:
    """Return the verdict on a server that breaks a rule, with what was seen."""
    return Verdict("broken", seen)


def doubtful(seen: str) -> Verdict:
    """Return the verdict on a server that keeps the letter of a rule, in a way that clients stumble over."""
    return Verdict("doubtful", seen)


def skipped(why: str) -> Verdict:
    """Return the verdict on a server to which a rule does not apply."""
    return Verdict("skip", why)


def judged(faults: list[str], seen: str = "") -> Verdict:
    """Return a pass where there are no faults, else what they are."""
    if not faults:
        return passed(seen)
    more = ""
    if len(faults) > 3:
        more = f" (and {len(faults) - 3} more)"
    return broken("; ".join(faults[:3]) + more)


Look = Callable[[Case], Awaitable[Verdict]]


class Rule(Struct, frozen=True, kw_only=True):
    """One rule."""

    id: str
    """`area/name`; it never changes its meaning."""
    title: str
    """What holds, as a sentence without a full stop."""
    fix: str
    look: Look
    pages: Mapping[Era, str]
    """The page of the specification, for each era the rule is about."""
    levels: Mapping[Era, Level]
    kinds: frozenset[str] = frozenset()
    """The transports it is about; empty for all."""
    capability: str = ""
    """What the server must declare for the rule to apply."""

    @property
    def area(self) -> str:
        """The part of the protocol it belongs to."""
        return self.id.partition("/")[0]

    def reference(self, era: Era) -> str:
        """Return the page of the specification, as it is cited."""
        return f"MCP {VERSIONS[era]} {self.pages[era]}"

    def link(self, era: Era) -> str:
        """Return where that page is."""
        return f"{SITE}/{VERSIONS[era]}/{self.pages[era]}"

    def outcome(self, verdict: Verdict, era: Era) -> Outcome:
        """Return how a verdict counts."""
        if verdict.outcome == "broken" and self.levels[era] == "must":
            return "fail"
        if verdict.outcome in ("broken", "doubtful"):
            return "warn"
        if verdict.outcome == "skip":
            return "skip"
        return "pass"


def rule(
    identity: str,
    title: str,
    *,
    fix: str,
    page: str | Mapping[Era, str],
    level: Level | Mapping[Era, Level] = "must",
    eras: tuple[Era, ...] = BOTH,
    kinds: tuple[str, ...] = (),
    capability: str = "",
) -> Callable[[Look], Rule]:
    """Make a rule of a function that looks whether a server keeps it."""
    pages: dict[Era, str] = {}
    levels: dict[Era, Level] = {}
    for era in eras:
        pages[era] = page if isinstance(page, str) else page[era]
        levels[era] = level if isinstance(level, str) else level[era]

    def made(look: Look) -> Rule:
        return Rule(
            id=identity,
            title=title,
            fix=fix,
            look=look,
            pages=pages,
            levels=levels,
            kinds=frozenset(kinds),
            capability=capability,
        )

    return made
