"""Opening a connection to a server: directly or through a proxy, with TLS or without, within a time limit."""

from __future__ import annotations

import asyncio
import ssl

from ferrule.errors import ConnectFailed
from ferrule.transports.http.client.connection import Outbound, Owner
from ferrule.transports.http.client.url import Place
from ferrule.transports.sockets.dial import dial, reaching
from ferrule.transports.sockets.tls import TlsSettings

MAX_TUNNEL_ANSWER = 16 * 1024


class Dialer:
    """Opens connections to one place."""

    def __init__(self, place: Place, proxy: Place | None, tls: TlsSettings, timeout: float) -> None:
        self.place, self.proxy = place, proxy
        self._tls, self._timeout = tls, timeout
        self._context: ssl.SSLContext | None = None

    async def open(self, owner: Owner) -> Outbound:
        """Open a connection; raises ConnectFailed with what, where and what to do."""
        loop = asyncio.get_running_loop()
        if self.place.secure and self._context is None:
            self._context = self._tls.context()
        async with reaching(self._named, self._timeout):
            if self.proxy is not None and self.place.secure:
                return await self._tunnel(loop, owner)
            near = self.proxy or self.place
            _, connection = await dial(lambda: Outbound(owner), near.host, near.port, self._context, self.place.host)
            return connection

    @property
    def _named(self) -> str:
        via = f" through the proxy {self.proxy.origin}" if self.proxy is not None else ""
        return f"{self.place}{via}"

    async def _tunnel(self, loop: asyncio.AbstractEventLoop, owner: Owner) -> Outbound:
        assert self.proxy is not None
        far = f"{self.place.host}:{self.place.port}" if ":" not in self.place.host else self.place.authority
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
            connection = Outbound(owner)
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
        self._read += data
        if self._answered.done():
            return
        if b"\r\n\r\n" in self._read:
            self._answered.set_result(self._read.partition(b"\r\n")[0])
        elif len(self._read) > MAX_TUNNEL_ANSWER:
            self._answered.set_exception(ConnectionError("the proxy's answer to CONNECT has no end"))

    def connection_lost(self, error: Exception | None) -> None:
        """A proxy that leaves answers nothing."""
        if not self._answered.done():
            self._answered.set_exception(ConnectionError("the proxy closed the connection"))
