"""Idle connections over TCP: what each keeps in memory, and whether all of them still answer."""

from __future__ import annotations

import json
import socket
import time
from contextlib import ExitStack

from bench.contestants import Contestant
from bench.machine import cpu_seconds, resident_mib
from bench.messages import OPERATIONS, Era, opened, opening, request
from bench.pipeline import Load
from bench.process import HOST, SILENCE_LIMIT, BadAnswer, time_limit
from bench.sockets.servers import TcpServer

CONNECTIONS = 9_999
"""With the one that warms up, as many as all listeners of a process take together."""

LIMIT = 300.0


def measure_idle(contestant: Contestant, warm_up: float) -> dict:
    """Open connections to a fresh server, each with its handshake, leave them idle, then let every one answer."""
    server = TcpServer(contestant, Era.HANDSHAKE)
    try:
        Load(server, OPERATIONS["call"], 64).run(0.0, warm_up)
        with time_limit(LIMIT), ExitStack() as held:
            return _measured(server, held)
    finally:
        server.close()


def _measured(server: TcpServer, held: ExitStack) -> dict:
    memory, cpu, before = resident_mib(server.pid), cpu_seconds(server.pid), time.perf_counter()
    peers = [held.enter_context(_greeted(server.port)) for _ in range(CONNECTIONS)]
    took, cpu = time.perf_counter() - before, cpu_seconds(server.pid) - cpu
    after = resident_mib(server.pid)
    answering = sum(_answers(peer) for peer in peers)
    return {
        "operations": CONNECTIONS,
        "seconds": round(took, 3),
        "per_s": round(CONNECTIONS / took, 1),
        "cpu_us": round(cpu / CONNECTIONS * 1e6, 1),
        "connection_kb": round((after - memory) * 1024 / CONNECTIONS, 2),
        "answering": answering,
        "rss_mib": after,
    }


def _greeted(port: int) -> socket.socket:
    peer = socket.create_connection((HOST, port), SILENCE_LIMIT)
    peer.sendall(opening(Era.HANDSHAKE))
    if "result" not in json.loads(_line(peer)):
        raise BadAnswer("the opening was refused")
    peer.sendall(opened(Era.HANDSHAKE))
    return peer


def _answers(peer: socket.socket) -> bool:
    operation = OPERATIONS["call"]
    peer.sendall(request(operation.method, operation.params, Era.HANDSHAKE, 2))
    while True:
        message = json.loads(_line(peer))
        if message.get("method") != "ping":
            return operation.accepts(message["result"])


def _line(peer: socket.socket) -> bytes:
    """Read one line; a server that pings may send two at once, and the next waits in the socket."""
    data = b""
    while not data.endswith(b"\n"):
        part = peer.recv(1)
        if not part:
            raise BadAnswer("a connection ended")
        data += part
    return data
