"""Who takes part: each contestant's server command and the protocol generations it speaks."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench.messages import JOIN, SUBSCRIBE, Era, Operation
from bench.native import GO_SDK, MCP_GO, RMCP, NativePeer
from bench.peers import FASTMCP, MCP1, MCP2, MCP2_TUNED, TS1, TS2, TS2_HTTP, NodePeer, Peer, PythonPeer, node
from bench.places import BENCH, PROJECT

BOTH = (Era.HANDSHAKE, Era.STATELESS)

FERRULE, SKETCH, CONSTANT = "ferrule", "flat-sketch", "constant-answer"
HTTP_SKETCH = "http-sketch"
EAGER_SKETCH, BARE_LOOP = "eager-sketch", "bare-loop"
TASK_FLOORS = (SKETCH, EAGER_SKETCH)
"""Servers on stdio that do next to nothing, but have a task for each call, so that it can wait."""
STDIO_FLOORS = (*TASK_FLOORS, BARE_LOOP)
OWN_STDIO, OWN_BARE, OWN_LAYER = "ferrule-stdio", "ferrule-bare", "ferrule-layer"
OWN_ROUTED = "ferrule-routed"
OWN_INLINE = "ferrule-inline"
"""Ourselves with the plain function of `call_sync` in the event loop, where rmcp runs it too."""
OWN_BEFORE = "ferrule-before"
OWN_CACHED, OWN_RS256, OWN_ES256 = "ferrule-cached", "ferrule-rs256", "ferrule-es256"
OWN_WORKERS = "ferrule-2-workers"
OWN_STORES = "ferrule-redis"
OWN_PROTECTED = (OWN_CACHED, OWN_RS256, OWN_ES256)
RS256_ALONE, ES256_ALONE = "rs256 alone", "es256 alone"
RS256_INSIDE, ES256_INSIDE = "rs256 in a call", "es256 in a call"
YARDSTICKS = (
    *STDIO_FLOORS,
    HTTP_SKETCH,
    CONSTANT,
    OWN_STDIO,
    OWN_BARE,
    OWN_LAYER,
    OWN_ROUTED,
    OWN_INLINE,
    OWN_BEFORE,
    OWN_WORKERS,
    OWN_STORES,
    *OWN_PROTECTED,
    RS256_ALONE,
    ES256_ALONE,
    RS256_INSIDE,
    ES256_INSIDE,
)
"""What is no peer: servers that do next to nothing, parts, and ourselves in other circumstances."""

RUST, GO, GO_TOO = "rmcp-3.8.0", "go-sdk-1.8.0", "mcp-go-1.2.1"
NATIVE_NAMES = (RUST, GO, GO_TOO)

V8_WARM_UP = 3.0
"""V8 goes on optimising an HTTP server for some six seconds, three times the warm-up of a full run."""


def is_python(name: str) -> bool:
    """Return whether a contestant of that name is written in Python."""
    return not name.startswith(("ts-", *NATIVE_NAMES))


def is_native(name: str) -> bool:
    """Return whether a contestant of that name is a program of machine code, in Rust or Go."""
    return name.startswith(NATIVE_NAMES)


@dataclass(frozen=True)
class Contestant:
    """One implementation in the race; `pair` is the driver of its client, beside its own server or against a URL."""

    name: str
    command: tuple[str, ...]
    eras: tuple[Era, ...] = BOTH
    environment: dict[str, str] = field(default_factory=dict)
    peer: Peer | None = None
    pair: tuple[str, ...] | None = None
    joining: Operation = JOIN
    tells_listeners: bool = True
    """Whether `subscriptions/listen` leads to anything: one peer keeps such streams and tells them nothing."""
    warm_up: float = 1.0
    """How many times the usual warm-up it needs before its figures stand still."""

    @property
    def ready(self) -> bool:
        """Whether it can be started on this machine."""
        return self.peer is None or self.peer.installed()

    def listened_to(self, era: Era) -> bool:
        """Return whether it tells open streams of updates in that era."""
        return era in self.eras and (era is not Era.STATELESS or self.tells_listeners)


def _script(name: str) -> str:
    return str(BENCH / name)


def _python_peer(name: str, peer: PythonPeer, server: str, eras: tuple[Era, ...], pair: str = "") -> Contestant:
    python = str(peer.interpreter)
    driver = (python, _script(pair)) if pair else None
    return Contestant(name, (python, _script(server)), eras, peer=peer, pair=driver)


def _node_peer(name: str, peer: NodePeer, server: str, eras: tuple[Era, ...], warm_up: float = 1.0) -> Contestant:
    command = (str(node()), "--experimental-import-meta-resolve", "--no-warnings", _script(server))
    return Contestant(name, command, eras, {"BENCH_PEER_HOME": str(peer.home)}, peer, warm_up=warm_up)


def ferrule() -> Contestant:
    """Return ourselves."""
    return Contestant(
        FERRULE,
        (sys.executable, _script("servers/ferrule_server.py")),
        environment={"PYTHONPATH": str(PROJECT / "src")},
        pair=(sys.executable, _script("pairs/ferrule_pair.py")),
        joining=SUBSCRIBE,
    )


def before(checkout: Path) -> Contestant:
    """Return ourselves as we were: another checkout of this project, run by the same Python."""
    source = checkout.resolve() / "src"
    if not (source / "ferrule").is_dir():
        raise SystemExit(f"--before {checkout}: there is no src/ferrule in it; give a checkout of this project")
    return replace(ferrule(), name=OWN_BEFORE, environment={"PYTHONPATH": str(source)})


def inline() -> Contestant:
    """Return ourselves with a plain function that runs where its call was read, without a thread."""
    own = ferrule()
    return replace(own, name=OWN_INLINE, command=(*own.command, "--inline"))


def layered() -> list[Contestant]:
    """Return ourselves without middleware, past all composition, and with a layer that only passes on."""
    own = ferrule()
    variants = {OWN_BARE: "--bare", OWN_LAYER: "--layers=1"}
    return [own, *(replace(own, name=name, pair=(*own.pair, option)) for name, option in variants.items())]


def routed() -> list[Contestant]:
    """Return ourselves with one server, and with a client that routes each call to one of two."""
    own = ferrule()
    return [own, replace(own, name=OWN_ROUTED, pair=(*own.pair, "--targets=2"))]


def contestants() -> list[Contestant]:
    """List who takes part over stdio and in memory, installed or not, in the order of the tables."""
    own_source = {"PYTHONPATH": str(PROJECT / "src")}
    return [
        ferrule(),
        inline(),
        Contestant(SKETCH, (sys.executable, _script("sketch.py"))),
        Contestant(EAGER_SKETCH, (sys.executable, _script("eager_sketch.py")), environment=own_source),
        Contestant(BARE_LOOP, (sys.executable, _script("bare_loop.py"))),
        _node_peer("ts-sdk-1.32.2", TS1, "servers/ts1_server.mjs", (Era.HANDSHAKE,)),
        _node_peer("ts-server-2.4.0", TS2, "servers/ts2_server.mjs", BOTH),
        _python_peer("mcp-2.3.0", MCP2, "servers/mcp2_server.py", BOTH, "pairs/mcp2_pair.py"),
        _python_peer("fastmcp-4.1.4", FASTMCP, "servers/fastmcp_server.py", BOTH, "pairs/fastmcp_pair.py"),
        _python_peer("mcp-1.30.0", MCP1, "servers/mcp1_server.py", (Era.HANDSHAKE,), "pairs/mcp1_pair.py"),
    ]


def http_contestants() -> list[Contestant]:
    """List who takes part over HTTP: of each line of peers the fastest, tuned as far as its users can."""
    return [
        ferrule(),
        Contestant(CONSTANT, (sys.executable, _script("servers/constant_server.py"))),
        Contestant(HTTP_SKETCH, (sys.executable, _script("http_sketch.py")), joining=SUBSCRIBE),
        _node_peer("ts-sdk-1.32.2", TS1, "servers/ts1_server.mjs", (Era.HANDSHAKE,), V8_WARM_UP),
        _node_peer("ts-server-2.4.0", TS2_HTTP, "servers/ts2_server.mjs", BOTH, V8_WARM_UP),
        _python_peer("mcp-2.3.0+httptools+uvloop", MCP2_TUNED, "servers/mcp2_server.py", BOTH, "pairs/mcp2_pair.py"),
    ]


def native_contestants() -> list[Contestant]:
    """List the peers in Rust and Go; the third tells every session of an update, so that joining is a formality."""
    return [
        _native_peer(RUST, RMCP, SUBSCRIBE),
        _native_peer(GO, GO_SDK, SUBSCRIBE),
        replace(_native_peer(GO_TOO, MCP_GO, JOIN), tells_listeners=False),
    ]


def _native_peer(name: str, peer: NativePeer, joining: Operation) -> Contestant:
    return Contestant(name, (str(peer.program),), peer=peer, joining=joining)


def chosen_by(only: Sequence[str], name: str) -> bool:
    """Return whether a contestant of that name takes part, where some are named by how they begin."""
    return not only or name.startswith(tuple(only))


def asked_for_native(only: Sequence[str]) -> bool:
    """Return whether a peer in Rust or Go is among those that are named: it is not built otherwise."""
    return bool(only) and any(chosen_by(only, name) for name in NATIVE_NAMES)
