"""The options of a client over HTTP."""

from __future__ import annotations

from ferrule.client.settings import ClientSettings
from ferrule.transports.http.client.options import HttpOptions


def test_the_options_have_their_agreed_defaults() -> None:
    """seed:HTTP-03: conflicts C-18 and C-19 included."""
    options = HttpOptions()
    assert (options.connect_timeout, options.pool_size) == (5.0, 10)
    assert (options.max_retries, options.retry_delay) == (3, 1.0)
    assert (dict(options.headers), options.verify, options.ca, options.cert) == ({}, True, None, None)
    assert ClientSettings().request_timeout == 5.0
