"""Roots: the folders a client works in."""

from __future__ import annotations

from msgspec import field

from ferrule.schema.model import JsonObject, Model, Result


class Root(Model, kw_only=True):
    """A folder, as a file URI."""

    uri: str
    name: str | None = None
    meta: JsonObject | None = field(default=None, name="_meta")


class ListRootsResult(Result, kw_only=True):
    """The client's roots."""

    roots: list[Root]
