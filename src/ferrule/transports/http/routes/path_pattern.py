"""Paths with variables: `/files/{name}.{type}` and `/site/{rest:path}`.

Rule: matching takes time in proportion to the path, whatever the path is. So a variable of any number of segments
stands alone in its segment, and a pattern has at most one of them. Of variables in one segment the first takes as much
as it can, as in a greedy regular expression.
"""

from __future__ import annotations

import re

from ferrule.errors import SetupError

VARIABLE = re.compile(r"\{([a-zA-Z_]\w*)(:path)?\}")


class PathPattern:
    """One path with variables."""

    __slots__ = ("_after", "_before", "_prefix", "_rest", "_suffix")

    def __init__(self, path: str) -> None:
        names = [variable[1] for variable in VARIABLE.finditer(path)]
        if len(set(names)) < len(names):
            raise SetupError(f"custom_route: {path!r} cannot be a path: a name stands twice in it")
        if "{" in VARIABLE.sub("", path) or "}" in VARIABLE.sub("", path):
            raise SetupError(
                f"custom_route: {path!r} has a brace that encloses no name: write {{name}} or {{name:path}}"
            )
        segments = path.split("/")
        spanning = []
        for at, segment in enumerate(segments):
            if ":path}" in segment:
                spanning.append(at)
        self._rest = ""
        """The name of the variable that takes any number of segments; empty where there is none."""
        self._before = list(map(Segment, segments))
        self._after: list[Segment] = []
        self._prefix = self._suffix = ""
        if spanning:
            self._split(path, segments, spanning)

    def _split(self, path: str, segments: list[str], spanning: list[int]) -> None:
        """Note what stands before, around and after the variable that takes any number of segments."""
        at = spanning[0]
        found = list(VARIABLE.finditer(segments[at]))
        if len(spanning) > 1 or len(found) > 1:
            raise SetupError(
                f"custom_route: {path!r} cannot be a path: only one {{name:path}} can be told from what stands "
                "beside it, alone in its segment; take the others as {name}, or take the path apart in the handler"
            )
        self._rest = found[0][1]
        self._prefix, self._suffix = segments[at][: found[0].start()], segments[at][found[0].end() :]
        self._before, self._after = self._before[:at], self._before[at + 1 :]

    def match(self, path: str) -> dict[str, str] | None:
        """Return the values of the variables, still encoded; None when this is another path."""
        before = self._before
        after = self._after
        if not self._rest:
            given = path.split("/", len(before))
            return _match_all(before, given, {})
        given = path.split("/", len(before))
        if len(given) <= len(before):
            return None
        middle = given.pop()
        ending = middle.rsplit("/", len(after)) if after else [middle]
        if len(ending) <= len(after):
            return None
        middle = ending.pop(0)
        end = len(middle) - len(self._suffix)
        if not middle.startswith(self._prefix) or not middle.endswith(self._suffix) or end <= len(self._prefix):
            return None
        values = _match_all(before, given, {})
        if values is not None:
            values[self._rest] = middle[len(self._prefix) : end]
            values = _match_all(after, ending, values)
        return values


class Segment:
    """One segment of a pattern: text, with variables between."""

    __slots__ = ("_names", "_texts")

    def __init__(self, segment: str) -> None:
        parts = VARIABLE.split(segment)
        self._texts = parts[::3]
        self._names = parts[1::3]

    def match(self, segment: str, values: dict[str, str]) -> bool:
        """Note the values of the variables in a segment. Return False when it is another one."""
        texts = self._texts
        names = self._names
        if not names:
            return segment == texts[0]
        start = len(texts[0])
        end = len(segment) - len(texts[-1])
        if end <= start or not segment.startswith(texts[0]) or not segment.endswith(texts[-1]):
            return False
        for name, text in zip(names[:0:-1], texts[-2:0:-1], strict=True):
            at = segment.rfind(text, start + 1, end - 1)
            if at < 0:
                return False
            values[name] = segment[at + len(text) : end]
            end = at
        values[names[0]] = segment[start:end]
        return True


def _match_all(segments: list[Segment], given: list[str], values: dict[str, str]) -> dict[str, str] | None:
    if len(segments) != len(given):
        return None
    for segment, text in zip(segments, given, strict=True):
        if not segment.match(text, values):
            return None
    return values
