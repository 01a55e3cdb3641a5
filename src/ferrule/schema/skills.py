"""Skills: folders of instructions an agent may load, and the manifest that says what each holds (an extension)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from msgspec import structs

from ferrule.schema.model import CacheableResult, JsonObject, Page, PagedResult, Params, Value
from ferrule.schema.resources import Resource

SKILLS = "io.modelcontextprotocol/skills"
"""The name of the extension."""

SKILL_FILE = "SKILL.md"
DIRECTORY_TYPE = "inode/directory"
MOST_FILES = 512
MOST_BYTES = 16 * 1024 * 1024
"""What every host must accept of one skill."""


class SkillResource(Value, frozen=True, kw_only=True):
    """A file of a skill, with the digest and the size of its bytes."""

    uri: str
    digest: str
    size: int


class Skill(Value, frozen=True, kw_only=True):
    """A skill: where its SKILL.md is, its front matter, and all of its files, unless they are made on the fly."""

    uri: str
    frontmatter: JsonObject
    resources: list[SkillResource] | Literal["dynamic"]

    @property
    def name(self) -> str:
        """What the skill is called; a label, not an identifier."""
        return str(self.frontmatter.get("name", ""))

    @property
    def description(self) -> str:
        """What it is for, and when to use it."""
        return str(self.frontmatter.get("description", ""))

    @property
    def root(self) -> str:
        """The URI of the folder its files are in."""
        return self.uri.removesuffix(f"/{SKILL_FILE}")


def moved_skill(skill: Skill, move: Callable[[str], str]) -> Skill:
    """Return a skill whose URIs are written in another way."""
    if isinstance(skill.resources, str):
        return structs.replace(skill, uri=move(skill.uri))
    resources = []
    for each in skill.resources:
        resources.append(structs.replace(each, uri=move(each.uri)))
    return structs.replace(skill, uri=move(skill.uri), resources=resources)


class ListSkillsResult(PagedResult, kw_only=True):
    """One page of skills."""

    skills: list[Skill]


class GetSkillParams(Params, kw_only=True):
    """Which skill: the URI of its SKILL.md."""

    uri: str


class GetSkillResult(CacheableResult, kw_only=True):
    """One skill."""

    skill: Skill


class ReadDirectoryParams(Page, kw_only=True):
    """Which directory to look into."""

    uri: str


class ReadDirectoryResult(PagedResult, kw_only=True):
    """What is directly in a directory, one page of it."""

    resources: list[Resource]
