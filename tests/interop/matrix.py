"""The tables of the interoperability tests: who speaks what, what must be observed, and who cannot do what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from peers.scenario import LARGE, ROOT, UNICODE

OLDER = "2025-06-18"
HANDSHAKE = "2025-11-25"
STATELESS = "2026-07-28"
MODERN_PEERS = ("mcp2", "fastmcp", "ts2")
PEERS = ("mcp2", "mcp1", "fastmcp", "ts1", "ts2")
OURS = "ferrule"
TRANSPORTS = ("stdio", "http")


@dataclass(frozen=True)
class Run:
    """One client program against one server program."""

    client: str
    server: str
    version: str
    finds_out: bool = False
    """The client is not told the revision: it must find the newest one both know."""
    transport: str = "stdio"

    @property
    def era(self) -> str:
        return "modern" if self.version == STATELESS else "legacy"

    @property
    def kinds(self) -> set[str]:
        return {"*", self.era, f"{self.era}-{'auto' if self.finds_out else 'told'}"}

    @property
    def arguments(self) -> list[str]:
        """What the client program is told."""
        return ["--mode", "auto"] if self.finds_out else ["--mode", self.era, "--version", self.version]

    @property
    def peer(self) -> str:
        return self.client if self.server == OURS else self.server

    def __str__(self) -> str:
        return f"{self.transport}-{self.peer}-{self.version}{'-auto' if self.finds_out else ''}"


def versions_of(peer: str) -> tuple[str, ...]:
    return (OLDER, HANDSHAKE, STATELESS) if peer in (*MODERN_PEERS, OURS) else (OLDER, HANDSHAKE)


def runs_of(client: str, server: str, transport: str) -> list[Run]:
    """Every way in which this client can speak with this server."""
    shared = [version for version in versions_of(client) if version in versions_of(server)]
    told = [Run(client, server, version, transport=transport) for version in shared]
    found = Run(client, server, shared[-1], finds_out=True, transport=transport)
    return [*told, found] if client in (*MODERN_PEERS, OURS) else told


THEIR_CLIENTS = [run for transport in TRANSPORTS for peer in PEERS for run in runs_of(peer, OURS, transport)]
THEIR_SERVERS = [run for transport in TRANSPORTS for peer in PEERS for run in runs_of(OURS, peer, transport)]

TOOLS = ["add", "ask", "cancelled_calls", "count", "echo", "fail", "grow", "log", "roots", "sample", "slow", "touch"]

EXPECTED: dict[str, Any] = {
    "connect": "connected",
    "server": {"name": "interop", "instructions": "Interop test server."},
    "ping": "pong",
    "tools": TOOLS,
    "resources": ["test://binary", "test://counter", "test://static"],
    "templates": ["test://items/{id}"],
    "prompts": {"greet": ["name", "style"]},
    "add": {"text": "5", "structured": {"result": 5}},
    "echo": UNICODE,
    "large": LARGE,
    "parallel": True,
    "unknown_tool": -32602,
    "fail": {"isError": True, "saysWhy": True},
    "progress": {"values": [[1, 3], [2, 3], [3, 3]], "result": "3"},
    "cancel": 1,
    "elicit": {
        "answer": "Ada is 36",
        "asked": [
            {
                "message": "Who are you?",
                "fields": {"name": "string", "age": "integer"},
                "required": ["age", "name"],
            }
        ],
    },
    "sample": {
        "answer": "model says: hi",
        "asked": [{"messages": [["user", "hi"]], "maxTokens": 100}],
    },
    "roots": ROOT,
    "read_static": {"mimeType": "text/plain", "text": "static text"},
    "read_binary": bytes(range(256)).hex(),
    "read_template": "item 42",
    "prompt": [["user", "Good day, Ada."], ["user", "Hi Ada!"]],
    "completion": [["formal", "casual"], ["casual"]],
    "subscribe": {"updates": ["test://counter"], "read": "1"},
    "log": [["warning", "watch out"]],
    "list_changed": {"notified": True, "added": ["grown"]},
}
"""What a client observes of a server that follows the specification."""

FEATURES = ("protocol", "read_missing", *EXPECTED)


class Difference(NamedTuple):
    """A server that answers in its own way, or a client that reports in its own way."""

    peer: str
    role: str
    feature: str
    observed: Any
    reason: str


DIFFERS = [
    Difference("mcp1", "server", "unknown_tool", "isError", "FastMCP reports an unknown tool as a tool result"),
    Difference("mcp2", "server", "unknown_tool", "isError", "MCPServer reports an unknown tool as a tool result"),
    Difference("fastmcp", "server", "unknown_tool", "isError", "FastMCP reports an unknown tool as a tool result"),
    Difference(
        "ts1", "server", "unknown_tool", "isError", "McpServer turns every error of tools/call into a tool result"
    ),
    Difference("mcp1", "server", "read_missing", 0, "code 0 stands for every error of a handler"),
    Difference("mcp2", "server", "read_missing", -32602, "the code of 2026-07-28 in every revision"),
    Difference("fastmcp", "server", "read_missing", -32602, "the code of 2026-07-28 in every revision"),
    Difference("ts1", "server", "read_missing", -32602, "invalid params in every revision"),
    Difference("ts2", "server", "read_missing", -32602, "invalid params in every revision"),
    Difference(
        "fastmcp",
        "server",
        "log",
        [["warning", {"msg": "watch out", "extra": None}]],
        "the text is wrapped in an object",
    ),
    Difference("ts2", "client", "read_missing", -32602, "reports -32002 as the code of 2026-07-28"),
]


class Gap(NamedTuple):
    """What a peer cannot do, as `client` or `server`, in some runs (see `Run.kinds`) or in all (`*`)."""

    peer: str
    role: str
    kind: str
    feature: str
    reason: str


CANNOT = [
    Gap("*", "client", "modern", "ping", "ping does not exist in 2026-07-28"),
    Gap("mcp2", "client", "modern-told", "server", "a client that is told the revision never asks who the server is"),
    Gap(
        "fastmcp", "client", "modern-told", "server", "a client that is told the revision never asks who the server is"
    ),
    Gap("mcp1", "server", "*", "subscribe", "mcp 1.x declares resources.subscribe false even where it serves it"),
    Gap("fastmcp", "server", "*", "subscribe", "FastMCP serves neither resources/subscribe nor subscriptions/listen"),
    Gap("fastmcp", "server", "modern", "list_changed", "FastMCP does not serve subscriptions/listen"),
]


def gap(run: Run, feature: str) -> str | None:
    """Why a feature cannot be observed in this run, or None."""
    for peer, role, kind, missing, reason in CANNOT:
        side = run.client if role == "client" else run.server
        if missing == feature and peer in ("*", side) and kind in run.kinds:
            return reason
    return None


def expected(run: Run, feature: str) -> Any:
    for peer, role, differing, observed, _reason in DIFFERS:
        if differing == feature and peer == (run.server if role == "server" else run.client):
            return observed
    if feature == "protocol":
        return run.version
    if feature == "read_missing":
        return -32602 if run.era == "modern" else -32002
    return EXPECTED[feature]
