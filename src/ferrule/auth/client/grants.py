"""Grants without a person: client credentials, workload identity, and what an enterprise manages for its people.

Rule: an assertion is read anew each time it is needed, and a refusal is final: neither another try nor another grant.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

from msgspec import Struct

from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.registration import secret_method
from ferrule.auth.client.session import Granted, Wanted
from ferrule.auth.client.token import ClientIdentity, ProofKey, TokenEndpoint
from ferrule.auth.fetch import Fetcher
from ferrule.auth.jose import Key
from ferrule.errors import AuthorizationFailed
from ferrule.settings.option import FilePath

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 - the name of a grant
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"  # noqa: S105 - the name of a kind
LONGEST_ASSERTION = 64 * 1024

ReadAssertion = Callable[[], Awaitable[str]]
Fields = Callable[[Wanted], Awaitable[dict[str, str]]]
"""Returns what is special about one grant."""


class OwnClient(Struct, frozen=True):
    """The client we were told we are; its text shows no secret."""

    id: str
    secret: str = ""
    key: Key | None = None
    algorithm: str = "ES256"

    def __repr__(self) -> str:
        return "OwnClient(…)"

    def identity(self, server: ServerMetadata) -> ClientIdentity:
        """Return how we prove who we are to an authorization server."""
        if self.key is not None:
            return ClientIdentity(self.id, "private_key_jwt")
        return ClientIdentity(self.id, secret_method(server, self.secret), self.secret)


class DirectGrant:
    """Gets tokens at the token endpoint alone."""

    preregistered = True
    renews = False

    def __init__(self, fetcher: Fetcher, client: OwnClient, fields: Fields) -> None:
        self._fetcher = fetcher
        self._client = client
        self._fields = fields
        # What is signed with a key names whom it is for.
        self.shows_secret = client.key is None

    async def obtain(self, wanted: Wanted) -> Granted:
        """Return a token; raises AuthorizationFailed."""
        client = self._client.identity(wanted.found.server)
        fields = await self._fields(wanted)
        if wanted.scopes:
            fields["scope"] = " ".join(wanted.scopes)
        if wanted.resource:
            fields["resource"] = wanted.resource
        endpoint = self.endpoint(wanted.found.server, client, wanted.proof_key)
        return Granted(await endpoint.ask(fields, wanted.scopes), client)

    def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> TokenEndpoint:
        """Return the token endpoint as our client uses it."""
        own = self._client
        return TokenEndpoint(
            self._fetcher, server, client, signing_key=own.key, algorithm=own.algorithm, proof_key=proof_key
        )


async def own_rights(wanted: Wanted) -> dict[str, str]:
    """Ask for the client's own rights (RFC 6749 §4.4)."""
    return {"grant_type": "client_credentials"}


def assertion(read: ReadAssertion) -> Fields:
    """Exchange a token of somebody else's for one of this authorization server (RFC 7523 §2.1)."""

    async def fields(wanted: Wanted) -> dict[str, str]:
        return {"grant_type": JWT_BEARER, "assertion": await read()}

    return fields


def enterprise(provider: TokenEndpoint, read: ReadAssertion) -> Fields:
    """Let the identity provider vouch for a person: their ID token becomes an ID-JAG, which is an assertion."""

    async def fields(wanted: Wanted) -> dict[str, str]:
        exchange = {
            "grant_type": TOKEN_EXCHANGE,
            "requested_token_type": ID_JAG,
            "subject_token": await read(),
            "subject_token_type": ID_TOKEN,
            "audience": wanted.found.issuer,
            "resource": wanted.found.resource,
        }
        if wanted.scopes:
            exchange["scope"] = " ".join(wanted.scopes)
        answer = await provider.post(exchange)
        vouched = answer.get("access_token")
        if answer.get("issued_token_type", ID_JAG) != ID_JAG or not isinstance(vouched, str):
            raise AuthorizationFailed("the identity provider answered with something else than an ID-JAG")
        return {"grant_type": JWT_BEARER, "assertion": vouched}

    return fields


def assertion_reader(
    source: str | Callable[[], object] | None, file: FilePath | None = None, variable: str | None = None
) -> ReadAssertion:
    """Return what reads an assertion: a text, what a function returns, a file, or a variable of the environment."""

    async def read() -> str:
        found: object = source
        if callable(source):
            found = source()
            if inspect.isawaitable(found):
                found = await found
        elif file is not None:
            found = await asyncio.to_thread(_read_file, Path(file))
        elif variable is not None:
            found = os.environ.get(variable, "")
        if not isinstance(found, str) or not 0 < len(found.strip()) <= LONGEST_ASSERTION:
            raise AuthorizationFailed("there is no token to be exchanged where one was said to be")
        return found.strip()

    return read


def _read_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(LONGEST_ASSERTION + 1).decode("ascii")
    except (OSError, UnicodeDecodeError) as reason:
        raise AuthorizationFailed(f"the token in {path} cannot be read: {reason}") from None
