"""Completion: suggestions for an argument while it is typed."""

import enum
import threading
from typing import Any, Literal

import pytest

from ferrule import CapabilityNotSupported, Context, PeerError, Server
from ferrule.schema.completion import Completion
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.testing import pair

LANGUAGES = ["go", "java", "javascript", "python"]


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


def helper(**options: Any) -> Server:
    app = Server("helper", **options)

    @app.prompt
    def review(language: str, tone: Literal["warm", "cool", "cold"] = "warm", colour: Colour | None = None) -> str:
        return language

    @app.resource("code://{language}/{file}")
    def code(language: str, file: str) -> str:
        return file

    @app.completion("language")
    def languages(value: str) -> list[str]:
        return [language for language in LANGUAGES if language.startswith(value)]

    return app


class TestHandlers:
    """Who is asked, and with what."""

    @pytest.mark.parametrize("ref", ["review", "code://{language}/{file}"], ids=["prompt", "template"])
    async def test_prompts_and_templates_are_completed(self, era, ref):
        """COMP-01, COMP-02, COMP-2, TMPL-2, SPEC-10"""
        async with pair(helper(), era) as client:
            found = await client.complete(ref, {"name": "language", "value": "ja"})
        assert (found.values, found.total, found.has_more) == (["java", "javascript"], 2, False)

    @pytest.mark.parametrize(
        ("place", "wins"), [("review.language", True), ("review", True), ("language", False), ("other.language", False)]
    )
    async def test_the_most_exact_place_is_asked(self, era, place, wins):
        app = helper()
        app.completion(place)(lambda value: ["mine"] if place != "language" else ["replaced"])
        async with pair(app, era) as client:
            found = await client.complete("review", {"name": "language", "value": "py"})
        expected = ["mine"] if wins else ["replaced"] if place == "language" else ["python"]
        assert found.values == expected

    async def test_a_handler_gets_what_it_has_parameters_for(self, era):
        """COMP-2, SPEC-10"""
        app = helper()
        seen = []

        @app.completion("review.tone")
        async def tones(value: str, argument: str, arguments: dict[str, str], ref: Any, ctx: Context) -> list[str]:
            seen.append((value, argument, arguments, ref.name, ctx.server.name))
            return [f"{arguments.get('language', 'any')}-ish"]

        async with pair(app, era) as client:
            found = await client.complete("review", {"name": "tone", "value": "w"}, context={"language": "go"})
            await client.complete("review", {"name": "tone", "value": ""})
        assert found.values == ["go-ish"]
        assert seen == [("w", "tone", {"language": "go"}, "review", "helper"), ("", "tone", {}, "review", "helper")]

    async def test_a_plain_function_runs_in_a_thread(self, era):
        app = helper()
        app.completion("file")(lambda value: [threading.current_thread().name])
        async with pair(app, era) as client:
            found = await client.complete("code://{language}/{file}", {"name": "file", "value": ""})
        assert found.values[0].startswith("ferrule-worker")

    @pytest.mark.parametrize(
        ("argument", "value", "values"),
        [
            ("tone", "co", ["cool", "cold"]),
            ("tone", "", ["warm", "cool", "cold"]),
            ("colour", "g", ["green"]),
            ("x", "", []),
        ],
    )
    async def test_choices_of_a_type_complete_themselves(self, era, argument, value, values):
        async with pair(helper(), era) as client:
            assert (await client.complete("review", {"name": argument, "value": value})).values == values

    async def test_no_more_than_a_hundred_values_come_back(self, era):
        """COMP-3, SPEC-10"""
        app = helper()
        app.completion("review.language")(lambda value: [str(number) for number in range(250)])
        async with pair(app, era) as client:
            found = await client.complete("review", {"name": "language", "value": ""})
        assert found.values == [str(number) for number in range(100)]
        assert (found.total, found.has_more) == (250, True)

    async def test_a_handler_may_give_a_whole_completion(self, era):
        """COMP-3"""
        app = helper()
        whole = Completion(values=["a"] * 150, total=9000, has_more=True)
        app.completion("review.language")(lambda value: whole)
        async with pair(app, era) as client:
            found = await client.complete("review", {"name": "language", "value": ""})
        assert (len(found.values), found.total, found.has_more) == (100, 9000, True)

    @pytest.mark.parametrize("nothing", [None, [], ()])
    async def test_nothing_to_suggest_is_no_error(self, era, nothing):
        app = helper()
        app.completion("review.language")(lambda value: nothing)
        async with pair(app, era) as client:
            assert (await client.complete("review", {"name": "language", "value": ""})).values == []


class TestFailures:
    """What cannot be completed."""

    @pytest.mark.parametrize(
        "ref",
        [
            {"type": "ref/prompt", "name": "nix"},
            {"type": "ref/resource", "uri": "nix://{a}"},
            {"type": "ref/tool", "name": "x"},
            {"type": "ref/prompt"},
            {},
        ],
        ids=str,
    )
    async def test_a_bad_reference_is_refused(self, era, wire, ref):
        """COMP-4, COMP-5"""
        async with wire(helper(), era) as peer:
            params = {"ref": ref, "argument": {"name": "language", "value": ""}}
            assert (await peer.request("completion/complete", params))["error"]["code"] == -32602

    @pytest.mark.parametrize("argument", [{"name": "language"}, {"value": "x"}, {}, "language"], ids=str)
    async def test_a_bad_argument_is_refused(self, era, wire, argument):
        """COMP-4, COMP-5"""
        async with wire(helper(), era) as peer:
            params = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": argument}
            assert (await peer.request("completion/complete", params))["error"]["code"] == -32602

    async def test_a_failing_handler_is_masked(self, era):
        """COMP-4"""
        app = helper()
        app.completion("review.language")(lambda value: 1 / 0)
        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="Internal error") as caught:
                await client.complete("review", {"name": "language", "value": ""})
            assert (await client.complete("review", {"name": "tone", "value": ""})).values
        assert caught.value.code == -32603

    async def test_a_server_that_completes_nothing_says_so(self, era, wire):
        """COMP-1, COMP-4, CAPN-09"""
        app = Server("plain")
        app.add_prompt("plain", lambda word: word)
        async with pair(app, era) as client:
            with pytest.raises(CapabilityNotSupported):
                await client.complete("plain", {"name": "word", "value": ""})
        async with wire(app, era) as peer:
            params = {"ref": {"type": "ref/prompt", "name": "plain"}, "argument": {"name": "word", "value": ""}}
            error = (await peer.request("completion/complete", params))["error"]
        assert (error["code"], error["data"]) == (-32601, {"capability": "completions"})

    async def test_the_default_time_out_is_five_seconds(self, era):
        """COMP-01"""
        async with pair(helper(), era) as client:
            assert client.settings.request_timeout == 5.0


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"])
async def test_completions_are_declared_from_the_second_revision_on_and_work_in_all(wire, version):
    """COMP-1, CAP-1"""
    async with wire(helper(), version=version) as peer:
        opened = (await peer.response(1))["result"]
        params = {"ref": {"type": "ref/prompt", "name": "review"}, "argument": {"name": "language", "value": "p"}}
        found = (await peer.request("completion/complete", params))["result"]["completion"]
    assert ("completions" in opened["capabilities"]) is (version != "2024-11-05")
    assert found["values"] == ["python"]


def test_a_server_declares_completions_when_it_has_any():
    """COMP-1"""
    app = Server("plain")
    app.add_prompt("plain", lambda word: word)
    assert app.host.capabilities.completions is None
    app.completion("word")(lambda value: [])
    assert app.host.capabilities.completions == {}
    choosy = Server("choosy")
    choosy.prompt(helper().offers.prompts.catalogue.get("review").binding.signature.fn)
    assert choosy.host.capabilities.completions == {}
    assert Server("told", capabilities=ServerCapabilities()).host.capabilities.completions is None
