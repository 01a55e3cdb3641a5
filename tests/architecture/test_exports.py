"""The public surface, and what it costs to import a part of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable

import pytest

import ferrule

PUBLIC = {
    *("Client", "SyncClient", "Reconnect", "Server", "Ask", "Context", "Extension", "Task", "TaskSettings"),
    *("FerruleError", "CallFailed", "CapabilityNotSupported", "CarrierError", "Declined", "PeerError", "Refusal"),
    *("Refused", "Http", "HttpFailed", "OutcomeUnknown", "SetupError", "Stdio", "Tcp", "TimedOut", "ToolError", "Unix"),
    *("Depends", "Middleware", "Observer", "Receipts", "RecordRule", "Tracing", "Arg", "transformed"),
    *("Caching", "Concurrency", "ErrorMapping", "Logging", "RateLimit", "Timing"),
    *("WebSocket", "Audio", "File", "Image", "Progress", "ToolResult"),
    *("OpenApiRule", "Graphql"),
    *("BreakerSettings", "BulkheadSettings", "EjectionSettings", "RetrySettings", "Hedge", "NoTarget", "Overloaded"),
    *("Message", "UserMessage", "AssistantMessage"),
    *("WebRequest", "WebResponse", "WebSocket"),
    *("OAuth", "ClientCredentials", "Bearer", "EnterpriseManaged", "WorkloadIdentity"),
    *("AuthorizationFailed", "LoginRequired"),
    *("ANONYMOUS", "Principal", "RequestFacts", "Verifier", "Forbidden", "Unauthorized", "OAuthProxy"),
    *("Introspection", "JWT", "OIDC", "StaticTokens"),
    *("Stores",),
    "__version__",
}

HEAVY = (
    *("http", "urllib.request", "httptools", "h11", "httpx", "aiohttp", "uvicorn", "starlette", "websockets"),
    *("graphql", "pydantic", "attrs", "opentelemetry", "jsonschema_rs", "cryptography", "argparse", "uvloop"),
    *("ferrule.cli", "ferrule.testing"),
)
"""What nobody should pay for who has not asked for it."""


def loaded_by(statement: str, wanted: Iterable[str]) -> list[str]:
    """Run a statement in a fresh interpreter and tell which of some modules it has loaded."""
    program = f"import json, sys\n{statement}\nprint(json.dumps([m for m in {list(wanted)!r} if m in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    loaded: list[str] = json.loads(done.stdout)
    return loaded


def test_these_are_the_public_names() -> None:
    assert set(ferrule.__all__) == PUBLIC


def test_every_public_name_is_there_and_listed() -> None:
    for name in PUBLIC:
        assert getattr(ferrule, name) is not None
    assert set(ferrule.HOMES) == PUBLIC - {"__version__"}


def test_a_name_that_is_not_public_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Manager'"):
        _ = ferrule.Manager


@pytest.mark.parametrize(
    "statement",
    ["import ferrule", "from ferrule import Server", "from ferrule import Client", "from ferrule import ToolError"],
)
def test_importing_it_loads_nothing_heavy(statement: str) -> None:
    assert loaded_by(statement, HEAVY) == []


def test_importing_the_package_loads_none_of_its_parts() -> None:
    assert (
        loaded_by("import ferrule", ["ferrule.server", "ferrule.client", "ferrule.errors", "msgspec", "asyncio"]) == []
    )


@pytest.mark.parametrize(("name", "other"), [("Server", "client"), ("Client", "server"), ("Context", "client")])
def test_one_side_does_not_load_the_other(name: str, other: str) -> None:
    assert loaded_by(f"from ferrule import {name}", [f"ferrule.{other}"]) == []


def test_a_loaded_module_is_noticed() -> None:
    assert loaded_by("import ferrule.cli.main", HEAVY) == ["argparse", "ferrule.cli"]
