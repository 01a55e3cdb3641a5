"""The example of a chat lets its model use tools until it has an answer, and not for ever."""

from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from example_files import EXAMPLES, Load

from ferrule import Client, Server, ToolError


async def test_the_model_calls_a_tool_and_says_what_came_of_it(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chat = load("chat.py")
    monkeypatch.setattr(sys, "stdin", io.StringIO("what is 2 plus 3?\nhello\n"))
    await chat.main(str(EXAMPLES / "hello_server.py"))
    assert capsys.readouterr().out == "model: The answer is 5.\nmodel: Ask me about two numbers.\n"


async def test_a_failure_is_read_by_the_model_and_a_model_without_end_is_stopped(load: Load, era: str) -> None:
    chat = load("chat.py")
    app = Server("broken")

    @app.tool
    async def fail() -> None:
        raise ToolError("no paper")

    class Stubborn:
        async def answer(self, turns: list[Any], tools: list[Any]) -> Any:
            return chat.Turn("model", wants=[("fail", {})])

    turns = [chat.Turn("user", "print it")]
    async with Client(app, mode=era) as client:
        assert await chat.respond(Stubborn(), client, turns) == "I could not find out."
    assert [turn.text for turn in turns if turn.role == "tool"] == ["no paper"] * chat.MOST_ROUNDS
