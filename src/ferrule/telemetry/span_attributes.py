"""The names and attributes of spans, as the OpenTelemetry conventions for MCP have them. Pure.

Semantic conventions for generative AI, `docs/gen-ai/mcp.md` (status: development); what begins with `ferrule.` is ours.

Rule: what a peer wrote is cut after `MAX_TEXT` characters, and the name of something that does not exist is no part of
the name of a span.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from ferrule.telemetry.observer import ObservedRequest, Outcome
from ferrule.telemetry.recorder import NETWORK_TRANSPORTS, NOT_FOUND, error_type
from ferrule.wire.channel import SHORT_SESSION

MAX_TEXT = 256
MAX_CONTENT = 8_192
"""Bytes of arguments and of a result, where they are wanted."""

TOOL = "tools/call"
PROMPT = "prompts/get"
RESOURCES = "resources/"
PROTOCOLS = {"http": "1.1", "websocket": "13"}
"""Transports that are protocols on top of TCP, with the version we speak as a client (RFC 9112, RFC 6455)."""

Attributes = dict[str, str | int | bool]


def span_name(request: ObservedRequest, outcome: Outcome | None = None) -> str:
    """Return the method, and of a tool or a prompt its name; never a URI, of which there are too many."""
    method = request.method[:MAX_TEXT]
    if request.method not in (TOOL, PROMPT) or not request.name:
        return method
    if outcome is not None and outcome.reason in NOT_FOUND:
        return method
    return f"{method} {request.name[:MAX_TEXT]}"


def received_attributes(request: ObservedRequest, *, full_session_id: bool = False) -> Attributes:
    """Return what is known of a request when it came."""
    found = _attributes(request)
    _add_address(found, "client", request.origin.address)
    if request.transport == "http" and request.origin.http:
        found["network.protocol.version"] = request.origin.http[:MAX_TEXT]
    if request.transport == "http" and not request.stateless:
        session = request.origin.headers.get("mcp-session-id", "")
        if session and full_session_id:
            found["mcp.session.id"] = session[:MAX_TEXT]
        elif session:
            found["mcp.session.id"] = session[:SHORT_SESSION]
    if request.retry:
        found["ferrule.retry"] = True
    return found


def sent_attributes(request: ObservedRequest) -> Attributes:
    """Return what is known of a request of ours when it is sent."""
    found = _attributes(request)
    link = request.link
    if link is not None and link.side == "client":
        _add_address(found, "server", link.address)
        if link.upstream:
            found["ferrule.upstream"] = link.upstream[:MAX_TEXT]
        if link.replica:
            found["ferrule.replica"] = link.replica[:MAX_TEXT]
            found["ferrule.attempt"] = request.attempt
    if request.session and not request.stateless:
        found["mcp.session.id"] = request.session[:SHORT_SESSION]
    return found


def _attributes(request: ObservedRequest) -> Attributes:
    transport = request.transport
    found: Attributes = {
        "mcp.method.name": request.method[:MAX_TEXT],
        "network.transport": NETWORK_TRANSPORTS.get(transport, transport),
    }
    if transport in PROTOCOLS:
        found["network.protocol.name"] = transport
        found["network.protocol.version"] = PROTOCOLS[transport]
    if request.revision:
        found["mcp.protocol.version"] = request.revision[:MAX_TEXT]
        found["ferrule.era"] = "stateless" if request.stateless else "handshake"
    if request.id is not None:
        found["jsonrpc.request.id"] = str(request.id)[:MAX_TEXT]
    if request.name:
        _add_name(found, request)
    return found


def _add_name(found: Attributes, request: ObservedRequest) -> None:
    name = request.name[:MAX_TEXT]
    if request.method == TOOL:
        found["gen_ai.operation.name"] = "execute_tool"
        found["gen_ai.tool.name"] = name
    elif request.method == PROMPT:
        found["gen_ai.prompt.name"] = name
    elif request.method.startswith(RESOURCES):
        found["mcp.resource.uri"] = name


def _add_address(found: Attributes, side: str, address: str) -> None:
    """Add the address and the port of a peer: of `127.0.0.1:8000`, `[::1]:8000`, a URL or the path of a socket."""
    if not address:
        return
    if address.startswith("/"):
        found[f"{side}.address"] = address[:MAX_TEXT]
        return
    if "://" not in address:
        address = f"//{address}"
    try:
        parts = urlsplit(address)
        host = parts.hostname
        port = parts.port
    except ValueError:
        return
    if host:
        found[f"{side}.address"] = host[:MAX_TEXT]
        if port is not None:
            found[f"{side}.port"] = port


def ending_attributes(outcome: Outcome, request_round: int = 0) -> Attributes:
    """Return what is known of a request when it has ended; `error.type` is there only if it failed."""
    found: Attributes = {}
    if request_round:
        found["ferrule.round"] = request_round
    elif outcome.kind == "input_required":
        found["ferrule.round"] = 1
    failure = error_type(outcome)
    if failure:
        found["error.type"] = failure[:MAX_TEXT]
    if outcome.code is not None:
        found["rpc.response.status_code"] = str(outcome.code)
    return found


def content_attributes(arguments: bytes, result: bytes) -> Attributes:
    """Return the arguments and the result of a tool, each cut where it is long."""
    found: Attributes = {}
    for name, content in (("arguments", arguments), ("result", result)):
        if content:
            found[f"gen_ai.tool.call.{name}"] = content[:MAX_CONTENT].decode(errors="replace")
    return found
