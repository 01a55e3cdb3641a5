"""Files of some folders, and of no other: list, read, search and write them.

    ferrule call list_files -- python examples/file_system.py notes/ photos/

Give the folders as arguments; without any it is the working directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ferrule import Server, ToolError

LONGEST_FILE = 1024 * 1024
MOST_NAMES = 500

app = Server("file-system", version="1.0.0", instructions="Paths are relative to a folder, or absolute.")
folders: list[Path] = [Path(name).resolve() for name in sys.argv[1:]] or [Path.cwd()]


def within(path: str) -> Path:
    """Return the file a path means; links are followed first, so that none leads outside."""
    for folder in folders:
        found = (folder / path).resolve()
        if found == folder or folder in found.parents:
            return found
    raise ToolError(f"{path} is outside of {', '.join(map(str, folders))}")


def text_of(file: Path) -> str:
    """Return the text of a file that is not too large."""
    if not file.is_file():
        raise ToolError(f"{file.name} is not a file")
    if file.stat().st_size > LONGEST_FILE:
        raise ToolError(f"{file.name} is larger than {LONGEST_FILE} bytes")
    return file.read_text(encoding="utf-8", errors="replace")


@app.tool(annotations={"readOnlyHint": True})
def list_files(path: str = ".", pattern: str = "*") -> list[str]:
    """List what is in a folder; a pattern such as **/*.py looks into its folders too."""
    folder = within(path)
    if ".." in Path(pattern).parts or Path(pattern).is_absolute():
        raise ToolError(f"the pattern {pattern} must stay in its folder")
    found = sorted(folder.glob(pattern))[:MOST_NAMES]
    return [f"{each.relative_to(folder)}{'/' if each.is_dir() else ''}" for each in found]


@app.tool(annotations={"readOnlyHint": True})
def read_file(path: str) -> str:
    """Read a text file."""
    return text_of(within(path))


@app.tool(annotations={"readOnlyHint": True})
def search(text: str, pattern: str = "**/*") -> list[str]:
    """Find the lines of the first folder that contain a text, as file:line: text."""
    found = []
    for name in list_files(".", pattern):
        file = folders[0] / name
        # A link may lead outside.
        if not file.is_file() or folders[0] not in file.resolve().parents or file.stat().st_size > LONGEST_FILE:
            continue
        for number, line in enumerate(text_of(file).splitlines(), start=1):
            if text in line:
                found.append(f"{name}:{number}: {line.strip()}")
    return found[:MOST_NAMES]


@app.tool(annotations={"destructiveHint": True, "idempotentHint": True})
def write_file(path: str, text: str) -> str:
    """Write a text file, in the place of one that is there."""
    file = within(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return f"wrote {len(text)} characters to {file.name}"


if __name__ == "__main__":
    app.run()
