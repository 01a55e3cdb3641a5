"""Links with a far end that speaks JSON, on a clock that jumps: async tests of this folder run in virtual time."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferrule.protocol.call import Peer
from ferrule.protocol.era import Eras
from ferrule.protocol.handshake import REVISIONS, Handshake
from ferrule.protocol.seal import Keyring, Seal
from ferrule.protocol.session import Phase
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.protocol.stateless import Sealing, Stateless
from ferrule.runtime.dispatch import Dispatcher
from ferrule.runtime.link import Link
from ferrule.runtime.requests import LinkOptions
from ferrule.schema.lifecycle import InitializeParams, ServerCapabilities
from ferrule.schema.methods import METHODS
from ferrule.schema.model import ClientCapabilities, EmptyResult, Implementation
from ferrule.testing import run_in_virtual_time
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.codec import encode

FOREVER = 1_000_000.0
MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test on a virtual clock; one that waits for nothing fails instead of hanging."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    given = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    run_in_virtual_time(asyncio.wait_for(pyfuncitem.obj(**given), FOREVER))
    return True


class FarEnd(ChannelDefaults):
    """The peer at the other end of a link: a channel that remembers what it hears, and says what it is told to."""

    def __init__(self, link: Any) -> None:
        self.link = link
        self.heard: list[Any] = []
        self.times: list[float] = []
        self.closed: str | None = None
        link.channel_opened(self)

    # -- what the link uses

    def send(self, message: Any) -> None:
        frame = encode(message)
        if self.closed is None:
            self.heard.append(json.loads(frame))
            self.times.append(self.link.loop.time())

    async def wait_writable(self) -> None:
        """Nobody is slow here."""

    def close(self, reason: str = "") -> None:
        self.closed = self.closed or reason

    # -- what the peer does

    def say(self, frame: bytes | Any = None, /, **members: Any) -> None:
        """Send bytes as they are, a JSON value, or the members of one message."""
        if not isinstance(frame, bytes):
            frame = json.dumps({"jsonrpc": "2.0", **members} if frame is None else frame).encode()
        self.link.frame_received(frame, self)

    def ask(self, identity: Any, method: str, **params: Any) -> None:
        self.say(id=identity, method=method, params=params)

    def ask_modern(self, identity: Any, method: str, **params: Any) -> None:
        self.say(id=identity, method=method, params={**params, "_meta": {**MODERN, **params.get("_meta", {})}})

    def call(self, identity: Any, name: str = "t", **arguments: Any) -> None:
        self.ask(identity, "tools/call", name=name, arguments=arguments)

    def cancel(self, identity: Any, **params: Any) -> None:
        self.say(method="notifications/cancelled", params={"requestId": identity, **params})

    def answer(self, identity: Any, result: Any = None) -> None:
        self.say(id=identity, result=result or {})

    def greet(self, version: str = "2025-11-25", declared: Any = None, *, ready: bool = True) -> FarEnd:
        """Make the handshake as a client does."""
        offer = InitializeParams(
            protocol_version=version,
            capabilities=msgspec.convert(declared or {}, ClientCapabilities),
            client_info=Implementation(name="c", version="1"),
        )
        self.link.session.eras.handshake.open(self.link.session, offer, {})
        if ready:
            self.say(method="notifications/initialized")
        return self

    # -- what was heard

    def take(self) -> list[Any]:
        """Everything heard since the last look."""
        heard, self.heard = self.heard, []
        self.times.clear()
        return heard

    def replies(self, identity: Any) -> list[Any]:
        """The responses heard under this id."""
        return [m for m in self.heard if isinstance(m, dict) and "method" not in m and m.get("id", ...) == identity]

    def asked(self, method: str) -> list[Any]:
        """The requests and notifications of this name that were heard."""
        return [m for m in self.heard if isinstance(m, dict) and m.get("method") == method]


async def settle(turns: int = 10) -> None:
    """Let whatever is due happen, without letting time pass."""
    for _ in range(turns):
        await asyncio.sleep(0)


def new_eras(**options: Any) -> Eras:
    sealing = Sealing(Seal(Keyring(["k" * 32])), lambda: 0.0, lambda: bytes(12), 600.0)
    return Eras(Handshake(**options), Stateless(sealing, beside=tuple(REVISIONS)))


@pytest.fixture
def linked() -> Callable[..., FarEnd]:
    """Make a link with these handlers and give its far end; the link is a server's unless `client` names a version."""

    def make(
        handlers: Any = None,
        instant: Any = None,
        *,
        client: str = "",
        notes: Any = None,
        middleware: Any = (),
        **options: Any,
    ) -> FarEnd:
        on_closed = options.pop("on_closed", None)
        erlmcp_codes = options.pop("erlmcp_codes", False)
        rows = {name: row for name, row in METHODS.items() if bool(client) is row.by_client or name == "ping"}
        instant = {"ping": lambda _: EmptyResult(), **(instant or {})}
        dispatcher = Dispatcher(handlers or {}, instant, notes or {}, middleware)
        link = Link(
            new_eras(erlmcp_codes=erlmcp_codes),
            rows,
            dispatcher,
            Origin("test"),
            options=LinkOptions(**options),
            on_closed=on_closed,
        )
        if client:
            revision = {**REVISIONS, **STATELESS_REVISIONS}[client]
            link.session.enter(Phase.INITIALIZING)
            link.session.agree(Peer(revision, ServerCapabilities()))
        return FarEnd(link)

    return make


@pytest.fixture
def far_end() -> type[FarEnd]:
    """The far end of any link."""
    return FarEnd


@pytest.fixture(name="settle")
def settle_fixture() -> Callable[..., Any]:
    """Let whatever is due happen, without letting time pass."""
    return settle
