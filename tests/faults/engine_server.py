"""Runs the HTTP engine with a handler that knows a few paths, as a process of its own.

engine_server.py '{"loop": "uvloop", "max_body_size": 4194304, "open_files": 128, "head_timeout": 0.3, ...}'

It prints its port. What it answers at /count tells what ran before.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import sys
from typing import Any

import uvloop

from ferrule.transports.http.engine.engine import Engine
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.transports.http.settings import EngineSettings

TEXT = b"content-type: text/plain\r\n"


class Handler:
    """Answers requests and counts them."""

    def __init__(self) -> None:
        self.ran: dict[str, int] = {}
        self.running = self.most_running = self.lost = 0

    def __call__(self, request: HttpRequest, responder: Responder) -> None:
        if request.path == "/count":
            responder.reply(200, TEXT, json.dumps(self.count()).encode())
            return
        self.ran[request.path] = self.ran.get(request.path, 0) + 1
        if request.path == "/slow":
            self.running += 1
            self.most_running = max(self.running, self.most_running)
            responder.watch(self.lose)
            asyncio.get_running_loop().call_later(0.02, self.end, request, responder)
        elif request.path == "/large":
            responder.reply(200, TEXT, bytes(int(request.query)))
        else:
            line = f"{request.method} {request.path}?{request.query} {len(request.body)}"
            responder.reply(200, TEXT, line.encode())

    def lose(self) -> None:
        self.lost += 1

    def end(self, request: HttpRequest, responder: Responder) -> None:
        self.running -= 1
        responder.reply(200, TEXT, f"slow {request.query}".encode())

    def count(self) -> dict[str, Any]:
        tasks = len(asyncio.all_tasks())
        files = len(os.listdir("/proc/self/fd"))
        return {"ran": self.ran, "most": self.most_running, "lost": self.lost, "tasks": tasks, "files": files}


async def main(options: dict[str, Any]) -> None:
    max_body_size = options.pop("max_body_size", 4 * 1024 * 1024)
    engine = Engine(Handler(), EngineSettings(port=0, **options), max_body_size=max_body_size)
    await engine.start()
    print(engine.address[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await engine.drain(1.0)


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    if "open_files" in given:
        resource.setrlimit(resource.RLIMIT_NOFILE, (given.pop("open_files"),) * 2)
    run = asyncio.run if given.pop("loop", "uvloop") == "asyncio" else uvloop.run
    run(main(given))
