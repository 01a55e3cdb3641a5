"""Skills on the client's side: list them, get one, load one; nothing is read before it is asked for."""

from __future__ import annotations

import base64
import binascii
import hashlib
import posixpath
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

from ferrule.client.features.requests import Requests
from ferrule.client.link.keeper import Keeper
from ferrule.errors import CapabilityNotSupported, ContentMismatch
from ferrule.schema.methods import Method
from ferrule.schema.model import Page
from ferrule.schema.notices import RESOURCE_UPDATED, RESOURCES_CHANGED
from ferrule.schema.resources import ReadResourceResult, Resource
from ferrule.schema.skills import (
    MOST_BYTES,
    MOST_FILES,
    SKILLS,
    GetSkillParams,
    GetSkillResult,
    ListSkillsResult,
    ReadDirectoryParams,
    ReadDirectoryResult,
    Skill,
    SkillResource,
)
from ferrule.validation.frontmatter import front_matter
from ferrule.validation.yaml_scalars import Malformed

PATH = "/-._~!$&'()*+,;=:@"
"""What stands for itself in the path of a URI."""


class LoadedSkill:
    """A skill whose SKILL.md was read and is what its entry says; its other files are read when they are needed."""

    def __init__(self, requests: Requests, skill: Skill) -> None:
        self.skill = skill
        self.text = ""
        self.instructions = ""
        """The text of its SKILL.md after the front matter."""
        self._requests = requests
        self._read = 0
        self._listed: dict[str, SkillResource] | None = None
        if skill.resources != "dynamic":
            self._listed = {each.uri: each for each in skill.resources}

    async def read(self, path: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a file of the skill, by its path in it or its URI; raises ContentMismatch for what its entry denies."""
        if "://" in path:
            uri = path
        else:
            uri = self._below(path)
        entry = self._entry(uri)
        result = await self._requests.read_resource(uri, timeout)
        try:
            self._check(uri, entry, _bytes_of(uri, result))
        except ContentMismatch:
            self._requests.cache.drop(RESOURCE_UPDATED, uri)
            self._requests.cache.drop(RESOURCES_CHANGED)
            raise
        return result

    def _below(self, path: str) -> str:
        plain = posixpath.normpath(path)
        if plain.startswith(("/", "..")):
            raise ContentMismatch(f"{path} is not inside the skill {self.skill.uri}")
        return f"{self.skill.root}/{quote(plain, safe=PATH)}"

    def _entry(self, uri: str) -> SkillResource | None:
        if self._listed is None:
            if not uri.startswith(f"{self.skill.root}/"):
                raise ContentMismatch(f"{uri} is not inside the skill {self.skill.uri}")
            return None
        entry = self._listed.get(uri)
        if entry is None:
            raise ContentMismatch(f"{uri} is not among the files of the skill {self.skill.uri} as it was listed")
        return entry

    def _check(self, uri: str, entry: SkillResource | None, content: bytes) -> None:
        self._read += len(content)
        if entry is None:
            if self._read > MOST_BYTES:
                raise ContentMismatch(f"the skill {self.skill.uri} has given more than {MOST_BYTES} bytes")
            return
        if len(content) != entry.size:
            raise ContentMismatch(f"{uri} has {len(content)} bytes where its entry says {entry.size}")
        if "sha256:" + hashlib.sha256(content).hexdigest() != entry.digest:
            raise ContentMismatch(f"{uri} does not have the digest its entry says: it changed, or was tampered with")

    async def load(self, timeout: float | None) -> None:
        """Read the SKILL.md and compare its front matter with the entry."""
        result = await self.read(self.skill.uri, timeout=timeout)
        self.text = result.text or ""
        try:
            facts, self.instructions = front_matter(self.text)
        except Malformed as reason:
            raise ContentMismatch(f"{self.skill.uri}: {reason}") from None
        if not _same(facts, self.skill.frontmatter):
            raise ContentMismatch(f"the front matter of {self.skill.uri} is not what its entry says")


def check_bounds(skill: Skill, dynamic: bool) -> None:
    resources = skill.resources
    if resources == "dynamic":
        if not dynamic:
            raise ContentMismatch(f"{skill.uri} gives no digests of its files: load it with dynamic=True if you may")
        return
    size = sum(max(each.size, 0) for each in resources)  # a file of less than nothing makes no room for others
    if len(resources) > MOST_FILES or size > MOST_BYTES:
        raise ContentMismatch(
            f"{skill.uri} has {len(resources)} files of {size} bytes; at most {MOST_FILES} of {MOST_BYTES} are loaded"
        )


def _bytes_of(uri: str, result: ReadResourceResult) -> bytes:
    """Return the bytes of the one resource that was read."""
    if len(result.contents) != 1:
        raise ContentMismatch(f"{uri} was answered with {len(result.contents)} contents in place of one")
    part = result.contents[0]
    if part.text is not None:
        return part.text.encode()
    try:
        return base64.b64decode(part.blob or "", validate=True)
    except binascii.Error:
        raise ContentMismatch(f"{uri} was answered with what is not base64") from None


def _same(one: object, other: object) -> bool:
    """Compare JSON values: a boolean is no number."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return bool(one == other)


LIST = "skills/list"
GET = "skills/get"
DIRECTORY = "resources/directory/read"
ROWS = {
    LIST: Method(LIST, Page, ListSkillsResult, cacheable=True),
    GET: Method(GET, GetSkillParams, GetSkillResult, cacheable=True),
    DIRECTORY: Method(DIRECTORY, ReadDirectoryParams, ReadDirectoryResult, cacheable=True),
}


class SkillRequests:
    """Lists, gets and loads the skills of one server."""

    def __init__(self, keeper: Keeper, requests: Requests, *, strict: bool) -> None:
        self._keeper = keeper
        self._requests = requests
        self._strict = strict

    def pages(self, timeout: float | None) -> AsyncIterator[Skill]:
        """Return the skills one after another, page by page."""
        self._require()
        return self._requests.pages(LIST, "skills", timeout)

    async def get(self, uri: str, timeout: float | None) -> Skill:
        """Return one skill as it is now, by the URI of its SKILL.md."""
        self._require()
        found: GetSkillResult = await self._requests.fetch(GET, {"uri": uri}, timeout)
        return found.skill

    async def load(self, skill: Skill | str, timeout: float | None, *, dynamic: bool) -> LoadedSkill:
        """Read the SKILL.md of a skill and check it against its entry; one without digests only if `dynamic`."""
        if isinstance(skill, str):
            entry = await self.get(skill, timeout)
        else:
            entry = skill
        check_bounds(entry, dynamic)
        loaded = LoadedSkill(self._requests, entry)
        await loaded.load(timeout)
        return loaded

    async def read_directory(self, uri: str, timeout: float | None) -> list[Resource]:
        """Return what is directly in a directory of the server's."""
        settings = self._require()
        if not settings.get("directoryRead") and self._strict:
            raise CapabilityNotSupported(SKILLS, "the server does not declare that it lists directories")
        return [child async for child in self._requests.pages(DIRECTORY, "resources", timeout, {"uri": uri})]

    def _require(self) -> dict[str, Any]:
        conversation = self._keeper.current()
        conversation.live()
        settings = None
        if conversation.peer is not None:
            settings = conversation.peer.extension(SKILLS)
        if settings is None and self._strict:
            raise CapabilityNotSupported(SKILLS, "the server does not declare the skills extension")
        return settings or {}
