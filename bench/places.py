"""Where things are: this folder, the project, and the peers."""

from __future__ import annotations

import os
from pathlib import Path

BENCH = Path(__file__).resolve().parent
PROJECT = BENCH.parent


def peers_folder() -> Path:
    """Return where the peers are, or belong."""
    chosen = os.environ.get("FERRULE_BENCH_PEERS") or os.environ.get("FERRULE_PEERS")
    return Path(chosen).expanduser().resolve() if chosen else PROJECT / ".peers"
