"""A wrong answer makes a contestant fail, not fast."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from bench.messages import (
    ESCAPES,
    NOTICES,
    OPERATIONS,
    RECORDS,
    SIZES,
    STATIC_TEXT,
    STATIC_URI,
    Era,
    echo_of,
    list_of,
    request,
)
from bench.pipeline import Load
from bench.process import BadAnswer
from bench.progress import ProgressLoad
from bench.results import Results
from bench.rounds import Case, Pace, race
from bench.streamable.wire import receive, whole_length

from bench import contestants


class Answering:
    """A server in this process, which answers each request with lines of its own."""

    masking = None

    def __init__(self, answer: Callable[[dict], list[dict]]) -> None:
        self.pid = os.getpid()
        self.next_id = 100_000_000
        self._answer = answer
        self._ready: list[bytes] = []

    def write(self, data: bytes) -> None:
        """Take requests."""
        for line in data.splitlines():
            said = self._answer(json.loads(line))
            self._ready += [json.dumps({"jsonrpc": "2.0", **message}).encode() for message in said]

    say = write

    def around_id(self, operation: object) -> tuple[bytes, bytes]:
        """Return what goes before and after the id of a request."""
        return operation.around_id(Era.HANDSHAKE)

    def read_messages(self) -> list[bytes]:
        """Return what was answered."""
        ready, self._ready = self._ready, []
        return ready

    def close(self) -> None:
        """Nothing is held."""


OK = {"content": [{"type": "text", "text": "ok"}], "structuredContent": {"result": "ok"}}


def steps(numbers: list[float], *, after: bool = False) -> Callable[[dict], list[dict]]:
    """Return a server that tells of these steps, before its answer or after it."""

    def answer(asked: dict) -> list[dict]:
        token = asked["params"]["_meta"]["progressToken"]
        assert token == asked["id"]
        told = [
            {
                "method": "notifications/progress",
                "params": {"progressToken": token, "progress": number, "total": NOTICES},
            }
            for number in numbers
        ]
        done = {"id": asked["id"], "result": OK}
        return [done, *told] if after else [*told, done]

    return answer


RIGHT = [float(step) for step in range(1, 101)]


def test_progress_in_order_and_before_the_answer_is_right() -> None:
    window = ProgressLoad(Answering(steps(RIGHT)), OPERATIONS["progress"], 16).run(0.0, 0.0)
    assert window.operations >= 5


@pytest.mark.parametrize(
    "answer",
    [
        steps(RIGHT[:-1]),
        steps([*RIGHT[:50], *RIGHT[51:]]),
        steps([RIGHT[1], RIGHT[0], *RIGHT[2:]]),
        steps([*RIGHT, 100.0]),
        steps(RIGHT, after=True),
    ],
    ids=["too few", "one is missing", "out of order", "one twice", "after the answer"],
)
def test_progress_that_is_wrong_fails(answer: Callable[[dict], list[dict]]) -> None:
    with pytest.raises(BadAnswer):
        ProgressLoad(Answering(answer), OPERATIONS["progress"], 2).run(0.0, 0.0)


def test_a_wrong_answer_leaves_a_failure_and_no_figure() -> None:
    results = Results()

    def start(contestant: contestants.Contestant) -> Answering:
        value = 42 if contestant.name == "right" else 41
        result = {"content": [{"type": "text", "text": str(value)}], "structuredContent": {"result": value}}
        return Answering(lambda asked: [{"id": asked["id"], "result": result}])

    field = [contestants.Contestant(name, ()) for name in ("right", "wrong")]
    case = Case("call", "x4", lambda server: Load(server, OPERATIONS["call"], 4))
    race(field, start, [case], Pace(2, 0.01, 0.0), results)
    assert results.contestants("call", "x4") == ["right"]
    assert [failure.split(":")[0] for failure in results.failures] == ["wrong call x4"]


def test_a_call_of_an_unknown_tool_has_to_be_refused() -> None:
    unknown = OPERATIONS["unknown"]
    assert unknown.judges({"id": 1, "error": {"code": -32602, "message": "no such tool"}})
    assert unknown.judges({"id": 1, "result": {"isError": True, "content": []}})
    assert not unknown.judges({"id": 1, "result": OK})
    assert not OPERATIONS["call"].judges({"id": 1, "error": {"code": -32602, "message": "no such tool"}})


def test_records_are_compared_field_by_field() -> None:
    operation = OPERATIONS["records_null"]
    fields = [
        {
            "number": number,
            "name": f"entry number {number}",
            "score": number * 1.5,
            "tags": ["alpha", "beta", f"t{number}"],
            "note": None,
        }
        for number in range(RECORDS)
    ]
    result = {"content": [{"type": "text", "text": "…"}], "structuredContent": {"result": fields}}
    assert operation.accepts(result)
    assert not OPERATIONS["records"].accepts(result)
    fields[-1]["score"] = 0.0
    assert not operation.accepts(result)


def test_a_resource_and_a_list_are_compared_whole() -> None:
    assert OPERATIONS["read"].accepts({"contents": [{"uri": STATIC_URI, "text": STATIC_TEXT}]})
    assert not OPERATIONS["read"].accepts({"contents": [{"uri": STATIC_URI, "text": STATIC_TEXT[1:]}]})
    assert list_of(2).accepts({"tools": [{}, {}]})
    assert not list_of(2).accepts({"tools": [{}, {}], "nextCursor": "more"})


@pytest.mark.parametrize("phrase", ["x", ESCAPES])
def test_an_echo_has_the_size_it_is_named_by(phrase: str) -> None:
    size = SIZES["100 KB"]
    operation = echo_of(size, phrase)
    written = request(operation.method, operation.params, Era.HANDSHAKE, 1)
    assert size * 0.99 < len(written) < size * 1.01
    assert json.loads(written)["params"]["arguments"]["text"] == operation.value


def test_a_large_answer_is_read_whole_whatever_its_pieces() -> None:
    """Its length is told, or it comes in chunks."""

    class Pieces:
        def __init__(self, data: bytes) -> None:
            self._pieces = [data[at : at + 1000] for at in range(0, len(data), 1000)]

        def recv(self, size: int) -> bytes:
            return self._pieces.pop(0) if self._pieces else b""

    body = b"x" * 100_000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    told = head + b"Content-Length: 100000\r\n\r\n" + body
    chunked = head + b"Transfer-Encoding: chunked\r\n\r\n" + b"186a0\r\n" + body + b"\r\n0\r\n\r\n"
    assert receive(Pieces(told)).body == body
    assert receive(Pieces(chunked)).body == body
    assert whole_length(told[:200]) == len(told)
    with pytest.raises(BadAnswer):
        receive(Pieces(told[:-1]))
