"""The watch over the secrets of a run finds them wherever they are."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import httpx
import pytest
from leaks import Watch
from provider_desk import Person, free_port, upstream
from span_recorder import SpanRecorder

from ferrule import OIDC, Client, Context, Http, OAuth, OAuthProxy, Server
from ferrule.auth.devserver.server import DevServer
from ferrule.errors import AuthorizationFailed
from ferrule.testing import ERAS
from ferrule.transports.sockets.tls import TlsSettings

HERE = __file__.rpartition("/")[2]


def planted(where: str, token: str) -> None:
    if where == "log":
        logging.getLogger("ferrule.auth").debug("refused %s", token)
    elif where == "traceback":
        try:
            raise ValueError(f"cannot read {token}")
        except ValueError:
            logging.getLogger("ferrule.auth").exception("failed")
    elif where == "loop":
        logging.getLogger("asyncio").error("Task exception was never retrieved: %s", token)
    elif where == "a part of it":
        head, claims, signature = token.split(".")
        logging.getLogger("ferrule.http").info("Authorization: Bearer %s.%s.x%s", head, claims, signature[:20])
    else:
        # As if one of our modules had raised it.
        exec(
            "raise Error(f'{token} is no good')",
            {"__name__": "ferrule.x", "Error": AuthorizationFailed, "token": token},
        )


@pytest.mark.parametrize("where", ["log", "traceback", "loop", "a part of it", "error"])
async def test_a_token_that_is_planted_is_found_with_its_place(where: str, secrets_of_the_run: Watch) -> None:
    async with DevServer() as issuer:
        token = issuer.access_token()
        logging.getLogger("ferrule.auth").warning("a token of %s was refused", token.partition(".")[0])
        assert secrets_of_the_run.found() == []
        if where == "error":
            with pytest.raises(AuthorizationFailed):
                planted(where, token)
        else:
            planted(where, token)
        (leak,) = secrets_of_the_run.found()
        assert "a token of the development server" in leak
        assert "AuthorizationFailed of <string>:1" in leak if where == "error" else f"{HERE}:" in leak
    assert secrets_of_the_run.found() == []


def verifier(kind: str, issuer: DevServer, url: str) -> Any:
    """Return who verifies the tokens of a server: those of the issuer, or those of a proxy before it."""
    if kind == "OIDC":
        return OIDC(issuer.issuer, resource=url, scopes=["notes"])
    callback = [url.removesuffix("mcp") + "callback"]
    issuer.add_client("proxy", secret="s3cret", auth_method="client_secret_post", redirect_uris=callback)
    return OAuthProxy(
        upstream("google")(issuer), ("proxy", "s3cret"), resource=url, scopes=["notes"], more_scopes=["write"]
    )


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("kind", ["OIDC", "OAuthProxy"])
async def test_no_metric_trace_receipt_or_error_holds_a_secret(
    kind: str, era: str, tmp_path: Path, secrets_of_the_run: Watch
) -> None:
    """AUT-04, AUT-13: logged in, stepped up, renewed, refused: with all that can be observed of both sides."""
    spans = SpanRecorder()
    options = {"receipts": str(tmp_path / "receipts"), "metrics": True, "tracing": spans.tracing()}
    async with DevServer("google" if kind == "OAuthProxy" else "plain", user="ada") as issuer:
        port = free_port()
        url = f"http://127.0.0.1:{port}/mcp"
        app = Server("notes", auth=verifier(kind, issuer, url), **options)

        @app.tool
        async def whoami(ctx: Context) -> str:
            return str(ctx.principal)

        @app.tool(scopes=["write"])
        async def fail(ctx: Context) -> str:
            raise RuntimeError("it fails")

        ready = asyncio.Event()
        serving = asyncio.create_task(app.serve(Http(port=port), ready=ready.set))
        await ready.wait()
        auth = OAuth(storage=tmp_path / "tokens.json", open_browser=Person())
        async with Client(url, auth=auth, mode=era, tracing=spans.tracing()) as client:
            assert (await client.call_tool("whoami")).text.endswith("ada")
            assert (await client.call_tool("fail", raise_on_error=False)).is_error
            kept = (tmp_path / "tokens.json").read_text()
            async with httpx.AsyncClient(trust_env=False) as web:
                session: Any = auth.credentials(url, TlsSettings())
                shown = session._lines.decode().split()[-1]
                for wrong in (f"{shown}x", shown[:-1], f"{shown}, {shown}"):
                    refused = await web.post(url, headers={"Authorization": f"Bearer {wrong}"}, json={})
                    assert refused.status_code in (400, 401)
                    secrets_of_the_run.note_text("answer", f"{refused.headers} {refused.text}")
                in_url = await web.post(f"{url}?access_token={shown}", json={})
                secrets_of_the_run.note_text("answer", f"{in_url.headers} {in_url.text}")
                page = await web.get(url.replace("/mcp", "/metrics"), headers={"Authorization": f"Bearer {shown}"})
                assert "ferrule_" in page.text
                secrets_of_the_run.note_text("metrics", page.text)
        await app.stop(0.0)
        await serving
    assert spans.spans
    for span in spans.spans:
        secrets_of_the_run.note_text(f"span {span.name}", span.to_json())
    receipts = [each.read_text(errors="replace") for each in (tmp_path / "receipts").rglob("*") if each.is_file()]
    assert any("whoami" in each for each in receipts)
    for receipt in receipts:
        secrets_of_the_run.note_text("receipts", receipt)
    assert secrets_of_the_run.found() == []
    # What was kept for the person is what was looked for.
    secrets_of_the_run.note_text("the store", kept)
    assert secrets_of_the_run.found()
