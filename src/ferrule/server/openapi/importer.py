"""Offer the operations of a web API as tools and resources."""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol, TypeVar

from msgspec import structs

from ferrule.errors import SetupError, ToolError
from ferrule.schema.tools import CallToolResult, ToolAnnotations
from ferrule.server.application import Application
from ferrule.server.calls.context import Context
from ferrule.server.hosting.lifespans import Lifespan, listed
from ferrule.server.offers.uri_template import UriTemplate
from ferrule.server.openapi.answers import (
    ApiFailed,
    Response,
    as_text,
    media_type,
    read_bounded,
    refusal_of,
    refuse_failure,
    result_of,
)
from ferrule.server.openapi.document import Document
from ferrule.server.openapi.in_process import InProcess
from ferrule.server.openapi.operations import Operation, read_operation
from ferrule.server.openapi.requests import Outgoing, compose, paths_beside
from ferrule.server.openapi.rules import ImportOptions, kind_of
from ferrule.server.openapi.schemas import Schemas
from ferrule.settings.option import pick, read
from ferrule.validation.checker import LateSchema

LONGEST = 64
"""Some hosts refuse names that are longer."""
LONGEST_ENDING = 8
"""How much of it a number may take."""


class Names:
    """Gives each operation a name of its own."""

    def __init__(self, chosen: Mapping[str, str]) -> None:
        self._chosen = chosen
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}
        """The number that may be free for the next operation of a name, by how such names begin."""

    def name(self, operation: Operation) -> str:
        """Return the name that was chosen for an operation, else its id, else one made of its method and path."""
        name = self._chosen.get(operation.identity) or self._chosen.get(operation.place) or _made(operation)
        unique = name
        stem = name[: LONGEST - LONGEST_ENDING]
        number = self._next.get(stem, 2)
        while unique in self._taken:
            ending = f"_{number}"
            unique = name[: LONGEST - len(ending)] + ending
            number = number + 1
        self._next[stem] = number
        self._taken.add(unique)
        return unique


def _made(operation: Operation) -> str:
    said = operation.identity or f"{operation.method.lower()}_{operation.path}"
    # FastAPI makes an id of the function's name, the path and the method: what it adds says nothing new.
    added = re.sub(r"\W", "_", operation.path) + f"_{operation.method.lower()}"
    if said.endswith(added) and len(said) > len(added):
        said = said.removesuffix(added)
    name = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_.\-]", "_", said)).strip("_")
    return name[:LONGEST].rstrip("_") or "operation"


logger = logging.getLogger("ferrule.openapi")

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
REPEATABLE = frozenset({"PUT", "DELETE"})

MALFORMED = (AttributeError, KeyError, TypeError, ValueError, RecursionError)
"""What reading a description raises that is not what it should be: something else than an object, a list, a text."""


class WebClient(Protocol):
    """What makes the requests: an `httpx.AsyncClient`, or anything that has its `request`."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> Response:
        """Send a request and return the whole answer."""


def offer(server: Application, document: Document, client: WebClient, options: ImportOptions) -> None:
    """Add everything a web API offers to a server."""
    if not callable(getattr(client, "request", None)):
        raise SetupError("from_openapi needs a client that makes the requests: httpx.AsyncClient(base_url=…), for one")
    schemas = Schemas(document)
    names = Names(options.names)
    callers: list[Caller] = []
    left_out: list[Operation] = []
    for operation in _operations(document, schemas):
        kind = kind_of(operation, options.rules)
        if kind == "none":
            left_out.append(operation)
            continue
        caller = Caller(operation, client, options)
        name = names.name(operation)
        if kind == "resource":
            _offer_resource(server, name, caller, options.scheme)
        elif not _offer_tool(server, name, caller, options):
            left_out.append(operation)
            continue
        callers.append(caller)
    for caller in callers:
        caller.operation = structs.replace(caller.operation, left_out=paths_beside(caller.operation, left_out))


def _operations(document: Document, schemas: Schemas) -> list[Operation]:
    """Read all operations; what somebody else wrote may be anything."""
    found: list[Operation] = []
    try:
        for method, path, said in document.operations():
            found.append(read_operation(document, schemas, method, path, said))
    except MALFORMED as reason:
        after = f"after {found[-1].place}" if found else "at its beginning"
        raise SetupError(f"the OpenAPI document is malformed {after}: {type(reason).__name__}: {reason}") from reason
    return found


class Caller:
    """Calls one operation."""

    def __init__(self, operation: Operation, client: WebClient, options: ImportOptions) -> None:
        self.operation = operation
        self._client: Any = client
        self._forwarded = frozenset(name.lower() for name in options.forward_headers)
        self._most = options.max_answer
        # Looked for in the class: an object that stands in for a client in a test has every method one asks for.
        self._streams = inspect.isfunction(getattr(type(client), "stream", None))

    async def call(self, arguments: Mapping[str, object], context: Context) -> Response:
        """Make the request; raises ToolError when there is no answer, or too much of it."""
        operation = self.operation
        outgoing = compose(operation, arguments)
        headers = {name.lower(): value for name, value in context.headers.items() if name.lower() in self._forwarded}
        for name, value in outgoing.headers.items():
            # What the caller's own request carries is not replaced by an argument, which a model wrote.
            if name.lower() not in headers:
                headers[name] = value
        try:
            response = await self._answer(outgoing, headers)
        except Exception as error:
            logger.warning("%s failed", operation.place, exc_info=error)
            # Its class says whether to try again; its text may hold an address or a key.
            raise ApiFailed(f"{operation.place} was not answered: {type(error).__name__}") from error
        refuse_failure(operation, response)
        if len(response.content) > self._most:
            raise ApiFailed(f"{operation.place} answered with more than {self._most:,} bytes; ask for less")
        return response

    async def _answer(self, outgoing: Outgoing, headers: Mapping[str, str]) -> Response:
        told: dict[str, Any] = {"headers": headers, "content": outgoing.content}
        if not self._streams:
            whole: Response = await self._client.request(outgoing.method, outgoing.url, **told)
            return whole
        async with self._client.stream(outgoing.method, outgoing.url, **told) as response:
            return await read_bounded(response, self._most)


def _offer_tool(server: Application, name: str, caller: Caller, options: ImportOptions) -> bool:
    """Offer an operation as a tool; return False if it was left out."""
    operation = caller.operation

    async def run(ferrule_context: Context, **arguments: object) -> CallToolResult:
        response = await caller.call(arguments, ferrule_context)
        result = result_of(operation, response)
        if said.get("output_schema") is not None and result.structured_content is None:
            raise ToolError(
                f"{operation.place} answered with {media_type(response) or 'nothing'}, and its description promises"
                " data; whoever offers it can say output_schemas=False"
            )
        return result

    run.__name__ = name
    said: dict[str, Any] = {
        "name": name,
        "description": operation.summary,
        "schema": LateSchema(operation.input_schema),
        "annotations": _annotations(operation.method),
        "deprecated": operation.deprecated,
    }
    if options.output_schemas and operation.output_schema is not None:
        said["output_schema"] = LateSchema(operation.output_schema)
    if options.adjust is not None:
        adjusted = options.adjust(operation, said)
        if adjusted is None:
            return False
        said = adjusted
    server.add_tool(run, **said)
    return True


def _annotations(method: str) -> ToolAnnotations:
    if method in SAFE:
        return ToolAnnotations(read_only_hint=True)
    return ToolAnnotations(
        read_only_hint=False, destructive_hint=method != "POST", idempotent_hint=method in REPEATABLE
    )


def _offer_resource(server: Application, name: str, caller: Caller, scheme: str) -> None:
    operation = caller.operation
    arguments = {parameter.argument: parameter for parameter in operation.parameters}
    inside = []
    for argument, parameter in arguments.items():
        if parameter.place == "path":
            inside.append(argument)
    behind = []
    for argument, parameter in arguments.items():
        if parameter.place == "query":
            behind.append(argument)
    uri = f"{scheme}://{name}" + "".join(f"/{{{argument}}}" for argument in inside)
    if behind:
        uri += "{?" + ",".join(behind) + "}"
    template = UriTemplate(uri)

    async def read(ferrule_context: Context, **values: object) -> str | bytes:
        given = {}
        for argument, value in values.items():
            if value is not None:
                given[argument] = value
        try:
            response = await caller.call(given, ferrule_context)
        except ToolError as failure:
            raise refusal_of(failure, template.expand(**given)) from failure
        text = as_text(response.content, media_type(response))
        if text is None:
            return response.content
        return text

    context = inspect.Parameter("ferrule_context", inspect.Parameter.KEYWORD_ONLY, annotation=Context)
    read.__signature__ = inspect.Signature(  # type: ignore[attr-defined]  # what callers may fill is known only now
        [context, *(_variable(argument, optional=argument in behind) for argument in (*inside, *behind))]
    )
    server.add_resource(uri, read, name=name, description=operation.summary, mime_type=_read_type(operation))


def _variable(argument: str, *, optional: bool) -> inspect.Parameter:
    if not argument.isidentifier():
        raise SetupError(f"the parameter {argument!r} cannot be a variable of a resource: offer it as a tool")
    default = None if optional else inspect.Parameter.empty
    return inspect.Parameter(argument, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Any)


def _read_type(operation: Operation) -> str | None:
    if operation.output_schema is not None:
        return "application/json"
    return None


S = TypeVar("S", bound=Application)


def from_openapi(make: Callable[..., S], spec: Any, client: WebClient, given: Mapping[str, Any]) -> S:
    """Make a server of an OpenAPI document; the options are those of a server and of `ImportOptions`."""
    document = Document.read(spec)
    importing = read(ImportOptions, pick(ImportOptions, given), "from_openapi")
    serving = {"version": document.version, "instructions": document.description, **given}
    for name in ImportOptions.__struct_fields__:
        serving.pop(name, None)
    name = serving.pop("name", None) or document.title
    server = make(name, **serving)
    offer(server, document, client, importing)
    return server


def from_fastapi(make: Callable[..., S], application: Any, given: Mapping[str, Any], *, run_lifespan: bool) -> S:
    """Make a server of a FastAPI application; `run_lifespan=False` leaves its start to others."""
    describe = getattr(application, "openapi", None)
    if not callable(describe):
        raise SetupError("from_fastapi needs a FastAPI application, or one that describes itself by openapi()")
    inside = InProcess(application)
    if run_lifespan:
        given = {**given, "lifespan": [_of_application(inside), *listed(given.get("lifespan"))]}
    return from_openapi(make, describe(), inside, given)


def _of_application(inside: InProcess) -> Lifespan:
    """Start the application before the server's own lifespans, and stop it after."""

    @contextlib.asynccontextmanager
    async def lifespan(server: Application) -> AsyncIterator[None]:
        async with inside.lifespan():
            yield

    return lifespan
