"""A protected server, and the ways by which others reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from identity_desk import served
from identity_wire import Wire

from ferrule import Context, Principal, Server
from ferrule.auth.server.static_tokens import StaticTokens


def principal(subject: str, scopes: str = "", *, client: str = "editor", issuer: str = "dev", **more: Any) -> Principal:
    return Principal(issuer=issuer, subject=subject, client=client, scopes=frozenset(scopes.split()), **more)


TOKENS = {
    "ada": principal("ada", "notes"),
    "ada-writes": principal("ada", "notes write"),
    "ada-renewed": principal("ada", "notes"),
    "ada-elsewhere": principal("ada", "notes write", client="browser"),
    "ada-of-another-issuer": principal("ada", "notes write", issuer="other"),
    "bob": principal("bob", "notes write"),
    "robot": Principal(issuer="dev", client="editor", scopes=frozenset({"notes"})),
    "poor": principal("poor"),
}


class Ran:
    """What was run, by name."""

    def __init__(self) -> None:
        self.names: list[str] = []


def protected(**options: Any) -> tuple[Server, Ran]:
    """Make a server whose tools, prompts and resources need scopes, and what it ran."""
    auth = options.pop("auth", None) or StaticTokens(TOKENS, **options.pop("protection", {"scopes": ["notes"]}))
    hiding = options.pop("hiding", True)
    app = Server("notes", version="1", auth=auth, **options)
    ran = Ran()

    @app.tool
    async def whoami(ctx: Context) -> str:
        ran.names.append("whoami")
        return f"{ctx.principal} {ctx.identity.client if ctx.identity else None}"

    @app.tool(scopes=["write"])
    async def save(ctx: Context) -> str:
        ran.names.append("save")
        return "saved"

    @app.tool(scopes=["write"], hide_without=hiding)
    async def erase() -> str:
        ran.names.append("erase")
        return "erased"

    @app.resource("notes://secret", scopes=["write"])
    async def secret() -> str:
        ran.names.append("secret")
        return "secret"

    @app.resource("notes://{name}/page", scopes=["write"])
    async def page(name: str) -> str:
        ran.names.append("page")
        return name

    @app.prompt(scopes=["write"])
    async def letter(to: str) -> str:
        ran.names.append("letter")
        return to

    return app, ran


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def asking(method: str, params: dict[str, Any], era: str, identity: int = 1) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request of either era, and the headers that repeat it."""
    from identity_wire import META

    body: dict[str, Any] = {"jsonrpc": "2.0", "id": identity, "method": method, "params": dict(params)}
    headers = {"Mcp_Protocol_Version": "2025-11-25"}
    if era == "stateless":
        body["params"]["_meta"] = META
        headers = {"Mcp_Protocol_Version": "2026-07-28", "Mcp_Method": method}
        name = params.get("name") or params.get("uri")
        if name:
            headers["Mcp_Name"] = str(name)
    return body, headers


async def session_headers(wire: Wire, era: str, token: str) -> dict[str, str]:
    """Return the headers of a caller; in the handshake era, with a session of its own."""
    if era == "stateless":
        return bearer(token)
    return {"Mcp_Session_Id": await wire.session(**bearer(token)), **bearer(token)}


async def ask(wire: Wire, method: str, params: dict[str, Any], era: str, headers: dict[str, str]) -> Any:
    """Send one request and return its answer."""
    body, own = asking(method, params, era)
    return await wire.ask(body, **{**own, **headers})


__all__ = ["TOKENS", "Path", "Ran", "Wire", "ask", "asking", "bearer", "protected", "served", "session_headers"]
