"""Run the peers' programs against each other, to know that they are right before ours are judged by them.

Usage: python tests/interop/cross_check.py [--client PEER] [--server PEER] [--transport stdio|http]
       [--verbose]
"""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import matrix
import peer_programs


def problems(run: matrix.Run, seen: dict[str, Any]) -> dict[str, Any]:
    """The features that were observed otherwise than the matrix says."""
    wanted = [feature for feature in matrix.FEATURES if matrix.gap(run, feature) is None]
    found = {feature: seen.get(feature, "not observed") for feature in wanted}
    return {feature: value for feature, value in found.items() if value != matrix.expected(run, feature)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--client", action="append", choices=(*matrix.PEERS, matrix.OURS))
    parser.add_argument("--server", action="append", choices=(*matrix.PEERS, matrix.OURS))
    parser.add_argument("--transport", action="append", choices=matrix.TRANSPORTS)
    parser.add_argument("--verbose", action="store_true", help="print what was observed otherwise")
    options = parser.parse_args()
    clients, servers = options.client or matrix.PEERS, options.server or matrix.PEERS
    every = [
        run
        for transport in options.transport or matrix.TRANSPORTS
        for client in clients
        for server in servers
        for run in matrix.runs_of(client, server, transport)
    ]
    failed = 0
    with ThreadPoolExecutor(max_workers=max(2, os.cpu_count() or 2)) as pool:
        for run, seen in zip(every, pool.map(peer_programs.observe, every), strict=True):
            wrong = problems(run, seen)
            failed += bool(wrong)
            verdict = "ok" if not wrong else "differs: " + ", ".join(wrong)
            revision = f"{run.version}{' auto' if run.finds_out else ''}"
            print(f"{run.transport:5}  {run.client:8} -> {run.server:8} {revision:15}  {verdict}", flush=True)
            for feature, value in wrong.items() if options.verbose else ():
                print(f"    {feature}: {str(value)[:400]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
