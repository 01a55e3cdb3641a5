"""What a start costs before any of our code: the interpreter, and the libraries that every server of ours loads.

    python -m bench.cold_floor [--rounds 20]

Each line starts an interpreter that imports what it names, and nothing else; the last one makes a server with one tool.
CPU and memory are those of the whole process, the least of all rounds, which are run in turn.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

SERVER = """
from ferrule import Server

app = Server("floor")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b
"""

STARTS: dict[str, list[str]] = {
    "python -S": ["-S", "-c", "pass"],
    "python": ["-c", "pass"],
    "+ asyncio": ["-c", "import asyncio"],
    "+ uvloop": ["-c", "import asyncio, uvloop"],
    "+ msgspec": ["-c", "import asyncio, uvloop, msgspec"],
    "+ a server of ours": ["-c", "import asyncio, uvloop, msgspec" + SERVER],
}


def started(arguments: list[str]) -> tuple[float, float]:
    """Start an interpreter and wait for its end. Return the milliseconds of CPU and the MiB it took."""
    process = subprocess.Popen([sys.executable, *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{arguments} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_maxrss / 1024


def main() -> None:
    """Print the least each start took."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    rounds = parser.parse_args().rounds
    seen: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for _ in range(rounds):
        for name, arguments in STARTS.items():
            seen[name].append(started(arguments))
    print("| start | CPU ms | MiB |\n|---|---|---|")
    for name, figures in seen.items():
        milliseconds = min(cpu for cpu, _ in figures)
        mebibytes = min(memory for _, memory in figures)
        print(f"| {name} | {milliseconds:.0f} | {mebibytes:.1f} |")


if __name__ == "__main__":
    main()
