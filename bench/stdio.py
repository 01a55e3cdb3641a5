"""A contestant's server at the other end of two pipes."""

from __future__ import annotations

import json
import os
import select
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

    def __init__(self, contestant: Contestant, era: Era, extra_tools: int = 0, more: bool = False) -> None:
        self.era = era
        self.next_id = FIRST_ID
        started = _now()
        arguments = ["--transport", "stdio", "--tools", str(extra_tools), *(["--more"] if more else [])]
        super().__init__(contestant, arguments, pipes=True)
        self._inlet, self._outlet = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self._inlet, False)
        self._parts: list[bytes] = []
        self._early: list[bytes] = []
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
        """Write all of it; reads meanwhile, for a server may stop reading until its own answers are read."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._inlet, left) :]
            except BlockingIOError:
                readable, _, _ = select.select([self._outlet], [self._inlet], [])
                if readable:
                    self._early.append(os.read(self._outlet, READ_SIZE))

    say = write
    """A message is a line already."""

    def around_id(self, operation: Operation) -> tuple[bytes, bytes]:
        """Return what goes before and after the id of a request."""
        return operation.around_id(self.era)

    def read_messages(self) -> list[bytes]:
        """Read until at least one line is whole; the beginning of another is kept."""
        while True:
            data = self._early.pop(0) if self._early else os.read(self._outlet, READ_SIZE)
            if not data:
                raise BadAnswer(f"the server ended: {self.last_words()}")
            first, *others = data.split(b"\n")
            self._parts.append(first)
            if others:
                lines = [b"".join(self._parts), *others]
                self._parts = [lines.pop()]
                return lines
