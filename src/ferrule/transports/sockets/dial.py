"""Opening the way to a peer within a time; whoever cannot be reached is named, with the reason and what to do."""

from __future__ import annotations

import asyncio
import errno
import re
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from ferrule.errors import ConnectFailed
from ferrule.transports.sockets.tls import explain

RESET = struct.pack("ii", 1, 0)
"""Makes the end of a connection a reset, whatever was not taken."""

SHORTAGES = frozenset({errno.EADDRNOTAVAIL, errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

ProtocolT = TypeVar("ProtocolT", bound=asyncio.Protocol)


@asynccontextmanager
async def reaching(
    peer: object, seconds: float, *, wanted: str = "connection", reason: Callable[[OSError], str] = explain
) -> AsyncIterator[None]:
    """Bound an attempt to reach a peer; one that takes too long or that the system refuses raises ConnectFailed."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise ConnectFailed(f"cannot reach {peer}: no {wanted} within {seconds:g} s; is the address right?") from None
    except OSError as error:
        raise ConnectFailed(f"cannot reach {peer}: {reason(error)}") from error


def is_shortage(failure: ConnectFailed) -> bool:
    """Return whether a peer was not reached because our own system has no port, descriptor or memory left for it."""
    error = failure.__cause__
    if not isinstance(error, OSError):
        return False
    # Several addresses of a host fail as one error without a number of its own.
    if error.errno is None:
        numbers = re.findall(r"\[Errno (\d+)\]", str(error))
    else:
        numbers = [error.errno]
    return not SHORTAGES.isdisjoint(map(int, numbers))


async def dial(
    protocol: Callable[[], ProtocolT], host: str, port: int, context: ssl.SSLContext | None, server_name: str | None
) -> tuple[asyncio.Transport, ProtocolT]:
    """Open a connection, with TLS where there is a context; raises OSError."""
    loop = asyncio.get_running_loop()
    name = server_name if context is not None else None
    transport, made = await loop.create_connection(protocol, host, port, ssl=context, server_hostname=name)
    if transport.get_extra_info("sockname") == transport.get_extra_info("peername"):
        # Who tries a port of this machine again and again, with nobody there, is given that very port one day and
        # reaches itself. Without a trace, or the system keeps the port from the server for another minute.
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        transport.abort()
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")
    return transport, made
