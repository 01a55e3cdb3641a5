"""ErrorMapping: what an application's own exceptions mean."""

import pytest

from ferrule import ErrorMapping, PeerError, Server, SetupError, ToolError
from ferrule.errors import Forbidden
from ferrule.testing import pair


class NotMine(PermissionError):
    """Raised by the application's own layers below."""


MEANINGS = {
    KeyError: "there is no such record",
    OSError: ToolError,
    NotMine: Forbidden,
    ValueError: lambda error: ToolError(f"bad value: {error}"),
}


def mapped():
    app = Server("s", middleware=[ErrorMapping(MEANINGS)])
    errors = {"key": KeyError("k"), "os": OSError("disk full"), "mine": NotMine("keep out"), "value": ValueError("5")}

    @app.tool
    def fail(how: str) -> str:
        raise errors[how]

    @app.tool
    async def other() -> str:
        raise ZeroDivisionError("secret")

    @app.resource("x://{how}")
    async def resource(how: str) -> str:
        raise errors[how]

    return app


async def test_each_exception_is_told_as_it_was_said(era):
    async with pair(mapped(), era) as client:
        for how, words in (("key", "^there is no such record$"), ("os", "^disk full$"), ("value", "^bad value: 5$")):
            with pytest.raises(ToolError, match=words):
                await client.call_tool("fail", {"how": how})
        with pytest.raises(PeerError, match="keep out"):
            await client.call_tool("fail", {"how": "mine"})


async def test_what_is_not_in_the_table_stays_masked(era):
    async with pair(mapped(), era) as client:
        with pytest.raises(ToolError, match="reference") as caught:
            await client.call_tool("other")
    assert "secret" not in str(caught.value)


async def test_resources_are_mapped_too(era):
    async with pair(mapped(), era) as client:
        with pytest.raises(PeerError, match="there is no such record"):
            await client.read_resource("x://key")
        with pytest.raises(PeerError, match="keep out"):
            await client.read_resource("x://mine")


def test_a_wrong_table_is_refused():
    with pytest.raises(SetupError, match="is not a class of exceptions"):
        ErrorMapping({"KeyError": "x"})
    with pytest.raises(SetupError, match="must be a str, an exception class or a function"):
        ErrorMapping({KeyError: 5})
