"""Arguments of a tool that HTTP headers mirror."""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

import msgspec
import pytest

from ferrule import Client, Http, Server, SetupError, ToolError


def mirrored(name: str) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema={"x-mcp-header": name})


def test_a_tool_knows_which_arguments_are_mirrored() -> None:
    """HDR-7"""
    app = Server("regions")

    @app.tool
    async def deploy(region: Annotated[str, mirrored("Region")], size: int = 1) -> str:
        return region

    assert app.host.mirrored("deploy") == {"Region": ("region",)}
    assert app.host.mirrored("nobody knows this") == {}


def test_an_annotation_no_client_could_follow_is_refused_at_once() -> None:
    """HDR-8"""
    app = Server("regions")

    async def deploy(share: Annotated[float, mirrored("Share")]) -> str:
        return str(share)

    with pytest.raises(SetupError, match=r"deploy.*only a string, an integer or a boolean"):
        app.add_tool(deploy)


@pytest.mark.parametrize(("argument", "warned"), [("api_key", True), ("password", True), ("region", False)])
def test_what_looks_like_a_secret_is_not_to_be_mirrored(
    argument: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """HDR-14: headers are seen, and logged, by whatever stands between; the author is warned."""
    app = Server("regions")
    schema = {"type": "object", "properties": {argument: {"type": "string", "x-mcp-header": "Thing"}}}

    async def deploy(**given: str) -> str:
        return "done"

    with caplog.at_level(logging.WARNING, logger="ferrule.tools"):
        app.add_tool(deploy, schema=schema)
    assert any("looks like a secret" in record.getMessage() for record in caplog.records) is warned


@pytest.mark.parametrize("type_", [Annotated[int | None, mirrored("Size")], Annotated[int, mirrored("Size")] | None])
def test_a_parameter_that_may_be_null_is_mirrored_too(type_: Any) -> None:
    """HDR-8, HDR-10: it has one type in the schema, and a null is taken and has no header."""

    async def main() -> None:
        app = Server("regions")

        async def deploy(size: Any = None, count: int = 0) -> str:
            return f"{size}"

        deploy.__annotations__["size"] = type_
        app.add_tool(deploy)
        [tool] = app.list_tools()
        assert tool.input_schema["properties"]["size"] == {"type": "integer", "x-mcp-header": "Size"}
        assert app.host.mirrored("deploy") == {"Size": ("size",)}
        listener = Http(port=0)
        ready = asyncio.Event()
        serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
        await ready.wait()
        async with Client(listener.url, mode="stateless") as client:
            await client.list_tools()
            for given in ({"size": 7}, {"size": None}, {}):
                assert (await client.call_tool("deploy", given)).data == f"{given.get('size')}"
            with pytest.raises(ToolError, match="/count"):
                await client.call_tool("deploy", {"size": None, "count": "many"})
        await app.stop(grace=0.0)
        await serving

    asyncio.run(main())
