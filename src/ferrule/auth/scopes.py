"""Scopes: what a token lets its bearer do, as sets of words (RFC 6749 §3.3)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from ferrule.identity.principal import require_scopes

MOST_REMEMBERED = 1024


def read_scopes(value: object) -> frozenset[str]:
    """Return the scopes a claim holds: words in one text, or a list of them; anything else holds none."""
    if isinstance(value, str):
        return frozenset(value.split())
    if isinstance(value, list):
        return frozenset(word for word in value if isinstance(word, str) and word)
    return frozenset()


class ScopeHierarchy:
    """Which scopes include others: `{"admin": ["read", "write"]}`, through any number of steps."""

    def __init__(self, implies: Mapping[str, Collection[str]] | None = None) -> None:
        self._implies: dict[str, tuple[str, ...]] = {}
        for scope, included in (implies or {}).items():
            require_scopes((scope,), "implies")
            self._implies[scope] = require_scopes(included, f"implies[{scope!r}]")
        self._remembered: dict[frozenset[str], frozenset[str]] = {}

    def expand(self, granted: Iterable[str]) -> frozenset[str]:
        """Return scopes with all they include."""
        given = frozenset(granted)
        if not self._implies or self._implies.keys().isdisjoint(given):
            return given
        found = self._remembered.get(given)
        if found is None:
            found = self._closure(given)
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[given] = found
        return found

    def _closure(self, given: frozenset[str]) -> frozenset[str]:
        found = set(given)
        left = list(given)
        while left:
            for scope in self._implies.get(left.pop(), ()):
                if scope not in found:
                    found.add(scope)
                    left.append(scope)
        return frozenset(found)
