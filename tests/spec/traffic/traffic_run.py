"""Recording the traffic of one revision: in memory, over a child process, and with peers that say anything."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from functools import cache

import traffic_app
import traffic_drive
import traffic_peers
from traffic_record import Traffic, traffic_of

from ferrule.testing import Recorder
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildProcess


async def in_memory(revision: str) -> Traffic:
    """Do everything in one process; at the end the server ends what still listens."""
    app = traffic_app.make_app()
    recorder = Recorder(Memory(app))
    async with traffic_drive.opened(recorder, revision) as stage:
        await traffic_drive.exercise(stage)
        await app.drain(1.0)
    return traffic_of(revision, recorder.messages)


async def over_stdio(revision: str) -> Traffic:
    """Do everything with a server in a process of its own."""
    child = ChildProcess([sys.executable, traffic_app.__file__], stderr="capture")
    recorder = Recorder(child)
    async with traffic_drive.opened(recorder, revision) as stage:
        await traffic_drive.exercise(stage)
    return traffic_of(revision, recorder.messages)


WITH_GOOD_PEERS = (in_memory,)
WITH_BAD_PEERS = (traffic_peers.ask_server_badly, traffic_peers.crowd_server, traffic_peers.ask_client_badly)


def recorded(scene: Callable[[str], Awaitable[Traffic]], revision: str) -> Traffic:
    """Play a scene; what it logs is of no interest here."""
    logging.disable(logging.ERROR)
    try:
        return asyncio.run(scene(revision))
    finally:
        logging.disable(logging.NOTSET)


@cache
def local_traffic(revision: str) -> Traffic:
    """Return all that is said within this process, played once."""
    traffic = Traffic(revision, [], [])
    for scene in (*WITH_GOOD_PEERS, *WITH_BAD_PEERS):
        traffic.add(recorded(scene, revision))
    return traffic


@cache
def stdio_traffic(revision: str) -> Traffic:
    """Return all that is said to and by a child process, played once."""
    return recorded(over_stdio, revision)
