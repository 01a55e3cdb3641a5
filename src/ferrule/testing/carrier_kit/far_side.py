"""The far side of a judged carrier: a server with the tools the rules need, and a witness before every link."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ferrule.errors import EncodeError
from ferrule.identity.verifier import Verifier
from ferrule.protocol.era import Eras
from ferrule.server.calls.context import Context
from ferrule.server.hosting.monitor import Monitor
from ferrule.server.server import Server
from ferrule.testing.carrier_kit.witness import Watched
from ferrule.transports.http.endpoint.cluster import Cluster
from ferrule.transports.http.endpoint.neighbours import Neighbours
from ferrule.transports.http.routes.custom import CustomRoute
from ferrule.wire.channel import Origin, Receiver
from ferrule.wire.messages import Notification

NOTED = "notifications/kit/noted"
TOLD = "notifications/kit/told"
PUSHED = "notifications/kit/pushed"
AT_ONCE = 10_000
"""How many calls may run at once: the carrier is judged, not the patience of the server behind it."""


class Tools:
    """What the near side may ask for."""

    def __init__(self) -> None:
        self.links: list[Watched] = []
        self.said = 0
        """How many notifications the last `tell` has said so far."""
        self.begun = 0
        """How many calls of `hold` and `nap` began."""
        self.withdrawn = 0
        """How many of them were cancelled before they ended."""
        self.began = asyncio.Event()
        self.released = asyncio.Event()
        """Lets every `hold` end."""

    def _begin(self) -> None:
        self.begun += 1
        self.began.set()

    async def echo(self, value: object) -> dict[str, Any]:
        """Return back what was given."""
        return {"value": value}

    async def size(self, text: str) -> dict[str, int]:
        """Return how long a text is."""
        return {"size": len(text)}

    async def large(self, size: int, ctx: Context) -> dict[str, bool]:
        """Say something long, and tell whether the carrier refused it."""
        try:
            ctx.call.channel.send(Notification(TOLD, {"text": "x" * size}))
        except EncodeError:
            return {"refused": True}
        return {"refused": False}

    async def origin(self, ctx: Context) -> dict[str, str]:
        """Return what is known about who asks."""
        origin = ctx.call.origin
        return {"carrier": origin.carrier, "address": origin.address}

    async def noted(self) -> dict[str, list[int]]:
        """Return which numbered notifications came from the peer that came last, in order."""
        return {"numbers": self.links[-1].numbers(NOTED)}

    async def heard(self) -> dict[str, int]:
        """Return how many calls of `echo` were heard, whoever asked."""
        calls = 0
        for link in self.links:
            for params in link.told("tools/call"):
                if params["name"] == "echo":
                    calls += 1
        return {"calls": calls}

    async def tell(self, count: int, text: str, ctx: Context) -> dict[str, int]:
        """Say numbered notifications on the way back of this call, as fast as the carrier takes them."""
        channel = ctx.call.channel
        self.said = 0
        for number in range(count):
            channel.send(Notification(TOLD, {"number": number, "text": text}))
            self.said += 1
            await channel.wait_writable()
        return {"count": count}

    async def push(self, count: int) -> dict[str, int]:
        """Say numbered notifications that belong to no call, to the peer that came last."""
        channel = self.links[-1].channel
        for number in range(count):
            channel.send(Notification(PUSHED, {"number": number}))
            await channel.wait_writable()
        return {"count": count}

    async def hold(self) -> dict[str, bool]:
        """Answer when the kit says so."""
        self._begin()
        try:
            await self.released.wait()
        except asyncio.CancelledError:
            self.withdrawn += 1
            raise
        return {"held": True}

    async def nap(self, seconds: float) -> dict[str, float]:
        """Answer after a while."""
        self._begin()
        await asyncio.sleep(seconds)
        return {"slept": seconds}

    async def leave(self, ctx: Context) -> dict[str, bool]:
        """Close the channel this call came on instead of answering."""
        ctx.call.channel.close("the kit wants to see how you take it")
        await asyncio.Event().wait()
        return {}


class FarSide:
    """What a judged listener serves; a listener that serves in another process makes one there: `FarSide()`."""

    def __init__(self) -> None:
        tools = self.tools = Tools()
        self.server = Server("carrier kit", max_concurrent_per_session=AT_ONCE, max_concurrent=AT_ONCE)
        for name, tool in inspect.getmembers(tools, inspect.iscoroutinefunction):
            self.server.add_tool(name, tool)

    async def until_begun(self, count: int) -> None:
        """Wait until so many calls of `hold` and `nap` have begun."""
        while self.tools.begun < count:
            self.tools.began.clear()
            await self.tools.began.wait()

    @property
    def links(self) -> list[Watched]:
        """Whoever came, in that order; all who ask without a session are one."""
        return self.tools.links

    @property
    def faults(self) -> list[str]:
        """What no carrier may do, and this one did."""
        faults: list[str] = []
        for link in self.links:
            faults += link.faults
        return faults

    # -- what a listener uses

    @property
    def eras(self) -> Eras:
        """The protocol generations of the server."""
        return self.server.host.eras

    @property
    def observer(self) -> None:
        """Nobody: the kit judges by what it sees itself."""
        return

    @property
    def verifier(self) -> Verifier:
        """Who decides who a caller is."""
        return self.server.host.verifier

    async def enter(self) -> None:
        """Start the server."""
        await self.server.enter()

    async def leave(self) -> None:
        """End the server."""
        await self.server.leave()

    def link(self, origin: Origin) -> Watched:
        """Return a watched link to one peer."""
        return self._watch(self.server.link(origin), origin)

    def sessionless_link(self, origin: Origin, version: str = "") -> Watched:
        """Return the watched link of everyone who asks without a session."""
        return self._watch(self.server.host.sessionless_link(origin, version), origin)

    def _watch(self, receiver: Receiver, origin: Origin) -> Watched:
        watched = Watched(receiver, origin)
        self.links.append(watched)
        return watched

    def busy(self, link: Receiver) -> bool:
        """Return whether calls run on a link."""
        return self.server.host.busy(link.receiver if isinstance(link, Watched) else link)

    def mirrored(self, tool: str) -> Mapping[str, tuple[str, ...]]:
        """Return which arguments of a tool its HTTP headers mirror."""
        return self.server.host.mirrored(tool)

    @property
    def custom_routes(self) -> Sequence[CustomRoute]:
        """What is offered over HTTP beside MCP."""
        return self.server.host.custom_routes

    @property
    def neighbours(self) -> Neighbours | None:
        """The other workers of the server."""
        return self.server.host.neighbours

    @property
    def cluster(self) -> Cluster | None:
        """The nodes the server is one of."""
        return self.server.host.cluster

    def replay_frames(self, link: Receiver) -> Sequence[bytes]:
        """Return what a session's client has said since its handshake that still holds, as frames."""
        return self.server.host.replay_frames(link.receiver if isinstance(link, Watched) else link)

    def monitor(self) -> Monitor:
        """Return what tells of the server's health and its metrics."""
        return self.server.host.monitor()

    async def drain(self, grace: float) -> None:
        """Wait until running calls are answered."""
        await self.server.drain(grace)
