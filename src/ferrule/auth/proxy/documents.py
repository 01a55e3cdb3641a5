"""Client ID Metadata Documents: fetched from the URL that is the client's id, checked, and kept for a while.

draft-ietf-oauth-client-id-metadata-document. Fetching is guarded (`auth/fetch.py`): https, 5 s, 64 KiB, and no address
of a private network.

Rule 1: what is kept of a document are the members that are used, as text: what else is in it costs nothing.
Rule 2: a fetch counts until it has ended, whoever has left meanwhile.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ferrule.auth.address import AddressRefused
from ferrule.auth.fetch import Fetcher, FetchFailed
from ferrule.auth.proxy.parameters import AddressRate, OAuthError

LEAST_KEPT = 300.0
MOST_KEPT = 86_400.0
FAILURE_KEPT = 30.0
"""For how long a document that could not be had is not asked for again."""
MAX_KEPT = 1000
USED = ("client_name", "redirect_uris", "token_endpoint_auth_method")
MAX_USED = 8 * 1024
"""Bytes of the members of a document that are used."""
MAX_FETCHES = 8
"""At once."""
MAX_AGE = re.compile(r"(?:^|[\s,])max-age=(\d{1,9})(?:$|[\s,])")


def is_document_url(client_id: str) -> bool:
    """Return whether a client id is the URL of a document, and not one of our own."""
    return "://" in client_id[:10]


class ClientDocuments:
    """The documents of clients, by URL."""

    def __init__(self, fetcher: Fetcher, rate: AddressRate, clock: Callable[[], float]) -> None:
        self._fetcher = fetcher
        self._rate = rate
        self._clock = clock
        self._kept: dict[str, tuple[bytes | OAuthError, float]] = {}
        self._fetches: dict[str, asyncio.Task[bytes | OAuthError]] = {}

    async def get(self, url: str, address: str) -> dict[str, Any]:
        """Return what is used of a client's document; raises OAuthError where it has none that can be."""
        found = self._find(url)
        if found is None:
            found = await self._fetch_once(url, address)
        if isinstance(found, OAuthError):
            raise OAuthError(found.error, found.why, status=found.status)
        used: dict[str, Any] = msgspec.json.decode(found)
        return used

    def _find(self, url: str) -> bytes | OAuthError | None:
        found, until = self._kept.get(url, (None, 0.0))
        if self._clock() < until:
            return found
        return None

    async def _fetch_once(self, url: str, address: str) -> bytes | OAuthError:
        """Fetch a document; whoever wants the same meanwhile waits for it."""
        fetch = self._fetches.get(url)
        if fetch is None:
            _check_url(url)
            self._rate.require(address, self._clock())
            if len(self._fetches) >= MAX_FETCHES:
                raise OAuthError("temporarily_unavailable", "Too many documents are being fetched", status=503)
            fetch = asyncio.get_running_loop().create_task(self._fetch(url), name="fetch the document of a client")
            self._fetches[url] = fetch
            fetch.add_done_callback(lambda _: self._fetches.pop(url, None))
        return await asyncio.shield(fetch)

    async def _fetch(self, url: str) -> bytes | OAuthError:
        try:
            used, seconds = await self._load(url)
        except OAuthError as error:
            # Another like it: the one that was raised leads, by its traceback, to all that was fetched.
            failure = OAuthError(error.error, error.why, status=error.status)
            self._keep(url, failure, FAILURE_KEPT)
            return failure
        self._keep(url, used, seconds)
        return used

    async def _load(self, url: str) -> tuple[bytes, float]:
        try:
            answer = await self._fetcher.get(url, redirects=0)
            if answer.status != 200:
                raise FetchFailed(f"it answered HTTP {answer.status}")
            document = answer.document()
        except (AddressRefused, FetchFailed):
            # Why is not told: it would show what else can be reached from here.
            raise OAuthError("invalid_client", "The client's document could not be fetched from its URL") from None
        if document.get("client_id") != url:
            raise OAuthError("invalid_client", "The client_id in the client's document is not its URL")
        return _used(document), _seconds_kept(answer.headers)

    def _keep(self, url: str, found: bytes | OAuthError, seconds: float) -> None:
        self._kept.pop(url, None)
        if len(self._kept) >= MAX_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[url] = (found, self._clock() + seconds)


def _used(document: Mapping[str, Any]) -> bytes:
    """Return what is used of a document; raises OAuthError where that is too much."""
    try:
        used = msgspec.json.encode({name: document[name] for name in USED if name in document})
    except RecursionError:
        used = None
    if used is None or len(used) > MAX_USED:
        raise OAuthError("invalid_client", f"The client's document says more than {MAX_USED} bytes of what is used")
    return used


def _check_url(url: str) -> None:
    """Raise OAuthError for a URL that may not be a client id (§3 of the draft)."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise OAuthError("invalid_client", "The client_id is a URL that cannot be read") from None
    segments = parts.path.lower().replace("%2e", ".").split("/")
    if parts.path in ("", "/") or parts.query or "?" in url or "#" in url or not {".", ".."}.isdisjoint(segments):
        why = "A client_id that is a URL must have a path without dots, and neither a query nor a fragment"
        raise OAuthError("invalid_client", why)


def _seconds_kept(headers: Mapping[str, str]) -> float:
    """Return for how long a document is kept: as its server says, within bounds."""
    found = MAX_AGE.search(headers.get("cache-control", "").lower())
    seconds = float(found[1]) if found else LEAST_KEPT
    return min(max(seconds, LEAST_KEPT), MOST_KEPT)
