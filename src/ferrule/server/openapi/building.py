"""Make a server of a web API, or of an ASGI application that describes itself."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, TypeVar

from ferrule.errors import SetupError
from ferrule.server.hosting.lifespans import Lifespan, listed
from ferrule.server.openapi.document import Document
from ferrule.server.openapi.importer import ImportOptions, WebClient, offer
from ferrule.server.openapi.in_process import InProcess

if TYPE_CHECKING:
    from ferrule.server.server import Server

S = TypeVar("S", bound="Server")


def from_openapi(make: type[S], spec: Any, client: WebClient, given: dict[str, Any]) -> S:
    """Make a server of an OpenAPI document; the options are those of a server and of `ImportOptions`."""
    document = Document.read(spec)
    importing = {name: given.pop(name) for name in ImportOptions.__struct_fields__ if name in given}
    name = given.pop("name", None) or document.title
    given = {"version": document.version, "instructions": document.description, **given}
    server = make(name, **given)
    offer(server, document, client, ImportOptions(**importing))
    return server


def from_fastapi(make: type[S], application: Any, given: dict[str, Any]) -> S:
    """Make a server of a FastAPI application; `run_lifespan=False` leaves its start to others."""
    describe = getattr(application, "openapi", None)
    if not callable(describe):
        raise SetupError("from_fastapi needs a FastAPI application, or one that describes itself by openapi()")
    inside = InProcess(application)
    if given.pop("run_lifespan", True):
        given["lifespan"] = [_of_application(inside), *listed(given.get("lifespan"))]
    return from_openapi(make, describe(), inside, given)


def _of_application(inside: InProcess) -> Lifespan:
    """Start the application before the server's own lifespans, and stop it after."""

    @contextlib.asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        async with inside.lifespan():
            yield

    return lifespan
