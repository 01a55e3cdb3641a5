"""Runs the Autobahn test suite against our WebSocket, as server and as client.

    python autobahn.py WSTEST [CASE ...]

WSTEST is the suite's program: it needs a Python 2.7 (`pip install virtualenv==20.15.1`, a virtual environment of that
Python, `pip install autobahntestsuite` in it). Without cases all are run, in about half an hour, and the page of
the documents is written anew; with some, such as `6.*`, what is not as it should be is printed only.
The echo is our channel with one method replaced: what it reads goes back as it came, with no JSON in between.
"""

from __future__ import annotations

import asyncio
import json
import platform
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

from autobahn_report import PAGE, SECTIONS, Verdicts, failed, page, remarks, table

from ferrule import Server
from ferrule.transports.websocket import client
from ferrule.transports.websocket import endpoint as door
from ferrule.transports.websocket.channel import WebSocketChannel
from ferrule.transports.websocket.client import WebSocketTransport
from ferrule.transports.websocket.deflate import WORTH_IT
from ferrule.transports.websocket.frames import BINARY, COMPRESSED, FIN, TEXT
from ferrule.transports.websocket.listener import WebSocket
from ferrule.transports.websocket.parser import Binary
from ferrule.wire.channel import Origin

AGENT = "ferrule"
OPTIONS = {"accept_binary": True, "compression": True}
PATIENT = {"init_timeout": None, "keepalive_interval": None}
"""The suite never says hello, and some cases take minutes on a busy machine."""


class Echo(WebSocketChannel):
    """Sends back what it receives."""

    def _receive(self, text: bytes) -> None:
        first, payload = FIN | (BINARY if type(text) is Binary else TEXT), bytes(text)
        if self._deflate is not None and len(payload) >= WORTH_IT:
            first, payload = first | COMPRESSED, self._deflate.deflate(payload)
        self._write(self._writer.frame(first, payload))


def judge(report: Path) -> dict[str, str]:
    """Return every case's worse half: how it behaved, and how it closed."""
    cases = next(iter(json.loads((report / "index.json").read_text()).values()))
    order = [
        "FAILED",
        "WRONG CODE",
        "UNCLEAN",
        "FAILED BY CLIENT",
        "NON-STRICT",
        "INFORMATIONAL",
        "UNIMPLEMENTED",
        "OK",
    ]
    return {name: min(case["behavior"], case["behaviorClose"], key=order.index) for name, case in cases.items()}


async def run(wstest: str, mode: str, spec: dict[str, Any], folder: Path) -> asyncio.subprocess.Process:
    file = folder / f"{mode}.json"
    file.write_text(json.dumps(spec))
    return await asyncio.create_subprocess_exec(
        wstest, "-m", mode, "-s", str(file), cwd=folder, stdout=asyncio.subprocess.DEVNULL
    )


async def judge_server(wstest: str, cases: list[str], folder: Path) -> dict[str, str]:
    listener, ready = WebSocket(port=0, **OPTIONS), asyncio.Event()
    serving = asyncio.ensure_future(listener.serve(Server("echo", **PATIENT).host, ready.set))
    await ready.wait()
    url = f"ws://127.0.0.1:{listener.address[1]}/mcp/ws"
    spec = {"outdir": "server", "servers": [{"agent": AGENT, "url": url}], "cases": cases, "exclude-cases": []}
    await (await run(wstest, "fuzzingclient", spec, folder)).wait()
    await listener.close(1)
    await serving
    return judge(folder / "server")


async def judge_client(wstest: str, cases: list[str], folder: Path, port: int = 9321) -> dict[str, str]:
    spec = {"url": f"ws://127.0.0.1:{port}", "outdir": "client", "cases": cases, "exclude-cases": []}
    server = await run(wstest, "fuzzingserver", spec, folder)
    here, link = f"ws://127.0.0.1:{port}", Server("echo", **PATIENT).link
    try:
        while not await _is_up(port):
            await asyncio.sleep(0.2)
        for case in range(1, await _count(f"{here}/getCaseCount") + 1):
            await _use(f"{here}/runCase?case={case}&agent={AGENT}", link(Origin("websocket")))
        await _use(f"{here}/updateReports?agent={AGENT}", link(Origin("websocket")))
    finally:
        server.terminate()
        await server.wait()
    return judge(folder / "client")


async def _is_up(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True


async def _use(url: str, receiver: Any) -> Any:
    transport = WebSocketTransport(url, **OPTIONS)
    channel = await transport.connect(receiver)
    await channel.wait_lost()
    await transport.close()
    return channel


async def _count(url: str) -> int:
    said: list[bytes] = []

    class Notifications(Echo):
        """Keeps what it receives; the echo itself is at work on the other side meanwhile."""

        def _receive(self, text: bytes) -> None:
            said.append(text)

    with patch.object(client, "WebSocketChannel", Notifications):
        await _use(url, Server("echo", **PATIENT).link(Origin("websocket")))
    return int(said[0])


def versions(wstest: str) -> str:
    """Say what was tested when, and with what: the results are of that commit, and hold for no later one."""
    told = subprocess.run([wstest, "-a"], capture_output=True, text=True, check=True)
    suite = ", ".join(" ".join(line.split()) for line in (told.stdout + told.stderr).splitlines() if line.strip())
    here = Path(__file__).parent
    described = ["git", "describe", "--always", "--dirty", "--abbrev=7"]
    commit = subprocess.run(described, cwd=here, capture_output=True, text=True, check=True).stdout.strip()
    today = datetime.now(UTC).date().isoformat()
    return f"Run on {today} at commit {commit} with {suite}, on Python {platform.python_version()}."


async def main(wstest: str, cases: list[str]) -> int:
    """Run both sides at once; gives how many cases failed."""
    chosen = cases or [f"{section}.*" for section in SECTIONS]
    with (
        patch.object(door, "WebSocketChannel", Echo),
        patch.object(client, "WebSocketChannel", Echo),
        tempfile.TemporaryDirectory() as one,
        tempfile.TemporaryDirectory() as other,
    ):
        judged = (judge_server(wstest, chosen, Path(one)), judge_client(wstest, chosen, Path(other)))
        sides: dict[str, Verdicts] = dict(zip(("server", "client"), await asyncio.gather(*judged), strict=True))
    for side, verdicts in sides.items():
        print(f"{side}\n{table(verdicts)}")
    print(remarks(sides))
    if not cases:
        PAGE.write_text(page(sides, versions(wstest)), encoding="utf-8")
    return sum(failed(verdict) for verdicts in sides.values() for verdict in verdicts.values())


if __name__ == "__main__":
    sys.exit(1 if asyncio.run(main(sys.argv[1], sys.argv[2:])) else 0)
