"""What is measured over Streamable HTTP: calls, lists, fan-out, idle sessions, and clients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from bench.contestants import CONSTANT, HTTP_SKETCH, Contestant, ferrule
from bench.machine import allow_many_sockets
from bench.messages import LISTED_TOOLS, OPERATIONS, OWN_TOOLS, SIZES, echo_of
from bench.process import HOST
from bench.results import Results
from bench.rounds import FAILURES, Case, Pace, progress, race
from bench.scenarios import run_pairs
from bench.streamable.fanout import STREAMS, FanOut, StreamingServer
from bench.streamable.lives import Exchanges, NewConnections, WholeSessions
from bench.streamable.load import HttpLoad
from bench.streamable.server import HttpServer
from bench.streamable.sessions import measure_sessions
from bench.streamable.wire import PATH, Mode

IDLE_CASE = "opened and idle"
CONNECT_CASE = f"{Mode.STATELESS.label} connect, call, close"
LIFE_CASE = f"{Mode.JSON.label} connect, initialize, call, DELETE, close"
LARGE = "10 MB"
FAN_OUT_MODES = (Mode.STATELESS, Mode.SSE)


@dataclass(frozen=True)
class HttpScenario:
    """One operation over HTTP."""

    name: str
    operation: str
    modes: tuple[Mode, ...]
    connections: tuple[int, ...]
    extra_tools: int = 0
    yardstick: bool = False
    """Whether the constant answer takes part."""


LOADS = (
    HttpScenario("http_call", "call", (Mode.JSON, Mode.STATELESS), (32, 256), yardstick=True),
    HttpScenario("http_sse", "call", (Mode.SSE,), (32, 256)),
    HttpScenario("http_list", "list", (Mode.JSON, Mode.STATELESS), (1,), LISTED_TOOLS - OWN_TOOLS),
)
LIVES = ("http_connect", "http_life", "http_echo")
HTTP = (*(load.name for load in LOADS), *LIVES, "http_fanout", "http_sessions", "http_client")


def case_name(mode: Mode, connections: int) -> str:
    """Name a case of a load scenario."""
    return f"{mode.label} x{connections}"


def fan_out_case(mode: Mode) -> str:
    """Name a case of the fan-out."""
    return f"{mode.era} to {STREAMS} streams"


def run_http(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Run the scenarios over HTTP that are named."""
    allow_many_sockets()
    for load in LOADS:
        if load.name in names:
            _run_load(load, field, pace, results)
    _run_lives(names, _but_constant(field), pace, results)
    if "http_fanout" in names:
        _run_fan_out(_real(field), pace, results)
    if "http_sessions" in names:
        _run_sessions(_but_constant(field), pace, results)
    if "http_client" in names:
        _run_clients(_real(field), pace, results)


def _real(field: list[Contestant]) -> list[Contestant]:
    return [contestant for contestant in field if contestant.name not in (CONSTANT, HTTP_SKETCH)]


def _but_constant(field: list[Contestant]) -> list[Contestant]:
    """Return those who take part where connections and sessions begin and end."""
    return [contestant for contestant in field if contestant.name != CONSTANT]


def _run_load(load: HttpScenario, field: list[Contestant], pace: Pace, results: Results) -> None:
    runners = _real(field)
    if load.yardstick:
        runners = [one for one in field if one.name != HTTP_SKETCH]
    for mode in load.modes:
        speakers = [contestant for contestant in runners if mode.era in contestant.eras]
        cases = [_case(load, mode, connections) for connections in load.connections]
        start = partial(HttpServer, mode=mode, extra_tools=load.extra_tools)
        race(speakers, start, cases, pace, results)


def _case(load: HttpScenario, mode: Mode, connections: int) -> Case[HttpServer]:
    operation = OPERATIONS[load.operation]
    return Case(load.name, case_name(mode, connections), lambda server: HttpLoad(server, operation, connections))


def _run_lives(names: list[str], field: list[Contestant], pace: Pace, results: Results) -> None:
    """Run what is asked one by one: short lives, and large messages."""
    if "http_connect" in names:
        speakers = [contestant for contestant in field if Mode.STATELESS.era in contestant.eras]
        case = Case("http_connect", CONNECT_CASE, NewConnections)
        race(speakers, partial(HttpServer, mode=Mode.STATELESS), [case], pace, results)
    if "http_life" in names:
        case = Case("http_life", LIFE_CASE, WholeSessions)
        race(field, partial(HttpServer, mode=Mode.JSON), [case], pace, results)
    if "http_echo" in names:
        operation = echo_of(SIZES[LARGE])
        case = Case("http_echo", f"{Mode.JSON.label} {LARGE} x1", lambda server: Exchanges(server, operation))
        race(_real(field), partial(HttpServer, mode=Mode.JSON, more=True), [case], pace, results)


def _run_fan_out(field: list[Contestant], pace: Pace, results: Results) -> None:
    for mode in FAN_OUT_MODES:
        speakers = [contestant for contestant in field if contestant.listened_to(mode.era)]
        case = Case("http_fanout", fan_out_case(mode), FanOut)
        race(speakers, partial(StreamingServer, mode=mode), [case], pace, results)


def _run_sessions(field: list[Contestant], pace: Pace, results: Results) -> None:
    for round_number in range(1, pace.rounds + 1):
        progress(f"http_sessions: round {round_number}")
        for contestant in field:
            try:
                row = measure_sessions(contestant, pace.warm_up)
            except FAILURES as error:
                results.fail(f"{contestant.name} http_sessions", error)
                continue
            results.add("http_sessions", IDLE_CASE, contestant.name, round_number, row)


def _run_clients(field: list[Contestant], pace: Pace, results: Results) -> None:
    """Let every client call one and the same server: ours, for it holds none of them up."""
    try:
        server = HttpServer(ferrule(), Mode.STATELESS)
    except FAILURES as error:
        results.fail("the server of http_client", error)
        return
    try:
        run_pairs("http_client", OPERATIONS["call"], field, pace, results, f"http://{HOST}:{server.port}{PATH}")
    finally:
        server.close()
