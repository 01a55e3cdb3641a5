"""`ferrule call`, in both protocol generations."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tram_shop import PNG

Command = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "a=1", "b=2"], "3\n"),
        (["add", "a=1", "b:=2"], "3\n"),
        (["--timeout", "9", "add", "a=1", "--mode", "auto", "b=2"], "3\n"),
        (["stop", "name=Main", "lines=3", "lines=4"], '{"name":"Main (now)","lines":[3,4]}\n'),
        (["slow", "steps=3"], "done\n"),
    ],
)
def test_a_tool_is_called_with_words(words: list[str], said: str, era: str, command: Command) -> None:
    assert command("call", ".", *words, "--mode", era) == (0, said, "")


def test_arguments_may_come_from_stdin(command: Command) -> None:
    assert command("call", ".", "add", "-", "b=5", stdin='{"a": 4}') == (0, "9\n", "")


def test_json_is_the_whole_result(era: str, command: Command) -> None:
    code, out, _ = command("call", ".", "add", "a=1", "b=2", "--json", "--mode", era)
    assert code == 0
    assert json.loads(out) == {"content": [{"type": "text", "text": "3"}], "structuredContent": {"result": 3}}


def test_a_tool_that_fails_ends_with_3(era: str, command: Command) -> None:
    code, out, err = command("call", ".", "fail", "why=no tram today", "--mode", era)
    assert (code, out, err) == (3, "", "error: the tool failed: no tram today\n")
    code, out, err = command("call", ".", "fail", "why=no", "--json", "--mode", era)
    assert (code, err) == (3, "")
    assert json.loads(out)["isError"] is True


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ad", "a=1"], 'no tool "ad" in shop. Did you mean "add"?'),
        (["zzzz"], 'no tool "zzzz" in shop: it has add, stop, fail'),
        (["add", "a=1"], 'the tool "add" needs b (integer): write key=value\n  add(a: integer, b: integer)'),
        (["add", "a=1", "b=two"], "\"b\" must be integer, not 'two'"),
        (["stop", "name=x", "lines=1", "wehn=now"], 'takes no "wehn". Did you mean "when"?'),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, command: Command) -> None:
    code, out, err = command("call", ".", *words)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert said in err


def test_a_call_without_a_tool_is_wrong_usage(command: Command) -> None:
    code, _, err = command("call", ".")
    assert (code, err.split(":")[1]) == (2, " there is no tool")


def test_nobody_is_asked_without_a_terminal(era: str, command: Command) -> None:
    """The server is not told that there is somebody."""
    code, out, err = command("call", ".", "order", "--mode", era)
    assert (code, out) == (1, "")
    assert err == (
        'error: the tool "order" asks a question (elicitation), and nobody can be asked: '
        "call it on a terminal, without --json\n"
    )


def test_a_picture_goes_into_a_pipe_as_bytes_or_into_a_folder(command: Command, tmp_path: Path) -> None:
    code, out, _ = command("call", ".", "picture")
    assert code == 0
    assert out.encode("utf-8", "surrogateescape") == b"a picture:\n" + PNG
    for number in (1, 2):
        kept = tmp_path / f"picture-{number}.png"
        assert command("call", ".", "picture", "--save", str(tmp_path)) == (0, f"a picture:\n{kept}\n", "")
        assert kept.read_bytes() == PNG


def test_a_folder_that_cannot_be_written_is_told(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, _, err = command("call", ".", "picture", "--save", str(tmp_path / "file" / "x"))
    assert code == 1
    assert "error: cannot write into" in err
