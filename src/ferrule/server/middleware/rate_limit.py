"""`RateLimit`: so many calls a second or a minute, for each connection, principal, tool or the whole server.

Several rates hold together: a call takes a token of each of them, or it takes none and is refused.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any

from ferrule.balancing.rate import Quota, Rate, limit_header, policy_header, take_together
from ferrule.errors import RateLimited, SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.dispatch import Handler
from ferrule.server.middleware.caller_key import KEYS, Key, key_of, methods_of
from ferrule.server.middleware.hooks import Middleware
from ferrule.server.middleware.leased_quota import LeasedQuotas
from ferrule.settings.option import NonNegativeFloat, PositiveInt, require, require_known

TOOL_CALL = "tools/call"
WORK = (TOOL_CALL, "resources/read", "prompts/get", "completion/complete")
"""What the option `rate` of a server counts: the requests that run a handler of its own."""
KINDS = {"connection": "session", "principal": "principal", "tool": "tool", "server": "server"}
"""The names of rates that hold together, with what each counts by."""


class Quotas:
    """The quotas of one rate: one for each connection, principal or tool."""

    def __init__(self, name: str, rate: Rate, key: Key, most: int) -> None:
        self.leased: LeasedQuotas | None = None
        """Makes the quotas that nodes share; None where there is one node."""
        self.name = name
        self._rate = rate
        self._key = key
        self._most = most
        self._quotas: dict[Hashable, Quota] = {}
        self.of_caller = key in (KEYS["principal"], KEYS["session"], KEYS["server"])
        """Whether it is known of any request whose quota it is, also of one that takes nothing."""

    def __len__(self) -> int:
        return len(self._quotas)

    def find(self, call: Call) -> Quota:
        """Return the quota a call takes from."""
        key = self._key(call)
        # Put back in, it is the newest; the first to be forgotten is that of the caller who was quiet longest.
        quota = self._quotas.pop(key, None) or self._new(key)
        self._quotas[key] = quota
        if len(self._quotas) > self._most:
            del self._quotas[next(iter(self._quotas))]
        return quota

    def _new(self, key: Hashable) -> Quota:
        quota = None
        if self.leased is not None:
            quota = self.leased.quota(self.name, self._rate, key)
        return quota or Quota(self.name, self._rate)

    def look(self, call: Call) -> Quota:
        """Return the quota of whoever asks, as it stands; one that was never taken from is full."""
        return self._quotas.get(self._key(call)) or Quota(self.name, self._rate)


class RateLimit(Middleware):
    """Refuses calls beyond a rate, and says when to come again.

    A rate is a number a second, or written as `100/min` or `10/s burst 50`. `by` is "principal" (who is not
    authenticated counts by session or address), "session", "tool", "server" for all together, or a function of the
    call. Several rates that hold together are a mapping: `RateLimit({"principal": "100/min", "server": "50/s"})`.
    """

    def __init__(
        self,
        rate: float | str | Mapping[str, float | str],
        *,
        burst: float | None = None,
        by: str | Key = "principal",
        methods: Collection[str] = (TOOL_CALL,),
        max_keys: int = 10_000,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        require("RateLimit: max_keys", max_keys, PositiveInt)
        require("RateLimit: burst", burst, NonNegativeFloat | None)
        self._methods = methods_of(methods, "RateLimit")
        self._clock = clock
        self._quotas: list[Quotas] = []
        if isinstance(rate, Mapping):
            require_known("RateLimit", rate, KINDS, what="rate")
            for name, each in rate.items():
                key = key_of(KINDS[name], "RateLimit")
                self._quotas.append(Quotas(name, rate_of(each, burst), key, max_keys))
        else:
            name = by if isinstance(by, str) else "calls"
            self._quotas.append(Quotas(name, rate_of(rate, burst), key_of(by, "RateLimit"), max_keys))

    def share(self, leased: LeasedQuotas) -> None:
        """Count calls together with other nodes."""
        for each in self._quotas:
            each.leased = leased

    async def on_request(self, call: Call, proceed: Handler) -> Any:
        """Let a call through while there is a token for it; over HTTP the answer says what is left."""
        if call.method in self._methods:
            self._take(call)
        elif call.channel.traits.headers:
            self._show(call)
        return await proceed(call)

    def _take(self, call: Call) -> None:
        now = self._clock()
        quotas = []
        for each in self._quotas:
            if each.name != "tool" or call.method == TOOL_CALL or len(self._quotas) == 1:
                quotas.append(each.find(call))
        exhausted = take_together(quotas, now)
        if exhausted is not None:
            raise RateLimited(exhausted.retry_after, headers=_headers(quotas, now))
        if call.channel.traits.headers:
            call.channel.add_headers(_headers(quotas, now))

    def _show(self, call: Call) -> None:
        """Say in the answer to a request that is not counted how the quotas of its sender stand."""
        quotas = [each.look(call) for each in self._quotas if each.of_caller]
        call.channel.add_headers(_headers(quotas, self._clock()))


def rate_of(given: object, burst: float | None = None) -> Rate:
    """Return a rate that is given as a number a second or as it is written; raises SetupError."""
    require("RateLimit: rate", given, NonNegativeFloat | str)
    if isinstance(given, str):
        if burst is not None:
            raise SetupError(f"RateLimit: write the burst into the rate: {given.strip()!r} becomes '{given} burst …'")
        return Rate.parse(given)
    assert isinstance(given, int | float)
    at_once = max(given, 1.0) if burst is None else burst
    if given == 0:
        # So many at once, and never more.
        return Rate(1, math.inf, at_once)
    return Rate(given, 1, at_once)


def _headers(quotas: list[Quota], now: float) -> dict[str, str]:
    """Return the headers that tell of quotas (draft-ietf-httpapi-ratelimit-headers); one never refilled has none."""
    refilled = []
    for quota in quotas:
        if quota.rate.per_second > 0:
            refilled.append(quota)
    if not refilled:
        return {}
    return {"RateLimit-Policy": policy_header(refilled), "RateLimit": limit_header(refilled, now)}
