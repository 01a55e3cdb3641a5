"""Probes of child processes, real ones, and of what is kept of what they say."""

from __future__ import annotations

import asyncio
from typing import Any
from unittest import mock

from table import period, probe

from ferrule.transports.process import child
from ferrule.transports.process.child import ChildProcess, StderrLines
from ferrule.transports.process.group import ProcessGroup
from ferrule.wire.messages import Notification


class Ear:
    """A receiver that notes the first message, and the end."""

    def __init__(self) -> None:
        self.heard = asyncio.Event()
        self.lost = asyncio.Event()

    def channel_opened(self, channel: Any) -> None: ...

    def frame_received(self, frame: bytes, channel: Any) -> None:
        self.heard.set()

    def end_received(self, channel: Any) -> None: ...

    def channel_lost(self, channel: Any, error: Exception | None) -> None:
        self.lost.set()


@period("ChildProcess(grace=…)", lowered=2.0)
async def a_child_that_does_not_end(lasts: float, seconds: float) -> bool:
    """So long from the end of its stdin to SIGTERM, and as long again to SIGKILL."""
    done: list[str] = []

    def noted(name: str) -> Any:
        real = getattr(ProcessGroup, name)

        def note(group: ProcessGroup) -> Any:
            done.append(name)
            return real(group)

        return mock.patch.object(ProcessGroup, name, note)

    ear = Ear()
    transport = ChildProcess(["sh", "-c", "trap '' TERM; echo 1; while :; do sleep 1; done"], grace=lasts)
    await transport.connect(ear)  # type: ignore[arg-type]
    await ear.heard.wait()
    with noted("ask_to_end"), noted("kill"):
        closing = asyncio.ensure_future(transport.close())
        await asyncio.wait([closing], timeout=seconds)
        asked = "ask_to_end" in done
        await asyncio.wait([closing], timeout=lasts)
        assert ("kill" in done) is asked
        await closing
    return not asked


@probe("ferrule.transports.process.child.TAIL_SIZE", clamps=True)
async def last_words(limit: int, size: int) -> bool:
    ear = Ear()
    said = f"head -c {size} /dev/zero | tr '\\0' x >&2"
    transport = ChildProcess(["sh", "-c", said], stderr="capture")
    await transport.connect(ear)  # type: ignore[arg-type]
    await ear.lost.wait()
    await transport.close()
    return transport.stderr_tail == "x" * size


@probe("ferrule.transports.process.child.LINE_SIZE", lowered=1000, clamps=True)
async def a_line(limit: int, size: int) -> bool:
    """However the reads fall, and with an end or without."""
    whole = set()
    with mock.patch.object(child, "LINE_SIZE", limit):
        for read in (700, size + 10):
            taken: list[str] = []
            lines = StderrLines(taken.append)
            text = b"x" * size + b"\n" + b"y" * size
            for at in range(0, len(text), read):
                lines(text[at : at + read])
            lines(b"")
            assert all(len(line) <= limit for line in taken)
            assert "".join(taken) == "x" * size + "y" * size
            whole.add(taken == ["x" * size, "y" * size])
    assert len(whole) == 1
    return whole.pop()


@period("ferrule.transports.process.child.SETTLE_TIME")
async def silence_after_the_end(lasts: float, seconds: float) -> bool:
    """A child that has ended, and has left somebody behind who could still speak for it."""
    ear = Ear()
    transport = ChildProcess(["sh", "-c", "setsid sh -c 'echo 1; exec sleep 1' & read line"])
    channel = await transport.connect(ear)  # type: ignore[arg-type]
    await ear.heard.wait()
    channel.send(Notification("end"))
    while transport.exit_code is None:
        await asyncio.sleep(0)
    lost = asyncio.ensure_future(ear.lost.wait())
    await asyncio.wait([lost], timeout=seconds)
    still = not lost.done()
    await transport.close()
    await lost
    return still
