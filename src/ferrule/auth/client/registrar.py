"""Finds out who we are at an authorization server, and proves it there (MCP ACLI-13).

Order: a client id we were given, a metadata document of our own, what we registered before, a registration now.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import Struct

from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.registration import is_current, register, secret_method
from ferrule.auth.client.store import TokenStore
from ferrule.auth.client.token import ClientIdentity, ProofKey, TokenEndpoint
from ferrule.auth.fetch import Fetcher
from ferrule.auth.jose import Key
from ferrule.errors import AuthorizationFailed


class ClientOptions(Struct, frozen=True, kw_only=True):
    """What we were told of ourselves."""

    id: str = ""
    secret: str = ""
    key: Key | None = None
    """What signs who we are (RFC 7523 §2.2)."""
    algorithm: str = "ES256"
    metadata_url: str = ""
    name: str = "Ferrule"

    def __repr__(self) -> str:
        return "ClientOptions(…)"


class Registrar:
    """Who we are, at every authorization server."""

    def __init__(self, fetcher: Fetcher, store: TokenStore, options: ClientOptions, kind: str = "client") -> None:
        self._fetcher = fetcher
        self._store = store
        self._options = options
        self._kind = kind
        """What our registrations are called in the store."""
        self.preregistered = bool(options.id)
        self.shows_secret = bool(options.id and options.secret)

    def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> TokenEndpoint:
        """Return the token endpoint as our client uses it."""
        options = self._options
        return TokenEndpoint(
            self._fetcher, server, client, signing_key=options.key, algorithm=options.algorithm, proof_key=proof_key
        )

    async def known(self, issuer: str) -> ClientIdentity | None:
        """Return the client we registered at an authorization server before."""
        document = await asyncio.to_thread(self._store.read, self._name(issuer))
        try:
            return None if document is None else msgspec.convert(document, ClientIdentity)
        except msgspec.ValidationError:
            return None

    async def forget(self, issuer: str) -> None:
        """Forget the client we registered: the authorization server does not know it any more."""
        await asyncio.to_thread(self._store.remove, self._name(issuer))

    async def identity(
        self, server: ServerMetadata, redirect_uri: str, scopes: tuple[str, ...], known: ClientIdentity | None
    ) -> ClientIdentity:
        """Return who we are; registers us where that is needed. Raises AuthorizationFailed."""
        options = self._options
        if options.id and options.key is not None:
            return ClientIdentity(options.id, "private_key_jwt")
        if options.id:
            return ClientIdentity(options.id, secret_method(server, options.secret), options.secret)
        if options.metadata_url and server.client_id_metadata_document_supported:
            return ClientIdentity(options.metadata_url)
        if server.registration_endpoint:
            if known is not None and is_current(known, redirect_uri):
                return known
            client = await register(self._fetcher, server, options.name, redirect_uri, scopes)
            await asyncio.to_thread(self._store.write, self._name(server.issuer), msgspec.to_builtins(client))
            return client
        if options.metadata_url:
            lacks = "takes neither client metadata documents nor registrations"
        else:
            lacks = "registers nobody, and needs to know us"
        there = f" for {redirect_uri}" if redirect_uri else ""
        raise AuthorizationFailed(
            f"{server.issuer} {lacks}: register a client there{there}, and give OAuth(client_id=…)"
        )

    def _name(self, issuer: str) -> str:
        return f"{self._kind} {issuer}"
