"""The options of reaching a server over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.supervision.backoff import Backoff
from ferrule.transports.http.message import header_lines
from ferrule.transports.options import require_message_size, require_number, require_types
from ferrule.transports.sockets.tls import TlsSettings
from ferrule.wire.codec import MAX_MESSAGE_SIZE

Retry = Literal["safe", "all", "never"]

RETRYABLE = frozenset({429, 500, 502, 503, 504})
"""Statuses that may be over soon, unless the options name others (RFC 9110 §15.5, §15.6; RFC 6585 §4)."""

LEAST = {
    **dict.fromkeys(("pool_size", "max_streams"), 1),
    **dict.fromkeys(("connect_timeout", "renew_timeout"), 0.001),
    **dict.fromkeys(("max_waiting", "max_retries", "retry_delay", "max_retry_delay", "jitter"), 0),
}
"""What a number must be at least for anything to work with it."""


class HttpOptions(Struct, frozen=True, kw_only=True):
    """How a server is reached over HTTP; times are seconds, sizes bytes."""

    headers: Mapping[str, str] = {}
    """Sent with every request; an authorization goes here."""
    connect_timeout: float = 5.0
    pool_size: int = 10
    """How many connections are kept for ordinary requests; more requests than that wait."""
    max_streams: int = 100
    """How many connections there may be besides, for streams that stay open and for what cannot wait."""
    max_waiting: int | None = 2000
    retry: Retry = "safe"
    """Send again what failed: only where nothing can happen twice, always, or never."""
    retry_statuses: tuple[int, ...] = tuple(sorted(RETRYABLE))
    """The HTTP statuses after which a request may be sent again at all."""
    max_retries: int = 3
    retry_delay: float = 1.0
    max_retry_delay: float = 60.0
    jitter: float = 0.5
    proxy: str | bool = True
    """A proxy's URL; True asks HTTP_PROXY, HTTPS_PROXY and NO_PROXY; False means none."""
    verify: bool = True
    ca: str | None = None
    cert: str | tuple[str, str] | None = None
    max_message_size: int = MAX_MESSAGE_SIZE
    renew_timeout: float = 10.0
    """How long a server that forgot our session may take to open a new one."""
    chance: Callable[[], float] = random.random
    """Where jitter comes from: gives numbers from 0 to 1."""

    def __post_init__(self) -> None:
        require_types(self)
        if self.retry not in get_args(Retry):
            raise SetupError(f"retry must be one of {', '.join(get_args(Retry))}, not {self.retry!r}")
        header_lines(self.headers)
        require_message_size(self.max_message_size)
        for name, least in LEAST.items():
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), least=least)
        if self.jitter > 1:
            raise SetupError(f"jitter must be from 0 to 1, the part of a pause that chance may take, not {self.jitter}")
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


def http_options(options: dict[str, Any]) -> HttpOptions:
    """Read the options; raises SetupError for one that does not exist."""
    try:
        return HttpOptions(**options)
    except TypeError as reason:
        raise SetupError(f"http: {reason}; the options are {', '.join(HttpOptions.__struct_fields__)}") from None
