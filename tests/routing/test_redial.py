"""Keeping a way open: attempts, waits, notices, and an end."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import struct
from contextlib import suppress
from typing import Any

import pytest
from tcp_desk import Notes, Run, make_app, serving, until

from ferrule.errors import CarrierError, ConnectFailed, NotConnected
from ferrule.routing.redial import TCP_BACKOFF, Redialing, WayNotice
from ferrule.supervision.backoff import Backoff
from ferrule.testing import run_in_virtual_time
from ferrule.transports.tcp.listener import Tcp
from ferrule.transports.tcp.transport import TcpTransport
from ferrule.wire.messages import Notification, Request

SHARP = Backoff(1.0, 1.5, 60.0, jitter=0.0)
QUICK = Backoff(0.01, 1.0, 0.01, jitter=0.0)


def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]


def nowhere(**options: Any) -> tuple[Redialing, list[WayNotice]]:
    notices: list[WayNotice] = []
    transport = TcpTransport(f"tcp://127.0.0.1:{closed_port()}")
    return Redialing(transport, Notes, tell=notices.append, **options), notices


def test_tcpt_13_attempts_come_after_one_second_and_half_as_long_again_each_time() -> None:
    """TCPT-13, TCPT-12, TCPT-19: real attempts at a closed port, refused and tried again, on a clock that jumps."""

    async def test() -> None:
        way, notices = nowhere(backoff=SHARP)
        loop = asyncio.get_running_loop()
        times: list[float] = []
        way._tell = lambda notice: (notices.append(notice), times.append(loop.time()))
        way.start()
        await asyncio.sleep(500)
        await way.close()
        waits = [round(later - earlier, 6) for earlier, later in itertools.pairwise(times)]
        assert waits[:4] == [1.0, 1.5, 2.25, 3.375]
        assert waits[-1] == 60.0
        assert [notice.what for notice in notices] == ["connect_failed"] * len(notices)
        assert [notice.attempts for notice in notices] == list(range(1, len(notices) + 1))
        assert [notice.retry_in for notice in notices][:3] == [1.0, 1.5, 2.25]
        assert all(isinstance(notice.error, ConnectFailed) for notice in notices)

    run_in_virtual_time(test())


def test_tcpt_13_after_a_loss_the_waits_grow_from_one_second_too() -> None:
    """TCPT-13, TCPT-11: the wait for a lost way is the first of them, and an open way starts them anew."""

    class Fleeting:
        """Lets us in at the first and the fifth attempt, and goes at once."""

        attempts = 0
        closed = 0

        async def connect(self, receiver: Any) -> Any:
            self.attempts += 1
            if self.attempts not in (1, 5):
                raise ConnectFailed("nobody is there")
            asyncio.get_running_loop().call_later(0.0, receiver.channel_lost, self, None)
            return self

        async def close(self, grace: float = 2.0) -> None:
            self.closed += 1

    async def test() -> None:
        notices: list[WayNotice] = []
        receivers: list[Notes] = []

        def receiver() -> Notes:
            receivers.append(Notes())
            return receivers[-1]

        transport = Fleeting()
        way = Redialing(transport, receiver, tell=notices.append, backoff=SHARP)
        way.start()
        await asyncio.sleep(20)
        assert transport.closed == 2  # after each loss
        assert [len(each.losses) for each in receivers[:5]] == [1, 0, 0, 0, 1]
        await way.close()
        assert transport.closed == 3
        told = [(notice.what, notice.retry_in) for notice in notices if notice.what != "connected"]
        down = [("lost", 1.0), ("connect_failed", 1.5), ("connect_failed", 2.25), ("connect_failed", 3.375)]
        assert told[:8] == [*down, *down]

    run_in_virtual_time(test())


def test_waits_are_shorter_by_chance_unless_told_otherwise() -> None:
    assert Backoff(1.0, 1.5, 60.0, jitter=0.1) == TCP_BACKOFF
    assert TCP_BACKOFF.delay(1, lambda: 1.0) == 0.9


def test_tcpt_14_at_the_limit_of_attempts_the_way_is_closed() -> None:
    """TCPT-14, TCPT-15."""

    async def test() -> None:
        way, notices = nowhere(backoff=SHARP, max_attempts=3)
        assert way.state == "init"
        with pytest.raises(CarrierError, match=r"gave up: cannot reach tcp://.*refused"):
            await way.connect()
        assert way.state == "closed"
        assert [(notice.what, notice.attempts) for notice in notices] == [
            ("connect_failed", 1),
            ("connect_failed", 2),
            ("gave_up", 3),
        ]
        await way.close()

    run_in_virtual_time(test())


def test_tcpt_16_a_way_that_is_lost_is_opened_again_by_fin_and_by_rst(run: Run) -> None:
    """TCPT-16, TCPT-24, TCPT-19, TCPT-11, TCPT-15: the owner is told, attempts start anew, each has its receiver."""

    async def test() -> None:
        listener = Tcp(port=0)
        notices: list[WayNotice] = []
        receivers: list[Notes] = []

        def receiver() -> Notes:
            receivers.append(Notes())
            return receivers[-1]

        async with serving(make_app(), listener):
            transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            way = Redialing(transport, receiver, tell=notices.append, backoff=QUICK)
            await way.connect()
            assert (way.state, [notice.what for notice in notices]) == ("connected", ["connected"])
            for rude in (False, True):
                notices.clear()
                await until(lambda: listener.occupancy.current == 1)
                (served,) = listener._reception.served
                if rude:
                    linger = struct.pack("ii", 1, 0)
                    served._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    served.abort()
                else:
                    served.close()
                await until(lambda: [notice.what for notice in notices] == ["lost", "connected"])
                assert (way.state, notices[0].error is not None) == ("connected", True)
                way.send(Request(1, "ping", {}))
                await until(lambda: receivers[-1].frames)
            assert len(receivers) == 3
            await way.close()

    run(test())


def test_tcpt_16_a_server_that_comes_back_is_found(run: Run) -> None:
    """TCPT-16, TCPT-12: not there yet, there, away for a while, and back at the same port."""

    async def test() -> None:
        port = closed_port()
        notices: list[WayNotice] = []
        way = Redialing(TcpTransport(f"tcp://127.0.0.1:{port}"), Notes, tell=notices.append, backoff=QUICK)
        way.start()
        for _ in range(2):
            notices.clear()
            await until(lambda: sum(notice.what == "connect_failed" for notice in notices) >= 3)
            assert way.state == "reconnecting"
            async with serving(make_app(), Tcp(port=port)):
                await until(lambda: way.state == "connected")
                assert notices[-1] == WayNotice("connected")
        await way.close()

    run(test())


def test_tcpt_18_sending_without_a_way_fails_at_once() -> None:
    """TCPT-18, TCPT-22: nothing is queued, so nothing is stuck behind a dead socket."""

    async def test() -> None:
        way, _ = nowhere(backoff=SHARP)
        for state in ("init", "reconnecting", "closed"):
            if state == "reconnecting":
                way.start()
                await asyncio.sleep(5)
            elif state == "closed":
                await way.close()
            assert way.state == state
            with pytest.raises(NotConnected, match=f"not connected to the server \\({state}\\): nothing was sent"):
                way.send(Notification("x"))

    run_in_virtual_time(test())


def test_tcpt_23_a_way_can_be_closed_at_any_time(run: Run) -> None:
    """TCPT-23: before it began, while it waits, while it is open, and twice."""

    async def test() -> None:
        before = asyncio.all_tasks()
        unused, _ = nowhere()
        await unused.close()
        waiting, _ = nowhere()
        waiting.start()
        await asyncio.sleep(0.05)
        await waiting.close()
        await waiting.close()
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            way = Redialing(TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}"), Notes)
            await way.connect()
            await way.close()
            assert way.state == "closed"
            with pytest.raises(NotConnected, match="closed"):
                way.send(Notification("notifications/x"))
            await until(lambda: listener.occupancy.current == 0)
        assert asyncio.all_tasks() == before

    run(test())


def test_whoever_waits_for_a_way_that_is_closed_is_told() -> None:
    async def test() -> None:
        way, _ = nowhere(backoff=SHARP)
        connecting = asyncio.ensure_future(way.connect())
        await asyncio.sleep(2)
        await way.close()
        with pytest.raises(CarrierError, match="gave up"):
            await connecting

    run_in_virtual_time(test())


def test_an_owner_that_fails_does_not_stop_the_attempts(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        way, _ = nowhere(backoff=SHARP, max_attempts=4)
        told = []

        def fail(notice: WayNotice) -> None:
            told.append(notice)
            raise RuntimeError("on purpose")

        way._tell = fail
        with pytest.raises(CarrierError):
            await way.connect()
        assert len(told) == 4

    with caplog.at_level(logging.ERROR):
        run_in_virtual_time(test())
    assert "the connection callback failed" in caplog.text


def test_what_no_attempt_can_mend_ends_the_attempts_at_once() -> None:
    async def test() -> None:
        notices: list[WayNotice] = []
        way = Redialing(TcpTransport("tls://localhost:5000", ca="/nowhere.pem"), Notes, tell=notices.append)
        with pytest.raises(CarrierError, match=r"gave up: cannot use the authorities of ca='/nowhere\.pem'"):
            await way.connect()
        assert [notice.what for notice in notices] == ["gave_up"]

    run_in_virtual_time(test())


def test_a_server_that_turns_everyone_away_is_not_asked_without_a_pause() -> None:
    async def test() -> None:
        listener = Tcp(port=0, max_connections=1, idle_timeout=None)
        async with serving(make_app(init_timeout=None, keepalive_interval=None), listener):
            first = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            await first.connect(Notes())
            await until(lambda: listener.occupancy.current == 1)
            notices: list[WayNotice] = []
            way = Redialing(
                TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}"), Notes, tell=notices.append, backoff=SHARP
            )
            way.start()
            await asyncio.sleep(10.5)
            lost = [notice for notice in notices if notice.what == "lost"]
            assert 5 <= len(lost) <= 11
            assert "Too many connections" in str(lost[0].error)
            await way.close()
            await first.close()

    run_in_virtual_time(test())


def test_tcpt_19_a_server_that_takes_nothing_is_left_in_time_and_tried_again(run: Run) -> None:
    """TCPT-19: what timed out is cleaned up, its owner is told, and the next attempt has a connection of its own."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        with socket.create_server(("127.0.0.1", 0)) as deaf:
            deaf.setblocking(False)
            notices: list[WayNotice] = []
            transport = TcpTransport(f"tcp://127.0.0.1:{deaf.getsockname()[1]}", write_timeout=0.3)
            way = Redialing(transport, Notes, tell=notices.append, backoff=QUICK)
            await way.connect()
            first = (await loop.sock_accept(deaf))[0]
            way.send(Notification("much", {"text": "x" * 8_000_000}))
            await until(lambda: notices[-1].what == "lost")
            second = (await loop.sock_accept(deaf))[0]
            await until(lambda: way.state == "connected")
            assert [notice.what for notice in notices] == ["connected", "lost", "connected"]
            assert "does not read" in str(notices[1].error)
            # The first connection is gone: its end, or a reset, is all that is left behind what it took.
            with suppress(ConnectionError):
                while await loop.sock_recv(first, 1 << 20):
                    pass
            await way.close()
            for each in (first, second):
                each.close()

    run(test())
