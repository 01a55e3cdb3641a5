"""Fan-out: one update of a resource, told to a thousand open streams.

The streams stay open from the first window to the last. What is measured is the server's CPU from the call that makes
the update to the moment the last stream has heard of it; every event is decoded and judged afterwards.
"""

from __future__ import annotations

import json
import select
import socket
import time

from bench.contestants import Contestant
from bench.figures import Window, percentiles
from bench.machine import cpu_seconds, resident_mib
from bench.messages import BUMP, FIRST_ID, STATIC_URI, request
from bench.process import FEWEST_ANSWERS, SILENCE_LIMIT, BadAnswer, time_limit
from bench.streamable.server import HttpServer, ask, result_of
from bench.streamable.wire import READ_SIZE, Address, Mode, connect, events, parse_head, receive

STREAMS = 1000
UPDATED = "notifications/resources/updated"
MARK = UPDATED.encode()
LISTEN = "subscriptions/listen"
EVENT_ENDS = (b"\n\n", b"\n\n\r\n", b"\n\r\n", b"\n\r\n\r\n")
"""How what has arrived may end when an event is whole, with or without the end of its chunk."""

_now = time.perf_counter_ns


class Stream:
    """One open stream and what has come on it since it was last looked at."""

    __slots__ = ("address", "number", "received", "socket")

    def __init__(self, address: Address, number: int) -> None:
        self.address = address
        self.number = number
        self.received = b""
        self.socket = connect(address.port)

    def open(self) -> None:
        """Ask for the stream and wait until the server keeps it."""
        stateless = not self.address.session
        self.socket.sendall(self._listening() if stateless else self.address.get())
        while not self._kept(b"notifications/subscriptions/acknowledged" if stateless else b""):
            self._read()
        self.received = b""
        self.socket.setblocking(False)

    def _kept(self, promise: bytes) -> bool:
        head = parse_head(self.received)
        if head is not None and head[0] != 200:
            raise BadAnswer(f"no stream: {self.received[:300]!r}")
        return head is not None and promise in self.received

    def _listening(self) -> bytes:
        wanted = {"notifications": {"resourceSubscriptions": [STATIC_URI]}}
        return self.address.post(request(LISTEN, wanted, self.address.era, self.number), LISTEN)

    def hear(self) -> bool:
        """Read what has come; tells whether an update is in it."""
        self._read()
        return MARK in self.received and self.received.endswith(EVENT_ENDS)

    def _read(self) -> None:
        piece = self.socket.recv(READ_SIZE)
        if not piece:
            raise BadAnswer(f"a stream ended after {self.received[-200:]!r}")
        self.received += piece

    def take(self) -> list[dict]:
        """Return the messages that have come."""
        received, self.received = self.received, b""
        return [json.loads(data) for data in events(received)]


class StreamingServer(HttpServer):
    """A server that keeps streams open, each of which hears of every update."""

    def __init__(self, contestant: Contestant, mode: Mode, streams: int = STREAMS) -> None:
        self.streams: dict[int, Stream] = {}
        self._poll = select.epoll()
        super().__init__(contestant, mode)
        try:
            with time_limit(SILENCE_LIMIT):
                self.hold(streams)
        except BaseException:
            self.close()
            raise

    def hold(self, streams: int) -> None:
        """Open streams that hear of the resource's updates."""
        with connect(self.port) as connection:
            for number, address in enumerate(self.sessions(streams), FIRST_ID):
                if address.session:
                    ask(connection, address, self.joining)
                stream = Stream(address, number)
                self.streams[stream.socket.fileno()] = stream
                stream.open()
                self._poll.register(stream.socket, select.EPOLLIN)

    def update(self, caller: socket.socket) -> tuple[int, float]:
        """Make one update; gives the ns until all have heard of it, and the CPU seconds it took the server."""
        waiting, bump = set(self.streams), self.sessions(1)[0].once(BUMP)
        cpu_before, before = cpu_seconds(self.pid), _now()
        caller.sendall(bump)
        while waiting:
            heard = [descriptor for descriptor, _ in self._poll.poll() if self.streams[descriptor].hear()]
            waiting.difference_update(heard)
        took = _now() - before
        if not BUMP.accepts(result_of(receive(caller), FIRST_ID)):
            raise BadAnswer("the call that updates the resource failed")
        cpu = cpu_seconds(self.pid) - cpu_before
        self._judge()
        return took, cpu

    def _judge(self) -> None:
        """See that every stream was told exactly once, and nothing else."""
        for stream in self.streams.values():
            told = stream.take()
            if [(message["method"], message["params"]["uri"]) for message in told] != [(UPDATED, STATIC_URI)]:
                raise BadAnswer(f"a stream was told {told!r:.300}")

    def close(self) -> None:
        """Close the streams and end the process."""
        for stream in self.streams.values():
            stream.socket.close()
        self._poll.close()
        super().close()


class FanOut:
    """Updates one after the other, each told to every stream."""

    def __init__(self, server: StreamingServer) -> None:
        self._server = server

    def run(self, seconds: float, warm_up: float) -> Window:
        """Warm up and measure a window; CPU and rate are of one delivery, percentiles of one whole update."""
        server = self._server
        with time_limit(warm_up + seconds + SILENCE_LIMIT), connect(server.port) as caller:
            self._updates(caller, warm_up, 1)
            updates = self._updates(caller, seconds, FEWEST_ANSWERS)
        took = sorted(time_taken for time_taken, _ in updates)
        deliveries = len(updates) * len(server.streams)
        return Window(
            operations=deliveries,
            seconds=sum(took) / 1e9,
            cpu_us=sum(cpu for _, cpu in updates) / deliveries * 1e6,
            **percentiles([nanoseconds / 1e3 for nanoseconds in took]),
            rss_mib=resident_mib(server.pid),
        )

    def _updates(self, caller: socket.socket, seconds: float, at_least: int) -> list[tuple[int, float]]:
        end = _now() + int(seconds * 1e9)
        done: list[tuple[int, float]] = []
        while _now() < end or len(done) < at_least:
            done.append(self._server.update(caller))
        return done
