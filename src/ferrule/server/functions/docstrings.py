"""Read the texts of parameters out of docstrings in the Google, NumPy and Sphinx styles."""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator

_ARGUMENT_SECTIONS = {"args", "arguments", "parameters", "params", "keyword args", "keyword arguments"}
_ARGUMENT_SECTIONS |= {"other parameters"}
_OTHER_SECTIONS = {"returns", "return", "yields", "yield", "raises", "raise", "warns", "receives"}
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?(?:\s*:\s*|\s+-\s+)(.*)")
_NUMPY_ENTRY = re.compile(r"(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?")
_SPHINX_FIELD = re.compile(r":(\w+)(?:\s+([^:]*))?:\s*(.*)")
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
    index = 0
    while index < len(lines):
        kind = _section_at(lines, index)
        if kind == "prose":
            end = index + 1
        elif "numpy" in kind:
            end = next((i for i in range(index + 2, len(lines)) if _is_underlined(lines, i)), len(lines))
        else:
            end = next((i for i in range(index + 1, len(lines)) if re.match(r"\S", lines[i])), len(lines))
        yield kind, lines[index:end] if kind in {"prose", "sphinx"} else lines[index + 1 + ("numpy" in kind) : end]
        index = end


def _section_at(lines: list[str], index: int) -> str:
    """Return what begins at a line: the parameters in one of the styles, another section of that style, or prose."""
    line = lines[index]
    arguments = _ARGUMENT_SECTIONS
    others = _OTHER_SECTIONS
    followed = index + 1 < len(lines) and lines[index + 1].startswith((" ", "\t"))
    if _is_underlined(lines, index):
        style = "numpy"
        title = line.strip().lower()
    elif (field := _SPHINX_FIELD.match(line)) is not None:
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
    return index + 1 < len(lines) and bool(lines[index].strip()) and bool(re.fullmatch(r"-{3,}\s*", lines[index + 1]))


def _entries(lines: list[str], head: re.Pattern[str]) -> dict[str, str]:
    """The texts of a section whose entries start at its left edge and go on indented."""
    texts: dict[str, str] = {}
    names: list[str] = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line.startswith((" ", "\t")):
            found = None
        else:
            found = head.fullmatch(line.rstrip())
        if found is not None:
            names = [name.strip(" *") for name in found[1].split(",")]
            texts |= dict.fromkeys(names, found[2] if head.groups > 1 else "")
        else:
            texts |= {name: f"{texts[name]} {line.strip()}".strip() for name in names}
    return {name: text for name, text in texts.items() if text}


def _sphinx_entry(lines: list[str]) -> dict[str, str]:
    field = _SPHINX_FIELD.match(lines[0])
    words = (field[2] or "").split() if field else []
    if field is None or not words:
        return {}
    return {words[-1].strip("*"): " ".join([field[3], *(line.strip() for line in lines[1:])]).strip()}
