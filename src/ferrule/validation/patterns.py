"""What a regular expression of a JSON Schema may cost, estimated from its text.

The engine runs in time linear in the text, but its constant is the size of the pattern with all counted repetitions
written out: `(.{1,30}){1,30}` is 900 steps for each byte, and takes a second to read 100 kB. Compiling takes time and
memory by the same size. So the size is estimated before a pattern is compiled; the estimate errs upwards.
"""

from __future__ import annotations

import re

from msgspec import Struct

MAX_PATTERN_LENGTH = 4096
"""Characters of one pattern."""

MAX_PATTERN_WEIGHT = 2048
"""Steps of all patterns of a schema, with counted repetitions written out."""

COMPILED_SIZE = 8 * 1024 * 1024
"""Bytes one pattern may take once it is compiled, as the engine counts them."""

CLASS_WEIGHT = 32
"""How many plain steps a Unicode class such as `\\p{L}` takes to compile."""

FLAGS_FACTOR = 4
"""How much dearer a pattern with inline flags is: without regard to case, classes are folded first."""

CACHE_SIZE = 256 * 1024
"""Bytes of the engine's cache for each pattern; where it does not suffice the engine goes step by step."""

FEW_STEPS = 8
"""With so few steps at once the engine's automaton fits into its cache, whatever the text."""

FAST, PER_STEP = 4, 26
"""Nanoseconds for a byte of text: with such an automaton, and for each step without."""

_TOKEN = re.compile(
    r"""
    (?P<escape>\\[pP](?:\{[^}]*\}|.)|\\.)
    |(?P<class>\[\^?\]?(?:\\.|\[:[^\]]*:\]|[^\]\\])*+\]?)
    |(?P<open>\((?P<flags>\?[a-zA-Z-]+[:)])?(?:\?(?:P?<[^>=!]*>|<[=!]|[:=!]))?)
    |(?P<close>\))
    |(?P<count>\{(?P<least>[0-9]+)(?P<range>,(?P<most>[0-9]*))?\})
    |(?P<loop>[*+])
    |(?P<option>\?)
    |(?P<branch>\|)
    |(?P<anchor>[\^$])
    |(?P<plain>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_UNICODE = re.compile(r"\\[pP]")


class PatternCost(Struct, frozen=True):
    """What a pattern takes to compile, in plain steps, and to run, in nanoseconds for a byte of text."""

    weight: int
    per_byte: int


def pattern_cost(pattern: str) -> PatternCost:
    """Estimate what a pattern costs."""
    seen = _Seen()
    for token in _TOKEN.finditer(pattern):
        if token.lastgroup in ("escape", "class", "plain"):
            seen.step(1 + (CLASS_WEIGHT - 1) * len(_UNICODE.findall(token[0])))
        elif token.lastgroup == "count":
            seen.repeat(token["least"], token["range"] is not None, token["most"])
        else:
            seen.sign(token.lastgroup, token["flags"])
    weight = sum(seen.steps) or 1
    active = weight
    if pattern.startswith("^") and not seen.loops and not seen.branches:
        # Anchored, and of one length but for what may be left out: at most so many places are looked at together.
        active = min(weight, 1 + seen.spread)
    if seen.flags:
        weight *= FLAGS_FACTOR
    return PatternCost(weight, FAST if active <= FEW_STEPS else PER_STEP * active)


class _Seen:
    """What was seen of a pattern so far."""

    def __init__(self) -> None:
        self.steps = [0]
        """The steps of each group that is open."""
        self.last = 0
        """The steps of what a quantifier would repeat."""
        self.spread = 0
        """The steps that may be left out."""
        self.loops = self.branches = self.flags = False

    def step(self, weight: int) -> None:
        """Count a character or a class."""
        self.last = weight
        self.steps[-1] += weight

    def repeat(self, least: str, is_range: bool, most: str | None) -> None:
        """Count what comes before a `{least,most}` once more for each time."""
        times = max(int((most or least)[:9]), 1)
        self.steps[-1] += self.last * (times - 1)
        self.last *= times
        if is_range:
            self.spread += self.last
            self.loops = self.loops or not most

    def sign(self, kind: str | None, flags: str | None) -> None:
        """Take a sign that matches no character."""
        if kind == "open":
            self.flags = self.flags or flags is not None
            self.last = 0
            if flags is None or flags.endswith(":"):
                self.steps.append(0)
        elif kind == "close" and len(self.steps) > 1:
            self.last = self.steps.pop()
            self.steps[-1] += self.last
        elif kind == "loop":
            self.loops = True
        elif kind == "option":
            self.spread += self.last
        elif kind == "branch":
            self.branches = True
            self.last = 0
