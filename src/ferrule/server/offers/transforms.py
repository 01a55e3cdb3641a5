"""Tools made of other tools: renamed, described anew, their arguments renamed, hidden or preset.

A transformed tool is a tool of its own. A call of it is a call of the other one, with the arguments that one knows:
its time-out, its middleware and its server are as they were.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, structs

from ferrule.budgets.bounds import MAX_EXPLAINED_SIZE, MAX_VIOLATIONS
from ferrule.errors import SetupError
from ferrule.schema.tools import CallToolResult, Tool
from ferrule.server.functions.arguments import NOT_SHOWN, parsed_arguments, too_long_to_explain
from ferrule.server.functions.binder import InvalidArguments
from ferrule.server.functions.types.extra_types import encode_hook
from ferrule.server.offers.descriptions import ToolOptions
from ferrule.server.offers.entry import Visible
from ferrule.server.offers.tool_entry import ToolEntry
from ferrule.server.offers.tools import Recipe, Tools
from ferrule.validation.checker import given_schema, own_schema
from ferrule.validation.violations import Violation, missing, unknown

_write = msgspec.json.Encoder(enc_hook=encode_hook).encode

TYING = ("allOf", "anyOf", "oneOf", "not", "if", "dependentRequired", "dependentSchemas", "patternProperties")
"""What says something about several arguments by their names; it cannot be said anew for other names."""


USUAL = ToolOptions()


class Arg(Struct, frozen=True, kw_only=True):
    """What becomes of one argument."""

    name: str | None = None
    description: str | None = None
    hide: bool = False
    """Keep it from the caller; the tool's own default counts, or `preset`."""
    preset: Any = UNSET
    """Always this value; the caller does not see the argument."""
    preset_factory: Callable[[], Any] | None = None
    """The same, made for each call."""
    default: Any = UNSET
    """The value when the caller gives none."""
    schema: Mapping[str, Any] | None = None
    """Keywords to add to the argument's schema, such as an enum."""

    @property
    def is_preset(self) -> bool:
        """Whether the value is not the caller's to choose."""
        return self.preset is not UNSET or self.preset_factory is not None

    @property
    def is_hidden(self) -> bool:
        """Whether the caller does not see it."""
        return self.hide or self.is_preset


class Transformed(Recipe):
    """A tool to be made of another when it is added to a server."""

    def __init__(
        self,
        source: ToolEntry | Tool | Callable[..., Any],
        call: Callable[[dict[str, Any]], Awaitable[Any]] | None,
        changes: Mapping[str, Any],
        arguments: Mapping[str, Arg],
    ) -> None:
        self._source = source
        self._call = call
        self._changes = changes
        self._arguments = arguments

    def offer(self, tools: Tools, options: ToolOptions) -> ToolEntry:
        """Make the tool and offer it."""
        given = {}
        changes = dict(self._changes)
        for name, value in structs.asdict(options).items():
            if value == getattr(USUAL, name):
                continue
            if name in changes:
                changes[name] = value
            else:
                given[name] = value
        source = self._made(tools, given)
        listed = {}
        for name in ("name", "title", "description"):
            if changes.get(name):
                listed[name] = changes[name]
        reshape = Reshape(source, self._arguments)
        entry = copy.copy(source)
        entry.source = source
        entry.reshape = reshape
        entry.layers = []
        entry.mount_path = ()
        entry.services = tools.services
        entry.tags = frozenset(changes.get("tags") or source.tags)
        entry.visible = changes.get("visible") or source.visible
        entry.show_as(structs.replace(source.tool, input_schema=reshape.schema, **listed))
        entry.prepare(tools)
        tools.offer(entry)
        return entry

    def _made(self, tools: Tools, given: Mapping[str, Any]) -> ToolEntry:
        """Return the tool to be transformed, ready to be called; one that is made here is made with these options."""
        if isinstance(self._source, Tool) and self._call is not None:
            fn, options = _foreign(self._source, self._call)
            return tools.make(fn, structs.replace(options, **given))
        if not isinstance(self._source, Tool | ToolEntry):
            return tools.make(self._source, ToolOptions(**given))
        if given:
            raise SetupError(
                f"the tool {self._source.name!r} keeps its {next(iter(given))} when it is transformed:"
                " say it where that tool is added"
            )
        if isinstance(self._source, ToolEntry):
            return self._source
        known = tools.catalogue.registered.get(self._source.name)
        if known is None:
            raise SetupError(
                f"the tool {self._source.name!r} is not one of {tools.services.name!r}:"
                " give app.get_tool(name), or call=… to say how it is called"
            )
        return known


def transformed(
    source: ToolEntry | Tool | Callable[..., Any],
    *,
    name: str | None = None,
    title: str | None = None,
    description: str | None = None,
    arguments: Mapping[str, Arg] | None = None,
    tags: Collection[str] | None = None,
    visible: Visible | None = None,
    call: Callable[[dict[str, Any]], Awaitable[Any]] | None = None,
) -> Transformed:
    """Make a tool of another one: of a function, of `app.get_tool(name)`, or of a listed `Tool` and how to call it.

    `app.add_tool(transformed(search, name="find", arguments={"q": Arg(name="query"), "limit": Arg(preset=5)}))`
    """
    if not (isinstance(source, ToolEntry | Tool) or callable(source)):
        raise SetupError(f"transformed(): {source!r} is neither a tool nor a function: give app.get_tool(name)")
    changes = {"name": name, "title": title, "description": description, "tags": tags, "visible": visible}
    return Transformed(source, call, changes, arguments or {})


class Reshape:
    """The arguments of a transformed tool, written as those of its source."""

    def __init__(self, source: ToolEntry, arguments: Mapping[str, Arg]) -> None:
        self._tool = source.name
        self._originals: dict[str, str] = {}
        self._withheld: set[str] = set()
        self._presets: dict[str, Callable[[], Any]] = {}
        self._defaults: dict[str, Any] = {}
        schema = source.tool.input_schema
        self._closed = schema.get("additionalProperties") is False
        self.schema = self._described(schema, arguments)
        narrowed = any(change.schema for change in arguments.values())
        # The source knows nothing of keywords that were added here.
        self._checker = given_schema(self.schema, f"tool {self._tool!r}: schema")[1] if narrowed else None

    def __call__(self, raw: Raw | bytes) -> Raw:
        """Write arguments as the source takes them; InvalidArguments for names that are not this tool's."""
        given = parsed_arguments(raw)
        strange = []
        for name in given:
            if name not in self._originals and (self._closed or name in self._withheld):
                strange.append(name)
        lacking = []
        for name in self.schema.get("required", ()):
            if name not in given:
                lacking.append(name)
        size = len(memoryview(raw))
        if strange or lacking:
            shown: Any = given if size <= MAX_EXPLAINED_SIZE else NOT_SHOWN
            violations = []
            for name in lacking:
                violations.append(missing(name, shown))
            for name in strange[: MAX_VIOLATIONS + 1]:
                violations.append(unknown(name, given[name]))
            raise InvalidArguments(violations)
        if self._checker is not None and not self._checker.accepts(given, size):
            if size > MAX_EXPLAINED_SIZE:
                raise InvalidArguments([too_long_to_explain()])
            raise InvalidArguments(self._checker.violations(given, size))
        inner = dict(self._defaults)
        for name, value in given.items():
            inner[self._originals.get(name, name)] = value
        for name, make in self._presets.items():
            inner[name] = make()
        return Raw(_write(inner))

    def renamed(self, error: InvalidArguments) -> InvalidArguments:
        """Say what is wrong with the arguments by the names the caller knows."""
        shown = {original: name for name, original in self._originals.items()}
        return InvalidArguments([_renamed(violation, shown) for violation in error.violations])

    def _described(self, schema: Mapping[str, Any], arguments: Mapping[str, Arg]) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = set(schema.get("required", ()))
        self._check(schema, arguments)
        shown: dict[str, Any] = {}
        needed: list[str] = []
        for original, rules in properties.items():
            change = arguments.get(original, Arg())
            name = change.name or original
            if name != original or change.is_hidden:
                self._withheld.add(original)
            if change.is_hidden:
                self._hide(original, change, needed=original in required)
                self._check_value(schema, original, "preset", change.preset)
                continue
            self._check_value(schema, original, "default", change.default)
            if name in shown:
                raise SetupError(f"tool {self._tool!r}: two arguments would be called {name!r}")
            shown[name] = _changed(rules, change)
            self._originals[name] = original
            if change.default is not UNSET:
                self._defaults[original] = change.default
            elif original in required:
                needed.append(name)
        made = {**schema, "properties": shown, "required": needed}
        if not needed:
            del made["required"]
        return _with_used_definitions(made)

    def _check(self, schema: Mapping[str, Any], arguments: Mapping[str, Arg]) -> None:
        properties = schema.get("properties", {})
        for name, change in arguments.items():
            if not isinstance(change, Arg):
                raise SetupError(f"tool {self._tool!r}: what becomes of {name!r} is said by an Arg: Arg(name='x')")
        for name in arguments:
            if name not in properties:
                known = ", ".join(properties) or "none"
                raise SetupError(f"tool {self._tool!r} has no argument {name!r} to transform; it has {known}")
        moved = []
        for name, change in arguments.items():
            if change.is_hidden or change.name not in (None, name):
                moved.append(name)
        tying = []
        for keyword in TYING:
            if keyword in schema:
                tying.append(keyword)
        if moved and tying:
            raise SetupError(
                f"tool {self._tool!r}: its schema ties arguments together ({tying[0]}),"
                f" so {moved[0]!r} can be neither renamed nor hidden: write a function that calls it"
            )

    def _check_value(self, schema: Mapping[str, Any], original: str, word: str, value: object) -> None:
        """Refuse a value that the tool would refuse at every call, when nobody can put it right any more."""
        if value is UNSET:
            return
        where = f"tool {self._tool!r}: the argument {original!r}: its {word}"
        given = {original: msgspec.json.decode(_checked_value(value, where))}
        checker = own_schema({**schema, "required": []})
        if checker is not None:
            found = checker.violations(given, 0)
        else:
            found = []
        if found:
            raise SetupError(f"{where} does not fit: {found[0].message}")

    def _hide(self, original: str, change: Arg, *, needed: bool) -> None:
        where = f"tool {self._tool!r}: the argument {original!r}"
        if change.name is not None or change.default is not UNSET:
            raise SetupError(f"{where} is hidden, so it needs no name and no default: use preset=…")
        if change.preset is not UNSET and change.preset_factory is not None:
            raise SetupError(f"{where} has both preset and preset_factory: keep one")
        if change.preset_factory is not None:
            self._presets[original] = change.preset_factory
        elif change.preset is not UNSET:
            value = _checked_value(change.preset, f"{where}: its preset")
            self._presets[original] = lambda: value
        elif needed:
            raise SetupError(f"{where} is required, so it cannot be hidden without a value: give preset=…")


def _checked_value(value: object, where: str) -> Any:
    try:
        return Raw(_write(value))
    except (TypeError, ValueError, NotImplementedError) as reason:
        raise SetupError(f"{where} cannot be written as JSON: {reason}") from None


def _changed(rules: object, change: Arg) -> Any:
    if not isinstance(rules, Mapping):
        return rules
    changed = {**rules, **(change.schema or {})}
    if change.description is not None:
        changed["description"] = change.description
    if change.default is not UNSET:
        changed["default"] = msgspec.to_builtins(change.default, enc_hook=encode_hook)
    return changed


def _with_used_definitions(schema: dict[str, Any]) -> dict[str, Any]:
    """Keep of the definitions what is referred to: that of a hidden argument tells what is hidden."""
    definitions = schema.get("$defs")
    if not definitions:
        return schema
    used: set[str] = set()
    others = dict(schema)
    del others["$defs"]
    waiting = list(_references(others))
    while waiting:
        name = waiting.pop()
        if name in definitions and name not in used:
            used.add(name)
            waiting.extend(_references(definitions[name]))
    kept = {}
    for name, rules in definitions.items():
        if name in used:
            kept[name] = rules
    if kept:
        others["$defs"] = kept
    return others


def _references(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        reference = value.get("$ref")
        if isinstance(reference, str) and reference.startswith("#/$defs/"):
            yield reference.removeprefix("#/$defs/").partition("/")[0]
        for item in value.values():
            yield from _references(item)
    elif isinstance(value, list):
        for item in value:
            yield from _references(item)


def _renamed(violation: Violation, shown: Mapping[str, str]) -> Violation:
    _, _, path = violation.path.partition("/")
    first, slash, rest = path.partition("/")
    if first not in shown:
        return violation
    return structs.replace(violation, path=f"/{shown[first]}{slash}{rest}")


def _foreign(tool: Tool, call: Callable[[dict[str, Any]], Awaitable[Any]]) -> tuple[Callable[..., Any], ToolOptions]:
    """Make a handler of somebody else's tool."""

    async def handle(**arguments: object) -> CallToolResult:
        return await call(arguments)  # type: ignore[no-any-return]  # it is checked like what any tool gives

    said: dict[str, Any] = {"schema": tool.input_schema}
    for name in ToolOptions.__struct_fields__:
        if name in Tool.__struct_fields__:
            said[name] = getattr(tool, name)
    return handle, ToolOptions(**said)
