"""Peers in Rust and Go: small servers beside ours, built where their tools are, and only where they are asked for.

    python -m bench.native            builds what is missing

Each is built in a folder of its own beside the other peers, with a marker that holds the digest of its source, so that
a second call does nothing and a changed source is built again. One job at the lowest priority is all that is taken.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from bench.places import BENCH, peers_folder

BUILD_SECONDS = 3600
POLITELY = ("nice", "-n", "19")
SOURCES = (".rs", ".go", ".toml", ".lock", ".mod", ".sum")


class BuildFailed(Exception):
    """One sentence that says why a peer is not there."""


@dataclass(frozen=True)
class NativePeer:
    """A server whose source is in a folder below bench/servers, and the tool that makes a program of it."""

    folder: str
    tool: str

    @property
    def source(self) -> Path:
        """Where it is written."""
        return BENCH / "servers" / self.folder

    @property
    def home(self) -> Path:
        """Where it is built."""
        return peers_folder() / self.folder

    @property
    def program(self) -> Path:
        """What is run."""
        return self.home / f"{self.folder}_server"

    def installed(self) -> bool:
        """Return whether the program of just this source is there."""
        marker = self.home / "ready"
        return self.program.is_file() and marker.is_file() and marker.read_text() == self.digest()

    def digest(self) -> str:
        """Return what changes with the source and with nothing else."""
        found = hashlib.sha256(self.tool.encode())
        for path in sorted(self.source.rglob("*")):
            if path.suffix in SOURCES:
                found.update(path.relative_to(self.source).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
        return found.hexdigest() + "\n"


RMCP = NativePeer("rmcp", "cargo")
GO_SDK = NativePeer("gosdk", "go")
MCP_GO = NativePeer("mcpgo", "go")
NATIVE = (RMCP, GO_SDK, MCP_GO)


def build_all(peers: Iterable[NativePeer]) -> dict[NativePeer, str]:
    """Build those that are missing; gives why one cannot be had."""
    reasons = {}
    for peer in peers:
        if not peer.installed():
            try:
                build(peer)
            except BuildFailed as error:
                reasons[peer] = str(error)
    return reasons


def build(peer: NativePeer) -> None:
    """Build a peer, or raise BuildFailed."""
    tool = shutil.which(peer.tool)
    if tool is None:
        raise BuildFailed(f"{peer.tool} is not on this machine")
    print(f"{peer.folder}: {peer.tool} builds it, at the lowest priority; this takes minutes", file=sys.stderr)
    peer.home.mkdir(parents=True, exist_ok=True)
    (peer.home / "ready").unlink(missing_ok=True)
    if peer.tool == "cargo":
        target = peer.home / "target"
        options = ["--quiet", "--release", "--locked", "--jobs", "1"]
        _run([tool, "build", *options], peer.source, {"CARGO_TARGET_DIR": str(target)})
        shutil.copy2(target / "release" / peer.program.name, peer.program)
        shutil.rmtree(target)
    else:
        options = ["-trimpath", "-p", "1", "-o", str(peer.program)]
        _run([tool, "build", *options, "."], peer.source, {"CGO_ENABLED": "0"})
    (peer.home / "ready").write_text(peer.digest())


def _run(command: list[str], folder: Path, told: dict[str, str]) -> None:
    politely = POLITELY if shutil.which(POLITELY[0]) else ()
    try:
        done = subprocess.run(
            [*politely, *command],
            cwd=folder,
            env={**os.environ, **told},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{Path(command[0]).name} took longer than {BUILD_SECONDS} s") from None
    if done.returncode:
        words = (done.stderr or done.stdout).strip().splitlines() or ["without a word"]
        raise BuildFailed(f"{Path(command[0]).name} failed: {words[-1].strip()}")


def main() -> int:
    """Build what is missing; 1 where something cannot be had."""
    reasons = build_all(NATIVE)
    for peer in NATIVE:
        print(f"{peer.folder}: {reasons.get(peer, 'ready')}")
    return 1 if reasons else 0


if __name__ == "__main__":
    raise SystemExit(main())
