"""Opening a connection to a server, and to nobody else."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import Callable
from typing import TypeVar

RESET = struct.pack("ii", 1, 0)
"""Makes the end of a connection a reset, whatever was not taken."""

P = TypeVar("P", bound=asyncio.Protocol)


async def dial(
    protocol: Callable[[], P], host: str, port: int, context: ssl.SSLContext | None, server_name: str | None
) -> tuple[asyncio.Transport, P]:
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
