"""What takes the place of POSIX pipes and process groups on Windows, tried with the pipes of this system."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ferrule.transports.process.windows import ProcessGroup, ThreadedPipes

LARGE = bytes(range(256)) * 8192


class Listener(asyncio.Protocol):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.told: list[str] = []
        self.ended = asyncio.Event()
        self.lost = asyncio.Event()
        self.error: Exception | None = None

    def data_received(self, data: bytes) -> None:
        self.data += data

    def eof_received(self) -> bool:
        self.ended.set()
        return True

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.error = exc
        self.lost.set()


class Wire:
    """Two pipes to a transport, and their far ends."""

    def __init__(self) -> None:
        self.listener = Listener()
        near_read, self.far_write = os.pipe()
        self.far_read, near_write = os.pipe()
        self.transport = ThreadedPipes(near_read, near_write, self.listener)

    def read_all(self) -> bytes:
        """Read at the far end until nothing follows."""
        with open(self.far_read, "rb") as far:
            return far.read()


async def gone() -> None:
    """Wait until the threads of a transport have ended."""
    async with asyncio.timeout(10):
        while [each for each in threading.enumerate() if each.name.startswith(("ferrule-reader", "ferrule-writer"))]:
            await asyncio.sleep(0.005)


async def test_what_is_written_arrives_whole_and_in_order_and_nothing_is_left() -> None:
    wire = Wire()
    wire.transport.write(LARGE)
    wire.transport.writelines([b"and", b"", b" more"])
    assert wire.listener.told == ["pause"]
    wire.transport.close()
    arrived = await asyncio.to_thread(wire.read_all)
    assert arrived == LARGE + b"and more"
    await asyncio.wait_for(wire.listener.lost.wait(), 10)
    assert (wire.listener.told, wire.listener.error) == (["pause", "resume"], None)
    os.close(wire.far_write)
    await gone()


async def test_what_comes_is_read_until_its_end_and_not_while_reading_is_paused() -> None:
    wire = Wire()
    wire.transport.pause_reading()
    os.write(wire.far_write, b"one")
    wire.transport.resume_reading()
    os.write(wire.far_write, b" two")
    os.close(wire.far_write)
    await asyncio.wait_for(wire.listener.ended.wait(), 10)
    assert wire.listener.data == b"one two"
    # Its end is no end of what we write.
    wire.transport.write(b"still here")
    wire.transport.close()
    assert await asyncio.to_thread(wire.read_all) == b"still here"
    await asyncio.wait_for(wire.listener.lost.wait(), 10)
    await gone()


async def test_a_peer_that_stops_reading_is_an_error_and_never_blocks_the_loop() -> None:
    wire = Wire()
    wire.transport.write(LARGE)
    # The thread waits in its write, and the loop does not.
    await asyncio.sleep(0.01)
    os.close(wire.far_read)
    await asyncio.wait_for(wire.listener.lost.wait(), 10)
    assert isinstance(wire.listener.error, BrokenPipeError)
    os.close(wire.far_write)
    await gone()


@pytest.mark.parametrize("demand", ["ask_to_end", "kill"])
def test_a_child_is_ended_once(demand: str) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        group = ProcessGroup(process)
        assert group.remains()
        assert getattr(group, demand)()
        process.wait(10)
        assert not group.remains()
        assert not getattr(group, demand)()


def test_nothing_of_it_is_imported_here() -> None:
    code = "import sys, ferrule.transports.process.child; print('ferrule.transports.process.windows' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"


def test_client_and_server_talk_as_they_do_on_windows() -> None:
    """Both sides of stdio, in both generations, with a child that fails; workers are refused in one sentence."""
    program = Path(__file__).with_name("pretended_windows.py")
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = done.stdout.splitlines()
    assert len(said) == 2
    assert "exited with code 1 before it sent anything; its last words on stderr: so it goes" in said[0]
    assert "Python has none on Windows: leave workers out" in said[1]
