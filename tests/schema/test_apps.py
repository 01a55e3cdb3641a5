"""What a listed tool says of its page, read with mercy: it may come from any server."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.schema.apps import PAGE_TYPE, ToolUi, shows_pages, ui_of
from ferrule.schema.tools import Tool

PAGE = "ui://x/y"


@pytest.mark.parametrize(
    ("meta", "ui"),
    [
        (None, None),
        ({}, None),
        ({"ui": {}}, None),
        ({"ui": 7}, None),
        ({"ui": {"resourceUri": 7}}, None),
        ({"ui": {"resourceUri": "https://evil"}}, None),
        ({"ui": {"resourceUri": PAGE, "visibility": 7}}, None),
        ({"ui": {"resourceUri": PAGE}}, ToolUi(resource_uri=PAGE)),
        ({"ui/resourceUri": PAGE}, ToolUi(resource_uri=PAGE)),
        ({"ui": {"visibility": ["app"]}}, ToolUi(visibility=("app",))),
    ],
)
def test_a_tools_page_is_read_or_there_is_none(meta: Any, ui: ToolUi | None) -> None:
    assert ui_of(Tool(name="t", input_schema={}, meta=meta)) == ui


def test_a_tool_is_for_the_model_unless_it_says_otherwise() -> None:
    assert ToolUi().for_model
    assert not ToolUi(visibility=("app",)).for_model


@pytest.mark.parametrize(
    ("settings", "shows"),
    [
        (None, False),
        ({}, True),
        ({"mimeTypes": [PAGE_TYPE]}, True),
        ({"mimeTypes": []}, False),
        ({"mimeTypes": 7}, False),
    ],
)
def test_a_client_shows_pages_of_the_types_it_names(settings: Any, shows: bool) -> None:
    assert shows_pages(settings) is shows
