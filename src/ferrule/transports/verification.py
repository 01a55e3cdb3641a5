"""A verifier, asked safely: it may fail, take too long or return nonsense, and then nobody comes in."""

from __future__ import annotations

import asyncio
import inspect
import logging
import math
import os
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ferrule.errors import Internal, Refusal, Unauthorized
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import AllowAll, Anonymous, RequestFacts, Verdict, Verifier

if TYPE_CHECKING:
    from ferrule.telemetry import observer
    from ferrule.telemetry.observer import Observers

logger = logging.getLogger("ferrule.auth")

EXPIRED = "Unauthorized: the credentials have expired"
TOO_SLOW = "Unavailable: who is calling could not be verified in time"
RETRY_AFTER = {"Retry-After": "1"}


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
        self._transport = transport
        self._observer = observer
        self.open_to_all = type(verifier) is AllowAll
        """Whether nobody need be asked about a caller without a certificate."""
        self.clock = clock

    def ask(self, facts: RequestFacts) -> Verdict | Awaitable[Verdict]:
        """Return the verdict on a caller, or what to hand to `wait`."""
        try:
            answer = self.verifier.verify(facts)
        except Refusal as refusal:
            return self._reported(refusal)
        except Exception as error:
            return self._reported(_failed(error))
        if inspect.isawaitable(answer):
            return answer
        return self._reported(self._checked(answer))

    async def wait(self, pending: Awaitable[Verdict]) -> Verdict:
        """Return a verdict that takes a while, within the verifier's time."""
        return self._reported(await self._awaited(pending))

    async def _awaited(self, pending: Awaitable[Verdict]) -> Verdict:
        try:
            async with asyncio.timeout(self.verifier.timeout):
                answer = await pending
        except TimeoutError:
            logger.error("%s took longer than %g s", type(self.verifier).__name__, self.verifier.timeout)
            return Refusal(TOO_SLOW, status=503, headers=RETRY_AFTER)
        except Refusal as refusal:
            return refusal
        except Exception as error:
            return _failed(error)
        return self._checked(answer)

    async def verdict(self, facts: RequestFacts) -> Verdict:
        """Return the verdict on a caller, however long it takes within the verifier's time."""
        answer = self.ask(facts)
        if isinstance(answer, Verdict):
            return answer
        return await self.wait(answer)

    def _checked(self, answer: object) -> Verdict:
        if isinstance(answer, Principal):
            if answer.expired(self.clock()):
                return Unauthorized(EXPIRED)
            return answer
        if isinstance(answer, Anonymous | Refusal):
            return answer
        kind = type(self.verifier).__name__
        return _failed(TypeError(f"{kind}.verify returned {answer!r}: not a Principal, ANONYMOUS or a Refusal"))

    def _reported(self, verdict: Verdict) -> Verdict:
        """Report a verdict to observers, and return it."""
        if self._observer is not None:
            said: observer.Verdict = "anonymous"
            if isinstance(verdict, Principal):
                said = "accepted"
            elif isinstance(verdict, Refusal):
                # A verifier that fails or takes too long is our own trouble, not the caller's.
                said = "failed" if (verdict.status or 0) >= 500 else "refused"
            self._observer.caller_verified(self._transport, said)
        return verdict

    def kept_until(self, verdict: Principal | Anonymous) -> float:
        """Return until when a verdict also holds for further requests with the same head, by `clock`."""
        keep = self.verifier.keep
        if keep == math.inf:
            until = math.inf
        else:
            until = self.clock() + keep
        if isinstance(verdict, Principal) and verdict.expires is not None:
            return min(until, verdict.expires)
        return until


def call_at_expiry(identity: Principal | None, end: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Call a function when a principal expires; return the timer, None where it does not expire."""
    if identity is None or identity.expires is None:
        return None
    return asyncio.get_running_loop().call_later(max(0.0, identity.expires - time.time()), end)


def _failed(error: Exception) -> Refusal:
    reference = os.urandom(4).hex()
    logger.error("the verifier failed (reference %s): nobody was let in", reference, exc_info=error)
    return Internal(f"Internal error (reference {reference})", {"reference": reference}, status=500)
