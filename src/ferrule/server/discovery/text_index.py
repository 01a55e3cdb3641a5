"""Ranks texts by how well they fit a few words: Okapi BM25 over an inverted index (Robertson and Zaragoza, 2009)."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

K1 = 1.2
"""How soon a word that is repeated adds nothing more."""
B = 0.75
"""How much a long text is worth less than a short one."""
MAX_TEXT = 4_000
"""Characters of one text that are read."""
MAX_WORDS = 16
"""Different words of a query that count."""

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")
"""A word of a text or of a name: `readFile` and `read_file` have two."""
SHORT = 3


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case, plurals as their singular."""
    found = []
    for word in WORD.findall(text[:MAX_TEXT]):
        plain = word.lower()
        if len(plain) > SHORT and plain.endswith("s") and not plain.endswith("ss"):
            plain = plain[:-1]
        found.append(plain)
    return found


class TextIndex:
    """Texts by key, ready to be searched."""

    def __init__(self, texts: Mapping[str, Iterable[str]]) -> None:
        self._keys = list(texts)
        self._places: dict[str, list[tuple[int, float]]] = {}
        """For each word the numbers of the texts that have it, and how much it weighs there."""
        counts = []
        for parts in texts.values():
            counted: Counter[str] = Counter()
            for part in parts:
                counted.update(words_of(part))
            counts.append(counted)
        lengths = [counted.total() for counted in counts]
        average = sum(lengths) / max(len(lengths), 1) or 1.0
        for number, counted in enumerate(counts):
            norm = K1 * (1 - B + B * lengths[number] / average)
            for word, count in counted.items():
                self._places.setdefault(word, []).append((number, count * (K1 + 1) / (count + norm)))

    def search(self, query: str) -> list[str]:
        """Return the keys of the texts that have a word of the query, the best first."""
        scores: dict[int, float] = {}
        for word in list(dict.fromkeys(words_of(query)))[:MAX_WORDS]:
            places = self._places.get(word, ())
            rarity = math.log(1 + (len(self._keys) - len(places) + 0.5) / (len(places) + 0.5))
            for number, weight in places:
                scores[number] = scores.get(number, 0.0) + rarity * weight
        best = heapq.nsmallest(len(scores), scores.items(), key=lambda each: (-each[1], each[0]))
        return [self._keys[number] for number, _ in best]
