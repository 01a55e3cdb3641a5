"""A server, an issuer that publishes its keys, and a caller, each over real sockets."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from identity_desk import _listening, served
from identity_wire import Wire
from issuer_double import JWKS, KEYS, claims
from protected_desk import ask, bearer, protected

from ferrule import OIDC, Http, Introspection, Server
from ferrule.auth.jose import sign


def issuer_site(seen: list[Any]) -> Server:
    """Make a site that publishes keys and answers questions about tokens."""
    site = Server("issuer", version="1")

    @site.custom_route("/.well-known/openid-configuration")
    async def metadata(request: Any) -> Any:
        seen.append("metadata")
        origin = f"http://{request.headers['host']}"
        return {"issuer": origin, "jwks_uri": f"{origin}/keys"}

    @site.custom_route("/keys")
    async def keys(request: Any) -> Any:
        seen.append("keys")
        return JWKS

    @site.custom_route("/introspect", methods=["POST"])
    async def introspect(request: Any) -> Any:
        form = await request.form()
        seen.append((request.headers["authorization"].split()[0], form["token"]))
        said = {"active": form["token"] == "opaque", "sub": "ada", "client_id": "editor", "aud": RESOURCE}
        return {**said, "scope": "notes", "exp": int(time.time()) + 600}

    return site


RESOURCE = "https://mcp.example.com/mcp"


def signed(issuer: str, **changes: Any) -> str:
    now = int(time.time())
    said = claims(iss=issuer, aud=RESOURCE, iat=now, exp=now + 600, **changes)
    return sign({"kid": KEYS["RS256"].id, "typ": "at+jwt"}, said, KEYS["RS256"], "RS256")


async def test_an_issuer_on_this_machine_is_found_by_its_name(tmp_path: Path) -> None:
    """AUTH-7: three lines, and who has a token of the issuer is let in."""
    seen: list[Any] = []
    listener = Http(port=0)
    async with _listening(issuer_site(seen), listener):
        issuer = f"http://127.0.0.1:{listener.address[1]}"
        app, ran = protected(auth=OIDC(issuer, resource=RESOURCE, scopes=["notes"]))
        async with served(app, "engine", tmp_path) as place:
            wire = await Wire.reach(place.url)
            for number in ("1", "2"):
                params = {"name": "whoami", "arguments": {}}
                answer = await ask(wire, "tools/call", params, "stateless", bearer(signed(issuer, jti=number)))
                assert answer.text == f"{issuer}#ada editor"
                foreign = bearer(signed("http://127.0.0.1:1", jti=number))
                refused = await ask(wire, "tools/call", params, "stateless", foreign)
                assert refused.status == 401
            await wire.close()
        assert seen == ["metadata", "keys"]
        assert ran.names == ["whoami", "whoami"]


async def test_an_issuer_that_is_down_costs_nobody_a_login(tmp_path: Path) -> None:
    """AUT-13: 503 with when to come again, within 2 s, and as soon as it is there everybody is let in."""
    probe = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    issuer = f"http://127.0.0.1:{port}"
    app, _ = protected(auth=OIDC(issuer, resource=RESOURCE))
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        params = {"name": "whoami", "arguments": {}}
        refused = await ask(wire, "tools/call", params, "stateless", bearer(signed(issuer)))
        assert (refused.status, refused.headers["retry-after"]) == (503, "2")
        async with _listening(issuer_site([]), Http(port=port)):
            for _ in range(100):
                answer = await ask(wire, "tools/call", params, "stateless", bearer(signed(issuer)))
                if answer.status == 200:
                    break
                assert answer.status == 503
                await asyncio.sleep(0.1)
            assert answer.text == f"{issuer}#ada editor"
        await wire.close()


async def test_an_issuer_is_asked_about_tokens_only_it_can_read(tmp_path: Path) -> None:
    seen: list[Any] = []
    listener = Http(port=0)
    async with _listening(issuer_site(seen), listener):
        url = f"http://127.0.0.1:{listener.address[1]}/introspect"
        app, _ = protected(auth=Introspection(url, client=("me", "s3cret"), resource=RESOURCE))
        async with served(app, "engine", tmp_path) as place:
            wire = await Wire.reach(place.url)
            params = {"name": "whoami", "arguments": {}}
            for _ in range(3):
                answer = await ask(wire, "tools/call", params, "stateless", bearer("opaque"))
                assert answer.text.endswith("#ada editor")
                assert (await ask(wire, "tools/call", params, "stateless", bearer("other"))).status == 401
            await wire.close()
        assert seen == [("Basic", "opaque"), ("Basic", "other")]
