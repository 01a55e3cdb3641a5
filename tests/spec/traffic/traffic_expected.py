"""What must occur in the traffic of each revision, so that a feature nobody exercises is noticed.

The methods and members are those of `mcp-types`; what we never say is listed here with the reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel
from traffic_record import R1, R2, R3, R4, R5
from traffic_types import OPEN_MODELS, SURFACES

TASK_MODELS = {"Tasks", "Tasks1"}

NEVER_SENT = {
    ("client", "notification", "notifications/progress"): "what answers for a client tells no progress",
}

NOT_IN = {
    (R5, "server", "notification", "notifications/cancelled"): "a listening ends with its result (see the errata)",
}

JSON_RPC = {-32700, -32600, -32601, -32602, -32603}
OLDER = JSON_RPC | {-32002, -32012, -32000}
SERVER_CODES = {R1: OLDER, R2: OLDER, R3: OLDER, R4: OLDER | {-32042}, R5: JSON_RPC | {-32020, -32021, -32022}}
"""Also ours: -32012 for a message over the limit, -32000 for a server that is busy."""
REFUSES = JSON_RPC | {-1}
"""A client skips what it cannot read, unless that is a request and its id can be told."""
CLIENT_CODES = {R1: REFUSES, R2: REFUSES, R3: REFUSES, R4: REFUSES, R5: set[int]()}

OLDEST_BLOCKS = {"text", "image", "resource"}
NEWEST_BLOCKS = OLDEST_BLOCKS | {"audio", "resource_link"}
BLOCKS = {R1: OLDEST_BLOCKS, R2: OLDEST_BLOCKS | {"audio"}, R3: NEWEST_BLOCKS, R4: NEWEST_BLOCKS, R5: NEWEST_BLOCKS}
"""The kinds of content a result may hold."""

TASKS = "tasks are held to the schemas in tests/server/tasks/test_schemas.py"
BARE = "there is nothing to say but the method"
SELF = "a client declares what it can answer, and nothing else"
NEVER_SAID = {
    ("CallToolRequestParams", "task"): TASKS,
    ("CreateMessageRequestParams", "task"): TASKS,
    ("ElicitRequestFormParams", "task"): TASKS,
    ("ElicitRequestURLParams", "task"): TASKS,
    ("TaskMetadata", "ttl"): TASKS,
    ("Tool", "execution"): TASKS,
    ("ToolExecution", "taskSupport"): TASKS,
    ("ServerCapabilities", "tasks"): TASKS,
    ("ClientCapabilities", "tasks"): TASKS,
    ("ClientCapabilities", "experimental"): SELF,
    ("ClientCapabilities", "extensions"): SELF,
    ("RequestedSchema", "$schema"): "a form is too small to need a dialect",
    ("InitializedNotification", "params"): BARE,
    ("RootsListChangedNotification", "params"): BARE,
    ("ListRootsRequest", "params"): BARE,
}
NEVER_SAID_IN = {
    (R4, "ToolListChangedNotification", "params"): BARE,
    (R4, "PromptListChangedNotification", "params"): BARE,
    (R4, "ResourceListChangedNotification", "params"): BARE,
}


def methods(revision: str) -> Iterator[tuple[str, str, str]]:
    """Yield who says what, as sender, kind and method."""
    for (sender, kind), surface in SURFACES.items():
        for method, version in surface:
            what = (sender, kind, method)
            if version == revision and what not in NEVER_SENT and (revision, *what) not in NOT_IN:
                yield what


def members(revision: str, said: set[tuple[str, str, str]]) -> set[tuple[str, str]]:
    """Return every member of the messages that were said, as object and member, whether it was said or not."""
    found: dict[type[BaseModel], None] = {}
    for (sender, kind), surface in SURFACES.items():
        for (method, version), model in surface.items():
            if version == revision and (sender, kind, method) in said:
                collect(model, found)
    known = {(model.__name__, name) for model in found for name in member_names(model) if not name.startswith("_")}
    return {place for place in known if place not in NEVER_SAID and (revision, *place) not in NEVER_SAID_IN}


def member_names(model: type[BaseModel]) -> Iterator[str]:
    """Return the members of a model as the wire has them."""
    return (field.alias or name for name, field in model.model_fields.items())


def collect(annotation: Any, found: dict[type[BaseModel], None]) -> None:
    """Find the models in a type, and those in them; what is open has no members of ours."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation in found or annotation.__name__ in OPEN_MODELS or annotation.__name__ in TASK_MODELS:
            return
        found[annotation] = None
        for field in annotation.model_fields.values():
            collect(field.annotation, found)
    else:
        for part in get_args(annotation):
            collect(part, found)


def block_kinds(value: Any) -> Iterator[str]:
    """Yield the kinds of content found anywhere in a value."""
    if isinstance(value, dict):
        if value.get("type") in {"text", "image", "audio", "resource", "resource_link", "tool_use", "tool_result"}:
            yield value["type"]
        for part in value.values():
            yield from block_kinds(part)
    elif isinstance(value, list):
        for part in value:
            yield from block_kinds(part)
