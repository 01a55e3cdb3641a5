"""Short lives and large messages: one thing after the other, over a new connection each time or over one for all."""

from __future__ import annotations

import time

from bench.figures import Window, percentiles
from bench.machine import family_cpu_seconds, resident_mib
from bench.messages import OPERATIONS, Operation
from bench.process import FEWEST_ANSWERS, SILENCE_LIMIT, BadAnswer, time_limit
from bench.streamable.server import HttpServer, ask
from bench.streamable.wire import Address, connect, exchange

ENDED = (200, 202, 204)

_now = time.perf_counter_ns


class OneByOne:
    """Something asked of a server again and again, one after the other."""

    def __init__(self, server: HttpServer, operation: Operation = OPERATIONS["call"]) -> None:
        self._server = server
        self._operation = operation

    def run(self, seconds: float, warm_up: float) -> Window:
        """Warm up and measure a window."""
        with time_limit(warm_up + seconds + SILENCE_LIMIT):
            self._begin()
            self._keep_going(warm_up)
            cpu_before, before = family_cpu_seconds(self._server.pid), _now()
            took = self._keep_going(seconds, FEWEST_ANSWERS)
            passed, cpu = (_now() - before) / 1e9, family_cpu_seconds(self._server.pid) - cpu_before
            self._end()
        return Window(
            operations=len(took),
            seconds=passed,
            cpu_us=cpu / len(took) * 1e6,
            **percentiles(sorted(took)),
            rss_mib=resident_mib(self._server.pid),
        )

    def _keep_going(self, seconds: float, at_least: int = 0) -> list[float]:
        took: list[float] = []
        end = _now() + int(seconds * 1e9)
        while _now() < end or len(took) < at_least:
            began = _now()
            self._once()
            took.append((_now() - began) / 1e3)
        return took

    def _begin(self) -> None:
        """Prepare what all share."""

    def _once(self) -> None:
        """Do it once, and see that the answer is right."""
        raise NotImplementedError

    def _end(self) -> None:
        """Let go of what all shared."""


class NewConnections(OneByOne):
    """One operation of one session, or of none, asked over a new connection each time."""

    _address: Address

    def _begin(self) -> None:
        (self._address,) = self._server.sessions(1)

    def _once(self) -> None:
        with connect(self._address.port) as connection:
            ask(connection, self._address, self._operation)


class WholeSessions(OneByOne):
    """The whole life of a session: connect, initialize, one operation, DELETE, close."""

    def _once(self) -> None:
        with connect(self._server.port) as connection:
            address = self._server.open(connection)
            ask(connection, address, self._operation)
            ended = exchange(connection, address.delete())
        if ended.status not in ENDED:
            raise BadAnswer(f"DELETE was refused with {ended.status}")


class Exchanges(OneByOne):
    """One operation over one connection, however large its messages are."""

    def _begin(self) -> None:
        (self._address,) = self._server.sessions(1)
        self._connection = connect(self._address.port)

    def _once(self) -> None:
        ask(self._connection, self._address, self._operation)

    def _end(self) -> None:
        self._connection.close()
