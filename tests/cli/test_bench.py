"""`ferrule bench`: how many calls a second a server answers, and how long they take."""

from __future__ import annotations

import asyncio
import json
import sys
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule import Server, ToolError
from ferrule.cli.bench import Measurement, chart
from ferrule.cli.main import main

Command = Callable[..., tuple[int, str, str]]

SERVER = """
import os

from ferrule import Server

app = Server("mayfly")


calls = []


@app.tool(annotations={"readOnlyHint": True})
def look() -> str:
    calls.append(None)
    return "seen" if len(calls) < 9 else os._exit(3)


app.run()
"""


def test_a_tool_that_reads_is_called_again_and_again(era: str, app: Server, command: Command) -> None:
    seen: list[int] = []

    @app.tool(annotations={"readOnlyHint": True})
    async def look(at: int) -> int:
        seen.append(at)
        return at

    words = ["bench", ".", "look", "at=7", "--seconds", "0.2", "--in-flight", "3", "--era", era]
    code, out, err = command(*words, "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert (told["call"], told["in_flight"], told["errors"]) == ("look", 3, 0)
    assert 0.2 <= told["seconds"] < 5
    assert set(seen) == {7}
    # The first call is not counted, and three may run at the end.
    assert told["calls"] < len(seen) <= told["calls"] + 1 + 3
    assert told["calls_per_second"] == pytest.approx(told["calls"] / told["seconds"], rel=0.01)
    assert 0 < told["p50_ms"] <= told["p95_ms"] <= told["p99_ms"] < 5000


def test_without_a_tool_the_server_is_pinged(era: str, command: Command) -> None:
    code, out, err = command("bench", ".", "--seconds", "0.05", "--mode", era)
    assert (code, err) == (0, "")
    rows = dict(line.split("\t") for line in out.splitlines())
    assert rows["call"] == "ping"
    assert int(rows["calls"]) > 0
    assert list(rows)[-3:] == ["p50 ms", "p95 ms", "p99 ms"]


def test_a_tool_that_may_change_something_is_refused_unless_it_is_agreed_to(command: Command) -> None:
    code, out, err = command("bench", ".", "add", "a=1", "b=2")
    assert (code, out) == (1, "")
    assert 'the tool "add" does not say that it only reads' in err
    assert "--yes" in err
    assert command("bench", ".", "add", "a=1", "b=2", "--seconds", "0.05", "--yes").code == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "expected", "said"),
    [
        (["ad"], 1, 'no tool "ad" in shop. Did you mean "add"?'),
        (["add", "a=1", "--yes"], 1, 'the tool "add" needs b (integer)'),
        (["fail", "why=rain", "--yes"], 3, "the tool failed: rain"),
        (["--in-flight", "0"], 2, "give 1 to 1000"),
        (["--in-flight", "1001"], 2, "give 1 to 1000"),
        (["--seconds", "1e9"], 2, "give at most 3600 seconds"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], expected: int, said: str, command: Command) -> None:
    code, out, err = command("bench", ".", *words)
    assert (code, out) == (expected, "")
    assert said in err


def test_calls_that_fail_are_counted_and_the_first_is_told(app: Server, command: Command) -> None:
    calls: list[None] = []

    @app.tool(annotations={"readOnlyHint": True})
    async def moody() -> str:
        calls.append(None)
        if len(calls) % 2 == 0:
            raise ToolError(f"no, says call {len(calls)}")
        return "yes"

    code, out, err = command("bench", ".", "moody", "--seconds", "0.1", "--in-flight", "1")
    assert code == 3
    rows = dict(line.split("\t") for line in out.splitlines())
    assert int(rows["errors"]) == pytest.approx(int(rows["calls"]) / 2, abs=1)
    assert "calls failed, the first: no, says call 2" in err
    calls.clear()
    code, out, err = command("bench", ".", "moody", "--seconds", "0.05", "--in-flight", "2", "--json")
    assert (code, err) == (3, "")
    assert json.loads(out)["errors"] > 0


def test_a_call_that_takes_longer_than_the_run_ends_with_it(app: Server, command: Command) -> None:
    calls: list[None] = []

    @app.tool(annotations={"readOnlyHint": True})
    async def wait() -> str:
        calls.append(None)
        if len(calls) > 1:
            await asyncio.sleep(60)
        return "done"

    code, out, err = command("bench", ".", "wait", "--seconds", "0.05")
    assert (code, out) == (4, "")
    assert "no call ended within 0.05 s" in err


def test_a_server_that_dies_ends_the_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    server = tmp_path / "mayfly.py"
    server.write_text(SERVER, "utf-8")
    with pytest.raises(SystemExit) as end:
        main(["bench", "look", "--seconds", "60", "--", sys.executable, str(server)])
    assert end.value.code == 4
    assert "exited with code 3" in capfd.readouterr().err


def test_percentiles_are_times_that_were_measured() -> None:
    measurement = Measurement()
    measurement.times.extend(number / 1000 for number in range(200, 0, -1))
    assert measurement.percentiles() == {50: 0.1, 95: 0.19, 99: 0.198}
    measurement.times = array("d", [0.5])
    assert measurement.percentiles() == {50: 0.5, 95: 0.5, 99: 0.5}


def test_the_chart_has_a_row_for_each_doubling() -> None:
    rows = chart(array("d", [0.001] * 4 + [0.002] * 2 + [0.0081] + [9.0]))
    assert rows[0] == ("from 1 ms", "#" * 24 + " 4")
    assert rows[1] == ("from 2 ms", "#" * 12 + " 2")
    assert rows[2] == ("from 4 ms", "0")
    assert rows[3] == ("from 8 ms", "######" + " 1")
    assert len(rows) == 8
    assert rows[-1] == ("from 128 ms", "######" + " 1")
