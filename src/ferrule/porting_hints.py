"""Names and options of other MCP libraries, with what to write here: for errors, and looked at by nothing else."""

from __future__ import annotations

NAMES = {
    "FastMCP": "Server: write `from ferrule import Server as FastMCP`, or Server throughout",
    "MCPServer": "Server: write `from ferrule import Server as MCPServer`, or Server throughout",
    "FastMCPApp": "Server, with app.page(…) and @app.tool(ui=…)",
    "FastMCPProxy": "nothing yet: there is no proxy",
    "create_proxy": "nothing yet: there is no proxy",
    "ClientSession": "Client(target)",
    "ClientSessionGroup": "one Client(target) for each server",
    "StdioServerParameters": 'Client(["program", "argument"], env={…}, cwd=…)',
    "stdio_client": 'Client(["program", "argument"])',
    "stdio_server": "app.run(), or await app.run_async()",
    "sse_client": 'Client("sse+https://…/sse")',
    "streamablehttp_client": 'Client("https://…/mcp")',
    "streamable_http_client": 'Client("https://…/mcp")',
    "websocket_client": 'Client("wss://…")',
    "StdioTransport": 'Client(["program", "argument"])',
    "PythonStdioTransport": 'Client("server.py")',
    "StreamableHttpTransport": 'Client("https://…/mcp", headers={…})',
    "SSETransport": 'Client("sse+https://…/sse")',
    "FastMCPTransport": "Client(app)",
    "McpError": "PeerError on a client, Refusal(message, code=…) in a handler",
    "MCPError": "PeerError on a client, Refusal(message, code=…) in a handler",
    "FastMCPError": "FerruleError, or ToolError",
    "ResourceError": "ResourceNotFound of ferrule.errors, or Refusal(message, code=…)",
    "PromptError": "PromptNotFound of ferrule.errors, or Refusal(message, code=…)",
    "NotFoundError": "ToolNotFound, ResourceNotFound and PromptNotFound of ferrule.errors",
    "ValidationError": "InvalidParams of ferrule.errors",
    "ErrorData": "Refusal(message, data, code=…)",
    "RequestContext": "Context",
    "ServerSession": "Context: ctx.sample, ctx.elicit, ctx.list_roots",
    "CurrentContext": "a parameter annotated `ctx: Context`",
    "get_context": "a parameter annotated `ctx: Context`",
    "get_http_headers": "ctx.headers",
    "get_http_request": "ctx.headers",
    "get_access_token": "ctx.principal",
    "MiddlewareContext": "the call of `on_call_tool(call, proceed)`",
    "LoggingMiddleware": "Logging",
    "StructuredLoggingMiddleware": "Logging",
    "TimingMiddleware": "Timing",
    "DetailedTimingMiddleware": "Timing",
    "RateLimitingMiddleware": "RateLimit",
    "SlidingWindowRateLimitingMiddleware": "RateLimit",
    "ResponseCachingMiddleware": "Caching",
    "ErrorHandlingMiddleware": "ErrorMapping",
    "RetryMiddleware": "a loop in the tool: only its author knows what may run twice",
    "ArgTransform": "Arg, with transformed(tool, arguments={…})",
    "RouteMap": "OpenApiRule",
    "MCPType": 'OpenApiRule("tool" | "resource" | "template" | "none", …)',
    "TaskConfig": '@app.tool(task="optional")',
    "AcceptedElicitation": 'result.action == "accept"',
    "DeclinedElicitation": 'result.action == "decline"',
    "CancelledElicitation": 'result.action == "cancel"',
    "Elicit": "await ctx.ask(…), or Ask for a parameter",
    "Resolve": "await ctx.ask(…), or Depends",
    "InMemoryStore": "ctx.state, or a store of your own in the lifespan",
    "NotificationOptions": "nothing: lists tell of their changes by themselves",
    "InitializationOptions": "Server(name, version=…, instructions=…)",
}
"""What `from ferrule import …` may ask for: classes and functions of FastMCP and of the official SDK."""

TYPES = (
    "Annotations",
    "AudioContent",
    "BlobResourceContents",
    "CallToolResult",
    "Completion",
    "CompletionArgument",
    "CompletionContext",
    "ContentBlock",
    "CreateMessageResult",
    "ElicitResult",
    "EmbeddedResource",
    "GetPromptResult",
    "Icon",
    "ImageContent",
    "Implementation",
    "ListRootsResult",
    "ModelHint",
    "ModelPreferences",
    "ObservedChild",
    "ObservedConnection",
    "ObservedExchange",
    "ObservedLink",
    "ObservedNotification",
    "ObservedRequest",
    "Outcome",
    "Prompt",
    "PromptArgument",
    "PromptMessage",
    "PromptReference",
    "ReadResourceResult",
    "Resource",
    "ResourceContents",
    "ResourceLink",
    "ResourceReference",
    "ResourceTemplate",
    "ResourceTemplateReference",
    "Root",
    "SamplingMessage",
    "TextContent",
    "TextResourceContents",
    "Tool",
    "ToolAnnotations",
)
"""What is in `ferrule.types`; a test compares. That module is not imported for an error."""

MODULES = {
    "client.transports": "Client(target): a URL, a command list, a path or a Server",
    "client.auth": "Client(url, headers={…})",
    "dependencies": "from ferrule import Depends",
    "exceptions": "from ferrule import ToolError, or ferrule.errors",
    "experimental": "nothing yet",
    "prompts": "from ferrule import Message, UserMessage, AssistantMessage",
    "prompts.base": "from ferrule import Message, UserMessage, AssistantMessage",
    "prompts.prompt": "from ferrule import Message, UserMessage, AssistantMessage",
    "resources": "@app.resource(uri)",
    "server.auth": "nothing yet: authorization is not there",
    "server.elicitation": "result.action and result.data of `await ctx.elicit(…)`",
    "server.fastmcp": "from ferrule import Server, Context, Image",
    "server.lowlevel": "from ferrule import Server; app.add_tool(fn, schema={…})",
    "server.models": "from ferrule import Server",
    "server.proxy": "nothing yet: there is no proxy",
    "server.session": "from ferrule import Context",
    "server.sse": "app.run('sse'), or app.asgi(sse=True)",
    "server.stdio": "app.run()",
    "server.streamable_http": "app.run('http'), or app.asgi()",
    "server.streamable_http_manager": "app.run('http'), or app.asgi()",
    "server.transforms": "transformed(…), app.visible or app.middleware",
    "shared": "from ferrule import Client, PeerError",
    "tools": "@app.tool, or app.add_tool(fn); Tool of ferrule.types",
    "tools.tool": "from ferrule import ToolResult; Tool of ferrule.types",
    "utilities": "the standard library: logging",
    "utilities.logging": 'logging.getLogger("…")',
    "utilities.types": "from ferrule import Image, Audio, File",
}
"""Modules that FastMCP and the official SDK have where `ferrule` has none, or others."""

CLIENT_OPTIONS = {
    "sampling_handler": "sampling=…",
    "sampling_callback": "sampling=…",
    "sampling_capabilities": "sampling_tools=True, sampling_context=True",
    "elicitation_handler": "elicitation=…",
    "elicitation_callback": "elicitation=…",
    "url_elicitation_handler": "url_elicitation=…",
    "list_roots_callback": "roots=[…]",
    "log_handler": 'client.on_log(handler), and log_level="info"',
    "logging_callback": 'client.on_log(handler), and log_level="info"',
    "message_handler": "client.on_notification(method, handler)",
    "progress_handler": "on_progress=… of client.call_tool",
    "timeout": "tool_timeout=… for tools, request_timeout=… for the rest, or timeout=… of one call",
    "read_timeout_seconds": "tool_timeout=… for tools, request_timeout=… for the rest, or timeout=… of one call",
    "init_timeout_seconds": "init_timeout=…",
    "auto_initialize": "nothing: `async with Client(…)` connects, or `await client.connect()`",
    "auth": 'headers={"Authorization": "Bearer …"}',
    "token": 'headers={"Authorization": "Bearer …"}',
    "client_info": "name=…, version=…",
    "httpx_client_factory": "http={…}: see HttpOptions",
    "verify": 'http={"verify": …, "ca": …}: see HttpOptions',
    "sse_read_timeout": "tool_timeout=…",
    "transport": "the target, as the first argument: Client(target)",
    "url": "the target, as the first argument: Client(target)",
    "args": 'a command list as the target: Client(["program", "argument"])',
    "command": 'a command list as the target: Client(["program", "argument"])',
    "keep_alive": "nothing: a child process lives as long as its client",
    "raise_on_error": "raise_on_error=… of client.call_tool",
    "on_progress": "on_progress=… of client.call_tool",
    "retries": "reconnect=Reconnect(…)",
}
"""Options of a client elsewhere."""


def foreign_name(name: str) -> str:
    """Return the sentence that answers a name `ferrule` does not have; empty where nothing is known of it."""
    if name in TYPES:
        return f"ferrule has no {name}; write `from ferrule.types import {name}`"
    if name in NAMES:
        return f"ferrule has no {name}; here it is {NAMES[name]}"
    return ""


def foreign_module(name: str) -> str:
    """Return what to write instead of importing a module `ferrule` does not have; empty where nothing is known."""
    parts = name.removeprefix("ferrule.").split(".")
    while parts:
        ours = MODULES.get(".".join(parts))
        if ours is not None:
            return ours
        parts.pop()
    return ""
