"""How a conversation opens: initialize, discover, and what each side declares."""

# No `from __future__ import annotations`: every start decodes structs of this module, and of annotations that are texts
# msgspec makes a decoder in three times the time.

from collections.abc import Callable
from typing import TypeVar

import msgspec
from msgspec import Raw, Struct

from ferrule.budgets.bounds import MAX_PEER_INFO_SIZE, MAX_PEER_INFO_VALUES
from ferrule.budgets.weight import bounded_depth
from ferrule.schema.model import CacheableResult, ClientCapabilities, Implementation, JsonObject, Params, Result, Value


class ListCapability(Value, frozen=True, kw_only=True):
    """A list the server offers, and whether it tells of changes."""

    list_changed: bool | None = None


class ResourcesCapability(Value, frozen=True, kw_only=True):
    """Resources, and whether they can be subscribed to."""

    subscribe: bool | None = None
    list_changed: bool | None = None


class ServerCapabilities(Value, frozen=True, kw_only=True):
    """What a server offers; a member that is present, even empty, is supported."""

    tools: ListCapability | None = None
    resources: ResourcesCapability | None = None
    prompts: ListCapability | None = None
    completions: JsonObject | None = None
    logging: JsonObject | None = None
    tasks: JsonObject | None = None
    experimental: JsonObject | None = None
    extensions: JsonObject | None = None


class InitializeParams(Params, kw_only=True):
    """A client's offer."""

    protocol_version: str
    capabilities: ClientCapabilities
    client_info: Implementation


class InitializeResult(Result, kw_only=True):
    """The server's answer to the offer."""

    protocol_version: str
    capabilities: ServerCapabilities
    server_info: Implementation
    instructions: str | None = None


class DiscoverResult(CacheableResult, kw_only=True):
    """What a server of the stateless era is and can do."""

    supported_versions: list[str]
    capabilities: ServerCapabilities
    instructions: str | None = None


# -- how much a peer may say of itself

T = TypeVar("T")
NOTHING = Raw(b"{}")


class Said(Struct, rename="camel", gc=False):
    """What a peer says of itself, unread."""

    client_info: Raw = NOTHING
    server_info: Raw = NOTHING
    capabilities: Raw = NOTHING


_read_said: Callable[[Raw | bytes], Said] = bounded_depth(msgspec.json.Decoder(Said).decode)


def check_said(raw: Raw | bytes) -> None:
    """Raise ValidationError for a peer that says too much of itself: it is kept as long as the peer is there."""
    if len(raw) <= MAX_PEER_INFO_VALUES:  # one byte a value: it has no room for too much
        return
    said = _read_said(raw)
    _check_part("clientInfo", said.client_info)
    _check_part("serverInfo", said.server_info)
    _check_part("capabilities", said.capabilities)


def _check_part(name: str, part: Raw) -> None:
    if len(part) > MAX_PEER_INFO_SIZE:
        raise msgspec.ValidationError(f"Expected an object of at most {MAX_PEER_INFO_SIZE} bytes - at `$.{name}`")
    text = bytes(part)
    if text.count(b"{") + text.count(b"[") + text.count(b",") > MAX_PEER_INFO_VALUES:
        raise msgspec.ValidationError(f"Expected at most {MAX_PEER_INFO_VALUES} values - at `$.{name}`")


def bounded(decode: Callable[[Raw | bytes], T]) -> Callable[[Raw | bytes], T]:
    """Return a decoder that refuses a peer which says too much of itself, or says it too deep."""

    def read(raw: Raw | bytes) -> T:
        try:
            check_said(raw)
            return decode(raw)
        except RecursionError:
            # The message could be read: this is a few frames deeper.
            raise msgspec.ValidationError("Expected objects that are not nested so deeply") from None

    return read
