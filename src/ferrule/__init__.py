"""Ferrule: a runtime for the Model Context Protocol.

The names here are the public surface. Each part is imported when it is first named, so that a server does not pay for
the client, nor a client for the server.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferrule.client.client import Client
    from ferrule.client.reconnect import Reconnect
    from ferrule.client.sync import SyncClient
    from ferrule.client.tasks import Task
    from ferrule.errors import (
        CallFailed,
        CapabilityNotSupported,
        CarrierError,
        Declined,
        FerruleError,
        Forbidden,
        HttpFailed,
        OutcomeUnknown,
        PeerError,
        Refusal,
        SetupError,
        TimedOut,
        ToolError,
        Unauthorized,
    )
    from ferrule.identity.principal import Principal
    from ferrule.identity.verifier import ANONYMOUS, RequestFacts, Verifier
    from ferrule.runtime.tasks.settings import TaskSettings
    from ferrule.server.context import Context
    from ferrule.server.depends import Depends
    from ferrule.server.extensions import Extension
    from ferrule.server.files import Audio, File, Image
    from ferrule.server.middleware.caching import Caching
    from ferrule.server.middleware.concurrency import Concurrency
    from ferrule.server.middleware.error_mapping import ErrorMapping
    from ferrule.server.middleware.hooks import Middleware
    from ferrule.server.middleware.logs import Logging
    from ferrule.server.middleware.rate_limit import RateLimit
    from ferrule.server.middleware.timing import Timing
    from ferrule.server.openapi.rules import OpenApiRule
    from ferrule.server.prompt_messages import AssistantMessage, Message, UserMessage
    from ferrule.server.questions import Ask
    from ferrule.server.refusals import Refused
    from ferrule.server.results import ToolResult
    from ferrule.server.server import Server
    from ferrule.server.streaming import Progress
    from ferrule.server.transforming import Arg, transformed
    from ferrule.telemetry.observer import Observer
    from ferrule.transports.http.listener import Http
    from ferrule.transports.http.web import WebRequest, WebResponse
    from ferrule.transports.stdio import Stdio
    from ferrule.transports.tcp.listener import Tcp, Unix
    from ferrule.transports.websocket.listener import WebSocket

__version__ = "0.1.0"

HOMES = {
    "Client": "ferrule.client.client",
    "SyncClient": "ferrule.client.sync",
    "Reconnect": "ferrule.client.reconnect",
    "Context": "ferrule.server.context",
    "Task": "ferrule.client.tasks",
    "TaskSettings": "ferrule.runtime.tasks.settings",
    "Depends": "ferrule.server.depends",
    "Middleware": "ferrule.server.middleware.hooks",
    "Caching": "ferrule.server.middleware.caching",
    "Concurrency": "ferrule.server.middleware.concurrency",
    "ErrorMapping": "ferrule.server.middleware.error_mapping",
    "Logging": "ferrule.server.middleware.logs",
    "RateLimit": "ferrule.server.middleware.rate_limit",
    "Timing": "ferrule.server.middleware.timing",
    "Arg": "ferrule.server.transforming",
    "transformed": "ferrule.server.transforming",
    "Observer": "ferrule.telemetry.observer",
    "Audio": "ferrule.server.files",
    "File": "ferrule.server.files",
    "Image": "ferrule.server.files",
    "Progress": "ferrule.server.streaming",
    "AssistantMessage": "ferrule.server.prompt_messages",
    "Message": "ferrule.server.prompt_messages",
    "UserMessage": "ferrule.server.prompt_messages",
    "Extension": "ferrule.server.extensions",
    "Ask": "ferrule.server.questions",
    "OpenApiRule": "ferrule.server.openapi.rules",
    "Refused": "ferrule.server.refusals",
    "ToolResult": "ferrule.server.results",
    "Server": "ferrule.server.server",
    "Http": "ferrule.transports.http.listener",
    "Stdio": "ferrule.transports.stdio",
    "WebRequest": "ferrule.transports.http.web",
    "WebResponse": "ferrule.transports.http.web",
    "WebSocket": "ferrule.transports.websocket.listener",
    "Tcp": "ferrule.transports.tcp.listener",
    "Unix": "ferrule.transports.tcp.listener",
    "CallFailed": "ferrule.errors",
    "CapabilityNotSupported": "ferrule.errors",
    "CarrierError": "ferrule.errors",
    "Declined": "ferrule.errors",
    "FerruleError": "ferrule.errors",
    "Forbidden": "ferrule.errors",
    "HttpFailed": "ferrule.errors",
    "OutcomeUnknown": "ferrule.errors",
    "PeerError": "ferrule.errors",
    "Refusal": "ferrule.errors",
    "SetupError": "ferrule.errors",
    "TimedOut": "ferrule.errors",
    "ToolError": "ferrule.errors",
    "Unauthorized": "ferrule.errors",
    "ANONYMOUS": "ferrule.identity.verifier",
    "Principal": "ferrule.identity.principal",
    "RequestFacts": "ferrule.identity.verifier",
    "Verifier": "ferrule.identity.verifier",
}

__all__ = [
    "ANONYMOUS",
    "Arg",
    "Ask",
    "AssistantMessage",
    "Audio",
    "Caching",
    "CallFailed",
    "CapabilityNotSupported",
    "CarrierError",
    "Client",
    "Concurrency",
    "Context",
    "Declined",
    "Depends",
    "ErrorMapping",
    "Extension",
    "FerruleError",
    "File",
    "Forbidden",
    "Http",
    "HttpFailed",
    "Image",
    "Logging",
    "Message",
    "Middleware",
    "Observer",
    "OpenApiRule",
    "OutcomeUnknown",
    "PeerError",
    "Principal",
    "Progress",
    "RateLimit",
    "Reconnect",
    "Refusal",
    "Refused",
    "RequestFacts",
    "Server",
    "SetupError",
    "Stdio",
    "SyncClient",
    "Task",
    "TaskSettings",
    "Tcp",
    "TimedOut",
    "Timing",
    "ToolError",
    "ToolResult",
    "Unauthorized",
    "Unix",
    "UserMessage",
    "Verifier",
    "WebRequest",
    "WebResponse",
    "WebSocket",
    "__version__",
    "transformed",
]


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is None:
        from ferrule.porting_hints import foreign_name

        told = foreign_name(name)
        if told:
            # Not an AttributeError: `from ferrule import …` would replace its sentence by one of its own.
            raise ImportError(told, name=__name__)
        raise AttributeError(f"module 'ferrule' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
