"""Build the documentation: `python docs/site/build.py [FOLDER]` writes a static site, by default to build/site.

It needs no network, and fails where a link leads nowhere or a page cannot be found from the navigation.
"""

from __future__ import annotations

import html
import json
import shutil
import sys
from pathlib import Path, PurePosixPath
from string import Template

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from page import Page, colour  # noqa: E402
from site_map import PROJECT, BrokenSite, Section, Site, address_of  # noqa: E402

ASSETS = ("style.css", "site.js")
LAYOUT = Template((HERE / "layout.html").read_text(encoding="utf-8"))
ABOUT = "Ferrule is a Python runtime for the Model Context Protocol: server and client, every protocol revision."
LONGEST_TEXT = 600
"""Characters of a section that can be searched for."""


def build(site: Site, folder: Path) -> int:
    """Write the site into an empty folder; return how many pages it has."""
    problems = site.problems()
    if problems:
        raise BrokenSite("\n".join(problems))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ASSETS:
        shutil.copy(HERE / name, folder / name)
    shutil.copy(site.project / "LICENSE", folder / "license.txt")
    write_search(site, folder / "search.js")
    write_llms(site, folder)
    for page in site.pages:
        markdown = site.lead(page)
        write(folder, page.address, shown(site, page))
        # For readers that are programs.
        write(folder, page.address.with_suffix(".md"), markdown)
    for program in site.programs:
        write(folder, address_of(program, site.project), shown_program(site, program))
    return len(site.pages) + len(site.programs)


def write(folder: Path, address: PurePosixPath, text: str) -> None:
    """Write one file of the site."""
    path = folder / address
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def shown(site: Site, page: Page) -> str:
    """Return a page within the layout."""
    return LAYOUT.substitute(
        title=html.escape(page.title),
        summary=html.escape(page.summary[:200], quote=True),
        root=page.root,
        navigation=navigation(site.sections, page.address, page.root),
        outline=outline(page),
        body=page.render(),
    )


def shown_program(site: Site, program: Path) -> str:
    """Return an example within the layout."""
    address = address_of(program, site.project)
    root = "../" * (len(address.parts) - 1)
    name = html.escape(program.name)
    language = "python" if program.suffix == ".py" else "docker"
    code = colour(program.read_text(encoding="utf-8"), language)
    body = f'<h1>{name}</h1><figure class="code"><pre tabindex="0"><code>{code}</code></pre></figure>'
    menu = navigation(site.sections, address, root)
    return LAYOUT.substitute(title=name, summary=name, root=root, navigation=menu, outline="", body=body)


def navigation(sections: list[Section], here: PurePosixPath, root: str) -> str:
    """Return the links to all pages, with the section of this page open."""
    parts = []
    for section in sections:
        links = []
        for page in section.pages:
            current = ' aria-current="page"' if page.address == here else ""
            links.append(f'<li><a href="{root}{page.address}"{current}>{html.escape(page.label)}</a></li>')
        state = " open" if any(page.address == here for page in section.pages) or section is sections[0] else ""
        parts.append(f"<details{state}><summary>{section.title}</summary><ul>{''.join(links)}</ul></details>")
    return "\n".join(parts)


def outline(page: Page) -> str:
    """Return links to the headings of a page; empty for one that has few."""
    found = [heading for heading in page.headings if heading.level == 2]
    if len(found) < 2:
        return ""
    links = [f'<li><a href="#{each.anchor}">{html.escape(each.title)}</a></li>' for each in found]
    return f'<nav class="outline" aria-label="On this page"><p>On this page</p><ul>{"".join(links)}</ul></nav>'


def write_search(site: Site, path: Path) -> None:
    """Write the index that the page searches: page, heading, address and text of every section."""
    rows = []
    for page in site.pages:
        for heading in page.headings:
            anchor = "" if heading.level == 1 else f"#{heading.anchor}"
            rows.append([page.title, heading.title, f"{page.address}{anchor}", heading.text[:LONGEST_TEXT]])
    path.write_text(f"window.SEARCH = {json.dumps(rows, ensure_ascii=False)};\n", encoding="utf-8")


def write_llms(site: Site, folder: Path) -> None:
    """Write llms.txt, a list of the pages for models, and llms-full.txt, the pages themselves."""
    lines = ["# Ferrule", "", f"> {ABOUT}"]
    full = []
    for section in site.sections:
        # Readers of llms.txt leave out what is headed by this word when they have little room.
        lines += ["", f"## {'Optional' if section.optional else section.title}", ""]
        for page in section.pages:
            lines.append(f"- [{page.label}]({page.address.with_suffix('.md')}): {page.summary}")
            if not section.optional:
                full.append(page.text.strip())
    (folder / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / "llms-full.txt").write_text("\n\n---\n\n".join(full) + "\n", encoding="utf-8")


def main() -> int:
    """Build the site; print what is wrong where it cannot be."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "build" / "site"
    try:
        count = build(Site(), folder)
    except BrokenSite as error:
        sys.stderr.write(f"{error}\n")
        return 1
    sys.stdout.write(f"{count} pages: {folder / 'index.html'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
