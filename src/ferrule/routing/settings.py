"""The options of routing: which target takes a call, and what happens when one fails."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct

from ferrule.balancing.breaker import BreakerSettings
from ferrule.balancing.bulkhead import BulkheadSettings
from ferrule.balancing.ejection import EjectionSettings
from ferrule.balancing.hedge import Hedge
from ferrule.balancing.policy import Balance
from ferrule.balancing.retry import RetrySettings
from ferrule.settings.option import check


class RoutingSettings(Struct, frozen=True, kw_only=True):
    """The options of a client of several targets, beside those of any client."""

    balance: Balance = "least_loaded"
    """Which of several targets takes a call."""
    weights: Mapping[str, float] | None = None
    """How many calls a target gets compared with the others, by its name; 1 for those that are not named."""
    affinity: str | None = None
    """What `balance="hash"` goes by: clients with the same text use the same target. None: one of this client's own."""
    safe_tools: Collection[str] = ()
    """The tools that may run twice: their calls are sent again after a loss, and may be hedged."""
    breaker: BreakerSettings = BreakerSettings()
    """When a target that fails gets no calls, and when it is tried again."""
    ejection: EjectionSettings = EjectionSettings()
    """When a target that does worse than the others gets no calls."""
    bulkhead: BulkheadSettings = BulkheadSettings()
    """How many calls run and wait at once, for all targets together."""
    retry: RetrySettings = RetrySettings()
    """How often calls that may run twice are sent again."""
    hedge: Hedge | None = None
    """When a call that may run twice is sent to a second target as well; None for never."""
    keep_payload: bool = False
    """Whether the params of notifications that could not be delivered are kept with them."""

    def __post_init__(self) -> None:
        check(self)
