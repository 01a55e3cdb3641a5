"""Skills on the client's side: list them, get one, load one; nothing is read before it is asked for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ferrule.client.features.pages import Fetching
from ferrule.errors import CapabilityNotSupported
from ferrule.schema.methods import Method
from ferrule.schema.model import Page
from ferrule.schema.resources import ReadResourceResult, Resource
from ferrule.schema.skills import (
    SKILLS,
    GetSkillParams,
    GetSkillResult,
    ListSkillsResult,
    ReadDirectoryParams,
    ReadDirectoryResult,
    Skill,
)

if TYPE_CHECKING:
    from ferrule.client.features.loading import LoadedSkill

LIST, GET, DIRECTORY = "skills/list", "skills/get", "resources/directory/read"
ROWS = {
    LIST: Method(LIST, Page, ListSkillsResult, cacheable=True),
    GET: Method(GET, GetSkillParams, GetSkillResult, cacheable=True),
    DIRECTORY: Method(DIRECTORY, ReadDirectoryParams, ReadDirectoryResult, cacheable=True),
}


class Skilled(Fetching):
    """The half of a client that uses skills."""

    async def read_resource(self, uri: str, *, timeout: float | None = None) -> ReadResourceResult:
        """Read a resource."""
        return await self._fetch("resources/read", {"uri": str(uri)}, timeout)  # type: ignore[no-any-return]

    async def list_skills(self, *, timeout: float | None = None) -> list[Skill]:
        """Give the skills the server lists, from all pages; it may serve others too."""
        return await self._listed(lambda: self.iter_skills(timeout=timeout))

    def iter_skills(self, *, timeout: float | None = None) -> AsyncIterator[Skill]:
        """Give the skills one after another, page by page."""
        self._require_skills()
        return self._pages(LIST, "skills", timeout)

    async def get_skill(self, uri: str, *, timeout: float | None = None) -> Skill:
        """Give one skill as it is now, by the URI of its SKILL.md."""
        self._require_skills()
        found: GetSkillResult = await self._fetch(GET, {"uri": uri}, timeout)
        return found.skill

    async def load_skill(
        self, skill: Skill | str, *, dynamic: bool = False, timeout: float | None = None
    ) -> LoadedSkill:
        """Read the SKILL.md of a skill and check it against its entry; one without digests only if `dynamic`."""
        from ferrule.client.features.loading import LoadedSkill, check_bounds

        entry = await self.get_skill(skill, timeout=timeout) if isinstance(skill, str) else skill
        check_bounds(entry, dynamic)
        loaded = LoadedSkill(self, entry)
        await loaded.load(timeout)
        return loaded

    async def read_skill_file(
        self, skill: LoadedSkill, path: str, *, timeout: float | None = None
    ) -> ReadResourceResult:
        """Read a file of a loaded skill: the same as `await skill.read(path)`."""
        return await skill.read(path, timeout=timeout)

    async def read_directory(self, uri: str, *, timeout: float | None = None) -> list[Resource]:
        """Give what is directly in a directory of the server's."""
        settings = self._require_skills()
        if not settings.get("directoryRead") and self.settings.strict:
            raise CapabilityNotSupported(SKILLS, "the server does not declare that it lists directories")
        return [child async for child in self._pages(DIRECTORY, "resources", timeout, {"uri": uri})]

    def _require_skills(self) -> dict[str, Any]:
        self._talk().live()
        settings = self.extension(SKILLS)
        if settings is None and self.settings.strict:
            raise CapabilityNotSupported(SKILLS, "the server does not declare the skills extension")
        return settings or {}

    def _row(self, method: str) -> Method:
        return ROWS.get(method) or super()._row(method)
