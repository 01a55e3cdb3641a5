"""Probes of how much a skill and a folder of skills may hold, and of the front matter of a skill."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from table import no_bound, probe

from ferrule import Client, Server, SetupError
from ferrule.client.features import skills as loading
from ferrule.client.features.skills import check_bounds
from ferrule.errors import ContentMismatch
from ferrule.schema.skills import Skill, SkillResource
from ferrule.server.extensions import skill_folder
from ferrule.server.extensions import skills as serving
from ferrule.server.extensions.skills import Skills
from ferrule.validation import frontmatter
from ferrule.validation.frontmatter import front_matter, read_yaml
from ferrule.validation.yaml_scalars import Malformed

HEAD = "---\nname: one\ndescription: About one\n---\n"


@contextlib.contextmanager
def a_skill(text: str = HEAD) -> Iterator[Path]:
    """Make a folder with one skill. Return the folder of the skill."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "one"
        place.mkdir()
        (place / "SKILL.md").write_text(text)
        yield place


def served(place: Path, max_file_size: int = 10**9) -> bool:
    """Return whether a skill is served."""
    try:
        return len(Skills(place.parent, max_file_size=max_file_size).found) == 1
    except SetupError:
        return False


def loaded(*sizes: int) -> bool:
    """Return whether a client loads a skill with files of these sizes."""
    files = [SkillResource(uri=f"skill://one/{number}", digest="", size=size) for number, size in enumerate(sizes)]
    try:
        check_bounds(Skill(uri="skill://one/SKILL.md", frontmatter={}, resources=files), dynamic=False)
    except ContentMismatch:
        return False
    return True


@probe("Skills(max_file_size=…)", lowered=1000)
async def a_file(limit: int, size: int) -> bool:
    with a_skill() as place:
        (place / "long").write_bytes(b"x" * size)
        return served(place, limit)


no_bound("Skills(watch=…)", "our own pause between two looks at the folders")


@probe("ferrule.schema.skills.MOST_FILES", lowered=3)
async def files(limit: int, size: int) -> bool:
    with (
        mock.patch.object(skill_folder, "MOST_FILES", limit),
        mock.patch.object(loading, "MOST_FILES", limit),
        a_skill() as place,
    ):
        for number in range(size - 1):
            (place / str(number)).touch()
        taken = served(place)
        assert loaded(*[0] * size) is taken
    return taken


@probe("ferrule.schema.skills.MOST_BYTES", lowered=1000)
async def bytes_of_a_skill(limit: int, size: int) -> bool:
    with (
        mock.patch.object(skill_folder, "MOST_BYTES", limit),
        mock.patch.object(loading, "MOST_BYTES", limit),
        a_skill() as place,
    ):
        (place / "more").write_bytes(b"x" * (size - len(HEAD)))
        taken = served(place)
        assert loaded(size - 10, 10) is taken
        assert loaded(size, -10) is taken
    return taken


@probe("ferrule.server.extensions.skill_folder.MOST_ENTRIES", lowered=3)
async def entries(limit: int, size: int) -> bool:
    with mock.patch.object(skill_folder, "MOST_ENTRIES", limit), a_skill() as place:
        for number in range(size - 2):  # besides the skill and its SKILL.md
            (place.parent / str(number)).touch()
        return served(place)


@probe("ferrule.server.extensions.skill_folder.MOST_LEVELS", lowered=3)
async def folders_in_each_other(limit: int, size: int) -> bool:
    with mock.patch.object(skill_folder, "MOST_LEVELS", limit), a_skill() as place:
        deepest = place
        for _ in range(min(size, 3 * limit) - 1):  # the skill is one itself
            deepest /= "f"
            deepest.mkdir()
        return served(place)


@probe("ferrule.server.extensions.skill_folder.LONGEST_DESCRIPTION")
async def a_description(limit: int, size: int) -> bool:
    described = []
    for text in ("x" * size, "x".ljust(size)):
        with a_skill(f'---\nname: one\ndescription: "{text}"\n---\n') as place:
            described.append(served(place))
    assert described[0] is described[1]
    return described[0]


@probe("ferrule.server.extensions.skills.READERS", clamps=True)
async def readers(limit: int, size: int) -> bool:
    go = threading.Event()

    def read(path: Path, most: int) -> bytes:
        go.wait()
        return HEAD.encode()

    with a_skill() as place:
        app = Server("s", max_concurrent_per_session=10**6)
        app.skills(place.parent, watch=None)
        extension = next(each for each in app.host.extensions if isinstance(each, Skills))
        pool = extension._bulkhead._threads
        with mock.patch.object(serving, "read_file", read):
            async with Client(app, mode="handshake", request_timeout=None) as client:
                uri = "skill://one/SKILL.md"
                calls = [asyncio.ensure_future(client.read_resource(uri)) for _ in range(size)]
                while pool.busy < min(limit, size):
                    await asyncio.sleep(0.001)
                await asyncio.sleep(0.01)  # for one too many
                busy = pool.busy
                go.set()
                await asyncio.gather(*calls)
    return busy == size


def readable(text: str, *, whole: bool = False) -> bool:
    """Return whether YAML is read; `whole` reads it as front matter between its two lines."""
    try:
        if whole:
            front_matter(f"---\n{text}\n---\n")
        else:
            read_yaml(text)
    except Malformed:
        return False
    return True


@probe("ferrule.validation.frontmatter.MAX_SIZE")
async def characters_of_front_matter(limit: int, size: int) -> bool:
    return readable("a: ".ljust(size - 1, "x"), whole=True)  # and a line end


@probe("ferrule.validation.frontmatter.MAX_LINES")
async def lines_of_a_value(limit: int, size: int) -> bool:
    quoted = readable('a: "x' + "\n x" * (size - 1) + '"')
    listed = readable("a: [x" + ",\n x" * (size - 1) + "]")
    assert quoted is listed
    return quoted


@probe("ferrule.validation.frontmatter.MAX_READ", lowered=1000)
async def characters_read_of_a_value(limit: int, size: int) -> bool:
    # Its first line is read alone, and again with the second.
    first = '"'.ljust(100, "x")
    second = "x" * (size - 2 * len(first) - 2) + '"'
    with mock.patch.object(frontmatter, "MAX_READ", limit):
        return readable(f"a: {first}\n {second}")


@probe("ferrule.validation.yaml_scalars.MAX_DEPTH")
async def levels(limit: int, size: int) -> bool:
    inner = size - 1  # within the object that all of it is
    flow = readable("a: " + "[" * inner + "]" * inner)
    block = readable("".join(" " * depth + "a:\n" for depth in range(min(size, 200))) + " " * 200 + "b")
    dashes = readable("a:\n" + "- " * inner + "b")
    mixed = readable("a:\n  b: " + "[" * (size - 2) + "]" * (size - 2))
    assert flow is block is dashes is mixed, (flow, block, dashes, mixed)
    return flow
