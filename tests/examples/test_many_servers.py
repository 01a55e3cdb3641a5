"""The example with several servers lists all, calls the right one, and leaves a sick one out."""

from __future__ import annotations

import pytest
from example_files import Load

from ferrule import Server, SetupError


def shop(name: str, price: int) -> Server:
    app = Server(name)

    @app.tool(name="price")
    def price_of(item: str) -> str:
        """Tell a price."""
        return f"{item}: {price}"

    return app


async def test_one_client_uses_all_that_are_well(load: Load) -> None:
    targets = {"near": shop("near", 3), "far": shop("far", 2), "sick": ["no-such-program"]}
    async with load("many_servers.py").Servers.opened(targets) as servers:
        assert sorted(await servers.tools()) == ["far.price", "near.price"]
        assert (await servers.call("far.price", {"item": "tea"})).text == "tea: 2"
        assert (await servers.call("near.price", {"item": "tea"})).text == "tea: 3"
        assert "no such command on PATH" in servers.sick["sick"]
        with pytest.raises(SetupError, match="there is no server 'sick': there are near, far"):
            await servers.call("sick.price", {"item": "tea"})


def test_words_of_the_command_line_are_read_as_json_where_they_are(load: Load) -> None:
    read_word = load("many_servers.py").read_word
    assert [read_word(word) for word in ("a=1", "b=tea", "c=[1]")] == [("a", 1), ("b", "tea"), ("c", [1])]
