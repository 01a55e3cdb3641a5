"""The Python in the documents runs, and prints what the documents say it prints.

A block with a title is a file. The files of the README, of the home page, of docs/start together, and of each guide
share a folder. A file whose name begins with test_ is given to pytest, one that is followed by a text block is run and
must print just that, and any other is served and asked what it offers. Blocks without a title are fragments: they must
compile.
"""

from __future__ import annotations

import ast
import asyncio
import sys
from pathlib import Path

import doc_pages
import pytest
from doc_pages import Block

from ferrule import Client
from ferrule.testing import ERAS
from patience import PATIENT

GROUPS = [[doc_pages.ROOT_PAGES[0]], [doc_pages.HOME], doc_pages.START, *([guide] for guide in doc_pages.GUIDES)]
GROUP_OF = {page: number for number, group in enumerate(GROUPS) for page in group}

ALL = doc_pages.python_blocks([page for group in GROUPS for page in group])
TITLED = [block for block in ALL if block.title]
SCRIPTS = [block for block in TITLED if block.prints is not None]
TESTS = [block for block in TITLED if block.title.startswith("test_")]
SERVERS = [block for block in TITLED if block not in SCRIPTS and block not in TESTS]
FRAGMENTS = [block for block in ALL if not block.title]


def named(some: list[Block]) -> list[pytest.ParameterSet]:
    return [pytest.param(block, id=f"{block.page.stem}-{block.title or block.line}") for block in some]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write the titled blocks of each group into a folder."""
    made = [tmp_path_factory.mktemp(f"docs{number}") for number in range(len(GROUPS))]
    for block in TITLED:
        (made[GROUP_OF[block.page]] / block.title).write_text(block.code, encoding="utf-8")
    return made


def test_the_readme_and_every_start_page_show_code_that_runs():
    pages = {block.page for block in TITLED}
    assert pages >= {doc_pages.ROOT_PAGES[0], *doc_pages.START}


def test_no_two_blocks_of_a_group_claim_the_same_file():
    claimed = [(GROUP_OF[block.page], block.title) for block in TITLED]
    assert len(claimed) == len(set(claimed))


@pytest.mark.parametrize("block", named(ALL))
def test_a_block_compiles(block: Block):
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT | ast.PyCF_ONLY_AST
    compile(block.code, block.name, "exec", flags=flags, dont_inherit=True)


@pytest.mark.parametrize("block", named(SCRIPTS))
def test_a_script_prints_what_the_page_says(block: Block, folders: list[Path]):
    done = doc_pages.run([block.title], folders[GROUP_OF[block.page]])
    assert done.returncode == 0, done.stderr
    assert done.stdout == block.prints


@pytest.mark.parametrize("block", named(TESTS))
def test_a_test_of_the_documents_passes(block: Block, folders: list[Path]):
    done = doc_pages.run(["-m", "pytest", "-q", "-p", "no:cacheprovider", block.title], folders[GROUP_OF[block.page]])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("block", named(SERVERS))
def test_a_server_of_the_documents_serves(block: Block, era: str, folders: list[Path]):
    async def offered() -> int:
        command = [sys.executable, "-m", "ferrule", "run", block.title]
        folder = str(folders[GROUP_OF[block.page]])
        async with Client(command, mode=era, cwd=folder, stderr="capture", **PATIENT) as client:
            lists = [client.list_tools, client.list_resources, client.list_resource_templates, client.list_prompts]
            capabilities = client.server_capabilities
            given = [bool(capabilities and getattr(capabilities, name)) for name in ("tools", "resources", "prompts")]
            wanted = [given[0], given[1], given[1], given[2]]
            return sum([len(await each()) for each, wants in zip(lists, wanted, strict=True) if wants])

    assert asyncio.run(offered()) > 0


def test_the_first_programs_pass_a_strict_type_checker(folders: list[Path]):
    start = folders[GROUP_OF[doc_pages.START[0]]]
    names = [block.title for block in TITLED if block.page in doc_pages.START and block not in TESTS]
    assert "reader.py" in names
    done = doc_pages.run(["-m", "mypy", "--strict", "--no-incremental", *names], start)
    assert done.returncode == 0, done.stdout
