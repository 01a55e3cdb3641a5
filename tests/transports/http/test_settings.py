"""The options of serving over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.transports.http.settings import EndpointSettings, EngineSettings, split_options


def test_the_defaults_are_those_we_promise() -> None:
    """HTTP-3, SPEC-04: a server is local unless it is told otherwise."""
    doors, engine = split_options({})
    assert (engine.host, doors.path, doors.response, doors.stateless) == ("127.0.0.1", "/mcp", "auto", False)
    assert (doors.allowed_origins, doors.allowed_hosts) == ((), None)
    assert doors.max_body_size == 16 * 1024 * 1024
    assert (doors.max_sessions, doors.session_idle_timeout, doors.session_lifetime) == (20_000, 1800, 86_400)
    assert (doors.max_events, doors.max_event_bytes, doors.event_age) == (1000, 4 * 1024 * 1024, 300)
    assert (doors.sse, doors.poll_routes) == (False, False)


def test_options_are_sorted_into_their_groups() -> None:
    doors, engine = split_options({"port": 0, "path": "/x", "quiet": 1.0, "host": "::1"})
    assert (doors.path, doors.quiet) == ("/x", 1.0)
    assert (engine.port, engine.host) == (0, "::1")


def test_no_option_belongs_to_both_groups() -> None:
    assert set(EndpointSettings.__struct_fields__).isdisjoint(EngineSettings.__struct_fields__)


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(SetupError, match=r"unknown option 'prot'; did you mean 'port'"):
        split_options({"prot": 8000})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"path": "mcp"}, "path must begin with a slash"),
        ({"sse_path": ""}, "sse_path must begin with a slash"),
        ({"messages_path": "x"}, "messages_path must begin with a slash"),
        ({"response": "xml"}, "response must be one of auto, json, sse, not 'xml'"),
        ({"path": "/mcp?key=1"}, "path must be a path as it stands in a URL"),
        ({"sse_path": "/a b"}, "sse_path must be a path as it stands in a URL"),
        ({"path": "/livez"}, "path cannot be /livez, which tells of health"),
        *(
            ({"allowed_origins": (origin,)}, "not an origin as browsers write it.* https://app.example.com")
            for origin in (
                *("app.example.com", "https://app.example.com/", "https://App.example.com", "https://*.example.com"),
                *("http://localhost:*", "https://app.example.com:443", "https://app.example.com/page", "", "https://"),
                *(
                    "https://bücher.example",
                    "https://user@app.example.com",
                    "https://app.example.com https://b.example",
                ),
            )
        ),
        *(
            ({"allowed_hosts": (host,)}, "is not a host: write mcp.example.com")
            for host in ("https://mcp.example.com", "mcp.example.com/mcp", "*.example.com", "localhost:*", "::1", "")
        ),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_reason(options: dict[str, Any], words: str) -> None:
    with pytest.raises(SetupError, match=words):
        split_options(options)


@pytest.mark.parametrize(
    "options",
    [
        {"allowed_origins": ("https://app.example.com", "http://localhost:5173", "http://[::1]:8000", "*", "null")},
        {"allowed_origins": ("vscode-webview://0a1b2c", "http://app.example.com:443")},
        {"allowed_hosts": ("MCP.example.com", "mcp.example.com:8443", "[::1]", "10.0.0.7", "*")},
        {"path": "/livez", "health": False},
        {"path": "/"},
        {"path": "/api/v1.0/mcp/"},
    ],
)
def test_what_a_request_can_match_is_taken(options: dict[str, Any]) -> None:
    taken = split_options(options)
    for name, value in options.items():
        assert value in [getattr(settings, name, None) for settings in taken]
