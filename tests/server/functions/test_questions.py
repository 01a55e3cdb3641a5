"""Questions declared as parameters: gathered in one round before the handler runs, the same in both eras."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import pytest

from ferrule import Ask, Context, Server, SetupError, ToolError
from ferrule.testing import pair


class Side(enum.Enum):
    WINDOW = "window"
    AISLE = "aisle"


@dataclass
class Seat:
    row: int
    side: Side = Side.WINDOW


FORM = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ANSWERS = {"Which seat on IC 5?": {"row": 7}, "Your name?": {"value": "Ada"}, "How many?": {"value": 2}}


def user(asked: list[str], **changed: Any) -> Any:
    """A person who answers by the text of the question."""

    def answer(params: Any) -> Any:
        asked.append(params.message)
        return changed.get(params.message, ANSWERS.get(params.message, {"action": "decline"}))

    return answer


def trains() -> Server:
    app = Server("trains")

    @app.tool
    async def reserve(
        train: str,
        seat: Annotated[Seat, Ask("Which seat on {train}?")],
        name: Annotated[str, Ask("Your name?")],
        count: int = 1,
    ) -> str:
        """Reserve a seat."""
        return f"{train}: {count} for {name} in row {seat.row}, {seat.side.value}"

    @app.tool
    def in_a_thread(ctx: Context, name: Annotated[str, Ask("Your name?")], *, train: str) -> str:
        return f"{name} on {train} {ctx.request_id is not None}"

    @app.tool
    async def optional(name: Annotated[str, Ask("Nickname?")] = "nobody") -> str:
        return name

    @app.tool
    async def none(name: Annotated[str, Ask("Nickname?")] = None) -> str:  # noqa: RUF013
        return repr(name)

    return app


async def test_they_are_asked_at_once_and_the_model_never_sees_them(era):
    asked: list[str] = []
    async with pair(trains(), era, elicitation=user(asked)) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert tools["reserve"].input_schema["properties"].keys() == {"train", "count"}
        assert tools["reserve"].input_schema["required"] == ["train"]
        assert tools["reserve"].description == "Reserve a seat."
        result = await client.call_tool("reserve", {"train": "IC 5", "count": 3})
        assert result.data == "IC 5: 3 for Ada in row 7, window"
    assert sorted(asked) == ["Which seat on IC 5?", "Your name?"]


async def test_it_takes_one_round(wire):
    async with wire(trains(), "stateless", capabilities={"elicitation": {}}) as peer:
        result = (await peer.call("reserve", {"train": "IC 5"}))["result"]
        assert result["inputRequests"].keys() == {"seat", "name"}
        answers = {
            "seat": {"action": "accept", "content": {"row": 7, "side": "aisle"}},
            "name": {"action": "accept", "content": {"value": "Ada"}},
        }
        params = {"name": "reserve", "arguments": {"train": "IC 5"}, "inputResponses": answers}
        final = await peer.request("tools/call", {**params, "requestState": result["requestState"]})
    assert final["result"]["content"][0]["text"] == "IC 5: 1 for Ada in row 7, aisle"


async def test_a_plain_function_waits_in_its_thread(era):
    async with pair(trains(), era, elicitation=user([])) as client:
        assert (await client.call_tool("in_a_thread", {"train": "IC 5"})).data == "Ada on IC 5 True"


async def test_who_will_not_say_gets_the_default_or_no_answer(era):
    async with pair(trains(), era, elicitation=user([], **{"Your name?": {"action": "decline"}})) as client:
        assert (await client.call_tool("optional")).data == "nobody"
        assert (await client.call_tool("none")).data == "None"
        with pytest.raises(ToolError, match="decline"):
            await client.call_tool("reserve", {"train": "IC 5"})


async def test_a_model_cannot_answer_for_the_user(era):
    async with pair(trains(), era, elicitation=user([])) as client:
        with pytest.raises(ToolError, match="name"):
            await client.call_tool("reserve", {"train": "IC 5", "name": "Mallory"})


async def test_prompts_resources_methods_and_partials_ask_too(era):
    app = Server("others")

    @app.prompt
    async def greet(style: str, name: Annotated[str, Ask("Your name?")]) -> str:
        return f"{style} {name}"

    @app.resource("tickets://{train}")
    def ticket(train: str, name: Annotated[str, Ask("Your name?")]) -> str:
        return f"{train} {name}"

    class Counter:
        async def count(self, step: int, times: Annotated[int, msgspec.Meta(ge=1), Ask("How many?")]) -> int:
            return step * times

        async def __call__(self, times: Annotated[int, Ask("How many?")]) -> int:
            return times

    app.add_tool(Counter().count)
    app.add_tool("preset", functools.partial(Counter().count, 5))
    app.add_tool("called", Counter())
    async with pair(app, era, elicitation=user([])) as client:
        [prompt] = await client.list_prompts()
        assert [argument.name for argument in prompt.arguments] == ["style"]
        assert (await client.get_prompt("greet", {"style": "kind"})).messages[0].content.text == "kind Ada"
        assert (await client.read_resource("tickets://ic5")).text == "ic5 Ada"
        assert (await client.call_tool("count", {"step": 4})).data == 8
        assert (await client.call_tool("preset")).data == 10
        assert (await client.call_tool("called")).data == 2


async def test_a_form_of_ones_own(era):
    app = Server("forms")

    @app.tool
    async def ask(value: Annotated[dict[str, Any], Ask("How many?", FORM)]) -> int:
        return value["a"]

    async with pair(app, era, elicitation=lambda params: {"a": 5}) as client:
        assert (await client.call_tool("ask")).data == 5


async def test_generators_and_functions_in_the_loop_ask_too(era):
    app, closed = Server("kinds"), []

    @app.tool
    async def streamed(count: int, name: Annotated[str, Ask("Your name?")]):
        try:
            for number in range(count):
                yield f"{name}{number} "
        finally:
            closed.append("streamed")

    @app.tool
    def in_a_thread(count: int, name: Annotated[str, Ask("Your name?")]):
        yield 1
        return [name] * count

    @app.tool(inline=True)
    def in_the_loop(count: int, name: Annotated[str, Ask("Your name?")]) -> str:
        return name * count

    @app.prompt(inline=True)
    def greet(name: Annotated[str, Ask("Your name?")]) -> str:
        return f"Hello {name}"

    @app.resource("names://one", inline=True)
    def one(name: Annotated[str, Ask("Your name?")]) -> str:
        return name

    async with pair(app, era, elicitation=user([])) as client:
        assert (await client.call_tool("streamed", {"count": 2})).text == "Ada0 Ada1 "
        assert (await client.call_tool("in_a_thread", {"count": 2})).text == '["Ada","Ada"]'
        assert (await client.call_tool("in_the_loop", {"count": 2})).data == "AdaAda"
        assert (await client.get_prompt("greet")).messages[0].content.text == "Hello Ada"
        assert (await client.read_resource("names://one")).text == "Ada"
    assert closed == ["streamed"]


def test_a_generator_in_the_loop_cannot_wait_for_an_answer():
    def give(name: Annotated[str, Ask("Your name?")]):
        yield name

    with pytest.raises(SetupError, match=r"give\(\): a generator that runs inline cannot ask"):
        Server("x").add_tool(give, inline=True)


async def nested(seat: Annotated[list[Seat], Ask("Which?")]) -> None: ...
async def stranger(seat: Annotated[Seat, Ask("On {train}?")]) -> None: ...
async def itself(seat: Annotated[Seat, Ask("{seat}?")]) -> None: ...
async def deep(train: str, seat: Annotated[Seat, Ask("{train.x}?")]) -> None: ...
async def broken(seat: Annotated[Seat, Ask("On {?")]) -> None: ...


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (nested, r"nested\(\): parameter 'seat': it cannot be asked for"),
        (stranger, r"names \{train\}"),
        (itself, r"names \{seat\}"),
        (deep, r"names \{train.x\}"),
        (broken, "cannot be read"),
    ],
)
def test_what_cannot_be_asked_is_told_when_it_is_written(fn, why):
    with pytest.raises(SetupError, match=why):
        Server("x").add_tool(fn)


def test_a_handler_without_questions_is_left_as_it_is():
    app = Server("x")

    async def plain(a: int) -> int:
        return a

    app.add_tool(plain)
    assert app.offers.tools.catalogue.get("plain").binding.signature.fn is plain
