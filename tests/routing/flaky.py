"""A server in this process, and a way to it that can be cut."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule import Server
from ferrule.errors import ConnectFailed
from ferrule.transports.memory import Memory
from ferrule.wire.channel import Channel, Receiver


class Flaky:
    """A transport to a server of its own, which counts its calls; it can be down, cut, slow, or silent."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.down = False
        self.pause = 0.0
        self.connect_pause = 0.0
        self.calls: list[str] = []
        self.notifications: list[str] = []
        self.connects = 0
        self.server = Server(name)
        self._memory: Memory | None = None
        self._channel: Any = None
        self._offer()

    def _offer(self) -> None:
        @self.server.tool
        async def who(text: str = "") -> str:
            """Return the name of the server, after a while."""
            self.calls.append(text)
            await asyncio.sleep(self.pause)
            return self.name

        @self.server.tool
        async def broken() -> str:
            """Fail."""
            raise ValueError("a bug of the tool")

        @self.server.resource("note://who")
        async def note() -> str:
            """Return the name of the server as a resource."""
            self.calls.append("note://who")
            await asyncio.sleep(self.pause)
            return self.name

    async def connect(self, receiver: Receiver) -> Channel:
        """Connect to the server, if it is there."""
        self.connects += 1
        await asyncio.sleep(self.connect_pause)
        if self.down:
            raise ConnectFailed(f"nobody answers at {self.name}")
        self._memory = Memory(self.server)
        self._channel = await self._memory.connect(receiver)
        return self._channel  # type: ignore[no-any-return]

    async def close(self, grace: float = 2.0) -> None:
        """End the way to the server."""
        memory = self._memory
        self._memory = None
        if memory is not None:
            await memory.close(grace)

    def cut(self, *, down: bool = True) -> None:
        """Lose the link, as when the server crashes; it stays away if it is down."""
        self.down = down
        channel = self._channel
        far = channel.far
        far.lose(ConnectionResetError("cut"))
        channel.lose(ConnectionResetError("cut"))
