"""The pause after a login that failed: a program may ask for the next one at once, a person may not be asked then."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from ferrule.auth.client.session import Granted
from ferrule.errors import AuthorizationFailed

PAUSE = 10.0
"""Seconds until a person is asked again."""


class LoginPause:
    """Lets a person log in, unless the last login failed a moment ago: then it fails as that one did."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failed: tuple[float, AuthorizationFailed] | None = None

    async def attempt(self, login: Callable[[], Awaitable[Granted]]) -> Granted:
        """Return what a login brings; raises AuthorizationFailed."""
        if self._failed is not None:
            at, failure = self._failed
            if self._clock() - at < PAUSE:
                raise failure.with_traceback(None)
        try:
            granted = await login()
        except AuthorizationFailed as failure:
            self._failed = (self._clock(), failure)
            raise
        self._failed = None
        return granted
