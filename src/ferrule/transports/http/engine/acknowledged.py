"""How much of what was written has reached the peer's system, as far as ours knows."""

from __future__ import annotations

import socket
import struct
import sys
from typing import Any

SIZE = 128
"""So much of the system's figures of a TCP connection holds the one we want."""
BYTES_ACKNOWLEDGED = 120
"""Where in them it stands."""

_read = struct.Struct("=Q").unpack_from


def unacknowledged(connected: Any, written: int) -> int | None:
    """Tell how many of the bytes written last the peer's system has not acknowledged; None where nobody can tell."""
    if sys.platform != "linux" or connected is None or connected.fileno() < 0:
        return None
    try:
        figures = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, SIZE)
    except OSError:
        return None
    # A kernel too old to count gives fewer figures.
    return max(0, written - _read(figures, BYTES_ACKNOWLEDGED)[0]) if len(figures) == SIZE else None
