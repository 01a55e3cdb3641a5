"""Which arguments of a tool are mirrored in headers of an HTTP request (`x-mcp-header` in its input schema)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

ANNOTATION = "x-mcp-header"

Path = tuple[str, ...]
Annotated = Mapping[str, Path]
"""Where the mirrored arguments of a tool are, by the last part of their header's name."""

NOT_ANNOTATED: Annotated = {}

NAME_CHARACTERS = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
"""The characters of a token (RFC 9110 §5.6.2), which the name of a header is."""

MIRRORED_TYPES = {"string", "integer", "boolean"}
SCHEMA_VALUED = {
    *("items", "contains", "unevaluatedItems", "additionalProperties", "propertyNames", "unevaluatedProperties"),
    *("not", "if", "then", "else", "contentSchema"),
}
SCHEMA_LISTS = {"allOf", "anyOf", "oneOf", "prefixItems"}
SCHEMA_MAPS = {"patternProperties", "dependentSchemas", "$defs", "definitions"}
INNER = {"properties", *SCHEMA_VALUED, *SCHEMA_LISTS, *SCHEMA_MAPS}
"""All keywords that hold schemas."""

OBJECT = (dict, Mapping)
"""What an object of JSON is: a dict nearly always, which is quicker to tell."""

MAX_QUOTE = 60


def mirrored_arguments(input_schema: Mapping[str, object]) -> Annotated:
    """Return the arguments a tool wants mirrored; raises ValueError with the reason the tool cannot be used."""
    found: dict[str, Path] = {}
    taken: set[str] = set()
    for path, schema in _positions(input_schema):
        if ANNOTATION not in schema:
            continue
        name = schema[ANNOTATION]
        if not path:
            raise ValueError(f"{ANNOTATION} stands where no path of properties leads")
        place = ".".join(path)
        if not isinstance(name, str) or not name or not NAME_CHARACTERS.issuperset(name):
            raise ValueError(f"{ANNOTATION} of {place!r} is not a header name: {str(name)[:MAX_QUOTE]!r}")
        if _type(schema) not in MIRRORED_TYPES:
            raise ValueError(f"{ANNOTATION} of {place!r}: only a string, an integer or a boolean can be mirrored")
        if name.lower() in taken:
            raise ValueError(f"{ANNOTATION} {name!r} is used twice")
        taken.add(name.lower())
        found[name] = path
    return found


def _positions(root: object) -> Iterator[tuple[Path | None, Mapping[str, object]]]:
    """Yield every place of a schema that is a schema, with the properties that lead there (None: something else)."""
    stack: list[tuple[Path | None, object]] = [((), root)]
    while stack:
        path, schema = stack.pop()
        if not isinstance(schema, OBJECT):
            continue
        yield path, schema
        if INNER.isdisjoint(schema):
            continue
        for key, value in schema.items():
            if key == "properties" and isinstance(value, OBJECT):
                for name, each in value.items():
                    inner = None if path is None else (*path, name)
                    stack.append((inner, each))
            elif key in SCHEMA_VALUED:
                stack.append((None, value))
            elif key in SCHEMA_LISTS and isinstance(value, list):
                for each in value:
                    stack.append((None, each))
            elif key in SCHEMA_MAPS and isinstance(value, OBJECT):
                for each in value.values():
                    stack.append((None, each))


def _type(schema: Mapping[str, Any]) -> str | None:
    """Return the one type a property has beside null."""
    given = schema.get("type")
    if given is None and isinstance(schema.get("anyOf"), list):
        given = []
        for each in schema["anyOf"]:
            if isinstance(each, Mapping):
                given.append(each.get("type"))
            else:
                given.append(None)
    if isinstance(given, list):
        types = [each for each in given if each != "null"]
    else:
        types = [given]
    if len(types) == 1 and isinstance(types[0], str):
        return types[0]
    return None
