"""Every transport of ours is judged by every rule of the kit.

Proves: TBEH-01, TBEH-02, TBEH-03, TBEH-08, TBEH-09, GUAR-02, GUAR-03, GUAR-05, GUAR-06
"""

from __future__ import annotations

from our_carriers import CARRIERS

from ferrule.testing.carrier_kit import carrier_tests

test_our_carriers_keep_the_rules = carrier_tests(*CARRIERS)
