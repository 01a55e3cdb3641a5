"""Who holds tasks: a server for calls of its tools, a client for the questions it is asked."""

from __future__ import annotations

from typing import Any, Protocol

from ferrule.protocol.call import Call
from ferrule.stores.tasks import StoredTask


class TaskHolder(Protocol):
    """What the tasks of one side must know of it."""

    @property
    def requests(self) -> dict[str, Any]:
        """Which requests may become tasks, as it is declared."""

    def named(self, call: Call) -> str:
        """Give the name of what a call runs: of a tool, or of a method."""

    def owner(self, call: Call, *, by_session: bool) -> str:
        """Tell whose a task of this call is; empty for whoever knows its id."""

    def require(self, capability: str) -> None:
        """Refuse a request for something that was not declared."""

    def changed(self, task: StoredTask) -> None:
        """Tell those who subscribed to a task how it stands."""

    def may_tell_progress(self, call: Call) -> bool:
        """Tell whether one more progress notice may go out now to the caller of a task."""

    def written(self, result: Any) -> bytes:
        """Write the result of a task as it is kept."""

    def read(self, task: StoredTask) -> Any:
        """Read the result of a task that is kept."""
