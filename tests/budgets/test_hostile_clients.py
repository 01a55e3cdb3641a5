"""What a hostile client costs a server, on every carrier: it pays for what it asks, and nobody else does.

The server runs in a process of its own and tells how it is on a way of its own. A bystander calls a tool all the while.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from vitals import Seen, Vitals
from wires import INITIALIZED, WIRES, Wire, initialize, request

HERE = Path(__file__).resolve().parent
MIB = 1024 * 1024
LONG = bool(os.environ.get("FERRULE_LONG"))
LONGEST_TURN = 0.1 if LONG else 0.3
"""Seconds of CPU. While other tests run beside it, the same work takes up to three times as much."""
MOST_MEMORY = 64 * MIB
SETTLED = 20 * MIB
"""What an allocator may keep of memory that was let go."""
SOCKETS = [carrier for carrier in WIRES if carrier != "stdio"]
LINES = ["tcp", "unix"]
ECHO = {"name": "echo", "arguments": {"text": ""}}


class Attacked:
    """A server under attack, its vitals, and a bystander."""

    def __init__(self, carrier: str, folder: str) -> None:
        self.carrier = carrier
        self._folder = folder
        self.vitals = Vitals()
        kind = "http" if carrier in ("http", "stateless", "sse") else carrier
        command = [sys.executable, str(HERE / "attacked_server.py"), kind, str(self.vitals.fd), f"{folder}/socket"]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=[self.vitals.fd],
            env={**os.environ, "PYTHONPATH": str(HERE), "MALLOC_TRIM_THRESHOLD_": "131072"},
        )
        self.vitals.begun()
        assert self.process.stdout is not None
        self.place: Any = self.process if carrier == "stdio" else self.process.stdout.readline().decode().strip()
        self._wires: list[Wire] = []
        self.bystander = self.wire()
        self.bystander.greet()
        assert self.bystander.asks("warm", "tools/call", ECHO)
        self.base = self.vitals.reset()

    def wire(self, *, reads: bool = True) -> Wire:
        """Open one more connection; over stdio there is only one."""
        if self.carrier == "stdio" and self._wires:
            return self._wires[0]
        wire = WIRES[self.carrier](self.place, reads=reads)
        self._wires.append(wire)
        return wire

    def peer(self, *, reads: bool = True) -> Wire:
        """Open one more connection and make the handshake."""
        wire = self.wire(reads=reads)
        if wire is not self.bystander:
            wire.greet()
        return wire

    def suffer(self, attack: Callable[[], None]) -> Seen:
        """Let an attack run while the bystander calls. Return what was seen."""
        self.vitals.reset()
        over = threading.Event()
        unanswered: list[str] = []

        def call() -> None:
            for number in itertools.count():
                if over.is_set() or unanswered:
                    return
                if not self.bystander.asks(f"b{number}", "tools/call", ECHO):
                    unanswered.append(f"b{number}")
                over.wait(0.02)

        caller = threading.Thread(target=call, daemon=True)
        if self.carrier != "stdio":
            caller.start()
        try:
            attack()
        finally:
            over.set()
            if caller.is_alive():
                caller.join()
        assert self.bystander.asks("after", "tools/call", ECHO)
        seen = self.vitals.look()
        assert unanswered == []
        assert self.process.poll() is None
        assert not seen.loop_error
        assert seen.longest_turn <= LONGEST_TURN, f"one turn took {seen.longest_turn:.3f} s of CPU"
        assert seen.peak - self.base.resident <= MOST_MEMORY, f"{(seen.peak - self.base.resident) / MIB:.0f} MiB more"
        return seen

    def settles(self) -> None:
        """Within five seconds after the peer has left nothing of it is held."""
        self.leave()
        deadline = time.monotonic() + 5
        while (now := self.vitals.look().resident) > self.base.resident + SETTLED:
            assert time.monotonic() < deadline, f"{(now - self.base.resident) / MIB:.0f} MiB are kept"
            time.sleep(0.1)

    def leave(self) -> None:
        """Close all connections but the bystander's."""
        for wire in self._wires:
            if wire is not self.bystander:
                wire.close()
        self._wires = [self.bystander]

    def end(self) -> None:
        """Let the server end."""
        for wire in self._wires:
            wire.close()
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            if self.carrier == "stdio":
                self.bystander._reader.join(10)
            Path(self._folder, "socket").unlink(missing_ok=True)
            Path(self._folder).rmdir()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.vitals.close()


@pytest.fixture(scope="module")
def servers() -> Iterator[dict[str, Attacked]]:
    """The servers that were attacked and live on, by carrier."""
    alive: dict[str, Attacked] = {}
    yield alive
    for server in alive.values():
        server.end()


@pytest.fixture
def attacked(request: pytest.FixtureRequest, servers: dict[str, Attacked]) -> Iterator[Attacked]:
    """The server on the carrier that the test names: what one attack leaves behind, the next would find."""
    carrier = request.param
    if carrier not in servers:
        folder = tempfile.mkdtemp()
        servers[carrier] = Attacked(carrier, folder)
    server = servers[carrier]
    server.base = server.vitals.reset()
    yield server
    if getattr(request.node, "failed", True):
        del servers[carrier]
        server.end()
    else:
        server.leave()


def on(carriers: list[str]) -> pytest.MarkDecorator:
    """Run a test on these carriers."""
    return pytest.mark.parametrize("attacked", carriers, indirect=True)


ALL = list(WIRES)


@on(ALL)
@pytest.mark.parametrize("size", [200_000, 1_000_000, 15_000_000])
def test_a_batch_of_junk_is_refused_once(attacked: Attacked, size: int):
    """BUD-01."""
    attacker = attacked.peer()
    before = attacker.received

    def attack() -> None:
        attacker.send(b"[" + b",".join([b"1"] * (size // 2)) + b"]")
        time.sleep(0.3)

    attacked.suffer(attack)
    assert attacker.received - before <= 2048 + (2 * size if attacked.carrier == "stdio" else 0)
    attacked.settles()


@on(SOCKETS)
def test_handshakes_that_say_much_are_not_kept(attacked: Attacked):
    """BUD-02."""
    if attacked.carrier == "stateless":
        pytest.skip("the stateless era has no handshake")
    padding = {"capabilities": {"experimental": {"x": {"y": "z" * 2_000_000}}}}

    def attack() -> None:
        for _ in range(40):
            wire = attacked.wire()
            wire.send(initialize(**padding))
            wire.wait_for(b"jsonrpc", 5)

    attacked.suffer(attack)
    attacked.settles()


@on(LINES)
@pytest.mark.parametrize("framing", ["lines", "headers"])
def test_a_web_page_runs_nothing_on_a_carrier_that_reads_lines(attacked: Attacked, framing: str):
    """BUD-03."""
    call = request("page", "tools/call", {"name": "echo", "arguments": {"text": "ran"}})
    body = initialize() + b"\n" + INITIALIZED + b"\n" + call + b"\n"
    if framing == "headers":
        parts = [initialize(), INITIALIZED, call]
        body = b"".join(b"Content-Length: %d\r\n\r\n%b" % (len(part), part) for part in parts)
    page = attacked.wire()
    page.send_bytes(
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: https://evil.example\r\nContent-Type: text/plain\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    assert page.wait_end(10)
    assert b'"page"' not in page.heard
    assert b'"init"' not in page.heard


@on(["stdio", "tcp", "unix", "websocket"])
def test_a_flood_of_junk_lines_takes_nobody_elses_turn(attacked: Attacked):
    """BUD-04."""
    attacker = attacked.peer()
    junk = attacker.frame(b"1") * (256 * 1024 // len(attacker.frame(b"1")))
    before = attacker.received

    def attack() -> None:
        attacker.send_bytes(junk)
        if attacked.carrier != "stdio":
            assert attacker.wait_for(b"too many messages", 10) or attacker.ended, "the connection goes on"

    seen = attacked.suffer(attack)
    assert seen.longest_turn <= LONGEST_TURN / 2
    if attacked.carrier != "stdio":
        assert attacker.received - before <= 2 * len(junk)
        attacked.settles()


@on(SOCKETS)
def test_a_peer_that_never_reads_holds_little_and_not_for_long(attacked: Attacked):
    """BUD-05."""
    if attacked.carrier == "sse":
        pytest.skip("its answers go to a stream, which is the next test's")

    def attack() -> None:
        for _ in range(10):
            deaf = attacked.wire(reads=False)
            deaf.socket.settimeout(0.5)
            call = request(1, "tools/list")
            if attacked.carrier != "stateless":
                deaf.send(initialize())
            for _ in range(100):
                deaf.send(call)
                if deaf.ended:
                    break

    attacked.suffer(attack)
    attacked.settles()


@on(ALL)
def test_calls_with_large_arguments_have_a_budget_while_they_run(attacked: Attacked):
    """BUD-09."""
    call = request("large", "tools/call", {"name": "hold", "arguments": {"value": "x" * 8_000_000, "seconds": 2}})

    def attack() -> None:
        if attacked.carrier == "stdio":
            for _ in range(20):
                attacked.bystander.send(call)
            return
        wires = [attacked.peer() for _ in range(30)]
        senders = [threading.Thread(target=wire.send, args=(call,), daemon=True) for wire in wires]
        for sender in senders:
            sender.start()
        for sender in senders:
            sender.join(30)
        for wire in wires:
            wire.close()

    attacked.suffer(attack)
    time.sleep(2)
    attacked.settles()


@on(SOCKETS)
def test_answers_nobody_takes_have_a_budget_over_all_connections(attacked: Attacked):
    """BUD-10: an answer is eight megabytes, for a text is told twice, as content and as structured content."""
    call = request("large", "tools/call", {"name": "large", "arguments": {"size": 4_000_000}})

    pace = attacked.peer()

    def attack() -> None:
        for number in range(100):
            # One at a time: what the tool itself takes is not what is measured.
            assert pace.asks(f"p{number}", "tools/call", ECHO)
            deaf = attacked.wire(reads=False)
            if attacked.carrier in ("tcp", "unix", "websocket"):
                deaf.send(initialize())
                deaf.send(INITIALIZED)
                deaf.send(call)
            elif attacked.carrier == "stateless":
                deaf.send(call)
            else:
                hearing = attacked.wire()
                hearing.greet()
                deaf.session = getattr(hearing, "session", b"")  # type: ignore[attr-defined]
                deaf.send(call)
        time.sleep(0.5)

    attacked.suffer(attack)
    attacked.settles()


@on(ALL)
def test_arguments_that_do_not_fit_are_refused_without_looking_at_them_all(attacked: Attacked):
    """BUD-11."""
    attacker = attacked.peer()
    many = {f"k{n}": {} for n in range(250_000)}
    wide = [{}] * 1_000_000
    before = attacker.received

    def attack() -> None:
        for arguments in (many, {"text": wide}, {"text": many}):
            attacker.send(request("misfit", "tools/call", {"name": "echo", "arguments": arguments}))
            time.sleep(0.2)

    attacked.suffer(attack)
    assert attacker.received - before <= 64 * 1024 + (64 * 1024 if attacked.carrier == "stdio" else 0)
    attacked.settles()


@on(ALL)
def test_names_nobody_knows_are_refused_at_once(attacked: Attacked):
    """BUD-12."""
    attacker = attacked.peer()
    calls = [
        request(f"u{n}", "tools/call", {"name": f"tool_numbre_{n}" + "x" * (n % 40), "arguments": {}})
        for n in range(1000)
    ]

    def attack() -> None:
        for call in calls:
            attacker.send(call)
        attacker.wait_for(b'"u999"')

    before = attacked.vitals.look().cpu
    seen = attacked.suffer(attack)
    assert seen.cpu - before <= 1.5, "1.5 ms a request, the bystander's included"


@on(ALL)
def test_what_a_subscriber_names_is_bounded_and_ends_with_it(attacked: Attacked):
    """BUD-08."""
    attacker = attacked.bystander if attacked.carrier == "stateless" else attacked.peer()

    def attack() -> None:
        if attacked.carrier == "stateless":
            uris = [f"note://{n}" + "x" * 7000 for n in range(1500)]
            for n in range(10):
                listener = attacked.wire()
                params = {"notifications": {"resourceSubscriptions": uris}}
                listener.send(request(f"l{n}", "subscriptions/listen", params))
        else:
            for n in range(20_000):
                attacker.send(request(f"s{n}", "resources/subscribe", {"uri": f"note://{n}" + "x" * 5000}))
                if attacker.ended:
                    break
            attacker.send(request("long", "resources/subscribe", {"uri": "note://" + "x" * 10_000_000}))
        time.sleep(0.5)

    attacked.suffer(attack)
    if attacked.carrier != "stdio":
        attacked.settles()


@on(ALL)
@pytest.mark.parametrize("shape", ["lists", "objects", "numbers", "keys", "nested"])
def test_values_that_grow_when_they_are_decoded_are_weighed_first(attacked: Attacked, shape: str):
    """BUD-21."""
    size = 12_000_000
    values = {
        "lists": b"[" + b"[]," * (size // 3) + b"[]]",
        "objects": b"[" + b"{}," * (size // 3) + b"{}]",
        "numbers": b"[" + b"1," * (size // 2) + b"1]",
        "keys": b"{" + b",".join(b'"%d":0' % n for n in range(size // 10)) + b"}",
        "nested": b"[" + b"[[[[[]]]]]," * (size // 11) + b"[]]",
    }
    attacker = attacked.peer()
    head = b'{"jsonrpc":"2.0","id":"w","method":"tools/call","params":{"name":"hold","arguments":{"seconds":1,"value":'
    message = head + values[shape] + b"}}}"
    if attacked.carrier == "stateless":
        meta = json.dumps(
            {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
        ).encode()
        message = head.replace(b'"params":{', b'"params":{"_meta":%b,' % meta) + values[shape] + b"}}}"

    def attack() -> None:
        if attacked.carrier == "stateless":
            headers = b"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: hold\r\n"
            attacker.send_bytes(attacker.post(message, headers))  # type: ignore[attr-defined]
        else:
            attacker.send(message)
        time.sleep(0.5)

    attacked.suffer(attack)
    time.sleep(1)
    attacked.settles()
