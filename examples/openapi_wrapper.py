"""A web API as tools: its OpenAPI document says what there is, each call is one HTTP request.

    API_TOKEN=… ferrule list -- python examples/openapi_wrapper.py openapi.json https://api.example.com

Operations that only read are offered with that hint, and those that delete are left out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import httpx

from ferrule import OpenApiRule, Server

TIMEOUT = 10.0
RULES = [OpenApiRule("none", methods=["DELETE"]), OpenApiRule("none", pattern="^/internal/")]


def wrap(document: Path, address: str, token: str = "") -> Server:
    """Return a server whose tools are the operations of an API; the token stays here, and no model sees it."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    api = httpx.AsyncClient(base_url=address, headers=headers, timeout=TIMEOUT)
    return Server.from_openapi(document, api, rules=RULES)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: openapi_wrapper.py OPENAPI.json https://api.example.com")
    wrap(Path(sys.argv[1]), sys.argv[2], os.environ.get("API_TOKEN", "")).run()
