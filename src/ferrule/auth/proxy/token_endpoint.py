"""The endpoints that clients call: `/register`, `/token` and `/revoke`."""

from __future__ import annotations

import logging
from base64 import b64decode
from collections.abc import Callable
from urllib.parse import unquote_plus

from ferrule.auth.proxy.access_tokens import AccessTokens
from ferrule.auth.proxy.clients import Clients
from ferrule.auth.proxy.codes import CodeReplayed, Codes
from ferrule.auth.proxy.documents import is_document_url
from ferrule.auth.proxy.grants import Grant, Grants, Presented, Reused
from ferrule.auth.proxy.login import client_key
from ferrule.auth.proxy.parameters import AddressRate, OAuthError, error_answer, json_answer, read_form
from ferrule.auth.proxy.upstream import UpstreamDown, UpstreamRefused
from ferrule.auth.proxy.vault import Vault
from ferrule.transports.http.routes.web import WebRequest, WebResponse

logger = logging.getLogger("ferrule.auth")

LONGEST_HEADER = 32 * 1024


class TokenEndpoint:
    """Registers clients, exchanges codes and refresh tokens for access tokens, and ends grants."""

    def __init__(
        self,
        *,
        resource: str,
        clients: Clients,
        codes: Codes,
        grants: Grants,
        vault: Vault,
        tokens: AccessTokens,
        rate: AddressRate,
        sender: Callable[[WebRequest], str],
        ended: Callable[[str], None],
        clock: Callable[[], float],
    ) -> None:
        self._resource = resource
        self._clients = clients
        self._codes = codes
        self._grants = grants
        self._vault = vault
        self._tokens = tokens
        self._rate = rate
        self._sender = sender
        """Returns the address a request came from."""
        self._ended = ended
        """Called with the id of a grant that has ended."""
        self._clock = clock

    async def register(self, request: WebRequest) -> WebResponse:
        """Answer a registration (RFC 7591)."""
        try:
            self._rate.require(self._sender(request), self._clock())
            return json_answer(self._clients.register(await request.body()), 201)
        except OAuthError as error:
            return error_answer(error)

    async def token(self, request: WebRequest) -> WebResponse:
        """Answer a token request (RFC 6749 §3.2)."""
        try:
            form = await read_form(request)
            client = await self._authenticate(request, form)
            if form.get("resource", self._resource) != self._resource:
                raise OAuthError("invalid_target", "The resource is not the one that this server protects")
            kind = form.get("grant_type")
            if kind == "authorization_code":
                return await self._exchange_code(form, client)
            if kind == "refresh_token":
                return await self._refresh(form, client)
            raise OAuthError("unsupported_grant_type", "grant_type must be authorization_code or refresh_token")
        except (Reused, CodeReplayed) as error:
            logger.warning(
                "a %s came again: its grant has ended", "code" if isinstance(error, CodeReplayed) else "refresh token"
            )
            await self.end(error.grant_id)
            return error_answer(error)
        except OAuthError as error:
            return error_answer(error)

    async def revoke(self, request: WebRequest) -> WebResponse:
        """Answer a revocation (RFC 7009): the whole grant of the token ends."""
        try:
            form = await read_form(request)
            client = await self._authenticate(request, form)
        except OAuthError as error:
            return error_answer(error)
        token = form.get("token", "")
        grant_id = ""
        found = self._grants.read(token)
        if found is not None:
            grant_id = found[0]
        else:
            claims = self._tokens.read(token)
            if claims is not None:
                grant_id = claims.sid
        grant = await self._grants.find(grant_id)
        if grant is not None and grant.client == client:
            await self.end(grant.id)
        # A token that is not known is as good as revoked (RFC 7009 §2.2).
        return json_answer({})

    async def end(self, grant_id: str) -> None:
        """End a grant: its refresh tokens, its access tokens, and the tokens of the provider."""
        self._tokens.revoke(grant_id)
        self._ended(grant_id)
        await self._grants.end(grant_id)
        await self._vault.delete(grant_id)

    async def _authenticate(self, request: WebRequest, form: dict[str, str]) -> str:
        """Return what stands for the client that asks; raises OAuthError unless it is that client."""
        client_id = form.get("client_id", "")
        secret = form.get("client_secret", "")
        given = request.headers.get("authorization", "")
        if given:
            named, secret = _read_basic(given)
            if client_id not in ("", named):
                raise OAuthError("invalid_request", "Two clients are named")
            client_id = named
        if not is_document_url(client_id):
            self._clients.authenticate(await self._clients.find(client_id), secret)
        # A client with a document has no secret, and the code or token it brings is bound to its URL.
        return client_key(client_id)

    async def _exchange_code(self, form: dict[str, str], client: str) -> WebResponse:
        code = form.get("code", "")
        verifier = form.get("code_verifier", "")
        grant = await self._codes.redeem(code, verifier, client, form.get("redirect_uri"))
        await self._vault.extend(grant.id)
        for oldest in await self._grants.crowd_out(grant):
            await self.end(oldest)
        return self._answer(grant, grant.scopes, await self._grants.begin(grant))

    async def _refresh(self, form: dict[str, str], client: str) -> WebResponse:
        presented = await self._grants.present(form.get("refresh_token", ""), client)
        grant = presented.grant
        scopes = grant.scopes
        if "scope" in form:
            scopes = tuple(dict.fromkeys(form["scope"].split()))
            if not set(scopes) <= set(grant.scopes):
                raise OAuthError("invalid_scope", "A refresh cannot ask for more than was granted")
        await self._check_upstream(presented)
        successor = await self._grants.rotate(presented)
        await self._vault.extend(grant.id)
        return self._answer(grant, scopes, successor)

    async def _check_upstream(self, presented: Presented) -> None:
        """Raise OAuthError where the provider does not know the login any more (MCP AUTH-13)."""
        try:
            await self._vault.fresh(presented.grant.id)
        except UpstreamRefused as reason:
            logger.warning("a grant has ended: %s", reason)
            await self.end(presented.grant.id)
            raise OAuthError("invalid_grant", "The provider has ended the login; log in again") from None
        except UpstreamDown as reason:
            logger.error("a refresh had to be put off: %s", reason)
            why = "The provider cannot be asked now; try again"
            headers = {"Retry-After": "2"}
            raise OAuthError("temporarily_unavailable", why, status=503, headers=headers) from None

    def _answer(self, grant: Grant, scopes: tuple[str, ...], refresh_token: str) -> WebResponse:
        return json_answer(
            {
                "access_token": self._tokens.issue(grant, scopes),
                "token_type": "Bearer",
                "expires_in": self._tokens.lifetime,
                "refresh_token": refresh_token,
                "scope": " ".join(scopes),
            }
        )


def _read_basic(header: str) -> tuple[str, str]:
    """Return the id and the secret of a client (RFC 6749 §2.3.1)."""
    scheme, _, value = header.partition(" ")
    try:
        if scheme.lower() != "basic" or len(value) > LONGEST_HEADER:
            raise ValueError
        client_id, colon, secret = b64decode(value.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = client_id = secret = ""
    if not colon:
        headers = {"WWW-Authenticate": "Basic"}
        raise OAuthError("invalid_client", "The Authorization header cannot be read", status=401, headers=headers)
    return unquote_plus(client_id), unquote_plus(secret)
