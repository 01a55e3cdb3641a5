"""One row a method: its params, its result, who answers it, in which era, and how it may be treated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.schema.completion import CompleteParams, CompleteResult
from ferrule.schema.elicitation import ElicitParams, ElicitResult
from ferrule.schema.lifecycle import DiscoverResult, InitializeParams, InitializeResult, bounded
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
from ferrule.schema.tasks import CancelTaskResult, ListTasksResult, Task, TaskParams, UpdateTaskParams
from ferrule.schema.tools import CallToolParams, CallToolResult, ListToolsResult

Decode = Callable[[Raw | bytes], Any]


class Method:
    """What is known of a method in every revision.

    Its decoders are compiled when they are first wanted: a server needs few of the results, a client few of the params.
    """

    __slots__ = (
        "by_client",
        "cacheable",
        "capability",
        "decode_params",
        "decode_result",
        "handshake",
        "introduces",
        "may_ask",
        "name",
        "params",
        "read_only",
        "result",
        "standing",
        "stateless",
    )

    def __init__(
        self,
        name: str,
        params: type[Params],
        result: type[Result],
        *,
        handshake: bool = True,
        stateless: bool = True,
        by_client: bool = False,
        capability: str = "",
        may_ask: bool = False,
        cacheable: bool = False,
        standing: bool = False,
        read_only: bool = True,
        introduces: bool = False,
    ) -> None:
        self.name = name
        self.params = params
        self.result = result
        self.handshake = handshake
        self.stateless = stateless
        self.by_client = by_client
        self.capability = capability
        self.may_ask = may_ask
        self.cacheable = cacheable
        self.standing = standing
        self.read_only = read_only
        self.introduces = introduces
        """Whether a peer says who it is in it: how much it says is bounded."""
        # No `__getattr__` compiles them: beside one, Python finds every attribute of a row the slow way.
        self.decode_params: Decode | None = None
        self.decode_result: Decode | None = None

    def params_decoder(self) -> Decode:
        """Return what reads its params."""
        if self.decode_params is None:
            self.decode_params = self._compile(self.params)
        return self.decode_params

    def result_decoder(self) -> Decode:
        """Return what reads its result."""
        if self.decode_result is None:
            self.decode_result = self._compile(self.result)
        return self.decode_result

    def _compile(self, form: type[Params | Result]) -> Decode:
        decode: Decode = msgspec.json.Decoder(form).decode
        if self.introduces:
            return bounded(decode)
        return decode


ROWS = (
    Method("initialize", InitializeParams, InitializeResult, stateless=False, introduces=True),
    Method("server/discover", MetaOnly, DiscoverResult, handshake=False, cacheable=True, introduces=True),
    Method("ping", MetaOnly, EmptyResult, stateless=False),
    Method("tools/list", Page, ListToolsResult, capability="tools", cacheable=True),
    Method("tools/call", CallToolParams, CallToolResult, capability="tools", may_ask=True, read_only=False),
    Method("resources/list", Page, ListResourcesResult, capability="resources", cacheable=True),
    Method("resources/templates/list", Page, ListResourceTemplatesResult, capability="resources", cacheable=True),
    Method(
        "resources/read", ReadResourceParams, ReadResourceResult, capability="resources", may_ask=True, cacheable=True
    ),
    Method("resources/subscribe", SubscribeParams, EmptyResult, stateless=False, capability="resources.subscribe"),
    Method("resources/unsubscribe", SubscribeParams, EmptyResult, stateless=False, capability="resources.subscribe"),
    Method("prompts/list", Page, ListPromptsResult, capability="prompts", cacheable=True),
    Method("prompts/get", GetPromptParams, GetPromptResult, capability="prompts", may_ask=True),
    Method("completion/complete", CompleteParams, CompleteResult, capability="completions"),
    Method("logging/setLevel", SetLevelParams, EmptyResult, stateless=False, capability="logging"),
    Method("subscriptions/listen", ListenParams, EmptyResult, handshake=False, standing=True, read_only=False),
    Method("tasks/get", TaskParams, Task, capability="tasks"),
    Method("tasks/result", TaskParams, Result, stateless=False, capability="tasks", standing=True),
    Method("tasks/list", Page, ListTasksResult, stateless=False, capability="tasks.list"),
    Method("tasks/update", UpdateTaskParams, EmptyResult, handshake=False, capability="tasks", read_only=False),
    Method("tasks/cancel", TaskParams, CancelTaskResult, capability="tasks.cancel", read_only=False),
    Method(
        "sampling/createMessage",
        CreateMessageParams,
        CreateMessageResult,
        stateless=False,
        by_client=True,
        capability="sampling",
        read_only=False,
    ),
    Method(
        "elicitation/create",
        ElicitParams,
        ElicitResult,
        stateless=False,
        by_client=True,
        capability="elicitation",
        read_only=False,
    ),
    Method("roots/list", MetaOnly, ListRootsResult, stateless=False, by_client=True, capability="roots"),
)

METHODS = {row.name: row for row in ROWS}
