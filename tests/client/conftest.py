"""What the client's tests stand on: servers that say just what a test tells them, and a check that nothing is left."""

from __future__ import annotations

import asyncio
import gc
import inspect
import json
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from ferrule import Context, Server, ToolError
from ferrule.testing import run_in_virtual_time
from ferrule.wire.channel import Channel, Origin

PATIENCE = 120.0
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
LISTEN = "subscriptions/listen"
VERSIONS = {"handshake": "2025-11-25", "stateless": "2026-07-28"}
ALL_CAPABILITIES = {
    "tools": {"listChanged": True},
    "resources": {"subscribe": True, "listChanged": True},
    "prompts": {"listChanged": True},
    "completions": {},
    "logging": {},
}


class Refused(NamedTuple):
    """An error a raw server answers with."""

    code: int
    message: str = "no"
    data: Any = None


class RawServer:
    """A server in this process that answers each method with what the test put into `answers`: a result, a Refused,
    a function of the request that gives either, or nothing at all for None."""

    def __init__(self, era: str = "handshake", answers: dict[str, Any] | None = None, **facts: Any) -> None:
        self.capabilities = facts.get("capabilities", ALL_CAPABILITIES)
        self.version = facts.get("version", VERSIONS[era])
        self.answers: dict[str, Any] = {
            "initialize": self.initialize_result(),
            "server/discover": self.discover_result() if era == "stateless" else Refused(-32601, "Method not found"),
            "ping": {},
            **(answers or {}),
        }
        self.received: list[Any] = []
        self.channels: list[Channel] = []
        self.users = 0
        self._news = asyncio.Event()

    def initialize_result(self) -> dict[str, Any]:
        info = {"name": "raw", "version": "1"}
        return {"protocolVersion": self.version, "capabilities": self.capabilities, "serverInfo": info}

    def discover_result(self) -> dict[str, Any]:
        meta = {"io.modelcontextprotocol/serverInfo": {"name": "raw", "version": "1"}}
        facts = {"supportedVersions": [self.version], "capabilities": self.capabilities}
        return {"resultType": "complete", **facts, "ttlMs": 0, "cacheScope": "private", "_meta": meta}

    # what a listener needs of an acceptor, and a carrier of a receiver

    async def enter(self) -> None:
        self.users += 1

    async def leave(self) -> None:
        self.users -= 1

    async def drain(self, grace: float) -> None: ...

    def link(self, origin: Origin) -> RawServer:
        return self

    def channel_opened(self, channel: Channel) -> None:
        self.channels.append(channel)

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        message = json.loads(frame)
        self.received.append(message)
        self._news.set()
        if isinstance(message, dict) and "method" in message and "id" in message:
            answer = self.answers.get(message["method"])
            self.answer(message, answer(message) if callable(answer) else answer)

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None: ...
    def end_received(self, channel: Channel) -> None: ...
    def channel_lost(self, channel: Channel, error: Exception | None) -> None: ...

    # what a test does with it

    @property
    def channel(self) -> Channel:
        return self.channels[-1]

    def say(self, message: Any) -> None:
        """Send anything: bytes as they are, other values as JSON."""
        frame = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.channel.send(Raw(frame))

    def answer(self, request: dict[str, Any], answer: Any) -> None:
        reply = {"jsonrpc": "2.0", "id": request["id"]}
        if isinstance(answer, Refused):
            error = {"code": answer.code, "message": answer.message}
            self.say({**reply, "error": error if answer.data is None else {**error, "data": answer.data}})
        elif answer is not None:
            self.say({**reply, "result": answer})

    def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        self.say({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def update(self, uri: str) -> None:
        """Tell of a changed resource the way the server's era does."""
        listens = self.sent(LISTEN)
        meta = {"_meta": {SUBSCRIPTION: listens[-1]["id"]}} if listens else {}
        self.tell("notifications/resources/updated", {"uri": uri, **meta})

    def ask(self, method: str, params: dict[str, Any] | None = None, identity: Any = "q1") -> None:
        question = {"jsonrpc": "2.0", "id": identity, "method": method}
        self.say(question if params is None else {**question, "params": params})

    def sent(self, method: str) -> list[dict[str, Any]]:
        """Return the requests and notifications of a method that came from the client."""
        return [message for message in self.received if isinstance(message, dict) and message.get("method") == method]

    def replies(self) -> list[dict[str, Any]]:
        """Return what the client answered."""
        return [message for message in self.received if isinstance(message, dict) and "method" not in message]

    async def until(self, true: Callable[[], Any]) -> Any:
        """Wait until something the client sends makes the condition true, and give its value."""
        while not (value := true()):
            self._news.clear()
            await self._news.wait()
        return value

    async def heard(self, method: str, count: int = 1) -> dict[str, Any]:
        """Wait for the client's messages of a method, and give the last of that many."""
        await self.until(lambda: len(self.sent(method)) >= count)
        return self.sent(method)[count - 1]

    async def replied(self, identity: Any = "q1") -> dict[str, Any]:
        """Wait for the client's answer to one of our requests."""
        replies = await self.until(lambda: [reply for reply in self.replies() if reply.get("id") == identity])
        return replies[0]

    def die(self, error: Exception | None = None) -> None:
        """End the link, as a crash does when there is an error."""
        near, far = self.channel, self.channel.far  # type: ignore[attr-defined]
        far.lose(error)
        near.lose(None)


@pytest.fixture
def raw() -> type[RawServer]:
    return RawServer


@pytest.fixture
def listening(raw: type[RawServer]) -> Callable[..., RawServer]:
    """Return a raw server that takes subscriptions in an era."""

    def make(era: str, **more: Any) -> RawServer:
        quiet = ("resources/subscribe", "resources/unsubscribe", "logging/setLevel", "vendor/nothing")
        server = raw(era, {**{method: {} for method in quiet}, **more})

        def acknowledge(request: Any) -> None:
            wanted = request["params"]["notifications"]
            server.tell(ACKNOWLEDGED, {"_meta": {SUBSCRIPTION: request["id"]}, "notifications": wanted})

        server.answers.setdefault(LISTEN, acknowledge)
        return server

    return make


@pytest.fixture
def refused() -> type[Refused]:
    return Refused


@pytest.fixture
def app() -> Server:
    """A server with something of everything."""
    app = Server("notes", version="2.0", instructions="Use it well.", title="Notes")

    @app.tool
    async def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @app.tool
    async def fail(why: str) -> str:
        raise ToolError(why)

    @app.tool
    async def count(to: int, ctx: Context) -> str:
        for number in range(1, to + 1):
            await ctx.report_progress(number, to, f"number {number}")
        await ctx.info(f"counted to {to}", logger="counter")
        return "done"

    @app.tool
    async def wait() -> str:
        await asyncio.sleep(3600)
        return "late"

    @app.resource("notes://{number}")
    async def note(number: str) -> str:
        return f"note {number}"

    @app.resource("logo://small", mime_type="image/png")
    async def logo() -> bytes:
        return b"png"

    @app.prompt
    async def review(language: str, style: str = "short") -> str:
        """Ask for a review."""
        return f"Review this {language} code, {style}."

    @app.completion("review")
    async def languages(argument: str, value: str) -> list[str]:
        return [name for name in ("perl", "python", "rust") if name.startswith(value)]

    return app


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """A test leaves no descriptor, no process and no thread behind."""
    before = _held()
    yield
    deadline = time.monotonic() + 20
    while (left := _held() - before) and time.monotonic() < deadline:
        gc.collect()
        time.sleep(0.01)
    assert not left


def _held() -> set[str]:
    descriptors = {f"descriptor {fd}" for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{fd}")}
    children = {
        f"process {pid}"
        for task in os.listdir("/proc/self/task")
        for pid in _children(f"/proc/self/task/{task}/children")
    }
    threads = {f"thread {thread.name}" for thread in threading.enumerate()}
    return descriptors | children | threads


def _children(path: str) -> list[str]:
    try:
        with open(path) as file:
            return file.read().split()
    except OSError:
        return []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "virtual_time: an async test whose timers cost no time")


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test to its end, in virtual time when it is marked so, and find the tasks it left."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    if pyfuncitem.get_closest_marker("virtual_time"):
        run_in_virtual_time(_leaving_no_task(pyfuncitem.obj(**arguments)))
    else:
        asyncio.run(_leaving_no_task(asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE)))
    return True


async def _leaving_no_task(test: Awaitable[None]) -> None:
    await test
    for _ in range(3):
        await asyncio.sleep(0)
    left = asyncio.all_tasks() - {asyncio.current_task()}
    assert not left, f"left running: {left}"
