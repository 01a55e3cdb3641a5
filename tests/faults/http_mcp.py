"""An MCP client on raw sockets that may be slow, rude or gone, and the servers it meets: in a process or in ours."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import re
import socket
import struct
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from ferrule.transports.http.listener import Http
from ferrule.transports.http.mirror import mirrored_headers
from ferrule.wire.sse import Event, SseParser

SERVER = str(Path(__file__).with_name("http_workshop.py"))
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_KEY = "io.modelcontextprotocol/logLevel"
VERSIONS = {"handshake": "2025-11-25", "stateless": "2026-07-28"}
MIB = 1024 * 1024


class Answer:
    """One answer as it comes: its head first, then its body in parts."""

    def __init__(self, way: Way) -> None:
        self.way = way
        self.status = 0
        self.headers: dict[str, str] = {}
        self.parser = SseParser()
        self.events: list[Event] = []
        self.body = b""
        self.over = False

    async def head(self) -> Answer:
        reader = self.way.reader
        first = await reader.readline()
        if not first:
            raise ConnectionResetError("closed before the answer")
        self.status = int(first.split()[1])
        while line := (await reader.readline()).strip():
            name, _, value = line.decode().partition(": ")
            self.headers[name.lower()] = value
        if "content-length" in self.headers:
            self.body = await reader.readexactly(int(self.headers["content-length"]))
            self._end()
        elif self.headers.get("transfer-encoding") != "chunked":
            self._end()
        return self

    def _end(self) -> None:
        self.over = True
        if self.is_stream:
            self.events += self.parser.feed(self.body)
        if self.headers.get("connection") != "close":
            self.way.free = True

    @property
    def is_stream(self) -> bool:
        return self.headers.get("content-type") == "text/event-stream"

    async def part(self) -> list[Event]:
        """Read the next chunk; gives the events it completed."""
        reader = self.way.reader
        line = await reader.readline()
        if not line:
            raise ConnectionResetError("cut in the middle")
        size = int(line, 16)
        data = (await reader.readexactly(size + 2))[:size]
        if not size:
            self._end()
            return []
        found = self.parser.feed(data)
        self.events += found
        return found

    async def whole(self) -> Answer:
        while not self.over:
            await self.part()
        return self

    async def until(self, count: int) -> Answer:
        """Read until so many messages have come."""
        while sum(1 for event in self.events if event.data) < count and not self.over:
            await self.part()
        return self

    @property
    def messages(self) -> list[Any]:
        if self.is_stream:
            return [json.loads(event.data) for event in self.events if event.data]
        return [json.loads(self.body)] if self.body else []

    @property
    def last_id(self) -> str:
        return self.parser.last_id

    @property
    def text(self) -> str:
        return str(self.messages[-1]["result"]["content"][0]["text"])


class Way:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer
        self.free = True

    @classmethod
    async def open(cls, port: int, receive_buffer: int = 0) -> Way:
        plug = socket.socket()
        plug.setblocking(False)
        if receive_buffer:
            plug.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            await asyncio.get_running_loop().sock_connect(plug, ("127.0.0.1", port))
        except OSError:
            plug.close()
            raise
        plug.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A small limit lets a reader that stops reading really stop.
        return cls(*await asyncio.open_connection(sock=plug, limit=receive_buffer or 2**16))

    def send(self, method: str, headers: dict[str, str], body: bytes = b"", path: str = "/mcp") -> Answer:
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        self.writer.write(head.encode("latin-1") + body)
        self.free = False
        return Answer(self)

    def reset(self) -> None:
        """Cut the connection as a crash does."""
        plug = self.writer.get_extra_info("socket")
        plug.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class Client:
    """Asks in either era; each request has a connection of its own while it is answered."""

    def __init__(self, port: int, era: str = "handshake", version: str = "") -> None:
        self.port = port
        self.stateless = era == "stateless"
        self.version = version or VERSIONS[era]
        self.session = ""
        self.ways: list[Way] = []
        self._ids = itertools.count(1)

    async def __aenter__(self) -> Client:
        if not self.stateless:
            hello = {
                "protocolVersion": self.version,
                "capabilities": {},
                "clientInfo": {"name": "tester", "version": "1"},
            }
            opened = await self.ask("initialize", hello)
            self.session = opened.headers["mcp-session-id"]
            note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
            assert (await self.send("POST", note)).status == 202
        return self

    async def __aexit__(self, *_: object) -> None:
        for way in self.ways:
            await way.close()

    def _headers(self, method: str, params: Any) -> dict[str, str]:
        plain = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if self.stateless:
            return {**plain, **mirrored_headers(method, params, version=self.version)}
        return {**plain, **({"Mcp-Session-Id": self.session} if self.session else {})}

    async def way(self, receive_buffer: int = 0) -> Way:
        free = None if receive_buffer else next((way for way in self.ways if way.free), None)
        if free is None:
            free = await Way.open(self.port, receive_buffer)
            self.ways.append(free)
        free.free = False
        return free

    async def begin(
        self,
        method: str,
        params: Any = None,
        *,
        id: Any = None,  # noqa: A002
        meta: Any = None,
        receive_buffer: int = 0,
        path: str = "/mcp",
    ) -> Answer:
        """Send a request; its answer is still to be read, the head too."""
        own = dict(meta or {})
        if self.stateless:
            own |= {VERSION_KEY: self.version, CAPABILITIES_KEY: {}, LOG_KEY: "info"}
        params = {**(params or {}), **({"_meta": own} if own else {})}
        identity = next(self._ids) if id is None else id
        body = json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}).encode()
        way = await self.way(receive_buffer)
        return way.send("POST", self._headers(method, params), body, path)

    async def ask(self, method: str, params: Any = None, **options: Any) -> Answer:
        return await (await (await self.begin(method, params, **options)).head()).whole()

    async def begin_call(self, tool: str, /, token: Any = None, receive_buffer: int = 0, **arguments: Any) -> Answer:
        meta = {} if token is None else {"progressToken": token}
        identity = arguments.pop("id", None)
        params = {"name": tool, "arguments": arguments}
        return await self.begin("tools/call", params, id=identity, meta=meta, receive_buffer=receive_buffer)

    async def call(self, tool: str, /, **options: Any) -> Answer:
        return await (await (await self.begin_call(tool, **options)).head()).whole()

    async def send(self, method: str, body: bytes = b"") -> Answer:
        way = await self.way()
        return await (await way.send(method, self._headers("", {}), body).head()).whole()

    async def get(self, last: str | None = None, receive_buffer: int = 0) -> Answer:
        """Open the session's own stream, or come back for another."""
        way = await self.way(receive_buffer)
        headers = {"Accept": "text/event-stream", "Mcp-Session-Id": self.session}
        return await way.send("GET", headers | ({} if last is None else {"Last-Event-ID": last})).head()

    async def listen(self, *uris: str, receive_buffer: int = 0) -> Answer:
        """Hear of resources in the way of the era."""
        if self.stateless:
            params = {"notifications": {"resourceSubscriptions": list(uris)}}
            return await (await self.begin("subscriptions/listen", params, receive_buffer=receive_buffer)).head()
        for uri in uris:
            await self.ask("resources/subscribe", {"uri": uri})
        return await self.get(receive_buffer=receive_buffer)

    async def stats(self) -> dict[str, int]:
        found: dict[str, int] = json.loads((await self.call("stats")).text)
        return found


class Process:
    """A server in a process of its own."""

    def __init__(self, http: Any = None, log: Any = None, **server: Any) -> None:
        self.process = subprocess.Popen(
            [sys.executable, SERVER, json.dumps({"server": server, "http": http or {}, "log": log or {}})],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, "MALLOC_TRIM_THRESHOLD_": "131072"},  # what is let go is seen to be let go
        )
        self.log = ""
        self.port = 0

    def ready(self) -> Process:
        assert self.process.stdout is not None
        while not (found := re.search(r"(?:serving on|serves MCP at) http://127\.0\.0\.1:(\d+)/mcp", self.log)):
            line = self.process.stdout.readline().decode()
            assert line, self.log
            self.log += line
        self.port = int(found.group(1))
        return self

    def rss(self) -> float:
        """How much memory it has, in MiB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    async def ended(self, within: float) -> int:
        """Wait for its end; gives its exit code."""
        until = time.monotonic() + within
        while self.process.poll() is None:
            assert time.monotonic() < until, "it goes on"
            await asyncio.sleep(0.01)
        return int(self.process.returncode)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.log += self.process.stdout.read().decode()
        self.process.stdout.close()


@contextlib.contextmanager
def serving(http: Any = None, log: Any = None, **server: Any) -> Iterator[Process]:
    """Run a server in a process for a while; what it logs must hold no traceback."""
    process = Process(http, log, **server)
    try:
        yield process.ready()
    finally:
        process.close()
    assert "Traceback" not in process.log, process.log


@contextlib.asynccontextmanager
async def served(app: Any, **http: Any) -> AsyncIterator[int]:
    """Serve an app in this process for a while; gives its port."""
    listener, ready = Http(port=0, **http), asyncio.Event()
    serve = asyncio.ensure_future(listener.serve(app.host, ready.set))
    await asyncio.wait([serve, asyncio.ensure_future(ready.wait())], return_when=asyncio.FIRST_COMPLETED)
    try:
        yield listener.address[1]
    finally:
        await listener.close(1.0)
        await serve


class Bystander:
    """A session of its own that pings all the time, remembers its worst wait, and has the server watch its turns.

    Used with `async with`.
    """

    def __init__(self, port: int, era: str = "handshake", every: float = 0.05) -> None:
        self._client = Client(port, era)
        self._every = every
        self.waits: list[float] = []

    async def __aenter__(self) -> Bystander:
        await self._client.__aenter__()
        await self._ask()
        await self._client.call("watch_turns")
        self._task = asyncio.ensure_future(self._ping())
        return self

    async def _ping(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            await self._ask()

    async def _ask(self) -> None:
        began = time.perf_counter()
        answer = await self._client.call("echo", text="here")
        assert answer.text == "here"
        self.waits.append(time.perf_counter() - began)

    async def __aexit__(self, *exc: object) -> None:
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task
        await self._client.__aexit__(*exc)

    async def longest_turn(self) -> float:
        """Return the CPU time in seconds of the longest turn of the server's loop since this session began."""
        return float((await self._client.call("longest_turn")).text)

    @property
    def worst(self) -> float:
        """The worst wait, without the one in a hundred a shared machine may spoil."""
        return sorted(self.waits)[min(len(self.waits) - 1, int(len(self.waits) * 0.99))]
