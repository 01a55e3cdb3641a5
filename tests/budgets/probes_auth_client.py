"""Probes of a client that logs in: what servers, authorization servers and other programs may send it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

from lasting import lasts_longer
from table import no_bound, period, probe

from ferrule.auth.address import AddressRules
from ferrule.auth.client import oauth, session, store
from ferrule.auth.client.code_request import CodeRequest
from ferrule.auth.client.device_flow import read_begun
from ferrule.auth.client.discovery import Discovery
from ferrule.auth.client.grants import assertion_reader
from ferrule.auth.client.login_pause import LoginPause
from ferrule.auth.client.loopback import CallbackListener
from ferrule.auth.client.metadata import ServerMetadata, read_metadata
from ferrule.auth.client.registration import register
from ferrule.auth.client.session import OAuthSession, SessionOptions
from ferrule.auth.client.store import FileStore, MemoryStore
from ferrule.auth.client.token import ProofKey, read_token
from ferrule.auth.fetch import Fetched, Fetcher
from ferrule.auth.jose import make_key
from ferrule.errors import AuthorizationFailed, SetupError
from ferrule.transports.sockets.tls import TlsSettings

URL = "https://here.example/mcp"
ISSUER = "https://issuer.example"


# -- the listener a browser is sent back to


@asynccontextmanager
async def listening() -> AsyncIterator[CallbackListener]:
    """Wait for the answer of a login."""
    async with CallbackListener(host="127.0.0.1", ports=[0], path="/callback") as listener:
        waiting = asyncio.ensure_future(listener.wait(lambda query: query.startswith("state=right")))
        yield listener
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)


async def ask(listener: CallbackListener, head: bytes) -> bytes:
    """Send a request. Return all that comes back."""
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        writer.write(head)
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


@probe("ferrule.auth.client.loopback.LONGEST_HEAD")
async def the_head_of_an_answer(limit: int, size: int) -> bool:
    begin = b"GET /callback?state=right HTTP/1.1\r\nx: "
    async with listening() as listener:
        return b"200 OK" in await ask(listener, begin.ljust(size, b"x") + b"\r\n\r\n")


@probe("ferrule.auth.client.loopback.MOST_AT_ONCE")
async def programs_that_connect_at_once(limit: int, size: int) -> bool:
    """The last of them is served, or cut; what more than that would do, twice the limit does."""
    size = min(size, 2 * limit)
    async with listening() as listener:
        silent = [await asyncio.open_connection("127.0.0.1", listener.port) for _ in range(size - 1)]
        answer = await ask(listener, b"GET /callback?state=right HTTP/1.1\r\n\r\n")
        for _, writer in silent:
            writer.close()
    return b"200 OK" in answer


@probe("ferrule.auth.client.loopback.MOST_REQUESTS", lowered=5)
async def requests_before_the_answer(limit: int, size: int) -> bool:
    size = min(size, 2 * limit)
    async with listening() as listener:
        with mock.patch("ferrule.auth.client.loopback.MOST_REQUESTS", limit):
            for _ in range(size - 1):
                await ask(listener, b"GET /elsewhere HTTP/1.1\r\n\r\n")
            return b"200 OK" in await ask(listener, b"GET /callback?state=right HTTP/1.1\r\n\r\n")


@period("ferrule.auth.client.loopback.READ_TIMEOUT")
async def a_program_that_says_nothing(lasts: float, seconds: float) -> bool:
    async with listening() as listener:
        return await lasts_longer(ask(listener, b"GET /callback"), seconds)


@period("ferrule.auth.client.loopback.FAREWELL")
async def a_program_that_stays(lasts: float, seconds: float) -> bool:
    """Nobody who is still connected keeps a login from ending for longer."""
    listener = CallbackListener(host="127.0.0.1", ports=[0], path="/callback")
    await listener.__aenter__()
    _, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    while not listener._running:
        await asyncio.sleep(0)
    still = await lasts_longer(listener.__aexit__(None, None, None), seconds)
    writer.close()
    return still


# -- the answer a browser brings

REQUEST = CodeRequest(f"{ISSUER}/authorize", ISSUER, "right", "verifier", "http://127.0.0.1/callback", False)


@probe("ferrule.auth.client.code_request.LONGEST_ANSWER")
async def the_answer_of_a_login(limit: int, size: int) -> bool:
    return REQUEST.is_answered_by("state=right&code=".ljust(size, "c"))


@probe("ferrule.auth.client.code_request.MOST_PARAMETERS")
async def parameters_of_an_answer(limit: int, size: int) -> bool:
    return REQUEST.is_answered_by("state=right" + "&a=b" * (size - 1))


# -- a login on another device


def begun(**changes: Any) -> Any:
    """Return what is made of the beginning of a login on another device; None where it is refused."""
    said = {"device_code": "d", "user_code": "u", "verification_uri": ISSUER, "expires_in": 60, **changes}
    with mock.patch("ferrule.auth.client.device_flow.time.time", return_value=0.0):
        try:
            return read_begun(said, ISSUER, 10.0**9)
        except AuthorizationFailed:
            return None


@probe("ferrule.auth.client.device_flow.LONGEST_CODE")
async def a_code_to_be_shown(limit: int, size: int) -> bool:
    return begun(user_code="u" * size) is not None


@probe("ferrule.auth.client.device_flow.LONGEST_SECRET")
async def the_secret_of_a_device(limit: int, size: int) -> bool:
    taken = {
        begun(device_code="d" * size) is not None,
        begun(verification_uri="d" * size) is not None,
        begun(verification_uri_complete="d" * size).shown.whole_url != "",
    }
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.auth.client.device_flow.LONGEST_LIFE", clamps=True)
async def the_life_of_a_code(limit: int, size: int) -> bool:
    return bool(begun(expires_in=size).shown.expires == size)


@probe("ferrule.auth.client.device_flow.LONGEST_INTERVAL", clamps=True)
async def the_pause_between_two_questions(limit: int, size: int) -> bool:
    return bool(begun(interval=size).interval == size)


no_bound(
    "ferrule.auth.client.device_flow.SHORTEST_INTERVAL",
    "the least pause: an authorization server cannot make us ask more often",
)


# -- tokens, and what is published


def token(**changes: Any) -> Any:
    """Return the token of an answer; None where it is refused."""
    said = {"access_token": "a", "token_type": "Bearer", **changes}
    with mock.patch("ferrule.auth.client.token.time.time", return_value=0.0):
        try:
            return read_token(said, (), ISSUER, bound=False)
        except AuthorizationFailed:
            return None


@probe("ferrule.auth.client.token.LONGEST_TOKEN")
async def a_token(limit: int, size: int) -> bool:
    taken = {
        token(access_token="a" * size) is not None,
        token(refresh_token="r" * size).refresh != "",
        ProofKey(make_key()).learn(URL, {"dpop-nonce": "n" * size}),
    }
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.auth.client.token.LONGEST_LIFE", clamps=True)
async def the_life_of_a_token(limit: int, size: int) -> bool:
    return bool(token(expires_in=size).expires == size)


@probe("ferrule.auth.client.metadata.MOST")
async def words_of_a_list(limit: int, size: int) -> bool:
    try:
        read_metadata(ServerMetadata, {"issuer": ISSUER, "scopes_supported": ["s"] * size}, ISSUER)
    except AuthorizationFailed:
        return False
    return True


class Published(Fetcher):
    """Finds the documents that are given to it."""

    def __init__(self, document: bytes) -> None:
        super().__init__(AddressRules())
        self.document = document

    async def get(self, url: str, headers: Mapping[str, str] | None = None, *, redirects: int = 0) -> Fetched:
        return Fetched(url, 200, {}, self.document)


@probe("ferrule.auth.client.discovery.MAX_SERVERS")
async def authorization_servers(limit: int, size: int) -> bool:
    named = ",".join([f'"{ISSUER}"'] * size)
    document = f'{{"resource": "{URL}", "authorization_servers": [{named}]}}'.encode()
    try:
        found = await Discovery(Published(document), URL).resource(None)
    except AuthorizationFailed:
        return False
    return found is not None


class Registering(Fetcher):
    """Registers whoever asks under one id and secret."""

    def __init__(self, client_id: str, secret: str) -> None:
        super().__init__(AddressRules())
        self.answer = b'{"client_id": "%b", "client_secret": "%b"}' % (client_id.encode(), secret.encode())

    async def post_json(
        self, url: str, document: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Fetched:
        return Fetched(url, 201, {}, self.answer)


async def registered(client_id: str, secret: str) -> str:
    """Return the secret that is kept of a registration."""
    server = ServerMetadata(ISSUER, registration_endpoint=f"{ISSUER}/register")
    return (await register(Registering(client_id, secret), server, "us", "http://127.0.0.1/", ())).secret


@probe("ferrule.auth.client.registration.LONGEST")
async def who_we_are_registered_as(limit: int, size: int) -> bool:
    try:
        await registered("c" * size, "s")
    except AuthorizationFailed:
        assert await registered("c", "s" * size) == ""
        return False
    return await registered("c", "s" * size) != ""


@probe("ferrule.auth.client.grants.LONGEST_ASSERTION")
async def an_assertion(limit: int, size: int) -> bool:
    try:
        return len(await assertion_reader("a" * size)()) == size
    except AuthorizationFailed:
        return False


# -- how often, and how many


def a_session(now: float = 0.0) -> OAuthSession:
    return OAuthSession(URL, mock.Mock(), MemoryStore(), SessionOptions(), mock.Mock, lambda: now)


def authorizes(of: OAuthSession, operation: str) -> bool:
    """Return whether an operation may lead to one more authorization."""
    try:
        of._count(operation, None)
    except AuthorizationFailed:
        return False
    return True


@probe("ferrule.auth.client.session.MAX_AUTHORIZATIONS")
async def authorizations_of_an_operation(limit: int, size: int) -> bool:
    refused = a_session()
    return all(authorizes(refused, "tools/call") for _ in range(size))


@period("ferrule.auth.client.session.WINDOW")
async def authorizations_that_are_remembered(lasts: float, seconds: float) -> bool:
    refused = a_session()
    while authorizes(refused, "tools/call"):
        pass
    refused._clock = lambda: seconds
    return not authorizes(refused, "tools/call")


@probe("ferrule.auth.client.session.MOST_OPERATIONS", lowered=10, clamps=True)
async def operations_that_are_remembered(limit: int, size: int) -> bool:
    refused = a_session()
    with mock.patch.object(session, "MOST_OPERATIONS", limit):
        for number in range(size):
            assert authorizes(refused, str(number))
    return len(refused._attempts) == size


@period("ferrule.auth.client.session.METADATA_LIFE")
async def metadata_that_is_kept(lasts: float, seconds: float) -> bool:
    kept = ServerMetadata(ISSUER)
    asked = a_session(seconds)
    asked._servers = {ISSUER: (0.0, kept)}
    newer = mock.Mock(issuer=ISSUER)
    asked._new_discovery = lambda: mock.Mock(find=mock.AsyncMock(return_value=newer))
    return await asked._server(ISSUER) is kept


@period("ferrule.auth.client.login_pause.PAUSE")
async def a_login_that_failed(lasts: float, seconds: float) -> bool:
    """A person is not asked again before the pause is over."""
    now = [0.0]
    pause = LoginPause(lambda: now[0])
    logins = mock.AsyncMock(side_effect=AuthorizationFailed("no"))
    for at in (0.0, seconds):
        now[0] = at
        await asyncio.gather(pause.attempt(logins), return_exceptions=True)
    return logins.await_count == 1


@probe("ferrule.auth.client.oauth.MOST_SERVERS", lowered=10)
async def servers_of_one_login(limit: int, size: int) -> bool:
    logged_in = oauth.ClientCredentials("us", client_secret="secret")
    with mock.patch.object(oauth, "MOST_SERVERS", limit):
        try:
            for number in range(size):
                logged_in.credentials(f"https://h{number}.example/mcp", TlsSettings())
        except SetupError:
            return False
    return True


@probe("ferrule.auth.client.store.LARGEST_FILE", lowered=1000)
async def a_file_of_logins(limit: int, size: int) -> bool:
    with TemporaryDirectory() as folder, mock.patch.object(store, "LARGEST_FILE", limit):
        path = Path(folder, "tokens.json")
        path.write_bytes(b'{"a": {}}'.ljust(size))
        path.chmod(0o600)
        try:
            return FileStore(path).read("a") == {}
        except SetupError:
            return False
