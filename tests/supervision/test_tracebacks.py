"""What a log says of a handler that failed: what was asked for, and the author's own frames."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from typing import Any

import pytest

from ferrule import Client, PeerError, Server, SetupError, TimedOut, ToolError
from ferrule.supervision.tracebacks import OURS, beyond_ours, in_one_sentence
from ferrule.testing import ERAS, run_in_virtual_time


def broken(what: str) -> Any:
    raise ValueError(f"{what} is broken")


def app() -> Server:
    server = Server("s")

    @server.tool
    async def in_loop() -> int:
        return broken("the loop")  # type: ignore[no-any-return]

    @server.tool
    def in_thread() -> int:
        return broken("the thread")  # type: ignore[no-any-return]

    @server.tool(timeout=5)
    async def in_time() -> int:
        return broken("the time")  # type: ignore[no-any-return]

    @server.tool
    async def endless() -> int:
        await asyncio.sleep(3600)
        return 1

    @server.resource("notes://{id}")
    async def note(id: str) -> str:  # noqa: A002
        return broken(id)  # type: ignore[no-any-return]

    @server.prompt
    def review(language: str) -> str:
        return broken(language)  # type: ignore[no-any-return]

    return server


def logged(caplog: pytest.LogCaptureFixture, mode: str, method: str, *args: Any) -> logging.LogRecord:
    async def scene() -> None:
        async with Client(app(), mode=mode) as client:  # type: ignore[arg-type]
            with pytest.raises((ToolError, PeerError), match="reference"):
                await getattr(client, method)(*args)

    with caplog.at_level(logging.ERROR, "ferrule"):
        asyncio.run(scene())
    [record] = caplog.records
    return record


@pytest.mark.parametrize("mode", ERAS)
@pytest.mark.parametrize(
    ("method", "args", "named"),
    [
        ("call_tool", ("in_loop",), "the tool in_loop failed"),
        ("call_tool", ("in_thread",), "the tool in_thread failed"),
        ("call_tool", ("in_time",), "the tool in_time failed"),
        ("read_resource", ("notes://7",), "resources/read 'notes://7' failed"),
        ("get_prompt", ("review", {"language": "python"}), "prompts/get 'review' failed"),
    ],
)
def test_a_failure_is_logged_with_what_was_asked_for_and_the_authors_frames(
    caplog: pytest.LogCaptureFixture, mode: str, method: str, args: tuple[Any, ...], named: str
) -> None:
    record = logged(caplog, mode, method, *args)
    assert record.getMessage().startswith(named)
    assert record.exc_info is not None
    frames = traceback.extract_tb(record.exc_info[2])
    assert [frame.filename for frame in frames] == [__file__, __file__]
    assert frames[-1].name == "broken"


@pytest.mark.parametrize("mode", ERAS)
def test_the_log_says_how_the_text_of_an_exception_reaches_the_client(
    caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    message = logged(caplog, mode, "call_tool", "in_loop").getMessage()
    assert message.endswith("raise ToolError, or use ErrorMapping({ValueError: ToolError}), if it may")


def test_an_error_of_our_own_keeps_all_its_frames() -> None:
    with pytest.raises(SetupError) as caught:
        Server("s").remove_tool("nothing")
    trace = caught.value.__traceback__
    assert trace is not None
    assert beyond_ours(trace) is trace
    ours = trace.tb_next
    assert ours is not None
    assert ours.tb_frame.f_code.co_filename.startswith(OURS)
    assert beyond_ours(ours) is ours
    assert beyond_ours(None) is None


@pytest.mark.parametrize("mode", ERAS)
def test_a_time_out_names_the_tool(mode: str) -> None:
    async def scene() -> None:
        async with Client(app(), mode=mode) as client:  # type: ignore[arg-type]
            with pytest.raises(TimedOut, match=r"tools/call 'endless' got no answer within 2 s"):
                await client.call_tool("endless", timeout=2)
            with pytest.raises(TimedOut, match=r"tools/call 'endless' got no answer within 2 s"):
                await client.call_tool("endless", timeout=2, on_progress=lambda *_: None)

    run_in_virtual_time(scene())


class TestInOneSentence:
    """An error that ends a program without a traceback, and is still itself."""

    def test_whoever_catches_its_class_catches_it(self) -> None:
        error = ToolError("no", result=7)
        told = in_one_sentence(error, "it was no")
        assert isinstance(told, ToolError)
        assert isinstance(told, SystemExit)
        assert (told.args, told.result, told.code) == (("no",), 7, "error: it was no")

    def test_it_names_the_innermost_line_of_the_author(self) -> None:
        with pytest.raises(ValueError, match="is broken") as caught:
            broken("it")
        told = in_one_sentence(caught.value, "failed")
        assert isinstance(told, SystemExit)
        line = broken.__code__.co_firstlineno + 1
        assert told.code == f"error: failed (test_tracebacks.py, line {line})"

    def test_where_a_traceback_is_wanted_it_is_the_error_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("FERRULE_TRACEBACK", "1")
        error = ValueError("no")
        assert in_one_sentence(error, "failed") is error

    def test_in_another_thread_it_is_the_error_itself(self) -> None:
        error, told = ValueError("no"), []
        thread = threading.Thread(target=lambda: told.append(in_one_sentence(error, "failed")))
        thread.start()
        thread.join()
        assert told == [error]
