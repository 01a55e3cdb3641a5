"""What can be said about a tool besides its function, and how it is listed."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.schema.apps import ToolUi, tool_ui
from ferrule.schema.mirrored import Annotated, mirrored_arguments
from ferrule.schema.model import Icon
from ferrule.schema.tasks import TaskSupport
from ferrule.schema.tools import Tool, ToolAnnotations
from ferrule.server.functions.binder import Binding
from ferrule.server.functions.schemas import inlined
from ferrule.server.middleware.stack import AnyLayer
from ferrule.server.offers.entry import Visible

logger = logging.getLogger("ferrule.tools")

SECRET = re.compile(r"passw|passphrase|secret|token|api[-_]?key|credential|authorization|cookie|private", re.IGNORECASE)
"""How the names of things look that nobody but their owner should see."""
GOOD_NAME = re.compile(r"[A-Za-z0-9_.\-]{1,128}")
MAX_DESCRIPTION = 10_000


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a tool besides its function."""

    name: str | None = None
    title: str | None = None
    description: str | None = None
    annotations: ToolAnnotations | Mapping[str, Any] | None = None
    icons: list[Icon] | None = None
    meta: Mapping[str, Any] | None = None
    timeout: float | None = None
    inline: bool = False
    schema: Mapping[str, Any] | None = None
    output_schema: Mapping[str, Any] | None = None
    structured_output: bool | None = None
    """Whether its results are data with a schema; None for yes where the return annotation has one."""
    deprecated: bool = False
    max_threads: int = 32
    inline_refs: bool | None = None
    """Whether its schemas are written without references; None for what the server says."""
    ui: ToolUi | Mapping[str, Any] | str | None = None
    """The page that shows its results, by its URI; or that and who may call it."""
    max_concurrent: int | None = None
    """How many calls may run at once, be they in threads or not."""
    max_waiting: int = 4096
    """How many more may wait for their turn; the next is refused as busy."""
    result_limit: int | None = None
    """How many bytes a result may have; None for what the server says."""
    result_policy: str | None = None
    """What becomes of a larger one: `refuse`, `truncate` or `spill`."""
    tags: Collection[str] | None = ()
    visible: Visible | None = None
    middleware: Sequence[AnyLayer] = ()
    task: TaskSupport | bool = "forbidden"
    task_start: Literal["call", "handler"] = "call"

    def __post_init__(self) -> None:
        if isinstance(self.timeout, int | float) and not self.timeout > 0:
            raise SetupError(f"timeout must be more than 0 seconds, or None for the server's, not {self.timeout!r}")
        if self.task not in (*get_args(TaskSupport), True, False):
            raise SetupError(f"task is one of {', '.join(get_args(TaskSupport))}, not {self.task!r}")
        if self.task_start not in ("call", "handler"):
            raise SetupError(f"task_start is call or handler, not {self.task_start!r}")

    @property
    def task_support(self) -> TaskSupport:
        """Whether the tool runs as a task; yes means that it may."""
        if isinstance(self.task, bool):
            return "optional" if self.task else "forbidden"
        return self.task


def mirrored_of(tool: Tool) -> Annotated:
    """Return which arguments of a tool its HTTP headers mirror; SetupError if it says that wrongly."""
    try:
        mirrored = mirrored_arguments(tool.input_schema)
    except ValueError as reason:
        raise SetupError(f"tool {tool.name!r}: {reason}") from None
    for path in mirrored.values():
        if SECRET.search(path[-1]):
            where = ".".join(path)
            logger.warning(
                "tool %s: %s looks like a secret, and headers are seen by many: do not mirror it", tool.name, where
            )
    return mirrored


def described(binding: Binding, options: ToolOptions, *, inlines: bool) -> Tool:
    """Say how a tool is listed."""
    name = options.name or binding.name
    if not name or name == "<lambda>":
        raise SetupError("a tool needs a name: pass name=… for a lambda")
    if not GOOD_NAME.fullmatch(name):
        logger.warning("the tool name %r is outside [A-Za-z0-9_.-]{1,128}: some clients will refuse it", name)
    description = options.description or binding.description
    if description is not None and len(description) > MAX_DESCRIPTION:
        raise SetupError(f"the description of the tool {name!r} is longer than {MAX_DESCRIPTION} characters")
    meta = dict(options.meta) if options.meta else None
    if options.deprecated:
        meta = {**(meta or {}), "deprecated": True}
    if options.ui is not None:
        meta = {**(meta or {}), "ui": msgspec.to_builtins(tool_ui(options.ui))}
    annotations = options.annotations
    return Tool(
        name=name,
        title=options.title,
        description=description,
        input_schema=_published(binding.input_schema, inlines and options.schema is None, name),
        output_schema=binding.output_schema
        and _published(binding.output_schema, inlines and options.output_schema is None, name),
        annotations=_annotations(annotations),
        execution=None if options.task_support == "forbidden" else {"taskSupport": options.task_support},
        icons=options.icons,
        meta=meta,
    )


def _published(schema: dict[str, Any], inlines: bool, name: str) -> dict[str, Any]:
    if inlines:
        return inlined(schema, f"the schema of the tool {name!r}")
    return schema


def _annotations(given: ToolAnnotations | Mapping[str, Any] | None) -> ToolAnnotations | None:
    if given is None or isinstance(given, ToolAnnotations):
        return given
    known = dict(zip(ToolAnnotations.__struct_encode_fields__, ToolAnnotations.__struct_fields__, strict=True))
    said = {}
    for name, value in given.items():
        ours = known.get(name, name)
        if ours not in known.values():
            raise SetupError(f"{name!r} is no annotation of a tool: there are {', '.join(known)}")
        said[ours] = value
    return ToolAnnotations(**said)
