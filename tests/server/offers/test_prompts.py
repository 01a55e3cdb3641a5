"""Prompts: their arguments, their messages, and how they fail."""

import logging
from typing import Annotated, Any, Literal

import msgspec
import pytest

from ferrule import Context, PeerError, Server, SetupError
from ferrule.errors import InvalidParams, UrlElicitationRequired
from ferrule.schema.content import AudioContent, EmbeddedResource, ImageContent, ResourceContents
from ferrule.schema.content import TextContent as Text
from ferrule.schema.lifecycle import ListCapability, ServerCapabilities
from ferrule.schema.model import Icon
from ferrule.schema.prompts import GetPromptResult, PromptArgument, PromptMessage
from ferrule.testing import pair

IMAGE = ImageContent("iVBORw0KGgo=", "image/png")
AUDIO = AudioContent("UklGRg==", "audio/wav")
EMBEDDED = EmbeddedResource(ResourceContents(uri="notes://1", mime_type="text/plain", text="one"))


def reviewer(**options: Any) -> Server:
    app = Server("reviewer", **options)

    @app.prompt
    def review(language: Annotated[str, "of the code"], style: str = "short") -> str:
        """Review some code."""
        return f"Review this {language} in {style} style"

    return app


def said(*pairs: tuple[str, Any]) -> list[PromptMessage]:
    return [PromptMessage(role=role, content=Text(what) if isinstance(what, str) else what) for role, what in pairs]


class TestMessages:
    """What handlers return becomes messages."""

    async def test_arguments_are_rendered_and_defaults_filled_in(self, era):
        """PRMT-03, PRMT-04, PRMT-07, PROMPT-3"""
        async with pair(reviewer(), era) as client:
            short = await client.get_prompt("review", {"language": "python"})
            long = await client.get_prompt("review", {"language": "go", "style": "long"})
        assert short.messages == said(("user", "Review this python in short style"))
        assert long.messages == said(("user", "Review this go in long style"))
        assert short.description == "Review some code."

    @pytest.mark.parametrize(
        ("value", "messages"),
        [
            ("text", said(("user", "text"))),
            (["one", "two"], said(("user", "one"), ("user", "two"))),
            ({"role": "assistant", "content": "hi"}, said(("assistant", "hi"))),
            (
                [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}],
                said(("user", "q"), ("assistant", "a")),
            ),
            ({"role": "user", "content": {"type": "text", "text": "block"}}, said(("user", "block"))),
            ({"role": "user", "content": ["a", IMAGE]}, said(("user", "a"), ("user", IMAGE))),
            (PromptMessage(role="assistant", content=Text("typed")), said(("assistant", "typed"))),
            (PromptMessage(role="user", content="bare text"), said(("user", "bare text"))),
            (Text("block"), said(("user", "block"))),
            ([IMAGE, AUDIO, EMBEDDED], said(("user", IMAGE), ("user", AUDIO), ("user", EMBEDDED))),
            ({"answer": 42}, said(("user", '{"answer":42}'))),
            ([], []),
        ],
        ids=str,
    )
    async def test_every_form_of_messages_is_understood(self, era, value, messages):
        """PRMT-06, PROMPT-3, PROMPT-4"""
        app = Server("forms")
        app.add_prompt("form", lambda: value)
        async with pair(app, era) as client:
            assert (await client.get_prompt("form")).messages == messages

    @pytest.mark.parametrize(
        "message",
        [{"role": "system", "content": "be nice"}, PromptMessage(role="system", content=Text("be nice"))],
        ids=["dict", "struct"],
    )
    async def test_a_system_message_becomes_the_users_with_a_warning(self, era, message, caplog):
        """PRMT-06, PROMPT-3"""
        app = Server("system")
        app.add_prompt("system", lambda: message)
        with caplog.at_level(logging.WARNING):
            async with pair(app, era) as client:
                result = await client.get_prompt("system")
        assert result.messages == said(("user", "be nice"))
        assert "the role 'system'" in caplog.text

    async def test_a_whole_result_goes_out_as_it_is(self, era):
        """PROMPT-3, META-1"""
        whole = GetPromptResult(description="own", messages=said(("assistant", "done")), meta={"com.example/k": 1})
        app = Server("whole")
        app.add_prompt("whole", lambda: whole, description="other")
        async with pair(app, era) as client:
            for _ in range(2):
                result = await client.get_prompt("whole")
                assert (result.description, result.messages) == ("own", whole.messages)
                assert result.meta["com.example/k"] == 1

    @pytest.mark.parametrize(("version", "kind"), [("2025-03-26", "audio"), ("2024-11-05", "resource")])
    async def test_an_old_revision_gets_content_it_knows(self, wire, version, kind):
        """PROMPT-4"""
        app = Server("media")
        app.add_prompt("media", lambda: AUDIO)
        async with wire(app, version=version) as peer:
            result = (await peer.request("prompts/get", {"name": "media"}))["result"]
        assert result["messages"][0]["content"]["type"] == kind

    async def test_a_prompt_may_be_async_and_use_its_context(self, era):
        """SRVR-07"""
        app = Server("context")

        @app.prompt
        async def who(ctx: Context, name: str = "you") -> str:
            return f"{name} at {ctx.server.name}"

        async with pair(app, era) as client:
            assert (await client.get_prompt("who")).messages == said(("user", "you at context"))


class TestArguments:
    """What is asked for is checked before the handler runs."""

    async def test_a_missing_required_argument_is_named(self, era):
        """PRMT-04, PRMT-05, PROMPT-5, PROMPT-7"""
        async with pair(reviewer(), era) as client:
            with pytest.raises(PeerError, match="argument 'language' of the prompt 'review'") as caught:
                await client.get_prompt("review", {"style": "long"})
        assert (caught.value.code, caught.value.data) == (-32602, {"missing": ["language"]})

    async def test_an_argument_nobody_asked_for_is_refused(self, era):
        """PROMPT-7"""
        async with pair(reviewer(), era) as client:
            with pytest.raises(PeerError, match="Invalid arguments for the prompt 'review'") as caught:
                await client.get_prompt("review", {"language": "c", "colour": "red"})
        assert caught.value.code == -32602

    async def test_text_is_read_into_the_handlers_types(self, era):
        app = Server("typed")
        app_seen = []

        @app.prompt
        def typed(count: int, tone: Literal["warm", "cold"] = "warm", tags: list[str] | None = None) -> str:
            app_seen.append((count, tone, tags))
            return "ok"

        async with pair(app, era) as client:
            await client.get_prompt("typed", {"count": "3", "tags": '["a"]'})
            for bad in ({"count": "many"}, {"count": "1", "tone": "hot"}):
                with pytest.raises(PeerError) as caught:
                    await client.get_prompt("typed", bad)
                assert caught.value.code == -32602
        assert app_seen == [(3, "warm", ["a"])]

    async def test_values_on_the_wire_are_text_only(self, era, wire):
        """PROMPT-3"""
        async with wire(reviewer(), era) as peer:
            error = (await peer.request("prompts/get", {"name": "review", "arguments": {"language": 5}}))["error"]
        assert error["code"] == -32602

    async def test_declared_arguments_are_taken_as_text(self, era):
        """PRMT-01, PRMT-02"""
        app = Server("declared")
        arguments = [
            PromptArgument(name="code", description="to review", required=True),
            PromptArgument(name="style", title="Style"),
        ]
        app.add_prompt("declared", lambda **given: f"{sorted(given.items())}", arguments=arguments)
        async with pair(app, era) as client:
            [prompt] = await client.list_prompts()
            filled = await client.get_prompt("declared", {"code": "x"})
            with pytest.raises(PeerError, match="Missing required argument 'code'"):
                await client.get_prompt("declared")
        assert prompt.arguments == arguments
        assert filled.messages == said(("user", "[('code', 'x')]"))

    async def test_a_private_schema_rejects_bad_arguments(self, era):
        """PRMT-09"""
        schema = {
            "type": "object",
            "properties": {"lang": {"type": "string", "pattern": "^[a-z]+$"}},
            "required": ["lang"],
        }
        app = Server("schema")
        app.add_prompt("strict", lambda lang: lang, schema=schema)
        async with pair(app, era) as client:
            assert (await client.get_prompt("strict", {"lang": "c"})).messages == said(("user", "c"))
            with pytest.raises(PeerError, match="/lang") as caught:
                await client.get_prompt("strict", {"lang": "C++"})
            [prompt] = await client.list_prompts()
        assert caught.value.code == -32602
        assert prompt.arguments == [PromptArgument(name="lang", required=True)]


class TestFailures:
    """A prompt that fails."""

    async def test_an_unknown_prompt_is_named_with_a_hint(self, era):
        """PRMT-08, PROMPT-5, ERRC-10"""
        async with pair(reviewer(), era) as client:
            with pytest.raises(PeerError, match="Unknown prompt: reviw; did you mean 'review'") as caught:
                await client.get_prompt("reviw")
        assert (caught.value.code, caught.value.data) == (-32602, {"prompt": "reviw"})
        assert caught.value.not_found

    async def test_the_erlmcp_profile_has_a_number_of_its_own(self, wire):
        """PRMT-08, ERRC-10"""
        async with wire(reviewer(error_profile="erlmcp")) as peer:
            assert (await peer.request("prompts/get", {"name": "x"}))["error"]["code"] == -32003

    async def test_a_failing_prompt_is_masked_and_the_next_works(self, era):
        """PRMT-10, PROMPT-5"""
        app = reviewer()
        app.add_prompt("broken", lambda: 1 / 0)
        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="Internal error") as caught:
                await client.get_prompt("broken")
            assert (await client.get_prompt("review", {"language": "c"})).messages
        assert caught.value.code == -32603
        assert "division" not in str(caught.value)

    @pytest.mark.parametrize(
        "value", [{"role": "user", "content": {"type": "video"}}, object()], ids=["type", "object"]
    )
    async def test_a_message_that_cannot_be_sent_fails_that_prompt_only(self, era, value):
        """PROMPT-7"""
        app = reviewer()
        app.add_prompt("bad", lambda: value)
        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="Internal error"):
                await client.get_prompt("bad")
            await client.get_prompt("review", {"language": "c"})

    async def test_a_server_without_prompts_has_no_such_methods(self, era, wire):
        """ERRC-11, CAPN-09"""
        async with wire(Server("empty"), era) as peer:
            for method in ("prompts/list", "prompts/get"):
                error = (await peer.request(method, {"name": "x"}))["error"]
                assert (error["code"], error["data"]) == (-32601, {"capability": "prompts"})

    async def test_a_declared_but_empty_server_lists_nothing(self, era, wire):
        """PROMPT-1"""
        app = Server("empty", capabilities=ServerCapabilities(prompts=ListCapability()))
        async with wire(app, era) as peer:
            assert (await peer.request("prompts/list"))["result"]["prompts"] == []
            assert (await peer.request("prompts/get", {"name": "x"}))["error"]["code"] == -32602


class TestListing:
    """What a client is told about prompts."""

    async def test_a_prompt_is_listed_with_its_arguments(self, era):
        """PRMT-01, PROMPT-2"""
        async with pair(reviewer(), era) as client:
            [prompt] = await client.list_prompts()
        assert (prompt.name, prompt.description) == ("review", "Review some code.")
        assert prompt.arguments == [
            PromptArgument(name="language", description="of the code", required=True),
            PromptArgument(name="style"),
        ]

    async def test_titles_icons_and_meta_survive(self, era):
        """PROMPT-2, SPEC-17, ICON-1, META-1"""
        app = Server("full")
        icon = Icon(src="x:y", sizes=["any"])
        app.add_prompt("p", lambda: "", title="P", description="d", icons=[icon], meta={"com.example/a": 1})
        async with pair(app, era) as client:
            [prompt] = await client.list_prompts()
        assert (prompt.title, prompt.description, prompt.icons, prompt.meta) == ("P", "d", [icon], {"com.example/a": 1})
        assert prompt.arguments is None

    @pytest.mark.parametrize(
        ("version", "absent"),
        [("2025-11-25", set()), ("2025-06-18", {"icons"}), ("2025-03-26", {"icons", "title", "_meta"})],
    )
    async def test_a_revision_sees_only_the_members_it_has(self, wire, version, absent):
        """PROMPT-2"""
        app = Server("full")
        arguments = [PromptArgument(name="a", title="A")]
        app.add_prompt("p", lambda a="": "", title="P", icons=[Icon(src="x:y")], meta={"a": 1}, arguments=arguments)
        async with wire(app, version=version) as peer:
            [listed] = (await peer.request("prompts/list"))["result"]["prompts"]
        assert listed.keys() == {"name", "title", "icons", "_meta", "arguments"} - absent
        assert ("title" in listed["arguments"][0]) is ("title" not in absent)

    async def test_prompts_can_be_added_and_removed_while_running(self, era):
        """PRMT-02, SRVR-02"""
        app = reviewer()
        async with pair(app, era) as client:
            app.add_prompt("late", lambda: "here")
            assert (await client.get_prompt("late")).messages == said(("user", "here"))
            app.remove_prompt("late")
            with pytest.raises(PeerError, match="Unknown prompt: late"):
                await client.get_prompt("late")
            assert [prompt.name for prompt in await client.list_prompts()] == ["review"]


def test_every_way_to_decorate_gives_the_function_back():
    app = Server("ways")

    @app.prompt
    def bare() -> str:
        return "1"

    @app.prompt()
    def called() -> str:
        return "2"

    @app.prompt("renamed")
    def named() -> str:
        return "3"

    assert [bare(), called(), named()] == ["1", "2", "3"]
    assert [prompt.name for prompt in app.list_prompts()] == ["bare", "called", "renamed"]
    with pytest.raises(SetupError, match="the prompt x: unknown option 'colour'"):
        app.add_prompt("x", lambda: "", colour="red")
    with pytest.raises(SetupError, match="there is a prompt 'bare' already"):
        app.add_prompt("bare", lambda: "")


def test_messages_are_plain_structs():
    assert msgspec.json.encode(said(("user", "x"))[0]) == b'{"role":"user","content":{"type":"text","text":"x"}}'


async def test_no_arguments_may_be_written_as_null_as_for_a_tool(era):
    app = Server("null")
    app.add_tool("tool", lambda: "called")
    app.add_prompt("prompt", lambda: "said")

    @app.prompt
    def choose(color: Literal["red", "blue"]) -> str:
        return color

    async with pair(app, era) as client:
        called = await client.request("tools/call", {"name": "tool", "arguments": None})
        assert called["content"][0]["text"] == "called"
        said = await client.request("prompts/get", {"name": "prompt", "arguments": None})
        assert said["messages"][0]["content"]["text"] == "said"
        asked = {"ref": {"type": "ref/prompt", "name": "choose"}, "argument": {"name": "color", "value": "r"}}
        completed = await client.request("completion/complete", {**asked, "context": None})
        assert completed["completion"]["values"] == ["red"]


async def test_a_prompt_that_needs_a_visit_first_names_the_url():
    app = Server("shop")
    visit = {"mode": "url", "message": "Pay", "url": "https://pay.example/1", "elicitationId": "1"}

    @app.prompt
    async def advice() -> str:
        raise UrlElicitationRequired("Pay first", {"elicitations": [visit]})

    async with pair(app, "handshake") as client:
        with pytest.raises(PeerError, match="Pay first") as caught:
            await client.get_prompt("advice")
        assert caught.value.data == {"elicitations": [visit]}


async def test_a_handler_fills_in_a_prompt_and_is_told_of_arguments_that_do_not_fit(era):
    app = Server("counter")

    @app.prompt
    def count(number: int) -> str:
        return f"Count to {number}"

    @app.tool
    async def fill(number: str, ctx: Context) -> str:
        try:
            filled = await ctx.get_prompt("count", {"number": number})
        except InvalidParams as error:
            return str(error)
        return filled.messages[0].content.text

    async with pair(app, era) as client:
        assert (await client.call_tool("fill", {"number": "3"})).data == "Count to 3"
        refused = (await client.call_tool("fill", {"number": "three"})).data
    assert refused.startswith("Invalid arguments for the prompt 'count'")
