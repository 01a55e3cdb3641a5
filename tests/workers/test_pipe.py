"""Frames between two workers, some with a connection."""

from __future__ import annotations

import asyncio
import os
import resource
import socket

from ferrule.workers.pipe import CONNECTION, Frame, Pipe


async def test_a_connection_that_arrives_is_not_for_the_children_of_a_worker() -> None:
    here, there = socket.socketpair()
    client, served = socket.socketpair()
    arrived: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
    sending = Pipe(here, lambda pipe, frame: None, lambda pipe: None)
    receiving = Pipe(there, lambda pipe, frame: arrived.set_result(frame), lambda pipe: None)
    sending.send(CONNECTION, 0, b"read before", served)
    frame = await asyncio.wait_for(arrived, 5)
    assert frame.content == b"read before"
    assert frame.connected is not None
    assert not frame.connected.get_inheritable()
    assert served.fileno() == -1, "it has gone"
    for each in (client, frame.connected):
        each.close()
    for pipe in (sending, receiving):
        pipe.close()


async def test_a_connection_that_could_not_arrive_is_never_taken_for_another() -> None:
    """Without a free descriptor the system drops it, and the connection of the next frame would be used instead."""
    here, there = socket.socketpair()
    clients = [socket.socketpair() for _ in range(2)]
    arrived: list[Frame] = []
    lost = asyncio.Event()
    sending = Pipe(here, lambda pipe, frame: None, lambda pipe: None)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    # What was read of the first is so long that it comes in several pieces.
    sending.send(CONNECTION, 0, b"x" * 2**22, clients[0][1])
    sending.send(CONNECTION, 0, b"second", clients[1][1])
    receiving = Pipe(there, lambda pipe, frame: arrived.append(frame), lambda pipe: lost.set())
    lowest_free = os.dup(0)
    os.close(lowest_free)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, usual[1]))
        await asyncio.sleep(0.01)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
    await asyncio.wait_for(lost.wait(), 5)
    assert arrived == []
    for client, served in clients:
        client.close()
        served.close()
    for pipe in (sending, receiving):
        pipe.close()
