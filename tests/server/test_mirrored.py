"""Arguments of a tool that HTTP headers mirror."""

from __future__ import annotations

import logging
from typing import Annotated

import msgspec
import pytest

from ferrule import Server, SetupError


def mirrored(name: str) -> msgspec.Meta:
    return msgspec.Meta(extra_json_schema={"x-mcp-header": name})


def test_a_tool_knows_which_arguments_are_mirrored() -> None:
    """HDR-7"""
    app = Server("regions")

    @app.tool
    async def deploy(region: Annotated[str, mirrored("Region")], size: int = 1) -> str:
        return region

    assert app.mirrored("deploy") == {"Region": ("region",)}
    assert app.mirrored("nobody knows this") == {}


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
