"""Every transport of ours is judged by every rule of the kit.

Proves: TBEH-01, TBEH-02, TBEH-03, TBEH-08, TBEH-09, GUAR-02, GUAR-03, GUAR-05, GUAR-06
"""

from __future__ import annotations

from our_carriers import CARRIERS, OverAsgiStateless

from ferrule.testing.carrier_kit import RULES, carrier_tests

MATTERS_TO_THE_DOORS = {"values", "once", "order back", "loss", "draining", "limit", "back pressure back"}

test_our_carriers_keep_the_rules = carrier_tests(*CARRIERS)

test_the_asgi_app_keeps_them_in_the_other_era_too = carrier_tests(
    OverAsgiStateless(), rules=[rule for rule in RULES if rule.name in MATTERS_TO_THE_DOORS]
)
