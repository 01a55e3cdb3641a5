"""The options of speaking WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.transports.options import require_message_size, require_types
from ferrule.wire.codec import MAX_MESSAGE_SIZE

PATH = "/mcp/ws"

Signal = Callable[[str, int], None]
"""Takes "buffer_full" or "resume_sending", and how many bytes wait for the peer."""


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """How either side treats a WebSocket; times are seconds, sizes bytes."""

    max_message_size: int = MAX_MESSAGE_SIZE
    validate_utf8: bool = True
    strict_delimiter_check: bool = False
    """Whether every text must end with a line feed; many peers send one message a text without it."""
    accept_binary: bool = False
    """Whether binary messages are read as if they were text, instead of closing with 1003."""
    compression: bool = False
    """Whether permessage-deflate is offered and accepted."""
    frame_buffer_size: int = 102_400
    """What may wait for the peer: over 80 % of it backpressure begins, below 50 % it ends."""
    backpressure_timeout: float = 5.0
    """How long a peer may take nothing of what waits for it before the WebSocket is closed with 1011."""
    on_backpressure: Signal | None = None
    ping_interval: float | None = 30.0
    pong_timeout: float = 10.0
    fragment_timeout: float = 30.0
    """How long the last part of a message may be awaited, from its first."""
    fragment_timeout_code: int = 1009
    close_timeout: float = 10.0
    """How long the answer to our close may take before the connection is cut."""

    def __post_init__(self) -> None:
        require_types(self)
        require_message_size(self.max_message_size)
        for field in structs.fields(self):
            value = getattr(self, field.name)
            if type(value) in (int, float) and not value > 0:
                raise SetupError(f"{field.name} must be more than 0, not {value!r}")


class WebSocketSettings(ChannelSettings, frozen=True, kw_only=True):
    """How WebSockets are served."""

    path: str = PATH
    max_connections: int = 1000

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path.startswith("/"):
            raise SetupError(f"the path of WebSockets must begin with a slash, not {self.path!r}")


class WebSocketOptions(ChannelSettings, frozen=True, kw_only=True):
    """How a server is reached over WebSocket."""

    headers: Mapping[str, str] = {}
    """Sent with the opening request; an authorization goes here."""
    connect_timeout: float = 5.0
    verify: bool = True
    ca: str | None = None
    """A file of certificates to trust instead of the system's."""
    cert: str | tuple[str, str] | None = None
    """Our own certificate with its key, in one PEM file or two."""


S = TypeVar("S", bound=Struct)


def read_options(kind: type[S], options: Mapping[str, Any]) -> S:
    """Make settings of options; raises SetupError for one that does not exist."""
    unknown = []
    for name in options:
        if name not in kind.__struct_fields__:
            unknown.append(name)
    if unknown:
        known = ", ".join(sorted(kind.__struct_fields__))
        raise SetupError(f"websocket: unknown option {unknown[0]!r}; the options are {known}")
    return kind(**options)


def beside_http(given: bool | Mapping[str, Any], taken: str) -> WebSocketSettings | None:
    """Read what an endpoint of HTTP, at a path of its own, is told of WebSockets; None where there are none."""
    if given is False:
        return None
    settings = read_options(WebSocketSettings, {} if given is True else given)
    if settings.path == taken:
        raise SetupError(f"path and the path of WebSockets are both {taken!r}")
    return settings
