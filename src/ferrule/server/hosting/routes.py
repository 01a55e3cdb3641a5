"""What a server offers over HTTP beside MCP."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ferrule.server.calls.threads import Bulkhead, Threads

if TYPE_CHECKING:
    from ferrule.transports.http.routes.custom import CustomRoute, Endpoint
    from ferrule.transports.http.routes.web import WebRequest

F = TypeVar("F", bound=Callable[..., Any])


class CustomRoutes:
    """The half of a server that answers plain web requests."""

    threads: Threads

    def __init__(self) -> None:
        self.custom_routes: list[CustomRoute] = []

    def custom_route(
        self,
        path: str,
        methods: Sequence[str] = ("GET",),
        *,
        auth: bool = True,
        name: str | None = None,
        include_in_schema: bool = True,
    ) -> Callable[[F], F]:
        """Answer plain web requests at a path: `{id}` takes one segment, `{rest:path}` any number.

        The handler gets a `WebRequest` and gives text, bytes, anything JSON can say, or a `WebResponse`. With
        `auth=False` the server's verifier is not asked who calls. `name` and
        `include_in_schema` are taken from programs that were written for Starlette, and change nothing.
        """

        def add(fn: F) -> F:
            # A server on stdio should not pay for HTTP, so its half is imported when there is something to route.
            custom = importlib.import_module("ferrule.transports.http.routes.custom")
            self.custom_routes.append(custom.CustomRoute(path, methods, self._answering(fn), auth=auth))
            return fn

        return add

    def _answering(self, fn: Callable[..., Any]) -> Endpoint:
        if inspect.iscoroutinefunction(fn):
            return fn
        bulkhead = Bulkhead(self.threads)

        async def answer(request: WebRequest) -> Any:
            value = await bulkhead.run(lambda: fn(request))
            if inspect.isawaitable(value):
                return await value
            return value

        return answer
