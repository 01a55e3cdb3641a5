"""Nodes that share a real Redis."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "cluster"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "stores"))
sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "faults"))

from cluster_fixtures import era, pytest_pyfunc_call, redis, redis_server

__all__ = ["era", "pytest_pyfunc_call", "redis", "redis_server"]
