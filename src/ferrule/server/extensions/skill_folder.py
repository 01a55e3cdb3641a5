"""A folder of skills on disk: what is in it now, with digests, within bounds and never outside of it.

Whatever is served is looked up by its URI among what was found here, so no URI can lead anywhere else. Links that lead
out of the folder, and names that begin with a dot, are not followed.
"""

from __future__ import annotations

import hashlib
import mimetypes
import os
import re
import stat
from collections.abc import Container, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.schema.resources import Resource
from ferrule.schema.skills import DIRECTORY_TYPE, MOST_BYTES, MOST_FILES, SKILL_FILE, Skill, SkillResource
from ferrule.validation.frontmatter import front_matter
from ferrule.validation.yaml_scalars import Malformed

NAME = re.compile(r"(?!.*--)[a-z0-9](?:[a-z0-9-]{0,62}[a-z0-9])?")
LONGEST_DESCRIPTION = 1024
MOST_ENTRIES = 20_000
"""How many files and folders may be in a folder of skills: a wrong folder should not be read for minutes."""
MOST_LEVELS = 32
"""How many folders may lie in each other: a file belongs to the skills of all folders above it."""
SEGMENT = "-._~!$&'()*+,;="
"""What stands for itself in a segment of a skill's URI, which may be its authority."""
SKIPPED = frozenset({"__pycache__", "node_modules"})


class Stamp(Struct, frozen=True):
    """What tells, without reading it, that a file is still the one it was."""

    size: int
    changed: int
    number: int


class SkillFile(Struct, frozen=True):
    """A file as it was when it was last read."""

    path: Path
    stamp: Stamp
    digest: str
    head: str = ""
    """The text of a SKILL.md: its front matter is needed."""


class Found(Struct, frozen=True):
    """What is in the folders: files by URI, folders with their direct children, skills, and why others are none."""

    files: dict[str, SkillFile]
    folders: dict[str, list[Resource]]
    skills: dict[str, Skill]
    faults: dict[str, str]


NOTHING = Found({}, {}, {}, {})


class Folder:
    """One folder of skills, or one that is a skill itself."""

    def __init__(self, place: str | os.PathLike[str], prefix: str, max_file_size: int) -> None:
        root = Path(place).expanduser()
        if not root.is_dir():
            raise SetupError(f"skills: there is no folder {str(place)!r} (looked for it at {root.absolute()})")
        self.root = root.resolve()
        segments = []
        for each in prefix.split("/"):
            if each:
                segments.append(each)
        if (self.root / SKILL_FILE).is_file():
            segments.append(self.root.name)
        self._root_uri = "/".join(["skill:/", *(quote(each, safe=SEGMENT) for each in segments)])
        self._max_file_size = max_file_size

    def find(self, known: Mapping[str, SkillFile]) -> Found:
        """Look at the whole folder; files that seem unchanged are not read again."""
        files: dict[str, SkillFile] = {}
        folders: dict[str, list[Resource]] = {}
        faults: dict[str, str] = {}
        count = 0
        for path, names, subfolders in self._walk():
            if len(path.relative_to(self.root).parts) > MOST_LEVELS:
                raise SetupError(f"skills: {self.root} holds more than {MOST_LEVELS} folders in each other")
            count += len(names) + len(subfolders)
            if count > MOST_ENTRIES:
                raise SetupError(f"skills: {self.root} holds more than {MOST_ENTRIES} files: is it the right folder?")
            uri = self._uri(path)
            folders[uri] = []
            for name in subfolders:
                folders[uri].append(_folder(self._uri(path / name), name))
            for name in names:
                place = f"{uri}/{quote(name, safe=SEGMENT)}"
                try:
                    file = self._file(path / name, known.get(place))
                except FileNotFoundError:
                    continue
                except (OSError, Malformed) as reason:
                    faults[place] = str(reason)
                    continue
                if file is not None:
                    files[place] = file
        return _skills(files, folders, faults)

    def _uri(self, path: Path) -> str:
        uri = self._root_uri
        for each in path.relative_to(self.root).parts:
            uri += "/" + quote(each, safe=SEGMENT)
        return uri

    def _walk(self) -> Iterator[tuple[Path, list[str], list[str]]]:
        """Yield each folder with the names of its files and of its folders."""
        for place, subfolders, names in os.walk(self.root, followlinks=False):
            path = Path(place)
            own = []
            for name in sorted(subfolders):
                # A linked folder is listed among the folders and not walked into: it is left out of both.
                if _shown(name) and not (path / name).is_symlink():
                    own.append(name)
            subfolders[:] = own  # these are walked into
            yield path, sorted(filter(_shown, names)), own

    def _file(self, path: Path, known: SkillFile | None) -> SkillFile | None:
        real = _target(path) if path.is_symlink() else path
        if not real.is_relative_to(self.root):
            return None
        status = real.stat(follow_symlinks=False)
        if not stat.S_ISREG(status.st_mode):
            return None
        stamp = _stamp(status)
        if known is not None and known.stamp == stamp and known.path == real:
            return known
        content = read_file(real, self._max_file_size)
        digest = "sha256:" + hashlib.sha256(content).hexdigest()
        if path.name == SKILL_FILE:
            head = content.decode("utf-8", "replace")
        else:
            head = ""
        return SkillFile(real, Stamp(len(content), stamp.changed, stamp.number), digest, head)


def read_file(path: Path, most: int) -> bytes:
    """Read a regular file of at most so many bytes; not what a link leads to, be it one of the folders on the way."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise Malformed("it is not a regular file")
        # Looked at when it is open: what is put in its place from now on does not matter any more.
        if os.path.realpath(path) != str(path) or not os.path.samestat(status, path.stat(follow_symlinks=False)):
            raise Malformed("it lies behind a link")
        content = file.read(most + 1)
    if len(content) > most:
        raise Malformed(f"it is larger than {most} bytes")
    return content


def mime_type(name: str) -> str:
    """Guess what a file holds from its name."""
    if name.lower().endswith((".md", ".markdown")):
        return "text/markdown"
    return mimetypes.guess_type(name)[0] or "application/octet-stream"


def _target(path: Path) -> Path:
    """Return what a link leads to, whether it is there or not."""
    try:
        return path.resolve()
    except RuntimeError:
        raise FileNotFoundError(f"{path} leads to itself") from None


def _shown(name: str) -> bool:
    return not name.startswith(".") and name not in SKIPPED


def _stamp(status: os.stat_result) -> Stamp:
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ino)


def _folder(uri: str, name: str) -> Resource:
    return Resource(uri=uri, name=name, mime_type=DIRECTORY_TYPE)


def _skills(files: dict[str, SkillFile], folders: dict[str, list[Resource]], faults: dict[str, str]) -> Found:
    """Make skills of the folders that hold a SKILL.md; leave out what belongs to none."""
    inner = _by_root(files)
    bad: dict[str, str] = {}
    for uri, why in faults.items():
        for root in _above(uri, inner):
            bad[root] = f"{uri}: {why}"
    skills: dict[str, Skill] = {}
    for root, own in inner.items():
        uri = f"{root}/{SKILL_FILE}"
        try:
            skills[uri] = _skill(uri, root, own, bad.get(root, ""))
        except Malformed as reason:
            faults[uri] = str(reason)
    roots = {skill.root for skill in skills.values()}
    shown: dict[str, list[Resource]] = {}
    for uri, children in folders.items():
        if uri in roots or any(_above(uri, roots)):
            shown[uri] = children
    served: dict[str, SkillFile] = {}
    for uri, file in files.items():
        if any(_above(uri, roots)):
            served[uri] = file
            shown[uri.rpartition("/")[0]].append(_listed(uri, file, skills.get(uri)))
    return Found(served, shown, skills, faults)


def _by_root(files: dict[str, SkillFile]) -> dict[str, dict[str, SkillFile]]:
    """Return the folders that hold a SKILL.md, each with all files under it."""
    inner: dict[str, dict[str, SkillFile]] = {}
    for uri in files:
        root, _, name = uri.rpartition("/")
        if name == SKILL_FILE:
            inner[root] = {}
    for uri, file in files.items():
        for root in _above(uri, inner):
            inner[root][uri] = file
    return inner


def _above(uri: str, roots: Container[str]) -> Iterator[str]:
    """Yield the roots a file lies under, from the inmost."""
    while uri := uri.rpartition("/")[0]:
        if uri in roots:
            yield uri


def _skill(uri: str, root: str, inner: Mapping[str, SkillFile], bad: str) -> Skill:
    if bad:
        raise Malformed(bad)
    facts, _ = front_matter(inner[uri].head)
    name = facts.get("name")
    description = facts.get("description")
    folder = root.rpartition("/")[2]
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Malformed(f"its name is {name!r}; it must be 1 to 64 of a-z, 0-9 and single hyphens inside")
    if name != folder:
        raise Malformed(f"its name is {name!r} and its folder is {folder!r}; they must be the same")
    if not isinstance(description, str) or not description.strip() or len(description) > LONGEST_DESCRIPTION:
        raise Malformed(f"its description must be a text of 1 to {LONGEST_DESCRIPTION} characters")
    size = sum(each.stamp.size for each in inner.values())
    if len(inner) > MOST_FILES or size > MOST_BYTES:
        raise Malformed(f"it has {len(inner)} files of {size} bytes; at most {MOST_FILES} of {MOST_BYTES} are allowed")
    resources = []
    for place, each in inner.items():
        resources.append(SkillResource(uri=place, digest=each.digest, size=each.stamp.size))
    return Skill(uri=uri, frontmatter=facts, resources=resources)


def _listed(uri: str, file: SkillFile, skill: Skill | None) -> Resource:
    facts: dict[str, Any] = {"name": file.path.name, "mime_type": mime_type(file.path.name)}
    if skill is not None:
        facts |= {"name": skill.name, "description": skill.description}
    return Resource(uri=uri, size=file.stamp.size, **facts)
