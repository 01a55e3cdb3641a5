"""What other MCP libraries call things, so that an error can name ours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, TypeVar

from ferrule.settings.option import require_known

T = TypeVar("T")

SERVER = {
    "streamable_http_app": 'app.asgi(path="/mcp")',
    "http_app": 'app.asgi(path="/mcp")',
    "sse_app": "app.asgi(sse=True)",
    "run_stdio_async": "await app.run_async()",
    "run_http_async": 'await app.run_async("http")',
    "run_streamable_http_async": 'await app.run_async("http")',
    "run_sse_async": 'await app.run_async("sse")',
    "session_manager": "nothing: app.asgi() needs no wiring",
    "add_transform": "app.tool_search(), app.offer_as_tools(), transformed(…), app.visible or app.middleware",
    "add_provider": "app.mount(server), app.add_folder(path), app.skills(path) or Server.from_openapi(…)",
    "get_tools": "app.list_tools()",
    "as_proxy": "nothing yet: there is no proxy",
    "add_request_handler": 'app.method("vendor/name")',
    # What a listener asks of an acceptor, which a server was once itself.
    "eras": "app.host.eras: write `await app.serve(listener)`, or give the listener app.host",
    "observer": "app.host.observer: write `await app.serve(listener)`, or give the listener app.host",
    "verifier": "app.host.verifier: write `await app.serve(listener)`, or give the listener app.host",
}
CONTEXT = {
    "session": "ctx.sample, ctx.elicit or ctx.list_roots, and ctx.server.notify_resource_updated(uri) and its like",
    "request_context": "ctx.lifespan, ctx.meta, ctx.headers or ctx.request_id",
    "lifespan_context": "ctx.lifespan",
    "fastmcp": "ctx.server",
    "mcp_server": "ctx.server",
    "elicit_url": "ctx.elicit(message, url=…, elicitation_id=…)",
    "get_state": "ctx.state[key]",
    "set_state": "ctx.state[key] = value",
    "delete_state": "del ctx.state[key]",
    "client_id": "ctx.principal, or ctx.client for its name",
    "enable_components": "ctx.enable(…)",
    "disable_components": "ctx.disable(…)",
    "notify_tools_changed": "ctx.server.notify_tools_changed()",
    "notify_resources_changed": "ctx.server.notify_resources_changed()",
    "notify_prompts_changed": "ctx.server.notify_prompts_changed()",
    "notify_resource_updated": "ctx.server.notify_resource_updated(uri)",
    "send_notification": "ctx.notify(method, params)",
    "get_http_request": "ctx.headers",
    "call_tool": "await ctx.server.call_tool(name, arguments)",
    "close_sse_stream": "ctx.close_stream()",
}
OPTIONS = {
    "json_response": 'response="json" of app.run("http") and app.asgi()',
    "stateless_http": 'stateless=True of app.run("http") and app.asgi()',
    "streamable_http_path": 'path="/mcp" of app.run("http") and app.asgi()',
    "host": 'host="127.0.0.1" of app.run("http")',
    "port": 'port=8000 of app.run("http")',
    "transport_security": 'allowed_hosts=[…] and allowed_origins=[…] of app.run("http") and app.asgi()',
    "log_level": 'logging.getLogger("ferrule").setLevel(…)',
    "debug": 'logging.getLogger("ferrule").setLevel(…)',
    "dependencies": "your package's own list of what it needs",
    "tools": "app.add_tool(fn) for each",
    "mask_error_details": "ToolError, for what the model may read; all else is masked",
    "on_duplicate": "app.remove_tool(name) before the second one; a name taken is refused",
    "exclude_args": "Depends(provider), for parameters the client does not fill",
    "enabled": "app.disable(name)",
    "input_schema": "schema={…}",
    "route_maps": "rules=[OpenApiRule(…)] of Server.from_openapi",
    "route_map_fn": "rules=[OpenApiRule(…)] of Server.from_openapi",
    "mcp_names": "names={…} of Server.from_openapi",
    "mcp_component_fn": "adjust=… of Server.from_openapi",
    "cache_hints": "cache_ttl=… and cache_scope=… of Server",
    "request_state_security": "request_state_keys=[…] of Server",
    "retry_interval": 'retry=… of app.run("http") and app.asgi(), in seconds',
    "subscriptions": "nothing: app.notify_resource_updated(uri) reaches whoever subscribed",
    "token_verifier": "auth=… of Server, a Verifier",
}


class Elsewhere:
    """An attribute that a class has in other libraries and not here: asking for it is told what to write instead.

    One for each name, and no `__getattr__`: with that, Python looks up every other attribute more slowly too.
    """

    def __init__(self, owner: str, name: str, ours: str) -> None:
        self._owner = owner
        self._name = name
        self._ours = ours

    def __get__(self, instance: object, owner: type) -> Any:
        said = f"{self._owner} has no attribute {self._name!r}; here it is {self._ours}"
        raise AttributeError(said, name=self._name, obj=instance)


def answering(names: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """Let a class answer names of other libraries with ours."""

    def mark(cls: type[T]) -> type[T]:
        for name, ours in names.items():
            if hasattr(cls, name):
                raise TypeError(f"{cls.__name__}.{name} is there: it needs no answer")
            setattr(cls, name, Elsewhere(cls.__name__, name, ours))
        return cls

    return mark


def refuse_foreign(where: str, options: Iterable[str], ours: Collection[str] = ()) -> None:
    """Refuse options of other libraries that are not also ours."""
    for name in options:
        if name in OPTIONS and name not in ours:
            require_known(where, [name], ours, OPTIONS)
