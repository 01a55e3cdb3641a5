"""Opening a connection to a server: directly or through a proxy, with TLS or without, within a time limit."""

from __future__ import annotations

import asyncio
import socket
import ssl

from msgspec import Struct

from ferrule.errors import ConnectFailed, SetupError
from ferrule.transports.http.client.outbound import Outbound, Owner
from ferrule.transports.http.client.places import Place

MAX_TUNNEL_ANSWER = 16 * 1024


class TlsSettings(Struct, frozen=True):
    """Whom to trust, and who we are."""

    verify: bool = True
    ca: str | None = None
    """A file of certificates to trust instead of the system's."""
    cert: str | tuple[str, str] | None = None
    """Our own certificate with its key, in one PEM file or two."""

    def context(self) -> ssl.SSLContext:
        """Make the context; raises SetupError when a file cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            if isinstance(self.cert, str):
                context.load_cert_chain(self.cert)
            elif self.cert is not None:
                context.load_cert_chain(*self.cert)
        except (OSError, ssl.SSLError) as reason:
            file = self.ca if self.cert is None else self.cert
            raise SetupError(f"cannot use the certificates of {file}: {reason}") from None
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        return context


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
        try:
            async with asyncio.timeout(self._timeout):
                if self.proxy is not None and self.place.secure:
                    return await self._tunnel(loop, owner)
                near = self.proxy or self.place
                name = self.place.host if self._context is not None else None
                _, connection = await loop.create_connection(
                    lambda: Outbound(owner), near.host, near.port, ssl=self._context, server_hostname=name
                )
                return connection
        except TimeoutError:
            raise ConnectFailed(
                f"cannot reach {self._named}: no connection within {self._timeout:g} s; is the address right?"
            ) from None
        except OSError as error:
            raise ConnectFailed(f"cannot reach {self._named}: {explain(error)}") from error

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
        transport, _ = await loop.create_connection(lambda: Tunnel(answered), self.proxy.host, self.proxy.port)
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


def explain(error: OSError) -> str:
    """Say in one sentence why a connection failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted ({error.verify_message}); "
            "give the file of the authority that signed it as ca=…"
        )
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}); does the server speak TLS at this port?"
    if isinstance(error, socket.gaierror):
        return "there is no such host; is its name spelled right?"
    if isinstance(error, ConnectionRefusedError):
        return "the connection was refused; does the server run, and at this port?"
    if isinstance(error, ConnectionResetError):
        return "the connection was reset; does the server speak the protocol of this URL?"
    return f"{error.strerror or error}"
