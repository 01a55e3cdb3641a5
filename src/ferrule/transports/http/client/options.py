"""The options of reaching a server over HTTP."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any, get_args

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.supervision.backoff import Backoff
from ferrule.transports.http.client.retrying import Retry
from ferrule.transports.options import require_types
from ferrule.transports.tls import TlsSettings
from ferrule.wire.codec import MAX_MESSAGE_SIZE


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
        if self.pool_size < 1:
            raise SetupError(f"pool_size must be at least 1, not {self.pool_size}")

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
