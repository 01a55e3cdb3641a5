"""A transport of somebody else's is one file and one row: then it is served, reached and chosen by name."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from tests.carriers.toy import ToyListener, ToyTransport

from ferrule.testing import ERAS
from ferrule.testing.carrier_kit import Carrier, FarSide, Stand, carrier_tests, relayed, serving

HERE = Path(__file__).parent
PATIENCE = 60

SERVER = """
from ferrule import Server

app = Server("nursery")

@app.tool
async def add(a: int, b: int) -> int:
    return a + b

if __name__ == "__main__":
    app.run("toy")
"""

CLIENT = """
import asyncio
import sys

from ferrule import Client

async def main() -> None:
    async with Client(sys.argv[1], mode=sys.argv[2]) as client:
        print((await client.call_tool("add", {"a": 1, "b": 2})).data)

asyncio.run(main())
"""

REGISTERING = """
from ferrule.transports.registry import register
from toy import TOY

register(TOY)
"""


class Toy(Carrier):
    name = "toy"
    lacks: ClassVar = {"half-close": "either side closes both directions"}
    newline_framed = True
    after_oversize = "closed"

    @asynccontextmanager
    async def stand(self, far: FarSide, max_message_size: int) -> AsyncIterator[Stand]:
        listener = ToyListener(limit=max_message_size)
        async with serving(listener, far), relayed(listener.address) as relay:
            host, port = relay.address
            yield Stand(
                transport=lambda limit: ToyTransport(f"toy://{host}:{port}", limit),
                listener=listener,
                cut=relay.cut,
                hold=relay.hold,
                release=relay.release,
                wire=lambda: asyncio.open_connection(*listener.address),
            )


test_it_keeps_the_rules = carrier_tests(Toy())


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """An environment in which a package that offers the toy is installed."""
    about = tmp_path / "site" / "toy-1.0.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[ferrule.transports]\ntoy = toy:TOY\n")
    return {**os.environ, "PYTHONPATH": os.pathsep.join([str(about.parent), str(HERE)])}


@pytest.fixture
def beside(installed: dict[str, str]) -> dict[str, str]:
    """An environment in which its file can be imported, and nothing more."""
    return {**installed, "PYTHONPATH": str(HERE)}


@contextmanager
def running(*command: str, env: dict[str, str], cwd: Path) -> Iterator[str]:
    """Start a server, and give the address it announces; it ends in order."""
    process = subprocess.Popen(
        [sys.executable, *command], env=env, cwd=cwd, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("nursery serves MCP at toy://127.0.0.1:"), said
        yield said.split()[4].removesuffix(".")
        process.terminate()
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def finished(*command: str, env: dict[str, str], cwd: Path = HERE) -> subprocess.CompletedProcess[str]:
    """Run something to its end."""
    whole = [sys.executable, *command]
    return subprocess.run(whole, env=env, cwd=cwd, capture_output=True, text=True, timeout=PATIENCE, check=False)


def call_over(address: str, era: str, env: dict[str, str], cwd: Path, before: str = "") -> str:
    (cwd / "client.py").write_text(before + CLIENT)
    done = finished("client.py", address, era, env=env, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("era", ERAS)
def test_an_installed_one_is_served_by_run_and_reached_by_its_address(
    installed: dict[str, str], tmp_path: Path, era: str
) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    with running("server.py", env=installed, cwd=tmp_path) as address:
        assert call_over(address, era, installed, tmp_path) == "3"


@pytest.mark.parametrize("name", ["toy", "plaything"])
def test_the_command_line_serves_an_installed_one(installed: dict[str, str], tmp_path: Path, name: str) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    command = ("-m", "ferrule", "run", "server.py", "--transport", name)
    with running(*command, env=installed, cwd=tmp_path) as address:
        assert call_over(address, "auto", installed, tmp_path) == "3"


def test_the_command_line_offers_an_installed_one(installed: dict[str, str], beside: dict[str, str]) -> None:
    command = ("-m", "ferrule", "run", "--help")
    assert "toy     lines on a socket, for play" in finished(*command, env=installed).stdout
    assert "toy" not in finished(*command, env=beside).stdout


def test_one_that_is_registered_by_hand_is_known_as_well(beside: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(REGISTERING + SERVER)
    with running("server.py", env=beside, cwd=tmp_path) as address:
        assert call_over(address, "auto", beside, tmp_path, before=REGISTERING) == "3"


def test_one_nobody_installed_is_named_as_unknown(beside: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "server.py").write_text(SERVER)
    done = finished("server.py", env=beside, cwd=tmp_path)
    assert "unknown transport 'toy': there are stdio, http, streamable-http" in done.stderr
