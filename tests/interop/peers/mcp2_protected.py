"""A server of the official SDK 2.x that lets in who shows a token: `mcp2_protected.py PORT ISSUER INTROSPECTION`."""

from __future__ import annotations

import sys

import httpx2 as httpx
from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings

port, issuer, introspection = sys.argv[1:]
url = f"http://127.0.0.1:{port}/mcp"


class Asking:
    """Asks the issuer whether a token is good (RFC 7662)."""

    async def verify_token(self, token: str) -> AccessToken | None:
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.post(introspection, data={"token": token}, auth=("resource", "secret"))
        said = answer.json()
        if not said.get("active") or url not in str(said.get("aud")):
            return None
        return AccessToken(
            token=token,
            client_id=said["client_id"],
            scopes=[],
            expires_at=said["exp"],
            resource=url,
            subject=said["sub"],
        )


settings = AuthSettings(issuer_url=issuer, resource_server_url=url, required_scopes=[])
app = MCPServer("theirs", token_verifier=Asking(), auth=settings, log_level="ERROR")


@app.tool()
def who() -> str:
    """Say who calls."""
    token = get_access_token()
    return token.subject if token else "nobody"


app.run("streamable-http", host="127.0.0.1", port=int(port))
