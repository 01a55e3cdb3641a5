"""What is done when a server refuses: log in, step up, follow to another authorization server, give up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from protected import Documents, discovery

from ferrule import AuthorizationFailed
from ferrule.auth.client.metadata import ServerMetadata
from ferrule.auth.client.session import Granted, OAuthSession, SessionOptions, Wanted
from ferrule.auth.client.store import MemoryStore
from ferrule.auth.client.token import ClientIdentity, ProofKey, Token, TokenEndpoint
from ferrule.transports.contract import Refused

URL = "https://a.example/mcp"
FIRST, SECOND = "https://one.example", "https://two.example"


def documents(issuer: str = FIRST, **server: Any) -> dict[str, Any]:
    """Return the metadata of a server whose tokens an issuer issues."""
    return {
        "https://a.example/.well-known/oauth-protected-resource/mcp": {
            "resource": URL,
            "authorization_servers": [issuer],
            "scopes_supported": ["read", "write"],
        },
        f"{issuer}/.well-known/oauth-authorization-server": {
            "issuer": issuer,
            "authorization_endpoint": f"{issuer}/authorize",
            "token_endpoint": f"{issuer}/token",
            "code_challenge_methods_supported": ["S256"],
            **server,
        },
    }


class Desk:
    """Stands for a grant: gives a token each time, and notes what was wanted."""

    renews = True

    def __init__(self, *, preregistered: bool = False) -> None:
        self.preregistered = preregistered
        self.shows_secret = False
        self.wanted: list[Wanted] = []

    async def obtain(self, wanted: Wanted) -> Granted:
        self.wanted.append(wanted)
        await asyncio.sleep(0)
        return Granted(Token(f"token-{len(self.wanted)}"), ClientIdentity(f"client-of-{wanted.found.issuer}"))

    def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> TokenEndpoint:
        raise AssertionError("nothing is renewed here")


class Bench:
    """A session and what it stands on."""

    def __init__(self, desk: Desk | None = None, found: dict[str, Any] | None = None, **options: Any) -> None:
        self.desk = desk or Desk()
        self.documents = Documents(found or documents())
        self.now = 1000.0
        self.session = OAuthSession(
            URL,
            self.desk,
            MemoryStore(),
            SessionOptions(**options),
            lambda: discovery(self.documents, issuer=options.get("issuer")),
            lambda: self.now,
        )

    async def refuse(
        self, challenge: str = "", status: int = 401, operation: str = "tools/list", token: int = -1
    ) -> bool:
        """Refuse the token the session has now."""
        await self.session.prepare()
        shown = self.session.authorize("POST", URL)
        assert shown is not None
        headers = {"www-authenticate": challenge} if challenge else {}
        return await self.session.refused(Refused(status, headers, operation, shown.token if token < 0 else token))

    @property
    def lines(self) -> bytes:
        """What a request says now."""
        shown = self.session.authorize("POST", URL)
        assert shown is not None
        return shown.lines

    @property
    def token(self) -> int:
        """The number of the token it has now."""
        shown = self.session.authorize("POST", URL)
        assert shown is not None
        return shown.token

    @property
    def scopes(self) -> list[tuple[str, ...]]:
        """What was asked for, each time."""
        return [wanted.scopes for wanted in self.desk.wanted]


async def test_nothing_is_shown_before_anybody_asks() -> None:
    bench = Bench()
    assert bench.session.authorize("POST", URL) is None
    await bench.session.prepare()
    assert bench.lines == b""
    assert bench.documents.asked == []


async def test_a_refusal_leads_to_a_login_and_the_next_request_shows_its_token() -> None:
    """ACLI-1, ACLI-2"""
    bench = Bench()
    assert await bench.refuse("Bearer")
    assert bench.lines == b"authorization: Bearer token-1\r\n"
    assert bench.desk.wanted[0].resource == URL


async def test_who_was_refused_with_an_older_token_just_sends_again() -> None:
    bench = Bench()
    await bench.refuse("Bearer")
    assert await bench.refuse("Bearer", token=0)
    assert len(bench.desk.wanted) == 1


@pytest.mark.parametrize(
    ("challenge", "options", "wanted"),
    [
        ('Bearer scope="a b"', {}, ("a", "b")),
        ("Bearer", {}, ("read", "write")),
        ('Bearer scope="a"', {"scopes": ("mine",)}, ("mine", "a")),
        ("Bearer", {"scopes": ("mine",)}, ("mine",)),
        ('Basic realm="x", Bearer scope="a"', {}, ("a",)),
        ('Bearer scope="a offline_access"', {}, ("a",)),
        ("", {}, ("read", "write")),
    ],
)
async def test_scopes_come_from_the_challenge_else_from_the_resource(
    challenge: str, options: dict[str, Any], wanted: tuple[str, ...]
) -> None:
    """ACLI-8, ACLI-17"""
    bench = Bench(**options)
    await bench.refuse(challenge)
    assert bench.scopes == [wanted]


async def test_a_refresh_token_is_asked_for_where_the_authorization_server_has_them() -> None:
    """ACLI-17"""
    bench = Bench(found=documents(scopes_supported=["read", "offline_access"]))
    await bench.refuse("Bearer")
    assert bench.scopes == [("read", "write", "offline_access")]


async def test_stepping_up_asks_for_the_union() -> None:
    """ACLI-9"""
    bench = Bench()
    await bench.refuse('Bearer scope="a"')
    assert await bench.refuse('Bearer error="insufficient_scope", scope="b"', 403, "tools/call 'x'")
    assert bench.scopes == [("a",), ("a", "b")]


async def test_another_403_is_the_servers_last_word() -> None:
    bench = Bench()
    await bench.refuse("Bearer")
    assert not await bench.refuse("", 403)
    assert not await bench.refuse('Bearer error="invalid_token"', 403)
    assert len(bench.desk.wanted) == 1


async def test_one_operation_leads_to_three_authorizations_and_no_more() -> None:
    """ACLI-9: then it fails with the scopes; another operation is another matter, and so is another time."""
    bench = Bench()
    for _ in range(3):
        assert await bench.refuse('Bearer error="insufficient_scope", scope="admin"', 403)
    with pytest.raises(AuthorizationFailed, match="after 3 authorizations; it asks for the scopes admin"):
        await bench.refuse('Bearer error="insufficient_scope", scope="admin"', 403)
    assert len(bench.desk.wanted) == 3
    assert await bench.refuse('Bearer error="insufficient_scope", scope="admin"', 403, "tools/call 'y'")
    bench.now += 3600
    assert await bench.refuse('Bearer error="insufficient_scope", scope="admin"', 403)


async def test_operations_are_counted_within_bounds() -> None:
    bench = Bench()
    for number in range(1100):
        await bench.refuse("Bearer", operation=f"tools/call 'tool-{number}'")
    assert len(bench.session._attempts) <= 1001


async def test_many_refusals_at_once_are_one_login() -> None:
    bench = Bench()
    await bench.session.prepare()
    refusal = Refused(401, {"www-authenticate": "Bearer"}, "tools/list", bench.token)
    assert await asyncio.gather(*(bench.session.refused(refusal) for _ in range(50))) == [True] * 50
    assert len(bench.desk.wanted) == 1


async def test_a_login_that_fails_fails_for_all_who_wait() -> None:
    bench = Bench(found={"https://a.example/.well-known/oauth-protected-resource/mcp": 500})
    await bench.session.prepare()
    refusal = Refused(401, {}, "tools/list", bench.token)
    failed = await asyncio.gather(*(bench.session.refused(refusal) for _ in range(5)), return_exceptions=True)
    assert [type(each) for each in failed] == [AuthorizationFailed] * 5
    assert len(bench.documents.asked) == 1


async def test_nobody_who_gives_up_ends_the_login_of_the_others() -> None:
    bench = Bench()
    await bench.session.prepare()
    refusal = Refused(401, {}, "tools/list", bench.token)
    first = asyncio.create_task(bench.session.refused(refusal))
    second = asyncio.create_task(bench.session.refused(refusal))
    await asyncio.sleep(0)
    first.cancel()
    assert await second
    assert first.cancelled() or await asyncio.gather(first, return_exceptions=True)


class SlowEndpoint:
    """Stands for a token endpoint: takes a refresh token once, and its time."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.answers = asyncio.Event()
        self.shown: list[str] = []

    async def ask(self, fields: dict[str, str], scopes: tuple[str, ...]) -> Token:
        self.shown.append(fields["refresh_token"])
        self.asked.set()
        await self.answers.wait()
        return Token("renewed", refresh="second", expires=9999.0)


async def test_a_renewal_is_kept_though_nobody_waits_for_it_any_more() -> None:
    """AUT-14: its refresh token was shown, and is worth nothing any more."""
    endpoint = SlowEndpoint()

    class RenewingDesk(Desk):
        async def obtain(self, wanted: Wanted) -> Granted:
            return Granted(Token("old", refresh="first", expires=1300.0, renew=1100.0), ClientIdentity("client"))

        def endpoint(self, server: ServerMetadata, client: ClientIdentity, proof_key: ProofKey | None) -> Any:
            return endpoint

    bench = Bench(RenewingDesk())
    await bench.refuse("Bearer")
    bench.now = 1200.0
    waiting = asyncio.create_task(bench.session.prepare())
    await asyncio.wait_for(endpoint.asked.wait(), 10)
    waiting.cancel()
    await asyncio.wait([waiting])
    another = asyncio.create_task(bench.session.prepare())
    await asyncio.sleep(0.01)
    endpoint.answers.set()
    await asyncio.wait_for(another, 10)
    assert bench.lines == b"authorization: Bearer renewed\r\n"
    assert endpoint.shown == ["first"]


# -- another authorization server


async def test_another_authorization_server_gets_nothing_of_the_first() -> None:
    """ACLI-16: neither scopes, nor client, nor token."""
    bench = Bench()
    await bench.refuse('Bearer scope="secret-scope"')
    bench.documents.documents = documents(SECOND)
    assert await bench.refuse("Bearer")
    assert [wanted.found.issuer for wanted in bench.desk.wanted] == [FIRST, SECOND]
    assert bench.scopes[1] == ("read", "write")
    assert bench.session.login is not None
    assert bench.session.login.client.id == f"client-of-{SECOND}"


async def test_the_token_of_the_first_is_not_shown_any_more_even_if_the_login_fails() -> None:
    """ACLI-16"""

    class Once(Desk):
        async def obtain(self, wanted: Wanted) -> Granted:
            if self.wanted:
                raise AuthorizationFailed("nobody logged in")
            return await super().obtain(wanted)

    bench = Bench(Once())
    await bench.refuse("Bearer")
    bench.documents.documents = documents(SECOND)
    with pytest.raises(AuthorizationFailed, match="nobody"):
        await bench.refuse("Bearer")
    assert bench.lines == b""


async def test_a_client_that_was_told_who_it_is_asks_before_it_follows() -> None:
    """ACLI-16"""
    bench = Bench(Desk(preregistered=True))
    await bench.refuse("Bearer")
    bench.documents.documents = documents(SECOND)
    with pytest.raises(AuthorizationFailed, match=f"issuer='{SECOND}'"):
        await bench.refuse("Bearer")
    assert len(bench.desk.wanted) == 1


async def test_a_login_at_one_issuer_is_not_used_by_who_names_another() -> None:
    """ACLI-12, ACLI-16"""
    store = MemoryStore()
    bench = Bench()
    bench.session._store = store
    await bench.refuse("Bearer")
    for issuer, shown in ((FIRST, b"authorization: Bearer token-1\r\n"), (SECOND, b"")):
        other = Bench(issuer=issuer)
        other.session._store = store
        await other.session.prepare()
        assert other.lines == shown


@pytest.mark.parametrize("user", ["", "bob"])
async def test_logins_of_several_people_are_kept_apart(user: str) -> None:
    store = MemoryStore()
    bench = Bench(user="ada")
    bench.session._store = store
    await bench.refuse("Bearer")
    other = Bench(user=user)
    other.session._store = store
    await other.session.prepare()
    assert other.lines == b""


async def test_a_stored_login_that_cannot_be_read_is_as_if_there_were_none() -> None:
    bench = Bench()
    bench.session._store.write("servers", {URL: {"token": "token x", "issuer": FIRST}})
    bench.session._store.write("token x", {"nonsense": True})
    await bench.session.prepare()
    assert bench.lines == b""


async def test_a_login_that_another_program_stored_meanwhile_is_used() -> None:
    """Somebody ran `ferrule login` while this program was told that it takes a login."""
    bench = Bench()
    other = Bench()
    other.session._store = bench.session._store
    await bench.session.prepare()
    await other.refuse("Bearer")
    assert await bench.refuse("Bearer")
    assert bench.desk.wanted == []
    assert bench.lines == b"authorization: Bearer token-1\r\n"
    # The same token, refused, is not taken a second time.
    assert await bench.refuse("Bearer")
    assert len(bench.desk.wanted) == 1


async def test_an_authorization_server_that_gives_the_same_token_again_is_no_loop() -> None:
    class Same(Desk):
        async def obtain(self, wanted: Wanted) -> Granted:
            self.wanted.append(wanted)
            return Granted(Token("same"), ClientIdentity("app"))

    bench = Bench(Same())
    for _ in range(3):
        assert await bench.refuse("Bearer")
    with pytest.raises(AuthorizationFailed, match="after 3 authorizations"):
        await bench.refuse("Bearer")


async def test_what_is_forgotten_is_gone() -> None:
    bench = Bench()
    await bench.refuse("Bearer")
    assert await bench.session.forget()
    assert not await bench.session.forget()
    assert await bench.session.stored() is None
    assert bench.lines == b""
