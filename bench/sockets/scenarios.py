"""What is measured over TCP and WebSocket: calls, beside stdio in the same rounds, and idle connections."""

from __future__ import annotations

from dataclasses import replace

from bench.contestants import FERRULE, OWN_BEFORE, OWN_STDIO, Contestant
from bench.machine import allow_many_sockets
from bench.messages import OPERATIONS, Era
from bench.pipeline import Conversation, Load
from bench.results import Results
from bench.rounds import FAILURES, Case, Pace, progress, race
from bench.scenarios import case_name
from bench.sockets.idle import measure_idle
from bench.sockets.servers import TcpServer, WebSocketServer
from bench.stdio import Server

CARRIERS = {"tcp": TcpServer, "ws": WebSocketServer}
IN_FLIGHT = (1, 64)
SOCKETS = (*CARRIERS, "tcp_idle")
IDLE_CASE = "opened and idle"


def socket_field(stdio: list[Contestant]) -> list[Contestant]:
    """Choose, from who takes part over stdio, ourselves twice, over both carriers, and the peer we are held to."""
    own = [one for one in stdio if one.name == FERRULE]
    rivals = [one for one in stdio if one.name == "mcp-2.3.0"]
    before = [one for one in stdio if one.name == OWN_BEFORE]
    return [*before, *own, *(replace(one, name=OWN_STDIO) for one in own), *rivals]


def run_sockets(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Run the scenarios over sockets that are named."""
    for name, carrier in CARRIERS.items():
        if name in names:
            _run_calls(name, carrier, field, pace, results)
    if "tcp_idle" in names:
        _run_idle([one for one in field if one.name == FERRULE], pace, results)


def _run_calls(name: str, carrier: type[TcpServer], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Race the carrier against stdio: only ours goes over it, for no peer has it."""

    def start(contestant: Contestant) -> Conversation:
        return (carrier if contestant.name in (FERRULE, OWN_BEFORE) else Server)(contestant, Era.HANDSHAKE)

    operation = OPERATIONS["call"]
    cases = [
        Case(name, case_name(Era.HANDSHAKE, count), lambda server, count=count: Load(server, operation, count))
        for count in IN_FLIGHT
    ]
    race(field, start, cases, pace, results)


def _run_idle(field: list[Contestant], pace: Pace, results: Results) -> None:
    allow_many_sockets()
    for round_number in range(1, pace.rounds + 1):
        progress(f"tcp_idle: round {round_number}")
        for contestant in field:
            try:
                row = measure_idle(contestant, pace.warm_up)
            except FAILURES as error:
                results.fail(f"{contestant.name} tcp_idle", error)
                continue
            results.add("tcp_idle", IDLE_CASE, contestant.name, round_number, row)
