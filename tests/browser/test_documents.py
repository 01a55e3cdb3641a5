"""The documentation in a real browser: it fits wide and narrow screens, its search finds, its colours change."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parents[2]
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGES = ("index.html", "guides/http.html", "guides/troubleshooting.html", "design/walk.html", "reference.html")
WIDTHS = (1360, 390)


@pytest.mark.skipif(BROWSER is None, reason="there is no Chromium on this machine")
def test_the_pages_fit_and_search_leads_to_a_page(tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    built = [sys.executable, str(PROJECT / "docs" / "site" / "build.py"), str(tmp_path)]
    subprocess.run(built, check=True, capture_output=True, timeout=120)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            for name in PAGES:
                page.goto((tmp_path / name).as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
        assert page.is_hidden("#navigation")
        page.click("#menu")
        assert page.is_visible("#navigation")
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.click("#theme")
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") != before
        page.fill("#search", "several workers")
        page.wait_for_selector("#found a")
        with page.expect_navigation():
            page.keyboard.press("Enter")
        assert page.url == (tmp_path / "guides" / "workers.html").as_uri()
        browser.close()
    assert errors == []
