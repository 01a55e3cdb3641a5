"""Idle sessions: what each keeps in memory, and whether all of them, with streams open, still answer."""

from __future__ import annotations

import time

from bench.contestants import FERRULE, OWN_BEFORE, Contestant
from bench.machine import cpu_seconds, resident_mib
from bench.messages import OPERATIONS
from bench.process import time_limit
from bench.streamable.fanout import StreamingServer
from bench.streamable.load import HttpLoad
from bench.streamable.server import ask
from bench.streamable.wire import Mode, connect

SESSIONS, STREAMS = 10_000, 1_000
PEER_SHARE = 10
"""Peers are asked for a tenth: they need tens of KB for a session, and milliseconds to open it."""

WARM_CONNECTIONS = 32
LIMIT = 300.0


def measure_sessions(contestant: Contestant, warm_up: float) -> dict:
    """Open sessions on a fresh server, then streams, and let every one of them answer."""
    share = 1 if contestant.name in (FERRULE, OWN_BEFORE) else PEER_SHARE
    sessions, streams = SESSIONS // share, STREAMS // share
    server = StreamingServer(contestant, Mode.JSON, streams=0)
    try:
        HttpLoad(server, OPERATIONS["call"], WARM_CONNECTIONS).run(0.0, warm_up)
        with time_limit(LIMIT):
            return _measured(server, sessions, streams)
    finally:
        server.close()


def _measured(server: StreamingServer, sessions: int, streams: int) -> dict:
    memory, cpu, before = resident_mib(server.pid), cpu_seconds(server.pid), time.perf_counter()
    addresses = server.sessions(WARM_CONNECTIONS + sessions)[WARM_CONNECTIONS:]
    took, cpu = time.perf_counter() - before, cpu_seconds(server.pid) - cpu
    with_sessions = resident_mib(server.pid)
    server.hold(streams)
    with_streams = resident_mib(server.pid)
    with connect(server.port) as connection:
        for address in addresses:
            ask(connection, address, OPERATIONS["call"])
        server.update(connection)
    return {
        "operations": sessions,
        "seconds": round(took, 3),
        "per_s": round(sessions / took, 1),
        "cpu_us": round(cpu / sessions * 1e6, 1),
        "session_kb": round((with_sessions - memory) * 1024 / sessions, 2),
        "stream_kb": round((with_streams - with_sessions) * 1024 / streams, 2),
        "answering": len(addresses) + len(server.streams),
        "rss_mib": with_streams,
    }
