"""Write docs/licences.md: every package Ferrule brings along, and its licence.

`python release/licences.py` writes it from what is installed; a test fails while the page is not true.
"""

from __future__ import annotations

import sys
from collections.abc import Container
from pathlib import Path

from parts import Part, fields_of, installed, parts_of

PAGE = Path(__file__).resolve().parents[1] / "docs" / "licences.md"
ROOT = "ferrule"
FOR_DEVELOPERS = "dev"
HEAD = """# Licences

Ferrule is under Apache-2.0. These are the packages it brings along, with the licences they name; none asks more of you
than to keep its notice. Written by `python release/licences.py` from what is installed, on Linux with Python 3.11;
[why each is there](design/dependencies.md).
"""


def extras() -> list[str]:
    """Return the names of the extras that are for users."""
    return sorted({*fields_of(installed()[ROOT], "Provides-Extra")} - {FOR_DEVELOPERS})


def page() -> str:
    """Return the whole page."""
    core = parts_of(ROOT)
    lines = [HEAD, "## Always", "", *_table(core, [ROOT])]
    for extra in extras():
        more = parts_of(ROOT, [extra])
        lines += ["", f"## ferrule[{extra}]", "", *_table(more, core)]
    return "\n".join(lines) + "\n"


def _table(parts: dict[str, Part], without: Container[str]) -> list[str]:
    rows = [f"| {name} | {part.licence} |" for name, part in parts.items() if name not in without]
    return ["| package | licence |", "|---|---|", *rows]


def main() -> int:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")
    print(PAGE.name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
