"""Who takes part: each contestant's server command and the protocol generations it speaks."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from bench.machine import PROJECT
from bench.messages import Era
from bench.peers import FASTMCP, MCP1, MCP2, TS1, TS2, NodePeer, Peer, PythonPeer, node

BENCH = Path(__file__).resolve().parent
BOTH = (Era.HANDSHAKE, Era.STATELESS)

FERRULE, SKETCH = "ferrule", "flat-sketch"


@dataclass(frozen=True)
class Contestant:
    """One implementation in the race; `pair` is its driver for client and server in one process."""

    name: str
    command: tuple[str, ...]
    eras: tuple[Era, ...] = BOTH
    environment: dict[str, str] = field(default_factory=dict)
    peer: Peer | None = None
    pair: tuple[str, ...] | None = None

    @property
    def ready(self) -> bool:
        """Tell whether it can be started on this machine."""
        return self.peer is None or self.peer.installed()


def _script(name: str) -> str:
    return str(BENCH / name)


def _python_peer(name: str, peer: PythonPeer, server: str, eras: tuple[Era, ...], pair: str = "") -> Contestant:
    python = str(peer.interpreter)
    driver = (python, _script(pair)) if pair else None
    return Contestant(name, (python, _script(server)), eras, peer=peer, pair=driver)


def _node_peer(name: str, peer: NodePeer, server: str, eras: tuple[Era, ...]) -> Contestant:
    command = (str(node()), "--experimental-import-meta-resolve", "--no-warnings", _script(server))
    return Contestant(name, command, eras, {"BENCH_PEER_HOME": str(peer.home)}, peer)


def contestants() -> list[Contestant]:
    """List every contestant, installed or not, in the order of the tables."""
    own_source = {"PYTHONPATH": str(PROJECT / "src")}
    return [
        Contestant(
            FERRULE,
            (sys.executable, _script("servers/ferrule_server.py")),
            environment=own_source,
            pair=(sys.executable, _script("pairs/ferrule_pair.py")),
        ),
        Contestant(SKETCH, (sys.executable, _script("sketch.py"))),
        _node_peer("ts-sdk-1.32.2", TS1, "servers/ts1_server.mjs", (Era.HANDSHAKE,)),
        _node_peer("ts-server-2.4.0", TS2, "servers/ts2_server.mjs", BOTH),
        _python_peer("mcp-2.3.0", MCP2, "servers/mcp2_server.py", BOTH, "pairs/mcp2_pair.py"),
        _python_peer("fastmcp-4.1.4", FASTMCP, "servers/fastmcp_server.py", BOTH),
        _python_peer("mcp-1.30.0", MCP1, "servers/mcp1_server.py", (Era.HANDSHAKE,)),
    ]
