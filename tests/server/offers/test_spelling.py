"""Suggestions for unknown names, in a time that does not grow with the number of names."""

from __future__ import annotations

import asyncio
import random
import time
import tracemalloc

import pytest

from ferrule import Client, PeerError, Server
from ferrule.server.offers.spelling import LONGEST_NAME, MOST_NAMES, MOST_PARTS, MOST_REMEMBERED, Spellings

NAMES = ["add", "subtract", "search", "search_files", "getWeather", "get-forecast", "read", "notes://today", "prompt-0"]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("ad", "add"),
        ("Add", "add"),
        ("subtrac", "subtract"),
        ("serach", "search"),
        ("search_file", "search_files"),
        ("get_weather", "getWeather"),
        ("get_forecast", "get-forecast"),
        ("raed", "read"),
        ("notes://tody", "notes://today"),
        ("prompt-9", "prompt-0"),
        ("", ""),
        ("multiply", ""),
        ("zzz", ""),
        ("add" * 100, ""),
    ],
)
def test_the_name_that_was_meant_is_suggested(asked: str, meant: str) -> None:
    assert Spellings(NAMES).nearest(asked) == meant


def test_names_too_long_or_too_many_are_not_suggested() -> None:
    assert Spellings(["x" * LONGEST_NAME]).nearest("x" * LONGEST_NAME) == "x" * LONGEST_NAME
    assert Spellings(["x" * (LONGEST_NAME + 1)]).nearest("x" * LONGEST_NAME) == ""
    numbered = [f"{number}" for number in range(10_000, 10_000 + MOST_NAMES)]
    assert Spellings([*numbered, "last"]).nearest("lasr") == ""


def test_a_name_that_is_asked_again_gets_the_same_suggestion() -> None:
    spellings = Spellings(NAMES)
    for asked in ("subtrac", "multiply", "serach", ""):
        assert spellings.nearest(asked) == spellings.nearest(asked) == Spellings(NAMES).nearest(asked)


def test_a_name_is_suggested_no_less_after_many_others_were_compared() -> None:
    numbered = [f"look_up_{number:04}" for number in range(1000)]
    used = Spellings(numbered)
    for number in range(2 * MOST_REMEMBERED):
        used.nearest(f"look_up_x{number:03}")
    for asked in ("lookup_0999", "look_up_x007", "Look_Up_0123", "look_down"):
        assert used.nearest(asked) == Spellings(numbered).nearest(asked)


def test_a_name_is_suggested_also_where_too_many_are_compared_to_keep_them_all_taken_apart() -> None:
    names = ["".join(chr(0x4E00 + 20 * number + at) for at in range(20)) for number in range(300)]
    spellings = Spellings(names)
    for name in names:
        assert spellings.nearest(name[:9] + name[10:]) == name
    assert MOST_PARTS <= len(spellings._shared) < MOST_PARTS + 2 * LONGEST_NAME
    assert len(spellings._parts) < len(names)


def test_what_is_remembered_of_unknown_names_is_bounded_in_number_and_length() -> None:
    spellings = Spellings(NAMES)
    for number in range(3 * MOST_REMEMBERED):
        spellings.nearest(f"serach{number}")
        spellings.nearest(f"{number}" + "x" * LONGEST_NAME)
        assert 0 < len(spellings._remembered) <= MOST_REMEMBERED
    assert max(map(len, spellings._remembered)) <= LONGEST_NAME


def test_what_a_peer_asks_keeps_no_more_than_a_part_of_the_catalogue_and_the_last_names() -> None:
    chance = random.Random(2)

    def word() -> str:
        return "".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=LONGEST_NAME))

    spellings = Spellings([word() for _ in range(MOST_NAMES)])
    asked = [word() for _ in range(3000)]
    tracemalloc.start()
    try:
        for name in asked:
            spellings.nearest(name)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 2 * 2**20


@pytest.mark.parametrize("letters", ["ab", "abcdefghij", "abcdefghijklmnopqrstuvwxyz"])
def test_looking_for_a_name_takes_microseconds_whatever_is_asked(letters: str) -> None:
    chance = random.Random(1)

    def word() -> str:
        return "".join(chance.choices(letters, k=chance.randint(4, LONGEST_NAME)))

    spellings = Spellings([word() for _ in range(MOST_NAMES)])
    asked = [*(word() for _ in range(200)), *(letters[:2] * 32 for _ in range(200)), *("ß" * 64 for _ in range(200))]
    start = time.process_time()
    for name in asked:
        spellings.nearest(name)
    assert (time.process_time() - start) / len(asked) < 500e-6


def test_unknown_names_cost_a_server_of_many_tools_no_more_than_one_of_few() -> None:
    def served(count: int) -> float:
        app = Server("many")
        for number in range(count):
            app.add_tool(lambda: None, name=f"tool_{number:04}")

        async def main() -> float:
            async with Client(app) as client:
                costs = []
                for number in range(100):
                    start = time.process_time()
                    with pytest.raises(PeerError, match="Unknown tool"):
                        await client.call_tool(f"tool_x{number:03}")
                    costs.append(time.process_time() - start)
                return sorted(costs)[50]

        return asyncio.run(main())

    assert served(1000) < 3 * served(10) + 1e-3


def test_what_is_offered_later_is_suggested_too_and_what_is_gone_is_not() -> None:
    async def main() -> None:
        app = Server("s")
        app.add_tool(lambda: 1, name="first")
        async with Client(app) as client:
            with pytest.raises(PeerError, match="did you mean 'first'"):
                await client.call_tool("firts")
            app.add_tool(lambda: 1, name="second")
            with pytest.raises(PeerError, match="did you mean 'second'"):
                await client.call_tool("secnd")
            app.remove_tool("second")
            with pytest.raises(PeerError) as caught:
                await client.call_tool("secnd")
            assert "did you mean" not in str(caught.value)

    asyncio.run(main())
