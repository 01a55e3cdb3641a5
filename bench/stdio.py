"""A contestant's server at the other end of two pipes."""

from __future__ import annotations

import json
import os
import time

from bench.contestants import Contestant
from bench.machine import cpu_seconds, resident_mib
from bench.messages import FIRST_ID, Era, Operation, opened, opening
from bench.process import START_LIMIT, BadAnswer, ServerProcess, time_limit

READ_SIZE = 1 << 20

_now = time.perf_counter_ns


class Server(ServerProcess):
    """A contestant's process that has answered its opening request."""

    masking = None

    def __init__(self, contestant: Contestant, era: Era, extra_tools: int = 0) -> None:
        self.era = era
        self.next_id = FIRST_ID
        started = _now()
        super().__init__(contestant, ["--transport", "stdio", "--tools", str(extra_tools)], pipes=True)
        self._inlet, self._outlet = self.process.stdin.fileno(), self.process.stdout.fileno()
        self._parts: list[bytes] = []
        try:
            with time_limit(START_LIMIT):
                self.say(opening(era))
                greeting = self.read_messages()[0]
            self.start_ms = (_now() - started) / 1e6
            self.start_cpu_ms = cpu_seconds(self.pid) * 1e3
            self.start_rss_mib = resident_mib(self.pid)
            if "result" not in json.loads(greeting):
                raise BadAnswer(f"the opening was refused: {greeting[:300].decode()}")
            self.say(opened(era))
        except BaseException:
            self.close()
            raise

    def write(self, data: bytes) -> None:
        """Write all of it."""
        while data:
            data = data[os.write(self._inlet, data) :]

    say = write
    """A message is a line already."""

    def around_id(self, operation: Operation) -> tuple[bytes, bytes]:
        """Return what goes before and after the id of a request."""
        return operation.around_id(self.era)

    def read_messages(self) -> list[bytes]:
        """Read until at least one line is whole; the beginning of another is kept."""
        while True:
            data = os.read(self._outlet, READ_SIZE)
            if not data:
                raise BadAnswer(f"the server ended: {self.last_words()}")
            first, *others = data.split(b"\n")
            self._parts.append(first)
            if others:
                lines = [b"".join(self._parts), *others]
                self._parts = [lines.pop()]
                return lines
