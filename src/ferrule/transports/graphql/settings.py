"""The options of serving GraphQL."""

from __future__ import annotations

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import MessageSize, Port, PositiveInt, PositiveSeconds, check
from ferrule.wire.codec import MAX_MESSAGE_SIZE


class GraphqlSettings(Struct, frozen=True, kw_only=True):
    """How GraphQL is served; times are seconds, sizes bytes."""

    path: str = "/graphql"
    """Where operations are sent, and WebSockets for subscriptions are opened."""
    port: Port = 4000
    """The port to listen on; 0 for any that is free."""
    introspection: bool = False
    """Whether `__schema` and `__type` are answered; the schema is the same for every server, and in the guide."""
    max_body_size: MessageSize = MAX_MESSAGE_SIZE
    """The longest body of a request, the longest message of a WebSocket, and the longest answer."""
    max_document_length: PositiveInt = 16_384
    """The most characters of a document."""
    max_tokens: PositiveInt = 1000
    """The most tokens of a document."""
    max_depth: PositiveInt = 15
    """How deep the fields of a document may be nested."""
    max_aliases: PositiveInt = 20
    """How many fields of a document may have an alias: each of them may be one more call."""
    max_cost: PositiveInt = 10_000
    """What a document may cost: a field counts once, inside a list once for each entry the list is taken to have."""
    max_operations: PositiveInt = 1000
    """How many operations may run at once over HTTP; one more is answered 503."""
    max_websockets: PositiveInt = 1000
    """How many WebSockets may be open at once."""
    max_subscriptions: PositiveInt = 100
    """How many operations may run at once on one WebSocket."""
    init_timeout: PositiveSeconds = 10.0
    """How long a WebSocket may take to send `connection_init`."""

    def __post_init__(self) -> None:
        check(self)
        if not self.path.startswith("/"):
            raise SetupError(f"the path of GraphQL must begin with a slash, not {self.path!r}")
