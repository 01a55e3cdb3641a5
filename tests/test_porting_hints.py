"""Names of other libraries, answered with ours."""

from __future__ import annotations

import importlib
import re

import pytest

import ferrule
import ferrule.types
from ferrule.porting_hints import MODULES, NAMES, TYPES, foreign_module, foreign_name


@pytest.mark.parametrize("name", ["FastMCP", "MCPServer", "ClientSession", "McpError", "TextContent", "RouteMap"])
def test_an_import_of_a_foreign_name_says_what_to_write(name: str) -> None:
    with pytest.raises(ImportError) as caught:
        exec(f"from ferrule import {name}")
    assert str(caught.value) == foreign_name(name)
    assert f"ferrule has no {name}; " in str(caught.value)


def test_fastmcp_is_answered_with_the_line_that_makes_the_file_run() -> None:
    with pytest.raises(ImportError, match="from ferrule import Server as FastMCP"):
        exec("from ferrule import FastMCP")


def test_names_that_are_ours_are_imported() -> None:
    exec("from ferrule import AssistantMessage, Audio, Context, Depends, Image, Message, Middleware, ToolResult")
    assert set(NAMES) & set(ferrule.HOMES) == set()
    assert set(TYPES) & set(ferrule.HOMES) == set()


def test_a_name_nobody_has_is_just_missing() -> None:
    assert not hasattr(ferrule, "colour")
    with pytest.raises(ImportError, match="cannot import name 'colour'"):
        exec("from ferrule import colour")


def test_the_types_named_are_those_of_the_module_of_types() -> None:
    assert sorted(TYPES) == sorted(ferrule.types.__all__)


@pytest.mark.parametrize("name", [*NAMES, *MODULES])
def test_what_an_answer_imports_is_there(name: str) -> None:
    answer = NAMES.get(name) or MODULES[name]
    for names in re.findall(r"from ferrule import ([\w, ]+?)(?: as \w+)?(?:[`;,]|$)", answer):
        for each in names.split(","):
            assert hasattr(ferrule, each.strip()), answer


@pytest.mark.parametrize("name", MODULES)
def test_a_module_that_is_answered_is_not_ours(name: str) -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"ferrule.{name}")


def test_a_module_is_answered_by_its_nearest_parent() -> None:
    assert foreign_module("ferrule.server.auth.providers.github") == MODULES["server.auth"]
    assert foreign_module("ferrule.prompts.base") == MODULES["prompts.base"]
    assert foreign_module("ferrule.colour") == ""
