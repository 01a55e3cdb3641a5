"""Load over HTTP: keep-alive connections, each with a session of its own and one request in flight, on epoll.

Every answer is checked, its id and its whole result. An answer that repeats the bytes of the one before it on its
connection, around the id now asked for, is right; any other is taken apart and judged.
"""

from __future__ import annotations

import contextlib
import json
import select
import time

from bench.figures import Window, percentiles
from bench.machine import family_cpu_seconds, resident_mib
from bench.messages import FIRST_ID, Operation
from bench.process import FEWEST_ANSWERS, SILENCE_LIMIT, BadAnswer, time_limit
from bench.streamable.server import HttpServer, result_of
from bench.streamable.wire import READ_SIZE, Address, connect, whole_response

ID_LENGTH = len(str(FIRST_ID))

_now = time.perf_counter_ns


class Connection:
    """One keep-alive connection and the request it waits for."""

    __slots__ = ("after", "answered", "before", "identity", "received", "sent", "socket", "tail")

    def __init__(self, address: Address, operation: Operation, source: str = "") -> None:
        self.before, self.after = address.around_id(operation)
        self.answered, self.tail = b"\0", b"\0"
        self.identity = self.received = b""
        self.sent = 0
        self.socket = connect(address.port, source)
        self.socket.setblocking(False)

    def ask(self, identity: bytes) -> None:
        """Send the next request; it always fits the empty buffer of the socket."""
        self.identity = identity
        self.sent = _now()
        self.socket.send(self.before + identity + self.after)

    def repeated(self, data: bytes) -> bool:
        """Return whether this is the last answer again, around the id now asked for."""
        skip = len(self.answered)
        end = skip + ID_LENGTH
        return data[skip:end] == self.identity and data.startswith(self.answered) and data[end:] == self.tail

    def learn(self, data: bytes) -> None:
        """Remember how a right answer reads."""
        before, found, after = data.partition(self.identity)
        if found:
            self.answered, self.tail = before, after


class HttpLoad:
    """One operation asked again and again of one server, over so many connections."""

    awake = False
    """Whether to look for answers all the time: no answer of a slow server pays for waking us up then."""

    def __init__(self, server: HttpServer, operation: Operation, connections: int) -> None:
        self._server = server
        self._operation = operation
        self._count = connections
        self._connections: dict[int, Connection] = {}
        self._poll = select.epoll()
        self._message = (b"\0", b"\0")
        self._latencies: list[int] = []
        self._answer_bytes = 0

    def run(self, seconds: float, warm_up: float) -> Window:
        """Warm up, measure a window, and wait for what is still in flight."""
        with time_limit(warm_up + seconds + SILENCE_LIMIT), contextlib.closing(self):
            self._connect()
            self._keep_going(warm_up)
            self._latencies.clear()
            cpu_before, before = family_cpu_seconds(self._server.pid), _now()
            answers = self._keep_going(seconds, FEWEST_ANSWERS)
            took, cpu = (_now() - before) / 1e9, family_cpu_seconds(self._server.pid) - cpu_before
            latencies = sorted(self._latencies)
            waiting = self._count
            while waiting:
                waiting -= len(self._take())
        return Window(
            operations=answers,
            seconds=took,
            cpu_us=cpu / answers * 1e6,
            **percentiles([latency / 1e3 for latency in latencies]),
            rss_mib=resident_mib(self._server.pid),
            answer_bytes=self._answer_bytes,
        )

    def addresses(self) -> list[Address]:
        """Return where each connection asks."""
        return self._server.sessions(self._count)

    def close(self) -> None:
        """Close every connection; the sessions stay."""
        for connection in self._connections.values():
            connection.socket.close()
        self._poll.close()

    def _connect(self) -> None:
        for connection in self._open(self.addresses()):
            self._connections[connection.socket.fileno()] = connection
            self._poll.register(connection.socket, select.EPOLLIN)
        self._ask(list(self._connections.values()))

    def _open(self, addresses: list[Address]) -> list[Connection]:
        return [Connection(address, self._operation) for address in addresses]

    def _keep_going(self, seconds: float, at_least: int = 0) -> int:
        answers, end = 0, _now() + int(seconds * 1e9)
        while _now() < end or answers < at_least:
            answered = self._take()
            answers += len(answered)
            self._ask(answered)
        return answers

    def _ask(self, connections: list[Connection]) -> None:
        number = self._server.next_id
        for connection in connections:
            connection.ask(b"%d" % number)
            number += 1
        self._server.next_id = number

    def _take(self) -> list[Connection]:
        """Wait for something to arrive; gives the connections that have their answer."""
        answered = []
        ready = self._poll.poll(0 if self.awake else None)
        while not ready:
            ready = self._poll.poll(0)
        for descriptor, _ in ready:
            connection = self._connections[descriptor]
            data = _received(connection)
            if not connection.repeated(data) and not self._judge(connection, data):
                connection.received = data
                continue
            connection.received = b""
            self._keep(connection, _now() - connection.sent)
            answered.append(connection)
        return answered

    def _keep(self, connection: Connection, latency: int) -> None:
        self._latencies.append(latency)

    def _judge(self, connection: Connection, data: bytes) -> bool:
        """Take an answer apart and learn its shape; False while it is not whole, raises BadAnswer when it is wrong."""
        response = whole_response(data)
        if response is None:
            return False
        before, after = self._message
        identity = connection.identity
        if response.status != 200 or before + identity + after not in response.messages():
            number = int(identity)
            if not self._operation.accepts(result_of(response, number)):
                raise BadAnswer(f"a wrong answer: {response.body[:300].decode(errors='replace')}")
            self._message = _around(response.messages(), identity)
        connection.learn(data)
        self._answer_bytes = len(response.body)
        return True


def _received(connection: Connection) -> bytes:
    piece = connection.socket.recv(READ_SIZE)
    if not piece:
        raise BadAnswer(f"the connection ended after {connection.received[:200]!r}")
    return connection.received + piece if connection.received else piece


def _around(messages: list[bytes], identity: bytes) -> tuple[bytes, bytes]:
    """Return the bytes of the answer before and after its id."""
    answer = next(message for message in messages if json.loads(message).get("id") == int(identity))
    before, _, after = answer.partition(identity)
    return before, after
