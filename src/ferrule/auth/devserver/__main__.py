"""`python -m ferrule.auth.devserver`: a development authorization server, until it is interrupted."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from contextlib import suppress

from ferrule.auth.devserver.clients import RegisteredClient
from ferrule.auth.devserver.profile import PROFILES
from ferrule.auth.devserver.server import DevServer
from ferrule.errors import FerruleError
from ferrule.supervision.signals import run_coroutine


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until interrupted; an error is one sentence on stderr and a non-zero exit."""
    parser = argparse.ArgumentParser(prog="python -m ferrule.auth.devserver", description=__doc__)
    parser.add_argument("--port", type=int, default=9000, help="the port to listen on (default: 9000; 0: a free one)")
    parser.add_argument("--profile", choices=PROFILES, default="plain", help="behave like this provider")
    parser.add_argument("--user", default="", help="sign this user in at once, without a page")
    parser.add_argument("--scope", action="append", default=[], help="a scope there is (default: any)")
    parser.add_argument("--audience", action="append", default=[], help="an API the provider knows")
    parser.add_argument("--access-lifetime", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument(
        *("--client", "-c"),
        action="append",
        default=[],
        metavar="ID[:SECRET]=REDIRECT_URI",
        help="a client that is registered already",
    )
    options = parser.parse_args(arguments)
    try:
        server = DevServer(
            options.profile,
            port=options.port,
            user=options.user,
            scopes=options.scope,
            audiences=options.audience,
            access_lifetime=options.access_lifetime,
            clients=list(map(_client, options.client)),
        )
        with suppress(KeyboardInterrupt):
            run_coroutine(lambda: _serve(server))
    except FerruleError as error:
        sys.stderr.write(f"error: {error}\n")
        raise SystemExit(1) from None


async def _serve(server: DevServer) -> None:
    async with server:
        sys.stdout.write(f"issuer {server.issuer}\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _client(text: str) -> RegisteredClient:
    name, _, uri = text.partition("=")
    client_id, colon, secret = name.partition(":")
    uris = [uri] if uri else []
    if colon:
        return RegisteredClient(id=client_id, secret=secret, auth_method="client_secret_basic", redirect_uris=uris)
    return RegisteredClient(id=client_id, redirect_uris=uris)


if __name__ == "__main__":
    main()
