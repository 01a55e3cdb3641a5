"""One operation of a web API: its name, its parameters and body, and what it returns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.schema.wrapped import wrapping
from ferrule.server.openapi.document import Document
from ferrule.server.openapi.schemas import Schemas

PLACES = ("path", "query", "header", "cookie")
USUAL_STYLES = {"path": "simple", "query": "form", "header": "simple", "cookie": "form"}
FORMS = ("application/x-www-form-urlencoded", "multipart/form-data")
UNSETTABLE = frozenset({"accept", "content-type", "authorization"})
"""Headers OpenAPI keeps for itself: parameters of these names are to be ignored."""
SILENT = frozenset({"title", "description", "default", "example", "examples", "deprecated", "externalDocs"})
"""What a schema may say without refusing anything."""
BODY = "body"
CONTEXT = "ferrule_context"
"""What the function of a tool is handed beside its arguments."""


class Parameter(Struct, frozen=True):
    """An argument that goes into the path, the query, a header or a cookie."""

    argument: str
    name: str
    place: str
    style: str
    explode: bool
    as_json: bool = False


class Body(Struct, frozen=True):
    """What goes into the body, and how it is written."""

    media_type: str
    fields: Mapping[str, str] | None
    """Its members by argument; None when the body is one argument."""
    whole: str = ""
    """That argument."""
    binary: frozenset[str] = frozenset()
    """The arguments that are base64 here and bytes there."""


class Operation(Struct, frozen=True):
    """One operation of a web API."""

    method: str
    path: str
    identity: str
    summary: str
    tags: frozenset[str]
    parameters: tuple[Parameter, ...]
    body: Body | None
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    wraps: bool
    """Whether the output schema wraps an answer that is not an object."""
    deprecated: bool = False
    left_out: tuple[str, ...] = ()
    """Paths of operations that are not offered and that arguments of this one could make up."""

    @property
    def place(self) -> str:
        """The operation as people write it: `GET /pets`."""
        return f"{self.method} {self.path}"


def read_operation(document: Document, schemas: Schemas, method: str, path: str, said: Mapping[str, Any]) -> Operation:
    """Return an operation as the document describes it."""
    taken = _Arguments(document, schemas, f"{method} {path}")
    taken.read_parameters(said.get("parameters") or ())
    body = taken.read_body(said.get("requestBody"))
    output, wraps = _output(document, schemas, said.get("responses") or {})
    texts = []
    for word in ("summary", "description"):
        if said.get(word):
            texts.append(str(schemas.data(said[word])).strip())
    return Operation(
        method=method,
        path=path,
        identity=schemas.data(str(said.get("operationId") or "")),
        summary="\n\n".join(dict.fromkeys(texts)) or f"{method} {path}",
        tags=frozenset(map(str, schemas.data(said.get("tags") or ()))),
        parameters=tuple(taken.parameters),
        body=body,
        input_schema=taken.schema(),
        output_schema=output,
        wraps=wraps,
        deprecated=bool(said.get("deprecated")),
    )


class _Arguments:
    """Gathers the arguments of one operation under names that do not clash."""

    def __init__(self, document: Document, schemas: Schemas, place: str) -> None:
        self._document = document
        self._schemas = schemas
        self._place = place
        self._needed: set[str] = set()
        self._properties: dict[str, Any] = {}
        self._required: list[str] = []
        self.parameters: list[Parameter] = []

    def schema(self) -> dict[str, Any]:
        """Return the schema of all arguments."""
        schema: dict[str, Any] = {"type": "object", "properties": self._properties, "additionalProperties": False}
        if self._required:
            schema["required"] = self._required
        definitions = self._schemas.definitions(self._needed, "request")
        if definitions:
            schema["$defs"] = definitions
        return schema

    def read_parameters(self, given: Any) -> None:
        """Take the parameters; one of the operation replaces one of its path."""
        found: dict[tuple[str, str], Mapping[str, Any]] = {}
        for item in given:
            said = self._document.follow(item, f"a parameter of {self._place}")
            place = str(said.get("in"))
            name = self._schemas.data(str(said.get("name")))
            if place not in PLACES:
                raise SetupError(
                    f"{self._place}: the parameter {name!r} is in {place!r}, which OpenAPI 3 does not have"
                )
            if place != "header" or name.lower() not in UNSETTABLE:
                found[place, name] = said
        count = Counter(name for _, name in found)
        for (place, name), said in found.items():
            argument = name
            if count[name] > 1:
                argument = f"{name}__{place}"
            self._add_parameter(self._free(argument, place), place, name, said)
        self._check_path({name for place, name in found if place == "path"})

    def _free(self, name: str, place: str) -> str:
        """Return a name that no argument has yet: the given one, or one that says where it goes."""
        while name in self._properties or name == CONTEXT:
            name = f"{name}__{place}"
        return name

    def _add_parameter(self, argument: str, place: str, name: str, said: Mapping[str, Any]) -> None:
        contents: dict[str, Any] = said.get("content") or {}
        if contents:
            schema = next(iter(contents.values()))["schema"]
        else:
            schema = said.get("schema")
        written = self._schemas.part(schema or {}, "request", self._needed)
        if said.get("description"):
            written = {**written, "description": self._schemas.data(said["description"])}
        self._properties[argument] = written
        if said.get("required") or place == "path":
            self._required.append(argument)
        style = str(said.get("style") or USUAL_STYLES[place])
        explode = bool(said.get("explode", style == "form"))
        self.parameters.append(Parameter(argument, name, place, style, explode, as_json=bool(contents)))

    def _check_path(self, given: set[str]) -> None:
        wanted = set(re.findall(r"\{([^{}]+)\}", self._place))
        missing = sorted(wanted - given)
        if missing:
            raise SetupError(f"{self._place}: the path names {missing[0]!r}, which is not a parameter")

    def read_body(self, given: object) -> Body | None:
        """Return the body: the members of an object become arguments of their own, anything else is one argument."""
        if not given:
            return None
        said = self._document.follow(given, f"the body of {self._place}")
        contents = said.get("content") or {}
        self._schemas.names(contents)
        media_type = _preferred(contents)
        if media_type is None:
            return None
        schema = (contents[media_type] or {}).get("schema") or {}
        members = None
        if _is_json(media_type) or media_type in FORMS:
            members = self._members(schema)
        required = bool(said.get("required"))
        if members is None:
            return self._add_whole(schema, media_type, required, said.get("description"))
        properties, wanted = members
        fields: dict[str, str] = {}
        binary: set[str] = set()
        for name, part in properties.items():
            argument = self._free(name, BODY)
            fields[argument] = name
            self._properties[argument] = self._schemas.part(part, "request", self._needed)
            if required and name in wanted:
                self._required.append(argument)
            if self._is_binary(part):
                binary.add(argument)
        return Body(media_type, fields, binary=frozenset(binary))

    def _add_whole(self, schema: object, media_type: str, required: bool, description: object) -> Body:
        argument = self._free(BODY, BODY)
        binary: frozenset[str] = frozenset()
        if _is_json(media_type) or media_type.startswith("text/") or media_type in FORMS:
            written = self._schemas.part(schema, "request", self._needed)
        else:
            written = {"type": "string", "contentEncoding": "base64"}
            binary = frozenset({argument})
        if description:
            written = {**written, "description": self._schemas.data(description)}
        self._properties[argument] = written
        if required:
            self._required.append(argument)
        return Body(media_type, None, argument, binary)

    def _members(self, schema: object) -> tuple[dict[str, Any], set[str]] | None:
        """Return the properties of an object and which are required; None for anything that is not plainly one."""
        said = self._schemas.resolved(schema)
        self._schemas.part_seen(said)
        if said.get("anyOf") or said.get("oneOf") or said.get("nullable") or said.get("additionalProperties"):
            return None
        properties = dict(said.get("properties") or {})
        required = set(said.get("required") or ())
        for part in said.get("allOf") or ():
            members = self._members(part)
            if members is None:
                return None
            properties |= members[0]
            required |= members[1]
        self._schemas.names(properties)
        self._schemas.names(required)
        shown = {}
        for name, part in properties.items():
            if not isinstance(part, Mapping) or not part.get("readOnly"):
                shown[name] = part
        if not shown:
            return None
        return shown, required

    def _is_binary(self, schema: object) -> bool:
        said = self._schemas.resolved(schema)
        return said.get("format") == "binary" or said.get("contentMediaType") == "application/octet-stream"


def _preferred(contents: Mapping[str, object]) -> str | None:
    """Return the media type to send a body in: JSON before a form, a form before text, text before anything else."""
    return min(contents, key=_rank, default=None)


def _rank(media_type: str) -> int:
    if _is_json(media_type):
        return 0
    if media_type in FORMS:
        return 1
    if media_type.startswith("text/"):
        return 2
    return 3


def _is_json(media_type: str) -> bool:
    kind = media_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _output(
    document: Document, schemas: Schemas, responses: Mapping[str, object]
) -> tuple[dict[str, Any] | None, bool]:
    """Return the schema every good answer keeps, if there is one, and whether it had to be wrapped to be an object."""
    schema = _answer_schema(document, schemas, responses)
    if schema is None:
        return None, False
    if schemas.resolved(schema).get("type") == "object":
        whole = schemas.whole(schema, "answer")
        if "$ref" in schema:
            whole = {"type": "object", **whole}
        return whole, False
    needed: set[str] = set()
    wrapped = wrapping(schemas.part(schema, "answer", needed))
    definitions = schemas.definitions(needed, "answer")
    if definitions:
        wrapped = {**wrapped, "$defs": definitions}
    return wrapped, True


def _answer_schema(document: Document, schemas: Schemas, responses: Mapping[str, object]) -> Mapping[str, Any] | None:
    """Return the schema of the answers with a status of 2xx, else of the default; None where they differ."""
    schemas.names(responses)
    # A document written in YAML may have its statuses as numbers.
    answers = {str(status): said for status, said in responses.items()}
    good = sorted(status for status in answers if status.startswith("2"))
    if not good and "default" in answers:
        good = ["default"]
    promised = [_promised(schemas, document.follow(answers[status], f"the answer {status}")) for status in good]
    if len(promised) > 1:
        # Two of them may be equal and not the same: comparing goes through what all their aliases stand for.
        for schema in promised:
            schemas.data(schema)
    if not promised or any(schema != promised[0] for schema in promised):
        return None
    return promised[0]


def _promised(schemas: Schemas, answer: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return what an answer promises of its JSON; None where it has none, or anything may come, as also a page."""
    contents = answer.get("content") or {}
    schemas.names(contents)
    for kind, said in contents.items():
        if _is_json(kind):
            schema = (said or {}).get("schema")
            if isinstance(schema, Mapping) and not schema.keys() <= SILENT:
                return schema
            return None
    return None
