"""What every part of the vocabulary is made of: models, metadata, icons, annotations, pages."""

# No `from __future__ import annotations`: every start decodes structs of this module, and of annotations that are texts
# msgspec makes a decoder in three times the time.

from functools import cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, StructMeta, UnsetType, field

from ferrule.budgets.bounds import (
    MAX_CURSOR_LENGTH,
    MAX_ID_LENGTH,
    MAX_META_SIZE,
    MAX_NAME_LENGTH,
    MAX_URI_LENGTH,
)
from ferrule.budgets.weight import full_weight

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_LENGTH)]
"""A name in a request; a longer one is refused."""
Uri = Annotated[str, msgspec.Meta(max_length=MAX_URI_LENGTH)]
Cursor = Annotated[str, msgspec.Meta(max_length=MAX_CURSOR_LENGTH)]
Token = int | Annotated[str, msgspec.Meta(max_length=MAX_ID_LENGTH)]
"""An id of a request where another message names it."""

Role = Literal["user", "assistant"]
LogLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
CacheScope = Literal["private", "public"]

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO_KEY = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL_KEY = "io.modelcontextprotocol/logLevel"
SERVER_INFO_KEY = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

JsonObject = dict[str, Any]
"""An object as JSON has it, of whatever members."""


class Vocabulary(StructMeta):
    """Makes classes that know their members by the specification's names too, beside ours.

    `Icon(mimeType=…)` is `Icon(mime_type=…)`, and `icon.mimeType` reads the same slot. A class with a tag has it as
    an attribute (`block.type`) and accepts it as an argument. Decoding does not come by here; code that runs for every
    call makes its objects with `quickly`.
    """

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, object], **keywords: object) -> None:  # noqa: N805
        super().__init__(name, bases, namespace, **keywords)
        if cls.__struct_fields__ != cls.__struct_encode_fields__:
            for ours, theirs in _spec_names(cls).items():
                if ours != theirs and ours in cls.__dict__:
                    setattr(cls, theirs, cls.__dict__[ours])
        config = cls.__struct_config__
        if config.tag_field is not None:
            setattr(cls, config.tag_field, config.tag)

    def __call__(cls, *args: object, **members: object) -> Any:  # noqa: N805
        try:
            return super().__call__(*args, **members)
        except TypeError as reason:
            ours = _in_our_words(cls, members, str(reason))
        try:
            return super().__call__(*args, **ours)
        except TypeError as reason:
            raise TypeError(_refusal(cls, str(reason))) from None


quickly = StructMeta.__call__
"""Make an object of a class without looking at the specification's names: `quickly(TextContent, "hello")`."""


def _spec_names(cls: StructMeta) -> dict[str, str]:
    """Return what the specification calls each member."""
    return dict(zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True))


def _in_our_words(cls: StructMeta, members: dict[str, object], reason: str) -> dict[str, object]:
    """Return arguments under our names; raise TypeError where there is nothing to translate."""
    ours_of = {theirs: ours for ours, theirs in _spec_names(cls).items()}
    tag_field = cls.__struct_config__.tag_field
    translated: dict[str, object] = {}
    changed = False
    for name, value in members.items():
        if name == tag_field:
            tag = cls.__struct_config__.tag
            if value != tag:
                raise TypeError(f"{cls.__name__}: {name} is {tag!r}, not {value!r}")
            changed = True
            continue
        ours = ours_of.get(name, name)
        if ours != name:
            if ours in members:
                raise TypeError(f"{cls.__name__}: {ours} and {name} are the same argument")
            changed = True
        translated[ours] = value
    if not changed:
        raise TypeError(_refusal(cls, reason)) from None
    return translated


def _refusal(cls: StructMeta, reason: str) -> str:
    """Return what is wrong with the arguments, and what they may be."""
    return f"{cls.__name__}: {reason[:1].lower()}{reason[1:]}; it takes {', '.join(cls.__struct_fields__)}"


class Model(Struct, omit_defaults=True, rename="camel", kw_only=True, metaclass=Vocabulary):
    """A part of the vocabulary; unknown members are ignored, members at their default are not written."""

    def to_dict(self) -> JsonObject:
        """Return it as plain JSON values, under the specification's names; members at their default are left out."""
        plain: JsonObject = msgspec.json.decode(self.to_json())
        return plain

    def to_json(self) -> str:
        """Return it as JSON, as it is sent."""
        return msgspec.json.encode(self).decode()


class Value(Struct, frozen=True, omit_defaults=True, rename="camel", kw_only=True, metaclass=Vocabulary):
    """A part of the vocabulary that never changes once made."""

    to_dict = Model.to_dict
    to_json = Model.to_json


class Icon(Value, frozen=True, kw_only=True):
    """A picture a client may show."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Annotations(Value, frozen=True, kw_only=True):
    """Hints on who content is for and how much it matters."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


class Implementation(Value, frozen=True, kw_only=True):
    """A program's name and version, for display and logs only."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None


class RootsCapability(Value, frozen=True, kw_only=True):
    """The client can list the folders it works in."""

    list_changed: bool | None = None


class SamplingCapability(Value, frozen=True, kw_only=True):
    """The client can ask a model; with tools, with context."""

    context: JsonObject | None = None
    tools: JsonObject | None = None


class ElicitationCapability(Value, frozen=True, kw_only=True):
    """The client can ask its user, by form or by URL; neither named means by form."""

    form: JsonObject | None = None
    url: JsonObject | None = None


class ClientCapabilities(Value, frozen=True, kw_only=True):
    """What a client offers to a server; a member that is present, even empty, is supported."""

    roots: RootsCapability | None = None
    sampling: SamplingCapability | None = None
    elicitation: ElicitationCapability | None = None
    tasks: JsonObject | None = None
    experimental: JsonObject | None = None
    extensions: JsonObject | None = None


class Meta(Struct, frozen=True, gc=False):
    """What the protocol itself reads from a request's `_meta`; everything else there is the users'."""

    progress_token: Token | None = field(default=None, name="progressToken")
    version: str | UnsetType = field(default=UNSET, name=VERSION_KEY)
    client_info: Implementation | UnsetType = field(default=UNSET, name=CLIENT_INFO_KEY)
    client_capabilities: ClientCapabilities | UnsetType = field(default=UNSET, name=CLIENT_CAPABILITIES_KEY)
    log_level: LogLevel | UnsetType = field(default=UNSET, name=LOG_LEVEL_KEY)


@cache
def _meta_decoder() -> msgspec.json.Decoder[Meta | None]:
    """Return what reads them; made for the first, since a start should not wait for it."""
    return msgspec.json.Decoder(Meta | None)


_metas: dict[bytes, Meta | None] = {}
_last_meta: list[Any] = [Raw(b""), None]
MOST_METAS = 256
"""How many texts of `_meta` are remembered with what they say."""
HEAVIEST_META = 8 * 1024
"""Estimated bytes of one that is remembered, text and all."""


def read_meta(raw: Raw) -> Meta | None:
    """Read a request's `_meta`; a client says the same with every request, so what was read is kept for a while."""
    meta: Meta | None
    last, meta = _last_meta
    if raw == last:
        return meta
    words = bytes(raw)
    if words in _metas:
        meta = _metas[words]
        _last_meta[:] = Raw(words), meta
        return meta
    if len(words) > MAX_META_SIZE:
        raise msgspec.ValidationError(f"Expected an object of at most {MAX_META_SIZE} bytes - at `$._meta`")
    try:
        meta = _meta_decoder().decode(words)
    except msgspec.ValidationError as reason:
        raise msgspec.ValidationError(_below_meta(str(reason))) from None
    if full_weight(words) <= HEAVIEST_META:
        if len(_metas) >= MOST_METAS:
            _metas.clear()
        _metas[words] = meta
        _last_meta[:] = Raw(words), meta
    return meta


def is_remembered(raw: Raw) -> bool:
    """Return whether the same words, said again, will be read as the same object."""
    return full_weight(bytes(raw)) <= HEAVIEST_META


def _below_meta(reason: str) -> str:
    """Return where in the params something is wrong, when only their `_meta` was read."""
    if "at `$" in reason:
        return reason.replace("at `$", "at `$._meta")
    return f"{reason} - at `$._meta`"


class Params(Struct, rename="camel", gc=False, kw_only=True):
    """Params of a request as received; subclasses add what their method reads."""

    meta: Raw | UnsetType = field(default=UNSET, name="_meta")


class MetaOnly(Params, kw_only=True):
    """Any request, read for its metadata alone."""


_read_meta_only = msgspec.json.Decoder(MetaOnly).decode


def meta_in(params: object) -> bytes:
    """Return the `_meta` of params that nobody has read; empty without one, or where they cannot be read."""
    if not isinstance(params, Raw):
        return b""
    try:
        found = _read_meta_only(params).meta
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return b""
    return b"" if found is UNSET else bytes(found)


class Page(Params, kw_only=True):
    """Params of the list methods."""

    cursor: Cursor | None = None


class Result(Model, kw_only=True):
    """Any result; its kind is named in the stateless era only."""

    result_type: str | None = None
    meta: JsonObject | None = field(default=None, name="_meta")


class CacheableResult(Result, kw_only=True):
    """A result the client may keep for a while."""

    ttl_ms: int | None = None
    cache_scope: CacheScope | None = None


class PagedResult(CacheableResult, kw_only=True):
    """One page of a list."""

    next_cursor: str | None = None


class EmptyResult(Result, kw_only=True):
    """Nothing to tell but that it was done."""
