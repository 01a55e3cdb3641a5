"""The page to log in at is opened in a browser, without a shell, or not at all."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path

import pytest

from ferrule import AuthorizationFailed
from ferrule.auth.address import AddressRules
from ferrule.auth.client.browser import has_browser, judge_login_url, open_browser

FORBIDDEN = [
    "javascript:alert(1)",
    "data:text/html,x",
    "vbscript:x",
    "file:///etc/passwd",
    "http://evil.example/authorize",
    "https://evil.example/a b",
    "https://evil.example/$(touch x)",
    "https://evil.example/`x`",
    'https://evil.example/"x',
    "https://evil.example/x\n",
    "https://evil.example/\\x",
    "https://user@evil.example/x",
    "https://evil.example/x#fragment",
    "https://evil.example/?x=%action",
    "https://127.0.0.1/authorize",
    "https://169.254.169.254/",
    "--flag",
    "",
]


@pytest.mark.parametrize("url", FORBIDDEN)
def test_what_is_no_page_to_log_in_at_is_not_opened(url: str) -> None:
    """AUT-07, SEC-11 (CVE-2025-6514)"""
    with pytest.raises(AuthorizationFailed, match="is not opened"):
        judge_login_url(url, AddressRules())


@pytest.mark.parametrize("url", ["https://as.example/authorize?a=b&c=%2F", "https://as.example:8443/x"])
def test_a_page_to_log_in_at_may_be_opened(url: str) -> None:
    judge_login_url(url, AddressRules())


def test_this_machine_is_a_place_to_log_in_at_where_the_server_is_here_too() -> None:
    """SEC-11"""
    judge_login_url("http://127.0.0.1:9/authorize", AddressRules(loopback=True))
    with pytest.raises(AuthorizationFailed):
        judge_login_url("http://evil.example/", AddressRules(loopback=True))


async def test_the_browser_gets_exactly_the_url_and_no_shell_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AUT-07: the arguments of a real program."""
    seen = tmp_path / "seen"
    program = tmp_path / "browser"
    program.write_text(f"#!{sys.executable}\nimport sys\nopen({str(seen)!r}, 'w').write('\\n'.join(sys.argv[1:]))\n")
    program.chmod(0o755)
    monkeypatch.setenv("BROWSER", f"{program} %s")
    monkeypatch.setattr(webbrowser, "_tryorder", None)
    monkeypatch.setattr(webbrowser, "_browsers", {})
    url = "https://as.example/authorize?state=a;b&x=$HOME&y=%20&z=*"
    assert await open_browser(url)
    assert seen.read_text() == url


def test_without_a_screen_there_is_no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    assert not has_browser()
