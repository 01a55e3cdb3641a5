"""`ferrule new NAME`: a server, its test and its configuration, ready to run."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from ferrule.cli.output import output_of
from ferrule.errors import SetupError

if TYPE_CHECKING:
    from ferrule.cli.main import CommandParser

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

SERVER = '''\
"""The MCP server {name}."""

from ferrule import Server

app = Server("{name}", version="0.1.0", instructions="Adds numbers and greets people.")


@app.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@app.resource("greeting://{{who}}")
def greeting(who: str) -> str:
    """Greet somebody."""
    return f"Hello, {{who}}!"


@app.prompt
def review(language: str, style: str = "short") -> str:
    """Ask for a review of some code."""
    return f"Write a {{style}} review of this {{language}} code:"


if __name__ == "__main__":
    app.run()
'''

TEST = '''\
"""Tests of the server. `mcp_client` comes with Ferrule: a client of the server that ferrule.toml names."""

import pytest

from ferrule import SyncClient, ToolError


@pytest.mark.mcp_eras
def test_two_numbers_are_added(mcp_client: SyncClient) -> None:
    """Runs twice: once in each protocol generation."""
    assert mcp_client.call_tool("add", {"a": 1, "b": 2}).data == 3


def test_what_is_no_number_is_refused(mcp_client: SyncClient) -> None:
    with pytest.raises(ToolError):
        mcp_client.call_tool("add", {"a": "one", "b": 2})


def test_a_greeting_is_read(mcp_client: SyncClient) -> None:
    assert mcp_client.read_resource("greeting://Ada").text == "Hello, Ada!"
'''

CONFIG = """\
# What holds, and where it was set: `ferrule config`. A folder with this file is a target: `ferrule call . add a=1 b=2`.

[run]
file = "server.py"
"""

FILES = {"server.py": SERVER, "test_server.py": TEST, "ferrule.toml": CONFIG}


def configure(parser: CommandParser) -> None:
    """Add the arguments of `ferrule new`."""
    parser.add_argument("name", metavar="NAME", help="the name of the server, and of the folder that is made")


def execute(options: argparse.Namespace, passed_on: list[str]) -> None:
    """Make the folder; a file that is there already is never written over."""
    output = output_of(options)
    folder = Path(options.name)
    name = folder.resolve().name
    if NAME.fullmatch(name) is None:
        raise SetupError(f"{name!r} is not a valid name of a server: use letters, digits, '-', '_' and '.'")
    for file in FILES:
        if (folder / file).exists():
            raise SetupError(f"{folder / file} exists already: give another name, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in FILES.items():
            with (folder / file).open("x", encoding="utf-8") as made:
                made.write(text.format(name=name) if file == "server.py" else text)
    except OSError as reason:
        raise SetupError(f"cannot make {folder}: {reason.strerror}") from None
    if output.json:
        output.document({"folder": str(folder.resolve()), "files": list(FILES)})
        return
    for file in FILES:
        output.line(str(folder / file))
    if output.terminal:
        output.note(f"next: cd {folder} && ferrule call . add a=1 b=2")
