"""`ferrule list`, `read`, `prompt` and `inspect`: what a server offers, in both protocol generations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tram_shop import PNG

from ferrule.cli.offers import signature
from ferrule.schema.tools import Tool
from ferrule.validation.checker import foreign_checker

Command = Callable[..., tuple[int, str, str]]


def test_everything_is_listed_a_line_each(era: str, command: Command) -> None:
    code, out, err = command("list", ".", "--mode", era)
    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "tool\tadd(a: integer, b: integer)\tAdd two numbers."
    assert lines[1] == "tool\tstop(name: string, lines: array, when?: one of now, later)\tBuild a stop."
    assert "tool\tevil()\tSpeak to the terminal.\\x1b[2J" in lines
    assert "resource\tshop://hours\tWhen the shop is open." in lines
    assert "template\tshop://{item}/price\tThe price of something." in lines
    assert lines[-1] == "prompt\treview(language, style?)\tAsk for a review."


def test_one_kind_can_be_listed_as_json(command: Command) -> None:
    code, out, _ = command("list", ".", "prompts", "--json")
    told = json.loads(out)
    assert code == 0
    assert list(told) == ["prompts"]
    assert told["prompts"][0]["arguments"][0] == {"name": "language", "required": True}


def test_a_kind_with_a_typo_is_answered_with_the_right_one(command: Command) -> None:
    code, _, err = command("list", ".", "tool")
    assert code == 1
    assert 'Did you mean "tools"?' in err


def test_a_resource_is_read(era: str, command: Command, tmp_path: Path) -> None:
    assert command("read", ".", "shop://hours", "--mode", era) == (0, "9 to 5\n", "")
    assert command("read", ".", "shop://tram/price", "--mode", era) == (0, "tram: 3\n", "")
    _, out, _ = command("read", ".", "shop://logo", "--mode", era)
    assert out.encode("utf-8", "surrogateescape") == PNG
    _, out, _ = command("read", ".", "shop://hours", "--json", "--mode", era)
    assert json.loads(out)["contents"][0]["text"] == "9 to 5\n"
    command("read", ".", "shop://logo", "--save", str(tmp_path))
    assert (tmp_path / "shop-logo-1.png").read_bytes() == PNG


def test_a_resource_that_is_not_there_is_answered_with_one_that_is(era: str, command: Command) -> None:
    code, out, err = command("read", ".", "shop://horus", "--mode", era)
    assert (code, out) == (1, "")
    assert err == 'error: no resource "shop://horus" in shop. Did you mean "shop://hours"?\n'


def test_one_uri_is_read_at_a_time(command: Command) -> None:
    code, _, err = command("read", ".")
    assert code == 2
    assert err.startswith("error: give one URI, not 0")


def test_a_prompt_is_filled_in(era: str, command: Command) -> None:
    assert command("prompt", ".", "review", "language=Go", "--mode", era) == (0, "a short review of Go\n", "")
    _, out, _ = command("prompt", ".", "review", "language=Go", "style=long", "--json", "--mode", era)
    assert json.loads(out)["messages"][0]["content"]["text"] == "a long review of Go"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["reviwe"], 'no prompt "reviwe" in shop. Did you mean "review"?'),
        (["review"], 'the prompt "review" needs language: write key=value\n  review(language, style?)'),
        (["review", "langage=Go"], 'takes no "langage". Did you mean "language"?'),
        (["review", "Go"], '"Go" is not an argument'),
    ],
)
def test_a_mistake_about_a_prompt_is_one_sentence(words: list[str], said: str, command: Command) -> None:
    code, out, err = command("prompt", ".", *words)
    assert (code, out) == (1, "")
    assert said in err


def test_a_server_is_inspected(era: str, command: Command) -> None:
    code, out, _ = command("inspect", ".", "--mode", era)
    assert code == 0
    assert out.startswith("name\tshop\nversion\t2.0.0\n")
    assert "instructions\tSells trams.\n" in out
    assert "tool\tadd(a: integer, b: integer)\tAdd two numbers.\n" in out
    _, out, _ = command("inspect", ".", "--json", "--mode", era)
    told = json.loads(out)
    assert told["server"]["name"] == "shop"
    assert told["capabilities"]["tools"] == {"listChanged": True}
    assert {tool["name"] for tool in told["tools"]} >= {"add", "stop"}


@pytest.mark.parametrize(
    ("schema", "line"),
    [
        ({}, "t()"),
        ({"properties": 3, "required": 3}, "t()"),
        ({"properties": {"a": {"type": "integer"}}, "required": 3}, "t(a?: integer)"),
        ({"properties": {"a": {"enum": ["x" * 1000]}}, "required": ["a"]}, "t(a: one of " + "x" * 73 + "…"),
        ({"properties": {str(number): {} for number in range(10_000)}}, "t(0?: anything, 1?: anything"),
    ],
)
def test_a_schema_of_any_shape_is_shown_in_a_line(schema: dict[str, Any], line: str) -> None:
    shown = signature(Tool(name="t", input_schema=schema))
    assert shown.startswith(line)
    assert len(shown) < 300


ENTRY_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["$schema", "name", "description", "version"],
    "properties": {
        "name": {"pattern": "^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$", "minLength": 3, "maxLength": 200},
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "maxLength": 255},
        "packages": {
            "type": "array",
            "items": {"type": "object", "required": ["registryType", "identifier", "transport"]},
        },
    },
}
"""What the registry's published schema asks of the members that are written here."""


def test_an_entry_for_the_registry_is_written(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "server.json"
    words = ["--registry", str(path), "--name", "io.github.ada/shop", "--package", "tram-shop"]
    assert command("inspect", ".", *words) == (0, f"{path}\n", "")
    entry = json.loads(path.read_text())
    assert foreign_checker(ENTRY_SCHEMA, "server.json").violations(entry, 0) == []
    assert entry == {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": "io.github.ada/shop",
        "description": "A shop of trams.",
        "version": "2.0.0",
        "packages": [
            {
                "registryType": "pypi",
                "identifier": "tram-shop",
                "version": "2.0.0",
                "transport": {"type": "stdio"},
            }
        ],
    }


def test_a_server_at_an_address_is_a_remote_of_the_registry(command: Command) -> None:
    words = ["--registry", "-", "--name", "com.example/shop"]
    _, out, _ = command("inspect", "https://example.com/mcp", *words)
    assert json.loads(out)["remotes"] == [{"type": "streamable-http", "url": "https://example.com/mcp"}]
    _, out, _ = command("inspect", "sse+https://example.com/sse", *words)
    assert json.loads(out)["remotes"] == [{"type": "sse", "url": "https://example.com/sse"}]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "give --name"),
        (["--name", "shop"], "is not a name of the registry"),
        (["--name", "io.github.ada/shop"], "give --package"),
    ],
)
def test_what_the_registry_would_refuse_is_refused(
    words: list[str], said: str, command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = command("inspect", ".", "--registry", "-", *words)
    assert code == 1
    assert said in err


def test_the_package_is_that_of_the_project(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "trams"\n')
    monkeypatch.chdir(tmp_path)
    _, out, _ = command("inspect", "server.py", "--registry", "-", "--name", "io.github.ada/shop")
    assert json.loads(out)["packages"][0]["identifier"] == "trams"
