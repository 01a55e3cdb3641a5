"""What is set on the sockets of both sides."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest
from tcp_desk import Notes, Peer, Run, make_app, serving, until

from ferrule.transports.sockets.bind import hung_up, prepare
from ferrule.transports.tcp.listener import Tcp, Unix
from ferrule.transports.tcp.settings import TcpOptions
from ferrule.transports.tcp.transport import TcpTransport


def settings_of(sock: socket.socket) -> dict[str, int]:
    tcp = socket.IPPROTO_TCP
    return {
        "nodelay": sock.getsockopt(tcp, socket.TCP_NODELAY),
        "keepalive": sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE),
        "receive": sock.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF),
        "send": sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF),
        "cut_within": sock.getsockopt(tcp, socket.TCP_KEEPIDLE)
        + sock.getsockopt(tcp, socket.TCP_KEEPINTVL) * sock.getsockopt(tcp, socket.TCP_KEEPCNT),
        "unacknowledged": sock.getsockopt(tcp, socket.TCP_USER_TIMEOUT),
    }


# Linux doubles the buffer sizes it is told.
WANTED = {"nodelay": 1, "keepalive": 1, "receive": 131072, "send": 131072, "cut_within": 50, "unacknowledged": 60_000}


def test_tcpt_07_both_sides_have_the_socket_options_that_are_promised(run: Run) -> None:
    """TCPT-07, TCPT-04, PERF-16; TCP-03: a peer that the network swallowed is cut within a minute."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            transport = TcpTransport(f"tcp://127.0.0.1:{listener.address[1]}")
            channel = await transport.connect(Notes())
            await until(lambda: listener.occupancy.current == 1)
            (served,) = listener._reception.served
            for each in (channel, served):
                assert settings_of(each._transport.get_extra_info("socket")) == WANTED
            assert listener._accepting[0]._listening.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR) == 1
            await transport.close()

    run(test())


def test_options_that_are_off_are_off() -> None:
    with socket.socket() as sock:
        before = settings_of(sock)
        prepare(sock, TcpOptions(nodelay=False, keepalive=False, buffer_size=None))
        assert settings_of(sock) == before
        assert (before["nodelay"], before["keepalive"]) == (0, 0)


def test_a_unix_socket_has_its_buffers_and_no_network(run: Run, tmp_path: Path) -> None:
    async def test() -> None:
        listener = Unix(path=str(tmp_path / "s"))
        async with serving(make_app(), listener):
            transport = TcpTransport(f"unix:{tmp_path / 's'}")
            channel = await transport.connect(Notes())
            sock = channel._transport.get_extra_info("socket")
            assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 131072
            await transport.close()

    run(test())


def test_small_answers_leave_at_once(run: Run) -> None:
    """With Nagle's algorithm and delayed acknowledgements each of these would take 40 ms."""

    async def test() -> None:
        listener = Tcp(port=0)
        async with serving(make_app(), listener):
            peer = await (await Peer.reach(listener)).open()
            waits = []
            for number in range(2, 52):
                began = time.perf_counter()
                await peer.ask({"jsonrpc": "2.0", "id": number, "method": "ping"})
                waits.append(time.perf_counter() - began)
            # One in five that does not wait is enough: the others may wait for a busy machine.
            assert sorted(waits)[10] < 0.035
            await peer.close()

    run(test())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the two apart")
def test_a_peer_that_is_gone_is_told_from_one_that_only_says_nothing_more() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        assert not hung_up(ours)
        theirs.shutdown(socket.SHUT_WR)
        assert not hung_up(ours)
        theirs.close()
        assert hung_up(ours)
    assert not hung_up(ours)
