"""Who we are to a server: between HTTP requests and whoever holds our tokens (`Credentials`).

Rule 1: a client without credentials pays nothing: nothing of this is made.
Rule 2: a request that waits for a token is held, not lost; its time-out begins anew when it is sent.
Rule 3: a request refused with 401 or 403 was not run, so it is sent again if the credentials say so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from ferrule.errors import AuthorizationFailed, FerruleError
from ferrule.transports.contract import Authorization, Credentials, Refused
from ferrule.transports.http.client.url import Place
from ferrule.wire.channel import PatientReceiver, Receiver
from ferrule.wire.messages import Id

logger = logging.getLogger("ferrule.transports")

T = TypeVar("T")

REFUSALS = frozenset({401, 403})
"""Statuses that say who may ask, and that nothing was run (RFC 9110 §15.5.2, §15.5.4)."""

MAX_REFUSALS = 6
"""How often one request is sent again at most: a login, a nonce, and a few more scopes."""

MAX_ATTEMPTS = 3
"""How often credentials are asked to get ready for one request."""


class Claim:
    """What one request has said of who sends it, and how often it was refused."""

    __slots__ = ("refusals", "token")

    def __init__(self) -> None:
        self.token = 0
        self.refusals = 0


class Asker(Protocol):
    """A request that is written and sent when it is known what it says of who sends it."""

    claim: Claim | None
    """Set by the gate; whoever withdraws the request takes it away."""
    status: int
    headers: dict[bytes, bytes]

    @property
    def unanswered(self) -> Sequence[Id]:
        """The requests that wait for its answer."""

    @property
    def operation(self) -> str:
        """What is asked, as credentials count it."""

    def authorized(self, lines: bytes) -> None:
        """Send it, with these lines."""

    def send_once_more(self) -> None:
        """Ask again what was refused."""

    def answered(self) -> None:
        """Judge the refusal like any other answer: there is nothing more to show."""

    def unauthorized(self, error: FerruleError) -> None:
        """Called when there are no credentials to be had."""


Spawn = Callable[[Coroutine[Any, Any, Any]], object]


class Gate:
    """Lets the requests of one conversation say who sends them."""

    def __init__(
        self, credentials: Credentials, spawn: Spawn = asyncio.ensure_future, receiver: Receiver | None = None
    ) -> None:
        self._credentials = credentials
        self._spawn = spawn
        self._receiver = receiver
        """Who waits for the answers."""

    # -- for requests that are told

    def admit(self, asker: Asker, method: str, place: Place) -> None:
        """Let a request be sent: now, or when its credentials are ready."""
        claim = asker.claim
        if claim is None:
            claim = asker.claim = Claim()
        try:
            found = self._credentials.authorize(method, place.url)
        except Exception:
            # Asked again, and told of, where the request can fail in peace.
            found = None
        if found is None:
            self._spawn(self._admit_later(asker, claim, method, place))
            return
        claim.token = found.token
        asker.authorized(found.lines)

    async def _admit_later(self, asker: Asker, claim: Claim, method: str, place: Place) -> None:
        try:
            with self._held(asker):
                lines = await self.lines(claim, method, place)
        except FerruleError as error:
            if asker.claim is claim:
                asker.unauthorized(error)
            return
        if asker.claim is claim:
            asker.authorized(lines)

    def takes_over(self, asker: Asker) -> bool:
        """Show a server that refused a request something else; False where the refusal is final."""
        claim = asker.claim
        if asker.status not in REFUSALS or claim is None or claim.refusals >= MAX_REFUSALS:
            return False
        self._spawn(self._answer(asker, claim))
        return True

    async def _answer(self, asker: Asker, claim: Claim) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in asker.headers.items()}
        try:
            with self._held(asker):
                again = await self.answer(claim, asker.status, headers, asker.operation)
        except FerruleError as error:
            if asker.claim is claim:
                asker.unauthorized(error)
            return
        if asker.claim is not claim:
            return
        if again:
            asker.send_once_more()
        else:
            claim.refusals = MAX_REFUSALS
            asker.answered()

    @contextmanager
    def _held(self, asker: Asker) -> Iterator[None]:
        """Let a request wait as long as it takes: what a person does is no time of the server's."""
        receiver = self._receiver
        if not isinstance(receiver, PatientReceiver):
            yield
            return
        began = time.monotonic()
        for identity in asker.unanswered:
            receiver.request_held(identity)
        try:
            yield
        finally:
            for identity in asker.unanswered:
                receiver.request_released(identity, time.monotonic() - began)

    # -- for requests that wait

    async def lines(self, claim: Claim, method: str, place: Place) -> bytes:
        """Return the lines of a request, when its credentials are ready; raises FerruleError."""
        for _ in range(MAX_ATTEMPTS):
            found = await guarded(self._ready(method, place))
            if found is not None:
                claim.token = found.token
                return found.lines
        raise AuthorizationFailed(f"{place}: each token that was got for it had expired at once; is a clock wrong?")

    async def _ready(self, method: str, place: Place) -> Authorization | None:
        found = self._credentials.authorize(method, place.url)
        if found is not None:
            return found
        await self._credentials.prepare()
        return self._credentials.authorize(method, place.url)

    async def answer(self, claim: Claim, status: int, headers: Mapping[str, str], operation: str) -> bool:
        """Hand a refusal to the credentials. Return whether to send the request again; raises FerruleError."""
        if status not in REFUSALS or claim.refusals >= MAX_REFUSALS:
            return False
        claim.refusals += 1
        return await guarded(self._credentials.refused(Refused(status, headers, operation, claim.token)))


async def guarded(work: Coroutine[Any, Any, T]) -> T:
    """Wait for credentials, which somebody else may have written; raises FerruleError whatever they fail with."""
    try:
        return await work
    except FerruleError:
        raise
    except Exception as error:
        logger.exception("the credentials of a client failed")
        raise AuthorizationFailed(f"the credentials failed with {type(error).__name__}; the log says how") from error
