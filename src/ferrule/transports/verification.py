"""A verifier, asked safely: it may fail, take too long or return nonsense, and then nobody comes in."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING

from msgspec import structs

from ferrule.errors import Internal, Refusal, SetupError, Unauthorized
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import AllowAll, Anonymous, RequestFacts, Verdict, Verifier

if TYPE_CHECKING:
    from ferrule.telemetry import observer
    from ferrule.telemetry.observer import Observers

logger = logging.getLogger("ferrule.auth")

EXPIRED = "Unauthorized: the credentials have expired"
TOO_SLOW = "Unavailable: who is calling could not be verified in time"
RETRY_AFTER = {"Retry-After": "1"}
RECHECK_PAUSE = 5.0
"""Seconds until a caller is verified once more where that failed."""


class Verification:
    """Asks the verifier of a server. Whatever it does, the outcome is a verdict; nothing is raised."""

    def __init__(
        self,
        verifier: Verifier,
        clock: Callable[[], float] = time.time,
        *,
        transport: str = "",
        observer: Observers | None = None,
    ) -> None:
        self.verifier = verifier
        self._report = _report_to(observer, transport)
        self.open_to_all = type(verifier) is AllowAll
        """Whether nobody need be asked about a caller without a certificate."""
        self.clock = clock

    def ask(self, facts: RequestFacts) -> Verdict | Awaitable[Verdict]:
        """Return the verdict on a caller, or what to hand to `wait`."""
        try:
            answer = self.verifier.verify(facts)
        except Refusal as refusal:
            return self._settle(refusal)
        except Exception as error:
            return self._settle(_failed(error))
        if not isinstance(answer, Principal) and inspect.isawaitable(answer):
            return answer
        return self._settle(answer)

    async def wait(self, pending: Awaitable[Verdict]) -> Verdict:
        """Return a verdict that takes a while, within the verifier's time."""
        return self._settle(await self._awaited(pending))

    async def _awaited(self, pending: Awaitable[Verdict]) -> object:
        try:
            async with asyncio.timeout(self.verifier.timeout):
                return await pending
        except TimeoutError:
            logger.error("%s took longer than %g s", type(self.verifier).__name__, self.verifier.timeout)
            return Refusal(TOO_SLOW, status=503, headers=RETRY_AFTER)
        except Refusal as refusal:
            return refusal
        except Exception as error:
            return _failed(error)

    async def verdict(self, facts: RequestFacts) -> Verdict:
        """Return the verdict on a caller, however long it takes within the verifier's time."""
        answer = self.ask(facts)
        if isinstance(answer, Verdict):
            return answer
        return await self.wait(answer)

    def _settle(self, answer: object) -> Verdict:
        """Return what an answer of the verifier means, and report it to observers."""
        verdict: Principal | Anonymous | Refusal
        said: observer.Verdict
        if isinstance(answer, Principal):
            expires = answer.expires
            if expires is None or self.clock() < expires:
                self._report("accepted")
                return answer
            verdict = Unauthorized(EXPIRED)
        elif isinstance(answer, Anonymous | Refusal):
            verdict = answer
        else:
            kind = type(self.verifier).__name__
            # What it is stays out of the log: who returns nonsense may return the token.
            what = type(answer).__name__
            verdict = _failed(TypeError(f"{kind}.verify returned a {what}: not a Principal, ANONYMOUS or a Refusal"))
        if isinstance(verdict, Anonymous):
            said = "anonymous"
        elif (verdict.status or 0) >= 500:
            # A verifier that fails or takes too long is our own trouble, not the caller's.
            said = "failed"
        else:
            said = "refused"
        self._report(said)
        return verdict

    def watch(self, identity: Principal | None, facts: RequestFacts, end: Callable[[], None]) -> CallerWatch | None:
        """End a connection with the right of its caller to it; None where that does not end."""
        if identity is None or (identity.expires is None and not self.verifier.recheck):
            return None
        return CallerWatch(self, identity, facts, end)


def _report_to(observer: Observers | None, transport: str) -> Callable[[observer.Verdict], None]:
    """Return what is called with each verdict."""
    if observer is None:
        return _report_to_nobody
    if observer.meter is not None:
        return observer.meter.over(transport).verified
    return partial(observer.caller_verified, transport)


def _report_to_nobody(verdict: observer.Verdict) -> None:
    """Do nothing."""


def require_verified(verifier: Verifier, host: str, what: str, *, client_ca: object, allow_remote: bool) -> None:
    """Refuse to listen where others can reach us and nothing proves who they are (SUP-06)."""
    if is_loopback(host) or client_ca is not None or allow_remote or type(verifier) is not AllowAll:
        return
    raise SetupError(
        f"{what}: on {host!r} anyone who can reach this machine could call every tool; "
        "listen on 127.0.0.1, give the server auth=…, ask for certificates with client_ca=…, "
        "or say allow_remote=True (`--allow-remote`)"
    )


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class CallerWatch:
    """Looks after the caller behind an open connection: it ends with its principal, or when a new verdict says no."""

    def __init__(
        self, verification: Verification, identity: Principal, facts: RequestFacts, end: Callable[[], None]
    ) -> None:
        self._verification = verification
        self._identity = identity
        self._facts = structs.replace(facts, proven=True)
        self._end = end
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._failed = False
        """Whether the last verdict could not be had."""
        self._wait(verification.verifier.recheck or math.inf)

    def cancel(self) -> None:
        """Look no more: the connection has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()

    def _wait(self, delay: float) -> None:
        if self._identity.expires is not None:
            delay = min(delay, self._identity.expires - self._verification.clock())
        if delay < math.inf:
            self._timer = self._loop.call_later(max(0.0, delay), self._look)

    def _look(self) -> None:
        if self._identity.expired(self._verification.clock()) or not self._verification.verifier.recheck:
            self._end()
        else:
            self._asking = self._loop.create_task(self._ask(), name="verify a caller anew")

    async def _ask(self) -> None:
        verdict = await self._verification.verdict(self._facts)
        if isinstance(verdict, Principal) and self._is_same(verdict):
            self._identity = verdict
            self._failed = False
            self._wait(self._verification.verifier.recheck)
        elif isinstance(verdict, Refusal) and (verdict.status or 0) >= 500 and not self._failed:
            # Whoever could tell is asked once more before everybody is sent away.
            self._failed = True
            self._wait(RECHECK_PAUSE)
        else:
            self._end()

    def _is_same(self, verdict: Principal) -> bool:
        """Return whether a verdict is on the caller that opened the connection, with what was proven then."""
        known = self._identity
        return verdict.binding == known.binding and verdict.confirmation == known.confirmation


def _failed(error: Exception) -> Refusal:
    reference = os.urandom(4).hex()
    logger.error("the verifier failed (reference %s): nobody was let in", reference, exc_info=error)
    return Internal(f"Internal error (reference {reference})", {"reference": reference}, status=500)
