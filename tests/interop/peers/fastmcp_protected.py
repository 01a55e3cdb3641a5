"""A server of FastMCP's that lets in who shows a token: `fastmcp_protected.py PORT ISSUER JWKS`."""

from __future__ import annotations

import sys

from fastmcp import FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token

port, issuer, jwks = sys.argv[1:]
base = f"http://127.0.0.1:{port}"
verifier = JWTVerifier(jwks_uri=jwks, issuer=issuer, audience=f"{base}/mcp", algorithm="ES256")
app = FastMCP("theirs", auth=RemoteAuthProvider(verifier, [issuer], base))


@app.tool
def who() -> str:
    """Say who calls."""
    token = get_access_token()
    return str(token.claims["sub"]) if token else "nobody"


app.run("http", host="127.0.0.1", port=int(port), show_banner=False, log_level="error")
