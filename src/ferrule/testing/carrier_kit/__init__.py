"""Judges any transport by the same rules: describe it as a `Carrier`, then `judge` it, or make it `carrier_tests`."""

from ferrule.testing.carrier_kit.carrier import Carrier, Feature, Stand, Wire, serving
from ferrule.testing.carrier_kit.far_side import FarSide
from ferrule.testing.carrier_kit.findings import Broken, NotApplicable
from ferrule.testing.carrier_kit.near_side import NearSide
from ferrule.testing.carrier_kit.relay import Relay, relayed
from ferrule.testing.carrier_kit.rule import Rule
from ferrule.testing.carrier_kit.verdict import RULES, Report, Verdict, carrier_tests, judge, prove

__all__ = [
    "RULES",
    "Broken",
    "Carrier",
    "FarSide",
    "Feature",
    "NearSide",
    "NotApplicable",
    "Relay",
    "Report",
    "Rule",
    "Stand",
    "Verdict",
    "Wire",
    "carrier_tests",
    "judge",
    "prove",
    "relayed",
    "serving",
]
