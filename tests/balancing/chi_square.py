"""Pearson's chi-square test: how likely are counts at least as uneven as these, if the expected shares are true?"""

from __future__ import annotations

import math
from collections.abc import Mapping


def p_value(observed: Mapping[str, int], shares: Mapping[str, float]) -> float:
    """Return the probability of counts that differ as much as these, or more, from the expected shares."""
    total = sum(observed.values())
    whole = sum(shares.values())
    statistic = 0.0
    for name, share in shares.items():
        expected = total * share / whole
        statistic += (observed.get(name, 0) - expected) ** 2 / expected
    return 1.0 - lower_gamma((len(shares) - 1) / 2, statistic / 2)


def lower_gamma(a: float, x: float) -> float:
    """Return the regularized lower incomplete gamma function, by its series."""
    if x <= 0:
        return 0.0
    term = 1.0 / a
    total = term
    for n in range(1, 2000):
        term *= x / (a + n)
        total += term
        if term < total * 1e-15:
            break
    return min(1.0, total * math.exp(-x + a * math.log(x) - math.lgamma(a)))
