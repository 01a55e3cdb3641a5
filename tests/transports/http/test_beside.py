"""What is served beside HTTP at its port: found in the table of transports, made when it is asked for."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from ferrule import Server
from ferrule.errors import SetupError
from ferrule.transports.http.beside import on_engine, under_asgi
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.settings import EndpointSettings
from ferrule.transports.websocket.asgi import AsgiWebSocketEndpoint
from ferrule.transports.websocket.endpoint import WebSocketEndpoint

MAKERS: list[Any] = [on_engine, under_asgi]


@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_served_beside_http_unless_it_is_asked_for(make: Any) -> None:
    assert make(False, "/mcp") is None


@pytest.mark.parametrize(("make", "kind"), [(on_engine, WebSocketEndpoint), (under_asgi, AsgiWebSocketEndpoint)])
@pytest.mark.parametrize(("given", "path"), [(True, "/mcp/ws"), ({"path": "/talk"}, "/talk")])
def test_web_sockets_are_served_at_a_path_of_their_own(make: Any, kind: type, given: Any, path: str) -> None:
    endpoint = make(given, "/mcp")(Server("s").host, Guard(EndpointSettings(), "127.0.0.1"))
    assert type(endpoint) is kind
    assert (endpoint.path, endpoint.draining) == (path, False)


@pytest.mark.parametrize("make", MAKERS)
def test_what_cannot_be_served_is_refused_before_anything_is_made(make: Any) -> None:
    with pytest.raises(SetupError, match="unknown option 'pahts'"):
        make({"pahts": "/talk"}, "/mcp")
    with pytest.raises(SetupError, match="are both '/mcp'"):
        make({"path": "/mcp"}, "/mcp")


def test_http_without_web_sockets_loads_nothing_of_them() -> None:
    code = (
        "import sys; from ferrule import Http; Http(); import ferrule.transports.http.asgi.app; "
        "print([name for name in sys.modules if 'websocket' in name])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "[]\n"
