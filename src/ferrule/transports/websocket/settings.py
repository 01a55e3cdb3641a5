"""The options of speaking WebSocket."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import Bytes, FilePath, MessageSize, PositiveInt, PositiveSeconds, check, read, require
from ferrule.transports.contract import CredentialsSource
from ferrule.transports.http.client.options import require_credentials
from ferrule.wire.codec import MAX_MESSAGE_SIZE

PATH = "/mcp/ws"

Signal = Callable[[str, int], None]
"""Takes "buffer_full" or "resume_sending", and how many bytes wait for the peer."""


class ChannelSettings(Struct, frozen=True, kw_only=True):
    """How either side treats a WebSocket; times are seconds, sizes bytes."""

    max_message_size: MessageSize = MAX_MESSAGE_SIZE
    """The longest message that is read."""
    validate_utf8: bool = True
    """Whether text that is not UTF-8 closes the WebSocket with 1007."""
    strict_delimiter_check: bool = False
    """Whether every text must end with a line feed; many peers send one message a text without it."""
    accept_binary: bool = False
    """Whether binary messages are read as if they were text, instead of closing with 1003."""
    compression: bool = False
    """Whether permessage-deflate is offered and accepted."""
    frame_buffer_size: Bytes = 102_400
    """What may wait for the peer: over 80 % of it backpressure begins, below 50 % it ends."""
    backpressure_timeout: PositiveSeconds = 5.0
    """How long a peer may take nothing of what waits for it before the WebSocket is closed with 1011."""
    on_backpressure: Signal | None = None
    """Called when backpressure begins and ends."""
    ping_interval: PositiveSeconds | None = 30.0
    """How often the peer is pinged; None for never."""
    pong_timeout: PositiveSeconds = 10.0
    """How long it may take to answer."""
    fragment_timeout: PositiveSeconds = 30.0
    """How long the last part of a message may be awaited, from its first."""
    fragment_timeout_code: PositiveInt = 1009
    """The code a WebSocket is closed with whose message was not finished in time."""
    close_timeout: PositiveSeconds = 10.0
    """How long the answer to our close may take before the connection is cut."""

    def __post_init__(self) -> None:
        check(self)


class WebSocketSettings(ChannelSettings, frozen=True, kw_only=True):
    """How WebSockets are served."""

    path: str = PATH
    """Where WebSockets are opened."""
    max_connections: PositiveInt = 1000
    """How many WebSockets may be open at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.path.startswith("/"):
            raise SetupError(f"the path of WebSockets must begin with a slash, not {self.path!r}")


class WebSocketOptions(ChannelSettings, frozen=True, kw_only=True):
    """How a server is reached over WebSocket."""

    headers: Mapping[str, str] = {}
    """Sent with the opening request; an authorization goes here."""
    connect_timeout: PositiveSeconds = 5.0
    """How long opening a connection may take."""
    verify: bool = True
    """Whether the server's certificate must be valid."""
    ca: FilePath | None = None
    """A file of certificates to trust instead of the system's."""
    cert: FilePath | tuple[FilePath, FilePath] | None = None
    """Our own certificate with its key, in one PEM file or two."""
    auth: CredentialsSource | None = None
    """Who we are: OAuth(…), Bearer(…) and their like; it is asked before a WebSocket is opened."""

    def __post_init__(self) -> None:
        require_credentials(self.auth, self.headers)
        super().__post_init__()


def beside_http(given: bool | Mapping[str, object], taken: str) -> WebSocketSettings | None:
    """Read what an endpoint of HTTP, at a path of its own, is told of WebSockets; None where there are none."""
    if given is False:
        return None
    if given is True:
        settings = WebSocketSettings()
    else:
        require("websocket", given, bool | Mapping[str, object])
        settings = read(WebSocketSettings, given, "websocket")
    if settings.path == taken:
        raise SetupError(f"path and the path of WebSockets are both {taken!r}")
    return settings
