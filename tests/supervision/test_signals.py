"""Signals: the first asks for an orderly end, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from ferrule.supervision.signals import SIGNALS, Shutdown

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the loop of Windows handles no signals")

PROGRAM = textwrap.dedent(
    """
    import asyncio
    from ferrule.supervision.signals import Shutdown

    async def main():
        stop = asyncio.Event()
        with Shutdown(asyncio.get_running_loop(), lambda: (print("asked", flush=True), stop.set())):
            print("ready", flush=True)
            await stop.wait()
            {then}
        print("done", flush=True)

    asyncio.run(main())
    """
)


def start(then: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", PROGRAM.format(then=then)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_asks_for_an_orderly_end(number: signal.Signals) -> None:
    """A real process ends by itself, with its own exit code."""
    process = start(then="pass")
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert output == "asked\ndone\n"
    assert process.returncode == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_the_second_signal_ends_the_process_at_once(number: signal.Signals) -> None:
    """However stuck it is: the exit code says which signal it was."""
    process = start(then="await asyncio.sleep(1000)")
    process.send_signal(number)
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    started = time.monotonic()
    process.send_signal(number)
    process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert time.monotonic() - started < 60


def test_what_was_installed_is_removed_again() -> None:
    async def scene() -> None:
        loop = asyncio.get_running_loop()
        asked: list[bool] = []
        with Shutdown(loop, lambda: asked.append(True)):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.sleep(0.05)
        assert asked == [True]
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

    asyncio.run(scene())


def test_a_loop_that_cannot_watch_signals_goes_on_without() -> None:
    """In another thread, or on a loop without them, there is just nothing to install."""

    async def scene() -> str:
        with Shutdown(asyncio.get_running_loop(), lambda: None):
            return "fine"

    async def elsewhere() -> str:
        return await asyncio.to_thread(lambda: asyncio.run(scene()))

    assert asyncio.run(elsewhere()) == "fine"
