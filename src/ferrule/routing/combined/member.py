"""One of several servers that are used side by side."""

from __future__ import annotations

import asyncio

from ferrule.client.client import Client
from ferrule.errors import ConnectFailed, FerruleError
from ferrule.protocol.session import Phase
from ferrule.schema.prefix import Prefix


class Member:
    """A server of a combined client: its name, the client that reaches it, and why it cannot be used now."""

    def __init__(self, name: str, prefix: Prefix, client: Client) -> None:
        self.name = name
        self.prefix = prefix
        self.client = client
        """Reaches this server alone, by the names it has for its offers."""
        self.error = ""
        """Why the server cannot be used now, as one sentence; empty while it can."""
        self._opening = asyncio.Lock()
        client.on_connected(self._connected)
        client.on_error(self._failed)

    @property
    def connected(self) -> bool:
        """Whether the server can be used now."""
        return self.client.phase is Phase.INITIALIZED

    def _connected(self) -> None:
        self.error = ""

    def _failed(self, kind: str, reason: str) -> None:
        self.error = reason

    async def connect(self, timeout: float) -> None:
        """Connect to the server, unless it is connected; raise ConnectFailed and the like."""
        async with self._opening:
            if self.connected:
                return
            try:
                async with asyncio.timeout(timeout):
                    await self.client.connect()
            except TimeoutError:
                self.error = f"{self.name} did not let us connect within {timeout:.3g} s"
                raise ConnectFailed(self.error) from None
            except (FerruleError, OSError) as error:
                self.error = str(error)
                raise

    async def reconnect(self, timeout: float) -> None:
        """End the conversation with the server, if there is one, and start a new one."""
        await self.client.close(0.0)
        await self.connect(timeout)
