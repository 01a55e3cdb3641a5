"""Roots: the folders a client works in."""

from __future__ import annotations

from typing import Any

from msgspec import field

from ferrule.schema.model import Model, Result


class Root(Model, kw_only=True):
    """A folder, as a file URI."""

    uri: str
    name: str | None = None
    meta: dict[str, Any] | None = field(default=None, name="_meta")


class ListRootsResult(Result, kw_only=True):
    """The client's roots."""

    roots: list[Root]
