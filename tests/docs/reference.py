"""Write docs/reference.md: every public name, with its signature and its first sentence.

`make reference` runs it after something public was added or changed; a test fails until then, so that no change of the
public surface goes unnoticed.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ferrule

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference.md"
FOREIGN = "ferrule.server.foreign_names"
"""Names of other packages, which only say what to write instead."""
HEAD = """# Reference

Every name that `from ferrule import …` gives, and what it has. Written by `make reference` from the source; the
[guides](guides/README.md) show how to use it, [configuration](guides/configuration.md) has every option.
"""


def sentence(thing: object) -> str:
    """Return the first paragraph of a docstring, on one line."""
    text = inspect.getdoc(thing) or ""
    return " ".join(text.partition("\n\n")[0].split())


def signature(thing: Any) -> str:
    """Return what is called with what; empty for what cannot be called."""
    try:
        found = inspect.signature(thing)
    except (TypeError, ValueError):
        return ""
    kept = [_plain(each) for each in found.parameters.values() if each.name not in ("self", "cls")]
    returned = Written(found.return_annotation) if isinstance(found.return_annotation, str) else inspect.Signature.empty
    return str(inspect.Signature(kept, return_annotation=returned))


class Written(str):
    """An annotation or a default, shown as it is written."""

    def __repr__(self) -> str:
        return str(self)


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """Leave out what no source has: annotations that were evaluated, and defaults that have no literal."""
    annotation = parameter.annotation
    default = parameter.default
    if isinstance(annotation, str):
        annotation = Written(annotation)
    else:
        annotation = inspect.Parameter.empty
    if default is not inspect.Parameter.empty and repr(default).startswith("<"):
        default = Written("…")
    return parameter.replace(annotation=annotation, default=default)


def members(owner: type) -> Iterator[tuple[str, str]]:
    """Yield the public members of a class that are ours, as they are written, with their sentences."""
    for name in sorted(dir(owner)):
        home = next((base for base in owner.__mro__ if name in vars(base)), object)
        member = inspect.getattr_static(owner, name)
        if name.startswith("_") or not home.__module__.startswith("ferrule") or _is_foreign(member):
            continue
        if isinstance(member, property):
            yield name, sentence(member)
        elif isinstance(member, staticmethod | classmethod) or inspect.isfunction(member):
            called = getattr(owner, name)
            before = "await " if inspect.iscoroutinefunction(called) else ""
            yield f"{before}{name}{signature(called)}", sentence(called)


def _is_foreign(member: object) -> bool:
    return getattr(member, "__module__", "") == FOREIGN or type(member).__module__ == FOREIGN


def entry(name: str) -> list[str]:
    """Return the lines of one public name."""
    thing = getattr(ferrule, name)
    shown = name.replace("__", r"\_\_")
    lines = ["", f"## {shown}", ""]
    if isinstance(thing, str):
        return [*lines, "The version of this package."]
    if not callable(thing):
        return [*lines, sentence(type(thing))]
    lines += [f"`{name}{signature(thing)}`", "", sentence(thing)]
    listed = []
    if inspect.isclass(thing):
        for written, says in members(thing):
            listed.append(f"- `{written}`: {says}")
    if listed:
        lines += ["", *listed]
    return lines


def page() -> str:
    """Return the whole page."""
    lines = [HEAD.rstrip()]
    for name in sorted(ferrule.__all__, key=str.lower):
        lines += entry(name)
    return "\n".join(lines) + "\n"


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
