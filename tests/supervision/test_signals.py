"""Signals: the first asks for an orderly end, the second ends the process at once."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from ferrule.supervision.signals import SIGNALS, Shutdown, hangup_signal

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the loop of Windows handles no signals")

PROGRAM = textwrap.dedent(
    """
    import asyncio
    import signal
    from ferrule.supervision.signals import Shutdown

    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # the tests may run under nohup

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


def start(then: str, stdin: int | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(then=then)]
    process = subprocess.Popen(command, stdin=stdin, stdout=subprocess.PIPE, text=True)
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


def test_a_hangup_does_not_end_a_service() -> None:
    """Without a terminal, SIGHUP is what asks a program to read its configuration again."""
    process = start(then="pass", stdin=subprocess.DEVNULL)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert output == "asked\ndone\n"
    assert process.returncode == 0


def test_a_server_ends_in_order_when_its_terminal_is_closed() -> None:
    ours, terminal = pty.openpty()
    process = start(then="pass", stdin=terminal)
    process.send_signal(signal.SIGHUP)
    output, _ = process.communicate(timeout=60)
    os.close(ours)
    os.close(terminal)
    assert output == "asked\ndone\n"
    assert process.returncode == 0


def test_a_hangup_that_is_ignored_already_stays_ignored() -> None:
    """`nohup` lets a server outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert hangup_signal() is None
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
        assert hangup_signal() == signal.SIGHUP
    finally:
        signal.signal(signal.SIGHUP, before)


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


def test_a_loop_that_handles_no_signals_is_told_of_them_by_python() -> None:
    """As on Windows; what handled them before handles them again afterwards."""
    before = signal.getsignal(signal.SIGTERM)

    class Loop(asyncio.SelectorEventLoop):
        def add_signal_handler(self, sig: int, callback: object, *args: object) -> None:
            raise NotImplementedError

        def remove_signal_handler(self, sig: int) -> bool:
            raise NotImplementedError

    async def main() -> None:
        stop = asyncio.Event()
        with Shutdown(asyncio.get_running_loop(), stop.set):
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait_for(stop.wait(), 10)

    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(main())
    assert signal.getsignal(signal.SIGTERM) is before
