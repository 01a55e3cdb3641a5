"""A client of ours and the hostile server it talks to: answers, and what nobody asked for."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

from fuzz_wires import HttpExchange, Wire, WireLoop, ws_accept, ws_frame
from grammar import NEWEST, Message, sample, success
from mutate import Case
from resource_oracle import Cost

from ferrule import Client
from ferrule.errors import FerruleError, ToolError
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.transports.process.child import ChildProcess
from ferrule.transports.stream import StreamChannel
from ferrule.wire.channel import Receiver

PATIENCE = 10.0
HOSTILE_ID = 987654321
"""The id in hostile answers; it is replaced by that of the request."""

URLS = {"tcp": "tcp://127.0.0.1:5000", "websocket": "ws://127.0.0.1:5000/mcp", "http": "http://127.0.0.1:5000/mcp"}
URLS["sse"] = URLS["http"]
URLS["child"] = "stdio"

Operation = Callable[[Client], Awaitable[Any]]
OPERATIONS: dict[str, Operation] = {
    "ping": lambda client: client.ping(),
    "tools/list": lambda client: client.list_tools(),
    "tools/call": lambda client: client.call_tool("text", {"a": 1}, raise_on_error=False),
    "resources/list": lambda client: client.list_resources(),
    "resources/templates/list": lambda client: client.list_resource_templates(),
    "resources/read": lambda client: client.read_resource("note://7"),
    "prompts/list": lambda client: client.list_prompts(),
    "prompts/get": lambda client: client.get_prompt("greet", {"name": "you"}),
    "completion/complete": lambda client: client.complete("greet", {"name": "name", "value": "y"}),
    "logging/setLevel": lambda client: client.set_log_level("info"),
    "tasks/list": lambda client: client.list_tasks(),
    "tasks/get": lambda client: client.get_task("6f1a"),
    "tasks/cancel": lambda client: client.cancel_task("6f1a"),
    "initialize": lambda client: client.ping(),
    "server/discover": lambda client: client.list_tools(),
}
"""What makes a client ask for each method; the openings happen when it connects."""

HANDSHAKE_ONLY = ("initialize", "ping", "logging/setLevel", "tasks/list")
STATELESS_ONLY = ("server/discover",)
OPENINGS = ("initialize", "server/discover")


def methods(era: str) -> list[str]:
    """Return the methods whose answers a client of an era reads."""
    left_out = STATELESS_ONLY if era == "handshake" else HANDSHAKE_ONLY
    return [method for method in OPERATIONS if method not in left_out]


def hostile_answers(era: str) -> list[Message]:
    """Return a good answer to each method, to be spoilt; and an error."""
    made = [
        Message(f"answer to {method}", good_answer(method, HOSTILE_ID, full=True), method) for method in methods(era)
    ]
    error = {"code": -32602, "message": "no", "data": {"supported": ["1"], "requested": "2", "a": [1]}}
    made += [
        Message(f"refusal of {method}", {"jsonrpc": "2.0", "id": HOSTILE_ID, "error": error}, method)
        for method in ("tools/call", "tools/list")
    ]
    return made


def good_answer(method: str, number: Any, *, full: bool = False) -> dict[str, Any]:
    """Return an answer that a client can go on with."""
    if method == "initialize":
        capabilities = sample(ServerCapabilities)
        result = {
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "serverInfo": {"name": "s", "version": "1"},
            "instructions": "text",
        }
        return {"jsonrpc": "2.0", "id": number, "result": result}
    if method == "server/discover":
        result = {
            "resultType": "complete",
            "supportedVersions": [NEWEST],
            "capabilities": sample(ServerCapabilities),
            "instructions": "text",
        }
        return {"jsonrpc": "2.0", "id": number, "result": result}
    if method not in METHODS:
        return {"jsonrpc": "2.0", "id": number, "result": {}}
    answer = success(METHODS[method], number, full=full)
    if method == "tools/call":
        answer["result"]["isError"] = False
    answer["result"].pop("nextCursor", None)
    return answer


class WiredChild(ChildProcess):
    """A child process whose stdout and stdin are a wire: all that reads them is the real thing."""

    def __init__(self, loop: WireLoop) -> None:
        super().__init__(["nobody"])
        self._loop = loop
        self._channel: StreamChannel | None = None

    async def connect(self, receiver: Receiver) -> StreamChannel:
        """Connect a channel as `ChildProcess` does."""
        self._channel = self.new_channel(receiver)
        wire = Wire(self._loop, self._channel, {})
        self._loop.dialed.append(wire)
        self._channel.connection_made(wire)
        return self._channel

    async def close(self, grace: float | None = None) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()


class ClientTarget:
    """A client over one kind of wire; every request is answered well, but for the one a case is about."""

    def __init__(self, loop: WireLoop, kind: str, era: str) -> None:
        self.loop = loop
        self.kind = kind
        self.era = era
        self.name = f"client {kind} {era}"
        self.client: Client | None = None
        self.strange: str = ""
        """What a call raised that is no error of ours."""
        self._sound = True
        """Whether what was asked last is answered in a way that must end the call."""
        self.looking = 0.0
        """Seconds of CPU that went into looking whether anything has happened."""
        self.idle_at = self.end = 0.0
        self._hostile: tuple[str, bytes] | None = None
        self._beside: bytes = b""
        self._wires: dict[Wire, HttpExchange] = {}
        self.fed = self.written = 0
        self.answers = 0

    async def start(self) -> None:
        """Nothing to do: the server is this object."""

    async def stop(self) -> None:
        """Close the client."""
        await self._close()

    async def _close(self) -> None:
        client, self.client = self.client, None
        if client is not None:
            closing = asyncio.ensure_future(client.__aexit__(None, None, None))
            await self._serve(closing)
        for wire in self._wires:
            wire.hang_up()
        self._wires.clear()
        await asyncio.sleep(0)

    async def open(self) -> None:
        """Make sure a client is connected."""
        if self.client is not None and any(not wire.closed for wire in self._wires):
            return
        await self._close()
        await self._connect()

    async def _connect(self) -> None:
        async def answer(*_: Any) -> Any:
            return {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}

        async def elicit(*_: Any) -> Any:
            return {"action": "decline"}

        target: Any = WiredChild(self.loop) if self.kind == "child" else URLS[self.kind]
        client = Client(
            target,
            mode=self.era,  # type: ignore[arg-type]
            request_timeout=PATIENCE,
            tool_timeout=PATIENCE,
            reconnect=False,
            sampling=answer,
            elicitation=elicit,
            roots=["file:///tmp"],
        )
        self.loop.dialed.clear()
        opening = asyncio.ensure_future(client.__aenter__())
        await self._serve(opening)
        self._note(opening)
        if not opening.cancelled() and opening.exception() is None:
            self.client = client

    def _note(self, done: asyncio.Future[Any]) -> None:
        error = done.exception() if not done.cancelled() else None
        if error is not None and not isinstance(error, FerruleError | ToolError | TimeoutError):
            self.strange = f"{type(error).__name__}: {str(error)[:200]}"

    async def _serve(self, work: asyncio.Future[Any]) -> bool:
        """Answer what the client asks until some work of it is done. Return whether it was done in time."""
        looks = 0
        while True:
            self._answer_all()
            if work.done():
                return True
            await asyncio.sleep(0)
            if not self.loop.idle or work.done() or any(wire.pending or wire.written for wire in self._wires):
                continue
            if not looks:
                self.idle_at = time.process_time() - self.looking
            looks += 1
            if looks > (5000 if self._sound else 5):
                self.end = self.idle_at
                work.cancel()
                await asyncio.wait([work])
                return not self._sound
            before = time.thread_time()
            await asyncio.sleep(0.001)
            self.looking += time.thread_time() - before

    def _answer_all(self) -> None:
        """Answer what was asked; the time that takes is the hostile server's."""
        before = time.thread_time()
        self._answer_each()
        self.looking += time.thread_time() - before

    def _answer_each(self) -> None:
        while self.loop.dialed:
            wire = self.loop.dialed.popleft()
            self._wires[wire] = HttpExchange("http" if self.kind in ("http", "sse") else self.kind)
        for wire, asked in list(self._wires.items()):
            if wire.closed:
                del self._wires[wire]
            elif wire.written:
                self._answer(wire, asked)

    def _answer(self, wire: Wire, asked: HttpExchange) -> None:
        if self.kind == "websocket" and wire.written[0].startswith(b"GET "):
            wire.feed(ws_accept(wire.take()))
            return
        self.written += sum(map(len, wire.written))
        messages = asked.requests(wire)
        if asked.closed:
            wire.hang_up()
        for message in messages:
            if "method" in message and "id" in message:
                self._reply(wire, message)
            else:
                self.answers += "id" in message
                if self.kind in ("http", "sse"):
                    wire.feed(b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % (_status(message),))

    def _reply(self, wire: Wire, request: dict[str, Any]) -> None:
        hostile = self._hostile
        beside, self._beside = self._beside, b""
        if hostile is not None and request["method"] == hostile[0]:
            self._hostile = None
            frame = hostile[1].replace(b"%d" % HOSTILE_ID, json.dumps(request["id"]).encode())
            self._sound = answers(frame, request["id"])
        else:
            frame = json.dumps(good_answer(request["method"], request["id"])).encode()
        data = self.encode(frame)
        if beside and self.kind == "sse":
            data = sse_answer([beside, frame])
        self.fed += len(data)
        wire.feed(data)

    def encode(self, frame: bytes) -> bytes:
        """Write a frame as the bytes of this wire."""
        if self.kind in ("tcp", "child"):
            return frame + b"\n"
        if self.kind == "websocket":
            return ws_frame(frame)
        if self.kind == "sse":
            return sse_answer([frame])
        return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
            len(frame),
            frame,
        )

    async def run(self, case: Case, number: int) -> Cost:
        """Bring a case: as the answer to its method, or, without a method, as it is. Return what it cost."""
        opening = case.method in OPENINGS
        if opening:
            await self._close()
        else:
            await self.open()
            assert self.client is not None
            self.client.cache.clear()
        self.strange = ""
        self._sound = True
        self.looking = self.end = 0.0
        self.fed = self.written = self.answers = 0
        frame = case.numbered(number)
        before = time.process_time()
        if opening:
            self._hostile = (case.method, frame)
            await self._connect()
            self.in_time = True
        elif case.method:
            self._hostile = (case.method, frame)
            await self._operate(case.method)
        elif self.kind == "sse":
            self._beside = frame
            await self._operate("tools/list")
        else:
            self._unasked(frame)
            await self._settle()
        cpu = self.end - before if self.end else time.process_time() - before - self.looking
        self._hostile = None
        return Cost(
            self.fed, case.messages, cpu, self.loop.longest, self.written, self.answers, case.requests, case.dearer
        )

    async def _operate(self, method: str) -> None:
        assert self.client is not None
        work = asyncio.ensure_future(OPERATIONS[method](self.client))
        self.in_time = await self._serve(work)
        self._note(work)

    def _unasked(self, frame: bytes) -> None:
        wire = next(iter(self._wires))
        data = self.encode(frame)
        self.fed += len(data)
        wire.feed(data)

    async def _settle(self) -> None:
        """Wait until nothing moves any more."""
        self.in_time = True
        for _ in range(20_000):
            await asyncio.sleep(0)
            if any(thread.name == "ferrule-question" for thread in threading.enumerate()):
                continue  # the client looks at its folders in a thread
            if self.loop.idle and not any(wire.pending for wire in self._wires):
                self._answer_all()
                await asyncio.sleep(0)
                if self.loop.idle:
                    return


def answers(frame: bytes, identity: Any) -> bool:
    """Whether a frame is sure to be read as the answer to a request."""
    if len(frame) > 1_000_000:
        return False
    try:
        message = json.loads(frame)
    except (ValueError, RecursionError):
        return False
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0" or message.get("id") != identity:
        return False
    return ("result" in message) != ("error" in message) and "method" not in message


def _status(message: dict[str, Any]) -> bytes:
    return b"405 Method Not Allowed" if message.get("http") else b"202 Accepted"


def sse_answer(frames: list[bytes]) -> bytes:
    """Write an answer that is a stream of events."""
    events = b"".join(b"data: %b\n\n" % frame.replace(b"\n", b"\ndata: ") for frame in frames)
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n" % len(events)
    return head + events
