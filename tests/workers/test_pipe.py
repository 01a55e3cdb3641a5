"""Frames between two workers, some with a connection."""

from __future__ import annotations

import asyncio
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
