"""The contract of whoever knows the other nodes that run tasks of the same store."""

from __future__ import annotations

from typing import Protocol

from msgspec import Raw

from ferrule.stores.contracts import StoredTask


class OtherNodes(Protocol):
    """The other nodes, as far as tasks need them."""

    @property
    def name(self) -> str:
        """What other nodes know this one by."""

    async def lives(self, node: str) -> bool:
        """Return whether a node lives; raises Busy where nobody knows."""

    async def answer(self, task: StoredTask, responses: dict[str, Raw]) -> None:
        """Hand the node that runs a task the answers to what it asked; raises Busy."""

    async def cancelled(self, task: StoredTask) -> None:
        """Let the node that runs a task know that it is over."""

    def changed(self, task: StoredTask) -> None:
        """Let nodes whose clients subscribed to a task know that it has changed."""
