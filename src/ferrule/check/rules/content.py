"""What results are made of: content blocks, resource contents, URIs and schemas, and what may be wrong with them."""

from __future__ import annotations

import base64
import binascii
import re

import jsonschema_rs
import msgspec

from ferrule.check.answer import Json, shown

MOST_SCHEMA = 256 * 1024
"""Bytes of a schema that is looked at."""
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]*")
"""An absolute URI: RFC 3986 §3.1 and the characters of §2."""
VARIABLE = r"(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2})(?:\.?(?:[A-Za-z0-9_]|%[0-9A-Fa-f]{2}))*(?:\*|:[1-9][0-9]{0,3})?"
EXPRESSION = re.compile(rf"\{{[+#./;?&]?{VARIABLE}(?:,{VARIABLE})*\}}")
"""An expression of RFC 6570 §2.2."""
MEMBERS = {
    "text": ("text",),
    "image": ("data", "mimeType"),
    "audio": ("data", "mimeType"),
    "resource_link": ("uri", "name"),
}
"""The members that each kind of block has, all of them strings."""


def is_absolute(uri: object) -> bool:
    """Whether a value is an absolute URI."""
    return isinstance(uri, str) and SCHEME.fullmatch(uri) is not None


def is_template(text: object) -> bool:
    """Whether a value is a URI template."""
    if not isinstance(text, str):
        return False
    literals = EXPRESSION.sub("", text)
    return bool(text) and "{" not in literals and "}" not in literals


def is_encoded(text: object) -> bool:
    """Whether a value is base64."""
    if not isinstance(text, str):
        return False
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def contents_fault(contents: object) -> str:
    """Return what is wrong with one item of what a read brought; empty for nothing."""
    if not isinstance(contents, dict):
        return f"contents hold {shown(contents)}"
    if not isinstance(contents.get("uri"), str):
        return f"contents have no uri: {shown(contents)}"
    if isinstance(contents.get("text"), str):
        return ""
    if is_encoded(contents.get("blob")):
        return ""
    return f"contents have neither text nor base64 in blob: {shown(contents)}"


def block_fault(block: object) -> str:
    """Return what is wrong with a content block; empty for nothing. A kind we do not know is not judged."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return f"a content block without a type: {shown(block)}"
    kind = block["type"]
    if kind == "resource":
        return contents_fault(block.get("resource"))
    for member in MEMBERS.get(kind, ()):
        if not isinstance(block.get(member), str):
            return f"{kind} content without {member}: {shown(block)}"
    if kind in ("image", "audio") and not is_encoded(block["data"]):
        return f"{kind} content whose data is not base64"
    return ""


def schema_fault(schema: Json) -> str:
    """Return why a value is no JSON Schema of its dialect; empty for a valid one, and for one too large to judge."""
    try:
        if len(msgspec.json.encode(schema)) > MOST_SCHEMA:
            return ""
        jsonschema_rs.meta.validate(schema)
    except jsonschema_rs.ValidationError as reason:
        place = "/".join(map(str, reason.instance_path))
        return f"{reason.message[:200]} (at /{place})"
    except (ValueError, RecursionError, TypeError):
        # A dialect that is not known here is not judged.
        return ""
    return ""


def value_fault(value: object, schema: Json) -> str:
    """Return why a value does not fit a schema; empty for one that does, and for a schema that cannot be used here."""
    try:
        if len(msgspec.json.encode(schema)) > MOST_SCHEMA or len(msgspec.json.encode(value)) > MOST_SCHEMA:
            return ""
        validator = jsonschema_rs.validator_for(schema)
        if validator.is_valid(value):
            return ""
        error = next(validator.iter_errors(value))
    except (ValueError, RecursionError, TypeError, StopIteration):
        return ""
    place = "/".join(map(str, error.instance_path))
    return f"{error.message[:200]} (at /{place})"
