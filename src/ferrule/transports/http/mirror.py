"""Headers that mirror the body of a request: write them, check them.

MCP 2026-07-28 transports/streamable-http, Request Metadata.

Rule: a header is compared with the reading that is served; what this module cannot read, the server refuses anyway.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct, field

from ferrule.errors import HeaderMismatch
from ferrule.schema.mirrored import NOT_ANNOTATED, Annotated, Path
from ferrule.schema.model import VERSION_KEY

VERSION_HEADER = "Mcp-Protocol-Version"
METHOD_HEADER = "Mcp-Method"
NAME_HEADER = "Mcp-Name"
PARAM_PREFIX = "Mcp-Param-"

VERSION_FIELD, METHOD_FIELD, NAME_FIELD = (h.lower().encode() for h in (VERSION_HEADER, METHOD_HEADER, NAME_HEADER))

NAMED_BY = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
"""The member of params that `Mcp-Name` mirrors, by method."""

MAY_LACK_NAME = frozenset({"tasks/get", "tasks/update", "tasks/cancel"})
"""Methods whose `Mcp-Name` is compared where it is given: clients of fastmcp-tasks leave it out (SEP-2663 wants it)."""

NOTHING = Raw(b"")

PLAIN = re.compile(r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?|")
SENTINEL = re.compile(r"=\?base64\?(.*)\?=", re.DOTALL)
DECIMAL = re.compile(r"(-?[0-9]{1,400})(\.0+)?")

MAX_QUOTE = 60


# -- values


def encode_value(text: str) -> str:
    """Write a value so that it survives a header: as it is where that is safe, else in base64 (Value Encoding)."""
    if PLAIN.fullmatch(text) and not SENTINEL.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode()).decode()}?="


def decode_value(text: str) -> str:
    """Read a header's value back; raises ValueError for what nobody who writes properly would send."""
    found = SENTINEL.fullmatch(text)
    if found is None:
        if not text.isascii() or not (text.isprintable() or text.replace("\t", " ").isprintable()):
            raise ValueError("it has characters no header may have")
        return text
    payload = found.group(1)
    try:
        value = base64.b64decode(payload, validate=True)
        if base64.b64encode(value).decode() != payload:
            raise ValueError("its base64 is not in the canonical form")
        return value.decode()
    except (binascii.Error, UnicodeError):
        raise ValueError("its base64 is malformed") from None


def _rendered(value: object) -> str | None:
    """Return an argument the form it has in a header; None where it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, int | float):
        return str(value)
    return None


def _argument(arguments: object, path: Path) -> object:
    for key in path:
        if not isinstance(arguments, Mapping):
            return None
        arguments = arguments.get(key)
    return arguments


# -- the client writes


def mirrored_headers(
    method: str, params: Mapping[str, object], annotated: Annotated = NOT_ANNOTATED, version: str | None = None
) -> dict[str, str]:
    """Return the headers a request of the stateless era goes with; the version is the body's, unless it is given."""
    if version is None:
        version = version_of(params.get("_meta"))
    headers = {VERSION_HEADER: version or "", METHOD_HEADER: encode_value(method)}
    name = params.get(NAMED_BY.get(method, ""))
    if isinstance(name, str):
        headers[NAME_HEADER] = encode_value(name)
    headers.update(param_headers(params.get("arguments"), annotated))
    return headers


def param_headers(arguments: object, annotated: Annotated) -> dict[str, str]:
    """Return the headers that mirror a tool's arguments; what is null or absent has none."""
    headers = {}
    for name, path in annotated.items():
        text = _rendered(_argument(arguments, path))
        if text is not None:
            headers[PARAM_PREFIX + name] = encode_value(text)
    return headers


def version_of(meta: object) -> str | None:
    """Read the version from a request's metadata, encoded or not."""
    if isinstance(meta, Raw):
        return _read_meta(meta).version or None
    version = meta.get(VERSION_KEY) if isinstance(meta, Mapping) else None
    if isinstance(version, str):
        return version
    return None


# -- the server checks


class PeekMeta(Struct, frozen=True, gc=False):
    """Of the metadata, the version only."""

    version: str | None = field(name=VERSION_KEY, default=None)


class PeekParams(Struct, frozen=True, gc=False):
    """Of the params, what is mirrored; the name may have any type here, since only some methods demand a string."""

    meta: PeekMeta | None = field(name="_meta", default=None)
    name: Any = None
    uri: Any = None
    taskId: Any = None  # noqa: N815 - the wire's word, as NAMED_BY has it
    arguments: Raw = NOTHING


class Peek(Struct, frozen=True, gc=False):
    """What of a body its headers mirror; reading it fails only where the whole body would be refused."""

    method: str = ""
    params: PeekParams = PeekParams()

    @property
    def version(self) -> str | None:
        """The version the body names: what marks a request of the stateless era."""
        meta = self.params.meta
        if meta is None:
            return None
        return meta.version


_read_meta = msgspec.json.Decoder(PeekMeta).decode
peek = msgspec.json.Decoder(Peek).decode
"""Read a body as far as its headers mirror it; raises msgspec.DecodeError (also ValidationError), RecursionError."""


def check(headers: Mapping[bytes, bytes], body: Peek, annotated: Annotated = NOT_ANNOTATED) -> None:
    """Compare the headers of a request (names in lower case) with its body; raises HeaderMismatch."""
    method = body.method
    params = body.params
    member = NAMED_BY.get(method)
    if member is None:
        name = None
    else:
        name = getattr(params, member)
    given_version = headers.get(VERSION_FIELD)
    given_method = headers.get(METHOD_FIELD)
    given_name = headers.get(NAME_FIELD)
    if given_version is None:
        raise _missing(VERSION_HEADER)
    if given_method is None:
        raise _missing(METHOD_HEADER)
    if given_name is None and name is not None and method not in MAY_LACK_NAME:
        raise _missing(NAME_HEADER, f"{method} of {_short(str(name))} names it there too")
    if params.meta is None or params.meta.version is None:
        return  # The era refuses a request without metadata, by its own number.
    if given_version != params.meta.version.encode():
        raise _different(VERSION_HEADER, given_version, params.meta.version)
    if given_method != method.encode():
        raise _different(METHOD_HEADER, given_method, method)
    if given_name is not None and name.__class__ is str and not _mirrors(given_name, name):
        raise _different(NAME_HEADER, given_name, name)
    if annotated and method == "tools/call":
        check_arguments(headers, body, annotated)


def _mirrors(given: bytes, name: str) -> bool:
    if given == name.encode() and given.isascii() and not given.startswith(b"=?"):
        return True
    return _decoded(given, NAME_HEADER) == name


def check_arguments(headers: Mapping[bytes, bytes], body: Peek, annotated: Annotated) -> None:
    """Compare the mirrored arguments of a tool call with its body; raises HeaderMismatch."""
    raw = body.params.arguments
    if raw is NOTHING:
        arguments = None
    else:
        arguments = msgspec.json.decode(raw)
    for short, path in annotated.items():
        header = PARAM_PREFIX + short
        value = _argument(arguments, path)
        text = _rendered(value)
        given = headers.get(header.lower().encode())
        if text is None:
            if given is not None:
                raise HeaderMismatch(f"Header mismatch: {header} is given, but the body has no {'.'.join(path)!r}")
        elif given is None:
            raise _missing(header)
        elif not _same(_decoded(given, header), text, value):
            raise _different(header, given, text)


def _same(decoded: str, text: str, value: object) -> bool:
    number = DECIMAL.fullmatch(decoded)
    if number is None or isinstance(value, str):
        return decoded == text
    return decoded == text or number.group(1) == text


def _decoded(given: bytes, header: str) -> str:
    try:
        return decode_value(given.decode("latin-1"))
    except ValueError as reason:
        raise HeaderMismatch(f"Header mismatch: the value of {header} cannot be read: {reason}") from None


def _missing(header: str, why: str = "") -> HeaderMismatch:
    hint = f"; the client has to send it: {why}" if why else ""
    return HeaderMismatch(f"Header mismatch: the header {header} is missing{hint}")


def _different(header: str, given: bytes, expected: str) -> HeaderMismatch:
    ours = given.decode("latin-1")
    return HeaderMismatch(f"Header mismatch: {header} is {_short(ours)}, the body says {_short(expected)}")


def _short(text: str) -> str:
    if len(text) <= MAX_QUOTE:
        return repr(text)
    return f"{text[:MAX_QUOTE]!r}…"
