"""What receipts may keep of a call's contents: rules by tool, and what is taken out before anything is kept. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec import Struct

from ferrule.budgets.weight import bounded_depth
from ferrule.errors import SetupError

REDACTED = "[redacted]"
"""Stands where something was taken out."""
MAX_DEPTH = 100
"""How deep a value may be nested; what is deeper is taken out."""

_decode = bounded_depth(msgspec.json.decode)
STEP = re.compile(r"\.(\*|[^.\[\]'\"*]+)|\[(\*|\d+|'[^']*'|\"[^\"]*\")\]")

Path = tuple[str | int | None, ...]
"""Names and positions from the root on; None stands for all of them."""


def read_path(text: str) -> Path:
    """Return a path of the kind `$.card`, `$.items[*].price` or `$['a name'][0]`; raise SetupError for others."""
    if not text.startswith("$") or text == "$":
        raise SetupError(f"{text!r} is not a path to redact: write it as $.name, $.list[*].name or $['a name']")
    steps: list[str | int | None] = []
    at = 1
    while at < len(text):
        found = STEP.match(text, at)
        if found is None:
            raise SetupError(f"{text!r} is not a path to redact: {text[at:]!r} cannot be read")
        steps.append(_step(found[1] or found[2], in_brackets=found[2] is not None))
        at = found.end()
    return tuple(steps)


def _step(written: str, *, in_brackets: bool) -> str | int | None:
    if written == "*":
        return None
    if not in_brackets:
        return written
    if written.isdecimal():
        return int(written)
    return written[1:-1]


def redact(value: object, paths: Iterable[Path]) -> Any:
    """Return a copy of a JSON value without what the paths lead to."""
    return _redacted(value, list(paths), 0)


def _redacted(value: object, paths: list[Path], depth: int) -> Any:
    if any(not path for path in paths) or depth > MAX_DEPTH:
        return REDACTED
    if isinstance(value, dict):
        members = {}
        for name, member in value.items():
            members[name] = _redacted(member, _behind(paths, name), depth + 1)
        return members
    if isinstance(value, list | tuple):
        items = []
        for position, item in enumerate(value):
            items.append(_redacted(item, _behind(paths, position), depth + 1))
        return items
    return value


def _behind(paths: Sequence[Path], step: str | int) -> list[Path]:
    """Return what is left of those paths that begin with this step."""
    found = []
    for path in paths:
        if path[0] is None or path[0] == step:
            found.append(path[1:])
    return found


class RecordRule(Struct, frozen=True, kw_only=True):
    """What is kept of the contents of some tools' calls."""

    tools: tuple[str, ...]
    """Names or patterns: `transfer_*`."""
    arguments: bool = False
    result: bool = False
    redact: tuple[str, ...] = ()
    """Paths into the arguments and the result."""

    def __post_init__(self) -> None:
        for name, given in (("tools", self.tools), ("redact", self.redact)):
            if not isinstance(given, list | tuple) or not all(isinstance(each, str) for each in given):
                raise SetupError(f"a rule for receipts: {name} must be a list of str, not {given!r}")
        for path in self.redact:
            read_path(path)


def content_to_keep(rules: Iterable[RecordRule], tool: str, arguments: bytes, result: bytes) -> dict[str, Any] | None:
    """Return what the first rule for a tool keeps of a call's contents, which are JSON; None where there is none."""
    for rule in rules:
        if not any(fnmatchcase(tool, pattern) for pattern in rule.tools):
            continue
        paths = [read_path(path) for path in rule.redact]
        kept = {}
        if rule.arguments and arguments:
            kept["arguments"] = redact(_read(arguments), paths)
        if rule.result and result:
            kept["result"] = redact(_read(result), paths)
        return kept or None
    return None


def _read(content: bytes) -> object:
    """Return a JSON value; what cannot be read is taken out."""
    try:
        return _decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return REDACTED
