"""Servers written for other MCP libraries: what works as it is, and errors that name what to write instead."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from ferrule import AssistantMessage, Context, Message, Server, SetupError, UserMessage
from ferrule.server.foreign_names import CONTEXT, OPTIONS, SERVER, answering
from ferrule.settings.option import alike
from ferrule.testing import pair
from ferrule.types import Completion, CompletionArgument, CompletionContext, PromptReference, ResourceReference


def test_a_server_needs_no_name_and_takes_its_instructions_second() -> None:
    assert Server().name
    assert Server("demo", "Be kind.").instructions == "Be kind."


@pytest.mark.parametrize("name", SERVER)
def test_a_method_that_a_server_has_elsewhere_is_answered_with_ours(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(Server("demo"), name)
    assert str(caught.value) == f"Server has no attribute '{name}'; here it is {SERVER[name]}"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("retry_interval", r"write retry="),
        ("subscriptions", r"app\.notify_resource_updated"),
        ("page_sise", r"did you mean 'page_size'"),
        ("titel", r"did you mean 'title'"),
    ],
)
def test_an_option_is_answered_with_what_was_meant(written: str, told: str) -> None:
    with pytest.raises(SetupError, match=told) as caught:
        Server("demo", **{written: 1})
    assert "update_interval'?" not in str(caught.value)
    assert "description'?" not in str(caught.value)


@pytest.mark.parametrize("unlike", ["retry_pause", "retry_internal", "colours"])
def test_an_option_that_is_nothing_like_ours_gets_no_guess(unlike: str) -> None:
    with pytest.raises(SetupError) as caught:
        Server("demo", **{unlike: 1})
    assert "did you mean" not in str(caught.value)


def test_an_attribute_that_nobody_has_is_just_missing() -> None:
    assert not hasattr(Server("demo"), "colour")


@pytest.mark.parametrize("kind", [Server, Context])
def test_names_of_others_do_not_slow_the_lookup_of_our_own(kind: type) -> None:
    assert not any("__getattr__" in vars(owner) for owner in kind.__mro__)


@pytest.mark.parametrize(("kind", "names"), [(Server, SERVER), (Context, CONTEXT)])
def test_names_of_others_are_not_there(kind: type, names: dict[str, str]) -> None:
    assert [name for name in names if hasattr(kind, name)] == []


def test_a_name_that_is_ours_needs_no_answer() -> None:
    with pytest.raises(TypeError, match=r"Server\.tool is there"):
        answering({"tool": "app.tool"})(Server)


async def test_what_a_context_has_elsewhere_is_named_in_the_log(era: str, caplog: pytest.LogCaptureFixture) -> None:
    app = Server("demo")

    @app.tool
    async def count(ctx: Context) -> int:
        return len(ctx.request_context.lifespan_context)  # type: ignore[attr-defined]  # that is the point

    with caplog.at_level(logging.ERROR, "ferrule"):
        async with pair(app, era) as client:
            assert (await client.call_tool("count", raise_on_error=False)).is_error
    assert "here it is ctx.lifespan" in caplog.text


@pytest.mark.parametrize(
    "option", ["json_response", "stateless_http", "log_level", "host", "token_verifier", "dependencies"]
)
def test_an_option_of_another_librarys_server_is_refused_with_ours(option: str) -> None:
    options: dict[str, Any] = {option: True}
    with pytest.raises(SetupError) as caught:
        Server("demo", **options)
    assert f"instead of {option}=… write {OPTIONS[option]}" in str(caught.value)


@pytest.mark.parametrize("option", ["json_response", "stateless_http", "streamable_http_path", "transport_security"])
def test_an_option_of_another_librarys_http_is_refused_with_ours(option: str) -> None:
    with pytest.raises(SetupError, match=f"instead of {option}=… write "):
        Server("demo").asgi(**{option: True})
    with pytest.raises(SetupError, match=f"instead of {option}=… write "):
        asyncio.run(Server("demo").run_async("http", **{option: True}))


def test_an_option_of_another_librarys_tool_is_refused_with_ours() -> None:
    with pytest.raises(SetupError, match=r"instead of exclude_args=… write Depends"):
        Server("demo").tool(exclude_args=["user"])(lambda: None)


async def test_a_tool_without_structured_output_gives_text_only(era: str) -> None:
    app = Server("demo")

    @app.tool(structured_output=False)
    def report(city: str) -> dict[str, str]:
        return {"city": city}

    @app.tool(structured_output=False)
    async def count() -> int:
        return 7

    async with pair(app, era) as client:
        assert [tool.output_schema for tool in await client.list_tools()] == [None, None]
        result = await client.call_tool("report", {"city": "Rome"})
        assert (result.structured_content, result.text) == (None, '{"city":"Rome"}')
        result = await client.call_tool("count")
        assert (result.structured_content, result.text) == (None, "7")


async def test_a_prompt_is_made_of_messages_in_one_word_each(era: str) -> None:
    app = Server("demo")

    @app.prompt
    def debug(error: str) -> list[Message]:
        return [UserMessage("I see this error:"), UserMessage(error), AssistantMessage("What did you try?")]

    @app.prompt
    def both() -> Message:
        return Message("Let us see.", role="assistant")

    async with pair(app, era) as client:
        told = (await client.get_prompt("debug", {"error": "E1"})).messages
        assert [(message.role, message.content.text) for message in told] == [
            ("user", "I see this error:"),
            ("user", "E1"),
            ("assistant", "What did you try?"),
        ]
        [one] = (await client.get_prompt("both")).messages
        assert (one.role, one.content.text) == ("assistant", "Let us see.")


def test_a_message_tells_who_says_what() -> None:
    message = AssistantMessage("Yes")
    assert (message.role, message.content) == ("assistant", "Yes")


async def test_one_function_may_complete_everything(era: str) -> None:
    app = Server("demo")

    @app.prompt
    def review(language: str) -> str:
        return language

    @app.resource("repo://{owner}/{name}")
    def repo(owner: str, name: str) -> str:
        return name

    @app.completion()
    async def complete(
        ref: PromptReference | ResourceReference, argument: CompletionArgument, context: CompletionContext | None
    ) -> Completion | None:
        if isinstance(ref, PromptReference):
            return Completion(values=[word for word in ("go", "python") if word.startswith(argument.value)])
        owner = (context.arguments or {}).get("owner") if context else None
        return Completion(values=[f"{owner}-tools"]) if argument.name == "name" else None

    async with pair(app, era) as client:
        prompt, template = PromptReference(name="review"), ResourceReference(uri="repo://{owner}/{name}")
        assert (await client.complete(prompt, {"name": "language", "value": "py"})).values == ["python"]
        given = await client.complete(template, {"name": "name", "value": ""}, context={"owner": "ada"})
        assert given.values == ["ada-tools"]
        assert (await client.complete(template, {"name": "owner", "value": ""})).values == []


def test_a_completion_without_parentheses_says_what_is_missing() -> None:
    with pytest.raises(SetupError, match="needs parentheses"):
        Server("demo").completion(lambda value: [])  # type: ignore[arg-type]  # that is the point


async def test_a_question_names_the_type_of_its_answer_in_either_way(era: str) -> None:
    app = Server("demo")

    @app.tool
    async def greet(ctx: Context) -> str:
        answer = await ctx.elicit("Your name?", response_type=str)
        return f"Hello, {answer.data}"

    async with pair(app, era, elicitation=lambda question: {"value": "Ada"}) as client:
        assert (await client.call_tool("greet")).data == "Hello, Ada"


@pytest.mark.parametrize("word", ["prefix", "namespace"])
def test_a_server_is_mounted_under_either_word_for_its_prefix(word: str) -> None:
    host, guest = Server("host"), Server("guest")
    guest.add_tool("ping", lambda: "pong")
    host.mount(server=guest, **{word: "g"})
    assert host.get_tool("g_ping")


def test_a_name_no_one_could_have_meant_is_compared_with_nothing():
    """A peer may name a tool with a whole message: that costs it an answer, not us a second."""

    class Unread(list):
        def __iter__(self):
            raise AssertionError("compared")

    assert alike("x" * 10_000_000, Unread()) == ""
    assert alike("prit", ["print"]) == "print"


def test_what_others_call_the_schema_of_a_tool_is_named_and_not_its_neighbour():
    with pytest.raises(
        SetupError, match=r"the tool a: unknown option 'input_schema'; instead of input_schema=… write schema="
    ):
        Server("s").add_tool("a", lambda: "", input_schema={"type": "object"})


def test_no_tags_may_be_none_as_others_write_it():
    app = Server("s")
    app.add_tool("a", lambda: "", tags=None)
    app.add_prompt("a", lambda: "", tags=None)
    app.add_resource("x://a", lambda: "", tags=None)
    for catalogue in (app.offers.tools.catalogue, app.offers.prompts.catalogue, app.offers.resources.catalogue):
        assert [entry.tags for entry in catalogue.registered.values()] == [frozenset()]
