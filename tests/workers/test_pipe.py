"""Frames between two workers, some with a connection."""

from __future__ import annotations

import asyncio
import os
import resource
import socket

import pytest

from ferrule.workers.pipe import CONNECTION, NOTICE, Frame, Pipe


async def test_a_connection_that_arrives_is_not_for_the_children_of_a_worker() -> None:
    here, there = socket.socketpair()
    client, served = socket.socketpair()
    arrived: asyncio.Future[Frame] = asyncio.get_running_loop().create_future()
    sending = Pipe(here, lambda pipe, frame: None, lambda pipe: None)
    receiving = Pipe(there, lambda pipe, frame: arrived.set_result(frame), lambda pipe: None)
    descriptor = served.detach()
    sending.send(CONNECTION, 0, b"read before", descriptor)
    with pytest.raises(OSError, match="Bad file descriptor"):  # it has gone
        os.fstat(descriptor)
    frame = await asyncio.wait_for(arrived, 5)
    assert frame.content == b"read before"
    assert frame.connected is not None
    assert not frame.connected.get_inheritable()
    for each in (client, frame.connected):
        each.close()
    for pipe in (sending, receiving):
        pipe.close()


async def test_frames_that_had_to_wait_arrive_in_order_each_with_its_connection() -> None:
    here, there = socket.socketpair()
    pairs = [socket.socketpair() for _ in range(3)]
    sending = Pipe(here, lambda pipe, frame: None, lambda pipe: None)
    for number, (_, served) in enumerate(pairs):
        sending.send(CONNECTION, number, b"x" * 2**20, served.detach())
        sending.send(NOTICE, number, b"y" * 10)
    assert sending.backlog > 2 * 2**20
    arrived: list[Frame] = []
    receiving = Pipe(there, lambda pipe, frame: arrived.append(frame), lambda pipe: None)
    async with asyncio.timeout(5):
        await sending.wait_sent()
        while len(arrived) < 6:
            await asyncio.sleep(0.001)
    assert sending.backlog == 0
    assert [(each.kind, each.exchange, len(each.content)) for each in arrived] == [
        (kind, number, size) for number in range(3) for kind, size in ((CONNECTION, 2**20), (NOTICE, 10))
    ]
    for frame, (client, _) in zip(arrived[::2], pairs, strict=True):
        assert frame.connected is not None
        with client, frame.connected:
            client.send(b"%d" % frame.exchange)
            assert frame.connected.recv(10) == b"%d" % frame.exchange
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
    sending.send(CONNECTION, 0, b"x" * 2**22, clients[0][1].detach())
    sending.send(CONNECTION, 0, b"second", clients[1][1].detach())
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
    for client, _ in clients:
        client.close()
    for pipe in (sending, receiving):
        pipe.close()
