"""Pictures on a terminal."""

from __future__ import annotations

import base64
import io
import re

import pytest
from tram_shop import PNG

from ferrule.cli.media import MOST_SHOWN, ContentWriter, drawn, picture_protocol
from ferrule.cli.output import Output
from ferrule.schema.content import AudioContent, EmbeddedResource, ImageContent, ResourceContents, ResourceLink

KITTY = re.compile(rb"\x1b_G([^;]*);([^\x1b]*)\x1b\\")


class Screen(io.TextIOWrapper):
    """A terminal whose bytes can be looked at."""

    def __init__(self) -> None:
        self.written = io.BytesIO()
        super().__init__(self.written, encoding="utf-8", write_through=True)

    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """A terminal that shows no pictures."""
    for name in ("TERM_PROGRAM", "LC_TERMINAL", "KITTY_WINDOW_ID"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return Screen()


@pytest.mark.parametrize(
    ("environment", "protocol"),
    [
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM_PROGRAM": "ghostty"}, "kitty"),
        ({"TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "xterm-256color"}, ""),
    ],
)
def test_a_terminal_is_known_by_its_environment(environment: dict[str, str], protocol: str) -> None:
    assert picture_protocol(environment) == protocol


def test_kitty_gets_the_picture_in_pieces() -> None:
    pieces = KITTY.findall(drawn(PNG, "kitty"))
    assert [head for head, _ in pieces] == [b"a=T,f=100,m=1", b"m=1", b"m=0"]
    assert max(len(piece) for _, piece in pieces) == 4096
    assert base64.b64decode(b"".join(piece for _, piece in pieces)) == PNG


def test_iterm_gets_the_picture_at_once() -> None:
    start, _, encoded = drawn(PNG, "iterm").rstrip(b"\x07\n").partition(b":")
    assert start == b"\x1b]1337;File=inline=1;size=%d" % len(PNG)
    assert base64.b64decode(encoded) == PNG


def test_what_a_terminal_cannot_show_is_not_sent() -> None:
    assert drawn(b"GIF89a", "kitty") == b""
    assert drawn(PNG, "") == b""
    assert drawn(PNG + bytes(MOST_SHOWN), "iterm") == b""


def test_a_picture_is_shown_or_described(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    block = ImageContent(base64.b64encode(PNG).decode(), "image/png")
    writer = ContentWriter(Output(out=screen), "x", None)
    writer.block(block)
    assert screen.written.getvalue() == b"[image/png, %d bytes: --save DIR keeps it]\n" % len(PNG)
    monkeypatch.setenv("KITTY_WINDOW_ID", "1")
    writer.block(block)
    assert drawn(PNG, "kitty") in screen.written.getvalue()


def test_what_is_no_base64_never_reaches_the_terminal(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")
    said = io.StringIO()
    writer = ContentWriter(Output(out=screen, err=said), "x", None)  # type: ignore[arg-type]
    writer.block(ImageContent("\x1b[2J", "image/png\x1b[2J"))
    writer.block(AudioContent("AAAA", "audio/wav\x1b[2J"))
    writer.block(ResourceLink("x://\x1b[2J", "name"))
    writer.block(EmbeddedResource(ResourceContents(uri="x://y", text="\x1b[2J")))
    assert b"\x1b" not in screen.written.getvalue()
    assert "\x1b" not in said.getvalue()
