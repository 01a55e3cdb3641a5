"""Peers that say anything: a client that asks our server badly, and a server that asks our client badly."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import traffic_app
import traffic_drive
from traffic_record import R2, R4, R5, Said, Traffic, traffic_of

from ferrule import Client, Server
from ferrule.testing import Recorder
from ferrule.transports.memory import Memory
from ferrule.wire.channel import ChannelDefaults, Origin, Receiver
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


class FarEnd(ChannelDefaults):
    """The channel of a peer that notes what it hears."""

    def __init__(self, revision: str, sender: str) -> None:
        """Begin before anything is agreed on."""
        self.traffic = Traffic(revision, [], [])
        self.early = True
        self.methods: dict[Any, str] = {}
        self._sender = sender

    def send(self, message: Message | Sequence[Message]) -> None:
        """Note a message of ours."""
        heard = msgspec.json.decode(encode(message))
        if isinstance(heard, list):
            self.traffic.arrays.append((self._sender, heard))
        for part in heard if isinstance(heard, list) else [heard]:
            answers = None if "method" in part else self.methods.get(part.get("id"))
            self.traffic.said.append(Said(self._sender, part, answers, self.early))
            self.heard(part)

    def heard(self, message: dict[str, Any]) -> None:
        """Do something about a message of ours."""

    async def wait_writable(self) -> None:
        """Never be slow."""

    def close(self, reason: str = "") -> None:
        """Be closed without a word."""

    async def until_more_than(self, before: int) -> None:
        """Wait until something more was heard."""
        async with asyncio.timeout(traffic_drive.PATIENCE):
            while len(self.traffic.said) <= before:
                await asyncio.sleep(0)


class BadClient(FarEnd):
    """Asks our server anything."""

    def __init__(self, server: Server, revision: str) -> None:
        """Link up with the server."""
        super().__init__(revision, "server")
        self._next = 100
        self.link: Receiver = server.link(Origin(carrier="memory"))
        self.link.channel_opened(self)

    async def say(self, frame: bytes) -> None:
        """Send a frame and wait until something comes back."""
        before = len(self.traffic.said)
        self.link.frame_received(frame, self)
        await self.until_more_than(before)

    def request(self, method: str, params: Any) -> dict[str, Any]:
        """Make a request with a new id."""
        self._next += 1
        self.methods[self._next] = method
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


async def ask_server_badly(revision: str) -> Traffic:
    """Ask our server everything wrongly, before and after a revision is agreed on."""
    server = traffic_app.make_app(keepalive_interval=None)
    await server.enter()
    peer = BadClient(server, revision)
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
    if revision == R5:
        await ask_stamped_badly(peer)
    await ask_in_arrays(peer)
    peer.link.frame_refused(SMALL_LIMIT, peer)
    peer.link.channel_lost(peer, None)
    await server.leave()
    return peer.traffic


async def ask_stamped_badly(peer: BadClient) -> None:
    """Ask in the stateless era with metadata that is missing, wrong or too little."""
    version, capabilities = STATELESS_META
    for meta in ({version: R5}, {version: "1900-01-01", capabilities: {}}, {version: R5, capabilities: 5}):
        await peer.ask("tools/list", {"_meta": meta})
    for tool in ("ask_form", "ask_url", "ask_model", "ask_model_with_tools", "ask_roots"):
        await peer.ask("tools/call", {"name": tool, "_meta": STATELESS_META})
    for spoilt in ({"requestState": "spoilt"}, {"inputResponses": [1]}):
        await peer.ask("tools/call", {"name": "ask_form", "_meta": STATELESS_META, **spoilt})


async def ask_in_arrays(peer: BadClient) -> None:
    """Send arrays, which one revision answers and the others refuse."""
    parts = [peer.request("ping", {}), peer.request("no/such", {}), {"jsonrpc": "2.0", "id": 9}, [1]]
    parts.append(peer.request("initialize", {"protocolVersion": R2}))
    await peer.say(msgspec.json.encode(parts))


async def crowd_server(revision: str) -> Traffic:
    """Ask more at once than the server takes."""
    server = traffic_app.make_app(max_concurrent_per_session=1, max_waiting_per_session=0, keepalive_interval=None)
    recorder = Recorder(Memory(server))
    async with traffic_drive.opened(recorder, revision) as stage:
        calls = [asyncio.create_task(stage.client.call_tool("wait", timeout=0.1)) for _ in range(3)]
        await asyncio.gather(*calls, return_exceptions=True)
    return traffic_of(revision, recorder.messages)


class BadServer(FarEnd):
    """Asks our client anything, once the conversation is open."""

    def __init__(self, revision: str) -> None:
        """Be ready to be reached."""
        super().__init__(revision, "client")
        self.early = False
        self.receiver: Receiver | None = None

    def heard(self, message: dict[str, Any]) -> None:
        """Answer the opening."""
        opening = OPENINGS.get(message.get("method", ""))
        if opening is not None:
            reply = {"jsonrpc": "2.0", "id": message["id"], "result": opening(self.traffic.revision)}
            asyncio.get_running_loop().call_soon(self.say, msgspec.json.encode(reply))

    def say(self, frame: bytes) -> None:
        """Send a frame to the client."""
        assert self.receiver is not None
        self.receiver.frame_received(frame, self)

    def ask(self, identity: int, method: str, params: Any) -> None:
        """Send the client a request."""
        self.methods[identity] = method
        self.say(msgspec.json.encode({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}))


class ToBadServer:
    """The transport that reaches it."""

    def __init__(self, server: BadServer) -> None:
        """Know the server."""
        self._server = server

    async def connect(self, receiver: Receiver) -> BadServer:
        """Connect the two."""
        self._server.receiver = receiver
        receiver.channel_opened(self._server)
        return self._server

    async def close(self, grace: float = 2.0) -> None:
        """Have nothing to release."""


OPENINGS: dict[str, Callable[[str], dict[str, Any]]] = {
    "initialize": lambda revision: {
        "protocolVersion": revision,
        "capabilities": {},
        "serverInfo": {"name": "badly", "version": "1"},
    },
    "server/discover": lambda revision: {
        "resultType": "complete",
        "supportedVersions": [revision],
        "capabilities": {},
        "ttlMs": 0,
        "cacheScope": "private",
    },
}

LOOSE_END = {"type": "tool_use", "id": "u", "name": "t", "input": {}}
SAY_FAIL = {"role": "user", "content": {"type": "text", "text": "fail"}}
NUMBER_WANTED = {"type": "object", "properties": {"n": {"type": "integer"}}}

ASKED_BADLY: Sequence[tuple[str, Any]] = (
    ("no/such/method", {}),
    ("tools/list", {}),
    ("ping", {}),
    ("sampling/createMessage", {"messages": []}),
    ("sampling/createMessage", {"messages": [{"role": "user", "content": LOOSE_END}], "maxTokens": 1}),
    ("sampling/createMessage", {"messages": [SAY_FAIL], "maxTokens": 1, "tools": []}),
    ("sampling/createMessage", {"messages": [SAY_FAIL], "maxTokens": 1}),
    ("elicitation/create", {}),
    ("elicitation/create", {"message": "Sign in", "mode": "url", "url": "https://example.com", "elicitationId": "e"}),
    ("elicitation/create", {"message": "unfit", "requestedSchema": NUMBER_WANTED}),
    ("roots/list", {}),
)
"""Questions a client refuses, all or some."""


def failing(_: Any) -> Any:
    """Fail as somebody's own handler might."""
    raise RuntimeError("the server must not read this")


async def unfit(_: Any) -> Any:
    """Return an answer that does not fit its form."""
    return {"n": "no number"}


CLIENTS: Sequence[dict[str, Any]] = (
    {},
    {"sampling": failing, "elicitation": unfit, "roots": failing},
    {"url_elicitation": unfit, "roots": lambda: [5]},
)
"""What the asked clients can answer: nothing, all but badly, the rest."""


async def ask_client_badly(revision: str) -> Traffic:
    """Ask our client everything wrongly, with handlers, without, and with failing ones."""
    traffic = Traffic(revision, [], [])
    for options in CLIENTS:
        server = BadServer(revision)
        mode = "stateless" if revision == R5 else "handshake"
        async with Client(ToBadServer(server), mode=mode, protocol_version=revision, **options):
            for frame in UNREADABLE:
                server.say(frame)
            for identity, (method, params) in enumerate(ASKED_BADLY, start=500):
                server.ask(identity, method, params)
            await settled(server)
        traffic.add(server.traffic)
    return traffic


async def settled(server: BadServer) -> None:
    """Wait until the client has nothing more to say."""
    quiet = 0
    while quiet < 20:
        before = len(server.traffic.said)
        await asyncio.sleep(0.002)
        quiet = quiet + 1 if len(server.traffic.said) == before else 0
