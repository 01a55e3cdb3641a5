"""Load on one conversation: the server on its core, this process on another, a sliding window of requests.

Every answer is checked, its id and its whole result. The first answer of a window is decoded and judged; one that
repeats its bytes around another id that is in flight is right, any other is decoded and judged too.
"""

from __future__ import annotations

import json
import time
from typing import Protocol

from bench.figures import Window, percentiles
from bench.machine import cpu_seconds, resident_mib
from bench.messages import Operation
from bench.process import FEWEST_ANSWERS, SILENCE_LIMIT, BadAnswer, time_limit

_now = time.perf_counter_ns


class Conversation(Protocol):
    """A server that was opened, over whatever carries its messages."""

    pid: int
    next_id: int
    masking: bytes | None
    """What each byte becomes on its way, where the carrier masks what is sent."""

    def write(self, data: bytes) -> None:
        """Write bytes that are framed already."""

    def say(self, message: bytes) -> None:
        """Write one message, given as a line."""

    def around_id(self, operation: Operation) -> tuple[bytes, bytes]:
        """Return the framed bytes of a request before and after its id."""

    def read_messages(self) -> list[bytes]:
        """Wait for messages, and give them without what frames them."""


class Load:
    """One operation asked again and again of one server, so many requests in flight."""

    def __init__(self, server: Conversation, operation: Operation, in_flight: int) -> None:
        self._server = server
        self._operation = operation
        self._in_flight = in_flight
        self._request = server.around_id(operation)
        self._answer = (b"\0", b"\0")
        self._sent: dict[bytes, int] = {}
        self._latencies: list[int] = []
        self._answer_bytes = 0

    def run(self, seconds: float, warm_up: float) -> Window:
        """Warm up, measure a window, and wait for what is still in flight."""
        server = self._server
        with time_limit(warm_up + seconds + SILENCE_LIMIT):
            self._ask(self._in_flight)
            self._keep_going(warm_up)
            self._latencies.clear()
            cpu_before, before = cpu_seconds(server.pid), _now()
            answers = self._keep_going(seconds, FEWEST_ANSWERS)
            took, cpu = (_now() - before) / 1e9, cpu_seconds(server.pid) - cpu_before
            latencies = sorted(self._latencies)
            while self._sent:
                self._take()
        return Window(
            operations=answers,
            seconds=took,
            cpu_us=cpu / answers * 1e6,
            **percentiles([latency / 1e3 for latency in latencies]),
            rss_mib=resident_mib(server.pid),
            answer_bytes=self._answer_bytes,
        )

    def _keep_going(self, seconds: float, at_least: int = 0) -> int:
        answers, end = 0, _now() + int(seconds * 1e9)
        while _now() < end or answers < at_least:
            arrived = self._take()
            answers += arrived
            self._ask(arrived)
        return answers

    def _ask(self, count: int) -> None:
        if not count:
            return
        before, after = self._request
        server, sent, now = self._server, self._sent, _now()
        masking, requests = server.masking, []
        for number in range(server.next_id, server.next_id + count):
            identity = b"%d" % number
            sent[identity] = now
            requests.append(before + identity.translate(masking) + after)
        server.next_id += count
        server.write(b"".join(requests))

    def _take(self) -> int:
        lines = self._server.read_messages()
        sent, latencies, now = self._sent, self._latencies, _now()
        before, after = self._answer
        skip, cut = len(before), -len(after)
        taken = 0
        for line in lines:
            if line.startswith(before) and line.endswith(after):
                asked = sent.pop(line[skip:cut], None)
            else:
                asked = self._judge(line)
                before, after = self._answer
                skip, cut = len(before), -len(after)
                if asked is None:
                    continue
            if asked is None:
                raise BadAnswer(f"an answer to nothing in flight: {line[:200].decode()}")
            latencies.append(now - asked)
            taken += 1
        return taken

    def _judge(self, line: bytes) -> int | None:
        """Decode an answer, learn its shape and tell when it was asked for; None for what is no answer."""
        message = json.loads(line)
        if "method" in message:
            if message["method"] == "ping":
                self._server.say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {}}).encode() + b"\n")
            return None
        identity = str(message.get("id")).encode()
        asked = self._sent.pop(identity, None)
        if asked is None or type(message["id"]) is not int:
            raise BadAnswer(f"an answer to nothing in flight: {line[:200].decode()}")
        if not self._operation.judges(message):
            raise BadAnswer(f"a wrong answer: {line[:300].decode()}")
        before, found, after = line.partition(identity)
        if found and after:
            self._answer = (before, after)
        self._answer_bytes = len(line) + 1
        return asked
