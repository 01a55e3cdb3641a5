"""Tools: what a call gives, how it fails, and what a client is told about them."""

import asyncio
import gc
import logging
import threading
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pytest

from ferrule import Client, Context, PeerError, RateLimit, Server, SetupError, ToolError
from ferrule.errors import Forbidden, InvalidAnswer
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.content import AudioContent, EmbeddedResource, ImageContent, ResourceContents, ResourceLink
from ferrule.schema.content import TextContent as Text
from ferrule.schema.lifecycle import ListCapability, ServerCapabilities
from ferrule.schema.model import Annotations, Icon
from ferrule.schema.tools import CallToolResult, ToolAnnotations
from ferrule.server.offers.refusals import Refused
from ferrule.testing import pair

OLDER = [version for version in REVISIONS if version != "2025-11-25"]
BAD_ARGUMENTS = {"a": "x", "b": -1, "c": 3}
PIXEL = "iVBORw0KGgo="


@dataclass
class Point:
    x: int
    y: int = 0


class Weather(TypedDict):
    city: str
    degrees: float


class Shape(msgspec.Struct):
    name: str
    corners: int


def arithmetic(**options: Any) -> Server:
    app = Server("arithmetic", **options)

    @app.tool
    async def add(a: int, b: Annotated[int, msgspec.Meta(ge=0)] = 0) -> int:
        """Add two numbers."""
        return a + b

    @app.tool
    def subtract(a: int, b: int) -> int:
        """Subtract in a thread."""
        return a - b

    return app


class TestResults:
    """What handlers return becomes content, and structured content where the type has a schema."""

    @pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
    async def test_a_number_is_text_and_structured_content(self, era, is_async):
        """spec:TOOL-10, spec:TOOL-11, SPEC-16, SRVR-07"""
        async with pair(arithmetic(), era) as client:
            result = await client.call_tool("add" if is_async else "subtract", {"a": 5, "b": 3})
        expected = 8 if is_async else 2
        assert result.content == [Text(str(expected))]
        assert result.structured_content == {"result": expected}
        assert result.data == expected
        assert not result.is_error

    @pytest.mark.parametrize(
        ("returns", "value", "text", "structured"),
        [
            (str, "hello", "hello", {"result": "hello"}),
            (int, 3, "3", {"result": 3}),
            (float, 0.5, "0.5", {"result": 0.5}),
            (bool, True, "true", {"result": True}),
            (list[int], [1, 2], "[1,2]", {"result": [1, 2]}),
            (tuple[int, str], (1, "a"), '[1,"a"]', {"result": [1, "a"]}),
            (set[int], {7}, "[7]", {"result": [7]}),
            (dict[str, int], {"a": 1}, '{"a":1}', {"a": 1}),
            (int | None, None, "null", {"result": None}),
            (Point, Point(1, 2), '{"x":1,"y":2}', {"x": 1, "y": 2}),
            (Weather, {"city": "Ulm", "degrees": 3.5}, '{"city":"Ulm","degrees":3.5}', {"city": "Ulm", "degrees": 3.5}),
            (Shape, Shape("box", 4), '{"name":"box","corners":4}', {"name": "box", "corners": 4}),
            (list[Point], [Point(1)], '[{"x":1,"y":0}]', {"result": [{"x": 1, "y": 0}]}),
            (Literal["a", "b"], "b", "b", {"result": "b"}),
            (str, "", "", {"result": ""}),
            (bytes, b"\x00\x01", '"AAE="', {"result": "AAE="}),
        ],
        ids=str,
    )
    async def test_a_described_value_comes_structured_and_as_a_text_copy(self, era, returns, value, text, structured):
        """spec:TOOL-5, spec:TOOL-11, SPEC-16"""
        app = Server("values")

        async def give():
            return value

        give.__annotations__["return"] = returns
        app.add_tool(give)
        async with pair(app, era) as client:
            [tool] = await client.list_tools()
            result = await client.call_tool("give")
        assert tool.output_schema["type"] == "object"
        assert result.text == text
        assert result.structured_content == structured

    @pytest.mark.parametrize(
        ("value", "content"),
        [
            ("text", [Text("text")]),
            (None, []),
            ({"a": 1}, [Text('{"a":1}')]),
            ([1, "b"], [Text('[1,"b"]')]),
            (Text("block"), [Text("block")]),
            ([Text("one"), Text("two")], [Text("one"), Text("two")]),
            ([Text("one"), "two", {"three": 3}], [Text("one"), Text("two"), Text('{"three":3}')]),
            (CallToolResult(content=[Text("whole")]), [Text("whole")]),
            (b"raw", [Text('"cmF3"')]),
        ],
        ids=str,
    )
    async def test_a_value_without_annotation_is_content_only(self, era, value, content):
        """seed:TOOL-14, TOOL-02"""
        app = Server("values")

        async def give():
            return value

        app.add_tool("give", give)
        async with pair(app, era) as client:
            [tool] = await client.list_tools()
            result = await client.call_tool("give")
        assert tool.output_schema is None
        assert result.content == content
        assert result.structured_content is None

    async def test_every_kind_of_content_survives_the_way(self, era):
        """spec:TOOL-12, SPEC-18"""
        about = Annotations(audience=["user"], priority=0.5, last_modified="2026-01-01T00:00:00Z")
        blocks = [
            Text("text", annotations=about, meta={"com.example/a": 1}),
            ImageContent(PIXEL, "image/png"),
            AudioContent("UklGRg==", "audio/wav"),
            ResourceLink("notes://1", "one", title="One", description="A note", mime_type="text/plain", size=5),
            EmbeddedResource(ResourceContents(uri="notes://2", mime_type="text/plain", text="two")),
            EmbeddedResource(ResourceContents(uri="notes://3", mime_type="image/png", blob=PIXEL)),
        ]
        app = Server("media")

        @app.tool
        async def media():
            return blocks

        async with pair(app, era) as client:
            assert (await client.call_tool("media")).content == blocks

    async def test_a_resource_may_be_embedded_where_it_is_declared_and_a_link_may_lead_anywhere(self, era):
        """spec:TOOL-13"""
        app = Server("library")
        app.add_resource("notes://1", lambda: "one")

        @app.tool
        async def look(ctx: Context):
            [contents] = (await ctx.read_resource("notes://1")).contents
            return [EmbeddedResource(contents), ResourceLink("elsewhere://2", "two")]

        async with pair(app, era) as client:
            assert client.server_capabilities.resources is not None
            embedded, link = (await client.call_tool("look")).content
            assert embedded.resource.text == "one"
            assert link.uri not in [resource.uri for resource in await client.list_resources()]

    async def test_a_whole_result_goes_out_as_it_is(self, era):
        """spec:TOOL-10, META-1"""
        app = Server("whole")

        @app.tool
        async def whole() -> CallToolResult:
            return CallToolResult(content=[Text("hi")], structured_content={"n": 1}, meta={"com.example/k": "v"})

        async with pair(app, era) as client:
            for _ in range(2):
                result = await client.call_tool("whole")
                assert (result.text, result.structured_content) == ("hi", {"n": 1})
                assert result.meta["com.example/k"] == "v"

    @pytest.mark.parametrize("version", ["2025-03-26", "2024-11-05"])
    async def test_an_old_revision_gets_content_it_knows(self, wire, version):
        """spec:TOOL-12, spec:TOOL-10"""
        app = Server("media")

        @app.tool
        async def media() -> CallToolResult:
            blocks = [AudioContent("UklGRg==", "audio/wav"), ResourceLink("notes://1", "one"), Text("t", meta={"a": 1})]
            return CallToolResult(content=blocks, structured_content={"a": 1})

        async with wire(app, version=version) as peer:
            result = (await peer.call("media"))["result"]
        audio = "audio" if version == "2025-03-26" else "resource"
        assert [block["type"] for block in result["content"]] == [audio, "text", "text"]
        assert "structuredContent" not in result
        assert "_meta" not in result["content"][2]

    async def test_a_value_that_breaks_its_own_type_is_an_error_that_names_the_tool(self, era):
        """spec:TOOL-11, SPEC-16"""
        app = Server("liar")

        @app.tool
        async def liar() -> int:
            return "many"

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="The tool liar failed"):
                await client.call_tool("liar")

    async def test_a_whole_result_is_held_to_the_output_schema_too(self, era):
        """spec:TOOL-11"""
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        app = Server("whole")

        @app.tool(output_schema=schema)
        async def whole(n: Any, fails: bool = False) -> CallToolResult:
            return CallToolResult(content=[Text("hi")], structured_content={"n": n}, is_error=fails or None)

        async with pair(app, era) as client:
            assert (await client.call_tool("whole", {"n": 1})).structured_content == {"n": 1}
            with pytest.raises(ToolError, match="The tool whole failed"):
                await client.call_tool("whole", {"n": "x"})
            failed = await client.call_tool("whole", {"n": "x", "fails": True}, raise_on_error=False)
        assert failed.text == "hi"

    async def test_a_client_checks_what_it_gets(self, era):
        """spec:TOOL-11"""
        app = arithmetic()

        @app.middleware
        async def spoil(call, proceed):
            result = await proceed(call)
            if call.method == "tools/call":
                result.structured_content = {"result": "not a number"}
            return result

        async with pair(app, era) as client:
            await client.list_tools()
            with pytest.raises(InvalidAnswer, match="output schema"):
                await client.call_tool("add", {"a": 1})


class TestFailures:
    """A tool that fails fails alone, and says no more than it should."""

    async def test_a_tool_error_is_for_the_model_to_read(self, era):
        """spec:TOOL-15, spec:TOOL-16, ERRC-23"""
        app = Server("bank")

        @app.tool
        async def withdraw(amount: int) -> int:
            raise ToolError(f"you do not have {amount}")

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match=r"^you do not have 5$") as caught:
                await client.call_tool("withdraw", {"amount": 5})
            assert caught.value.result.is_error
            result = await client.call_tool("withdraw", {"amount": 5}, raise_on_error=False)
        assert result.is_error
        assert result.text == "you do not have 5"

    @pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
    async def test_a_bug_is_masked_and_logged_under_a_reference(self, era, is_async, caplog):
        """spec:TOOL-15, seed:TOOL-15, ERRC-23, ERRC-05"""
        app = Server("buggy")

        def bug():
            raise ValueError("secret-detail-42 /etc/hostname")

        async def async_bug():
            bug()

        app.add_tool("bug", async_bug if is_async else bug)
        app.add_tool("fine", lambda: "fine")
        async with pair(app, era) as client:
            result = await client.call_tool("bug", raise_on_error=False)
            assert (await client.call_tool("fine")).text == "fine"
        assert result.is_error
        assert result.text.startswith("The tool bug failed: Internal error (reference ")
        assert "secret" not in repr(result)
        assert "ValueError" not in repr(result)
        reference = result.text.rpartition(" ")[2].rstrip(")")
        [record] = [record for record in caplog.records if reference in record.getMessage()]
        assert record.exc_info[1].args == ("secret-detail-42 /etc/hostname",)

    async def test_a_refusal_is_a_protocol_error_with_its_code(self, era):
        """ERRC-25"""
        app = Server("strict")

        @app.tool
        async def forbidden():
            raise Forbidden("not for you")

        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="not for you") as caught:
                await client.call_tool("forbidden")
        assert caught.value.code == -32600

    async def test_another_servers_error_is_not_passed_on_by_accident(self, era):
        """spec:TOOL-14"""
        app = Server("proxy")

        @app.tool
        async def proxy():
            raise PeerError(-32001, "their secret")

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="Internal error") as caught:
                await client.call_tool("proxy")
        assert "secret" not in str(caught.value)

    async def test_an_unknown_tool_is_named_with_a_hint(self, era):
        """spec:TOOL-14, TOOL-08, ERRC-09, ERRC-25"""
        async with pair(arithmetic(), era) as client:
            with pytest.raises(PeerError, match="Unknown tool: ad; did you mean 'add'") as caught:
                await client.call_tool("ad")
        assert (caught.value.code, caught.value.data) == (-32602, {"tool": "ad"})
        assert caught.value.not_found

    async def test_a_server_without_tools_has_no_such_method(self, era, wire):
        """spec:TOOL-14, ERRC-11, DISC-3"""
        async with wire(Server("empty"), era) as peer:
            for method, params in (("tools/call", {"name": "x"}), ("tools/list", {})):
                error = (await peer.request(method, params))["error"]
                assert (error["code"], error["data"]) == (-32601, {"capability": "tools"})

    async def test_an_unknown_tool_of_a_declared_but_empty_server_is_just_unknown(self, era, wire):
        """spec:TOOL-1"""
        app = Server("empty", capabilities=ServerCapabilities(tools=ListCapability()))
        async with wire(app, era) as peer:
            assert (await peer.request("tools/list"))["result"]["tools"] == []
            assert (await peer.call("x"))["error"]["code"] == -32602

    async def test_faults_are_found_in_order_phase_capability_tool_arguments(self, wire):
        """TOOL-07"""
        app, bare = arithmetic(), Server("empty")
        async with wire(app, "stateless") as peer:
            peer.send({"jsonrpc": "2.0", "id": 90, "method": "tools/call", "params": {"name": "nix", "arguments": {}}})
            assert "initialize" in (await peer.response(90))["error"]["message"]
        async with wire(bare) as peer:
            assert (await peer.call("nix"))["error"]["code"] == -32601
        async with wire(app) as peer:
            assert (await peer.call("nix", {"a": "x"}))["error"]["data"] == {"tool": "nix"}
            assert (await peer.call("add", {"a": "x"}))["result"]["isError"]


class TestArguments:
    """Bad arguments are told in the way of the revision, all at once, before the handler runs."""

    async def test_every_violation_is_listed_in_a_result(self, era):
        """spec:TOOL-15, ERRC-04"""
        async with pair(arithmetic(), era) as client:
            result = await client.call_tool("add", BAD_ARGUMENTS, raise_on_error=False)
        assert result.is_error
        assert result.text.startswith("Invalid arguments for the tool add:\n")
        assert all(path in result.text for path in ("/a", "/b", "/c"))

    @pytest.mark.parametrize("version", OLDER)
    async def test_an_older_revision_is_refused_with_the_violations_as_data(self, wire, version):
        """spec:TOOL-15, ERRC-25, ERRC-04"""
        async with wire(arithmetic(), version=version) as peer:
            error = (await peer.call("add", BAD_ARGUMENTS))["error"]
        assert error["code"] == -32602
        assert {violation["path"] for violation in error["data"]["violations"]} == {"/a", "/b", "/c"}
        assert all(
            violation.keys() == {"path", "value", "rule", "message"} for violation in error["data"]["violations"]
        )

    async def test_missing_arguments_are_an_empty_object(self, era, wire):
        """TOOL-9"""
        app = Server("bare")
        app.add_tool("bare", lambda: "ok")
        async with wire(app, era) as peer:
            assert (await peer.request("tools/call", {"name": "bare"}))["result"]["content"][0]["text"] == "ok"

    @pytest.mark.parametrize("arguments", [[1, 2], "text", 7])
    async def test_a_call_whose_arguments_are_no_object_is_malformed_in_every_revision(self, era, wire, arguments):
        """TOOL-9, ERRC-04: nothing a model could mend, so it is no result."""
        app = arithmetic()
        app.add_tool("raw", lambda **_: "ran", schema={"type": "object"})
        async with wire(app, era) as peer:
            for name in ("add", "raw"):
                error = (await peer.request("tools/call", {"name": name, "arguments": arguments}))["error"]
                assert error["code"] == -32602
                assert 'the arguments are not of type "object"' in error["message"]

    async def test_null_for_arguments_means_none(self, era, wire):
        """TOOL-9"""
        app = Server("bare")
        app.add_tool("bare", lambda: "ok")
        async with wire(app, era) as peer:
            answer = await peer.request("tools/call", {"name": "bare", "arguments": None})
        assert answer["result"]["content"][0]["text"] == "ok"

    @pytest.mark.parametrize("params", [{}, {"name": 5}, {"name": None}])
    async def test_malformed_params_are_refused(self, era, wire, params):
        """ERRC-21, ERRC-04"""
        async with wire(arithmetic(), era) as peer:
            error = (await peer.request("tools/call", params))["error"]
        assert error["code"] == -32602
        assert "name" in error["data"]["details"]


class TestTime:
    """Limits on time, and what blocks whom."""

    @pytest.mark.usefixtures("virtual_time")
    @pytest.mark.parametrize("place", ["tool", "server"])
    async def test_a_tool_past_its_limit_is_stopped_and_reported(self, era, place):
        """seed:TOOL-20, ERRC-16"""
        app = Server("slow", tool_timeout=2.0 if place == "server" else None)
        stopped = asyncio.Event()

        @app.tool(timeout=2.0 if place == "tool" else None)
        async def forever():
            try:
                await asyncio.sleep(1e9)
            finally:
                stopped.set()

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="did not finish within 2 seconds"):
                await client.call_tool("forever")
            assert asyncio.get_running_loop().time() == pytest.approx(2.0, abs=0.1)
            await stopped.wait()

    @pytest.mark.usefixtures("virtual_time")
    async def test_a_tool_may_have_a_longer_limit_than_the_server_gives_the_others(self, era):
        app = Server("slow", tool_timeout=1.0)

        @app.tool(timeout=5.0)
        async def slow():
            await asyncio.sleep(3)
            return "done"

        async with pair(app, era) as client:
            assert (await client.call_tool("slow")).text == "done"

    async def test_a_time_out_of_the_handlers_own_is_not_taken_for_its_limit(self, era):
        app = Server("slow")

        @app.tool(timeout=30.0)
        async def impatient():
            async with asyncio.timeout(0):
                await asyncio.sleep(1)

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="Internal error"):
                await client.call_tool("impatient")

    async def test_a_limited_tool_fails_as_any_other(self, era):
        app = Server("limited", tool_timeout=30.0)

        @app.tool
        async def exits():
            raise SystemExit(3)

        @app.tool
        async def refuses(a: int):
            raise ToolError("no")

        async with pair(app, era) as client:
            with pytest.raises(ToolError, match="Internal error"):
                await client.call_tool("exits")
            with pytest.raises(ToolError, match=r"^no$"):
                await client.call_tool("refuses", {"a": 1})
            with pytest.raises(ToolError, match="Invalid arguments"):
                await client.call_tool("refuses")

    async def test_cancelling_a_limited_tool_cancels_its_handler(self, era):
        app = Server("limited", tool_timeout=30.0)
        started, stopped = asyncio.Event(), asyncio.Event()

        @app.tool
        async def wait():
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                stopped.set()

        async with pair(app, era) as client:
            call = asyncio.ensure_future(client.call_tool("wait"))
            await started.wait()
            call.cancel()
            await stopped.wait()

    async def test_a_slow_tool_leaves_the_link_prompt(self, era):
        """seed:TOOL-16, seed:TOOL-17, GUAR-08"""
        app = arithmetic()
        release = asyncio.Event()

        @app.tool
        async def wait() -> str:
            await release.wait()
            return "at last"

        async with pair(app, era) as client:
            waiting = asyncio.ensure_future(client.call_tool("wait"))
            assert await client.ping() < 10
            assert (await client.call_tool("add", {"a": 1, "b": 1})).data == 2
            assert not waiting.done()
            release.set()
            assert (await waiting).data == "at last"

    async def test_a_plain_function_runs_in_a_thread_of_ours(self, era):
        """SRVR-07"""
        app = Server("threads")
        app.add_tool("where", lambda: threading.current_thread().name)
        app.add_tool("here", lambda: threading.current_thread().name, inline=True)
        async with pair(app, era) as client:
            assert (await client.call_tool("where")).text.startswith("ferrule-worker")
            assert (await client.call_tool("here")).text == threading.current_thread().name

    async def test_one_tools_threads_are_bounded_and_others_have_theirs(self, era):
        app = Server("bulkhead")
        gate, both = threading.Event(), threading.Barrier(3)
        running = []

        @app.tool(max_threads=2)
        def block() -> int:
            running.append(1)
            if len(running) <= 2:
                both.wait(60)
            gate.wait(60)
            return len(running)

        app.add_tool("meet", lambda: both.wait(60) and None)
        app.add_tool("other", lambda: "free")
        async with pair(app, era) as client:
            blocked = [asyncio.ensure_future(client.call_tool("block")) for _ in range(5)]
            await client.call_tool("meet")
            assert (await client.call_tool("other")).text == "free"
            assert len(running) == 2
            gate.set()
            await asyncio.gather(*blocked)
        assert len(running) == 5

    async def test_a_thread_that_goes_on_after_its_limit_keeps_its_place(self, era):
        app = Server("bulkhead")
        gate = threading.Event()
        running = []

        @app.tool(max_threads=1, timeout=0.3)
        def block() -> str:
            running.append(1)
            gate.wait(60)
            return "done"

        async with pair(app, era) as client:
            for _ in range(3):
                with pytest.raises(ToolError, match="did not finish"):
                    await client.call_tool("block")
            assert len(running) == 1
            gate.set()
            while (ended := await client.call_tool("block", raise_on_error=False)).is_error:
                assert "did not finish" in ended.text
            assert ended.data == "done"

    async def test_calls_of_one_link_run_side_by_side(self, era):
        """GUAR-07"""
        app = Server("together")
        everyone = asyncio.Barrier(50)

        @app.tool
        async def meet() -> str:
            await everyone.wait()
            return "met"

        async with pair(app, era) as client:
            results = await asyncio.gather(*(client.call_tool("meet") for _ in range(50)))
        assert {result.data for result in results} == {"met"}


class TestListing:
    """What a client is told about tools."""

    async def test_a_tool_is_listed_with_all_that_was_said_about_it(self, era):
        """TOOL-01, TOOL-04, TOOL-06, TOOL-3, SPEC-17, ICON-1, META-1"""
        app = Server("full")
        icon = Icon(src="https://example.com/i.png", mime_type="image/png", sizes=["48x48"], theme="dark")

        @app.tool(
            name="the-tool",
            title="The Tool",
            description="Does it.",
            annotations={"readOnlyHint": True, "title": "Shown", "openWorldHint": False},
            icons=[icon],
            meta={"com.example/cost": 3},
            deprecated=True,
        )
        async def tool(a: Annotated[int, msgspec.Meta(ge=1, description="how many")], ctx: Context) -> Point:
            return Point(a)

        async with pair(app, era) as client:
            [listed] = await client.list_tools()
        assert (listed.name, listed.title, listed.description) == ("the-tool", "The Tool", "Does it.")
        assert listed.annotations == ToolAnnotations(title="Shown", read_only_hint=True, open_world_hint=False)
        assert listed.icons == [icon]
        assert listed.meta == {"com.example/cost": 3, "deprecated": True}
        assert listed.input_schema == {
            "type": "object",
            "properties": {"a": {"type": "integer", "minimum": 1, "description": "how many"}},
            "required": ["a"],
            "additionalProperties": False,
        }
        assert listed.output_schema["properties"].keys() == {"x", "y"}

    @pytest.mark.parametrize(
        ("version", "absent"),
        [
            ("2025-11-25", set()),
            ("2025-06-18", {"icons"}),
            ("2025-03-26", {"icons", "title", "outputSchema", "_meta"}),
            ("2024-11-05", {"icons", "title", "outputSchema", "_meta", "annotations"}),
        ],
    )
    async def test_a_revision_sees_only_the_members_it_has(self, wire, version, absent):
        """TOOL-3"""
        app = Server("full")
        everything = {"icons", "title", "outputSchema", "_meta", "annotations", "name", "description", "inputSchema"}
        icons = [Icon(src="https://example.com/i.png")]

        @app.tool(title="T", icons=icons, meta={"a": 1}, annotations={"readOnlyHint": True})
        async def tool() -> Point:
            """Do it."""

        async with wire(app, version=version) as peer:
            [listed] = (await peer.request("tools/list"))["result"]["tools"]
        assert listed.keys() == everything - absent

    async def test_a_tool_without_parameters_takes_an_empty_object(self, era):
        """TOOL-4"""
        app = Server("bare")
        app.add_tool("bare", lambda: None)
        async with pair(app, era) as client:
            [tool] = await client.list_tools()
        assert tool.input_schema == {"type": "object", "properties": {}, "additionalProperties": False}

    async def test_a_tool_with_an_open_schema_takes_any_object(self, era):
        """TOOL-02, TOOL-4"""
        app = Server("open")

        async def anything(**given: Any) -> dict[str, Any]:
            return given

        app.add_tool("anything", anything, schema={"type": "object", "description": "whatever", "minProperties": 1})
        async with pair(app, era) as client:
            [tool] = await client.list_tools()
            assert (await client.call_tool("anything", {"a": [1], "b": None})).data == {"a": [1], "b": None}
            with pytest.raises(ToolError, match="Invalid arguments"):
                await client.call_tool("anything", {})
        assert tool.input_schema == {"type": "object", "description": "whatever", "minProperties": 1}

    async def test_tools_are_listed_in_order_of_registration_on_every_link(self, era):
        """TOOL-8, STL-11"""
        app = Server("ordered")
        names = ["zebra", "apple", "Mango", "b2", "b10"]
        for name in names:
            app.add_tool(name, lambda: None)
        for _ in range(2):
            async with pair(app, era) as client:
                await client.call_tool("apple")
                assert [tool.name for tool in await client.list_tools()] == names

    async def test_a_removed_tool_is_neither_listed_nor_found(self, era):
        """TOOL-05, SRVR-02"""
        app = arithmetic()
        async with pair(app, era) as client:
            app.remove_tool("add")
            assert [tool.name for tool in await client.list_tools()] == ["subtract"]
            with pytest.raises(PeerError, match="Unknown tool: add"):
                await client.call_tool("add", {"a": 1})
        with pytest.raises(SetupError, match="no tool 'subtrac'; did you mean 'subtract'"):
            app.remove_tool("subtrac")

    async def test_a_tool_added_while_running_can_be_called(self, era):
        """SRVR-02"""
        app = arithmetic()
        async with pair(app, era) as client:
            app.add_tool("late", lambda: "here")
            assert (await client.call_tool("late")).text == "here"
            assert (await client.list_tools())[-1].name == "late"

    @pytest.mark.parametrize("version", ["2025-06-18", "2025-11-25"])
    async def test_only_hints_that_were_given_are_listed(self, wire, version):
        app = Server("hints")
        app.add_tool("a", lambda: None, annotations=ToolAnnotations(title="A!", destructive_hint=False))
        async with wire(app, version=version) as peer:
            [listed] = (await peer.request("tools/list"))["result"]["tools"]
        assert listed["annotations"] == {"title": "A!", "destructiveHint": False}


class TestSetup:
    """What is wrong is said when a tool is registered."""

    def test_a_description_has_a_limit(self):
        """TOOL-23"""
        app = Server("long")
        app.add_tool("fits", lambda: None, description="x" * 10_000)
        with pytest.raises(SetupError, match="longer than 10000 characters"):
            app.add_tool("long", lambda: None, description="x" * 10_001)

    @pytest.mark.parametrize("name", ["with space", "with,comma", "ünï", "x" * 129, "a/b"])
    def test_a_name_outside_the_allowed_form_is_warned_about_and_kept(self, name, caplog):
        """TOOL-6, SPEC-26"""
        app = Server("names")
        app.add_tool(name, lambda: None)
        assert "some clients will refuse it" in caplog.text
        assert [tool.name for tool in app.list_tools()] == [name]

    @pytest.mark.parametrize("name", ["a", "A.b-c_9", "x" * 128])
    def test_a_good_name_is_not_warned_about(self, name, caplog):
        """TOOL-6, SPEC-26"""
        Server("names").add_tool(name, lambda: None)
        assert not caplog.records

    def test_a_second_tool_of_the_same_name_is_refused(self):
        app = arithmetic()
        with pytest.raises(SetupError, match="there is a tool 'add' already"):
            app.add_tool("add", lambda: None)

    def test_a_lambda_needs_a_name(self):
        with pytest.raises(SetupError, match="needs a name"):
            Server("x").tool(lambda: None)

    def test_an_unknown_option_is_named_with_those_there_are(self):
        with pytest.raises(SetupError, match=r"the tool a: .*'colour'; the options are annotations, deprecated"):
            Server("x").add_tool("a", lambda: None, colour="red")

    def test_an_option_that_is_nearly_one_is_told_which(self):
        with pytest.raises(SetupError, match="the tool a: unknown option 'timout'; did you mean 'timeout'"):
            Server("x").add_tool("a", lambda: None, timout=3)
        with pytest.raises(SetupError, match=r"Server: .*'tool_time_out'; did you mean 'tool_timeout'"):
            Server("x", tool_time_out=3)

    @pytest.mark.parametrize(
        ("options", "why"),
        [
            ({"timeout": "5s"}, "timeout must be a number or None, not '5s'"),
            ({"timeout": 0}, "timeout must be more than 0 seconds or None, not 0"),
            ({"timeout": float("nan")}, "timeout must be more than 0 seconds"),
            ({"visible": "ada"}, "visible must be a function or None, not 'ada'"),
            ({"middleware": print}, "middleware must be a list, not "),
            ({"inline": "yes"}, "inline must be True or False, not 'yes'"),
            (
                {"annotations": ["readOnlyHint"]},
                "annotations must be ToolAnnotations or a mapping or None",
            ),
            ({"tags": 5}, "tags must be a set or a list or None, not 5"),
        ],
    )
    def test_an_option_that_could_never_work_is_refused_at_decoration(self, options, why):
        app = Server("x")
        with pytest.raises(SetupError, match=f"the tool report: {why}"):

            @app.tool(**options)
            def report() -> str: ...

        assert app.list_tools() == []

    def test_what_is_no_function_is_no_tool(self):
        for register in (Server("x").tool, Server("x").prompt):
            with pytest.raises(SetupError, match="a function is wanted here, not 5"):
                register(5)

    def test_an_unknown_annotation_is_named(self):
        with pytest.raises(SetupError, match=r"'fastHint' is not an annotation of a tool: there are title"):
            Server("x").add_tool("a", lambda: None, annotations={"fastHint": True})

    def test_every_way_to_decorate_gives_the_function_back(self):
        """SRVR-02"""
        app = Server("ways")

        @app.tool
        def bare() -> int:
            return 1

        @app.tool()
        def called() -> int:
            return 2

        @app.tool("renamed")
        def named() -> int:
            return 3

        @app.tool(name="optioned")
        def by_option() -> int:
            return 4

        assert [bare(), called(), named(), by_option()] == [1, 2, 3, 4]
        assert [tool.name for tool in app.list_tools()] == ["bare", "called", "renamed", "optioned"]


class TestErlmcpProfile:
    """`error_profile="erlmcp"` gives handshake clients the numbers of that system, and stateless ones the usual."""

    @staticmethod
    def app() -> Server:
        app = arithmetic(error_profile="erlmcp")

        @app.tool
        async def bug():
            raise ValueError("secret")

        @app.tool
        async def says_no():
            raise ToolError("no")

        @app.tool
        async def refuses():
            raise Refused(1001, data="x")

        @app.tool(timeout=0.01)
        async def slow():
            await asyncio.sleep(60)

        return app

    @pytest.mark.parametrize(
        ("name", "code"),
        [("bug", -32031), ("says_no", -32031), ("slow", -32032), ("refuses", 1001), ("nix", -32002), ("add", -32602)],
    )
    async def test_a_failing_tool_is_an_error_with_its_number(self, wire, name, code):
        """ERRC-15, ERRC-16, ERRC-19, ERRC-09, TOOL-08"""
        async with wire(self.app()) as peer:
            error = (await peer.call(name))["error"]
        assert error["code"] == code
        assert "secret" not in error["message"]

    async def test_the_stateless_era_keeps_to_the_specification(self, wire):
        """ERRC-15, ERRC-16, ERR-2"""
        async with wire(self.app(), "stateless") as peer:
            for name in ("bug", "says_no", "slow", "refuses", "add"):
                assert (await peer.call(name))["result"]["isError"]
            assert (await peer.call("nix"))["error"]["code"] == -32602


async def test_a_handler_sees_no_context_variables_of_another_call(era):
    app = Server("contexts")

    @app.tool
    async def who(ctx: Context) -> bool:
        return ctx.request_id is not None

    async with pair(app, era) as client:
        assert (await client.call_tool("who")).data


async def test_a_sync_tool_does_not_hold_up_the_loop(era):
    """GUAR-08"""
    app = Server("blocking")
    begun, end = threading.Event(), threading.Event()

    @app.tool
    def block() -> None:
        begun.set()
        end.wait(60)

    async with pair(app, era) as client:
        blocked = asyncio.ensure_future(client.call_tool("block"))
        while not begun.is_set():
            await asyncio.sleep(0.005)
        await client.ping()
        assert not blocked.done()
        end.set()
        await blocked


async def test_logs_of_failures_name_the_tool(era, caplog):
    """SHUT-07"""
    app = Server("buggy")
    app.add_tool("bug", lambda: 1 / 0)
    with caplog.at_level(logging.ERROR):
        async with Client(app, mode=era) as client:
            await client.call_tool("bug", raise_on_error=False)
    assert "the tool bug failed" in caplog.text


async def test_a_server_checks_what_comes_in_who_calls_how_often_and_what_goes_out(era, wire):
    """spec:TOOL-19: nothing of an unchecked argument, a stranger, a flood or our own failure gets through."""
    app = Server("vault", middleware=[RateLimit(1, burst=4, by="principal", clock=lambda: 0.0)])
    opened = []

    @app.tool(visible=lambda ctx: ctx.principal == "ada")
    async def open_door(number: Annotated[int, msgspec.Meta(ge=1)]) -> int:
        opened.append(number)
        if number == 13:
            raise RuntimeError("password: hunter2")
        return "not a number" if number == 7 else number  # type: ignore[return-value]

    async with wire(app, era, principal="ada") as ada, wire(app, era, principal="eve") as eve:
        assert (await eve.call("open_door", {"number": 1}))["error"]["message"] == "Unknown tool: open_door"
        assert (await ada.call("open_door", {"number": 0}))["result"]["isError"] is True
        assert opened == []
        for broken in (13, 7):
            answer = await ada.call("open_door", {"number": broken})
            assert answer["result"]["isError"] is True
            assert "structuredContent" not in answer["result"]
            assert not any(word in str(answer) for word in ("hunter2", "RuntimeError"))
        assert (await ada.call("open_door", {"number": 2}))["result"]["structuredContent"] == {"result": 2}
        assert "Rate limit" in (await ada.call("open_door", {"number": 2}))["error"]["message"]
        assert opened == [13, 7, 2]


def objects_of_tools(tools: list[Any]) -> float:
    """Return how many objects that the collector looks at each of these tools keeps."""
    app = Server("many")
    app.add_tool("first", tools[0])
    gc.collect()
    before = len(gc.get_objects())
    for number, tool in enumerate(tools):
        app.add_tool(f"tool_{number}", tool)
    gc.collect()
    return (len(gc.get_objects()) - before) / len(tools)


def test_a_tool_that_nobody_calls_has_little_ready():
    def look_up(query: str, limit: int = 10, labels: list[str] | None = None) -> str:
        """Look something up."""
        return query

    assert objects_of_tools([look_up] * 100) < 25


def test_who_changes_the_schema_of_a_listed_tool_changes_no_other_tool():
    """What was read of a function is shared by all that are like it; what is published is not."""

    def made(name):
        def look_up(city: str, days: int = 3) -> dict[str, int]:
            return {"days": days}

        look_up.__name__ = name
        return look_up

    one, two = Server("one"), Server("two")
    one.add_tool(made("first"))
    one.add_tool(made("second"))
    two.add_tool(made("third"))
    changed = one.list_tools()[0]
    changed.input_schema["properties"].pop("days")
    changed.output_schema.clear()
    two.add_tool(made("later"))
    for tool in (one.list_tools()[1], *two.list_tools()):
        assert set(tool.input_schema["properties"]) == {"city", "days"}
        assert tool.output_schema
