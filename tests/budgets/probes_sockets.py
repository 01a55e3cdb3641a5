"""Probes of servers and clients over TCP, TLS and Unix sockets, and of a pool of connections."""

from __future__ import annotations

import asyncio
import json
import select
import socket
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any
from unittest import mock

from lasting import lasts_longer, tls
from table import no_bound, period, probe

from ferrule import Server
from ferrule.errors import CarrierError
from ferrule.identity.verifier import ALLOW_ALL, ANONYMOUS, RequestFacts, Verdict, Verifier
from ferrule.routing.pool import Pool, PoolSettings
from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.settings import EngineSettings
from ferrule.transports.sockets import accept
from ferrule.transports.sockets.admission import process_admission
from ferrule.transports.sockets.bind import listen
from ferrule.transports.stream import LOOKS_AT_WRITING
from ferrule.transports.tcp.connections import LOOKS_PER_TIMEOUT, ServedChannel
from ferrule.transports.tcp.listener import SocketListener, Tcp, Unix
from ferrule.transports.tcp.settings import TcpSettings
from ferrule.transports.tcp.transport import TcpTransport

INTRODUCTION = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
LONG = 2_000_000
"""Bytes that the buffers of a connection to a peer that does not read cannot hold."""


def written(method: str, params: Any = None, identity: int = 1) -> bytes:
    message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


@asynccontextmanager
async def serving(*listeners: SocketListener, verifier: Verifier = ALLOW_ALL) -> AsyncIterator[None]:
    """Serve while the block runs."""
    app = Server("s", keepalive_interval=None, auth=verifier)

    @app.tool
    async def long() -> str:
        return "x" * LONG

    await app.enter()
    serves = []
    for listener in listeners:
        ready = asyncio.Event()
        serves.append(asyncio.ensure_future(listener.serve(app.host, ready.set)))
        await ready.wait()
    try:
        yield
    finally:
        for listener in listeners:
            await listener.close(0.0)
        await asyncio.gather(*serves)
        await app.leave()


async def turns(condition: Callable[[], object]) -> None:
    """Let the loop turn until something is true, with no time that passes on a virtual clock."""
    while not condition():
        await asyncio.sleep(0)


async def reach(listener: Tcp) -> socket.socket:
    """Connect as a peer that the system takes little in for."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, listener.address)
    return peer


def served_by(listener: SocketListener) -> list[ServedChannel]:
    reception = listener._reception
    assert reception is not None
    return list(reception.served)


async def served(listener: Tcp) -> tuple[socket.socket, ServedChannel]:
    """Connect; returns the peer's end and ours."""
    peer = await reach(listener)
    await turns(lambda: served_by(listener))
    return peer, served_by(listener)[0]


# -- how many connections


@probe("TcpSettings(max_connections=…)", lowered=5)
async def connections(limit: int, size: int) -> bool:
    listener = Tcp(port=0, max_connections=limit)
    async with serving(listener):
        return await all_come_in([listener], size)


async def all_come_in(listeners: list[Any], count: int) -> bool:
    """Let so many peers connect, to one listener after another; the first that is turned away ends it."""
    peers = []
    for number in range(count):
        listener = listeners[number % len(listeners)]
        if isinstance(listener, Tcp):
            peers.append(await reach(listener))
        else:
            peer = socket.socket(socket.AF_UNIX)
            peer.connect(listener.url.removeprefix("unix:"))
            peers.append(peer)
        await turns(lambda: sum(known(each) for each in listeners) == len(peers))
        if any(each.occupancy.refused for each in listeners):
            break
    for peer in peers:
        peer.close()
    await turns(lambda: not any(each.occupancy.current for each in listeners))
    return not any(each.occupancy.refused for each in listeners)


def known(listener: SocketListener) -> int:
    """Return how many peers have been served or turned away."""
    return len(served_by(listener)) + listener.occupancy.refused


@probe("ferrule.transports.sockets.admission.MAX_PROCESS_CONNECTIONS", lowered=5)
async def connections_of_the_process(limit: int, size: int) -> bool:
    before = process_admission.limit
    process_admission.limit = limit
    try:
        with tempfile.TemporaryDirectory() as folder:
            listeners = [Tcp(port=0), Unix(f"{folder}/s")]
            async with serving(*listeners):
                return await all_come_in(listeners, size)
    finally:
        process_admission.limit = before


@probe("TcpSettings(backlog=…)", lowered=5)
async def connections_in_line(limit: int, size: int) -> bool:
    """Nobody accepts; the system lets one more come in than it is asked to hold."""
    [listening] = await listen(TcpSettings(port=0, backlog=limit))
    peers: list[socket.socket] = []
    try:
        for _ in range(size + 1):
            peer = socket.socket()
            peers.append(peer)
            peer.setblocking(False)
            peer.connect_ex(listening.getsockname())
            if not select.select([], [peer], [], 0.05)[1]:
                return False
        return True
    finally:
        for each in (*peers, listening):
            each.close()


@probe("ferrule.transports.sockets.accept.MAX_FAREWELLS", lowered=5, clamps=True)
async def farewells(limit: int, size: int) -> bool:
    with mock.patch.object(accept, "MAX_FAREWELLS", limit):
        closes = accept.LingeringCloses(asyncio.get_running_loop())
        theirs = []
        for _ in range(min(size, 2 * limit)):
            ours, peer = socket.socketpair()
            theirs.append(peer)
            closes.turn_away(ours, b"no\n")
        try:
            theirs[0].send(b"what?")
        except BrokenPipeError:
            return False
        finally:
            closes.end()
            for peer in theirs:
                peer.close()
    return True


# -- how much


@probe("TcpSettings(max_message_size=…)", lowered=2000)
async def a_long_message(limit: int, size: int) -> bool:
    listener = Tcp(port=0, max_message_size=limit)
    async with serving(listener):
        reader, writer = await asyncio.open_connection(*listener.address)
        message = written("ping", {"x": ""})
        writer.write(message.replace(b'""', b'"%b"' % (b"x" * (size + 1 - len(message)))))
        answer = await reader.readline()
        writer.close()
    return b'"result"' in answer


@probe("TcpSettings(buffer_size=…)", lowered=65_536)
async def what_the_system_holds(limit: int, size: int) -> bool:
    """The system says twice of what it was told to hold, and counts its own needs in that."""
    listener = Tcp(port=0, buffer_size=limit)
    async with serving(listener):
        peer, channel = await served(listener)
        ours = channel._transport.get_extra_info("socket")
        held = [ours.getsockopt(socket.SOL_SOCKET, each) // 2 for each in (socket.SO_RCVBUF, socket.SO_SNDBUF)]
        peer.close()
    return all(size <= each for each in held)


# -- how long


@period("TcpSettings(idle_timeout=…)", lowered=300.0)
async def an_idle_peer(lasts: float, seconds: float) -> bool:
    """Connections are looked after ten times in that time: so a peer may stay a tenth longer."""
    late = 0.0 if seconds < lasts else lasts / LOOKS_PER_TIMEOUT
    listener = Tcp(port=0, idle_timeout=lasts)
    async with serving(listener):
        peer, channel = await served(listener)
        peer.send(written("initialize", INTRODUCTION))
        await turns(lambda: channel.messages_in)
        still = await lasts_longer(channel.wait_lost(), seconds + late)
        peer.close()
    return still


async def reads_nothing(listener: Tcp) -> tuple[socket.socket, ServedChannel]:
    """Connect as a peer that asks for a long answer and takes nothing of it."""
    peer, channel = await served(listener)
    peer.send(written("initialize", INTRODUCTION) + written("tools/call", {"name": "long"}, 2))
    await turns(lambda: channel.backlog)
    return peer, channel


@period("TcpSettings(write_timeout=…)", lowered=10.0)
async def a_peer_that_does_not_read(lasts: float, seconds: float) -> bool:
    """What a peer takes is looked at four times in that time: so it may take a quarter longer."""
    late = 0.0 if seconds < lasts else lasts / LOOKS_AT_WRITING
    listener = Tcp(port=0, write_timeout=lasts)
    async with serving(listener):
        peer, channel = await reads_nothing(listener)
        still = await lasts_longer(channel.wait_lost(), seconds + late)
        peer.close()
    return still


@period("ferrule.transports.tcp.connections.LAST_WORDS_TIME")
async def last_words(lasts: float, seconds: float) -> bool:
    late = 0.0 if seconds < lasts else lasts / LOOKS_AT_WRITING
    listener = Tcp(port=0, write_timeout=100 * lasts)
    async with serving(listener):
        peer, channel = await reads_nothing(listener)
        channel.close()
        still = await lasts_longer(channel.wait_lost(), seconds + late)
        peer.close()
    return still


@period("ferrule.transports.shutdown.LAST_GRACE")
async def the_last_answers(lasts: float, seconds: float) -> bool:
    listener = Tcp(port=0)
    async with serving(listener):
        peer, _ = await reads_nothing(listener)
        closing = asyncio.ensure_future(listener.close(0.0))
        await asyncio.sleep(seconds)
        still = not closing.done()
        peer.close()
        await closing
    return still


@asynccontextmanager
async def serving_tls(**options: Any) -> AsyncIterator[tuple[Tcp, ssl.SSLContext]]:
    with tls() as (files, context):
        listener = Tcp(port=0, **files, **options)
    async with serving(listener):
        yield listener, context


@period("TcpSettings(handshake_timeout=…)", lowered=10.0)
async def a_silent_start_of_tls(lasts: float, seconds: float) -> bool:
    async with serving_tls(handshake_timeout=lasts) as (listener, _):
        peer = await reach(listener)
        await turns(lambda: listener.occupancy.current)
        still = await lasts_longer(asyncio.get_running_loop().sock_recv(peer, 1), seconds)
        peer.close()
    return still


async def shake_hands(peer: socket.socket, context: ssl.SSLContext) -> None:
    """Begin TLS by hand: nothing reads for this peer afterwards."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    hands = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
    done = False
    while not done:
        with suppress(ssl.SSLWantReadError):
            hands.do_handshake()
            done = True
        await loop.sock_sendall(peer, outgoing.read())
        if not done:
            incoming.write(await loop.sock_recv(peer, 65_536))


@period("ferrule.transports.tcp.connections.TLS_SHUTDOWN_TIME")
async def a_silent_end_of_tls(lasts: float, seconds: float) -> bool:
    async with serving_tls() as (listener, context):
        peer = await reach(listener)
        await shake_hands(peer, context)
        await turns(lambda: served_by(listener))
        channel = served_by(listener)[0]
        channel.close()
        still = await lasts_longer(channel.wait_lost(), seconds)
        peer.close()
    return still


@period("ferrule.transports.http.engine.engine.TLS_SHUTDOWN_TIME")
async def a_silent_end_of_https(lasts: float, seconds: float) -> bool:
    with tls() as (files, context):
        engine = Engine(mock.Mock(), EngineSettings(port=0, **files))
    await engine.start()
    peer = await reach(engine)
    await shake_hands(peer, context)
    await turns(lambda: engine._engine_state.connections)
    [connection] = engine._engine_state.connections
    connection._transport.close()
    still = await lasts_longer(until_the_end(peer), seconds)
    peer.close()
    await engine.close()
    return still


async def until_the_end(peer: socket.socket) -> None:
    """Read until the connection is closed."""
    while await asyncio.get_running_loop().sock_recv(peer, 4096):
        pass


@period("TcpOptions(connect_timeout=…)", lowered=5.0)
async def reaching(lasts: float, seconds: float) -> bool:
    """A server that lets us connect, and never answers in TLS."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        transport = TcpTransport(f"tls://127.0.0.1:{silent.getsockname()[1]}", connect_timeout=lasts)
        return await lasts_longer(transport.connect(mock.Mock()), seconds)


# -- a token before anything else


class Tokens(Verifier):
    """Lets everybody in who shows a token."""

    takes_token = True

    def verify(self, facts: RequestFacts) -> Verdict:
        return ANONYMOUS


def shown(size: int, framing: str) -> bytes:
    """Write the message that shows a token, in so many bytes with all that frames it."""
    head = b'{"jsonrpc":"2.0","method":"ferrule/authenticate","params":{"token":"'
    tail = b'"}}'
    if framing == "line":
        return head.ljust(size - len(tail) - 1, b"x") + tail + b"\n"
    begin = b"Content-Length: %d\r\n\r\n"
    length = size - len(begin % size)
    length += size - len(begin % length) - length
    return begin % length + head.ljust(length - len(tail), b"x") + tail


async def lets_in(listener: Tcp, *parts: bytes) -> bool:
    """Return whether a peer comes in that sends these parts one after another."""
    peer = await reach(listener)
    loop = asyncio.get_running_loop()
    told = asyncio.ensure_future(loop.sock_recv(peer, 1))
    for part in parts:
        with suppress(ConnectionError):
            await loop.sock_sendall(peer, part)
        await asyncio.sleep(0.01)
    await turns(lambda: served_by(listener) or told.done())
    come = bool(served_by(listener))
    told.cancel()
    await asyncio.gather(told, return_exceptions=True)
    peer.close()
    await turns(lambda: not served_by(listener))
    return come


@probe("ferrule.transports.tcp.connections.LONGEST_TOKEN_FRAME")
async def a_long_token(limit: int, size: int) -> bool:
    """As a line and behind a header, at once and in two parts."""
    taken = set()
    for framing in ("line", "content-length"):
        listener = Tcp(port=0, framing=framing)  # type: ignore[arg-type]
        message = shown(size, framing)
        assert len(message) == size
        async with serving(listener, verifier=Tokens()):
            taken.add(await lets_in(listener, message))
            taken.add(await lets_in(listener, message[:-1], message[-1:]))
    assert len(taken) == 1
    return taken.pop()


@period("ferrule.transports.tcp.connections.TOKEN_TIME")
async def no_token(lasts: float, seconds: float) -> bool:
    listener = Tcp(port=0)
    async with serving(listener, verifier=Tokens()):
        peer = await reach(listener)
        await turns(lambda: listener.occupancy.current)
        still = await lasts_longer(asyncio.get_running_loop().sock_recv(peer, 1), seconds)
        peer.close()
    return still


@period("ferrule.transports.sockets.accept.FAREWELL_TIME")
async def a_peer_that_was_turned_away(lasts: float, seconds: float) -> bool:
    listener = Tcp(port=0, max_connections=1)
    async with serving(listener):
        peer, _ = await served(listener)
        other = await reach(listener)
        await turns(lambda: listener.occupancy.refused)
        await asyncio.sleep(seconds)
        other.setblocking(True)
        try:
            while other.recv(1000):
                pass
            other.send(b"what?")
            other.send(b"what?")
            still = True
        except ConnectionError:
            still = False
        other.close()
        peer.close()
    return still


# -- what the system watches: it is asked what it was told of a real connection


async def told_the_system(option: int) -> int:
    listener = Tcp(port=0)
    async with serving(listener):
        peer, channel = await served(listener)
        told: int = channel._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, option)
        peer.close()
    return told


@period("ferrule.transports.sockets.bind.KEEPALIVE_IDLE")
async def a_silent_connection(lasts: float, seconds: float) -> bool:
    return seconds < await told_the_system(socket.TCP_KEEPIDLE)


@period("ferrule.transports.sockets.bind.KEEPALIVE_INTERVAL")
async def a_silent_connection_asked_again(lasts: float, seconds: float) -> bool:
    return seconds < await told_the_system(socket.TCP_KEEPINTVL)


@probe("ferrule.transports.sockets.bind.KEEPALIVE_PROBES")
async def questions_to_a_silent_connection(limit: int, size: int) -> bool:
    return size <= await told_the_system(socket.TCP_KEEPCNT)


@period("ferrule.transports.sockets.bind.UNACKNOWLEDGED_MS")
async def what_is_not_acknowledged(lasts: float, milliseconds: float) -> bool:
    return milliseconds < await told_the_system(socket.TCP_USER_TIMEOUT)


# -- a pool


class Connections:
    """What a pool opens, checks and closes."""

    def __init__(self) -> None:
        self.works = True
        self.closed = asyncio.Event()

    async def open(self) -> object:
        return object()

    async def close(self, connection: object) -> None:
        self.closed.set()

    async def healthy(self, connection: object) -> bool:
        return self.works

    def pool(self, **settings: Any) -> Pool[object]:
        return Pool(self.open, self.close, self.healthy, PoolSettings(**{"min_size": 0, **settings}))


async def users(of: Pool[object], count: int) -> bool:
    """Let so many use connections of a pool at once; the first that gets none ends it."""
    entered = []
    try:
        for _ in range(count):
            using = of.connection()
            await using.__aenter__()
            entered.append(using)
    except CarrierError:
        return False
    finally:
        for using in entered:
            await using.__aexit__(None, None, None)
        await of.close()
    return True


@probe("PoolSettings(max_size=…)", lowered=5)
async def connections_of_a_pool(limit: int, size: int) -> bool:
    return await users(Connections().pool(max_size=limit, checkout_timeout=0.01), size)


@probe("PoolSettings(max_load=…)", lowered=5)
async def users_of_a_connection(limit: int, size: int) -> bool:
    return await users(Connections().pool(max_size=1, max_load=limit, checkout_timeout=0.01), size)


@probe("PoolSettings(min_size=…)", lowered=2, clamps=True)
async def connections_kept(limit: int, size: int) -> bool:
    """So many connections that nobody uses any more: those over the least number go."""
    made = Connections().pool(max_size=100_000, idle_time=0.001)
    await made.start()
    await made.resize(size, 100_000)
    await made.resize(limit, 100_000)
    await asyncio.sleep(0.002)
    await made.tend()
    kept = made.state.size
    await made.close()
    return kept == max(size, limit)


@period("PoolSettings(checkout_timeout=…)", lowered=5.0)
async def a_user_that_waits(lasts: float, seconds: float) -> bool:
    made = Connections().pool(max_size=1, checkout_timeout=lasts)
    async with made.connection():
        still = await lasts_longer(made.connection().__aenter__(), seconds)
    await made.close()
    return still


async def is_kept(connections: Connections, seconds: float, **settings: float) -> bool:
    """Return whether a connection that was used once is still there after so many seconds."""
    made = connections.pool(**settings)
    await made.start()
    async with made.connection():
        pass
    still = await lasts_longer(connections.closed.wait(), seconds)
    await made.close()
    return still


@period("PoolSettings(idle_time=…)", lowered=60.0)
async def an_unused_connection(lasts: float, seconds: float) -> bool:
    return await is_kept(Connections(), seconds, idle_time=lasts)


@period("PoolSettings(health_interval=…)", lowered=5.0)
async def a_lost_connection(lasts: float, seconds: float) -> bool:
    connections = Connections()
    connections.works = False
    return await is_kept(connections, seconds, health_interval=lasts)


no_bound("TcpSettings(port=…)", "the port that is listened on")
no_bound("UnixSettings(mode=…)", "the permissions of a file: who may connect, not how much or for how long")
