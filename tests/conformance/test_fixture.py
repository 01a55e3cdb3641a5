"""The fixture server does the same in both eras, seen through a client in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ferrule import CapabilityNotSupported, Client, PeerError, ToolError
from ferrule.cli.target import load_server
from ferrule.testing import ERAS, pair

T = TypeVar("T")

APP = load_server(str(Path(__file__).parent / "server.py"))
FORMS: dict[str, Any] = {
    "username": "testuser",
    "email": "test@example.com",
    "name": "Alice",
    "color": "blue",
    "ok": True,
    "context": "testing",
    "untitledSingle": "option1",
    "titledSingle": "value1",
    "legacyEnum": "opt1",
    "untitledMulti": ["option1", "option2"],
    "titledMulti": ["value1", "value2"],
}

each_era = pytest.mark.parametrize("era", ERAS)


def fill(question: Any) -> dict[str, Any]:
    """Fill in a form with the values the suite gives."""
    return {name: FORMS[name] for name in question.requested_schema["properties"] if name in FORMS}


def using(era: Any, deed: Callable[[Client], Awaitable[T]], **options: Any) -> T:
    """Do something with a client of the fixture that can answer everything."""
    answers: dict[str, Any] = {"elicitation": fill, "sampling": lambda _: "Paris", "roots": ["file:///tmp"], **options}

    async def run() -> T:
        async with pair(APP, era, **answers) as client:
            return await deed(client)

    return asyncio.run(asyncio.wait_for(run(), 60))


@each_era
@pytest.mark.parametrize(
    ("name", "arguments", "text"),
    [
        ("test_simple_text", {}, "This is a simple text response for testing."),
        ("give_back", {"region": "eu"}, "eu"),
        ("json_schema_2020_12_tool", {"name": "a", "email": "b"}, "Got email, name"),
        ("test_tool_with_logging", {}, "Logged three times."),
        ("test_logging_tool", {}, "Logged once."),
        ("test_tool_with_progress", {}, "Done."),
        ("test_reconnection", {}, "The result was kept for you."),
        ("test_trigger_tool_change", {}, "The list of tools has changed."),
        ("test_trigger_prompt_change", {}, "The list of prompts has changed."),
        ("test_sampling", {"prompt": "Well?"}, "LLM response: Paris"),
        ("test_missing_capability", {}, "LLM response: Paris"),
        ("test_input_required_result_elicitation", {}, "Hello, Alice!"),
        ("test_input_required_result_sampling", {}, "The model says: Paris"),
        ("test_input_required_result_list_roots", {}, "1 roots: file:///tmp"),
        ("test_input_required_result_request_state", {}, "state-ok, confirmed True"),
        ("test_input_required_result_multiple_inputs", {}, "Paris Alice, 1 roots"),
        ("test_input_required_result_multi_round", {}, "Alice likes blue"),
        ("test_input_required_result_tampered_state", {}, "The state is whole, confirmed True"),
        ("test_input_required_result_capabilities", {}, "Hello, Alice!"),
        ("test_streaming_elicitation", {}, "User response: accept"),
    ],
)
def test_a_tool_gives_its_text(era: Any, name: str, arguments: dict[str, Any], text: str):
    assert using(era, lambda client: client.call_tool(name, arguments)).text == text


@each_era
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("test_elicitation", "testuser"),
        ("test_elicitation_sep1034_defaults", "Alice"),
        ("test_elicitation_sep1330_enums", "'titledMulti': ['value1', 'value2']"),
    ],
)
def test_a_tool_asks_for_what_the_suite_answers(era: Any, name: str, told: str):
    arguments = {"message": "Who are you?"} if name == "test_elicitation" else {}
    result = using(era, lambda client: client.call_tool(name, arguments))
    assert result.text.startswith("User response: accept")
    assert told in result.text


@each_era
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("test_image_content", ["image"]),
        ("test_audio_content", ["audio"]),
        ("test_embedded_resource", ["resource"]),
        ("test_multiple_content_types", ["text", "image", "resource"]),
    ],
)
def test_a_tool_gives_its_kinds_of_content(era: Any, name: str, kinds: list[str]):
    result = using(era, lambda client: client.request("tools/call", {"name": name}))
    assert [block["type"] for block in result["content"]] == kinds


@each_era
def test_the_failing_tool_fails(era: Any):
    with pytest.raises(ToolError, match="This tool intentionally returns an error for testing"):
        using(era, lambda client: client.call_tool("test_error_handling"))


@each_era
def test_a_client_without_a_model_is_refused(era: Any):
    with pytest.raises((PeerError, CapabilityNotSupported)):
        using(era, lambda client: client.call_tool("test_missing_capability"), sampling=None)


@each_era
def test_a_client_with_a_model_only_is_asked_that(era: Any):
    name = "test_input_required_result_capabilities"
    assert using(era, lambda client: client.call_tool(name), elicitation=None).text == "Paris"


@each_era
def test_the_lists_are_complete_and_described(era: Any):
    tools = using(era, lambda client: client.list_tools())
    prompts = using(era, lambda client: client.list_prompts())
    assert tools[0].input_schema["properties"] == {}
    assert all(listed.description for listed in (*tools, *prompts))
    schemas = {tool.name: tool.input_schema for tool in tools}
    assert schemas["give_back"]["properties"]["region"]["x-mcp-header"] == "Region"
    assert schemas["json_schema_2020_12_tool"]["$defs"]["address"]["$anchor"] == "addressDef"
    uris = [resource.uri for resource in using(era, lambda client: client.list_resources())]
    assert uris[:3] == ["test://static-text", "test://static-binary", "test://watched-resource"]


@each_era
def test_the_skills_are_listed_and_load(era: Any):
    async def load(client: Any) -> dict[str, int]:
        return {skill.name: len((await client.load_skill(skill)).instructions) for skill in await client.list_skills()}

    assert using(era, load).keys() == {"refunds", "pdf-processing"}


@each_era
def test_a_template_is_read_with_its_variable(era: Any):
    read = using(era, lambda client: client.read_resource("test://template/123/data"))
    assert read.text == '{"id":"123","templateTest":true,"data":"Data for ID: 123"}'


@each_era
@pytest.mark.parametrize(
    ("name", "arguments", "kinds"),
    [
        ("test_simple_prompt", {}, ["text"]),
        ("test_prompt_with_arguments", {"arg1": "a", "arg2": "b"}, ["text"]),
        ("test_prompt_with_embedded_resource", {"resourceUri": "test://x"}, ["resource", "text"]),
        ("test_prompt_with_image", {}, ["image", "text"]),
    ],
)
def test_a_prompt_gives_its_messages(era: Any, name: str, arguments: dict[str, str], kinds: list[str]):
    result = using(era, lambda client: client.request("prompts/get", {"name": name, "arguments": arguments}))
    assert [message["content"]["type"] for message in result["messages"]] == kinds


@each_era
def test_a_prompt_asks_first(era: Any):
    filled = using(era, lambda client: client.get_prompt("test_input_required_result_prompt"))
    assert filled.messages[0].content.text == "Use this context: testing"  # type: ignore[union-attr]


@each_era
def test_an_argument_is_completed(era: Any):
    completed = using(
        era, lambda client: client.complete("test_prompt_with_arguments", {"name": "arg1", "value": "test"})
    )
    assert completed.values == ["testing", "tested"]
