"""Figures of other servers of the same kind, taken once on a machine of this size, for whoever reads a table."""

from __future__ import annotations

from bench.messages import Era
from bench.scenarios import case_name

ONE, MANY = case_name(Era.HANDSHAKE, 1), case_name(Era.HANDSHAKE, 64)

REPORTED = {
    ("tcp", ONE): "a bare core on uvloop 47.6, on asyncio 52.8; C with constant bytes 29.8",
    ("tcp", MANY): "a bare core on uvloop 4.5, with a task a call 5.0; C with constant bytes 0.6",
    ("ws", ONE): "a bare core on picows 46.9, on websockets 91.8, on uvicorn with wsproto 111.8",
    (
        "ws",
        MANY,
    ): "32 connections, 16 in flight each: a bare core on picows 5.6, on websockets 14.8, on granian 28.3",
}
"""CPU µs of a call by scenario and case; a bare core decodes, calls and encodes, and does nothing else."""
