"""Load with progress: calls that report a hundred times before they answer, so many calls at once.

Every notice is decoded and judged as it comes: each call must tell of its steps once, in order, and all of them before
it answers.
"""

from __future__ import annotations

import time

import msgspec

from bench.messages import NOTICES, Era, Operation, request
from bench.pipeline import Conversation, Load
from bench.process import BadAnswer

METHOD = "notifications/progress"

_now = time.perf_counter_ns


class Progress(msgspec.Struct, gc=False):
    """What a notice says."""

    progressToken: int | str
    progress: float
    total: float


class Heard(msgspec.Struct, gc=False):
    """A notice, or the answer of a call, which is left for later."""

    method: str = ""
    params: Progress | None = None


_decode = msgspec.json.Decoder(Heard).decode


class ProgressLoad(Load):
    """One call asked again and again; the id of each request is its progress token too."""

    def __init__(self, server: Conversation, operation: Operation, in_flight: int) -> None:
        super().__init__(server, operation, in_flight)
        params = {**operation.params, "_meta": {"progressToken": "ID"}}
        self._parts = request(operation.method, params, Era.HANDSHAKE, "ID").split(b'"ID"')
        self._steps: dict[int, int] = {}

    def _ask(self, count: int) -> None:
        server, now, requests = self._server, _now(), []
        for number in range(server.next_id, server.next_id + count):
            identity = b"%d" % number
            self._sent[identity] = now
            self._steps[number] = 0
            requests.append(identity.join(self._parts))
        server.next_id += count
        if requests:
            server.write(b"".join(requests))

    def _take(self) -> int:
        taken = 0
        for line in self._server.read_messages():
            heard = _decode(line)
            if heard.method == METHOD:
                self._note(heard.params)
            elif not heard.method:
                self._finish(line)
                taken += 1
        return taken

    def _note(self, notice: Progress | None) -> None:
        """Judge a notice: the next step of a call that has not answered."""
        if notice is None or notice.progressToken not in self._steps:
            raise BadAnswer(f"progress of nothing in flight: {notice}")
        step = self._steps[notice.progressToken] + 1
        if notice.progress != step or notice.total != NOTICES:
            raise BadAnswer(f"step {step} was told as {notice}")
        self._steps[notice.progressToken] = step

    def _finish(self, line: bytes) -> None:
        """Judge an answer, and that all steps were told before it."""
        asked = self._judge(line)
        told = self._steps.pop(msgspec.json.decode(line)["id"])
        if told != NOTICES:
            raise BadAnswer(f"{told} of {NOTICES} steps were told before the answer")
        self._latencies.append(_now() - asked)
