"""Opening a connection to a server: directly or through a proxy, with TLS or without, within a time limit."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Mapping
from ipaddress import ip_address, ip_network
from typing import TYPE_CHECKING

from ferrule.errors import ConnectFailed, SetupError
from ferrule.settings.option import read
from ferrule.transports.contract import Credentials
from ferrule.transports.http.client.connection import HttpConnection, Owner
from ferrule.transports.http.client.headers import RequestHeaders
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.client.pool import Pool
from ferrule.transports.http.client.url import Place, place
from ferrule.transports.sockets.dial import dial, reaching
from ferrule.transports.sockets.tls import TlsSettings

if TYPE_CHECKING:
    from ferrule.transports.keywords import HttpClientKeywords


def proxy_for(target: Place, given: str | bool, environment: Mapping[str, str]) -> Place | None:
    """Choose the proxy: a URL is taken as it is, True asks the environment, False means none."""
    if given is False:
        return None
    if given is True:
        url = _from_environment(target, environment)
        if not url:
            return None
    else:
        url = given
    try:
        proxy = place(url if "://" in url else f"http://{url}")
    except SetupError as reason:
        raise SetupError(f"proxy: {reason}") from None
    if proxy.scheme != "http":
        raise SetupError(f"the proxy {proxy.origin} must be reached by http://; what goes through it may be https://")
    return proxy


def _from_environment(target: Place, environment: Mapping[str, str]) -> str:
    if is_loopback(target.host) or _excepted(target, _variable(environment, "no_proxy")):
        return ""
    if target.scheme == "http" and "REQUEST_METHOD" in environment:
        # In a CGI program HTTP_PROXY is a header of the request: anyone could choose our proxy.
        return environment.get("http_proxy", "")
    return _variable(environment, f"{target.scheme}_proxy") or _variable(environment, "all_proxy")


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine by its name."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _excepted(target: Place, rules: str) -> bool:
    return any(_matches(target, rule.strip().lower()) for rule in rules.split(",") if rule.strip())


def _matches(target: Place, rule: str) -> bool:
    if rule == "*":
        return True
    try:
        return ip_address(target.host) in ip_network(rule.strip("[]"), strict=False)
    except ValueError:
        pass
    name, _, port = rule.partition(":")
    if port and port != str(target.port):
        return False
    name = name.removeprefix("*").lstrip(".")
    return bool(name) and (target.host == name or target.host.endswith(f".{name}"))


MAX_TUNNEL_ANSWER = 16 * 1024
"""Bytes of the head of a proxy's answer to CONNECT, with the empty line."""


class Dialer:
    """Opens connections to one place."""

    def __init__(self, place: Place, proxy: Place | None, tls: TlsSettings, timeout: float) -> None:
        self.place = place
        self.proxy = proxy
        self._tls = tls
        self._timeout = timeout
        self._context: ssl.SSLContext | None = None

    async def open(self, owner: Owner) -> HttpConnection:
        """Open a connection; raises ConnectFailed with what, where and what to do."""
        loop = asyncio.get_running_loop()
        if self.place.secure and self._context is None:
            self._context = self._tls.context()
        async with reaching(self._named, self._timeout):
            if self.proxy is not None and self.place.secure:
                return await self._tunnel(loop, owner)
            near = self.proxy or self.place
            _, connection = await dial(
                lambda: HttpConnection(owner), near.host, near.port, self._context, self.place.host
            )
            return connection

    @property
    def _named(self) -> str:
        if self.proxy is not None:
            via = f" through the proxy {self.proxy.origin}"
        else:
            via = ""
        return f"{self.place}{via}"

    async def _tunnel(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> HttpConnection:
        assert self.proxy is not None
        if ":" not in self.place.host:
            far = f"{self.place.host}:{self.place.port}"
        else:
            far = self.place.authority
        request = f"CONNECT {far} HTTP/1.1\r\nHost: {far}\r\n"
        if self.proxy.credentials:
            request += f"Proxy-Authorization: {self.proxy.credentials}\r\n"
        answered: asyncio.Future[bytes] = loop.create_future()
        transport, _ = await dial(lambda: Tunnel(answered), self.proxy.host, self.proxy.port, None, None)
        try:
            transport.write(request.encode() + b"\r\n")
            status = (await answered).split(b" ", 2)
            if len(status) < 2 or not status[1].startswith(b"2"):
                refusal = b" ".join(status[1:]).decode("latin-1")
                raise ConnectFailed(
                    f"cannot reach {self.place}: the proxy {self.proxy.origin} refuses with {refusal}; "
                    "does it need a user name, or should NO_PROXY name this host?"
                )
            connection = HttpConnection(owner)
            assert self._context is not None
            secured = await loop.start_tls(transport, connection, self._context, server_hostname=self.place.host)
            assert secured is not None
        except BaseException:
            transport.abort()
            raise
        connection.connection_made(secured)
        return connection


class Tunnel(asyncio.Protocol):
    """Waits for a proxy's answer to CONNECT; after it the bytes belong to whoever is at the far end."""

    def __init__(self, answered: asyncio.Future[bytes]) -> None:
        self._answered = answered
        self._read = b""

    def data_received(self, data: bytes) -> None:
        """Collect the head of the answer."""
        if self._answered.done():
            return
        self._read += data
        if self._read.find(b"\r\n\r\n", 0, MAX_TUNNEL_ANSWER) >= 0:
            self._answered.set_result(self._read.partition(b"\r\n")[0])
        elif len(self._read) >= MAX_TUNNEL_ANSWER:
            self._read = b""
            self._answered.set_exception(ConnectionError("the proxy's answer to CONNECT has no end"))

    def connection_lost(self, error: Exception | None) -> None:
        """A proxy that leaves answers nothing."""
        if not self._answered.done():
            self._answered.set_exception(ConnectionError("the proxy closed the connection"))


class Destination:
    """One server as a URL and options name it; raises SetupError for what cannot be meant."""

    def __init__(self, url: str, options: HttpClientKeywords) -> None:
        self.place = place(url)
        self.options = read(HttpOptions, options, "http")
        if self.options.auth is not None and self.place.credentials:
            raise SetupError("auth and a user name in the URL both say who we are: give one of them")
        self._proxy = proxy_for(self.place, self.options.proxy, os.environ)

    def __str__(self) -> str:
        return str(self.place)

    def pool(self) -> Pool:
        """Make the connections of one conversation; none is open yet."""
        options = self.options
        dialer = Dialer(self.place, self._proxy, options.tls, options.connect_timeout)
        return Pool(dialer.open, size=options.pool_size, max_extra=options.max_streams, max_waiting=options.max_waiting)

    def credentials(self) -> Credentials | None:
        """Return what we can show the server; None where we show nothing."""
        if self.options.auth is None:
            return None
        return self.options.auth.credentials(self.place.url, self.options.tls)

    def heading(self) -> RequestHeaders:
        """Make the heads of the requests of one conversation."""
        return RequestHeaders(self.place, self._proxy, self.options.headers)
