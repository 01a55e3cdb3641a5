"""The site is whole: every page can be found, every link leads somewhere, and what is broken is told."""

from __future__ import annotations

import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import doc_pages
import pytest

import build
import ferrule
from ferrule.cli.new import SERVER
from ferrule.protocol.handshake import REVISIONS
from page import slug
from site_map import BrokenSite, Site


@pytest.fixture(scope="module")
def site() -> Site:
    return Site()


@pytest.fixture(scope="module")
def folder(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("site")
    assert build.build(site, made) > 100
    return made


class Reader(HTMLParser):
    """Reads the links and the anchors of a page, and whether what is opened is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [value for name in ("href", "src") if (value := given.get(name))]
        self.anchors |= {given["id"]} if given.get("id") else set()
        if tag not in ("meta", "link", "input", "br", "img", "hr"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, tag


def test_every_link_of_the_built_site_leads_to_a_file_and_an_anchor(folder: Path) -> None:
    pages = {path: Reader(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html")}
    broken = []
    for path, read in pages.items():
        assert read.open == [], path
        for link in read.links:
            place, _, anchor = link.partition("#")
            if link.startswith(("https://", "http://", "data:")):
                continue
            target = (path.parent / place).resolve() if place else path
            if not target.is_file() or (anchor and anchor not in pages[target].anchors):
                broken.append(f"{path.relative_to(folder)}: {link}")
    assert broken == []


def test_the_site_has_search_and_lists_for_models(site: Site, folder: Path) -> None:
    index = (folder / "search.js").read_text(encoding="utf-8")
    assert "Graceful shutdown" in index
    listed = re.findall(r"\]\(([^)]+\.md)\)", (folder / "llms.txt").read_text(encoding="utf-8"))
    assert len(listed) == sum(len(section.pages) for section in site.sections)
    assert [name for name in listed if not (folder / name).is_file()] == []
    full = (folder / "llms-full.txt").read_text(encoding="utf-8")
    assert [page.title for page in site.sections[0].pages if page.text.strip() not in full] == []


def test_the_site_needs_nothing_from_elsewhere(folder: Path) -> None:
    loads = re.compile(r"<(?:script|link|img)[^>]+(?:src|href)=\"https?:")
    pages = folder.rglob("*.html")
    assert [path.name for path in pages if loads.search(path.read_text(encoding="utf-8"))] == []
    assert not re.search(r"@import|url\(", (folder / "style.css").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("# Bad\n\n[gone](gone.md)\n", "docs/index.md: gone.md: there is no such file"),
        ("# Bad\n\n[gone](#gone)\n", "docs/index.md: #gone: has no heading #gone"),
        ("# Bad\n\n[file](../pyproject.toml)\n", "docs/index.md: ../pyproject.toml: is not a page of the site"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(text: str, told: str, tmp_path: Path) -> None:
    project = small_project(tmp_path, text)
    with pytest.raises(BrokenSite) as error:
        build.build(Site(project, project / "contents.toml"), tmp_path / "out")
    assert str(error.value) == told


def test_a_page_nobody_can_find_fails_the_build(tmp_path: Path) -> None:
    project = small_project(tmp_path, "# Good\n")
    (project / "docs" / "lost.md").write_text("# Lost\n")
    assert Site(project, project / "contents.toml").problems() == [
        "docs/lost.md is not in contents.toml: add it to a section"
    ]


def small_project(tmp_path: Path, text: str) -> Path:
    """Make a project of one page."""
    project = tmp_path / "project"
    (project / "docs").mkdir(parents=True)
    (project / "docs" / "index.md").write_text(text)
    (project / "contents.toml").write_text('unlisted = []\n[[section]]\ntitle = "Start"\npages = ["docs/index.md"]\n')
    shutil.copy(doc_pages.PROJECT / "pyproject.toml", project)
    return project


def test_an_anchor_is_what_github_makes_of_a_heading() -> None:
    assert slug("HTTP/2") == "http2"
    assert slug("Health checks, and graceful shutdown") == "health-checks-and-graceful-shutdown"


def test_the_first_page_shows_the_server_that_new_makes() -> None:
    [block] = doc_pages.python_blocks([doc_pages.PROJECT / "docs" / "start" / "first.md"])
    assert block.code == SERVER.format(name="hello")


def test_the_page_of_versions_has_every_revision() -> None:
    text = (doc_pages.PROJECT / "docs" / "guides" / "versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d{4}-\d\d-\d\d) \| handshake \|", text, re.MULTILINE)
    assert rows == sorted(REVISIONS)
    assert re.findall(r"^\| (\d{4}-\d\d-\d\d) \| stateless \|", text, re.MULTILINE) == ["2026-07-28"]


def test_the_files_a_drawing_names_exist() -> None:
    drawings = sorted((doc_pages.PROJECT / "docs").rglob("*.svg"))
    assert len(drawings) >= 2
    source = Path(ferrule.__file__).parent
    for drawing in drawings:
        named = re.findall(r">((?:\w+/)+(?:\w+\.py)?)<", drawing.read_text(encoding="utf-8"))
        assert len(named) >= 4, drawing.name
        assert [name for name in named if not (source / name).exists()] == []
