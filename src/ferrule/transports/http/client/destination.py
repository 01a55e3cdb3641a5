"""Where a client over HTTP goes: the place, the proxy that leads there, and the options of the way."""

from __future__ import annotations

import os
from typing import Any

from ferrule.transports.http.client.dial import Dialer
from ferrule.transports.http.client.headers import Heading
from ferrule.transports.http.client.options import http_options
from ferrule.transports.http.client.pool import Pool
from ferrule.transports.http.client.proxies import proxy_for
from ferrule.transports.http.client.url import place


class Destination:
    """One server as a URL and options name it; raises SetupError for what cannot be meant."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self.place = place(url)
        self.options = http_options(options)
        self._proxy = proxy_for(self.place, self.options.proxy, os.environ)

    def __str__(self) -> str:
        return str(self.place)

    def pool(self) -> Pool:
        """Make the connections of one conversation; none is open yet."""
        options = self.options
        dialer = Dialer(self.place, self._proxy, options.tls, options.connect_timeout)
        return Pool(dialer.open, size=options.pool_size, max_extra=options.max_streams, max_waiting=options.max_waiting)

    def heading(self) -> Heading:
        """Make the heads of the requests of one conversation."""
        return Heading(self.place, self._proxy, self.options.headers)
