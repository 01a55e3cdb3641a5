"""What can be said about a tool besides its function, and how it is listed."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

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
from ferrule.server.settings import ResultPolicy
from ferrule.settings.option import Bytes, NonNegativeInt, PositiveInt, PositiveSeconds, check

logger = logging.getLogger("ferrule.tools")

PRIVATE_NAME = r"(?i)passw|passphrase|secret|token|api[-_]?key|credential|authorization|cookie|private"
"""How the names of things look that nobody but their owner should see."""
GOOD_NAME = r"[A-Za-z0-9_.\-]{1,128}"
MAX_DESCRIPTION = 10_000


class ToolOptions(Struct, frozen=True, kw_only=True):
    """What can be said about a tool besides its function; times are seconds, sizes bytes."""

    name: str | None = None
    """What it is called by; None for the name of its function."""
    title: str | None = None
    """The name that hosts show to people."""
    version: str | None = None
    """Which version of the tool it is; of several of one name the newest is listed."""
    description: str | None = None
    """What it does, for the model; None for the docstring of its function."""
    annotations: ToolAnnotations | Mapping[str, object] | None = None
    """Hints for hosts: whether it only reads, destroys, may be repeated, reaches out."""
    icons: list[Icon] | None = None
    """Pictures that hosts show beside the name."""
    meta: Mapping[str, object] | None = None
    """The `_meta` it is listed with."""
    timeout: PositiveSeconds | None = None
    """How long a call may run; None for what the server says."""
    inline: bool = False
    """Run a plain function on the event loop, and not in a thread: for what never waits."""
    schema: Mapping[str, Any] | None = None
    """The JSON Schema of its arguments, in the place of the one made from its signature."""
    output_schema: Mapping[str, Any] | None = None
    """The JSON Schema of its structured results, in the place of the one made from its signature."""
    structured_output: bool | None = None
    """Whether its results are data with a schema; None for yes where the return annotation has one."""
    deprecated: bool = False
    """Whether hosts are told to use something else."""
    max_threads: PositiveInt = 32
    """How many calls of a plain function may run in threads at once."""
    inline_refs: bool | None = None
    """Whether its schemas are written without references; None for what the server says."""
    ui: ToolUi | Mapping[str, Any] | str | None = None
    """The page that shows its results, by its URI; or that and who may call it."""
    max_concurrent: PositiveInt | None = None
    """How many calls may run at once, be they in threads or not."""
    max_waiting: NonNegativeInt = 4096
    """How many more may wait for their turn; the next is refused as busy."""
    result_limit: Bytes | None = None
    """How many bytes a result may have; None for what the server says."""
    result_policy: ResultPolicy | None = None
    """What becomes of a larger one: `refuse`, `truncate` or `spill`."""
    tags: Collection[str] | None = ()
    """Words to switch it on and off by, together with others."""
    visible: Visible | None = None
    """Whether a caller sees it, asked for each call and list."""
    scopes: Collection[str] = ()
    """Scopes a caller needs for it; one without them is told which (HTTP 403)."""
    hide_without: bool = False
    """Whether it does not exist for a caller without the scopes."""
    middleware: Sequence[AnyLayer] = ()
    """What surrounds its calls, inside of the server's own middleware."""
    task: TaskSupport | bool = "forbidden"
    """Whether a call may or must run as a task; True for that it may."""
    task_start: Literal["call", "handler"] = "call"
    """Whether a call becomes a task at once, or when its handler says so."""

    def __post_init__(self) -> None:
        check(self)

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
        if re.search(PRIVATE_NAME, path[-1]):
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
    if not re.fullmatch(GOOD_NAME, name):
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
        schema = inlined(schema, f"the schema of the tool {name!r}")
    if type(schema) is dict:  # many tools may have been read as one, and whoever lists this one may change it
        copied: dict[str, Any] = msgspec.to_builtins(schema)
        return copied
    return schema


def _annotations(given: ToolAnnotations | Mapping[str, Any] | None) -> ToolAnnotations | None:
    if given is None or isinstance(given, ToolAnnotations):
        return given
    known = dict(zip(ToolAnnotations.__struct_encode_fields__, ToolAnnotations.__struct_fields__, strict=True))
    said = {}
    for name, value in given.items():
        ours = known.get(name, name)
        if ours not in known.values():
            raise SetupError(f"{name!r} is not an annotation of a tool: there are {', '.join(known)}")
        said[ours] = value
    return ToolAnnotations(**said)
