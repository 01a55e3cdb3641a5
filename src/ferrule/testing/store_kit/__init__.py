"""Judges any store by the same rules: describe it as a `StoreMaker`, then `judge` it, or make it `store_tests`."""

from ferrule.testing.carrier_kit.findings import Broken, NotApplicable
from ferrule.testing.store_kit.stand import Part, StoreMaker, StoreRule, StoreStand
from ferrule.testing.store_kit.verdict import RULES, judge, prove, store_tests

__all__ = [
    "RULES",
    "Broken",
    "NotApplicable",
    "Part",
    "StoreMaker",
    "StoreRule",
    "StoreStand",
    "judge",
    "prove",
    "store_tests",
]
