"""The authorization code grant: a person logs in with a browser, and the answer comes to this machine (RFC 8252)."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from ferrule.auth.address import AddressRules, is_loopback_name
from ferrule.auth.client.browser import can_paste, has_browser, judge_login_url, open_browser, pasted_line
from ferrule.auth.client.code_request import CodeRequest, make_code_request
from ferrule.auth.client.login_pause import LoginPause
from ferrule.auth.client.loopback import CallbackListener
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.registrar import Registrar
from ferrule.auth.client.session import Granted, Wanted
from ferrule.auth.client.store import MemoryStore, TokenStore
from ferrule.auth.client.token import ClientIdentity, ProofKey, TokenEndpoint, TokenRefused
from ferrule.auth.fetch import Fetcher
from ferrule.errors import AuthorizationFailed, LoginRequired, SetupError

logger = logging.getLogger("ferrule.auth")

CALLBACK = "/callback"
LOOPBACK = "127.0.0.1"
FAREWELL = 1.0

OpenPage = Callable[[str], Awaitable[str | None] | str | None]
"""Brings a person to a page; may return the URL they were sent back to."""


class CodeFlowOptions(Struct, frozen=True, kw_only=True):
    """How a person is asked to log in."""

    callback_host: str = LOOPBACK
    callback_port: int = 0
    redirect_uri: str = ""
    open_browser: bool | OpenPage = True
    paste: bool = False
    timeout: float = 300.0
    extra: Mapping[str, str] = {}

    def __repr__(self) -> str:
        return "CodeFlowOptions(…)"


class CodeGrant:
    """Gets tokens by a person's login."""

    renews = True

    def __init__(self, fetcher: Fetcher, store: TokenStore, registrar: Registrar, options: CodeFlowOptions) -> None:
        self._rules: AddressRules = fetcher.rules
        self._store = store
        self._registrar = registrar
        self._options = options
        self._pause = LoginPause()
        self.preregistered = registrar.preregistered
        self.shows_secret = registrar.shows_secret

    def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> TokenEndpoint:
        """Return the token endpoint as our client uses it."""
        return self._registrar.endpoint(server, client, proof_key)

    async def obtain(self, wanted: Wanted) -> Granted:
        """Let a person log in. Return the token; raises AuthorizationFailed."""
        return await self._pause.attempt(lambda: self._obtain(wanted))

    async def _obtain(self, wanted: Wanted) -> Granted:
        self._require_somebody(wanted)
        known = await self._registrar.known(wanted.found.issuer)
        async with self._answers(known) as (redirect_uri, listen):
            client = await self._registrar.identity(wanted.found.server, redirect_uri, wanted.scopes, known)
            request = make_code_request(
                wanted.found.server, client, redirect_uri, wanted.resource, wanted.scopes, self._options.extra
            )
            judge_login_url(request.url, self._rules)
            answer = await self._answer(request, listen)
        fields = {
            "grant_type": "authorization_code",
            "code": request.code(answer),
            "redirect_uri": redirect_uri,
            "code_verifier": request.verifier,
        }
        if wanted.resource:
            fields["resource"] = wanted.resource
        endpoint = self.endpoint(wanted.found.server, client, wanted.proof_key)
        try:
            return Granted(await endpoint.ask(fields, wanted.scopes), client)
        except TokenRefused as refusal:
            if refusal.error == "invalid_client":
                await self._registrar.forget(wanted.found.issuer)
            raise

    def _require_somebody(self, wanted: Wanted) -> None:
        """Refuse to begin where there is nobody to log in."""
        way = self._options.open_browser
        if callable(way) or (way and has_browser()) or (self._options.paste and can_paste()):
            return
        command = f"run `ferrule login {wanted.url}`"
        if isinstance(self._store, MemoryStore):
            command = "give a storage that lasts, and " + command
        raise LoginRequired(
            f"{wanted.url} wants somebody to log in at {wanted.found.issuer}, and there is no browser and no terminal "
            f"here: {command}, then start this again"
        )

    # -- the answer

    @contextlib.asynccontextmanager
    async def _answers(self, known: ClientIdentity | None) -> AsyncIterator[tuple[str, CallbackListener | None]]:
        """Listen where the browser is sent back to. Yields that URL, and the listener if it comes to this machine."""
        options = self._options
        path = CALLBACK
        ports = [options.callback_port]
        if not options.callback_port and known is not None:
            # The port we are registered with: with another we would have to become another client.
            ports.insert(0, urlsplit(known.redirect_uri).port or 0)
        if options.redirect_uri:
            parts = urlsplit(options.redirect_uri)
            if parts.scheme != "http" or not is_loopback_name(parts.hostname or ""):
                # It comes to some other machine: whoever gets it there pastes it here.
                yield options.redirect_uri, None
                return
            path = parts.path or "/"
            ports = [options.callback_port or parts.port or 80]
        async with CallbackListener(host=options.callback_host, ports=ports, path=path) as listener:
            yield options.redirect_uri or f"http://{LOOPBACK}:{listener.port}{path}", listener

    async def _answer(self, request: CodeRequest, listener: CallbackListener | None) -> str:
        """Bring the person to the page, and wait for the answer by whichever way it comes."""
        waits: list[asyncio.Future[Any]] = []
        if listener is not None:
            waits.append(asyncio.ensure_future(listener.wait(request.is_answered_by)))
        if self._options.paste and can_paste():
            waits.append(asyncio.ensure_future(self._pasted(request)))
        opening = asyncio.ensure_future(self._open(request.url))
        try:
            async with asyncio.timeout(self._options.timeout):
                answer = await _first(opening, waits)
            # Whoever opens the page sees how it ends.
            await asyncio.wait([opening], timeout=FAREWELL)
        except TimeoutError:
            raise AuthorizationFailed(
                f"nobody logged in at {request.issuer} within {self._options.timeout:g} s"
            ) from None
        finally:
            for each in (opening, *waits):
                each.cancel()
            await asyncio.gather(opening, *waits, return_exceptions=True)
        return answer

    async def _open(self, url: str) -> str | None:
        way = self._options.open_browser
        if callable(way):
            answer = way(url)
            if inspect.isawaitable(answer):
                answer = await answer
            return answer
        pasted = self._options.paste and can_paste()
        if way and not await open_browser(url) and not pasted:
            raise AuthorizationFailed("the browser could not be opened: log in with `ferrule login --no-browser`")
        return None

    async def _pasted(self, request: CodeRequest) -> str:
        while True:
            line = await pasted_line()
            if request.is_answered_by(line):
                return line
            logger.warning("what was pasted is not the answer of this login: paste the whole URL of the last page")


async def _first(opening: asyncio.Future[str | None], waits: list[asyncio.Future[Any]]) -> str:
    """Return the first answer; what opens the page may bring one itself."""
    pending: set[asyncio.Future[Any]] = {opening, *waits}
    while pending:
        done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
        for each in done:
            answer = each.result()
            if answer is not None:
                return str(answer)
    raise AuthorizationFailed("the answer of the login goes elsewhere, and nobody can paste it here")


def require_redirect_uri(uri: str) -> None:
    """Refuse what an authorization server would not take either: https, or http on this machine (MCP ACLI-10)."""
    parts = urlsplit(uri)
    local = parts.scheme == "http" and is_loopback_name(parts.hostname or "")
    if (parts.scheme != "https" and not local) or not parts.hostname or parts.fragment or "@" in parts.netloc:
        raise SetupError(f"redirect_uri must be an https URL, or http on this machine, not {uri!r}")
