"""The example that wraps a web API calls it with its token, and leaves out what deletes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from example_files import Load

from ferrule import Client

NUMBER = {"in": "path", "name": "number", "required": True, "schema": {"type": "integer"}}
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1.0"},
    "paths": {
        "/items/{number}": {
            "get": {"operationId": "item", "summary": "One item.", "parameters": [NUMBER]},
            "delete": {"operationId": "remove", "parameters": [NUMBER]},
        },
        "/internal/keys": {"get": {"operationId": "keys"}},
    },
}


class Shop(BaseHTTPRequestHandler):
    """Stands for the API."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps({"path": self.path, "by": self.headers["Authorization"]}).encode())

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def shop() -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Shop) as server:
        serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        serving.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        serving.join()


async def test_operations_are_tools_and_calls_are_requests(load: Load, shop: str, tmp_path: Path, era: str) -> None:
    document = tmp_path / "openapi.json"
    document.write_text(json.dumps(DOCUMENT))
    app = load("openapi_wrapper.py").wrap(document, shop, "secret")
    async with Client(app, mode=era) as client:
        assert [tool.name for tool in await client.list_tools()] == ["item"]
        answer = await client.call_tool("item", {"number": 7})
        assert json.loads(answer.text) == {"path": "/items/7", "by": "Bearer secret"}
