"""Pictures, sound and files as results."""

import asyncio
import base64
import io
import os
import threading
from types import MappingProxyType

import pytest

from ferrule import Audio, File, Image, PeerError, Server, SetupError, ToolError, ToolResult
from ferrule.schema.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from ferrule.schema.model import Annotations
from ferrule.server.calls.files import EMBED_UP_TO
from ferrule.server.calls.media import holds_media, is_quick
from ferrule.testing import pair

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels"
WAV = b"RIFF\x00\x00\x00\x00WAVEfmt "


class Painting:
    """An image object as libraries have them: it saves itself."""

    def save(self, file, format=None):  # noqa: A002
        file.write(PNG if format == "png" else f"<{format}>".encode())


async def given(era, value, **options):
    """Return what a client gets of a tool that returns a value."""
    app = Server("media")
    app.add_tool("give", lambda: value, inline=True)
    async with pair(app, era) as client:
        return (await client.call_tool("give", **options)).content


@pytest.mark.parametrize(
    ("media", "mime_type", "data"),
    [
        (lambda path: Image(path("a.png", b"x")), "image/png", b"x"),
        (lambda path: Image(path("a.JPG", b"x")), "image/jpeg", b"x"),
        (lambda path: Image(path=path("a.webp", b"x")), "image/webp", b"x"),
        (lambda path: Image(path("plot", PNG)), "image/png", PNG),
        (lambda path: Image(path("a.txt", b"GIF89a")), "image/gif", b"GIF89a"),
        (lambda path: Image(b"\xff\xd8\xff..."), "image/jpeg", b"\xff\xd8\xff..."),
        (lambda path: Image(data=b"?", format="jpg"), "image/jpeg", b"?"),
        (lambda path: Image(b"?"), "image/png", b"?"),
        (lambda path: Image(b"?", mime_type="image/x-own"), "image/x-own", b"?"),
        (lambda path: Image(io.BytesIO(PNG)), "image/png", PNG),
        (lambda path: Image(path("a.png", b"x").open("rb")), "image/png", b"x"),
        (lambda path: Image(Painting()), "image/png", PNG),
        (lambda path: Image(Painting(), format="JPEG"), "image/jpeg", b"<jpeg>"),
        (lambda path: Image(b"<svg/>"), "image/svg+xml", b"<svg/>"),
    ],
)
async def test_a_picture_is_read_wherever_it_comes_from_and_knows_what_it_is(era, tmp_path, media, mime_type, data):
    def path(name, content):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    [block] = await given(era, media(path))
    assert block == ImageContent(base64.b64encode(data).decode(), mime_type)


async def test_a_sound_is_an_audio_block(era, tmp_path):
    (tmp_path / "bell.mp3").write_bytes(b"ding")
    loud = Annotations(priority=1.0)
    sounds = [Audio(str(tmp_path / "bell.mp3"), annotations=loud), Audio(WAV), Audio(b"?", format="mp3")]
    assert await given(era, sounds) == [
        AudioContent(base64.b64encode(b"ding").decode(), "audio/mpeg", annotations=loud),
        AudioContent(base64.b64encode(WAV).decode(), "audio/wav"),
        AudioContent("Pw==", "audio/mpeg"),
    ]


async def test_pictures_stand_among_texts_in_their_order(era):
    first, picture, last = await given(era, ["before", Image(PNG), "after"])
    assert (first, type(picture), last) == (TextContent("before"), ImageContent, TextContent("after"))


async def test_a_small_file_is_sent_within_the_result(era, tmp_path):
    (tmp_path / "notes.md").write_text("# Ä")
    (tmp_path / "odd.bin").write_bytes(b"\x00\xff")
    (tmp_path / "LICENSE").write_text("plain")
    [notes, odd, plain] = await given(era, [File(tmp_path / name) for name in ("notes.md", "odd.bin", "LICENSE")])
    assert all(isinstance(block, EmbeddedResource) for block in (notes, odd, plain))
    assert (notes.resource.uri, notes.resource.mime_type) == ("ferrule://files/notes.md", "text/markdown")
    assert notes.resource.text == "# Ä"
    assert odd.resource.blob == base64.b64encode(b"\x00\xff").decode()
    assert (plain.resource.mime_type, plain.resource.text) == ("text/plain", "plain")
    assert str(tmp_path) not in repr([notes, odd, plain])


async def test_a_large_file_is_a_link_that_its_caller_can_read(era, tmp_path):
    (tmp_path / "rows.csv").write_text("a,b\n" * EMBED_UP_TO)
    app = Server("files")

    @app.tool
    def export() -> File:
        return File(tmp_path / "rows.csv", name="export.csv")

    @app.tool
    def made() -> list[File]:
        return [File(b"\x00" * (EMBED_UP_TO + 1), name="x.bin")]

    async with pair(app, era) as client:
        [link] = (await client.call_tool("export")).content
        assert isinstance(link, ResourceLink)
        assert (link.name, link.mime_type, link.size) == ("export.csv", "text/csv", 4 * EMBED_UP_TO)
        assert (await client.read_resource(link.uri)).text == "a,b\n" * EMBED_UP_TO
        [other] = (await client.call_tool("made")).content
        assert (await client.read_resource(other.uri)).blob == b"\x00" * (EMBED_UP_TO + 1)


async def test_a_large_file_is_embedded_where_links_cannot_be_read(era):
    app = Server("undeclared")
    app.add_tool("export", lambda: File(b"x" * (EMBED_UP_TO + 1), name="x.txt"))
    async with pair(app, era) as client:
        [block] = (await client.call_tool("export")).content
    assert isinstance(block, EmbeddedResource)


async def test_the_contents_of_what_is_read_are_bounded(era, tmp_path):
    (tmp_path / "huge.png").write_bytes(b"x" * 1001)
    for media in (Image(tmp_path / "huge.png", max_size=1000), Image(b"x" * 1001, max_size=1000, name="huge.png")):
        with pytest.raises(ToolError, match=r"'huge.png' has more than the 1000 bytes it may have"):
            await given(era, media)
    with pytest.raises(ToolError, match="may have"):
        await given(era, Image(io.BytesIO(b"x" * 1001), max_size=1000))


async def test_what_cannot_be_read_fails_its_call_and_tells_no_path(era, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    app = Server("missing")
    app.add_tool("missing", lambda: Image(tmp_path / "gone.png"))
    app.add_tool("pipe", lambda: Image(tmp_path / "pipe.png"))
    app.add_tool("broken", lambda: Image(BrokenFile()))
    async with pair(app, era) as client:
        for name, why in (
            ("missing", "'gone.png' cannot be read: No such file or directory"),
            ("pipe", "'pipe.png' is not a file"),
            ("broken", "'image' cannot be read: ZeroDivisionError"),
        ):
            with pytest.raises(ToolError, match=f"The tool {name} failed: {why}") as caught:
                await client.call_tool(name)
            assert str(tmp_path) not in str(caught.value)


class BrokenFile:
    """A file object that fails."""

    name = ""

    def read(self, size):
        return 1 / 0


async def test_a_file_is_read_in_a_thread_and_the_loop_goes_on(era):
    gate, readers = threading.Event(), []

    class Slow:
        name = "slow.png"

        def read(self, size):
            readers.append(threading.current_thread())
            gate.wait(60)
            return PNG

    app = Server("slow")

    @app.tool
    async def show() -> Image:
        return Image(Slow())

    async with pair(app, era) as client:
        showing = asyncio.ensure_future(client.call_tool("show"))
        while not readers:
            await asyncio.sleep(0.001)
        await client.ping()
        assert not showing.done()
        gate.set()
        assert isinstance((await showing).content[0], ImageContent)
    assert readers[0] is not threading.main_thread()


async def test_media_have_no_output_schema_and_may_be_part_of_a_whole_result(era):
    app = Server("schemas")

    @app.tool
    def one() -> Image:
        return Image(PNG)

    @app.tool
    def many() -> list[Image | str]:
        return [Image(PNG), "x"]

    @app.tool
    def whole() -> ToolResult:
        return ToolResult([Image(PNG)], {"width": 1}, meta={"example.org/k": 1})

    assert [tool.output_schema for tool in app.list_tools()] == [None, None, None]
    async with pair(app, era) as client:
        result = await client.call_tool("whole")
        assert isinstance(result.content[0], ImageContent)
        assert (result.data, result.meta["example.org/k"]) == ({"width": 1}, 1)
        assert len((await client.call_tool("many")).content) == 2


async def test_prompts_and_resources_take_them_too(era, tmp_path):
    (tmp_path / "a.png").write_bytes(PNG)
    (tmp_path / "a.txt").write_text("hello")
    app = Server("others")
    app.add_prompt("look", lambda: ["what is this?", Image(tmp_path / "a.png")])
    app.add_prompt("said", lambda: {"role": "assistant", "content": Image(PNG)})
    app.add_resource("x://picture", lambda: Image(tmp_path / "a.png"))
    app.add_resource("x://text", lambda: File(tmp_path / "a.txt"), mime_type="text/x-own")
    app.add_resource("x://gone", lambda: File(tmp_path / "gone"))
    async with pair(app, era) as client:
        messages = (await client.get_prompt("look")).messages
        assert [type(message.content) for message in messages] == [TextContent, ImageContent]
        [said] = (await client.get_prompt("said")).messages
        assert (said.role, type(said.content)) == ("assistant", ImageContent)
        read = await client.read_resource("x://picture")
        assert (read.contents[0].mime_type, read.blob) == ("image/png", PNG)
        [text] = (await client.read_resource("x://text")).contents
        assert (text.mime_type, text.text) == ("text/x-own", "hello")
        with pytest.raises(PeerError, match="Internal error"):
            await client.read_resource("x://gone")


def test_it_is_made_of_one_thing_that_can_be_read():
    for made in (Image, lambda: Image(b"x", path="y"), lambda: Image(path="y", data=b"x")):
        with pytest.raises(SetupError, match="Image takes one of a path, bytes, an open file"):
            made()
    with pytest.raises(SetupError, match="Audio cannot be made of int"):
        Audio(5)


def test_only_what_is_long_or_elsewhere_needs_a_thread():
    assert is_quick([Image(b"x"), "text"])
    assert not is_quick([Image(b"x"), Image("x.png")])
    assert not is_quick(Image(b"x" * 100_000))
    assert holds_media(("a", Image(b"x")))
    assert not holds_media({"a": Image(b"x")})
    assert holds_media([{"n": 1}, MappingProxyType({"role": "user", "content": [Image(b"x")]})])
    assert not holds_media([{"role": "user", "content": "x"}, {"role": "user", "more": Image(b"x")}, 1])
