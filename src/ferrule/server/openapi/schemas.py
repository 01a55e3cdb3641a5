"""The schemas of an OpenAPI document as JSON Schema 2020-12, each with just the definitions it needs.

Rule: a reference stays a reference. Nothing is unrolled, so that schemas that contain themselves end like all others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Literal

from ferrule.errors import SetupError
from ferrule.server.openapi.document import Document

Side = Literal["request", "answer"]

COMPONENT = "#/components/schemas/"
DROPPED = frozenset({"discriminator", "xml", "externalDocs", "example", "nullable", "readOnly", "writeOnly"})
"""What OpenAPI says beside JSON Schema, and no validator needs."""
LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
SINGLE = frozenset({"items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames"})
MAX_PARTS = 1_000_000
"""How many schemas of one document are written: by its aliases, a short YAML file can stand for any number of them."""
MAX_DATA = 32 * 1024 * 1024
"""How many characters one document may have as data, aliases written out: texts, examples, defaults, tags, names."""
HIDDEN = {"request": "readOnly", "answer": "writeOnly"}


class Schemas:
    """Translates the schemas of one document; what is shared is translated once for each side."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._definitions: dict[tuple[Side, str], tuple[dict[str, Any], frozenset[str]]] = {}
        self._names: dict[str, str] = {}
        """By reference, the name of its definition."""
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        """The number that may be free for the next reference of a name."""
        self._count = 0
        self._data = 0
        self._lengths: dict[int, int] = {}
        """Of the objects and lists of the document that are data, by their id(): only for what the document keeps."""

    def whole(self, schema: object, side: Side) -> dict[str, Any]:
        """Return a schema that stands alone."""
        needed: set[str] = set()
        written = self._written(schema, side, needed)
        definitions = self.definitions(needed, side)
        return {**written, "$defs": definitions} if definitions else written

    def part(self, schema: object, side: Side, needed: set[str]) -> dict[str, Any]:
        """Return a schema that will stand inside another, and add what it refers to."""
        return self._written(schema, side, needed)

    def definitions(self, needed: set[str], side: Side) -> dict[str, Any]:
        """Return the definitions some references need, with those that these need in turn."""
        found: dict[str, Any] = {}
        waiting = sorted(needed)
        while waiting:
            reference = waiting.pop()
            name = self._name(reference)
            if name in found:
                continue
            found[name], further = self._definition(reference, side)
            waiting.extend(further)
        return dict(sorted(found.items()))

    def resolved(self, schema: object) -> Mapping[str, Any]:
        """Return what a schema says, behind any references; `true` and `false` say nothing of its parts."""
        if not isinstance(schema, Mapping):
            return {}
        return self._document.follow(schema, "a schema")

    def part_seen(self, schema: Collection[object]) -> None:
        """Count a schema that is gone through, and its words, within the bounds on all of them."""
        self._count += 1
        if self._count > MAX_PARTS:
            raise SetupError(f"the OpenAPI document holds more than {MAX_PARTS:,} schemas: write it with references")
        self.names(schema)

    def _definition(self, reference: str, side: Side) -> tuple[dict[str, Any], frozenset[str]]:
        known = self._definitions.get((side, reference))
        if known is None:
            needed: set[str] = set()
            written = self._written(self._document.at(reference), side, needed)
            known = self._definitions[side, reference] = (written, frozenset(needed))
        return known

    def _name(self, reference: str) -> str:
        if reference not in self._names:
            plain = reference.removeprefix(COMPONENT).removeprefix("#/")
            name = re.sub(r"[^A-Za-z0-9_.\-]", "_", plain)
            unique = name
            number = self._next.get(name, 2)
            while unique in self._taken:
                unique = f"{name}_{number}"
                number += 1
            self._next[name] = number
            self._taken.add(unique)
            self._names[reference] = unique
        return self._names[reference]

    def _written(self, schema: object, side: Side, needed: set[str]) -> dict[str, Any]:
        if schema is True or schema is None:
            return {}
        if not isinstance(schema, Mapping):
            return {"not": {}}
        self.part_seen(schema)
        if "$ref" in schema:
            return self._referring(schema, side, needed)
        written: dict[str, Any] = {}
        for word, value in schema.items():
            if word in DROPPED or word.startswith("x-"):
                continue
            written[word] = self._value(word, value, side, needed)
        self._hide(schema, written, side)
        if "example" in schema and "examples" not in schema:
            written["examples"] = [self.data(schema["example"])]
        if self._document.is_3_0:
            return _from_3_0(schema, written)
        return written

    def _referring(self, schema: Mapping[str, Any], side: Side, needed: set[str]) -> dict[str, Any]:
        reference = schema["$ref"]
        self._document.at(reference)
        needed.add(reference)
        written: dict[str, Any] = {"$ref": f"#/$defs/{self._name(reference)}"}
        if self._document.is_3_0:
            # In 3.0 nothing beside a reference counts, but people write this and mean it.
            kept: dict[str, Any] = {}
            if "description" in schema:
                kept["description"] = self.data(schema["description"])
            if schema.get("nullable"):
                return {"anyOf": [written, {"type": "null"}], **kept}
            return {**written, **kept}
        beside = {}
        for word, value in schema.items():
            if word != "$ref":
                beside[word] = value
        return {**self._written(beside, side, needed), **written}

    def _value(self, word: str, value: object, side: Side, needed: set[str]) -> Any:
        if word in LISTS and isinstance(value, list):
            return [self._written(item, side, needed) for item in value]
        if word in MAPS and isinstance(value, Mapping):
            self.names(value)
            return {name: self._written(item, side, needed) for name, item in value.items()}
        if word in SINGLE and isinstance(value, Mapping):
            return self._written(value, side, needed)
        return self.data(value)

    def data(self, value: object) -> Any:
        """Return what is taken as it stands in the document, within the bound on all of it."""
        self._add(self._length(value))
        return value

    def names(self, names: Collection[object]) -> None:
        """Count names that are gone through, such as statuses and media types, within the bound on all data."""
        self._add(len(names) + sum(map(len, map(str, names))))

    def _add(self, length: int) -> None:
        self._data += length
        if self._data > MAX_DATA:
            raise SetupError(f"the texts and schemas of the OpenAPI document hold over {MAX_DATA:,} characters of data")

    def _length(self, value: object) -> int:
        """Return about how many characters a value has as JSON; each object and list of the document is read once."""
        if isinstance(value, str):
            return 1 + len(value)
        if isinstance(value, dict):
            parts = [*value, *value.values()]
        elif isinstance(value, list):
            parts = value
        else:
            return 1
        length = self._lengths.get(id(value))
        if length is None:
            length = 1 + sum(map(self._length, parts))
            self._lengths[id(value)] = length
        return length

    def _hide(self, schema: Mapping[str, object], written: dict[str, Any], side: Side) -> None:
        """Leave out properties that this side never sees."""
        properties = schema.get("properties")
        if not isinstance(properties, Mapping):
            return
        mark = HIDDEN[side]
        hidden = set()
        for name, said in properties.items():
            if isinstance(said, Mapping) and said.get(mark):
                hidden.add(name)
        if hidden:
            written["properties"] = {n: said for n, said in written["properties"].items() if n not in hidden}
            if "required" in written:
                written["required"] = [name for name in written["required"] if name not in hidden]


def _from_3_0(schema: Mapping[str, object], written: dict[str, Any]) -> dict[str, Any]:
    """Say in 2020-12 what the dialect of OpenAPI 3.0 says in its own way."""
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        mark = written.get(exclusive)
        if isinstance(mark, bool):
            del written[exclusive]
            if mark and bound in written:
                written[exclusive] = written.pop(bound)
    if schema.get("nullable"):
        if "enum" in written and None not in written["enum"]:
            written["enum"] = [*written["enum"], None]
        if isinstance(written.get("type"), str):
            written["type"] = [written["type"], "null"]
        elif "type" not in written and ("allOf" in written or "anyOf" in written or "oneOf" in written):
            return {"anyOf": [written, {"type": "null"}]}
    return written
