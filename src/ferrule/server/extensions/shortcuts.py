"""The extensions a server has words of its own for."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from ferrule.errors import SetupError
from ferrule.schema.apps import APPS
from ferrule.server.extensions.extension import Extension, Extensions

if TYPE_CHECKING:
    from ferrule.server.extensions.apps import Apps
    from ferrule.server.extensions.skills import Skills
    from ferrule.server.keywords import PageKeywords

F = TypeVar("F", bound=Callable[..., Any])
E = TypeVar("E", bound=Extension)


class ExtensionShortcuts:
    """The half of a server that speaks extensions."""

    extensions: Extensions

    def extend(self, extension: E) -> E:
        """Speak an extension of the protocol: declare it, and answer its methods."""
        if not isinstance(extension, Extension):
            raise SetupError(
                f"app.extend takes an Extension, not {extension!r}: app.extend(Extension('com.example/x'))"
            )
        self.extensions.join(extension)
        return extension

    def skills(
        self,
        *folders: str | os.PathLike[str],
        prefix: str = "",
        directory_read: bool = True,
        watch: float | None = 1.0,
        max_file_size: int = 4 * 1024 * 1024,
    ) -> Skills:
        """Offer folders of skills, each with a SKILL.md: `app.skills("skills")`; the options are those of `Skills`."""
        from ferrule.server.extensions.skills import Skills

        skills = Skills(
            *folders, prefix=prefix, directory_read=directory_read, watch=watch, max_file_size=max_file_size
        )
        return self.extend(skills)

    @overload
    def page(self, uri: str, html: str | os.PathLike[str], **options: Unpack[PageKeywords]) -> None: ...
    @overload
    def page(self, uri: str, html: None = None, **options: Unpack[PageKeywords]) -> Callable[[F], F]: ...
    def page(self, uri: str, html: str | os.PathLike[str] | None = None, **options: Unpack[PageKeywords]) -> Any:
        """Offer a page for `@app.tool(ui=…)`: its text, its Path, or, as a decorator, a function that gives it."""
        return self.apps().page(uri, html, **options)

    def apps(self) -> Apps:
        """Return the MCP Apps extension of this server, which it speaks from now on."""
        from ferrule.server.extensions.apps import Apps

        if APPS not in self.extensions:
            self.extend(Apps())
        return self.extensions[APPS]  # type: ignore[return-value]  # nothing else has this name
