"""Asking the client, in both eras by one handler: its user, its model, its folders."""

import asyncio
import datetime
import enum
import logging
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import attrs
import msgspec
import pydantic
import pytest

from ferrule import CallFailed, CapabilityNotSupported, Context, Declined, PeerError, Server, ToolError
from ferrule.errors import InvalidParams, SetupError, UrlElicitationRequired
from ferrule.schema.content import ImageContent, TextContent, ToolResultContent, ToolUseContent
from ferrule.schema.sampling import CreateMessageResult, ModelHint, ModelPreferences, SamplingMessage, ToolChoice
from ferrule.schema.tools import Tool
from ferrule.server.calls import forms as asking
from ferrule.server.calls.forms import elicit_question, read_elicitation, sample_question
from ferrule.server.functions.schemas import schema_of
from ferrule.testing import pair


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Seat:
    """Where to sit."""

    row: Annotated[int, msgspec.Meta(ge=1, le=30)]
    letter: Literal["A", "B", "C"] = "A"
    note: str | None = None


class Order(msgspec.Struct):
    size: Size
    extras: list[Literal["milk", "sugar"]] = []
    gift: bool = False


class Trip(TypedDict, total=False):
    when: datetime.date
    price: float


@attrs.define
class Meal:
    dish: Literal["soup", "salad"]
    spicy: bool = False


class Guest(pydantic.BaseModel):
    name: str
    age: int = pydantic.Field(ge=0)


@dataclass
class Deep:
    seat: Seat


def asker(question, **options):
    """A server with one tool that asks one question and shows what it learned."""
    app = Server("asker", **options)

    @app.tool
    async def ask(ctx: Context) -> str:
        return repr(await question(ctx))

    return app


def form(schema):
    """What a client is asked to show."""
    return elicit_question("?", schema, "").params["requestedSchema"]


class TestForms:
    """Types become forms, and answers become values of those types."""

    @pytest.mark.parametrize(
        ("schema", "rules"),
        [
            (str, {"type": "string"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (bool, {"type": "boolean"}),
            (
                Annotated[str, msgspec.Meta(min_length=2, max_length=5)],
                {"type": "string", "minLength": 2, "maxLength": 5},
            ),
            (Annotated[float, msgspec.Meta(ge=0, le=1)], {"type": "number", "minimum": 0, "maximum": 1}),
            (Annotated[str, msgspec.Meta(pattern="^a")], {"type": "string"}),
            (datetime.date, {"type": "string", "format": "date"}),
            (datetime.datetime, {"type": "string", "format": "date-time"}),
            (Literal["a", "b"], {"type": "string", "enum": ["a", "b"]}),
            (Literal[1, 2], {"type": "string", "enum": ["1", "2"]}),
            (Size, {"type": "string", "enum": ["small", "large"]}),
            (list[Literal["a", "b"]], {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
            (list[Size], {"type": "array", "items": {"type": "string", "enum": ["small", "large"]}}),
            (list[Level], {"type": "array", "items": {"type": "string", "enum": ["1", "2"]}}),
        ],
        ids=str,
    )
    def test_one_value_is_a_form_with_one_field(self, schema, rules):
        """ELIC-4, ELIC-5"""
        assert form(schema) == {"type": "object", "properties": {"value": rules}, "required": ["value"]}

    def test_a_class_is_a_flat_form(self):
        """ELIC-4, ELIC-5, ELIC-3"""
        assert form(Seat) == {
            "type": "object",
            "properties": {
                "row": {"type": "integer", "minimum": 1, "maximum": 30},
                "letter": {"type": "string", "enum": ["A", "B", "C"], "default": "A"},
                "note": {"type": "string"},
            },
            "required": ["row"],
        }
        assert form(Order) == {
            "type": "object",
            "properties": {
                "size": {"type": "string", "enum": ["small", "large"]},
                "extras": {"type": "array", "items": {"type": "string", "enum": ["milk", "sugar"]}, "default": []},
                "gift": {"type": "boolean", "default": False},
            },
            "required": ["size"],
        }
        assert form(Trip)["properties"].keys() == {"when", "price"}

    def test_a_json_schema_is_taken_as_it_is_without_what_forms_do_not_have(self):
        """ELIC-4, ELIC-5"""
        titled = {"type": "string", "oneOf": [{"const": "a", "title": "Ah"}, {"const": "b", "title": "Beh"}]}
        several = {"type": "array", "items": {"anyOf": [{"const": "x", "title": "Ex"}]}, "minItems": 1, "maxItems": 2}
        old = {"type": "string", "enum": ["a"], "enumNames": ["Ah"]}
        mail = {"type": "string", "format": "email", "title": "Mail", "description": "yours", "default": "a@b.c"}
        schema = {
            "type": "object",
            "properties": {"titled": titled, "several": several, "old": old, "mail": {**mail, "pattern": "x"}},
            "required": ["mail"],
            "additionalProperties": False,
        }
        assert form(schema) == {
            "type": "object",
            "properties": {"titled": titled, "several": several, "old": old, "mail": mail},
            "required": ["mail"],
        }

    def test_nothing_to_fill_in_is_a_mere_yes(self):
        assert form(None) == {"type": "object", "properties": {}}

    @pytest.mark.parametrize(
        ("schema", "field"),
        [
            (Deep, "seat"),
            (dict[str, list[int]], None),
            (list[str], "value"),
            ({"type": "object", "properties": {"a": {"type": "object"}}}, "a"),
            ({"type": "object", "properties": {"a": {"type": "integer", "enum": [1, 2]}}}, "a"),
            ({"type": "array"}, None),
        ],
        ids=str,
    )
    def test_a_form_nobody_can_show_is_refused_and_the_field_named(self, schema, field):
        """ELIC-4"""
        if schema == dict[str, list[int]]:
            assert form(schema) == {"type": "object", "properties": {}}
            return
        with pytest.raises(SetupError, match=f"field '{field}'" if field else "one member per field"):
            form(schema)

    @pytest.mark.parametrize(
        ("schema", "content", "value"),
        [
            (str, {"value": "x"}, "x"),
            (int, {"value": 3}, 3),
            (float, {"value": 0.5}, 0.5),
            (float, {"value": 1}, 1.0),
            (bool, {"value": True}, True),
            (datetime.date, {"value": "2026-07-28"}, datetime.date(2026, 7, 28)),
            (Literal[1, 2], {"value": "2"}, 2),
            (Level, {"value": "2"}, Level.HIGH),
            (Size, {"value": "large"}, Size.LARGE),
            (list[Size], {"value": ["small"]}, [Size.SMALL]),
            (Seat, {"row": 3}, Seat(3)),
            (Seat, {"row": 3, "letter": "B", "note": "window"}, Seat(3, "B", "window")),
            (Order, {"size": "small", "extras": ["milk"], "gift": True}, Order(Size.SMALL, ["milk"], True)),
            (Trip, {"price": 9.5}, {"price": 9.5}),
            (Meal, {"dish": "soup"}, Meal("soup")),
            (Guest, {"name": "Ada", "age": 36}, Guest(name="Ada", age=36)),
            ({"type": "object", "properties": {"a": {"type": "integer"}}}, {"a": 5}, {"a": 5}),
        ],
        ids=str,
    )
    async def test_an_accepted_answer_is_a_value_of_the_type(self, era, schema, content, value):
        """ELIC-7, SPEC-12"""
        learned = []

        async def question(ctx):
            learned.append(await ctx.ask("Please", schema))

        async with pair(asker(question), era, elicitation=lambda params: content) as client:
            await client.call_tool("ask")
        assert learned[-1] == value
        assert type(learned[-1]) is type(value)

    @pytest.mark.parametrize(
        ("schema", "content"),
        [
            (int, {"value": "many"}),
            (Seat, {"row": 31}),
            (Seat, {}),
            (Size, {"value": "huge"}),
            (Meal, {"dish": "stone"}),
            (Guest, {"name": "Ada", "age": -1}),
            ({"type": "object", "properties": {"a": {"type": "integer", "minimum": 5}}}, {"a": 4}),
        ],
        ids=str,
    )
    def test_an_answer_is_held_to_its_form_again(self, schema, content):
        """ELIC-6"""
        raw = msgspec.Raw(msgspec.json.encode({"action": "accept", "content": content}))
        with pytest.raises(InvalidParams, match="does not fit its form"):
            read_elicitation(raw, schema)

    async def test_defaults_are_filled_in_for_what_the_user_leaves_out(self, era):
        """ELIC-6"""
        async with pair(
            asker(lambda ctx: ctx.ask("Seat?", Seat)), era, elicitation=lambda params: {"row": 2}
        ) as client:
            assert (await client.call_tool("ask")).data == repr(Seat(2, "A", None))

    async def test_the_client_sees_the_message_and_the_form(self, era):
        """ELIC-3, SPEC-12"""
        seen = []

        async def answer(params):
            seen.append((params.message, params.mode, params.requested_schema))
            return {"value": "x"}

        async with pair(asker(lambda ctx: ctx.ask("Your name?", str)), era, elicitation=answer) as client:
            await client.call_tool("ask")
        assert seen == [("Your name?", "form", form(str))]


class TestRefusals:
    """A person may say no, or nothing."""

    @pytest.mark.parametrize("action", ["decline", "cancel"])
    async def test_elicit_tells_what_the_user_did(self, era, action):
        """ELIC-7, ELIC-14"""
        app = asker(lambda ctx: ctx.elicit("Sure?", bool))
        async with pair(app, era, elicitation=lambda params: action) as client:
            assert (await client.call_tool("ask")).data == f"Elicitation(action='{action}', data=None)"

    @pytest.mark.parametrize("action", ["decline", "cancel"])
    async def test_ask_raises_and_the_model_is_told(self, era, action):
        """ELIC-14"""
        app = asker(lambda ctx: ctx.ask("Sure?", bool))
        async with pair(app, era, elicitation=lambda params: action) as client:
            with pytest.raises(ToolError, match=f"answered with '{action}'"):
                await client.call_tool("ask")

    async def test_a_handler_may_cope_with_a_refusal(self, era):
        """ELIC-14"""
        app = Server("coping")

        @app.tool
        async def ask(ctx: Context) -> str:
            try:
                return await ctx.ask("Name?", str)
            except Declined as refusal:
                return f"nobody ({refusal.action})"

        async with pair(app, era, elicitation=lambda params: "decline") as client:
            assert (await client.call_tool("ask")).data == "nobody (decline)"

    async def test_elicit_gives_action_and_data(self, era):
        app = asker(lambda ctx: ctx.elicit("Sure?", bool))
        async with pair(app, era, elicitation=lambda params: {"value": True}) as client:
            assert (await client.call_tool("ask")).data == "Elicitation(action='accept', data=True)"

    async def test_a_mere_yes_has_no_data(self, era):
        app = asker(lambda ctx: ctx.elicit("Sure?"))
        async with pair(app, era, elicitation=lambda params: True) as client:
            assert (await client.call_tool("ask")).data == "Elicitation(action='accept', data=None)"

    async def test_a_client_that_leaves_instead_of_answering_ends_the_handler(self):
        """ELIC-14"""
        app = Server("silence")
        asked, ended = asyncio.Event(), asyncio.Event()

        @app.tool
        async def ask(ctx: Context) -> str:
            try:
                return await ctx.ask("Anyone?", str)
            finally:
                ended.set()

        async def never(params):
            asked.set()
            await asyncio.Event().wait()

        async with pair(app, elicitation=never) as client:
            call = asyncio.ensure_future(client.call_tool("ask"))
            await asked.wait()
            await client.close(drain=0)
            await ended.wait()
            with pytest.raises(CallFailed):
                await call


class TestSeveral:
    """Several questions: keyed, equal, changed, all at once."""

    async def test_questions_are_asked_one_after_another(self, era):
        app = Server("booking")

        @app.tool
        async def book(ctx: Context) -> str:
            city = await ctx.ask("Which city?", str)
            seat = await ctx.ask(f"Which seat to {city}?", Seat)
            sure = await ctx.ask(f"Row {seat.row} to {city}?", bool)
            return f"{city} {seat.row} {sure}"

        asked = []

        async def answer(params):
            asked.append(params.message)
            return {"row": 7} if "seat" in params.message else {"value": "Oslo" if "city" in params.message else True}

        async with pair(app, era, elicitation=answer) as client:
            assert (await client.call_tool("book")).data == "Oslo 7 True"
        assert asked == ["Which city?", "Which seat to Oslo?", "Row 7 to Oslo?"]

    async def test_equal_questions_are_told_apart_by_counting(self, era):
        async def several(ctx):
            return [await ctx.ask("Next?", int) for _ in range(3)]

        app = asker(several)
        numbers = iter([10, 20, 30])
        async with pair(app, era, elicitation=lambda params: {"value": next(numbers)}) as client:
            assert (await client.call_tool("ask")).data == "[10, 20, 30]"

    async def test_ask_all_asks_at_once_and_gives_values_by_key(self, era, wire):
        app = asker(lambda ctx: ctx.ask_all({"name": ("Name?", str), "seat": ("Seat?", Seat)}))
        answers = {"Name?": {"value": "Ada"}, "Seat?": {"row": 1}}
        async with pair(app, era, elicitation=lambda params: answers[params.message]) as client:
            assert (await client.call_tool("ask")).data == repr({"name": "Ada", "seat": Seat(1)})
        async with wire(app, era, capabilities={"elicitation": {}}) as peer:
            identity = peer.ask("tools/call", {"name": "ask"})
            if era == "handshake":
                await peer.hear("elicitation/create", after=1)
                assert [m["params"]["message"] for m in peer.told("elicitation/create")] == ["Name?", "Seat?"]
            else:
                requests = (await peer.response(identity))["result"]["inputRequests"]
                assert {key: asked["params"]["message"] for key, asked in requests.items()} == {
                    "name": "Name?",
                    "seat": "Seat?",
                }

    async def test_ask_all_raises_when_one_is_declined(self, era):
        app = asker(lambda ctx: ctx.ask_all({"a": ("A?", str), "b": ("B?", str)}))
        reply = {"A?": {"value": "x"}, "B?": "decline"}
        async with pair(app, era, elicitation=lambda params: reply[params.message]) as client:
            with pytest.raises(ToolError, match="answered with 'decline'"):
                await client.call_tool("ask")

    async def test_a_question_in_a_task_group_is_asked_all_the_same(self, era):
        app = Server("group")

        @app.tool
        async def ask(ctx: Context) -> str:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(ctx.ask(f"{letter}?", str)) for letter in "ab"]
            return "".join(task.result() for task in tasks)

        async with pair(app, era, elicitation=lambda params: {"value": params.message[0]}) as client:
            assert (await client.call_tool("ask")).data == "ab"

    async def test_a_handler_that_catches_everything_does_not_swallow_the_question(self, era):
        app = Server("careless")

        @app.tool
        async def ask(ctx: Context) -> str:
            try:
                return await ctx.ask("Name?", str)
            except Exception:
                return "swallowed"

        async with pair(app, era, elicitation=lambda params: {"value": "Ada"}) as client:
            assert (await client.call_tool("ask")).data == "Ada"

    async def test_a_question_that_changes_under_its_key_is_refused(self, wire):
        app = Server("changing")
        versions = iter(["first", "second", "third"])

        @app.tool
        async def ask(ctx: Context) -> str:
            await ctx.ask(f"The {next(versions)} question?", str, key="same")
            return await ctx.ask("Another?", str)

        async with wire(app, "stateless", capabilities={"elicitation": {}}) as peer:
            first = (await peer.call("ask"))["result"]
            answers = {"same": {"action": "accept", "content": {"value": "x"}}}
            params = {"name": "ask", "arguments": {}}
            retry = {**params, "inputResponses": answers, "requestState": first["requestState"]}
            second = (await peer.request("tools/call", retry))["result"]
            again = await peer.request("tools/call", {**params, "requestState": second["requestState"]})
        assert again["error"]["code"] == -32602
        assert "'same' has changed" in again["error"]["message"]

    async def test_questions_declared_by_other_handlers_work_too(self, era):
        """MRTR-1"""
        app = Server("everywhere")

        @app.resource("secret://{id}")
        async def secret(id: str, ctx: Context) -> str:  # noqa: A002
            return f"{id} {await ctx.ask('Password?', str)}"

        @app.prompt
        async def greet(ctx: Context) -> str:
            return f"Hello {await ctx.ask('Name?', str)}"

        async with pair(app, era, elicitation=lambda params: {"value": "xyzzy"}) as client:
            assert (await client.read_resource("secret://1")).text == "1 xyzzy"
            assert (await client.get_prompt("greet")).messages[0].content.text == "Hello xyzzy"


class TestRounds:
    """How the stateless era asks: in results, with sealed state."""

    @staticmethod
    def app():
        return asker(lambda ctx: ctx.ask("Name?", str, key="name"))

    async def test_the_result_holds_the_question_and_the_state(self, wire):
        """MRTR-1, MRTR-2, MRTR-8, MRTR-11, spec:TOOL-21, RPC-14"""
        async with wire(self.app(), "stateless", capabilities={"elicitation": {}}) as peer:
            result = (await peer.call("ask"))["result"]
        assert result["resultType"] == "input_required"
        assert result["inputRequests"] == {
            "name": {
                "method": "elicitation/create",
                "params": {"message": "Name?", "mode": "form", "requestedSchema": form(str)},
            }
        }
        assert isinstance(result["requestState"], str)
        assert not {"ttlMs", "cacheScope", "content"} & result.keys()
        assert len(peer.heard) == 1

    async def test_a_retry_on_another_link_goes_on(self, wire):
        """MRTR-8, STL-8, STL-10"""
        app = self.app()
        async with wire(app, "stateless", capabilities={"elicitation": {}}) as peer:
            state = (await peer.call("ask"))["result"]["requestState"]
        answer = {"name": {"action": "accept", "content": {"value": "Ada"}}}
        async with wire(app, "stateless", capabilities={"elicitation": {}}) as peer:
            params = {"name": "ask", "arguments": {}, "inputResponses": answer, "requestState": state}
            assert (await peer.request("tools/call", params))["result"]["content"][0]["text"] == "'Ada'"

    @pytest.mark.parametrize(
        ("answers", "outcome"),
        [
            ({}, "input_required"),
            ({"other": {"action": "accept"}}, "input_required"),
            ({"name": {"action": "accept", "content": {"value": "x"}}, "stray": 5}, "complete"),
            ({"name": {"action": "maybe"}}, -32602),
            ({"name": 5}, -32602),
            ([], -32602),
            ("text", -32602),
        ],
        ids=str,
    )
    async def test_answers_are_read_with_care(self, wire, answers, outcome):
        """MRTR-9"""
        async with wire(self.app(), "stateless", capabilities={"elicitation": {}}) as peer:
            state = (await peer.call("ask"))["result"]["requestState"]
            params = {"name": "ask", "arguments": {}, "inputResponses": answers, "requestState": state}
            reply = await peer.request("tools/call", params)
        assert (reply["error"]["code"] if "error" in reply else reply["result"]["resultType"]) == outcome

    @pytest.mark.parametrize("change", ["tampered", "other arguments", "other principal"])
    async def test_state_that_is_not_for_this_request_is_refused(self, wire, change):
        """MRTR-6, MRTR-7, ELIC-13"""
        app = Server("sealed")

        @app.tool
        async def ask(ctx: Context, n: int = 0) -> str:
            return await ctx.ask("Name?", str, key="name")

        able = {"capabilities": {"elicitation": {}}}
        async with wire(app, "stateless", **able) as peer:
            state = (await peer.call("ask"))["result"]["requestState"]
        if change == "tampered":
            state = state[:-2] + ("AA" if state[-2:] != "AA" else "BB")
        who = "mallory" if change == "other principal" else None
        arguments = {"n": 1} if change == "other arguments" else {}
        async with wire(app, "stateless", principal=who, **able) as peer:
            reply = await peer.request("tools/call", {"name": "ask", "arguments": arguments, "requestState": state})
        assert reply["error"]["code"] == -32602

    async def test_methods_that_may_not_ask_refuse_to(self, era):
        """MRTR-1"""
        app = Server("completing")
        app.add_prompt("p", lambda word: word)

        @app.completion("word")
        async def words(value: str, ctx: Context) -> list[str]:
            return [await ctx.ask("Which?", str)]

        async with pair(app, era, elicitation=lambda params: {"value": "x"}) as client:
            if era == "handshake":
                assert (await client.complete("p", {"name": "word", "value": ""})).values == ["x"]
            else:
                with pytest.raises(PeerError, match="cannot ask"):
                    await client.complete("p", {"name": "word", "value": ""})

    async def test_a_step_that_cannot_be_remembered_is_named_in_the_log(self, era, caplog):
        async def work(ctx):
            await ctx.step("charge", object)
            return "done"

        async with pair(asker(work), era) as client:
            with pytest.raises(ToolError, match="Internal error"):
                await client.call_tool("ask")
        assert "ctx.step('charge') must give what JSON can say" in caplog.text

    async def test_a_list_of_texts_is_a_choice_among_them(self, era):
        async def work(ctx):
            return await ctx.ask("Which?", ["low", "high"])

        def user(question):
            assert question.requested_schema["properties"]["value"] == {"type": "string", "enum": ["low", "high"]}
            return {"value": "high"}

        async with pair(asker(work), era, elicitation=user) as client:
            assert (await client.call_tool("ask")).data == "'high'"

    async def test_answers_too_large_to_carry_name_the_largest(self):
        async def huge(ctx):
            await ctx.step("huge", lambda: "x" * 100_000)
            return await ctx.ask("Go on?", bool)

        async with pair(asker(huge), "stateless", elicitation=lambda params: {"value": True}) as client:
            with pytest.raises(PeerError, match="the largest entry is step huge"):
                await client.call_tool("ask")


class TestUrls:
    """Sending the user somewhere."""

    @staticmethod
    def app():
        return asker(lambda ctx: ctx.elicit("Please pay", url="https://pay.example/7"))

    @pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
    async def test_the_user_is_sent_to_a_url(self, era, action):
        """ELIC-8, ELIC-7, SPEC-12"""
        seen = []

        async def visit(params):
            seen.append((params.message, params.mode, params.url, params.elicitation_id is not None))
            return action

        async with pair(self.app(), era, url_elicitation=visit) as client:
            assert (await client.call_tool("ask")).data == f"Elicitation(action='{action}', data=None)"
        assert seen == [("Please pay", "url", "https://pay.example/7", era == "handshake")]

    async def test_a_client_that_shows_forms_only_is_not_sent_anywhere(self, era):
        """ELIC-1, ELIC-2, MRTR-3"""
        async with pair(self.app(), era, elicitation=lambda params: True) as client:
            with pytest.raises(PeerError, match="elicitation") as caught:
                await client.call_tool("ask")
        assert caught.value.code == (-32600 if era == "handshake" else -32021)

    async def test_a_client_that_visits_urls_only_is_shown_no_form(self, era):
        """ELIC-1, ELIC-2"""
        app = asker(lambda ctx: ctx.ask("Name?", str))
        async with pair(app, era, url_elicitation=lambda params: True) as client:
            with pytest.raises(PeerError, match="elicitation"):
                await client.call_tool("ask")

    async def test_the_server_may_choose_the_name_of_a_url_elicitation(self):
        """ELIC-8"""
        seen = []

        async def visit(params):
            seen.append(params.elicitation_id)
            return "accept"

        app = asker(lambda ctx: ctx.elicit("Please pay", url="https://pay.example/7", elicitation_id="bill-7"))
        async with pair(app, url_elicitation=visit) as client:
            await client.call_tool("ask")
        assert seen == ["bill-7"]

    async def test_each_url_elicitation_has_a_name_of_its_own(self):
        """ELIC-8: unique within the server, also for the same URL and words."""
        seen = []

        async def visit(params):
            seen.append(params.elicitation_id)
            return "accept"

        app = self.app()
        for _ in range(2):
            async with pair(app, url_elicitation=visit) as client:
                await client.call_tool("ask")
                await client.call_tool("ask")
        assert len(set(seen)) == 4
        assert all(len(identity) >= 32 for identity in seen)

    @pytest.mark.parametrize(
        "url",
        [
            *("javascript:alert(1)", "file:///etc/passwd", "nonsense", "//pay.example", "/pay", "https:pay.example"),
            *("https://user:secret@pay.example", "https://user@pay.example", "https://", "https:///path", "data:,x"),
            *(
                "https://pay.example/a b",
                "https://pay.example/\n",
                "https://pay.example:x",
                "https://pay.example:99999",
            ),
            *("https://[::1", "https://pay.example/\u202e", "https://pay.example\\@evil.example", "ftp://pay.example"),
            "https://pay.example/" + "x" * 9000,
        ],
    )
    async def test_nobody_is_sent_to_what_is_no_web_address(self, era, url, caplog):
        """ELIC-8: the URL is valid, and holds no credentials."""
        seen = []

        async def visit(params):
            seen.append(params.url)
            return "accept"

        app = asker(lambda ctx: ctx.elicit("Please pay", url=url))
        with caplog.at_level(logging.CRITICAL, "ferrule"):
            async with pair(app, era, url_elicitation=visit) as client:
                with pytest.raises(ToolError):
                    await client.call_tool("ask")
            data = {"elicitations": [{**PAYMENT, "url": url}]}
            async with pair(Till(data=data).app, era, url_elicitation=visit) as client:
                with pytest.raises((ToolError, PeerError)) as caught:
                    await client.call_tool("pay")
        assert seen == []
        assert getattr(caught.value, "code", 0) != -32042

    @pytest.mark.parametrize("url", ["http://127.0.0.1:8000/pay", "https://pay.example?x=%20", "https://[::1]:8443/#a"])
    async def test_web_addresses_are_visited(self, era, url):
        async def visit(params):
            assert params.url == url
            return "accept"

        app = asker(lambda ctx: ctx.elicit("Please pay", url=url))
        async with pair(app, era, url_elicitation=visit) as client:
            assert "accept" in (await client.call_tool("ask")).data


PAYMENT = {"mode": "url", "message": "Pay", "url": "https://pay.example", "elicitationId": "1"}


class Till:
    """A server that wants its user to pay elsewhere before it goes on, and notices after so many tries."""

    def __init__(self, tries=1, data=None):
        self.runs = 0
        self.app = Server("paid")

        @self.app.tool
        async def pay() -> str:
            self.runs += 1
            if self.runs <= tries:
                raise UrlElicitationRequired("Pay first", data or {"elicitations": [PAYMENT]})
            return "paid"

        self.app.prompt(name="bill")(pay)
        self.app.resource("bill://7")(pay)


class TestRequiringAUrl:
    """Refusing to go on before the user has visited a URL."""

    @staticmethod
    def visitor(*actions):
        """Return a user who does these things in turn, and what they were asked."""
        seen, left = [], list(actions)

        async def visit(params):
            seen.append((params.message, params.mode, params.url, params.elicitation_id))
            return left.pop(0)

        return seen, visit

    async def test_in_the_handshake_era_it_is_an_error_that_names_the_urls(self):
        """ELIC-10"""
        seen, visit = self.visitor()
        async with pair(Till().app, url_elicitation=visit) as client:
            with pytest.raises(PeerError, match="Pay first") as caught:
                await client.call_tool("pay")
        assert (caught.value.code, caught.value.data) == (-32042, {"elicitations": [PAYMENT]})
        assert seen == []

    async def test_in_the_stateless_era_it_is_a_round_that_asks_for_the_visit(self):
        """ELIC-10"""
        seen, visit = self.visitor("accept")
        till = Till()
        async with pair(till.app, "stateless", url_elicitation=visit) as client:
            assert (await client.call_tool("pay")).data == "paid"
        assert seen == [("Pay", "url", "https://pay.example", None)]
        assert till.runs == 2

    async def test_prompts_and_resources_ask_for_the_visit_too(self):
        """ELIC-10"""
        seen, visit = self.visitor("accept", "accept")
        async with pair(Till().app, "stateless", url_elicitation=visit) as client:
            prompt = await client.get_prompt("bill")
            assert prompt.messages[0].content.text == "paid"
        async with pair(Till().app, "stateless", url_elicitation=visit) as client:
            assert (await client.read_resource("bill://7")).text == "paid"
        assert len(seen) == 2

    async def test_a_user_slower_than_the_client_is_asked_again(self):
        seen, visit = self.visitor("accept", "accept", "accept")
        async with pair(Till(tries=3).app, "stateless", url_elicitation=visit) as client:
            assert (await client.call_tool("pay")).data == "paid"
        assert len(seen) == 3

    @pytest.mark.parametrize("action", ["decline", "cancel"])
    async def test_a_user_who_will_not_go_there_is_not_asked_again(self, action):
        """ELIC-14"""
        seen, visit = self.visitor("accept", action)
        async with pair(Till(tries=9).app, "stateless", url_elicitation=visit) as client:
            with pytest.raises(ToolError, match=action):
                await client.call_tool("pay")
        assert len(seen) == 2

    async def test_a_client_that_cannot_send_its_user_anywhere_is_told_what_it_lacks(self):
        """ELIC-2"""
        async with pair(Till().app, "stateless", elicitation=lambda params: True) as client:
            with pytest.raises(PeerError) as caught:
                await client.call_tool("pay")
        assert caught.value.code == -32021

    @pytest.mark.parametrize("data", [["pay"], {"elicitations": [{"message": "Pay"}]}], ids=str)
    async def test_a_refusal_that_names_no_url_stays_a_refusal(self, data):
        async with pair(Till(data=data).app, "stateless", url_elicitation=lambda params: True) as client:
            with pytest.raises(PeerError, match="Pay first") as caught:
                await client.call_tool("pay")
        assert caught.value.code == -32600


class TestSampling:
    """Asking the client's model."""

    @pytest.mark.parametrize(
        ("messages", "expected"),
        [
            ("hi", [{"role": "user", "content": {"type": "text", "text": "hi"}}]),
            (["a", "b"], [{"role": "user", "content": {"type": "text", "text": t}} for t in "ab"]),
            ({"role": "assistant", "content": "x"}, [{"role": "assistant", "content": {"type": "text", "text": "x"}}]),
            (
                SamplingMessage(role="user", content=TextContent("t")),
                [{"role": "user", "content": {"type": "text", "text": "t"}}],
            ),
            (
                ImageContent("AA==", "image/png"),
                [{"role": "user", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}}],
            ),
        ],
        ids=str,
    )
    def test_every_form_of_messages_is_understood(self, messages, expected):
        """SAMP-2"""
        assert sample_question(messages, 10, "", {}).params == {"messages": expected, "maxTokens": 10}

    async def test_the_model_answers(self, era):
        """SAMP-02, SAMP-2, SAMP-3, SPEC-13"""
        seen = []

        async def model(params):
            seen.append(params)
            return CreateMessageResult(role="assistant", content=TextContent("42"), model="m-1", stop_reason="weird")

        async def question(ctx):
            return await ctx.sample(
                "What is it?",
                max_tokens=7,
                system_prompt="Be brief",
                temperature=0.5,
                stop_sequences=["\n"],
                metadata={"a": 1},
                include_context="none",
                model_preferences=ModelPreferences(hints=[ModelHint(name="m")], cost_priority=0.1),
            )

        async with pair(asker(question), era, sampling=model) as client:
            result = (await client.call_tool("ask")).data
        assert "text='42'" in result
        assert "stop_reason='weird'" in result
        [params] = seen
        assert (params.max_tokens, params.system_prompt, params.temperature) == (7, "Be brief", 0.5)
        assert (params.stop_sequences, params.metadata, params.include_context) == (["\n"], {"a": 1}, "none")
        assert params.model_preferences == ModelPreferences(hints=[ModelHint(name="m")], cost_priority=0.1)

    async def test_the_answer_gives_its_text(self, era):
        app = Server("texts")

        @app.tool
        async def ask(ctx: Context) -> str:
            return (await ctx.sample("hi")).text

        async with pair(app, era, sampling=lambda params: "hello") as client:
            assert (await client.call_tool("ask")).data == "hello"

    async def test_a_model_may_use_tools(self, era):
        """SAMP-4, SAMP-5, SAMP-6, SPEC-13"""
        tool = Tool(name="weather", input_schema={"type": "object"})
        app = Server("agent")

        @app.tool
        async def ask(ctx: Context) -> str:
            choice = {"tools": [tool], "tool_choice": ToolChoice(mode="auto")}
            first = await ctx.sample("Weather?", **choice)
            [use] = first.content if isinstance(first.content, list) else [first.content]
            answer = ToolResultContent(use.id, [TextContent("sunny")])
            messages = [
                "Weather?",
                SamplingMessage(role="assistant", content=[use]),
                SamplingMessage(role="user", content=[answer]),
            ]
            return (await ctx.sample(messages, **choice)).text

        async def model(params):
            assert [listed.name for listed in params.tools] == ["weather"]
            if len(params.messages) == 1:
                return CreateMessageResult(
                    role="assistant", content=[ToolUseContent("1", "weather", {})], model="m", stop_reason="toolUse"
                )
            return f"It is {params.messages[-1].content[0].content[0].text}"

        async with pair(app, era, sampling=model, sampling_tools=True) as client:
            assert (await client.call_tool("ask")).data == "It is sunny"

    @pytest.mark.parametrize("with_tools", [False, True])
    async def test_a_client_that_declared_no_such_thing_is_not_asked(self, era, with_tools):
        """SAMP-04, SAMP-5, MRTR-3, STL-6, CAPN-05, CAPN-07, CAP-4"""
        options = {"tools": [Tool(name="t", input_schema={"type": "object"})]} if with_tools else {}
        app = asker(lambda ctx: ctx.sample("hi", **options))
        able = {"sampling": lambda params: pytest.fail("was asked")} if with_tools else {}
        async with pair(app, era, **able) as client:
            with pytest.raises(PeerError, match="sampling") as caught:
                await client.call_tool("ask")
        if era == "handshake":
            assert caught.value.code == -32600
        else:
            required = {"sampling": {"tools": {}} if with_tools else {}}
            assert (caught.value.code, caught.value.data) == (-32021, {"requiredCapabilities": required})

    async def test_a_handler_may_do_without_the_model(self, era):
        """SAMP-04"""
        app = Server("coping")

        @app.tool
        async def ask(ctx: Context) -> str:
            try:
                return (await ctx.sample("hi")).text
            except CapabilityNotSupported as error:
                return f"no {error.capability}"

        async with pair(app, era) as client:
            assert (await client.call_tool("ask")).data == "no sampling"

    async def test_an_unusable_answer_is_told_to_the_model(self, era, wire):
        app = asker(lambda ctx: ctx.sample("hi", key="it"))
        async with wire(app, era, capabilities={"sampling": {}}) as peer:
            identity = peer.ask("tools/call", {"name": "ask", "arguments": {}})
            bad = {"role": "assistant"}
            if era == "handshake":
                peer.answer(await peer.hear("sampling/createMessage"), bad)
            else:
                state = (await peer.response(identity))["result"]["requestState"]
                params = {"name": "ask", "arguments": {}, "inputResponses": {"it": bad}, "requestState": state}
                identity = peer.ask("tools/call", params)
            result = (await peer.response(identity))["result"]
        assert result["isError"]
        assert "no usable answer" in result["content"][0]["text"]

    async def test_a_slow_model_holds_nobody_up(self, era):
        """SAMP-03"""
        release = asyncio.Event()

        async def slow(params):
            await release.wait()
            return "at last"

        async with pair(asker(lambda ctx: ctx.sample("hi")), era, sampling=slow) as client:
            asking = asyncio.ensure_future(client.call_tool("ask"))
            await asyncio.sleep(0.01)
            assert await client.ping() < 10
            assert len(await client.list_tools()) == 1
            release.set()
            assert "at last" in (await asking).data

    async def test_an_old_client_gets_one_block_a_message(self, wire):
        """SAMP-4"""
        block = TextContent("one")
        app = asker(lambda ctx: ctx.sample(SamplingMessage(role="user", content=[block])))
        async with wire(app, version="2025-06-18", capabilities={"sampling": {}}) as peer:
            identity = peer.ask("tools/call", {"name": "ask"})
            asked = await peer.hear("sampling/createMessage")
            assert asked["params"]["messages"][0]["content"] == {"type": "text", "text": "one"}
            peer.answer(asked, {"role": "assistant", "content": {"type": "text", "text": "ok"}, "model": "m"})
            assert "result" in await peer.response(identity)


class TestRoots:
    """Asking for the client's folders."""

    async def test_a_server_lists_the_roots(self, era, tmp_path):
        """ROOT-02, ROOT-2, SPEC-14"""

        async def roots(ctx):
            return [(root.uri, root.name) for root in await ctx.list_roots()]

        app = asker(roots)
        here = tmp_path.as_uri()
        async with pair(app, era, roots=[{"uri": here, "name": "A"}, tmp_path]) as client:
            assert (await client.call_tool("ask")).data == f"[('{here}', 'A'), ('{here}', None)]"

    async def test_without_the_capability_it_fails_before_the_wire(self, era, wire):
        """ROOT-04, ROOT-6, CAPN-05"""
        async with wire(asker(lambda ctx: ctx.list_roots()), era) as peer:
            error = (await peer.call("ask"))["error"]
            assert peer.told("roots/list") == []
        assert error["code"] == (-32600 if era == "handshake" else -32021)

    async def test_a_change_of_roots_reaches_the_servers_functions(self, tmp_path):
        """ROOT-03, NOTI-12, SPEC-14"""
        app = asker(lambda ctx: ctx.list_roots())
        changes, awaited = [], asyncio.Event()

        @app.on_roots_changed
        def failing() -> None:
            raise ValueError("harms nobody")

        @app.on_roots_changed
        def changed() -> None:
            changes.append(1)

        @app.on_roots_changed
        async def changed_async() -> None:
            awaited.set()

        async with pair(app, roots=["/"]) as client:
            await client.add_root(tmp_path, "B")
            await awaited.wait()
            assert changes == [1]
            assert tmp_path.as_uri() in (await client.call_tool("ask")).data

    async def test_roots_that_vanish_are_just_fewer(self, era):
        """ROOT-6"""
        folders = ["/", "file://far.example/b"]
        app = asker(lambda ctx: ctx.list_roots())
        async with pair(app, era, roots=lambda: folders) as client:
            assert (await client.call_tool("ask")).data.count("file://") == 2
            folders.clear()
            assert (await client.call_tool("ask")).data == "[]"

    async def test_unusable_roots_are_told_to_the_model(self, wire):
        async with wire(asker(lambda ctx: ctx.list_roots()), capabilities={"roots": {}}) as peer:
            identity = peer.ask("tools/call", {"name": "ask"})
            peer.answer(await peer.hear("roots/list"), {"roots": [{"name": "no uri"}]})
            result = (await peer.response(identity))["result"]
        assert result["isError"]
        assert "no usable roots" in result["content"][0]["text"]


class TestOlderRevisions:
    """What an older handshake revision can be asked."""

    @pytest.mark.parametrize("version", ["2025-03-26", "2024-11-05"])
    async def test_a_revision_without_elicitation_is_not_asked(self, wire, version):
        """ELIC-1, CAP-2"""
        app = asker(lambda ctx: ctx.ask("Name?", str))
        async with wire(app, version=version, capabilities={"elicitation": {}}) as peer:
            assert (await peer.call("ask"))["error"]["code"] == -32600
            assert peer.told("elicitation/create") == []

    async def test_forms_are_written_in_the_words_of_the_revision(self, wire):
        """ELIC-3, ELIC-4, ELIC-5"""
        titled = {"type": "string", "oneOf": [{"const": "a", "title": "Ah"}]}
        schema = {
            "type": "object",
            "properties": {
                "t": titled,
                "n": {"type": "integer", "default": 1},
                "b": {"type": "boolean", "default": True},
            },
        }
        app = asker(lambda ctx: ctx.elicit("?", schema))
        async with wire(app, version="2025-06-18", capabilities={"elicitation": {}}) as peer:
            peer.ask("tools/call", {"name": "ask"})
            params = (await peer.hear("elicitation/create"))["params"]
        assert params.keys() == {"message", "requestedSchema"}
        assert params["requestedSchema"]["properties"] == {
            "t": {"type": "string", "enum": ["a"], "enumNames": ["Ah"]},
            "n": {"type": "integer"},
            "b": {"type": "boolean", "default": True},
        }

    async def test_what_a_revision_cannot_show_is_not_sent(self, wire):
        """ELIC-5, ELIC-2"""
        app = asker(lambda ctx: ctx.ask("?", list[Literal["a", "b"]]))
        async with wire(app, version="2025-06-18", capabilities={"elicitation": {}}) as peer:
            assert (await peer.call("ask"))["error"]["code"] == -32600
            assert peer.told("elicitation/create") == []


async def test_one_handler_serves_both_eras_without_knowing(wire):
    """COMPAT-1, VER-10"""
    app = Server("both")
    runs: list[Any] = []

    @app.tool
    async def book(ctx: Context) -> str:
        runs.append(ctx.peer.version)
        return await ctx.ask("Which seat?", str)

    for era in ("handshake", "stateless"):
        async with pair(app, era, elicitation=lambda params: {"value": "7A"}) as client:
            assert (await client.call_tool("book")).data == "7A"
    assert runs == ["2025-11-25", "2026-07-28", "2026-07-28"]


class TestCompiledForms:
    """The form of a type is compiled once, however often it is asked for."""

    async def test_a_type_is_compiled_once(self, era, monkeypatch):
        compiled = []
        monkeypatch.setattr(asking, "schema_of", lambda type_: compiled.append(type_) or schema_of(type_))
        app = Server("asks")

        @dataclass
        class Trip:
            town: str
            nights: int = 2

        @app.tool
        async def book(ctx: Context) -> str:
            trip = await ctx.ask("Where to?", Trip)
            return f"{trip.town} {trip.nights}"

        async with pair(app, era, elicitation=lambda params: {"town": "Bern"}) as client:
            for _ in range(3):
                assert (await client.call_tool("book")).text == "Bern 2"
        assert compiled == [Trip]

    async def test_a_type_without_a_hash_is_asked_for_all_the_same(self, era):
        rule = Unhashable()
        with pytest.raises(TypeError):
            hash(Annotated[int, rule])
        app = Server("asks")

        @app.tool
        async def count(ctx: Context) -> int:
            return await ctx.ask("How many?", Annotated[int, rule])

        async with pair(app, era, elicitation=lambda params: {"value": 3}) as client:
            assert (await client.call_tool("count")).data == 3

    def test_equal_lists_of_choices_have_one_form_and_others_their_own(self):
        first = elicit_question("?", ["a", "b"], "").params["requestedSchema"]
        again = elicit_question("?", ["a", "b"], "").params["requestedSchema"]
        other = elicit_question("?", ["a", "c"], "").params["requestedSchema"]
        assert first is again
        assert other["properties"]["value"]["enum"] == ["a", "c"]

    def test_only_so_many_are_kept(self):
        for number in range(asking.MOST_FORMS + 10):
            elicit_question("?", [f"choice {number}"], "")
        assert asking._kept_form.cache_info().currsize == asking.MOST_FORMS


class Unhashable:
    __hash__ = None
