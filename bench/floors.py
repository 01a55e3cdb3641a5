"""What Ferrule must reach: each floor as a figure of a run and the limit it is held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial

from bench.contestants import (
    CONSTANT,
    ES256_INSIDE,
    FERRULE,
    OWN_BARE,
    OWN_CACHED,
    OWN_ES256,
    OWN_LAYER,
    OWN_ROUTED,
    OWN_RS256,
    OWN_STDIO,
    RS256_INSIDE,
    is_native,
    is_python,
)
from bench.core_ops import PARTS, Part
from bench.messages import Era
from bench.results import Results
from bench.scenarios import COLD_CASE, case_name
from bench.sockets.idle import CONNECTIONS
from bench.sockets.scenarios import IDLE_CASE as IDLE_CONNECTIONS
from bench.streamable import protected, stored, storm, workers
from bench.streamable.scenarios import FAN_OUT_MODES, IDLE_CASE, fan_out_case
from bench.streamable.scenarios import case_name as http_case
from bench.streamable.sessions import SESSIONS, STREAMS
from bench.streamable.wire import Mode
from bench.watched import METRICS, RECEIPTS, TRACING

BEST_PEER = "the best peer"
"""In Python or TypeScript: those in Rust and Go are not in every run, and have a table of their own."""
BEST_PYTHON_PEER = "the best Python peer"

ONE, MANY = case_name(Era.HANDSHAKE, 1), case_name(Era.HANDSHAKE, 64)


class OwnFigureMissing(Exception):
    """Ferrule was asked for a figure and gave none."""


@dataclass(frozen=True)
class Verdict:
    """One floor in one run: `met` is None where a peer's figure is missing."""

    text: str
    limit: float
    figure: float | None
    met: bool | None

    def row(self) -> dict:
        """Return the verdict as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Floor:
    """A figure and its limit; applies to runs of its scenario only."""

    scenario: str
    text: str
    limit: float
    figure: Callable[[Results], float | None]
    at_most: bool = False

    def judge(self, results: Results) -> Verdict:
        """Hold a run to the limit."""
        try:
            figure = self.figure(results)
        except OwnFigureMissing:
            return Verdict(self.text, self.limit, None, False)
        if figure is None:
            return Verdict(self.text, self.limit, None, None)
        met = figure <= self.limit if self.at_most else figure >= self.limit
        return Verdict(self.text, self.limit, round(figure, 2), met)


def _own(results: Results, scenario: str, case: str, name: str) -> float:
    best = results.best(scenario, case, FERRULE)
    if name not in best:
        raise OwnFigureMissing
    return best[name]


def _rival(results: Results, scenario: str, case: str, rival: str, name: str) -> float | None:
    if rival == BEST_PEER:
        return results.best_peer(scenario, case, name, lambda peer: not is_native(peer))
    if rival == BEST_PYTHON_PEER:
        return results.best_peer(scenario, case, name, is_python)
    return results.best(scenario, case, rival).get(name)


def _times(scenario: str, case: str, rival: str, limit: float, what: str) -> Floor:
    """Ask that a rival's CPU per operation is at least so many times ours."""

    def figure(results: Results) -> float | None:
        own, other = _own(results, scenario, case, "cpu_us"), _rival(results, scenario, case, rival, "cpu_us")
        return None if other is None else other / own

    return Floor(scenario, f"{what}: CPU of {rival}, times ours", limit, figure)


def _within(scenario: str, case: str, rival: str, limit: float, what: str) -> Floor:
    """Ask that our CPU per operation is at most so many times a rival's."""

    def figure(results: Results) -> float | None:
        least = _rival(results, scenario, case, rival, "cpu_us")
        return None if least is None else _own(results, scenario, case, "cpu_us") / least

    return Floor(scenario, f"{what}: our CPU, times the {rival}", limit, figure, at_most=True)


def _http_floors() -> list[Floor]:
    """Return the floors of calls at each number of connections."""
    floors = []
    for connections in (32, 256):
        json, sse = http_case(Mode.JSON, connections), http_case(Mode.SSE, connections)
        stateless = http_case(Mode.STATELESS, connections)
        floors += [
            _times("http_call", json, BEST_PEER, 10, f"HTTP call, {json}"),
            _times("http_call", json, BEST_PYTHON_PEER, 18, f"HTTP call, {json}"),
            _times("http_call", stateless, BEST_PEER, 15, f"HTTP call, {stateless}"),
            _within("http_call", json, CONSTANT, 3, f"HTTP call, {json}"),
            _within("http_call", stateless, CONSTANT, 3, f"HTTP call, {stateless}"),
            _times("http_sse", sse, BEST_PEER, 8, f"HTTP call, {sse}"),
        ]
    return floors


def _socket_floors() -> list[Floor]:
    """Return the floors of calls over TCP and WebSocket, and of idle connections."""
    kept = partial(_own, scenario="tcp_idle", case=IDLE_CONNECTIONS)
    memory, answering = partial(kept, name="connection_kb"), partial(kept, name="answering")
    return [
        _within("tcp", MANY, OWN_STDIO, 1.3, "TCP call, 64 in flight"),
        _within("ws", MANY, OWN_STDIO, 2, "WebSocket call, 64 in flight"),
        _times("ws", MANY, "mcp-2.3.0", 25, "WebSocket call, 64 in flight, against stdio"),
        Floor("tcp_idle", "TCP: resident KB of an idle connection", 6, memory, at_most=True),
        Floor("tcp_idle", "TCP: idle connections that answer", CONNECTIONS, answering),
    ]


def _layer_price() -> Floor:
    """Return what a layer of middleware that only passes on costs."""

    def figure(results: Results) -> float | None:
        layer = _rival(results, "middleware", "x1", OWN_LAYER, "cpu_us")
        return None if layer is None else layer - _own(results, "middleware", "x1", "cpu_us")

    return Floor("middleware", "one layer of middleware that passes on, µs", 2, figure, at_most=True)


def _routed_share(limit: float) -> Floor:
    """Return what a call costs that goes to one of two servers, beside a direct one."""

    def figure(results: Results) -> float | None:
        routed = _rival(results, "routed", "x1", OWN_ROUTED, "cpu_us")
        return None if routed is None else routed / _own(results, "routed", "x1", "cpu_us")

    return Floor("routed", "in memory, routed to one of two: CPU, times a direct call", limit, figure, at_most=True)


def _protected_share(name: str, limit: float) -> Floor:
    """Return what a call costs that shows a token, beside one that needs none."""
    text = f"HTTP call, {name}: CPU, times an unprotected call"
    return Floor(protected.SCENARIO, text, limit, lambda results: protected.share(results, name), at_most=True)


def _beside_signature(name: str, inside: str, limit: float) -> Floor:
    """Return what a call costs whose token is checked, beside one that verifies a signature and nothing else."""
    text = f"HTTP call, {name}: CPU, times that of {inside}"
    return Floor(protected.SCENARIO, text, limit, lambda results: protected.share(results, name, inside), at_most=True)


def _worker_floors() -> list[Floor]:
    """Return what a call costs with two workers beside one process, and what it costs to hand a connection over."""
    text = "HTTP call, two workers on free cores: rate by CPU of a call, times one process"
    handed = "HTTP, a connection handed over to another worker: CPU, µs"
    return [
        Floor(workers.SCENARIO, text, 1.7, workers.rate),
        Floor(workers.SCENARIO, handed, 200, workers.hand_over, at_most=True),
    ]


def _stored_share(limit: float) -> Floor:
    """Return what a call costs whose session is in Redis too, at the node that has it."""
    text = "HTTP call, session in Redis: CPU, times one that is not"
    return Floor(stored.SCENARIO, text, limit, stored.share, at_most=True)


def _storm(other: str, limit: float) -> Floor:
    """Return how much longer a good caller waits beside 64 bad ones than in another case."""
    text = f"HTTP call, {storm.BAD}: wait of a good caller, times {other}"
    return Floor(storm.SCENARIO, text, limit, lambda results: storm.slowed(results, other), at_most=True)


def _session_memory(limit: float) -> Floor:
    text = "HTTP: resident KB of an idle session"
    figure = partial(_own, scenario="http_sessions", case=IDLE_CASE, name="session_kb")
    return Floor("http_sessions", text, limit, figure, at_most=True)


def _still_answering() -> Floor:
    text = "HTTP: idle sessions and open streams that answer, all held at once"
    figure = partial(_own, scenario="http_sessions", case=IDLE_CASE, name="answering")
    return Floor("http_sessions", text, SESSIONS + STREAMS, figure)


def _cold_share(rival: str, limit: float) -> Floor:
    def figure(results: Results) -> float | None:
        own, other = _own(results, "cold", COLD_CASE, "cpu_ms"), _rival(results, "cold", COLD_CASE, rival, "cpu_ms")
        return None if other is None else own / other * 100

    return Floor("cold", f"cold start: our CPU, % of {rival}", limit, figure, at_most=True)


def _cold_memory(limit: float) -> Floor:
    text = "cold start: resident MiB"
    return Floor("cold", text, limit, lambda results: _own(results, "cold", COLD_CASE, "rss_mib"), at_most=True)


def _rate(part: Part) -> Floor:
    text = f"{part.name}, per s ({part.seed})"
    return Floor(
        "core_ops", text, float(part.published or 0), lambda results: _own(results, "core_ops", part.name, "per_s")
    )


def _watched(feature: str, limit: float) -> Floor:
    """Return what a feature adds to a call over stdio that nobody watches."""
    figure = partial(_own, scenario="watched", case=feature, name="over_plain")
    return Floor("watched", f"stdio call {feature}: more CPU than without, %", limit, figure, at_most=True)


def _watched_price(feature: str, limit: float) -> Floor:
    """Return the same in microseconds, of the thread that answers."""
    figure = partial(_own, scenario="watched", case=feature, name="more_us")
    return Floor("watched", f"stdio call {feature}: more CPU than without, µs", limit, figure, at_most=True)


FLOORS = (
    _times("call", MANY, "mcp-2.3.0", 45, "stdio call, 64 in flight"),
    _times("call", MANY, "ts-sdk-1.32.2", 1.5, "stdio call, 64 in flight"),
    _times("call", ONE, "mcp-2.3.0", 9, "stdio call, 1 in flight"),
    _times("call", ONE, "ts-sdk-1.32.2", 1, "stdio call, 1 in flight"),
    _times("list", ONE, BEST_PEER, 60, "list of 1000 tools"),
    _cold_share("mcp-1.30.0", 30),
    _cold_memory(30),
    _times("memory", "x1", "mcp-2.3.0", 25, "in memory, 1 in flight"),
    _times("memory", "x64", "mcp-2.3.0", 25, "in memory, 64 in flight"),
    _times("search", ONE, BEST_PYTHON_PEER, 9, "stdio call with a nested argument, 1 in flight"),
    _times("search", MANY, BEST_PYTHON_PEER, 20, "stdio call with a nested argument, 64 in flight"),
    _times("search_memory", "x1", BEST_PYTHON_PEER, 20, "in memory, nested argument, 1 in flight"),
    _times("search_memory", "x64", BEST_PYTHON_PEER, 20, "in memory, nested argument, 64 in flight"),
    _within("middleware", "x1", OWN_BARE, 1.1, "in memory, middleware not used"),
    _layer_price(),
    _routed_share(1.3),
    _protected_share(OWN_CACHED, 1.2),
    _protected_share(OWN_RS256, 3.5),
    _beside_signature(OWN_RS256, RS256_INSIDE, 1.4),
    _beside_signature(OWN_ES256, ES256_INSIDE, 1.25),
    *_worker_floors(),
    _stored_share(1.15),
    _storm(storm.ALONE, 1.5),
    _storm(storm.GOOD, 1.5),
    *_socket_floors(),
    *_http_floors(),
    _times("http_list", http_case(Mode.JSON, 1), BEST_PEER, 60, "HTTP list of 1000 tools"),
    _times("http_list", http_case(Mode.STATELESS, 1), BEST_PEER, 60, "HTTP list of 1000 tools, 2026-07-28"),
    *(
        _times("http_fanout", fan_out_case(mode), BEST_PEER, 3, f"update, {fan_out_case(mode)}")
        for mode in FAN_OUT_MODES
    ),
    _session_memory(1.5),
    _still_answering(),
    _times("http_client", "x64", BEST_PEER, 15, "HTTP client, 64 in flight"),
    _watched(METRICS, 10),
    _watched(TRACING, 5),
    _watched_price(RECEIPTS, 8),
    *(_rate(part) for part in PARTS if part.is_floor),
)


def judge(results: Results, scenarios: list[str]) -> list[Verdict]:
    """Judge the floors of the scenarios that were run."""
    return [floor.judge(results) for floor in FLOORS if floor.scenario in scenarios]
