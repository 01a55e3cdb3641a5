"""Every name, file and link the documents show exists."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import doc_names
import doc_pages
import pytest
from doc_pages import PROJECT, Block

import ferrule
from ferrule import Client, Context, Server
from ferrule.routing.settings import RoutingSettings
from ferrule.server.offers.descriptions import ToolOptions
from ferrule.server.offers.prompts import PromptOptions
from ferrule.server.offers.resource_entry import ResourceOptions

RECEIVERS = {"app": Server, "ctx": Context, "client": Client}
OPTIONS = {"tool": ToolOptions, "resource": ResourceOptions, "prompt": PromptOptions}

SPAN = re.compile(r"`([^`\n]+)`")
MEMBER = re.compile(r"(?<![\w./])(app|ctx|client)\.(?!py\b)([a-z_]+[a-z])\b")
QUALIFIED = re.compile(r"^([A-Z]\w+)\.(?!md$|py$)(\w+)")
DOTTED = re.compile(r"^ferrule(?:\.\w+)+")
PATH = re.compile(r"^[\w-]+(?:/[\w.-]+)*/(?:[\w-]+\.(?:py|toml|md))?$")
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)\)")
MAKE = re.compile(r"make ([a-z-]+)")

PYTHON = doc_pages.python_blocks(doc_pages.PAGES)


def spans(page: Path) -> Iterator[str]:
    """Yield what stands between backquotes in a page's prose."""
    for line in ours(doc_pages.prose(page).splitlines()):
        yield from SPAN.findall(line)


def ours(lines: list[str]) -> Iterator[str]:
    """Leave out the names of others: the first column of a table whose head says `there`."""
    theirs = False
    for line in lines:
        theirs = line.startswith("| there |") or (theirs and line.startswith("|"))
        yield line.split(" | ", 1)[-1] if theirs else line


def block_ids(block: Block) -> str:
    return block.name


def page_ids(page: Path) -> str:
    return str(page.relative_to(PROJECT))


each_page = pytest.mark.parametrize("page", doc_pages.PAGES, ids=page_ids)
each_block = pytest.mark.parametrize("block", PYTHON, ids=block_ids)


def parsed(block: Block) -> ast.Module:
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    return compile(block.code, block.name, "exec", flags=flags, dont_inherit=True)


@each_block
def test_what_a_block_imports_from_ferrule_exists(block: Block):
    for node in ast.walk(parsed(block)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "ferrule":
            module = importlib.import_module(str(node.module))
            assert [alias.name for alias in node.names if not hasattr(module, alias.name)] == []


@each_block
def test_the_methods_and_options_a_block_uses_exist(block: Block):
    wrong = []
    for node in ast.walk(parsed(block)):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in RECEIVERS:
            owner = RECEIVERS[node.value.id]
            wrong += [] if doc_names.has(owner, node.attr) else [f"{node.value.id}.{node.attr}"]
        if isinstance(node, ast.Call):
            wrong += unknown_options(node)
    assert wrong == []


def unknown_options(call: ast.Call) -> list[str]:
    """Return the keywords of a call of Server, Client or a decorator that nobody takes."""
    given = [keyword.arg for keyword in call.keywords if keyword.arg]
    if isinstance(call.func, ast.Name) and call.func.id in doc_names.SETTINGS:
        settings = doc_names.SETTINGS[call.func.id]
        named = inspect.signature(RECEIVERS["app" if call.func.id == "Server" else "client"]).parameters
        known = {*settings.__struct_fields__, *named}
        if call.func.id == "Client":
            known |= {*RoutingSettings.__struct_fields__}
    elif isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) == "app" and call.func.attr in OPTIONS:
        known = {*OPTIONS[call.func.attr].__struct_fields__}
    else:
        return []
    return [f"{ast.unparse(call.func)}({name}=)" for name in given if name not in known]


@each_page
def test_the_methods_the_prose_names_exist(page: Path):
    found = [match for span in spans(page) for match in MEMBER.findall(span)]
    assert [f"{r}.{name}" for r, name in found if not doc_names.has(RECEIVERS[r], name)] == []


@each_page
def test_the_classes_and_their_members_the_prose_names_exist(page: Path):
    found = [match.groups() for span in spans(page) if (match := QUALIFIED.match(span))]
    missing = [
        f"{owner}.{name}"
        for owner, name in found
        if not any(doc_names.has(each, name) for each in doc_names.CLASSES.get(owner, ()))
    ]
    assert missing == []


@each_page
def test_the_dotted_names_the_prose_shows_exist(page: Path):
    missing = []
    for span in spans(page):
        match = DOTTED.match(span)
        if match and not exists(match[0]) and match[0] not in LOGGERS:
            missing.append(match[0])
    assert missing == []


LOGGERS = {"ferrule.calls", "ferrule.dispatch", "ferrule.link", "ferrule.observer", "ferrule.toml"}
"""Names that look like modules and are not."""


def exists(dotted: str) -> bool:
    """Return whether a dotted name is a module, or something in one."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:count]))
        except ModuleNotFoundError:
            continue
        for name in parts[count:]:
            if not hasattr(value, name):
                return False
            value = getattr(value, name)
        return True
    return False


@each_page
def test_the_files_and_folders_the_prose_names_exist(page: Path):
    named = [span for span in spans(page) if PATH.match(span)]
    places = (PROJECT, PROJECT / "src" / "ferrule", page.parent)
    assert [name for name in named if not any((place / name).exists() for place in places)] == []


@each_page
def test_the_links_of_a_page_lead_somewhere(page: Path):
    links = LINK.findall(doc_pages.prose(page))
    assert [link for link in links if not (page.parent / link).exists()] == []


@each_page
def test_the_make_targets_a_page_names_exist(page: Path):
    makefile = (PROJECT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    named = {match for span in spans(page) for match in MAKE.findall(span)}
    assert named - targets == set()


@each_page
def test_a_page_names_no_place_of_one_machine(page: Path):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<![\w.:/])/(?:work|root|home|Users|mnt)/\S*", text) == []


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [doc_pages.ROOT_PAGES[0]]
    while waiting:
        page = waiting.pop().resolve()
        pages = sorted(page.glob("*.md")) if page.is_dir() else [page]
        for each in pages:
            if each.suffix == ".md" and each not in seen:
                seen.add(each)
                waiting += [each.parent / link for link in LINK.findall(doc_pages.prose(each))]
    assert {page.resolve() for page in doc_pages.PAGES} - seen == set()


def test_the_public_names_are_all_there():
    assert [name for name in ferrule.__all__ if not hasattr(ferrule, name)] == []


DESIGN = sorted((PROJECT / "docs" / "design").glob("*.md"))
HOUSE = PROJECT / "docs" / "design" / "house.md"
SOURCE = PROJECT / "src" / "ferrule"


def drawings(page: Path) -> str:
    """Return the text of the drawings of a page: its blocks in no language."""
    return "\n".join(block.code for block in doc_pages.blocks(page) if not block.language)


@pytest.mark.parametrize("page", DESIGN, ids=page_ids)
def test_the_functions_and_files_a_drawing_names_exist(page: Path):
    drawn = drawings(page)
    members = re.findall(r"\b([A-Z]\w+)\.(\w+)", drawn)
    missing = [
        f"{owner}.{name}"
        for owner, name in members
        if not any(doc_names.has(each, name) for each in doc_names.CLASSES.get(owner, ()))
    ]
    missing += [path for path in re.findall(r"\b(?:\w+/)+\w+\.py\b", drawn) if not (SOURCE / path).exists()]
    assert missing == []


def test_the_plan_of_the_house_has_every_room_and_no_other():
    text = drawings(HOUSE)
    rooms: dict[str, set[str]] = {}
    folder = ""
    for line in text.splitlines():
        if found := re.match(r"[├└]─ (\w+)/", line):
            folder = found[1]
            rooms[folder] = set()
        elif folder and (found := re.match(r"│    ([\w ]+?)(?:  .*)?$", line)):
            rooms[folder] |= set(found[1].split())
    built = {
        path.name: {module.stem for module in path.glob("*.py") if module.stem != "__init__"}
        for path in SOURCE.iterdir()
        if (path / "__init__.py").exists()
    }
    assert rooms.keys() == built.keys()
    # A folder may be described as a whole; one whose modules are named must name them all.
    wrong = {name: rooms[name] ^ built[name] for name in built if rooms[name] and rooms[name] != built[name]}
    assert wrong == {}, "docs/design/house.md draws the folders: add these modules there, or take them out"
