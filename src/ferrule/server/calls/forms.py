"""Questions to the client, written from Python values, and its answers read back into them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec
from msgspec import Raw, Struct

from ferrule.budgets.bounds import MAX_URI_LENGTH
from ferrule.errors import Declined, InvalidParams, SetupError, UrlElicitationRequired, quoted
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Answers, Question
from ferrule.schema.elicitation import ElicitResult
from ferrule.schema.model import Model
from ferrule.schema.sampling import SamplingMessage
from ferrule.server.functions.schemas import inlined, schema_of
from ferrule.server.functions.types.extra_types import convert
from ferrule.server.functions.types.readable import readable

PRIMITIVES = frozenset({"string", "number", "integer", "boolean"})
KEPT_RULES = frozenset({"type", "title", "description", "default", "enum", "enumNames", "oneOf", "format"}) | {
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "items",
}
FORMATS = frozenset({"email", "uri", "date", "date-time"})

SINGLE_FIELD = "value"
MOST_FORMS = 256
"""How many types keep their form; one more forgets the one that was asked for longest ago."""
UNSAFE = re.compile(r"[\x00-\x20\x7f<>\"\\^`{|}]")
"""Characters that no URL has (RFC 3986 §2)."""


class Elicitation(Struct, frozen=True):
    """What the user did, and the value they gave when they accepted."""

    action: str
    data: Any = None

    @property
    def accepted(self) -> bool:
        """Whether the user accepted."""
        return self.action == "accept"


class Visit(Struct, frozen=True):
    """One URL that a refusal asks the user to visit."""

    url: str
    message: str = ""


class Visits(Struct, frozen=True):
    """The data of such a refusal."""

    elicitations: list[Visit]


def elicit_question(message: str, schema: object, key: str) -> Question:
    """Return the question that has a form filled in; its schema is a type, a JSON Schema, or None for a mere yes."""
    return Question("elicitation/create", {"message": message, "mode": "form", "requestedSchema": _form(schema)}, key)


def url_question(message: str, url: str, key: str, identity: str = "") -> Question:
    """Return the question that has a URL visited; the identity is the `elicitationId` of the handshake era."""
    params = {"message": message, "mode": "url", "url": checked_url(url)}
    if identity:
        params["elicitationId"] = identity
    return Question("elicitation/create", params, key)


def checked_url(url: object) -> str:
    """Return a URL that a client may open; raises SetupError for one that is not absolute, http or https."""
    if not isinstance(url, str) or len(url) > MAX_URI_LENGTH:
        raise SetupError(f"elicitation: the URL must be a str of at most {MAX_URI_LENGTH:,} characters")
    from urllib.parse import urlsplit

    wrong = ""
    try:
        parts = urlsplit(url)
        host = parts.hostname
        port = parts.port
    except ValueError as error:
        raise SetupError(f"elicitation: {quoted(url)!r} is not a valid URL: {error}") from None
    if not url.isascii() or UNSAFE.search(url):
        wrong = "it holds a character that must be percent-encoded"
    elif parts.scheme not in ("http", "https") or not host or port == 0:
        wrong = "it must be absolute and begin with https:// or http://"
    elif "@" in parts.netloc:
        wrong = "it must not hold a user name or a password"
    if wrong:
        if "@" in url:
            shown = "this URL"
        else:
            shown = repr(quoted(url))
        raise SetupError(f"elicitation: the user cannot be sent to {shown}: {wrong}")
    return url


def ask_to_visit(call: Call, refusal: UrlElicitationRequired) -> None:
    """Ask for the URLs a refusal names where no refusal can name them; raises Need, or Declined once they were.

    A URL that was accepted and is still required is asked for again: the user may have been slower than the client.
    """
    if call.peer.revision.two_way:
        for visit in _visits(refusal.data):
            checked_url(visit.url)
        return
    answers = call.answers = call.answers or Answers()
    missing = []
    for visit in _visits(refusal.data):
        question = url_question(visit.message or refusal.message, visit.url, "")
        missing.append((_unanswered(answers, question), question))
    if missing:
        call.era.ask(call, missing)


def _unanswered(answers: Answers, question: Question) -> str:
    """Return the key under which a visit is to be asked for next; raise Declined where the user said no before."""
    while True:
        key = answers.key_for(question)
        known = answers.find(key, question)
        if known is None:
            return key
        answer = read_elicitation(known)
        if answer.action != "accept":
            raise Declined(answer.action)


def _visits(data: object) -> list[Visit]:
    try:
        return msgspec.convert(data, Visits).elicitations
    except msgspec.ValidationError:
        return []


def _meant(schema: Any) -> Any:
    """Return the type that is asked for: a list of texts, as other libraries write choices, is a choice among them."""
    is_choice = isinstance(schema, list) and schema and all(isinstance(choice, str) for choice in schema)
    if is_choice:
        return Literal[tuple(schema)]
    return schema


class TypedForm(Struct, frozen=True):
    """The form that asks for a value of a type."""

    schema: dict[str, Any]
    """What the client is sent; shared by all who ask, so nobody changes it."""
    is_single: bool
    """Whether the type is one value, which the form has as its only field."""
    type: Any
    """What the answer is read into."""

    def read(self, content: dict[str, Any]) -> Any:
        """Make the value of a client's answer; `msgspec.ValidationError` when it does not fit."""
        given = content.get(SINGLE_FIELD) if self.is_single else content
        return convert(given, self.type, strict=False)


def _form(schema: object) -> dict[str, Any]:
    schema = _meant(schema)
    if schema is None:
        return {"type": "object", "properties": {}}
    if isinstance(schema, Mapping):
        return _checked(dict(schema))
    return _typed_form(schema).schema


def _typed_form(type_: object) -> TypedForm:
    """Return the form of a type: compiled once, unless the type cannot be told from others by its hash."""
    try:
        return _kept_form(type_)
    except TypeError:
        # Not hashable, or no type a form can be made of: then this says so.
        return _new_form(type_)


def _new_form(type_: object) -> TypedForm:
    schema = schema_of(type_)
    is_single = inlined(schema).get("type") != "object"
    if is_single:
        schema = _single(schema)
    form = inlined(schema)
    form["properties"] = {name: _with_text_choices(rules) for name, rules in form.get("properties", {}).items()}
    return TypedForm(_checked(form), is_single, readable(type_))


_kept_form = lru_cache(maxsize=MOST_FORMS)(_new_form)


def _with_text_choices(rules: object) -> Any:
    """Write the choices of a form as text, which is all a form can offer; the answer is read back into the type."""
    if isinstance(rules, list):
        return list(map(_with_text_choices, rules))
    if not isinstance(rules, dict):
        return rules
    rules = dict(rules)
    for key in ("items", "anyOf"):
        if key in rules:
            rules[key] = _with_text_choices(rules[key])
    if "enum" in rules:
        rules |= {"type": "string", "enum": list(map(str, rules["enum"]))}
        if rules.get("default") is not None:
            rules["default"] = str(rules["default"])
    return rules


def _single(schema: dict[str, Any]) -> dict[str, Any]:
    inner = {}
    for rule, value in schema.items():
        if rule != "$defs":
            inner[rule] = value
    definitions = schema.get("$defs", {})
    return {
        "type": "object",
        "properties": {SINGLE_FIELD: inner},
        "required": [SINGLE_FIELD],
        "$defs": definitions,
    }


def _checked(schema: dict[str, Any]) -> dict[str, Any]:
    """Refuse forms a client cannot show, naming the field."""
    if schema.get("type", "object") != "object":
        raise SetupError("an elicitation form is an object with one member per field")
    properties = {}
    for name, rules in schema.get("properties", {}).items():
        properties[name] = _field(name, rules)
    form: dict[str, Any] = {"type": "object", "properties": properties}
    if schema.get("required"):
        form["required"] = list(schema["required"])
    return form


def _field(name: str, rules: dict[str, Any]) -> dict[str, Any]:
    rules = _without_null(rules)
    if "enum" in rules and "type" not in rules:
        rules = {"type": "string", **rules}
    kind = rules.get("type")
    if not all(isinstance(choice, str) for choice in rules.get("enum", ())):
        raise SetupError(f"elicitation field {name!r}: the choices of a form are text")
    if kind == "array":
        items = rules.get("items", {})
        if not ("enum" in items or "anyOf" in items):
            raise SetupError(f"elicitation field {name!r}: a list must choose from an enum of strings")
    elif kind not in PRIMITIVES:
        raise SetupError(
            f"elicitation field {name!r}: its type must be str, int, float, bool or an enum, not {kind or 'this'}"
        )
    kept = {}
    for rule, value in rules.items():
        if rule in KEPT_RULES:
            kept[rule] = value
    if kept.get("format") not in FORMATS:
        kept.pop("format", None)
    return kept


def _without_null(rules: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without null: an optional field is one that may be left out."""
    choices = []
    for choice in rules.get("anyOf", ()):
        if choice.get("type") != "null":
            choices.append(choice)
    if len(choices) == 1:
        rest = {}
        for rule, value in rules.items():
            if rule != "anyOf" and not (rule == "default" and value is None):
                rest[rule] = value
        return {**choices[0], **rest}
    return rules


def read_elicitation(raw: Raw, schema: object = None) -> Elicitation:
    """Read the user's answer into the type that was asked for."""
    try:
        answer = msgspec.json.decode(raw, type=ElicitResult)
    except (msgspec.DecodeError, RecursionError) as reason:
        raise InvalidParams(f"The answer to the elicitation is malformed: {reason}") from None
    if answer.action != "accept":
        return Elicitation(answer.action)
    content: Any = answer.content or {}
    schema = _meant(schema)
    if schema is None:
        return Elicitation(answer.action, content or None)
    if isinstance(schema, Mapping):
        return Elicitation(answer.action, _fitting(content, schema))
    try:
        return Elicitation(answer.action, _typed_form(schema).read(content))
    except msgspec.ValidationError as reason:
        raise InvalidParams(f"The answer to the elicitation does not fit its form: {reason}") from None


def _fitting(content: dict[str, Any], schema: Mapping[str, object]) -> dict[str, Any]:
    """Check an answer against the schema it was asked with: its client may not have."""
    from ferrule.validation.checker import given_schema

    _, checker = given_schema(_form(schema), "the requested schema")
    found = checker.violations(content, len(msgspec.json.encode(content)))
    if found:
        raise InvalidParams(f"The answer to the elicitation does not fit its form: {found[0].path} {found[0].message}")
    return content


def sample_question(messages: object, max_tokens: int, key: str, options: Mapping[str, object]) -> Question:
    """Return the question for the client's model."""
    params = {"messages": list(map(_message, _listed(messages))), "maxTokens": max_tokens}
    for name, value in options.items():
        if value is not None:
            params[_camel(name)] = _plain(value)
    return Question("sampling/createMessage", params, key)


def _listed(messages: object) -> list[Any]:
    if isinstance(messages, list | tuple):
        return list(messages)
    return [messages]


def _message(part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"role": "user", "content": {"type": "text", "text": part}}
    if isinstance(part, SamplingMessage):
        message: dict[str, Any] = _plain(part)
        return message
    if isinstance(part, Mapping) and "role" in part:
        content = part["content"]
        if isinstance(content, str):
            text = {"type": "text", "text": content}
        else:
            text = _plain(content)
        return {"role": part["role"], "content": text}
    return {"role": "user", "content": _plain(part)}


def _plain(value: object) -> Any:
    if isinstance(value, Model):
        return msgspec.to_builtins(value)
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _camel(name: str) -> str:
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
