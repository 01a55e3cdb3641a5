"""Schemas without references, for clients that cannot follow them."""

from __future__ import annotations

from typing import Any

from ferrule.errors import SetupError

Schema = dict[str, Any]

MAX_PARTS = 20_000
PREFIX = "#/$defs/"


def inlined(schema: Schema, place: str = "schema") -> Schema:
    """Put each definition where it is used; one that is a part of itself stays a definition, used inside itself only.

    Raises SetupError when the schema grows too large for it.
    """
    if "$defs" not in schema:
        return schema
    return _Inlining(schema["$defs"], place).whole({key: value for key, value in schema.items() if key != "$defs"})


class _Inlining:
    def __init__(self, definitions: Schema, place: str) -> None:
        self._definitions = definitions
        self._place = place
        self._kept: dict[str, Any] = {}
        self._parts = 0

    def whole(self, schema: Schema) -> Schema:
        written: Schema = self._part(schema, ())
        # What is kept may itself keep others: a definition is written when it is first referred to.
        kept = dict(sorted(self._kept.items()))
        return {**written, "$defs": kept} if kept else written

    def _part(self, part: Any, inside: tuple[str, ...]) -> Any:
        if isinstance(part, list):
            return [self._part(item, inside) for item in part]
        if not isinstance(part, dict):
            return part
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise SetupError(f"{self._place} has too many parts without references: leave inline_refs off for it")
        name = _referred(part)
        if name is None or name not in self._definitions:
            return {key: self._part(item, inside) for key, item in part.items() if not _is_tag_map(key, item)}
        if name in inside:
            self._keep(name)
            return part
        beside = {key: value for key, value in part.items() if key != "$ref"}
        return self._part({**self._definitions[name], **beside}, (*inside, name))

    def _keep(self, name: str) -> None:
        if name not in self._kept:
            self._kept[name] = {}
            self._kept[name] = self._part(self._definitions[name], (name,))


def _referred(part: Schema) -> str | None:
    reference = part.get("$ref")
    return reference.removeprefix(PREFIX) if isinstance(reference, str) and reference.startswith(PREFIX) else None


def _is_tag_map(key: str, item: Any) -> bool:
    """Tell whether a member names definitions by tag, which says nothing once they are gone."""
    return key == "discriminator" and isinstance(item, dict) and "mapping" in item
