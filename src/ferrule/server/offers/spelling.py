"""Names that are spelled like an unknown one, found without comparing it with all of them.

A name comes from a peer, as often as it likes: with a thousand tools, comparing it with each takes 10 ms. Names are
found by their rarest pairs of letters, and only a few of them are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

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


class Spellings:
    """The names of a catalogue, by pairs of letters."""

    __slots__ = ("_by_pair",)

    def __init__(self, names: Iterable[str]) -> None:
        self._by_pair: dict[str, list[str]] = {}
        for name in islice(names, MOST_NAMES):
            if len(name) <= LONGEST_NAME:
                for pair in _pairs(name):
                    self._by_pair.setdefault(pair, []).append(name)

    def nearest(self, name: str) -> str:
        """Return the name that is spelled most like one, or an empty text."""
        if len(name) > LONGEST_NAME:
            return ""
        known = []
        for pair in _pairs(name):
            if pair in self._by_pair:
                known.append(self._by_pair[pair])
        known.sort(key=len)
        votes: dict[str, int] = {}
        for names in known[:PAIRS_TRIED]:
            for candidate in names[:NAMES_A_PAIR]:
                votes[candidate] = votes.get(candidate, 0) + 1
        # Sorting is stable: of equals the one that was offered first is compared, and suggested.
        likely = sorted(votes, key=votes.__getitem__, reverse=True)[:COMPARED]
        wanted = _parts(name)
        best = ""
        most = LIKENESS
        for candidate in likely:
            parts = _parts(candidate)
            likeness = 2 * len(wanted & parts) / (len(wanted) + len(parts))
            if likeness > most or (likeness == most and not best):
                best = candidate
                most = likeness
        return best


def _pairs(name: str) -> set[str]:
    """Return the pairs of neighbouring letters, and the first and the last with a mark."""
    text = f"\n{name.casefold()}\n"
    return {text[at : at + 2] for at in range(len(text) - 1)}


def _parts(name: str) -> set[str]:
    """Return the pairs and the letters: these are the same where two were swapped."""
    return _pairs(name) | set(name.casefold())
