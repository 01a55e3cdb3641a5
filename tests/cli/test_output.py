"""What commands write, on a terminal and in a pipe."""

from __future__ import annotations

import io
import json
import time

import pytest

from ferrule.cli.output import Output, fitted, has_colour, painted, progress_line, shown, width_of


class Terminal(io.StringIO):
    """A stream that a person sees."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Output:
    """An output whose two streams a person sees, 60 columns wide."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Output(out=Terminal(), err=Terminal())


@pytest.fixture
def pipe() -> Output:
    """An output that programs read."""
    return Output(out=io.StringIO(), err=io.StringIO())


def out(output: Output) -> str:
    return str(output.out.getvalue())  # type: ignore[attr-defined]


def err(output: Output) -> str:
    return str(output.err.getvalue())  # type: ignore[attr-defined]


ROWS = [["add", "Add two numbers."], ["multiply", "x" * 100], ["日本", "wide"]]


def test_rows_are_aligned_and_cut_to_the_terminal(terminal: Output) -> None:
    terminal.rows(ROWS, indent="  ")
    lines = out(terminal).splitlines()
    assert lines[0] == "  add       Add two numbers."
    assert lines[1] == "  multiply  " + "x" * 47 + "…"
    assert lines[2] == "  日本      wide"
    assert max(map(width_of, lines)) <= 60


def test_rows_in_a_pipe_have_tabs_and_are_whole(pipe: Output) -> None:
    pipe.heading("not for programs")
    pipe.rows(ROWS, indent="  ")
    assert out(pipe).splitlines() == ["add\tAdd two numbers.", f"multiply\t{'x' * 100}", "日本\twide"]


def test_a_cell_of_a_peer_is_one_line_without_control_characters(pipe: Output, terminal: Output) -> None:
    for output in (pipe, terminal):
        output.rows([["evil\x1b[2J\n\u202e", "second"]])
        assert out(output).count("\n") == 1
        assert "\x1b[2J" not in out(output)
        assert "\\x1b[2J\\n\\u202e" in out(output)


def test_a_text_keeps_its_lines_and_tabs_and_loses_its_control_characters_on_a_terminal(terminal: Output) -> None:
    terminal.text("one\ttab\n\x1b]0;title\x07two")
    assert out(terminal) == "one\ttab\n\\x1b]0;title\\x07two\n"


def test_a_text_goes_into_a_pipe_as_it_came(pipe: Output) -> None:
    pipe.text("one\x1b[31m\r\n")
    assert out(pipe) == "one\x1b[31m\r\n"


def test_json_is_one_line_in_a_pipe_and_indented_on_a_terminal(pipe: Output, terminal: Output) -> None:
    value = {"a": [1, 2], "evil": "\x1b\u202e\x9b"}
    pipe.document(value)
    terminal.document(value)
    assert out(pipe).count("\n") == 1
    assert out(terminal).count("\n") > 3
    assert json.loads(out(pipe)) == json.loads(out(terminal)) == value
    assert not set("\x1b\u202e\x9b") & set(out(terminal))


@pytest.mark.parametrize(
    ("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")], ids=["NO_COLOR", "a terminal without colours"]
)
def test_there_is_no_colour_where_none_is_wanted(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted("x", "31", Terminal()) == "\x1b[31mx\x1b[0m"
    monkeypatch.setenv(name, value)
    assert painted("x", "31", Terminal()) == "x"


def test_there_is_no_colour_without_a_terminal() -> None:
    assert not has_colour(io.StringIO())
    closed = io.StringIO()
    closed.close()
    assert not has_colour(closed)


def test_progress_is_drawn_on_a_terminal_and_taken_away_before_a_result(terminal: Output) -> None:
    terminal.progress(1, 4, "quarter")
    terminal.text("done")
    assert err(terminal) == "\r\x1b[K[######------------------]  25% quarter\r\x1b[K"


def test_progress_is_not_drawn_in_a_pipe_nor_beside_json(pipe: Output) -> None:
    pipe.progress(1, 2)
    quiet = Output(json=True, out=Terminal(), err=Terminal())
    quiet.progress(1, 2)
    assert err(pipe) == err(quiet) == ""


@pytest.mark.parametrize(
    ("done", "total", "line"),
    [
        (3, None, "3 m"),
        (5, 0, "5 m"),
        (9, 3, f"[{'#' * 24}] 100% m"),
        (-1, 3, f"[{'-' * 24}]   0% m"),
        (float("nan"), 3, f"[{'-' * 24}]   0% m"),
        (float("inf"), float("inf"), f"[{'-' * 24}]   0% m"),
    ],
)
def test_a_server_may_say_any_numbers(done: float, total: float | None, line: str) -> None:
    assert progress_line(done, total, "m") == line


def test_a_progress_message_cannot_leave_its_line(terminal: Output) -> None:
    terminal.progress(1, 2, "a\nb\x1b[2J" + "x" * 500)
    drawn = err(terminal).removeprefix("\r\x1b[K")
    assert "\n" not in drawn
    assert "\x1b" not in drawn
    assert width_of(drawn) <= 60


def test_wide_characters_and_accents_are_counted_as_they_are_shown() -> None:
    assert width_of("日本") == 4
    assert width_of("e\u0301") == 1
    assert fitted("日本語", 5) == "日本…"
    assert shown("plain") == "plain"


def test_lines_and_tabs_of_a_text_cost_no_more_than_what_is_escaped() -> None:
    assert shown("a\tb\n\x1b[0m\r\n\u202e") == "a\tb\n\\x1b[0m\\r\n\\u202e"
    least = {}
    for what in ("\n\t", "\x1b\x07"):
        text = what * 100_000
        times = []
        for _ in range(5):
            before = time.process_time()
            shown(text)
            times.append(time.process_time() - before)
        least[what] = min(times)
    assert least["\n\t"] < 4 * least["\x1b\x07"]
