"""The options of reaching a server over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Literal

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import (
    FilePath,
    Fraction,
    MessageSize,
    NonNegativeInt,
    PositiveInt,
    PositiveSeconds,
    Seconds,
    check,
)
from ferrule.supervision.backoff import Backoff
from ferrule.transports.contract import CredentialsSource
from ferrule.transports.http.message import header_lines
from ferrule.transports.sockets.tls import TlsSettings
from ferrule.wire.codec import MAX_MESSAGE_SIZE

Retry = Literal["safe", "all", "never"]

RETRYABLE = (429, 500, 502, 503, 504)
"""Statuses that may be over soon, unless the options name others (RFC 9110 §15.5, §15.6; RFC 6585 §4)."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """How a server is reached over HTTP; times are seconds, sizes bytes."""

    headers: Mapping[str, str] = {}
    """Sent with every request; an authorization goes here."""
    connect_timeout: PositiveSeconds = 5.0
    """How long opening a connection may take."""
    pool_size: PositiveInt = 10
    """How many connections are kept for ordinary requests; more requests than that wait."""
    max_streams: PositiveInt = 100
    """How many connections there may be besides, for streams that stay open and for what cannot wait."""
    max_waiting: NonNegativeInt | None = 2000
    """How many requests may wait for a connection; the next is refused. None for any number."""
    retry: Retry = "safe"
    """Send again what failed: only where nothing can happen twice, always, or never."""
    retry_statuses: Collection[int] = RETRYABLE
    """The HTTP statuses after which a request may be sent again at all."""
    max_retries: NonNegativeInt = 3
    """How often a request is sent again."""
    retry_delay: Seconds = 1.0
    """How long to wait before the first time; each wait is twice the one before."""
    max_retry_delay: Seconds = 60.0
    """The longest wait."""
    jitter: Fraction = 0.5
    """How much of each wait is taken away at random: 0 none, 1 all."""
    proxy: str | bool = True
    """A proxy's URL; True asks HTTP_PROXY, HTTPS_PROXY and NO_PROXY; False means none."""
    verify: bool = True
    """Whether the server's certificate must be valid."""
    ca: FilePath | None = None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None = None
    """Our own certificate with its key, in one PEM file or two."""
    max_message_size: MessageSize = MAX_MESSAGE_SIZE
    """The longest message that is read."""
    renew_timeout: PositiveSeconds = 10.0
    """How long a server that forgot our session may take to open a new one."""
    auth: CredentialsSource | None = None
    """Who we are: OAuth(…), Bearer(…) and their like; it is asked for each request, and told of refusals."""
    chance: Callable[[], float] = random.random
    """Where jitter comes from: gives numbers from 0 to 1."""

    def __post_init__(self) -> None:
        require_credentials(self.auth, self.headers)
        check(self)
        header_lines(self.headers)
        wrong = []
        for status in self.retry_statuses:
            if status not in range(400, 600):
                wrong.append(status)
        if wrong:
            raise SetupError(f"retry_statuses must be HTTP statuses from 400 to 599, not {wrong[0]!r}")

    @property
    def backoff(self) -> Backoff:
        """How long to wait before each attempt."""
        return Backoff(self.retry_delay, longest=self.max_retry_delay, jitter=self.jitter)

    @property
    def tls(self) -> TlsSettings:
        """Whom to trust, and who we are."""
        return TlsSettings(self.verify, self.ca, self.cert)


def require_credentials(auth: object, headers: Mapping[str, str]) -> None:
    """Refuse what is no answer to the question who we are, without showing it, and two answers."""
    if auth is None:
        return
    if not isinstance(auth, CredentialsSource) or isinstance(auth, type):
        what = "a str: write Bearer(…) around it" if isinstance(auth, str) else f"{type(auth).__name__}"
        raise SetupError(f"auth must be OAuth(…), Bearer(…) or their like, not {what}")
    if any(str(name).lower() == "authorization" for name in headers):
        raise SetupError("auth and an Authorization header both say who we are: give one of them")
