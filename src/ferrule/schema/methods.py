"""One row a method: its params, its result, who answers it, in which era, and how it may be treated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw, Struct

from ferrule.schema.completion import CompleteParams, CompleteResult
from ferrule.schema.elicitation import ElicitParams, ElicitResult
from ferrule.schema.lifecycle import DiscoverResult, InitializeParams, InitializeResult
from ferrule.schema.model import EmptyResult, MetaOnly, Page, Params, Result
from ferrule.schema.notices import ListenParams, SetLevelParams
from ferrule.schema.prompts import GetPromptParams, GetPromptResult, ListPromptsResult
from ferrule.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    ReadResourceParams,
    ReadResourceResult,
    SubscribeParams,
)
from ferrule.schema.roots import ListRootsResult
from ferrule.schema.sampling import CreateMessageParams, CreateMessageResult
from ferrule.schema.tools import CallToolParams, CallToolResult, ListToolsResult


class Method(Struct, frozen=True):
    """What is known of a method in every revision."""

    name: str
    params: type[Params]
    result: type[Result]
    decode_params: Callable[[Raw | bytes], Any]
    decode_result: Callable[[Raw | bytes], Any]
    handshake: bool = True
    stateless: bool = True
    by_client: bool = False
    capability: str = ""
    may_ask: bool = False
    cacheable: bool = False
    standing: bool = False
    read_only: bool = True


def method(name: str, params: type[Params], result: type[Result], **facts: Any) -> Method:
    """Make a row, with decoders compiled once."""
    return Method(
        name, params, result, msgspec.json.Decoder(params).decode, msgspec.json.Decoder(result).decode, **facts
    )


ROWS = (
    method("initialize", InitializeParams, InitializeResult, stateless=False),
    method("server/discover", MetaOnly, DiscoverResult, handshake=False, cacheable=True),
    method("ping", MetaOnly, EmptyResult, stateless=False),
    method("tools/list", Page, ListToolsResult, capability="tools", cacheable=True),
    method("tools/call", CallToolParams, CallToolResult, capability="tools", may_ask=True, read_only=False),
    method("resources/list", Page, ListResourcesResult, capability="resources", cacheable=True),
    method("resources/templates/list", Page, ListResourceTemplatesResult, capability="resources", cacheable=True),
    method(
        "resources/read", ReadResourceParams, ReadResourceResult, capability="resources", may_ask=True, cacheable=True
    ),
    method("resources/subscribe", SubscribeParams, EmptyResult, stateless=False, capability="resources.subscribe"),
    method("resources/unsubscribe", SubscribeParams, EmptyResult, stateless=False, capability="resources.subscribe"),
    method("prompts/list", Page, ListPromptsResult, capability="prompts", cacheable=True),
    method("prompts/get", GetPromptParams, GetPromptResult, capability="prompts", may_ask=True),
    method("completion/complete", CompleteParams, CompleteResult, capability="completions"),
    method("logging/setLevel", SetLevelParams, EmptyResult, stateless=False, capability="logging"),
    method("subscriptions/listen", ListenParams, EmptyResult, handshake=False, standing=True),
    method(
        "sampling/createMessage",
        CreateMessageParams,
        CreateMessageResult,
        stateless=False,
        by_client=True,
        capability="sampling",
        read_only=False,
    ),
    method(
        "elicitation/create",
        ElicitParams,
        ElicitResult,
        stateless=False,
        by_client=True,
        capability="elicitation",
        read_only=False,
    ),
    method("roots/list", MetaOnly, ListRootsResult, stateless=False, by_client=True, capability="roots"),
)

METHODS = {row.name: row for row in ROWS}
