"""A real server process on stdio, treated badly."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pace import cpu_of, prompt

SERVER = [sys.executable, str(Path(__file__).with_name("mistreated_server.py"))]
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "tester", "version": "1"}}

VERSION = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
LEVEL = "io.modelcontextprotocol/logLevel"


class Process:
    """A server process and its pipes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen(SERVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.stdin, self.stdout = self.process.stdin, self.process.stdout
        self.send({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": HELLO})
        self.read()

    def write(self, line: bytes) -> None:
        assert self.stdin is not None
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def send(self, message: Any) -> None:
        self.write(json.dumps(message).encode())

    def call(self, identity: int, tool: str, **arguments: Any) -> None:
        params = {"name": tool, "arguments": arguments}
        self.send({"jsonrpc": "2.0", "id": identity, "method": "tools/call", "params": params})

    def read(self) -> Any:
        assert self.stdout is not None
        return json.loads(self.stdout.readline().decode("utf-8"))

    def ping(self, identity: Any, answers: int) -> list[Any]:
        """Ping, and give the other answers, which may come before the pong or after it."""
        self.send({"jsonrpc": "2.0", "id": identity, "method": "ping"})
        others: list[Any] = []
        ponged = False
        while not ponged or len(others) < answers:
            message = self.read()
            if message.get("id") == identity:
                ponged = True
                assert message["result"] == {}
            else:
                others.append(message)
        return others

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()


@pytest.fixture
def server() -> Iterator[Process]:
    process = Process()
    yield process
    process.end()


def call(identity: str, text: str) -> str:
    return (
        f'{{"jsonrpc":"2.0","id":{identity},"method":"tools/call","params":'
        f'{{"name":"echo","arguments":{{"text":{text}}}}}}}'
    )


NOT_JSON = ["{bad", "{", "}", "[", "]", '"', "{'a':1}", '{"a":1,}', "{} {}", "nul", "tru", "// hi", "\\", "NaN", "-"]
NOT_A_MESSAGE = ["null", "true", "1", "1.5", '"text"', "[]", "{}", "[1]", "[null]", '{"id":1}', '{"jsonrpc":"2.0"}']
WRONG_ENVELOPE = [
    '{"jsonrpc":"1.0","id":1,"method":"ping"}',
    '{"jsonrpc":2.0,"id":1,"method":"ping"}',
    '{"id":1,"method":"ping"}',
    '{"jsonrpc":"2.0","id":1,"method":7}',
    '{"jsonrpc":"2.0","id":1,"method":null}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","params":[1]}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":3}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"nope"}}',
    '{"jsonrpc":"2.0","id":1,"method":"nope/nope"}',
    '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}',
    '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}',
    '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"::::"}}',
    '{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"nonsense"}}',
    '{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"loud"}}',
]
WRONG_IDS = [
    f'{{"jsonrpc":"2.0","id":{identity},"method":"ping"}}' for identity in ("null", "1.5", "true", "{}", "[1]")
]
SILENT = [
    '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":99}}',
    '{"jsonrpc":"2.0","method":"notifications/cancelled"}',
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","method":"notifications/initialized"}',
    '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":2}}',
    '{"jsonrpc":"2.0","method":"notifications/nonsense"}',
    '{"jsonrpc":"2.0","id":77,"result":{}}',
    '{"jsonrpc":"2.0","id":77,"error":{"code":1,"message":"x"}}',
    '{"jsonrpc":"2.0","id":null,"error":{"code":1,"message":"x"}}',
    "",
    "   ",
]
ARGUMENTS = [
    call("1", '"\\\\ud800"'.replace("\\\\", "\\")),
    call("1", "9" * 5000),
    call("1", "1e400"),
    call("1", "[" * 500 + "]" * 500),
    call("1", '"' + "\\u0000" + '"'),
    call("1", '{"a":1}'),
    call("1", "null"),
    call("1", '"' + "x" * 100_000 + '"'),
    call("1", '"\\u2028\\u0085"'),
    call("1", '"ok","extra":1'),
    call('""', '"a"'),
    call("0", '"a"'),
    call("-1", '"a"'),
    call(str(2**53 + 1), '"a"'),
    call(str(2**63), '"a"'),
    call(str(10**30), '"a"'),
    call('"' + "i" * 4096 + '"', '"a"'),
    call('"😀"', '"a"'),
]
RAW = [
    b'{"jsonrpc":"2.0","id":1,"method":"ping\xff"}',
    b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"method":"ping"}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"\xc0\xaf"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"\xed\xa0\x80"}}}',
    b'{"jsonrpc":"2.0","id":1,"method":"pi\x00ng"}',
    b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}',
    b"\x00\x01\x02\x03",
    b"\xff\xfe\xfd",
]
ANSWERED = [*NOT_JSON, *NOT_A_MESSAGE, *WRONG_ENVELOPE, *WRONG_IDS, *ARGUMENTS]
LINES = [(line.encode("utf-8", "surrogatepass"), 1) for line in ANSWERED] + [(line.encode(), 0) for line in SILENT]
LINES += [(line, 1) for line in RAW]


def test_std_01_hostile_lines_end_nothing_and_none_that_can_be_answered_is_met_with_silence(server: Process) -> None:
    assert len(LINES) >= 86
    for number, (line, answers) in enumerate(LINES):
        spent = cpu_of(server.process.pid)
        server.write(line)
        assert len(server.ping(f"ping-{number}", answers)) == answers, line[:100]
        assert cpu_of(server.process.pid) - spent < 1
    assert server.process.poll() is None


def test_std_01_odd_ids_come_back_exactly_as_they_were(server: Process) -> None:
    for number, identity in enumerate(['""', '"0"', "0", "-1", str(2**53 + 1), str(10**30), '"😀"']):
        server.write(call(identity, '"a"').encode())
        (answer,) = server.ping(f"ping-{number}", 1)
        assert answer["id"] == json.loads(identity)
        assert type(answer["id"]) is type(json.loads(identity))


ARGUMENT = {"name": "a", "value": ""}
MANY = "y" * (9 * 1024 * 1024)
WORDY = {
    "level": ("logging/setLevel", {"level": MANY}),
    "tool": ("tools/call", {"name": MANY}),
    "argument": ("tools/call", {"name": "echo", "arguments": {MANY: 1}}),
    "prompt": ("prompts/get", {"name": MANY}),
    "resource": ("resources/read", {"uri": f"a://{MANY}"}),
    "reference": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": MANY}, "argument": {"name": "a", "value": ""}},
    ),
    "method": (MANY, {}),
    "version": ("tools/list", {"_meta": {VERSION: MANY, CAPABILITIES: {}}}),
    "meta": ("tools/list", {"_meta": {VERSION: "2026-07-28", CAPABILITIES: {}, LEVEL: MANY}}),
}


def test_std_01_words_of_nine_mebibytes_are_refused_in_few(server: Process) -> None:
    """STD-01, ERRC-27: said twice they would be more than a message holds; the id is answered all the same."""
    for identity, (method, params) in WORDY.items():
        server.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        (answer,) = server.ping("ping", 1)
        assert answer["id"] == identity
        assert ("error" in answer) == (identity != "argument"), "what a model may mend is told in a result"
        assert len(json.dumps(answer)) < 10_000


def test_std_01_an_id_that_leaves_no_room_for_an_answer_is_left_out(server: Process) -> None:
    identity = "z" * (16 * 1024 * 1024 - 100)
    server.send({"jsonrpc": "2.0", "id": identity, "method": "nope/nope"})
    (answer,) = server.ping("ping", 1)
    assert answer.keys() == {"jsonrpc", "error"}
    assert answer["error"]["code"] == -32600


@pytest.mark.parametrize("value", ["NaN", r'"\ud800"', "[" * 2000 + "]" * 2000, '"\udcff"'])
def test_std_01_a_value_that_cannot_be_read_is_refused_under_the_id_of_its_message(server: Process, value: str) -> None:
    """STD-01, FRM-03, FRM-05, FRM-07: whoever asked does not wait for ever."""
    server.write(call('"mine"', value).encode("utf-8", "surrogateescape"))
    (answer,) = server.ping("ping", 1)
    assert (answer["id"], answer["error"]["code"]) == ("mine", -32700)


def test_std_02_a_line_over_the_limit_is_refused_under_its_id_if_that_stands_ahead(server: Process) -> None:
    """STD-02, SIZE-06"""
    server.write(b'{"jsonrpc":"2.0","id":"mine","method":"ping","params":{"a":"%b"}}' % (b"x" * 17 * 1024 * 1024))
    (answer,) = server.ping("ping", 1)
    assert (answer["id"], answer["error"]["code"]) == ("mine", -32012)


@pytest.mark.parametrize("how", ["EOF", "SIGTERM"])
def test_std_08_a_handler_that_never_returns_does_not_keep_the_process_alive(server: Process, how: str) -> None:
    server.call(2, "block", ms=1e9)
    server.ping("begun", 0)
    started = time.monotonic()
    if how == "EOF":
        assert server.stdin is not None
        server.stdin.close()
    else:
        server.process.send_signal(signal.SIGTERM)
    answer = server.read()
    assert answer["id"] == 2
    assert answer["error"]["code"] == -32603
    assert server.process.wait(60) == 0
    assert time.monotonic() - started < prompt(10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_signal_drains_and_exits_in_peace(server: Process, number: signal.Signals) -> None:
    """SHUT-01, SHUT-02, STDI-05"""
    server.call(2, "sleep", ms=300)
    server.ping("begun", 0)
    server.process.send_signal(number)
    assert server.read()["result"]["content"][0]["text"] == "slept"
    assert server.process.wait(60) == 0
    assert server.process.stderr is not None
    assert server.process.stderr.read() == b""


def test_a_second_signal_ends_it_at_once(server: Process) -> None:
    server.call(2, "sleep", ms=1e9)
    server.ping("begun", 0)
    # Two that come before it looks are one to it.
    while server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
    assert server.process.returncode == 128 + signal.SIGTERM


def test_slo_06_a_huge_answer_does_not_hold_a_ping_for_long(server: Process) -> None:
    spent = cpu_of(server.process.pid)
    server.call(2, "big", size=7 * 1024 * 1024)
    (answer,) = server.ping("p", 1)
    assert len(answer["result"]["content"][0]["text"]) == 7 * 1024 * 1024
    assert cpu_of(server.process.pid) - spent < 2
