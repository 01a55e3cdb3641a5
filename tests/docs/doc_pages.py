"""The documents as the tests see them: pages, their code blocks, and the folders those run in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
PATIENCE = 400

ROOT_PAGES = [PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")]
PAGES = [*ROOT_PAGES, PROJECT / "examples" / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]
HOME = PROJECT / "docs" / "index.md"
START = sorted((PROJECT / "docs" / "start").glob("*.md"))
GUIDES = sorted((PROJECT / "docs" / "guides").glob("*.md"))

FENCE = re.compile(r"^```(\w*)(?: title=\"([\w./-]+)\")?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its file name if it has one, and what a text block after it says it prints."""

    page: Path
    line: int
    language: str
    title: str
    code: str
    prints: str | None = None

    @property
    def name(self) -> str:
        """Where the block is."""
        return f"{self.page.relative_to(PROJECT)}:{self.line}"


def blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page in order."""
    text = page.read_text(encoding="utf-8")
    found = list(FENCE.finditer(text))
    given = []
    for at, match in enumerate(found):
        after = found[at + 1] if at + 1 < len(found) else None
        follows = after is not None and after[1] == "text" and not text[match.end() : after.start()].strip()
        prints = after[3] if after is not None and follows else None
        line = text.count("\n", 0, match.start()) + 1
        given.append(Block(page, line, match[1], match[2] or "", match[3], prints))
    return given


def python_blocks(pages: list[Path]) -> list[Block]:
    """Return the Python blocks of several pages."""
    return [block for page in pages for block in blocks(page) if block.language == "python"]


def prose(page: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def run(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a Python process to its end, in a folder of its own."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
