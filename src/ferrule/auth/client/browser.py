"""Sending a person to a login page, and reading what they paste where no browser of ours gets an answer.

Rule: a URL is judged before anything is started with it, and no shell ever sees it (MCP security best practices).
"""

from __future__ import annotations

import asyncio
import os
import sys
import webbrowser

from ferrule.auth.address import AddressRefused, AddressRules
from ferrule.errors import AuthorizationFailed


def judge_login_url(url: str, rules: AddressRules) -> None:
    """Refuse a URL that is no page to log in at: only https, and http on this machine where that is allowed."""
    try:
        # Longer than what is fetched may be: it carries our own parameters.
        rules.judge_url(url.partition("?")[0])
    except AddressRefused as reason:
        raise AuthorizationFailed(f"the page to log in at is not opened: {reason}") from None
    if any(not "!" <= character <= "~" or character in "\"'`\\<>" for character in url):
        raise AuthorizationFailed("the page to log in at is not opened: its URL has characters that may not be in one")
    if "%action" in url or "#" in url:
        # The first means something to a browser's command line in `webbrowser`.
        raise AuthorizationFailed("the page to log in at is not opened: its URL has a fragment or a placeholder")


def has_browser() -> bool:
    """Return whether there is a browser to open a page with."""
    if sys.platform.startswith("linux") and not os.environ.get("BROWSER"):
        # A browser in a terminal would take the terminal away from the program.
        if not os.environ.get("DISPLAY") and not os.environ.get("WAYLAND_DISPLAY"):
            return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


async def open_browser(url: str) -> bool:
    """Open a page in the person's browser; False where there is none."""
    if not has_browser():
        return False
    try:
        return await asyncio.to_thread(webbrowser.open, url)
    except (webbrowser.Error, OSError):
        return False


def can_paste() -> bool:
    """Return whether somebody sits at a terminal."""
    try:
        return sys.stdin is not None and sys.stdin.isatty() and os.name == "posix"
    except ValueError:
        return False


async def pasted_line() -> str:
    """Return the next line a person pastes; it waits for ever where none comes."""
    loop = asyncio.get_running_loop()
    line: asyncio.Future[str] = loop.create_future()

    def ready() -> None:
        text = sys.stdin.readline()
        if text.strip() and not line.done():
            line.set_result(text.strip())
        elif not text:
            loop.remove_reader(sys.stdin)

    loop.add_reader(sys.stdin, ready)
    try:
        return await line
    finally:
        loop.remove_reader(sys.stdin)
