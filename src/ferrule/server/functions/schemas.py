"""JSON Schema 2020-12 from Python types."""

from __future__ import annotations

import copy
import enum
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec
from msgspec import inspect as mi

from ferrule.errors import SetupError
from ferrule.schema.mirrored import ANNOTATION
from ferrule.schema.wrapped import wrapping
from ferrule.server.functions.signatures import Parameter, Signature
from ferrule.server.functions.types.extra_types import encode_hook, extra_type
from ferrule.server.functions.types.readable import is_plain, readable, shape_of
from ferrule.server.functions.types.records import record_fields
from ferrule.server.functions.types.stand_in import Mode, Schema, StandIn, choices, shown

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

    def _part(self, part: object, inside: tuple[str, ...]) -> Any:
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
        beside = {}
        for key, value in part.items():
            if key != "$ref":
                beside[key] = value
        return self._part({**self._definitions[name], **beside}, (*inside, name))

    def _keep(self, name: str) -> None:
        if name not in self._kept:
            self._kept[name] = {}
            self._kept[name] = self._part(self._definitions[name], (name,))


def _referred(part: Schema) -> str | None:
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith(PREFIX):
        return reference.removeprefix(PREFIX)
    return None


def _is_tag_map(key: str, item: object) -> bool:
    """Return whether a member names definitions by tag, which says nothing once they are gone."""
    return key == "discriminator" and isinstance(item, dict) and "mapping" in item


_PLAIN: dict[type[mi.Type], Schema] = {
    mi.AnyType: {},
    mi.RawType: {},
    mi.NoneType: {"type": "null"},
    mi.BoolType: {"type": "boolean"},
    mi.BytesType: {"type": "string", "contentEncoding": "base64"},
    mi.ByteArrayType: {"type": "string", "contentEncoding": "base64"},
    mi.MemoryViewType: {"type": "string", "contentEncoding": "base64"},
    mi.DateTimeType: {"type": "string", "format": "date-time"},
    mi.DateType: {"type": "string", "format": "date"},
    mi.TimeType: {"type": "string", "format": "time"},
    mi.TimeDeltaType: {"type": "string", "format": "duration"},
    mi.UUIDType: {"type": "string", "format": "uuid"},
    mi.DecimalType: {"anyOf": [{"type": "number"}, {"type": "string", "format": "decimal"}]},
}
_PLAIN_NAMES: dict[object, str] = {str: "string", int: "integer", bool: "boolean", float: "number"}
_WRITTEN: dict[object, bytes] = {}
"""Schemas of types made of Python's own classes, by their shapes: a server's tools mostly have the same few."""
_WRAPPED: dict[object, tuple[Schema, bool]] = {}
"""The same of results."""
_NUMBER_RULES = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
}
_TEXT_RULES = {"min_length": "minLength", "max_length": "maxLength", "pattern": "pattern"}
_LIST_RULES = {"min_length": "minItems", "max_length": "maxItems"}
_MAP_RULES = {"min_length": "minProperties", "max_length": "maxProperties"}


def schema_of(type_: object) -> Schema:
    """Describe a type; a class is described at the root, with what it refers to under `$defs`."""
    writer = _Writer()
    try:
        return _rooted(writer.describe(readable(type_)), writer.definitions)
    except (TypeError, NameError) as error:
        raise SetupError(f"{type_!r} has no JSON Schema: {error}") from error


def arguments_schema(signature: Signature) -> Schema:
    """Describe a handler's parameters, which are `readable`, as one closed object."""
    writer = _Writer()
    properties: Schema = {}
    for parameter in signature.parameters:
        try:
            if not is_plain(parameter.type):
                msgspec.json.Decoder(parameter.type)
            properties[parameter.key] = _mirrored(_property(parameter, writer))
        except (TypeError, NameError) as error:
            raise unsupported(signature.name, parameter, error) from error
    schema: Schema = {"type": "object", "properties": properties}
    if required := [parameter.key for parameter in signature.parameters if parameter.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return _with_definitions(schema, writer.definitions)


def _mirrored(schema: Schema) -> Schema:
    """Write a parameter that a header mirrors without its null: such a one has exactly one type (HDR-8).

    A null is taken all the same, and has no header.
    """
    if ANNOTATION not in schema and "anyOf" not in schema:
        return schema
    choices = schema.get("anyOf", ())
    given = []
    for choice in choices:
        if choice != {"type": "null"}:
            given.append(choice)
    is_mirrored = ANNOTATION in schema or any(ANNOTATION in choice for choice in given)
    if len(given) != 1 or len(choices) == 1 or not is_mirrored:
        return schema
    rest = {}
    for key, value in schema.items():
        if key != "anyOf":
            rest[key] = value
    if rest.get("default", ...) is None:
        del rest["default"]
    return _mirrored({**given[0], **rest})


def wrapped_schema(type_: object) -> tuple[Schema, bool]:
    """Describe a `readable` result as an object, and say whether it had to be put under `result` for that.

    Tools that give the same type of Python's own share its schema: nobody changes one that is published.
    """
    shape = shape_of(type_)
    if shape is None:
        return _wrapped_schema(type_)
    if shape not in _WRAPPED:
        _WRAPPED[shape] = _wrapped_schema(type_)
    return _WRAPPED[shape]


def _wrapped_schema(type_: object) -> tuple[Schema, bool]:
    writer = _Writer("serialization")
    inner = writer.describe(type_)
    rooted = _rooted(inner, writer.definitions)
    if rooted.get("type") == "object":
        return rooted, False
    return _with_definitions(wrapping(inner), writer.definitions), True


def unsupported(function: str, parameter: Parameter, error: Exception) -> SetupError:
    """Say which parameter cannot be read from JSON, why, and what can."""
    return SetupError(
        f"{function}(): parameter {parameter.name!r} has the type {shown(parameter.annotation)},"
        f" which cannot be read from JSON ({error});"
        " use a builtin type, a dataclass, TypedDict, msgspec.Struct, attrs class or pydantic model,"
        " annotate it as Any, or give schema={...}"
    )


def _property(parameter: Parameter, writer: _Writer) -> Schema:
    schema = writer.describe(parameter.type)
    if parameter.description is not None:
        schema["description"] = parameter.description
    if not parameter.required:
        schema |= _default(parameter.made_default())
    return schema


def _default(value: object) -> Schema:
    """Return the `default` keyword, left out for a value JSON cannot say."""
    try:
        return {"default": msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook)}
    except (TypeError, ValueError, NotImplementedError, RecursionError):
        return {}


def _with_definitions(schema: Schema, definitions: Schema) -> Schema:
    if definitions:
        return {**schema, "$defs": dict(sorted(definitions.items()))}
    return schema


def _rooted(schema: Schema, definitions: Schema) -> Schema:
    """Put the definition a bare root reference names at the root: old clients look for the type there."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name not in definitions:
        return _with_definitions(schema, definitions)
    beside = {}
    for key, value in schema.items():
        if key != "$ref":
            beside[key] = value
    others = {}
    for key, value in definitions.items():
        if key != name:
            others[key] = value
    root = {**definitions[name], **beside}
    kept = definitions if _refers((root, others), schema["$ref"]) else others
    return _with_definitions(root, kept)


def _refers(value: object, reference: str) -> bool:
    if isinstance(value, dict):
        return value.get("$ref") == reference or any(_refers(item, reference) for item in value.values())
    return isinstance(value, list | tuple) and any(_refers(item, reference) for item in value)


def _rules(node: object, names: dict[str, str]) -> Schema:
    found = {keyword: getattr(node, attribute) for attribute, keyword in names.items()}
    return {keyword: value for keyword, value in found.items() if value is not None}


def _label(class_: object) -> str:
    """Return a name for `$defs`, with a generic's arguments in it."""
    parts = [getattr(get_origin(class_) or class_, "__name__", str(class_)), *map(_label, get_args(class_))]
    return re.sub(r"\W+", "_", "_".join(parts))


def _class_text(class_: Any) -> Schema:
    """Return a class's own docstring as its description; the ones Python makes up are left out."""
    plain = get_origin(class_) or class_
    text = plain.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{plain.__name__}("):
        return {}
    return {"description": inspect.cleandoc(text)}


def _field_texts(class_: object) -> dict[str, str]:
    """Return the texts that stand beside the types of a class's fields."""
    hints = {}
    for field in record_fields(class_) or ():
        if get_origin(field.type) is Annotated:
            hints[field.key] = field.type
    if not hints:
        return {}
    from ferrule.server.functions.types.constraints import description_of

    texts = {key: description_of(get_args(hint)[1:]) for key, hint in hints.items()}
    found: dict[str, str] = {}
    for key, text in texts.items():
        if text is not None:
            found[key] = text
    return found


def _literals(type_: object) -> dict[frozenset[Any], tuple[Any, ...]]:
    """Find the literals in a type, each by its values, with None and without: None may be told apart from them."""
    parts = get_args(type_)
    if get_origin(type_) is Literal:
        some = tuple(value for value in parts if value is not None)
        return {frozenset(some): some, frozenset(parts): parts}
    return {key: values for part in parts for key, values in _literals(part).items()}


class _Writer:
    """Describes types that share one set of definitions."""

    def __init__(self, mode: Mode = "validation") -> None:
        self.mode = mode
        self.definitions: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}
        self._orders: dict[frozenset[Any], tuple[Any, ...]] = {}
        """Literals as they were written: msgspec sorts them, and who is shown a form reads it from top to bottom."""

    def describe(self, type_: object) -> Schema:
        """Describe a `readable` type."""
        if is_plain(type_):
            return {"type": _PLAIN_NAMES[type_]}
        shape = shape_of(type_)
        if shape is None:
            self._orders |= _literals(type_)
            return self.node(mi.type_info(type_))
        written = _WRITTEN.get(shape)
        if written is None:
            written = _WRITTEN[shape] = msgspec.json.encode(self.node(mi.type_info(type_)))
        schema: Schema = msgspec.json.decode(written)
        return schema

    def define(self, type_: object, make: Callable[[], Schema]) -> Schema:
        """Describe a type once, and refer to it: its members may do so too."""
        name = self._names.get(type_)
        if name is None:
            name = self._names[type_] = self._free_name(type_)
            self.definitions[name] = {}
            self.definitions[name] = make()
        return {"$ref": f"#/$defs/{name}"}

    def node(self, node: Any) -> Schema:
        plain = _PLAIN.get(type(node))
        if plain is not None:
            return copy.deepcopy(plain)
        return _WRITERS[type(node)](self, node)

    def metadata(self, node: mi.Metadata) -> Schema:
        return {**self.node(node.type), **(node.extra_json_schema or {})}

    def number(self, node: mi.IntType | mi.FloatType) -> Schema:
        kind = "integer" if isinstance(node, mi.IntType) else "number"
        return {"type": kind, **_rules(node, _NUMBER_RULES)}

    def text(self, node: mi.StrType) -> Schema:
        return {"type": "string", **_rules(node, _TEXT_RULES)}

    def literal(self, node: mi.LiteralType) -> Schema:
        return choices(self._orders.get(frozenset(node.values), node.values))

    def enum(self, node: mi.EnumType) -> Schema:
        if issubclass(node.cls, enum.Flag):
            every = sum(member.value for member in node.cls)
            return {"type": "integer", "minimum": 0, "maximum": every, **_class_text(node.cls)}
        return {**choices(member.value for member in node.cls), **_class_text(node.cls)}

    def union(self, node: mi.UnionType) -> Schema:
        members = list(map(self.node, node.types))
        listed = []
        for member in members:
            # A member that is itself a choice adds its own: a choice of choices is one choice.
            if member.keys() == {"anyOf"}:
                listed.extend(member["anyOf"])
            else:
                listed.append(member)
        if {} in listed:
            return {}
        return {"anyOf": listed}

    def list(self, node: mi.ListType | mi.VarTupleType) -> Schema:
        return {"type": "array", "items": self.node(node.item_type), **_rules(node, _LIST_RULES)}

    def set(self, node: mi.SetType | mi.FrozenSetType) -> Schema:
        return {"type": "array", "items": self.node(node.item_type), "uniqueItems": True, **_rules(node, _LIST_RULES)}

    def tuple(self, node: mi.TupleType) -> Schema:
        return _fixed_array(list(map(self.node, node.item_types)), len(node.item_types), closed=True)

    def map(self, node: mi.DictType) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self.node(node.value_type)}
        key = self.node(node.key_type)
        if key.get("type") == "string" and len(key) > 1:
            schema["propertyNames"] = key
        return {**schema, **_rules(node, _MAP_RULES)}

    def record(self, node: mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType) -> Schema:
        is_array = isinstance(node, mi.NamedTupleType) or getattr(node, "array_like", False)
        make = self._array_record if is_array else self._object_record
        for field in record_fields(node.cls) or ():
            self._orders |= _literals(field.type)
        return self.define(node.cls, lambda: make(node))

    def _free_name(self, class_: object) -> str:
        name = _label(class_)
        if name in self.definitions:
            name = re.sub(r"\W+", "_", f"{class_.__module__}_{name}")
        suffix = 2
        while name in self.definitions:
            name = f"{_label(class_)}_{suffix}"
            suffix = suffix + 1
        return name

    def _member(self, field: mi.Field) -> Schema:
        schema = self.node(field.type)
        if field.default is not msgspec.NODEFAULT and field.default is not msgspec.UNSET:
            schema |= _default(field.default)
        elif field.default_factory in (list, dict, set):
            schema |= _default(field.default_factory())
        return schema

    def _object_record(self, node: Any) -> Schema:
        properties = {field.encode_name: self._member(field) for field in node.fields}
        for key, text in _field_texts(node.cls).items():
            properties[key].setdefault("description", text)
        schema: Schema = {"type": "object", **_class_text(node.cls), "properties": properties}
        required = []
        for field in node.fields:
            if field.required:
                required.append(field.encode_name)
        if getattr(node, "tag_field", None) is not None:
            schema["properties"] = {node.tag_field: choices([node.tag]), **properties}
            required.insert(0, node.tag_field)
        if required:
            schema["required"] = required
        if getattr(node, "forbid_unknown_fields", False):
            schema["additionalProperties"] = False
        return schema

    def _array_record(self, node: Any) -> Schema:
        tag = getattr(node, "tag_field", None) is not None
        items = [*([choices([node.tag])] if tag else []), *map(self._member, node.fields)]
        required = tag + sum(field.required for field in node.fields)
        closed = isinstance(node, mi.NamedTupleType) or node.forbid_unknown_fields
        return {**_class_text(node.cls), **_fixed_array(items, required, closed=closed)}

    def custom(self, node: mi.CustomType) -> Schema:
        found = node.cls if isinstance(node.cls, StandIn) else extra_type(node.cls)
        if found is None:
            raise TypeError(f"{getattr(node.cls, '__name__', node.cls)} is not a type JSON has a form for")
        return found.describe(self)


def _fixed_array(items: list[Schema], required: int, *, closed: bool) -> Schema:
    schema: Schema = {"type": "array", "minItems": required}
    if items:
        schema["prefixItems"] = items
    if closed:
        return {**schema, "maxItems": len(items), "items": False}
    return schema


_WRITERS: dict[type, Callable[[_Writer, Any], Schema]] = {
    mi.Metadata: _Writer.metadata,
    mi.IntType: _Writer.number,
    mi.FloatType: _Writer.number,
    mi.StrType: _Writer.text,
    mi.LiteralType: _Writer.literal,
    mi.EnumType: _Writer.enum,
    mi.UnionType: _Writer.union,
    mi.ListType: _Writer.list,
    mi.VarTupleType: _Writer.list,
    mi.SetType: _Writer.set,
    mi.FrozenSetType: _Writer.set,
    mi.TupleType: _Writer.tuple,
    mi.DictType: _Writer.map,
    getattr(mi, "FrozenDictType", mi.DictType): _Writer.map,
    mi.StructType: _Writer.record,
    mi.DataclassType: _Writer.record,
    mi.TypedDictType: _Writer.record,
    mi.NamedTupleType: _Writer.record,
    mi.CustomType: _Writer.custom,
}
