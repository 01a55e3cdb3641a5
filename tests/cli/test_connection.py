"""Which target a command reaches, and how."""

from __future__ import annotations

import argparse
import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.connection import HeldLines, client_options, configure_target, target_of, words_after_target
from ferrule.cli.main import CommandParser, Ended, main
from ferrule.cli.output import Output
from ferrule.errors import SetupError


def options(*words: str) -> argparse.Namespace:
    parser = CommandParser()
    configure_target(parser)
    return parser.parse(words)


@pytest.mark.parametrize(
    "place",
    ["https://x.example/mcp", "sse+http://h/sse", "ws://h", "tcp://h:1", "unix:/s", "stdio:uvx it", "server.py:app"],
)
def test_addresses_commands_and_files_are_targets_as_they_are(place: str) -> None:
    assert target_of(options(place), []) == place


def test_a_command_stands_after_two_dashes() -> None:
    assert target_of(options(), ["uvx", "it", "--flag"]) == ["uvx", "it", "--flag"]
    given = options("add")
    assert words_after_target(given, ["uvx", "it"], ["a=1"]) == ["add", "a=1"]
    assert target_of(given, ["uvx", "it"]) == ["uvx", "it"]


def test_an_object_of_a_module_is_served_by_a_child_process() -> None:
    served = target_of(options("shop.server:app"), [])
    assert served[1:] == ["-m", "ferrule", "run", "--transport", "stdio", "shop.server:app"]
    assert target_of(options("gone.py:app"), []) == "gone.py:app"
    with pytest.raises(SetupError, match="no file or folder"):
        target_of(options("localhost:8000"), [])


def test_a_folder_is_a_target_by_its_file(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"neither a ferrule.toml nor a server.py: name the file of the server"):
        target_of(options(str(tmp_path)), [])
    (tmp_path / "main.py").write_text("")
    assert target_of(options(str(tmp_path)), []) == str(tmp_path / "main.py")
    (tmp_path / "server.py").write_text("")
    assert target_of(options(str(tmp_path)), []) == str(tmp_path / "server.py")
    (tmp_path / "ferrule.toml").write_text("")
    assert target_of(options(str(tmp_path)), []) == str(tmp_path)


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An mcp.json with two servers."""
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"servers": {"one": {"command": "a"}, "two": {"url": "http://h/mcp"}}}))
    return path


def test_all_servers_of_a_configuration_are_used_or_the_one_that_is_named(config: Path) -> None:
    assert list(target_of(options(str(config)), [])["mcpServers"]) == ["one", "two"]
    assert target_of(options(str(config), "--server", "two"), []) == {"mcpServers": {"two": {"url": "http://h/mcp"}}}


def test_servers_of_a_configuration_are_used_together_and_a_sick_one_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = tmp_path / "server.py"
    server.write_text("from ferrule import Server\napp = Server('s')\napp.add_tool('who', lambda: 'it is me')\n")
    child = {"command": sys.executable, "args": ["-m", "ferrule", "run", str(server)]}
    path = tmp_path / "mcp.json"
    path.write_text(json.dumps({"mcpServers": {"well": child, "sick": {"command": "no-such-program"}}}))
    main(["list", str(path)])
    said = capsys.readouterr()
    assert said.out == "tool\twell_who()\t\n"
    assert "the server sick cannot be used: " in said.err
    assert "no-such-program" in said.err
    main(["call", str(path), "well_who"])
    assert capsys.readouterr().out == "it is me\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{config}", "--header", "X:1"], "shown to every server of {config}: choose one with --server: one, two"),
        (["{config}", "--server", "tow"], 'no server "tow" in {config}. Did you mean "two"?'),
        (["{config}", "--server", "zzz"], "it has one, two"),
        (["http://h/mcp", "--server", "one"], "--server names a server of an mcp.json"),
        (["htp://h/mcp"], 'there is no transport for htp://. Did you mean "http"?'),
        (["./nothing"], "there is no file or folder ./nothing: a target is a file"),
    ],
)
def test_a_target_that_is_none_is_told(words: list[str], said: str, config: Path) -> None:
    with pytest.raises(SetupError) as refusal:
        target_of(options(*[word.replace("{config}", str(config)) for word in words]), [])
    assert said.replace("{config}", str(config)) in str(refusal.value)


def test_no_target_is_wrong_usage() -> None:
    with pytest.raises(Ended, match="there is no target") as end:
        target_of(options(), [])
    assert end.value.code == 2


def test_two_targets_are_refused() -> None:
    with pytest.raises(SetupError, match="there are two targets"):
        target_of(options("server.py"), ["uvx", "it"])


def test_options_become_those_of_a_client() -> None:
    given = options(
        *("x", "--mode", "stateless", "--timeout", "3", "--header", "Authorization: Bearer a:b", "--header", "X:1"),
        *("--env", "A=1=2", "--cwd", "/tmp", "--log-level", "info"),
    )
    found: dict[str, Any] = dict(client_options(given))
    assert found["mode"] == "stateless"
    assert found["request_timeout"] == found["tool_timeout"] == 3.0
    assert found["headers"] == {"Authorization": "Bearer a:b", "X": "1"}
    assert (found["env"], found["cwd"], found["log_level"]) == ({"A": "1=2"}, "/tmp", "info")


@pytest.mark.parametrize("words", [["--header", "s3cret"], ["--header", ":s3cret"], ["--env", "=s3cret"]])
def test_a_malformed_header_is_told_without_its_value(words: list[str]) -> None:
    with pytest.raises(SetupError, match="is written NAME") as refusal:
        client_options(options("x", *words))
    assert "s3cret" not in str(refusal.value)


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon"])
def test_a_time_is_a_number_of_seconds(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        options("x", f"--timeout={text}")
    assert end.value.code == 2
    assert "--timeout" in capsys.readouterr().err


def test_what_a_child_says_is_held_back_until_it_is_reached() -> None:
    output = Output(out=io.StringIO(), err=io.StringIO())
    lines = HeldLines(output)
    lines("early\x1b[2J")
    assert output.err.getvalue() == ""  # type: ignore[attr-defined]
    lines.release()
    lines("late")
    assert output.err.getvalue() == "early\\x1b[2J\nlate\n"  # type: ignore[attr-defined]
