"""The Skills extension: folders of skills, listed with digests and read as resources."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

from msgspec import Raw

from ferrule.errors import InvalidParams, ResourceNotFound, SetupError
from ferrule.schema.content import ResourceContents
from ferrule.schema.model import Page, PagedResult
from ferrule.schema.resources import ReadResourceResult
from ferrule.schema.skills import (
    SKILLS,
    GetSkillParams,
    GetSkillResult,
    ListSkillsResult,
    ReadDirectoryParams,
    ReadDirectoryResult,
    Skill,
)
from ferrule.server.application import Application
from ferrule.server.calls.context import Context
from ferrule.server.calls.threads import Bulkhead, Threads
from ferrule.server.extensions.extension import Extension
from ferrule.server.extensions.skill_folder import NOTHING, Folder, Found, mime_type, read_file
from ferrule.server.offers.catalogue import Catalogue
from ferrule.supervision.scope import Scope
from ferrule.validation.yaml_scalars import Malformed

logger = logging.getLogger("ferrule.skills")

FILES = "skill://{+path}"
"""The template under which the files of skills are read; a SKILL.md is a resource of its own."""

READERS = 4
"""How many threads read files of skills at once."""


class Skills(Extension):
    """Offers folders of skills: every folder in them with a SKILL.md is one."""

    def __init__(
        self,
        *folders: str | os.PathLike[str],
        prefix: str = "",
        directory_read: bool = True,
        watch: float | None = 1.0,
        max_file_size: int = 4 * 1024 * 1024,
    ) -> None:
        super().__init__(SKILLS, {"directoryRead": True} if directory_read else {})
        if watch is not None and watch <= 0:
            raise SetupError(f"skills: watch is a number of seconds above 0, or None, not {watch!r}")
        if max_file_size < 1:
            raise SetupError(f"skills: max_file_size is at least 1 byte, not {max_file_size!r}")
        if not folders:
            raise SetupError('skills: name the folder, as in app.skills("skills")')
        self.watch = watch
        self.max_file_size = max_file_size
        self._folders = [Folder(folder, prefix, max_file_size) for folder in folders]
        self._found = NOTHING
        self._pages: dict[tuple[Application, str], Catalogue[Any]] = {}
        self._bulkhead = Bulkhead(Threads(), READERS)
        self._take(self._look())
        if self._found.faults:
            raise SetupError("skills: " + _told(self._found))
        self.method("skills/list", params=Page, result=ListSkillsResult, read_only=True)(self._list)
        self.method("skills/get", params=GetSkillParams, result=GetSkillResult, read_only=True)(self._get)
        if directory_read:
            method = self.method("resources/directory/read", params=ReadDirectoryParams, result=ReadDirectoryResult)
            method(self._read_directory)

    @property
    def found(self) -> dict[str, Skill]:
        """The skills, by the URI of their SKILL.md."""
        return dict(self._found.skills)

    # -- joining a server

    def joined(self, server: Application) -> None:
        """Offer the files as resources."""
        if any(template.uri_template == FILES for template in server.list_resource_templates()):
            raise SetupError(f"skills: this server has a resource {FILES} already")
        server.add_resource(FILES, self._read, name="skill files", description="The files of the skills, by path.")
        for skill in self._found.skills.values():
            self._offer(server, skill)

    def _offer(self, server: Application, skill: Skill) -> None:
        async def read() -> ReadResourceResult:
            return await self._read("", skill.uri)

        server.add_resource(
            skill.uri,
            read,
            name=skill.name,
            description=skill.description,
            mime_type="text/markdown",
            size=self._found.files[skill.uri].stamp.size,
        )

    def lifespan(self, server: Application) -> AbstractAsyncContextManager[Any] | None:
        """Look for changes while the server is in use."""
        if self.watch is None:
            return None
        return self._watching(server, self.watch)

    @contextlib.asynccontextmanager
    async def _watching(self, server: Application, interval: float) -> AsyncIterator[None]:
        async def watch() -> None:
            said = ""
            while True:
                await asyncio.sleep(interval)
                try:
                    await self.refresh()
                except (OSError, SetupError) as reason:
                    if str(reason) != said:
                        said = str(reason)
                        logger.warning("the folders of skills cannot be read: %s", said)

        scope = Scope(asyncio.get_running_loop())
        scope.spawn(watch())
        try:
            yield
        finally:
            await scope.close()

    # -- answering

    async def _list(self, params: Page, context: Context) -> Raw:
        return self._page("", context, self._found.skills.values(), lambda skills: ListSkillsResult(skills=skills))

    async def _get(self, params: GetSkillParams) -> GetSkillResult:
        skill = self._found.skills.get(params.uri)
        if skill is None:
            raise InvalidParams(f"No skill is served at {params.uri}", {"uri": params.uri})
        return GetSkillResult(skill=skill)

    async def _read_directory(self, params: ReadDirectoryParams, context: Context) -> Raw:
        children = self._found.folders.get(params.uri)
        if children is None:
            raise InvalidParams(f"{params.uri} is not a directory resource", {"uri": params.uri})
        return self._page(params.uri, context, children, lambda resources: ReadDirectoryResult(resources=resources))

    def _page(self, uri: str, context: Context, entries: Iterable[Any], result: Callable[..., PagedResult]) -> Raw:
        """Return a page; the pages of a list are made once, and anew after a change."""
        server = context.server
        catalogue = self._pages.get((server, uri))
        if catalogue is None:
            size = self.page_size(context)
            catalogue = Catalogue("entry", result, lambda each: each, page_size=size, on_change=lambda: None)
            for entry in entries:
                catalogue.add(entry.uri, entry)
            self._pages[server, uri] = catalogue
        return catalogue.page(context.call)

    async def _read(self, path: str, uri: str) -> ReadResourceResult:
        """Read a file of a skill: its URI as it was given finds it, or nothing does."""
        file = self._found.files.get(uri)
        if file is None:
            raise ResourceNotFound(uri)
        try:
            content = await self._bulkhead.run(lambda: read_file(file.path, self.max_file_size))
        except (OSError, Malformed):
            await self.refresh()
            raise ResourceNotFound(uri) from None
        if hashlib.sha256(content).hexdigest() != file.digest.removeprefix("sha256:"):
            # Whoever reads it now asks for its digest next.
            await self.refresh()
        return _contents(uri, file.path.name, content)

    # -- noticing changes

    async def refresh(self) -> bool:
        """Look at the folders again, and notify of what changed; return whether anything did."""
        return self._take(await self._bulkhead.run(self._look))

    def _look(self) -> Found:
        found = [folder.find(self._found.files) for folder in self._folders]
        merged = Found({}, {}, {}, {})
        for each in found:
            twice = sorted(each.skills.keys() & merged.skills.keys())
            merged.files.update(each.files)
            merged.folders.update(each.folders)
            merged.skills.update(each.skills)
            merged.faults.update(each.faults)
            merged.faults.update(dict.fromkeys(twice, "it is in two folders; give one of them a prefix"))
        return merged

    def _take(self, found: Found) -> bool:
        before = self._found
        self._found = found
        if found.faults and found.faults != before.faults:
            logger.warning("skills that cannot be served: %s", _told(found))
        if (found.files, found.folders, found.skills) == (before.files, before.folders, before.skills):
            return False
        self._pages.clear()
        for server in self.servers:
            self._tell(server, before)
        return True

    def _tell(self, server: Application, before: Found) -> None:
        """Bring the resources of a server up to date, and tell its clients."""
        now = self._found
        for uri, skill in before.skills.items():
            if now.skills.get(uri) != skill:
                server.remove_resource(uri)
        for uri, skill in now.skills.items():
            if before.skills.get(uri) != skill:
                self._offer(server, skill)
        for uri, file in now.files.items():
            if uri in before.files and before.files[uri].digest != file.digest:
                server.notify_resource_updated(uri)


def _contents(uri: str, name: str, content: bytes) -> ReadResourceResult:
    """Return text where the bytes are text, so that the same bytes come out at the other end."""
    try:
        part = ResourceContents(uri=uri, mime_type=mime_type(name), text=content.decode())
    except UnicodeDecodeError:
        part = ResourceContents(uri=uri, mime_type=mime_type(name), blob=base64.b64encode(content).decode("ascii"))
    return ReadResourceResult(contents=[part])


def _told(found: Found) -> str:
    return "; ".join(f"{uri}: {why}" for uri, why in found.faults.items())
