"""A server as the holder of tasks: its tools' calls become some, and its subscriptions hear of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.protocol.call import Call
from ferrule.protocol.capabilities import server_offers
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.runtime.tasks.form import told
from ferrule.schema.tasks import Task
from ferrule.schema.tools import CallToolResult
from ferrule.server.functions.types.known import encode_hook
from ferrule.server.offers.catalogue import off
from ferrule.stores.tasks import StoredTask

if TYPE_CHECKING:
    from ferrule.server.server import Server

_write = msgspec.json.Encoder(decimal_format="number", enc_hook=encode_hook).encode
_read = msgspec.json.Decoder(CallToolResult).decode


class ToolTasks:
    """What the tasks of a server must know of it; see `TaskHolder`."""

    requests: dict[str, Any] = {"tools": {"call": {}}}  # noqa: RUF012 - never changed

    def __init__(self, server: Server) -> None:
        self._server = server

    def named(self, call: Call) -> str:
        """Give the name of the tool a call runs."""
        name: str = call.params.name
        return name

    def owner(self, call: Call, *, by_session: bool) -> str:
        """Tell whose a task of this call is; empty for whoever knows its id."""
        if call.origin.principal is None and not (by_session and call.era is self._server.handshake):
            return ""
        return self._server.links.owner(call) or ""

    def require(self, capability: str) -> None:
        """Refuse a request for something the server does not offer."""
        if not server_offers(self._server.capabilities, capability):
            raise off(capability)

    def changed(self, task: StoredTask) -> None:
        """Tell the subscriptions that asked for this task."""
        self._server.subscriptions.task_changed(task.id, lambda: told(task, STATELESS, Task))

    def may_tell_progress(self, call: Call) -> bool:
        """Tell whether one more progress notice may go out now to the caller of a task."""
        return self._server.links.may_tell_progress(call)

    def written(self, result: Any) -> bytes:
        """Write the result of a tool, which may hold values of any type."""
        return _write(result)

    def read(self, task: StoredTask) -> CallToolResult:
        """Read the result of a tool that is kept."""
        return _read(task.result or b"")
