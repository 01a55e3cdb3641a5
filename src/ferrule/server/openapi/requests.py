"""Arguments of a tool written as a web request.

Rule: an argument is data. Whatever it holds, it cannot leave its place: no other path, host, header or field.
"""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote, unquote, urlencode

import msgspec
from msgspec import Struct

from ferrule.errors import ToolError, quoted
from ferrule.server.openapi.operations import PLACES, Body, Operation, Parameter

VARIABLE = re.compile(r"\{([^{}]+)\}")
MATRIX_NAME = re.compile(r";([^=;/{}]+)")
"""The name of a path-style parameter (RFC 6570 §3.2.7) that a path has in itself."""
DELIMITERS = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
SEPARATOR = re.compile(r"[/\\\x00-\x1f\x7f]|%(?:25)*(?:2f|5c|2e|[01][0-9a-f]|7f)", re.IGNORECASE)
"""What could end a segment of a path, as it is or percent-encoded any number of times; a dot only where encoded."""
UNPRINTABLE = re.compile(r"[^\t -~]")
"""What the value of a header may not hold: anything but printable ASCII and tabs."""
CUT_OFF = re.compile(r"[;?#].*", re.DOTALL)
"""What a server may cut off a segment before it looks where that leads: parameters, and what was encoded."""
DOTS = re.compile(r"\.{1,2}(?:[;?#].*)?", re.DOTALL)
"""A segment that means this or the one above, also before what a server may cut off."""


class Outgoing(Struct, frozen=True):
    """A request as it goes out: the path with its query, headers, and the body."""

    method: str
    url: str
    headers: dict[str, str]
    content: bytes | None


def compose(operation: Operation, arguments: Mapping[str, object]) -> Outgoing:
    """Return the request of one call; raises ToolError for an argument that cannot go where it belongs."""
    given: dict[str, dict[Parameter, Any]] = {place: {} for place in PLACES}
    for parameter in operation.parameters:
        if parameter.argument in arguments:
            given[parameter.place][parameter] = arguments[parameter.argument]
    _check_matrix(operation, given["path"])
    url = _path(operation, given["path"])
    pairs: list[str] = []
    for parameter, value in given["query"].items():
        pairs.extend(_query(parameter, value))
    _check_query(operation, given["query"])
    if pairs:
        url += "?" + "&".join(pairs)
    headers: dict[str, str] = {}
    for parameter, value in given["header"].items():
        headers[parameter.name] = _header(parameter, value)
    cookies: list[str] = []
    for parameter, value in given["cookie"].items():
        cookies.append(f"{parameter.name}={_encoded(value)}")
    if cookies:
        headers["Cookie"] = "; ".join(cookies)
    content, media_type = _content(operation.body, arguments)
    if media_type:
        headers["Content-Type"] = media_type
    return Outgoing(operation.method, url, headers, content)


def _plain(value: object) -> str:
    """Write one value as a web form does."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    return msgspec.json.encode(value).decode()


def _encoded(value: object) -> str:
    return quote(_plain(value), safe="")


def _members(value: Mapping[str, object], joint: str) -> list[str]:
    """Write each member of an object as its name, the joint and its value."""
    return [f"{_encoded(name)}{joint}{_encoded(item)}" for name, item in value.items()]


def _path(operation: Operation, given: Mapping[Parameter, Any]) -> str:
    values = {parameter.name: (parameter, value) for parameter, value in given.items()}

    def fill(variable: re.Match[str]) -> str:
        parameter, value = values[variable[1]]
        written = _segment(parameter, value)
        if not written:
            raise ToolError(f"{operation.place}: the path argument {parameter.argument!r} is empty; give it a value")
        return written

    segments = operation.path.split("/")
    for at, segment in enumerate(segments):
        if VARIABLE.search(segment):
            segments[at] = VARIABLE.sub(fill, segment)
            _check_segment(operation, segments[at])
    _check_others(operation, segments)
    return "/".join(segments)


def _check_segment(operation: Operation, segment: str) -> None:
    """Refuse what a server or a proxy could take for more or less than one segment of the path.

    Encoding does not help: many of them decode `%2F` before they route, and take dot segments away (RFC 3986 §5.2.4).
    """
    text = unquote(segment)
    if DOTS.fullmatch(text):
        raise ToolError(f"{operation.place}: a path may not have the segment {quoted(text)!r}; give another value")
    if SEPARATOR.search(text):
        raise ToolError(
            f"{operation.place}: an argument of the path may not hold '/', a backslash or a control character,"
            " nor any of them percent-encoded; give another value"
        )


def _check_others(operation: Operation, segments: list[str]) -> None:
    """Refuse arguments that make up the path of an operation that is not offered."""
    for other in operation.left_out:
        if _reaches(segments, other):
            raise ToolError(f"{operation.place}: with these arguments it is another operation, which is not offered")


def _reaches(segments: list[str], template: str) -> bool:
    """Return whether a server could take a path for one of the template, which has as many segments."""
    for segment, wanted in zip(segments, template.split("/"), strict=True):
        text = unquote(segment).casefold()
        if not _fits(text, wanted.casefold()) and not _fits(CUT_OFF.sub("", text), wanted.casefold()):
            return False
    return True


def _fits(text: str, wanted: str) -> bool:
    """Return whether a segment of a path could be one of a template."""
    before, variable, rest = wanted.partition("{")
    start = unquote(before)
    if not variable:
        return text == start
    return text.startswith(start) and text.endswith(unquote(rest.rpartition("}")[2]))


def paths_beside(operation: Operation, left_out: Iterable[Operation]) -> tuple[str, ...]:
    """Return the paths of operations that are left out and that arguments of this operation could make up."""
    own = operation.path.split("/")
    found: list[str] = []
    for other in left_out:
        theirs = other.path.split("/")
        if other.method == operation.method and len(theirs) == len(own) and _may_become(own, theirs):
            found.append(other.path)
    return tuple(found)


def _may_become(own: list[str], other: list[str]) -> bool:
    """Return whether arguments could make a path of one template into one of another, which has as many segments."""
    fills_literal = False
    for ours, theirs in zip(own, other, strict=True):
        if ours == theirs:
            continue
        if "{" not in ours and "{" not in theirs:
            return False
        if "{" in ours and not theirs.startswith("{"):
            fills_literal = True
    return fills_literal


def _segment(parameter: Parameter, value: object) -> str:
    """Write the value of a path parameter (OpenAPI 3.1 §4.8.12.4, RFC 6570 §3.2); what is empty has no form."""
    if isinstance(value, list | Mapping) and not value:
        return ""
    prefix = ""
    separator = ","
    if parameter.style == "label":
        prefix = "."
        separator = "."
    elif parameter.style == "matrix":
        prefix = f";{_encoded(parameter.name)}="
        separator = prefix
    if not parameter.explode:
        separator = ","
    if isinstance(value, list):
        return prefix + separator.join(map(_encoded, value))
    if isinstance(value, Mapping):
        if parameter.explode and parameter.style == "matrix":
            # Each member has its own name instead of the parameter's.
            prefix = ";"
            separator = ";"
        return prefix + separator.join(_members(value, _joint(parameter)))
    return prefix + _encoded(value)


def _joint(parameter: Parameter) -> str:
    """Return what stands between the name and the value of a member."""
    if parameter.explode:
        return "="
    return ","


def _query(parameter: Parameter, value: object) -> list[str]:
    name = _encoded(parameter.name)
    if value is None:
        return []
    if parameter.as_json:
        text = msgspec.json.encode(value).decode()
        return [f"{name}={_encoded(text)}"]
    if isinstance(value, list):
        items = [_encoded(item) for item in value]
        if parameter.explode:
            return [f"{name}={item}" for item in items]
        delimiter = DELIMITERS.get(parameter.style, ",")
        return [f"{name}={delimiter.join(items)}"]
    if isinstance(value, Mapping):
        if parameter.style == "deepObject":
            return [f"{name}%5B{_encoded(member)}%5D={_encoded(item)}" for member, item in value.items()]
        if parameter.explode:
            return _members(value, "=")
        return [f"{name}={','.join(_members(value, ','))}"]
    return [f"{name}={_encoded(value)}"]


def _check_query(operation: Operation, given: Mapping[Parameter, Any]) -> None:
    """Refuse objects whose members go into the query by their own names, where one is or sets a parameter."""
    names = {parameter.name for parameter in operation.parameters if parameter.place == "query"}
    apart: dict[Parameter, Any] = {}
    for parameter, value in given.items():
        if parameter.explode and not parameter.as_json and parameter.style != "deepObject":
            apart[parameter] = value
    _check_members(operation, apart, names)


def _check_matrix(operation: Operation, given: Mapping[Parameter, Any]) -> None:
    """Refuse objects whose members go into the path by their own names, where one stands there already."""
    names = set(map(unquote, MATRIX_NAME.findall(operation.path)))
    names |= {parameter.name for parameter in operation.parameters if parameter.place == "path"}
    apart: dict[Parameter, Any] = {}
    for parameter, value in given.items():
        if parameter.explode and parameter.style == "matrix":
            apart[parameter] = value
    _check_members(operation, apart, names)


def _check_members(operation: Operation, apart: Mapping[Parameter, Any], names: set[str]) -> None:
    """Refuse a member without a name, one with a name that is there, and one that two objects have."""
    owners: dict[str, Parameter] = {}
    for parameter, value in apart.items():
        if not isinstance(value, Mapping):
            continue
        for name in value:
            argument = parameter.argument
            if not name:
                raise ToolError(f"{operation.place}: {argument!r} may not have a member without a name")
            # Many servers read `a[b]` as a member of `a`.
            if name in names or name.partition("[")[0] in names:
                raise ToolError(f"{operation.place}: {argument!r} may not have the member {quoted(name)!r}")
            other = owners.setdefault(name, parameter)
            if other is not parameter:
                raise ToolError(
                    f"{operation.place}: {other.argument!r} and {argument!r} may not both have the member"
                    f" {quoted(name)!r}"
                )


def _header(parameter: Parameter, value: object) -> str:
    if isinstance(value, list):
        text = ",".join(map(_plain, value))
    elif isinstance(value, Mapping):
        joint = _joint(parameter)
        text = ",".join(f"{name}{joint}{_plain(item)}" for name, item in value.items())
    else:
        text = _plain(value)
    if UNPRINTABLE.search(text):
        raise ToolError(f"the header {parameter.name} cannot carry this value: only printable ASCII can go there")
    return text


def _content(body: Body | None, arguments: Mapping[str, object]) -> tuple[bytes | None, str]:
    if body is None:
        return None, ""
    kind = body.media_type.partition(";")[0].strip().lower()
    if body.fields is None:
        return _whole(body, arguments, kind)
    members = {}
    for argument, name in body.fields.items():
        if argument in arguments:
            members[name] = arguments[argument]
    binary = {body.fields[argument] for argument in body.binary}
    if kind == "multipart/form-data":
        return _multipart(members, binary)
    if kind == "application/x-www-form-urlencoded":
        pairs: list[tuple[str, str]] = []
        for name, value in members.items():
            for item in _items(value):
                pairs.append((name, _plain(item)))
        return urlencode(pairs).encode(), body.media_type
    return msgspec.json.encode(members), body.media_type


def _whole(body: Body, arguments: Mapping[str, object], kind: str) -> tuple[bytes | None, str]:
    argument = body.whole
    if argument not in arguments:
        return None, ""
    value = arguments[argument]
    if argument in body.binary:
        return _bytes_of(argument, value), body.media_type
    if kind.startswith("text/"):
        return _plain(value).encode(), body.media_type
    if kind == "application/x-www-form-urlencoded" and isinstance(value, Mapping):
        fields = {name: _plain(item) for name, item in value.items()}
        return urlencode(fields).encode(), body.media_type
    return msgspec.json.encode(value), body.media_type


def _items(value: object) -> list[Any]:
    """Return the values of a field of a form: each item of a list is sent as a field of its own."""
    if isinstance(value, list):
        return value
    return [value]


def _bytes_of(name: str, value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise ToolError(f"{name} must be base64") from None


def _multipart(members: Mapping[str, object], binary: set[str]) -> tuple[bytes, str]:
    boundary = secrets.token_hex(16)
    parts: list[bytes] = []
    for name, value in members.items():
        for item in _items(value):
            parts.append(_form_part(boundary, name, item, name in binary))
    parts.append(f"--{boundary}--\r\n".encode())
    return b"".join(parts), f"multipart/form-data; boundary={boundary}"


def _form_part(boundary: str, name: str, value: object, is_file: bool) -> bytes:
    field = name.replace("\\", "\\\\").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    head = f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"'
    if is_file:
        head += f'; filename="{field}"\r\nContent-Type: application/octet-stream'
        return head.encode() + b"\r\n\r\n" + _bytes_of(name, value) + b"\r\n"
    if isinstance(value, Mapping | list):
        head += "\r\nContent-Type: application/json"
    return head.encode() + b"\r\n\r\n" + _plain(value).encode() + b"\r\n"
