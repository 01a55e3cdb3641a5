"""docs/guides/limits.md has the numbers the code has."""

from __future__ import annotations

import importlib
import inspect
import re
from typing import Any

import doc_names
import doc_pages
import pytest

PAGE = doc_pages.PROJECT / "docs" / "guides" / "limits.md"
ROW = re.compile(r"^\| (?P<what>[^|]+) \| (?P<value>[^|]+) \| `(?P<where>[^`]+)`.*\|$", re.MULTILINE)
UNITS = {"": 1, " s": 1, " KiB": 2**10, " MiB": 2**20}

ROWS = [match.groupdict() for match in ROW.finditer(PAGE.read_text(encoding="utf-8"))]


FAMILIES = [
    ("TcpSettings", "UnixSettings", "TcpOptions"),
    ("PoolSettings",),
    ("WebSocketSettings", "WebSocketOptions"),
    ("GraphqlSettings",),
]
"""Settings that share options: what one of them lists counts for all."""


def number(text: str) -> float | None:
    """Read a number as the page writes it."""
    if text == "none":
        return None
    if text.startswith("2^53"):
        return 2**53 - (1 if text.endswith("- 1") else 0)
    match = re.fullmatch(r"([\d.,]+)( s| KiB| MiB|)", text)
    assert match, f"not a number: {text}"
    return float(match[1].replace(",", "")) * UNITS[match[2]]


def default(where: str) -> Any:
    """Return what the code has at a place such as `module.NAME`, `Class(option=…)` or `Class.method(option=…)`."""
    called = re.fullmatch(r"([A-Z]\w+)(?:\.(\w+))?\((\w+)=…\)", where)
    if called is None:
        module, _, name = where.rpartition(".")
        found = getattr(importlib.import_module(module), name)
        return getattr(found, "limit", found)  # of an account its limit
    owner, method, option = called.groups()
    if owner in doc_names.SETTINGS and method is None:
        return getattr(doc_names.SETTINGS[owner](), option)
    defaults = []
    for class_ in doc_names.CLASSES[owner]:
        taken = inspect.signature(getattr(class_, method) if method else class_).parameters
        if option in taken:
            defaults.append(taken[option].default)
    (found,) = defaults
    return found


def test_the_page_has_rows():
    assert len(ROWS) > 50


def test_every_row_of_a_table_is_read():
    text = PAGE.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| what |")]
    assert len(lines) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row["where"] for row in ROWS])
def test_a_default_is_what_the_code_has(row: dict[str, str]):
    assert default(row["where"]) == number(row["value"]), row["what"]


def test_every_numeric_option_of_a_server_and_a_client_is_on_the_page():
    written = {row["where"] for row in ROWS}
    for name, settings in doc_names.SETTINGS.items():
        values = {option: getattr(settings(), option) for option in settings.__struct_fields__}
        numeric = [o for o, value in values.items() if isinstance(value, int | float) and not isinstance(value, bool)]
        assert [o for o in numeric if f"{name}({o}=…)" not in written] == []


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family[0])
def test_every_numeric_option_of_a_socket_is_on_the_page(family: tuple[str, ...]):
    written = {row["where"] for row in ROWS}
    for name in family:
        (settings,) = doc_names.CLASSES[name]
        options = {o: p.default for o, p in inspect.signature(settings).parameters.items()}
        numeric = [o for o, value in options.items() if isinstance(value, int | float) and not isinstance(value, bool)]
        assert [o for o in numeric if not any(f"{each}({o}=…)" in written for each in family)] == []
