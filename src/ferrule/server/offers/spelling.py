"""Names that are spelled like an unknown one, found without comparing it with all of them.

A name comes from a peer, as often as it likes: with a thousand tools, comparing it with each takes 10 ms. Names are
found by their rarest pairs of letters, and only a few of them are compared. A client that asks for a wrong name asks
for it again, so what was found is kept for a while.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import islice
from operator import add

LONGEST_NAME = 64
"""A longer name is no misspelled one."""
MOST_NAMES = 2000
"""Names that are suggested, of one catalogue; the index of more would take long to make."""
PAIRS_TRIED = 6
"""Pairs of letters, the rarest first, by which names are looked for."""
NAMES_A_PAIR = 16
"""Names looked at for each of them."""
COMPARED = 3
"""Names that are compared: those with most of the pairs."""
LIKENESS = 0.6
"""Part of the letters and pairs that two names must share."""
MOST_REMEMBERED = 256
"""Unknown names that are remembered with what is suggested for them; none is longer than `LONGEST_NAME`."""
MOST_PARTS = 4096
"""Pairs and letters of names that were compared, up to which more such names are kept taken apart."""


class Spellings:
    """The names of a catalogue, by pairs of letters."""

    __slots__ = ("_by_pair", "_counts", "_parts", "_remembered", "_shared")

    def __init__(self, names: Iterable[str]) -> None:
        self._by_pair: dict[str, list[str]] = {}
        """The names that have a pair, as many as are looked at."""
        for name in islice(names, MOST_NAMES):
            if len(name) <= LONGEST_NAME:
                for pair in _pairs(name.casefold()):
                    self._by_pair.setdefault(pair, []).append(name)
        self._counts: dict[str, int] = {}
        """How many names have a pair."""
        for pair, having in self._by_pair.items():
            self._counts[pair] = len(having)
            if len(having) > NAMES_A_PAIR:
                del having[NAMES_A_PAIR:]
        self._parts: dict[str, tuple[str, ...]] = {}
        """The pairs and letters of names that were compared, which are some of the names above."""
        self._shared: dict[str, str] = {}
        """Each of those pairs and letters, so that all names refer to the same texts."""
        self._remembered: dict[str, str] = {}
        """What is suggested for unknown names."""

    def nearest(self, name: str) -> str:
        """Return the name that is spelled most like one, or an empty text."""
        if len(name) > LONGEST_NAME:
            return ""
        found = self._remembered.get(name)
        if found is None:
            found = self._find(name)
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[name] = found
        return found

    def _find(self, name: str) -> str:
        folded = name.casefold()
        pairs = _pairs(folded)
        wanted = {*pairs, *folded}
        best = ""
        most = LIKENESS
        for candidate in self._likely(pairs):
            parts = self._parts.get(candidate) or self._take_apart(candidate)
            likeness = 2 * len(wanted.intersection(parts)) / (len(wanted) + len(parts))
            if likeness > most or (likeness == most and not best):
                best = candidate
                most = likeness
        return best

    def _likely(self, pairs: set[str]) -> list[str]:
        """Return the names that have most of some pairs, the rarest of them."""
        counts = self._counts
        known = sorted(filter(counts.__contains__, pairs), key=counts.__getitem__)
        votes: dict[str, int] = {}
        for pair in known[:PAIRS_TRIED]:
            for candidate in self._by_pair[pair]:
                votes[candidate] = votes.get(candidate, 0) + 1
        # Sorting is stable: of equals the one that was offered first is compared, and suggested.
        return sorted(votes, key=votes.__getitem__, reverse=True)[:COMPARED]

    def _take_apart(self, name: str) -> Collection[str]:
        """Return the pairs and the letters of a name: these are the same where two were swapped."""
        folded = name.casefold()
        parts = {*_pairs(folded), *folded}
        shared = self._shared
        if len(shared) < MOST_PARTS:
            self._parts[name] = tuple(map(shared.setdefault, parts, parts))
        return parts


def _pairs(folded: str) -> set[str]:
    """Return the pairs of neighbouring letters, and the first and the last with a mark."""
    text = f"\n{folded}\n"
    return set(map(add, text, text[1:]))
