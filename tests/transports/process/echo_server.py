"""A real stdio server for the tests: answers every request, and misbehaves on demand.

echo_server.py [asyncio | uvloop] [silent]
"""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import uvloop

from ferrule.errors import CarrierError
from ferrule.transports.process.stdio import Stdio
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.codec import decode
from ferrule.wire.messages import ErrorObject, Failure, Notification, Request, Success


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def print_everywhere() -> None:
    print("stray print")
    sys.stdout.buffer.write(b"stray buffer\n")
    print("stray original stdout", file=sys.__stdout__)
    os.write(1, b"stray descriptor\n")
    subprocess.run(["echo", "stray child"], check=True)
    ctypes.CDLL(None).puts(b"stray C library")
    faulthandler.dump_traceback()


class Echo:
    def __init__(self) -> None:
        self.running: set[asyncio.Task[None]] = set()
        self.children: list[subprocess.Popen[bytes]] = []

    def link(self, origin: Origin) -> Echo:
        assert origin.carrier == "stdio"
        return self

    async def enter(self) -> None: ...
    async def leave(self) -> None: ...
    async def drain(self, grace: float) -> None:
        if self.running:
            await asyncio.wait(self.running, timeout=grace)

    def channel_opened(self, channel: Channel) -> None: ...

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        message = decode(frame)
        if isinstance(message, Request):
            params = msgspec.json.decode(message.params)
            if message.method == "slow":
                task = asyncio.get_running_loop().create_task(self.answer_later(message.id, params, channel))
                self.running.add(task)
                task.add_done_callback(self.running.discard)
            else:
                channel.send(Success(message.id, self.answer(message.method, params)))

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        channel.send(Failure(None, ErrorObject(-32012, "too large", {"maxSize": max_size, "rss": resident_bytes()})))

    def end_received(self, channel: Channel) -> None:
        if "silent" not in sys.argv:
            channel.send(Notification("end"))

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        print("lost", type(error).__name__, file=sys.stderr)

    async def answer_later(self, identity: int | str, params: dict[str, Any], channel: Channel) -> None:
        await asyncio.sleep(params["seconds"])
        channel.send(Success(identity, {}))

    def answer(self, method: str, params: dict[str, Any]) -> Any:
        match method:
            case "echo":
                return params
            case "rss":
                return resident_bytes()
            case "threads":
                return sorted(os.listdir("/proc/self/task"))
            case "print":
                print_everywhere()
            case "chatter":
                sys.stderr.write(("x" * 99 + "\n") * (params["size"] // 100))
            case "environ":
                return {"env": dict(os.environ), "argv": sys.argv, "cwd": os.getcwd()}
            case "spawn":
                script = "trap '' TERM; while :; do sleep 600; done" if params.get("deaf") else "exec sleep 600"
                self.children.append(subprocess.Popen(["sh", "-c", script]))
                return self.children[-1].pid
        return {}


def main() -> int:
    stdio = Stdio()
    stdio.claim()
    factory = uvloop.new_event_loop if "uvloop" in sys.argv[1:2] else asyncio.new_event_loop
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(stdio.serve(Echo(), lambda: None))
    except CarrierError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
