"""The options of every transport: each is documented, and a wrong one is named before anything is opened."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Server
from ferrule.client.targets import transport_for
from ferrule.errors import SetupError
from ferrule.server.hosting.listeners import new_listener
from ferrule.transports.http.client.old_sse import SseTransport
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.http.client.transport import HttpTransport
from ferrule.transports.http.listener import Http, Sse
from ferrule.transports.http.settings import EndpointSettings, EngineSettings
from ferrule.transports.memory import Memory
from ferrule.transports.process.child import ChildProcess
from ferrule.transports.process.stdio import Stdio, StdioSettings
from ferrule.transports.registry import TRANSPORTS
from ferrule.transports.tcp.listener import Tcp, Unix
from ferrule.transports.tcp.settings import TcpOptions, TcpSettings, UnixSettings
from ferrule.transports.tcp.transport import TcpTransport
from ferrule.transports.websocket.client import WebSocketTransport
from ferrule.transports.websocket.listener import WebSocket
from ferrule.transports.websocket.settings import WebSocketOptions, WebSocketSettings

GUIDES = Path(__file__).resolve().parents[2] / "docs" / "guides"
REQUIRED: dict[str, dict[str, Any]] = {"unix": {"path": "/tmp/nowhere.sock"}}
"""What a transport cannot be without."""

DOCUMENTED = {
    StdioSettings: "stdio.md",
    ChildProcess: "stdio.md",
    EndpointSettings: "http.md",
    EngineSettings: "http.md",
    HttpOptions: "http.md",
    TcpSettings: "tcp.md",
    UnixSettings: "tcp.md",
    TcpOptions: "tcp.md",
    WebSocketSettings: "websocket.md",
    WebSocketOptions: "websocket.md",
}

WRONG = {
    "max_message_size": (-1, "16 MiB", 1.5),
    "max_body_size": (0, "16 MiB", True),
    "max_connections": ("many", 0),
    "port": ("http", -1, 1.5),
    "host": (5, None),
    "path": (5,),
    "grace": ("long", -1),
    "allowed_origins": ("https://app.example.com",),
    "certificate": (5,),
    "nodelay": ("yes",),
    "framing": ("xml",),
    "response": ("xml",),
    "compression": ("zip",),
    "ping_interval": ("often", 0),
}
"""Values no option of the name could work with."""


def options_of(transport: str) -> set[str]:
    """Return the options a transport knows, as its refusal of an unknown one lists them."""
    with pytest.raises(SetupError, match="nonsense") as refused:
        new_listener(transport, {**REQUIRED.get(transport, {}), "nonsense": 1})
    return set(str(refused.value).partition("the options are ")[2].split(", "))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_an_unknown_option_is_named_beside_those_there_are(transport: str) -> None:
    """TBEH-07"""
    assert {"max_message_size", "max_body_size"} & options_of(transport)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_value_of_the_wrong_kind_is_refused_under_its_name(transport: str) -> None:
    """TBEH-07"""
    known = options_of(transport) & WRONG.keys()
    assert known
    for option in known:
        for value in WRONG[option]:
            with pytest.raises(SetupError, match=f"{option}.*{re.escape(repr(value))}"):
                new_listener(transport, {**REQUIRED.get(transport, {}), option: value})


@pytest.mark.parametrize("transport", REQUIRED)
def test_a_required_option_that_is_missing_is_named(transport: str) -> None:
    """TBEH-07"""
    (name,) = REQUIRED[transport]
    with pytest.raises(SetupError, match=f"a {name} is needed"):
        new_listener(transport, {})


@pytest.mark.parametrize("transport", sorted(TRANSPORTS.keys() - REQUIRED.keys()))
def test_where_nothing_is_required_nothing_need_be_said(transport: str) -> None:
    """TBEH-07"""
    assert new_listener(transport, {})


@pytest.mark.parametrize(
    ("target", "given"),
    [
        ("http://localhost/mcp", {"http": {"pool_size": "ten"}}),
        ("http://localhost/mcp", {"http": {"headers": "authorization"}}),
        ("http://localhost/mcp", {"http": {"connect_timeout": 0}}),
        ("http://localhost/mcp", {"http": {"max_retries": -1}}),
        ("http://localhost/mcp", {"http": {"max_waiting": -1}}),
        ("http://localhost/mcp", {"http": {"jitter": 7}}),
        ("http://localhost/mcp", {"http": {"retry_statuses": (200,)}}),
        ("http://localhost/mcp", {"http": {"retry_statuses": 503}}),
        ("tcp://localhost:1", {"tcp": {"connect_timeout": "soon"}}),
        ("unix:/nowhere", {"tcp": {"max_message_size": "16 MiB"}}),
        ("ws://localhost/mcp/ws", {"websocket": {"compression": "zip"}}),
        (["true"], {"grace": "long"}),
        (["true"], {"max_message_size": 0}),
    ],
    ids=str,
)
def test_the_options_of_a_client_are_checked_as_well(target: Any, given: dict[str, Any]) -> None:
    """TBEH-07"""
    (options,) = given.values()
    name = next(iter(options if isinstance(options, dict) else given))
    with pytest.raises(SetupError, match=f"{name} must be"):
        transport_for(target, **given)


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"Retry": 3}, "the value of the header Retry must be a str, not int"),
        ({"Bearer x": "y"}, "not a header name: 'Bearer x'"),
        ({"Authorization": "Bearer x\r\ny: z"}, "the value of the header Authorization has characters no header may"),
        ([("Authorization", "x")], r"headers must be a mapping.*\[\('Authorization', 'x'\)\]"),
    ],
)
def test_headers_that_cannot_be_sent_are_refused_before_anything_is_opened(headers: Any, says: str) -> None:
    """HTP-15"""
    with pytest.raises(SetupError, match=says):
        asyncio.run(Client("http://127.0.0.1:9/mcp", headers=headers).connect())


def test_a_path_may_be_a_path_and_a_list_any_list(tmp_path: Path) -> None:
    assert isinstance(new_listener("unix", {"path": tmp_path / "socket"}), Unix)
    options = {"allowed_origins": ["https://app.example.com"], "certificate": None, "session_lifetime": 5}
    assert isinstance(new_listener("http", options), Http)


@pytest.mark.parametrize(("kind", "guide"), DOCUMENTED.items(), ids=lambda value: getattr(value, "__name__", value))
def test_every_option_is_documented(kind: Any, guide: str) -> None:
    """TBEH-07: in the guide of its transport, or on the page of limits."""
    pages = (guide, "limits.md", "http-sse.md") if guide == "http.md" else (guide, "limits.md")
    text = "".join((GUIDES / page).read_text(encoding="utf-8") for page in pages)
    written = {name or option for name, option in re.findall(r"`(\w+)`|\b(\w+)=", text)}
    assert set(inspect.signature(kind).parameters) - {"command"} - written == set()


def every_transport(size: Any) -> dict[str, Callable[[], object]]:
    """Every way to set up the longest message of a transport."""
    return {
        "Stdio": lambda: Stdio(max_message_size=size),
        "ChildProcess": lambda: ChildProcess(["true"], max_message_size=size),
        "Memory": lambda: Memory(Server("s"), max_message_size=size),
        "Tcp": lambda: Tcp(max_message_size=size),
        "Unix": lambda: Unix("/nowhere/s.sock", max_message_size=size),
        "TcpTransport": lambda: TcpTransport("tcp://localhost:1", max_message_size=size),
        "TcpTransport to a Unix socket": lambda: TcpTransport("unix:/nowhere", max_message_size=size),
        "WebSocket": lambda: WebSocket(max_message_size=size),
        "WebSocketTransport": lambda: WebSocketTransport("ws://localhost:1", max_message_size=size),
        "WebSocket beside HTTP": lambda: Http(websocket={"max_message_size": size}),
        "Http": lambda: Http(max_body_size=size),
        "Sse": lambda: Sse(max_body_size=size),
        "AsgiApp": lambda: Server("s").asgi(max_body_size=size),
        "HttpTransport": lambda: HttpTransport("http://localhost:1", max_message_size=size),
        "SseTransport": lambda: SseTransport("http://localhost:1", max_message_size=size),
    }


@pytest.mark.parametrize("name", every_transport(0))
def test_the_longest_message_of_every_transport_may_be_set_from_1_kib_to_100_mib(name: str) -> None:
    """SIZE-11: outside that is a configuration error, where it is written and not where it is used."""
    for size in (1024, 100 * 1024 * 1024):
        every_transport(size)[name]()
    for size in (10, 0, -1, 1023, 100 * 1024 * 1024 + 1):
        with pytest.raises(SetupError, match=f"from 1 KiB to 100 MiB, not {size} bytes"):
            every_transport(size)[name]()
    for wrong in ("16 MiB", 2048.5, None, True):
        with pytest.raises(SetupError, match="must be a whole number"):
            every_transport(wrong)[name]()
