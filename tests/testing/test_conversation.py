"""A conversation with a real server, kept in a file and played again without it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Context, PeerError, Server
from ferrule.errors import SetupError
from ferrule.testing import Recorded, Recorder, Replay, read_conversation, write_conversation
from ferrule.transports.memory import Memory

Work = Callable[[Client], Awaitable[Any]]


def new_counter() -> Server:
    """Return a server whose answers change."""
    app = Server("counter")
    count = 0

    @app.tool
    async def step(by: int, ctx: Context) -> int:
        nonlocal count
        await ctx.report_progress(1, 2, "half")
        count += by
        return count

    return app


async def talk(client: Client) -> list[Any]:
    """Say the same each time."""
    heard: list[Any] = []
    names = [tool.name for tool in await client.list_tools()]
    for _ in range(2):
        result = await client.call_tool("step", {"by": 5}, on_progress=lambda *told: heard.append(told))
        heard.append(result.data)
    return [names, heard]


def recorded(path: Path, era: str) -> list[Any]:
    """Record a conversation into a file; return what the client got."""

    async def scenario() -> list[Any]:
        recorder = Recorder(Memory(new_counter()))
        async with Client(recorder, mode=era) as client:  # type: ignore[arg-type]
            got = await talk(client)
        write_conversation(path, recorder.messages)
        return got

    return asyncio.run(scenario())


def replayed(conversation: Any, era: str, work: Work) -> Any:
    async def scenario() -> Any:
        async with Client(Replay(conversation), mode=era) as client:  # type: ignore[arg-type]
            return await work(client)

    return asyncio.run(scenario())


def test_a_client_gets_again_what_it_got(era: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    got = recorded(path, era)
    assert got == [["step"], [(1.0, 2.0, "half"), 5, (1.0, 2.0, "half"), 10]]
    assert replayed(path, era, talk) == got
    assert replayed(read_conversation(path), era, talk) == got


def test_the_last_answer_serves_for_the_rest(era: str, tmp_path: Path) -> None:
    recorded(tmp_path / "talk.jsonl", era)

    async def more(client: Client) -> list[Any]:
        return [(await client.call_tool("step", {"by": 5})).data for _ in range(4)]

    assert replayed(tmp_path / "talk.jsonl", era, more) == [5, 10, 10, 10]


def test_what_was_never_asked_is_refused(era: str, tmp_path: Path) -> None:
    recorded(tmp_path / "talk.jsonl", era)

    async def other(client: Client) -> Any:
        return await client.call_tool("step", {"by": 6})

    with pytest.raises(PeerError, match="the recorded conversation has no answer to this tools/call"):
        replayed(tmp_path / "talk.jsonl", era, other)


@pytest.mark.parametrize("line", ["nonsense", '{"sender": "nobody", "message": 1}', "[]"])
def test_a_file_that_is_no_conversation_is_told_with_its_line(line: str, tmp_path: Path) -> None:
    path = tmp_path / "talk.jsonl"
    path.write_text('{"sender": "client", "message": {}}\n' + line + "\n")
    with pytest.raises(SetupError, match=r"talk.jsonl:2 is no message of a conversation"):
        Replay(path)
    with pytest.raises(SetupError, match="cannot read"):
        Replay(tmp_path / "missing")


def test_frames_that_are_no_json_are_left_out(tmp_path: Path) -> None:
    write_conversation(tmp_path / "t", [Recorded("server", b"garbage"), Recorded("client", {"id": 1})])
    assert read_conversation(tmp_path / "t") == [Recorded("client", {"id": 1})]
