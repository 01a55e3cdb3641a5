"""Read the texts of parameters out of docstrings in the Google, NumPy and Sphinx styles."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

_ARGUMENT_SECTIONS = {
    "args",
    "arguments",
    "parameters",
    "params",
    "keyword args",
    "keyword arguments",
    "other parameters",
}
_OTHER_SECTIONS = {"returns", "return", "yields", "yield", "raises", "raise", "warns", "receives"}
_GOOGLE_ENTRY = r"\*{0,2}(\w+)\s*(?:\(.*?\))?(?:\s*:\s*|\s+-\s+)(.*)"
_NUMPY_ENTRY = r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?"
_UNDERLINE = r"-{3,}\s*"
_SPHINX_FIELD = r":(\w+)(?:\s+([^:]*))?:\s*(.*)"
_SPHINX_PARAMETER = {"param", "parameter", "arg", "argument", "key", "keyword"}
_SPHINX_OTHER = {"type", "return", "returns", "rtype", "raise", "raises", "except", "exception", "yield", "yields"}


def split_docstring(docstring: str | None) -> tuple[str | None, dict[str, str]]:
    """Split a docstring of Google, NumPy or Sphinx style into its prose and its parameters' texts."""
    prose: list[str] = []
    texts: dict[str, str] = {}
    if docstring is None:
        return None, texts
    text = inspect.cleandoc(docstring)
    if ":" not in text and "---" not in text:
        prose.append(text)
        text = ""
    for kind, lines in _sections(text.splitlines()):
        if kind == "prose":
            prose += lines
        elif kind == "google":
            texts |= _entries(lines, _GOOGLE_ENTRY)
        elif kind == "numpy":
            texts |= _entries(lines, _NUMPY_ENTRY)
        elif kind == "sphinx":
            texts |= _sphinx_entry(lines)
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(prose)).strip()
    return text or None, texts


def _sections(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield what each section is, and its lines without its heading; a line of prose is one of its own."""
    start = 0
    while start < len(lines):
        kind = _section_at(lines, start)
        if kind == "prose":
            first = start
            end = start + 1
        elif kind.endswith("sphinx"):
            first = start
            end = _next_unindented(lines, start + 1)
        elif kind.endswith("google"):
            first = start + 1
            end = _next_unindented(lines, first)
        else:
            first = start + 2
            end = _next_underlined(lines, first)
        yield kind, lines[first:end]
        start = end


def _next_unindented(lines: list[str], start: int) -> int:
    """Return where the next line begins that is neither indented nor empty."""
    for number in range(start, len(lines)):
        line = lines[number]
        if line and not line[0].isspace():
            return number
    return len(lines)


def _next_underlined(lines: list[str], start: int) -> int:
    """Return where the next heading of the NumPy style is."""
    for number in range(start, len(lines)):
        if _is_underlined(lines, number):
            return number
    return len(lines)


def _section_at(lines: list[str], index: int) -> str:
    """Return what begins at a line: the parameters in one of the styles, another section of that style, or prose."""
    line = lines[index]
    arguments = _ARGUMENT_SECTIONS
    others = _OTHER_SECTIONS
    followed = index + 1 < len(lines) and lines[index + 1].startswith((" ", "\t"))
    if _is_underlined(lines, index):
        style = "numpy"
        title = line.strip().lower()
    elif line.startswith(":") and (field := re.match(_SPHINX_FIELD, line)) is not None:
        style = "sphinx"
        title = field[1]
        arguments = _SPHINX_PARAMETER
        others = _SPHINX_OTHER
    elif line.rstrip().endswith(":") and followed:
        style = "google"
        title = line.rstrip().removesuffix(":").lower()
    else:
        return "prose"
    if title in arguments:
        return style
    if title in others:
        return f"other {style}"
    return "prose"


def _is_underlined(lines: list[str], index: int) -> bool:
    if index + 1 >= len(lines) or not lines[index + 1].startswith("---") or not lines[index].strip():
        return False
    return re.fullmatch(_UNDERLINE, lines[index + 1]) is not None


def _entries(lines: list[str], head: str) -> dict[str, str]:
    """Return the texts of a section whose entries start at its left edge and go on indented."""
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        found = None
        if not line.startswith((" ", "\t")):
            found = re.fullmatch(head, line.rstrip())
        if found is None:
            for name in names:
                texts[name] = f"{texts[name]} {line.strip()}".strip()
            continue
        begun = ""
        if len(found.groups()) > 1:
            begun = found[2]
        names = [name.strip(" *") for name in found[1].split(",")]
        for name in names:
            texts[name] = begun
    return {name: text for name, text in texts.items() if text}


def _sphinx_entry(lines: list[str]) -> dict[str, str]:
    """Return the text of one field, by the last word before its colon: `:param int size: How large.`"""
    field = re.match(_SPHINX_FIELD, lines[0])
    if field is None or not field[2]:
        return {}
    words = field[2].split()
    if not words:
        return {}
    texts = [field[3]]
    for line in lines[1:]:
        texts.append(line.strip())
    return {words[-1].strip("*"): " ".join(texts).strip()}
