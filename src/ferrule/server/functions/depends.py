"""`Depends` and `Ask`: how a parameter says that a provider fills it, or the client's user."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from ferrule.errors import SetupError


class Dependency:
    """A parameter's wish for the value of a provider."""

    __slots__ = ("inline", "provider", "use_cache")

    def __init__(self, provider: Callable[..., Any], *, use_cache: bool, inline: bool) -> None:
        if not callable(provider):
            raise SetupError(f"Depends({provider!r}) needs a function: Depends(get_database), without calling it")
        self.provider = provider
        self.use_cache = use_cache
        self.inline = inline


def Depends(provider: Callable[..., Any], *, use_cache: bool = True, inline: bool = False) -> Any:  # noqa: N802
    """Fill a parameter with the value of a provider: `db: Db = Depends(get_db)`, or `Annotated[Db, Depends(get_db)]`.

    One provider runs once a call, whoever asks for it, unless `use_cache=False`. A plain function runs in a worker
    thread, with `inline=True` in the event loop.
    """
    return Dependency(provider, use_cache=use_cache, inline=inline)


def dependency_of(default: object, annotation: object) -> Dependency | None:
    """Find the wish for a provider in a parameter's default or in its `Annotated`."""
    if isinstance(default, Dependency):
        return default
    return next((item for item in getattr(annotation, "__metadata__", ()) if isinstance(item, Dependency)), None)


class Ask(Struct, frozen=True):
    """Says that a parameter is filled by the client's user; `{name}` in the text stands for another argument."""

    message: str
    schema: Any = None
    """The form, where it is not the parameter's type."""
