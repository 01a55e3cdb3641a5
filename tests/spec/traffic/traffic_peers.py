"""Peers that say anything: a client that asks our server badly, and a server that asks our client badly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import traffic_app
import traffic_drive
from traffic_record import R2, R3, R4, R5, Said, Traffic

from ferrule import Client, Server
from ferrule.errors import FerruleError, ToolError
from ferrule.testing import Recorder
from ferrule.transports.memory import Memory
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.codec import encode
from ferrule.wire.messages import Message

SMALL_LIMIT = 4096
STATELESS_META = {
    "io.modelcontextprotocol/protocolVersion": R5,
    "io.modelcontextprotocol/clientCapabilities": {},
}

UNREADABLE = (
    b"{not json",
    b'"text"',
    b"[]",
    b"\xff\xfe",
    b'{"jsonrpc":"1.0","id":1,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":null,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}',
    b'{"jsonrpc":"2.0","id":2,"method":7}',
    b'{"jsonrpc":"2.0","id":3}',
    b'{"jsonrpc":"2.0","result":{}}',
    b'{"jsonrpc":"2.0","id":4,"method":"tools/list","result":{}}',
    b'{"jsonrpc":"2.0","id":5,"method":"tools/list","params":[' + b"[" * 5000,
)
"""Frames that are no message."""

REFUSED: Sequence[tuple[str, Any]] = (
    ("no/such/method", {}),
    ("tools/list", [1]),
    ("tools/list", {"cursor": 7}),
    ("tools/call", {}),
    ("tools/call", {"name": "add", "arguments": [1]}),
    ("tools/call", {"name": 5}),
    ("resources/read", {"uri": "no-scheme"}),
    ("prompts/get", {"name": "greet", "arguments": {"name": 5}}),
    ("completion/complete", {"ref": {"type": "ref/other"}, "argument": {"name": "a", "value": "b"}}),
    ("sampling/createMessage", {"messages": [], "maxTokens": 1}),
    ("initialize", {"protocolVersion": R4, "capabilities": {}, "clientInfo": {"name": "again", "version": "1"}}),
    ("logging/setLevel", {"level": "loud"}),
    ("server/discover", {}),
    ("ping", {}),
)
"""Requests that most revisions refuse."""


class Badly:
    """The far end of our server: says anything, and notes what it hears."""

    def __init__(self, server: Server, revision: str) -> None:
        """Link up with the server."""
        self.traffic = Traffic(revision, [], [])
        self.early = True
        self._methods: dict[Any, str] = {}
        self._next = 100
        self.link: Receiver = server.link(Origin(carrier="memory"))
        self.link.channel_opened(self)

    # -- what the server sends

    def send(self, message: Message | Sequence[Message]) -> None:
        """Note a message of the server's."""
        heard = msgspec.json.decode(encode(message))
        if isinstance(heard, list):
            self.traffic.arrays.append(("server", heard))
        for part in heard if isinstance(heard, list) else [heard]:
            answers = None if "method" in part else self._methods.get(part.get("id"))
            self.traffic.said.append(Said("server", part, answers, self.early))

    async def wait_writable(self) -> None:
        """Never be slow."""

    def close(self, reason: str = "") -> None:
        """Be closed without a word."""

    # -- what it hears

    async def say(self, frame: bytes) -> None:
        """Send a frame and wait until something comes back."""
        before = len(self.traffic.said)
        self.link.frame_received(frame, self)
        async with asyncio.timeout(traffic_drive.PATIENCE):
            while len(self.traffic.said) == before:
                await asyncio.sleep(0)

    def request(self, method: str, params: Any) -> dict[str, Any]:
        """Make a request with a new id."""
        self._next += 1
        self._methods[self._next] = method
        return {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}

    async def ask(self, method: str, params: Any) -> None:
        """Send a request and wait for its answer."""
        await self.say(msgspec.json.encode(self.request(method, params)))

    async def agree(self) -> None:
        """Open the conversation in the usual way."""
        revision = self.traffic.revision
        if revision == R5:
            await self.ask("server/discover", {"_meta": STATELESS_META})
        else:
            who = {"name": "badly", "version": "1"}
            await self.ask("initialize", {"protocolVersion": revision, "capabilities": {}, "clientInfo": who})
        self.early = False


async def ask_badly(revision: str) -> Traffic:
    """Ask our server everything wrongly, before and after a revision is agreed on."""
    server = traffic_app.make_app(keepalive_interval=None)
    await server.enter()
    peer = Badly(server, revision)
    for frame in UNREADABLE:
        await peer.say(frame)
    await peer.ask("initialize", {"protocolVersion": revision})
    if revision != R5:
        await peer.ask("ping", {})
        await peer.ask("tools/list", {})
    await peer.agree()
    for frame in UNREADABLE:
        await peer.say(frame)
    for method, params in REFUSED:
        stamped = {**params, "_meta": STATELESS_META} if revision == R5 and isinstance(params, dict) else params
        await peer.ask(method, stamped)
    await ask_stamped_badly(peer)
    await ask_in_arrays(peer)
    peer.link.frame_refused(SMALL_LIMIT, peer)
    peer.link.channel_lost(peer, None)
    await server.leave()
    return peer.traffic


async def ask_stamped_badly(peer: Badly) -> None:
    """Ask in the stateless era with metadata that is missing, wrong or too little."""
    if peer.traffic.revision != R5:
        return
    version, capabilities = STATELESS_META
    for meta in ({version: R5}, {version: "1900-01-01", capabilities: {}}, {version: R5, capabilities: 5}):
        await peer.ask("tools/list", {"_meta": meta})
    for tool in ("ask_form", "ask_url", "ask_model", "ask_model_with_tools", "ask_roots"):
        await peer.ask("tools/call", {"name": tool, "_meta": STATELESS_META})
    spoilt = {"name": "ask_form", "requestState": "spoilt", "_meta": STATELESS_META}
    await peer.ask("tools/call", spoilt)
    await peer.ask("tools/call", {**spoilt, "requestState": None, "inputResponses": [1]})


async def ask_in_arrays(peer: Badly) -> None:
    """Send arrays, which one revision answers and the others refuse."""
    parts = [peer.request("ping", {}), peer.request("no/such", {}), {"jsonrpc": "2.0", "id": 9}, [1]]
    parts.append(peer.request("initialize", {"protocolVersion": R2}))
    await peer.say(msgspec.json.encode(parts))


async def crowd(revision: str) -> Traffic:
    """Ask more at once than the server takes, and more in one message."""
    server = traffic_app.make_app(max_concurrent_per_session=1, max_waiting_per_session=0, keepalive_interval=None)
    recorder = Recorder(Memory(server, max_message_size=SMALL_LIMIT))
    async with traffic_drive.opened(recorder, revision) as stage:
        calls = [asyncio.create_task(stage.client.call_tool("wait", timeout=0.2)) for _ in range(3)]
        await asyncio.gather(*calls, return_exceptions=True)
    return traffic_drive.traffic_of(revision, recorder.messages)


class AskingBadly:
    """The far end of our client: a server of one revision that asks anything."""

    def __init__(self, revision: str) -> None:
        """Be ready to be connected to."""
        self.traffic = Traffic(revision, [], [])
        self._receiver: Receiver | None = None
        self._asked: dict[Any, str] = {}
        self._client_asked: dict[Any, str] = {}

    async def connect(self, receiver: Receiver) -> AskingBadly:
        """Take the client's link."""
        self._receiver = receiver
        receiver.channel_opened(self)
        return self

    def send(self, message: Message | Sequence[Message]) -> None:
        """Note a message of the client's, and answer its opening."""
        heard = msgspec.json.decode(encode(message))
        answers = None if "method" in heard else self._asked.get(heard.get("id"))
        self.traffic.said.append(Said("client", heard, answers))
        if heard.get("method") in OPENINGS:
            reply = {"jsonrpc": "2.0", "id": heard["id"], "result": OPENINGS[heard["method"]](self.traffic.revision)}
            asyncio.get_running_loop().call_soon(self.say, msgspec.json.encode(reply))

    async def wait_writable(self) -> None:
        """Never be slow."""

    def close(self, reason: str = "") -> None:  # type: ignore[override]
        """Be closed without a word; also the transport's end."""
        return NOTHING

    def say(self, frame: bytes) -> None:
        """Send a frame to the client."""
        assert self._receiver is not None
        self._receiver.frame_received(frame, self)

    def ask(self, identity: int, method: str, params: Any) -> None:
        """Send the client a request."""
        self._asked[identity] = method
        self.say(msgspec.json.encode({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}))
