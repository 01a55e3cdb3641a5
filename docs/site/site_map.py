"""The site: which files are its pages, where each is, and whether every link leads somewhere."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from page import Page, target_of

PROJECT = Path(__file__).resolve().parents[2]
CONTENTS = Path(__file__).with_name("contents.toml")
ELSEWHERE = ("https://", "http://", "mailto:")
NAMES = {"README.md": "overview.html", "bench/results/README.md": "benchmarks.html"}
"""Addresses that do not follow from the place of the file."""


class BrokenSite(Exception):
    """What is wrong with the documents, a line each."""


@dataclass(frozen=True)
class Section:
    """A part of the navigation."""

    title: str
    pages: list[Page]
    optional: bool = False
    """Whether a reader with little room can leave it out: it is not in llms-full.txt."""


def address_of(source: Path, project: Path = PROJECT) -> PurePosixPath:
    """Return where a file is in the site."""
    place = source.relative_to(project).as_posix()
    if place in NAMES:
        return PurePosixPath(NAMES[place])
    within = PurePosixPath(place.removeprefix("docs/"))
    if within.name == "README.md":
        return within.with_name("index.html")
    if len(within.parts) == 1 and within.stem.isupper():
        return PurePosixPath(f"{within.stem.lower()}.html")
    return within.with_suffix(".html")


class Site:
    """All pages, by section and by file."""

    def __init__(self, project: Path = PROJECT, contents: Path = CONTENTS) -> None:
        self.project = project
        told = tomllib.loads(contents.read_text(encoding="utf-8"))
        self._titles: dict[str, str] = told.get("titles", {})
        self.sections = [
            Section(each["title"], [self._page(place) for place in each["pages"]], each.get("optional", False))
            for each in told["section"]
        ]
        listed = [page for section in self.sections for page in section.pages]
        unlisted = sorted(path for pattern in told["unlisted"] for path in project.glob(pattern))
        self.pages = [*listed, *(self._page(path.relative_to(project).as_posix()) for path in unlisted)]
        self.programs = [*sorted((project / "examples").rglob("*.py")), project / "release" / "Dockerfile"]
        """Files that are shown as they are."""
        self._addresses = {page.source: page.address for page in self.pages}
        self._addresses |= {path: address_of(path, project) for path in self.programs}
        self._anchors = {page.source: {heading.anchor for heading in page.headings} for page in self.pages}

    def _page(self, place: str) -> Page:
        source = self.project / place
        if not source.is_file():
            raise BrokenSite(f"contents.toml: there is no {place}")
        return Page(source, address_of(source, self.project), self._titles.get(place, ""))

    def problems(self) -> list[str]:
        """Return what is wrong: pages nobody can find, links that lead nowhere."""
        known = {page.source for page in self.pages}
        missing = [path for path in sorted((self.project / "docs").rglob("*.md")) if path not in known]
        found = [f"{self._name(path)} is not in contents.toml: add it to a section" for path in missing]
        for page in self.pages:
            for token in page.links:
                problem = self._problem(page, target_of(token))
                if problem:
                    found.append(f"{self._name(page.source)}: {target_of(token)}: {problem}")
        return found

    def _name(self, path: Path) -> str:
        return path.relative_to(self.project).as_posix()

    def _problem(self, page: Page, link: str) -> str:
        if link.startswith(ELSEWHERE):
            return ""
        place, _, anchor = link.partition("#")
        source = self._source(page, place)
        if not source.exists():
            return "there is no such file"
        if source not in self._addresses and source.suffix != ".svg" and source.name != "LICENSE":
            return "is not a page of the site"
        if anchor and anchor not in self._anchors.get(source, ()):
            return f"has no heading #{anchor}"
        return ""

    def _source(self, page: Page, place: str) -> Path:
        """Return the file a link means; a folder means its README.md."""
        source = (page.source.parent / place).resolve() if place else page.source
        if source.is_dir():
            return source / "README.md"
        return source

    def lead(self, page: Page) -> str:
        """Let the links of a page lead to pages of the site; return its Markdown with links to theirs."""
        text = page.text
        for token in page.links:
            link = target_of(token)
            place, mark, anchor = link.partition("#")
            if token.type == "image" or link.startswith(ELSEWHERE) or not place:
                continue
            address = self._addresses.get(self._source(page, place)) or PurePosixPath("license.txt")
            token.attrs["href"] = f"{page.root}{address}{mark}{anchor}"
            if address.suffix == ".html" and not place.endswith(".py"):
                text = text.replace(f"]({link})", f"]({page.root}{address.with_suffix('.md')}{mark}{anchor})")
        return text
