"""JSON Schema 2020-12 from Python types."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import Any, get_args, get_origin

import msgspec
from msgspec import inspect as mi

from ferrule.errors import SetupError
from ferrule.server.signatures import Parameter, Signature

Schema = dict[str, Any]

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


def schema_of(type_: Any) -> Schema:
    """Describe a type; a class is described at the root, with what it refers to under `$defs`."""
    writer = _Writer()
    try:
        return _rooted(writer.describe(type_), writer.definitions)
    except TypeError as error:
        raise SetupError(f"{type_!r} has no JSON Schema: {error}") from error


def arguments_schema(signature: Signature) -> Schema:
    """Describe a handler's parameters as one closed object."""
    writer = _Writer()
    properties: Schema = {}
    for parameter in signature.parameters:
        try:
            msgspec.json.Decoder(parameter.annotation)
            properties[parameter.name] = _property(parameter, writer)
        except TypeError as error:
            raise _unsupported(signature.name, parameter, error) from error
    schema: Schema = {"type": "object", "properties": properties}
    if required := [parameter.name for parameter in signature.parameters if parameter.required]:
        schema["required"] = required
    schema["additionalProperties"] = False
    return _with_definitions(schema, writer.definitions)


def wrapped_schema(type_: Any) -> tuple[Schema, bool]:
    """Describe a result as an object, and say whether it had to be put under `result` for that."""
    writer = _Writer()
    inner = writer.describe(type_)
    rooted = _rooted(inner, writer.definitions)
    if rooted.get("type") == "object":
        return rooted, False
    wrapped = {"type": "object", "properties": {"result": inner}, "required": ["result"]}
    return _with_definitions(wrapped, writer.definitions), True


def decode_hook(type_: type, value: Any) -> Any:
    """Make a value of a type msgspec does not know: a path or a pydantic model."""
    if issubclass(type_, PurePath):
        if not isinstance(value, str):
            raise ValueError("Expected a path as `str`")
        return type_(value)
    if _is_pydantic_model(type_):
        return _pydantic_value(type_, value)
    raise NotImplementedError(f"{type_!r} cannot be read from JSON")


def encode_hook(value: Any) -> Any:
    """Write a value of a type msgspec does not know: a path, a pydantic model, a kind of text or number."""
    if isinstance(value, PurePath):
        return str(value)
    for plain in (str, int, float):
        if isinstance(value, plain):
            return plain(value)
    if _is_pydantic_model(type(value)):
        return value.model_dump(mode="json")
    raise NotImplementedError(f"values of type {type(value).__name__} cannot be written as JSON")


def _is_pydantic_model(type_: Any) -> bool:
    # Only a program that has imported pydantic can hold one of its models.
    pydantic = sys.modules.get("pydantic")
    return pydantic is not None and isinstance(type_, type) and issubclass(type_, pydantic.BaseModel)


def _pydantic_value(model: Any, value: Any) -> Any:
    try:
        # The JSON reading, because strict models take dates and the like as text only there.
        return model.model_validate_json(msgspec.json.encode(value))
    except ValueError as error:
        problems: list[dict[str, Any]] = error.errors() if hasattr(error, "errors") else []
        lines = [f"{'/'.join(map(str, problem['loc']))}: {problem['msg']}".removeprefix(": ") for problem in problems]
        raise ValueError("; ".join(lines) or str(error)) from None


def _unsupported(function: str, parameter: Parameter, error: TypeError) -> SetupError:
    shown = re.sub(r"\b(typing|builtins)\.", "", str(parameter.annotation))
    if isinstance(parameter.annotation, type):
        shown = parameter.annotation.__qualname__
    return SetupError(
        f"{function}(): parameter {parameter.name!r} has the type {shown}, which cannot be read from JSON ({error});"
        " use a builtin type, a dataclass, TypedDict, msgspec.Struct or tagged msgspec.Struct union,"
        " annotate it as Any, or give schema={...}"
    )


def _property(parameter: Parameter, writer: _Writer) -> Schema:
    schema = writer.describe(parameter.annotation)
    if parameter.description is not None:
        schema["description"] = parameter.description
    if not parameter.required:
        schema |= _default(parameter.default)
    return schema


def _default(value: Any) -> Schema:
    """The `default` keyword, left out for a value JSON cannot say."""
    try:
        return {"default": msgspec.to_builtins(value, str_keys=True, enc_hook=encode_hook)}
    except (TypeError, ValueError, NotImplementedError, RecursionError):
        return {}


def _with_definitions(schema: Schema, definitions: Schema) -> Schema:
    return {**schema, "$defs": dict(sorted(definitions.items()))} if definitions else schema


def _rooted(schema: Schema, definitions: Schema) -> Schema:
    """Put the definition a bare root reference names at the root: old clients look for the type there."""
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name not in definitions:
        return _with_definitions(schema, definitions)
    beside = {key: value for key, value in schema.items() if key != "$ref"}
    others = {key: value for key, value in definitions.items() if key != name}
    root = {**definitions[name], **beside}
    kept = definitions if _refers((root, others), schema["$ref"]) else others
    return _with_definitions(root, kept)


def _refers(value: Any, reference: str) -> bool:
    if isinstance(value, dict):
        return value.get("$ref") == reference or any(_refers(item, reference) for item in value.values())
    return isinstance(value, list | tuple) and any(_refers(item, reference) for item in value)


def _rules(node: Any, names: dict[str, str]) -> Schema:
    found = {keyword: getattr(node, attribute) for attribute, keyword in names.items()}
    return {keyword: value for keyword, value in found.items() if value is not None}


def _choices(values: Iterable[Any]) -> Schema:
    choices = list(values)
    for type_, name in ((str, "string"), (int, "integer")):
        if all(type(choice) is type_ for choice in choices):
            return {"type": name, "enum": choices}
    return {"enum": choices}


def _label(class_: Any) -> str:
    """A name for `$defs`, with a generic's arguments in it."""
    parts = [getattr(get_origin(class_) or class_, "__name__", str(class_)), *map(_label, get_args(class_))]
    return re.sub(r"\W+", "_", "_".join(parts))


def _class_text(class_: Any) -> Schema:
    """A class's own docstring as its description; the ones Python makes up are left out."""
    plain = get_origin(class_) or class_
    text = plain.__dict__.get("__doc__")
    if not isinstance(text, str) or text.startswith(f"{plain.__name__}("):
        return {}
    return {"description": inspect.cleandoc(text)}


class _Writer:
    """Describes types that share one set of definitions."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}
        self._names: dict[Any, str] = {}

    def describe(self, type_: Any) -> Schema:
        return self._node(mi.type_info(type_))

    def _node(self, node: Any) -> Schema:
        plain = _PLAIN.get(type(node))
        if plain is not None:
            return dict(plain)
        return _WRITERS[type(node)](self, node)

    def metadata(self, node: mi.Metadata) -> Schema:
        return {**self._node(node.type), **(node.extra_json_schema or {})}

    def number(self, node: mi.IntType | mi.FloatType) -> Schema:
        kind = "integer" if isinstance(node, mi.IntType) else "number"
        return {"type": kind, **_rules(node, _NUMBER_RULES)}

    def text(self, node: mi.StrType) -> Schema:
        return {"type": "string", **_rules(node, _TEXT_RULES)}

    def literal(self, node: mi.LiteralType) -> Schema:
        return _choices(node.values)

    def enum(self, node: mi.EnumType) -> Schema:
        return {**_choices(member.value for member in node.cls), **_class_text(node.cls)}

    def union(self, node: mi.UnionType) -> Schema:
        choices = [self._node(member) for member in node.types]
        return {} if {} in choices else {"anyOf": choices}

    def list(self, node: mi.ListType | mi.VarTupleType) -> Schema:
        return {"type": "array", "items": self._node(node.item_type), **_rules(node, _LIST_RULES)}

    def set(self, node: mi.SetType | mi.FrozenSetType) -> Schema:
        return {"type": "array", "items": self._node(node.item_type), "uniqueItems": True, **_rules(node, _LIST_RULES)}

    def tuple(self, node: mi.TupleType) -> Schema:
        return _fixed_array([self._node(item) for item in node.item_types], len(node.item_types), closed=True)

    def map(self, node: mi.DictType) -> Schema:
        schema: Schema = {"type": "object", "additionalProperties": self._node(node.value_type)}
        key = self._node(node.key_type)
        if key.get("type") == "string" and len(key) > 1:
            schema["propertyNames"] = key
        return {**schema, **_rules(node, _MAP_RULES)}

    def record(self, node: mi.StructType | mi.DataclassType | mi.TypedDictType | mi.NamedTupleType) -> Schema:
        name = self._names.get(node.cls)
        if name is None:
            name = self._names[node.cls] = self._free_name(node.cls)
            # Claimed before its members are described, because they may refer to it.
            self.definitions[name] = {}
            is_array = isinstance(node, mi.NamedTupleType) or getattr(node, "array_like", False)
            self.definitions[name] = self._array_record(node) if is_array else self._object_record(node)
        return {"$ref": f"#/$defs/{name}"}

    def _free_name(self, class_: Any) -> str:
        name = _label(class_)
        if name in self.definitions:
            name = re.sub(r"\W+", "_", f"{class_.__module__}_{name}")
        suffix = 2
        while name in self.definitions:
            name, suffix = f"{_label(class_)}_{suffix}", suffix + 1
        return name

    def _member(self, field: mi.Field) -> Schema:
        schema = self._node(field.type)
        if field.default is not msgspec.NODEFAULT and field.default is not msgspec.UNSET:
            schema |= _default(field.default)
        elif field.default_factory in (list, dict, set):
            schema |= _default(field.default_factory())
        return schema

    def _object_record(self, node: Any) -> Schema:
        properties = {field.encode_name: self._member(field) for field in node.fields}
        schema: Schema = {"type": "object", **_class_text(node.cls), "properties": properties}
        required = [field.encode_name for field in node.fields if field.required]
        if getattr(node, "tag_field", None) is not None:
            schema["properties"] = {node.tag_field: _choices([node.tag]), **properties}
            required.insert(0, node.tag_field)
        if required:
            schema["required"] = required
        if getattr(node, "forbid_unknown_fields", False):
            schema["additionalProperties"] = False
        return schema

    def _array_record(self, node: Any) -> Schema:
        tag = getattr(node, "tag_field", None) is not None
        items = [*([_choices([node.tag])] if tag else []), *map(self._member, node.fields)]
        required = tag + sum(field.required for field in node.fields)
        closed = isinstance(node, mi.NamedTupleType) or node.forbid_unknown_fields
        return {**_class_text(node.cls), **_fixed_array(items, required, closed=closed)}

    def custom(self, node: mi.CustomType) -> Schema:
        if isinstance(node.cls, type) and issubclass(node.cls, PurePath):
            return {"type": "string", "format": "path"}
        if not _is_pydantic_model(node.cls):
            raise TypeError(f"{getattr(node.cls, '__name__', node.cls)} is not a type JSON has a form for")
        model: Any = node.cls
        schema: Schema = model.model_json_schema()
        for name, definition in schema.pop("$defs", {}).items():
            if self.definitions.setdefault(name, definition) != definition:
                raise TypeError(f"two different types are called {name}: rename one")
        return schema


def _fixed_array(items: list[Schema], required: int, *, closed: bool) -> Schema:
    schema: Schema = {"type": "array", "minItems": required}
    if items:
        schema["prefixItems"] = items
    return {**schema, "maxItems": len(items), "items": False} if closed else schema


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
