"""How the tests of the server run: async functions as they are, shared behaviour in both eras, and a bare wire."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from ferrule import Server
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.testing import run_in_virtual_time
from ferrule.transports.memory import MemoryChannel, memory_pair
from ferrule.wire.channel import Channel, Origin

PATIENCE = 120.0
ACKNOWLEDGED = "notifications/subscriptions/acknowledged"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test in a loop of its own, on the virtual clock if it uses `virtual_time`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    if "virtual_time" in pyfuncitem.fixturenames:
        run_in_virtual_time(pyfuncitem.obj(**arguments))
    else:
        asyncio.run(asyncio.wait_for(pyfuncitem.obj(**arguments), PATIENCE))
    return True


class Wire:
    """A peer that speaks in plain messages: `async with Wire(app, era) as peer`."""

    def __init__(
        self,
        app: Server,
        era: str = "handshake",
        *,
        version: str = "",
        capabilities: Any = None,
        log_level: str = "",
        principal: str | None = None,
    ) -> None:
        self.app = app
        self.stateless = era == "stateless"
        self.version = version or (STATELESS if self.stateless else HANDSHAKE).version
        self.capabilities = capabilities or {}
        self.log_level = log_level
        self.origin = Origin(carrier="memory", principal=principal)
        self.heard: list[dict[str, Any]] = []
        self.times: list[float] = []
        self.lost = False
        self._ids = itertools.count(1)
        self._waiting: list[tuple[Callable[[dict[str, Any]], bool], asyncio.Future[dict[str, Any]]]] = []

    async def __aenter__(self) -> Wire:
        await self.app.enter()
        self.link = self.app.link(self.origin)
        self.channel: MemoryChannel = memory_pair(self, self.link)[0]
        if not self.stateless:
            opened = await self.request(
                "initialize",
                {
                    "protocolVersion": self.version,
                    "capabilities": self.capabilities,
                    "clientInfo": {"name": "wire", "version": "1"},
                },
            )
            assert opened["result"]["protocolVersion"] == self.version
            self.notify("notifications/initialized")
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.leave()
        await self.app.leave()

    async def leave(self) -> None:
        """End the link, as a client that dies does."""
        self.channel.close()
        await self.channel.wait_lost()

    # -- what the carrier drives

    def channel_opened(self, channel: Channel) -> None: ...
    def end_received(self, channel: Channel) -> None: ...

    def frame_refused(self, max_size: int, channel: Channel, head: bytes = b"") -> None:
        self.heard.append({"refused": max_size})
        self.times.append(asyncio.get_running_loop().time())

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.lost = True

    def frame_received(self, frame: bytes, channel: Channel) -> None:
        message = json.loads(frame)
        self.heard.append(message)
        self.times.append(asyncio.get_running_loop().time())
        for entry in [entry for entry in self._waiting if entry[0](message)]:
            self._waiting.remove(entry)
            entry[1].set_result(message)

    # -- speaking

    def send(self, message: Any) -> None:
        """Say anything at all."""
        self.channel.send(message)

    def notify(self, method: str, params: Any = None) -> None:
        """Tell something."""
        self.send({"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})})

    def ask(self, method: str, params: Any = None, *, id: Any = None, meta: Any = None) -> Any:  # noqa: A002
        """Send a request; gives its id."""
        identity = next(self._ids) if id is None else id
        own = dict(meta or {})
        if self.stateless:
            own["io.modelcontextprotocol/protocolVersion"] = self.version
            own["io.modelcontextprotocol/clientCapabilities"] = self.capabilities
            if self.log_level:
                own["io.modelcontextprotocol/logLevel"] = self.log_level
        params = {**(params or {}), **({"_meta": own} if own else {})}
        self.send({"jsonrpc": "2.0", "id": identity, "method": method, "params": params})
        return identity

    async def request(self, method: str, params: Any = None, **options: Any) -> dict[str, Any]:
        """Send a request and give the whole response."""
        return await self.response(self.ask(method, params, **options))

    async def call(self, name: str, arguments: Any = None, **options: Any) -> dict[str, Any]:
        """Call a tool and give the whole response."""
        return await self.request("tools/call", {"name": name, "arguments": arguments or {}}, **options)

    def answer(self, asked: dict[str, Any], result: Any) -> None:
        """Answer a request of the server's."""
        self.send({"jsonrpc": "2.0", "id": asked["id"], "result": result})

    async def watch(self, *uris: str, **kinds: bool) -> Any:
        """Want to hear of changes in the way of the era; gives the id of the listen, None where there is none."""
        if not self.stateless:
            for uri in uris:
                assert (await self.request("resources/subscribe", {"uri": uri}))["result"] == {}
            return None
        wanted = {**kinds, **({"resourceSubscriptions": list(uris)} if uris else {})}
        listening = self.ask("subscriptions/listen", {"notifications": wanted})
        await self._first(lambda m: m.get("method") == ACKNOWLEDGED and m["params"]["_meta"][SUBSCRIPTION] == listening)
        return listening

    # -- hearing

    async def response(self, identity: Any) -> dict[str, Any]:
        """Wait for the response to a request."""
        return await self._first(lambda m: "method" not in m and m.get("id") == identity and _same(m["id"], identity))

    async def hear(self, method: str, after: int = 0) -> dict[str, Any]:
        """Wait for a message of the server's that names a method; `after` skips what was heard before."""
        known = self.told(method)[after:]
        return known[0] if known else await self._first(lambda m: m.get("method") == method, fresh=True)

    def told(self, method: str) -> list[dict[str, Any]]:
        """Return everything heard so far that names a method."""
        return [message for message in self.heard if message.get("method") == method]

    def told_at(self, method: str) -> list[float]:
        """Return when what names a method was heard."""
        return [time for message, time in zip(self.heard, self.times, strict=True) if message.get("method") == method]

    async def _first(self, wanted: Callable[[dict[str, Any]], bool], *, fresh: bool = False) -> dict[str, Any]:
        if not fresh:
            for message in self.heard:
                if wanted(message):
                    return message
        future: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._waiting.append((wanted, future))
        return await future


def _same(first: Any, second: Any) -> bool:
    return type(first) is type(second)


@pytest.fixture
def wire() -> type[Wire]:
    """A bare peer, to see exactly what is said."""
    return Wire
