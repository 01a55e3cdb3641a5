"""The peers that Ferrule is measured beside: where they are, and whether exactly the pinned version is there.

    python -m bench.peers            installs what is missing

They live in one folder: FERRULE_BENCH_PEERS, else FERRULE_PEERS, else `.peers` in the project. The installer and its
pins are those of the interoperability tests, so that both mean the same peers; what only the benchmark needs is pinned
here. Peers in Rust and Go are built by `bench.native`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from bench.native import NativePeer, build_all
from bench.places import PROJECT, peers_folder

INSTALLER = PROJECT / "tests" / "interop" / "install_peers.py"


@dataclass(frozen=True)
class PythonPeer:
    """A distribution from PyPI in a virtual environment of its own."""

    folder: str
    package: str
    version: str

    @property
    def interpreter(self) -> Path:
        """Which Python runs it."""
        return peers_folder() / self.folder / "bin" / "python"

    def installed(self) -> bool:
        """Return whether the pinned version is there."""
        home = peers_folder() / self.folder
        return any(home.glob(f"lib/python*/site-packages/{self.package}-{self.version}.dist-info"))


@dataclass(frozen=True)
class NodePeer:
    """A package from npm in a folder of its own, run by the pinned node."""

    folder: str
    package: str
    version: str

    @property
    def home(self) -> Path:
        """Which folder holds its node_modules."""
        return peers_folder() / self.folder

    def installed(self) -> bool:
        """Return whether the pinned version is there, and a node to run it."""
        manifest = self.home / "node_modules" / self.package / "package.json"
        return manifest.is_file() and json.loads(manifest.read_text())["version"] == self.version and node().exists()


Peer = PythonPeer | NodePeer | NativePeer

MCP2 = PythonPeer("mcp2", "mcp", "2.3.0")
MCP1 = PythonPeer("mcp1", "mcp", "1.30.0")
FASTMCP = PythonPeer("fastmcp", "fastmcp", "4.1.4")
TS1 = NodePeer("ts1", "@modelcontextprotocol/sdk", "1.32.2")
TS2 = NodePeer("ts2", "@modelcontextprotocol/server", "2.4.0")
MCP2_TUNED = PythonPeer("mcp2tuned", "mcp", "2.3.0")
TS2_HTTP = NodePeer("ts2http", "@modelcontextprotocol/server", "2.4.0")
PEERS: tuple[Peer, ...] = (MCP2, MCP1, FASTMCP, TS1, TS2, MCP2_TUNED, TS2_HTTP)

ONLY_HERE = {
    "mcp2tuned": ("python", ("mcp==2.3.0", "httptools==0.9.0", "uvloop==0.22.1")),
    "ts2http": ("npm", ("@modelcontextprotocol/server@2.4.0", "@modelcontextprotocol/node@2.1.2", "zod@4")),
}
"""Pins of peers as they are tuned, or completed, to be measured over HTTP."""


def node() -> Path:
    """Return which node runs the TypeScript peers: one installed beside them, in its own folder or with the 1.x SDK."""
    places = [peers_folder() / folder / "node_modules" / ".bin" / "node" for folder in ("node", "ts1")]
    return next((place for place in places if place.exists()), places[0])


def _installer() -> ModuleType:
    """Load the installer of the interoperability tests, with our own pins added."""
    spec = importlib.util.spec_from_file_location("install_peers", INSTALLER)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PINS.update({folder: module.Pins(kind, packages) for folder, (kind, packages) in ONLY_HERE.items()})
    return module


def install(peers: Iterable[Peer]) -> dict[Peer, str]:
    """Install those that are missing; gives why one cannot be had, which takes no part later."""
    missing = [peer for peer in peers if not peer.installed()]
    reasons: dict[Peer, str] = {**build_all(peer for peer in missing if isinstance(peer, NativePeer))}
    missing = [peer for peer in missing if not isinstance(peer, NativePeer)]
    folders = dict.fromkeys(peer.folder for peer in missing)
    if any(isinstance(peer, NodePeer) for peer in missing) and not node().exists():
        folders["node"] = None
    if folders:
        installer = _installer()
        for folder in folders:
            installer.report(folder, peers_folder())
    return reasons


def main() -> int:
    """Install every peer that is missing."""
    install(PEERS)
    print(f"the peers are in {peers_folder()}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
