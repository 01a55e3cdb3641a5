"""Listening sockets and certificates, with errors that say what to do."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from pathlib import Path

from ferrule.errors import CarrierError, SetupError
from ferrule.transports.http.settings import EngineSettings


async def listen(settings: EngineSettings) -> list[socket.socket]:
    """Open a listening socket for every address of the host, all on one port; raises CarrierError."""
    host, port = settings.host, settings.port
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE
        )
    except (OSError, OverflowError, UnicodeError) as error:
        raise CarrierError(f"cannot listen on {host}:{port}: this host name has no address ({error})") from error
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((each[0], each[4]) for each in found):
            wanted = (str(address[0]), port, *address[2:])
            sockets.append(_bind(family, wanted, settings))
            # With port 0 the first address chooses, and the others follow.
            port = sockets[0].getsockname()[1]
    except (OSError, OverflowError) as error:
        for each in sockets:
            each.close()
        raise CarrierError(f"cannot listen on {host}:{port}: {_explain(error)}") from error
    return sockets


def _bind(family: int, address: tuple[object, ...], settings: EngineSettings) -> socket.socket:
    # asyncio sends small parts at once only where the protocol is named.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if settings.reuse_port:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listening.setblocking(False)
        listening.bind(address)
        listening.listen(settings.backlog)
    except BaseException:
        listening.close()
        raise
    return listening


def _explain(error: OSError | OverflowError) -> str:
    if isinstance(error, OverflowError):
        return "a port is a number from 0 to 65535"
    if error.errno == errno.EADDRINUSE:
        return "the port is in use; stop the other program or choose another port"
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine does not have that address; use 127.0.0.1 or 0.0.0.0"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "not permitted; ports below 1024 need privileges, choose another"
    return error.strerror or str(error)


def tls_context(settings: EngineSettings) -> ssl.SSLContext | None:
    """Load the certificate; None where connections are plain, SetupError where the files are no good."""
    if settings.certificate is None:
        if settings.private_key is not None:
            raise SetupError("http: a private_key without a certificate; give both")
        return None
    for name in ("certificate", "private_key"):
        path = getattr(settings, name)
        if path is not None and not Path(path).is_file():
            raise SetupError(f"http: the {name} {path!r} is not a file")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a password here OpenSSL would ask the terminal for one.
        password = settings.private_key_password or ""
        context.load_cert_chain(settings.certificate, settings.private_key, password)
    except (OSError, ValueError) as error:
        keys = settings.private_key or settings.certificate
        raise SetupError(f"http: cannot use {settings.certificate!r} with the key of {keys!r}: {error}") from error
    return context
