"""Ferrule: a runtime for the Model Context Protocol.

The names here are the public surface. Each part is imported when it is first named, so that a server does not pay for
the client, nor a client for the server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ferrule.auth.client.oauth import Bearer, ClientCredentials, EnterpriseManaged, OAuth, WorkloadIdentity
    from ferrule.auth.proxy.proxy import OAuthProxy
    from ferrule.auth.server.introspection import Introspection
    from ferrule.auth.server.jwt import JWT
    from ferrule.auth.server.oidc import OIDC
    from ferrule.auth.server.static_tokens import StaticTokens
    from ferrule.balancing.breaker import BreakerSettings
    from ferrule.balancing.bulkhead import BulkheadSettings
    from ferrule.balancing.ejection import EjectionSettings
    from ferrule.balancing.hedge import Hedge
    from ferrule.balancing.retry import RetrySettings
    from ferrule.client.client import Client
    from ferrule.client.features.tasks import Task
    from ferrule.client.link.reconnect import Reconnect
    from ferrule.client.sync import SyncClient
    from ferrule.errors import (
        AuthorizationFailed,
        CallFailed,
        CapabilityNotSupported,
        CarrierError,
        Declined,
        FerruleError,
        Forbidden,
        HttpFailed,
        LoginRequired,
        NoTarget,
        OutcomeUnknown,
        Overloaded,
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
    from ferrule.server.calls.context import Context
    from ferrule.server.calls.files import Audio, File, Image
    from ferrule.server.calls.results import ToolResult
    from ferrule.server.calls.streams import Progress
    from ferrule.server.extensions.extension import Extension
    from ferrule.server.functions.depends import Ask, Depends
    from ferrule.server.middleware.cache import Caching
    from ferrule.server.middleware.concurrency import Concurrency
    from ferrule.server.middleware.error_mapping import ErrorMapping
    from ferrule.server.middleware.hooks import Middleware
    from ferrule.server.middleware.logs import Logging
    from ferrule.server.middleware.rate_limit import RateLimit
    from ferrule.server.middleware.timing import Timing
    from ferrule.server.offers.prompts import AssistantMessage, Message, UserMessage
    from ferrule.server.offers.refusals import Refused
    from ferrule.server.offers.transforms import Arg, transformed
    from ferrule.server.openapi.rules import OpenApiRule
    from ferrule.server.server import Server
    from ferrule.stores.stores import Stores
    from ferrule.telemetry.observer import Observer
    from ferrule.telemetry.receipt_log import Receipts
    from ferrule.telemetry.redaction import RecordRule
    from ferrule.telemetry.tracer import Tracing
    from ferrule.transports.graphql.listener import Graphql
    from ferrule.transports.http.listener import Http
    from ferrule.transports.http.routes.web import WebRequest, WebResponse
    from ferrule.transports.process.stdio import Stdio
    from ferrule.transports.tcp.listener import Tcp, Unix
    from ferrule.transports.websocket.listener import WebSocket

__version__ = "0.1.0"

HOMES = {
    "BreakerSettings": "ferrule.balancing.breaker",
    "BulkheadSettings": "ferrule.balancing.bulkhead",
    "EjectionSettings": "ferrule.balancing.ejection",
    "Hedge": "ferrule.balancing.hedge",
    "RetrySettings": "ferrule.balancing.retry",
    "Client": "ferrule.client.client",
    "SyncClient": "ferrule.client.sync",
    "OAuth": "ferrule.auth.client.oauth",
    "OAuthProxy": "ferrule.auth.proxy.proxy",
    "ClientCredentials": "ferrule.auth.client.oauth",
    "Bearer": "ferrule.auth.client.oauth",
    "EnterpriseManaged": "ferrule.auth.client.oauth",
    "WorkloadIdentity": "ferrule.auth.client.oauth",
    "Reconnect": "ferrule.client.link.reconnect",
    "Context": "ferrule.server.calls.context",
    "Task": "ferrule.client.features.tasks",
    "TaskSettings": "ferrule.runtime.tasks.settings",
    "Depends": "ferrule.server.functions.depends",
    "Middleware": "ferrule.server.middleware.hooks",
    "Caching": "ferrule.server.middleware.cache",
    "Concurrency": "ferrule.server.middleware.concurrency",
    "ErrorMapping": "ferrule.server.middleware.error_mapping",
    "Logging": "ferrule.server.middleware.logs",
    "RateLimit": "ferrule.server.middleware.rate_limit",
    "Timing": "ferrule.server.middleware.timing",
    "Arg": "ferrule.server.offers.transforms",
    "transformed": "ferrule.server.offers.transforms",
    "Observer": "ferrule.telemetry.observer",
    "Receipts": "ferrule.telemetry.receipt_log",
    "RecordRule": "ferrule.telemetry.redaction",
    "Tracing": "ferrule.telemetry.tracer",
    "Audio": "ferrule.server.calls.files",
    "File": "ferrule.server.calls.files",
    "Image": "ferrule.server.calls.files",
    "Progress": "ferrule.server.calls.streams",
    "AssistantMessage": "ferrule.server.offers.prompts",
    "Message": "ferrule.server.offers.prompts",
    "UserMessage": "ferrule.server.offers.prompts",
    "Extension": "ferrule.server.extensions.extension",
    "Ask": "ferrule.server.functions.depends",
    "OpenApiRule": "ferrule.server.openapi.rules",
    "Refused": "ferrule.server.offers.refusals",
    "ToolResult": "ferrule.server.calls.results",
    "Server": "ferrule.server.server",
    "Graphql": "ferrule.transports.graphql.listener",
    "Http": "ferrule.transports.http.listener",
    "Stdio": "ferrule.transports.process.stdio",
    "Stores": "ferrule.stores.stores",
    "WebRequest": "ferrule.transports.http.routes.web",
    "WebResponse": "ferrule.transports.http.routes.web",
    "WebSocket": "ferrule.transports.websocket.listener",
    "Tcp": "ferrule.transports.tcp.listener",
    "Unix": "ferrule.transports.tcp.listener",
    "AuthorizationFailed": "ferrule.errors",
    "CallFailed": "ferrule.errors",
    "CapabilityNotSupported": "ferrule.errors",
    "CarrierError": "ferrule.errors",
    "Declined": "ferrule.errors",
    "FerruleError": "ferrule.errors",
    "Forbidden": "ferrule.errors",
    "HttpFailed": "ferrule.errors",
    "LoginRequired": "ferrule.errors",
    "NoTarget": "ferrule.errors",
    "OutcomeUnknown": "ferrule.errors",
    "Overloaded": "ferrule.errors",
    "PeerError": "ferrule.errors",
    "Refusal": "ferrule.errors",
    "SetupError": "ferrule.errors",
    "TimedOut": "ferrule.errors",
    "ToolError": "ferrule.errors",
    "Unauthorized": "ferrule.errors",
    "Introspection": "ferrule.auth.server.introspection",
    "JWT": "ferrule.auth.server.jwt",
    "OIDC": "ferrule.auth.server.oidc",
    "StaticTokens": "ferrule.auth.server.static_tokens",
    "ANONYMOUS": "ferrule.identity.verifier",
    "Principal": "ferrule.identity.principal",
    "RequestFacts": "ferrule.identity.verifier",
    "Verifier": "ferrule.identity.verifier",
}

__all__ = [
    "ANONYMOUS",
    "JWT",
    "OIDC",
    "Arg",
    "Ask",
    "AssistantMessage",
    "Audio",
    "AuthorizationFailed",
    "Bearer",
    "BreakerSettings",
    "BulkheadSettings",
    "Caching",
    "CallFailed",
    "CapabilityNotSupported",
    "CarrierError",
    "Client",
    "ClientCredentials",
    "Concurrency",
    "Context",
    "Declined",
    "Depends",
    "EjectionSettings",
    "EnterpriseManaged",
    "ErrorMapping",
    "Extension",
    "FerruleError",
    "File",
    "Forbidden",
    "Graphql",
    "Hedge",
    "Http",
    "HttpFailed",
    "Image",
    "Introspection",
    "Logging",
    "LoginRequired",
    "Message",
    "Middleware",
    "NoTarget",
    "OAuth",
    "OAuthProxy",
    "Observer",
    "OpenApiRule",
    "OutcomeUnknown",
    "Overloaded",
    "PeerError",
    "Principal",
    "Progress",
    "RateLimit",
    "Receipts",
    "Reconnect",
    "RecordRule",
    "Refusal",
    "Refused",
    "RequestFacts",
    "RetrySettings",
    "Server",
    "SetupError",
    "StaticTokens",
    "Stdio",
    "Stores",
    "SyncClient",
    "Task",
    "TaskSettings",
    "Tcp",
    "TimedOut",
    "Timing",
    "ToolError",
    "ToolResult",
    "Tracing",
    "Unauthorized",
    "Unix",
    "UserMessage",
    "Verifier",
    "WebRequest",
    "WebResponse",
    "WebSocket",
    "WorkloadIdentity",
    "__version__",
    "transformed",
]


def __getattr__(name: str) -> Any:
    home = HOMES.get(name)
    if home is None:
        from ferrule.porting_hints import foreign_name

        told = foreign_name(name)
        if not told and name[0].isupper():
            from ferrule.settings.option import alike

            meant = alike(name, HOMES, 0.75)
            told = meant and f"ferrule has no {name}; did you mean {meant}?"
        if told:
            # Not an AttributeError: `from ferrule import …` would replace its sentence by one of its own.
            raise ImportError(told, name=__name__)
        raise AttributeError(f"module 'ferrule' has no attribute {name!r}")
    from ferrule.budgets.collector import import_to_stay

    value = getattr(import_to_stay(home), name)
    globals()[name] = value
    return value
