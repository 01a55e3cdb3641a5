"""What a start costs before any of our code: the interpreter, and the libraries that every server of ours loads.

    python -m bench.cold_floor [--rounds 20]

Each line starts an interpreter that imports what it names, and nothing else. The last three answer `initialize` and end
with their input: msgspec and a blocking read, without an event loop; the flat sketch, the least a server on an event
loop is; and a server of ours with one tool. CPU and memory are those of the whole process, its end included, the least
of all rounds, which are run in turn; no process shows less memory than this one has when it starts it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

INITIALIZE = b"""{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25",\
"capabilities":{},"clientInfo":{"name":"floor","version":"0"}}}
"""

BLOCKING = """
import os
import msgspec

class Request(msgspec.Struct):
    id: int

request = msgspec.json.decode(os.read(0, 65536), type=Request)
result = b'{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"floor","version":"0"}}'
os.write(1, b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request.id, result) + bytes([10]))
"""

SERVER = """
from ferrule import Server

app = Server("floor")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

app.run()
"""

STARTS: dict[str, list[str]] = {
    "python -S": ["-S", "-c", "pass"],
    "python": ["-c", "pass"],
    "+ asyncio": ["-c", "import asyncio"],
    "+ uvloop": ["-c", "import asyncio, uvloop"],
    "+ msgspec": ["-c", "import asyncio, uvloop, msgspec"],
    "no event loop, initialize": ["-c", BLOCKING],
    "flat sketch, initialize": [str(Path(__file__).with_name("sketch.py"))],
    "a server of ours, initialize": ["-c", SERVER],
}


def started(arguments: list[str]) -> tuple[float, float]:
    """Start an interpreter and wait for its end. Return the milliseconds of CPU and the MiB it took."""
    process = subprocess.Popen([sys.executable, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin as asked, suppress(BrokenPipeError):
        asked.write(INITIALIZE)
        asked.flush()
    with process.stdout as answered:
        answer = answered.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or (_answers(arguments) and b'"serverInfo"' not in answer):
        raise SystemExit(f"{arguments} ended with {process.returncode} and said {answer!r}")
    return (usage.ru_utime + usage.ru_stime) * 1e3, usage.ru_maxrss / 1024


def _answers(arguments: list[str]) -> bool:
    """Whether a start is one that answers `initialize`."""
    return arguments in list(STARTS.values())[-3:]


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
