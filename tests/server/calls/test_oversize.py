"""Results that are larger than they may be."""

import asyncio
import base64
import json

import pytest

from ferrule import Client, Context, Http, Image, PeerError, Server, SetupError, ToolError, ToolResult
from ferrule.errors import FerruleError
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.content import ResourceLink, TextContent
from ferrule.schema.lifecycle import ListCapability, ServerCapabilities
from ferrule.server.calls.results import structured, unstructured, wrapped, wrapped_text
from ferrule.server.calls.streams import size_of
from ferrule.testing import pair

POLICIES = ["refuse", "truncate", "spill"]


def library(**options) -> Server:
    """A server whose tools give as much as they are asked for."""
    app = Server("library", **options)

    @app.tool
    async def text(size: int) -> str:
        return "x" * size

    @app.tool
    def rows(count: int) -> list[dict[str, int]]:
        return [{"row": number} for number in range(count)]

    @app.tool
    async def loose(size: int):
        return [TextContent("a" * 10), "ü" * size, "the end"]

    @app.tool
    async def number() -> int:
        return 7

    return app


async def text_of(client, name, **arguments):
    return (await client.call_tool(name, arguments)).text


@pytest.mark.parametrize("policy", POLICIES)
async def test_what_fits_is_sent_as_ever(era, policy):
    async with pair(library(result_limit=1000, result_policy=policy), era) as client:
        result = await client.call_tool("rows", {"count": 3})
        assert result.structured_content == {"result": [{"row": 0}, {"row": 1}, {"row": 2}]}
        assert (await client.call_tool("text", {"size": 1000})).data == "x" * 1000
        assert (await client.call_tool("number")).data == 7


async def test_a_refused_result_says_how_large_it_was_and_may_be(era):
    async with pair(library(result_limit=1000), era) as client:
        for name, arguments, size in (("text", {"size": 1001}, "1,001"), ("rows", {"count": 200}, "2,291")):
            with pytest.raises(ToolError, match=f"the result has {size} bytes and may have at most 1,000"):
                await client.call_tool(name, arguments)
        assert await text_of(client, "text", size=5) == "xxxxx"


async def test_a_cut_result_is_its_beginning_and_a_notice(era):
    async with pair(library(result_limit=1000, result_policy="truncate"), era) as client:
        result = await client.call_tool("text", {"size": 5000})
        shown, notice = result.content
        assert shown.text == "x" * 1000
        assert notice.text.startswith("[Truncated: the result has 5,000 bytes, and the first 1,000 are shown.")
        assert result.structured_content is None
        assert result.meta["ferrule/truncated"] == {"size": 5000, "limit": 1000}
        assert not result.is_error


async def test_a_cut_never_splits_a_character_and_keeps_whole_blocks(era):
    async with pair(library(result_limit=1001, result_policy="truncate"), era) as client:
        first, second, notice = (await client.call_tool("loose", {"size": 5000})).content
    assert (first.text, second.text) == ("a" * 10, "ü" * 495)
    assert notice.text.startswith("[Truncated")


async def test_a_spilled_result_is_a_link_to_the_whole(era):
    async with pair(library(result_limit=1000, result_policy="spill"), era) as client:
        notice, link = (await client.call_tool("text", {"size": 5000})).content
        assert isinstance(link, ResourceLink)
        assert link.uri in notice.text
        assert (link.mime_type, link.size) == ("text/plain", 5000)
        assert (await client.read_resource(link.uri)).text == "x" * 5000
        _, link = (await client.call_tool("rows", {"count": 500})).content
        assert len(json.loads((await client.read_resource(link.uri)).text)["result"]) == 500
        _, link = (await client.call_tool("loose", {"size": 5000})).content
        assert [block["text"] for block in json.loads((await client.read_resource(link.uri)).text)][2] == "the end"


async def test_a_spilled_picture_is_read_as_the_picture(era):
    app = Server("gallery")
    picture = b"\x89PNG\r\n\x1a\n" + bytes(5000)

    @app.tool(result_limit=1000, result_policy="spill")
    def paint() -> Image:
        return Image(picture)

    async with pair(app, era) as client:
        _, link = (await client.call_tool("paint")).content
        read = await client.read_resource(link.uri)
    assert (read.contents[0].mime_type, read.blob) == ("image/png", picture)


async def test_a_link_is_read_by_its_own_session_or_principal_only(era, wire):
    app = library(result_limit=10, result_policy="spill")

    async def spilled(peer):
        return (await peer.call("text", {"size": 100}))["result"]["content"][1]["uri"]

    async def read(peer, uri):
        return await peer.request("resources/read", {"uri": uri})

    async with wire(app, era) as first, wire(app, era) as second:
        uri = await spilled(first)
        assert (await read(first, uri))["result"]["contents"][0]["text"] == "x" * 100
        assert (await read(second, uri))["error"]["data"] == {"uri": uri}
        assert (await read(first, uri[:-1] + "?"))["error"]["data"]["uri"].startswith("ferrule://results/")
    async with (
        wire(app, era, principal="ada") as ada,
        wire(app, era, principal="ada") as again,
        wire(app, era, principal="bob") as bob,
        wire(app, era) as nobody,
    ):
        uri = await spilled(ada)
        assert "result" in await read(again, uri)
        assert "error" in await read(bob, uri)
        assert "error" in await read(nobody, uri)


async def test_a_link_ends_with_its_time(era):
    async with pair(library(result_limit=10, result_policy="spill", result_ttl=0.0), era) as client:
        _, link = (await client.call_tool("text", {"size": 100})).content
        with pytest.raises(PeerError) as caught:
            await client.read_resource(link.uri)
    assert caught.value.not_found


@pytest.mark.parametrize("version", REVISIONS)
async def test_every_revision_learns_where_the_whole_is(wire, version):
    """In those without links the text says it."""
    async with wire(library(result_limit=10, result_policy="spill"), version=version) as peer:
        result = (await peer.call("text", {"size": 100}))["result"]
        uri = result["_meta"]["ferrule/spilled"]["uri"]
        assert uri in result["content"][0]["text"]
        assert uri in json.dumps(result["content"][1])
        assert (await peer.request("resources/read", {"uri": uri}))["result"]["contents"][0]["text"] == "x" * 100


async def test_a_tool_says_it_for_itself(era):
    app = library(result_limit=10)

    @app.tool(result_limit=20, result_policy="truncate")
    async def own() -> str:
        return "y" * 30

    async with pair(app, era) as client:
        assert (await text_of(client, "own")).startswith("y" * 20 + "\n[Truncated")
        with pytest.raises(ToolError, match="at most 10"):
            await client.call_tool("text", {"size": 11})


def test_what_may_be_cut_promises_no_schema():
    for policy in POLICIES:
        schemas = {
            tool.name: tool.output_schema for tool in library(result_limit=10, result_policy=policy).list_tools()
        }
        assert (schemas["rows"] is None) == (policy != "refuse")
        assert schemas["number"] is not None


def test_an_output_schema_by_hand_is_kept_to():
    app = Server("strict", result_limit=10, result_policy="truncate")
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert app.add_tool("kept", lambda: {"a": "b"}, output_schema=schema).output_schema == schema
    with pytest.raises(SetupError, match="the tool no: what is cut or kept elsewhere does not fit an output_schema"):
        app.add_tool("no", lambda: {"a": ""}, output_schema=schema, result_policy="spill")


async def test_the_refused_result_has_its_number_in_the_erlmcp_profile(wire):
    async with wire(library(result_limit=10, error_profile="erlmcp")) as peer:
        error = (await peer.call("text", {"size": 11}))["error"]
    assert (error["code"], error["data"]) == (-32036, {"refusal": 1068})


async def test_what_is_larger_than_can_be_kept_is_refused(era):
    async with pair(library(result_limit=10, result_policy="spill"), era) as client:
        with pytest.raises(ToolError, match="bytes and may have at most"):
            await client.call_tool("text", {"size": 9 << 20}, timeout=30)


async def test_a_failure_stays_a_failure(era):
    app = Server("failing", result_limit=100, result_policy="truncate")

    @app.tool
    async def fail() -> ToolResult:
        return ToolResult("x" * 1000, is_error=True, meta={"example.org/k": 1})

    async with pair(app, era) as client:
        result = await client.call_tool("fail", raise_on_error=False)
    assert result.is_error
    assert result.content[0].text == "x" * 100
    assert result.meta["example.org/k"] == 1


async def test_calls_from_this_process_read_their_links_too():
    app = library(result_limit=10, result_policy="spill")
    _, link = (await app.call_tool("text", {"size": 100})).content
    assert (await app.read_resource(link.uri)).text == "x" * 100


async def test_a_handler_reads_a_link_of_its_caller(era):
    app = library(result_limit=10, result_policy="spill")

    @app.tool(result_limit=1000, result_policy="refuse")
    async def follow(uri: str, ctx: Context) -> str:
        return (await ctx.read_resource(uri)).text

    async with pair(app, era) as client:
        _, link = (await client.call_tool("text", {"size": 100})).content
        assert await text_of(client, "follow", uri=link.uri) == "x" * 100


async def test_over_http_a_session_and_a_stranger_are_told_apart(era):
    app = library(result_limit=10, result_policy="spill")
    http, ready = Http(port=0), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(http, ready=ready.set))
    await ready.wait()
    try:
        async with Client(http.url, mode=era) as client:
            _, link = (await client.call_tool("text", {"size": 100})).content
            assert (await client.read_resource(link.uri)).text == "x" * 100
            if era == "handshake":
                async with Client(http.url, mode=era) as other:
                    with pytest.raises(FerruleError, match="not found"):
                        await other.read_resource(link.uri)
    finally:
        await app.stop()
        await serving


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"result_policy": "hide"}, "result_policy must be one of refuse, spill, truncate"),
        ({"result_limit": 0}, "result_limit must be at least 1 byte or None, not 0 bytes"),
        ({"result_policy": "spill"}, "result_policy needs a result_limit"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options, why):
    with pytest.raises(SetupError, match=f"the tool t: {why}"):
        Server("s").add_tool("t", lambda: "", **options)


def test_links_need_the_capability_to_read_them():
    declared = ServerCapabilities(tools=ListCapability())
    app = Server("s", capabilities=declared, result_policy="spill", result_limit=10)
    with pytest.raises(SetupError, match='the tool t: result_policy="spill" needs the capability resources'):
        app.add_tool("t", lambda: "")


@pytest.mark.parametrize(
    ("result", "size"),
    [
        (unstructured("abc"), 3),
        (unstructured("ü"), 2),
        (unstructured(["a", TextContent("bc")]), 3),
        (wrapped([1, 2]), len("[1,2]")),
        (wrapped_text("ü"), 2),
        (structured({"a": 1}), len('{"a":1}')),
        (unstructured(Image(b"12345").block(lambda *_: None)), len(base64.b64encode(b"12345"))),
        (unstructured(ResourceLink(uri="x:y", name="n")), 0),
    ],
)
def test_the_size_is_that_of_what_is_read(result, size):
    assert size_of(result) == size
