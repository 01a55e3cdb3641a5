"""Logins that machines share: sealed, renewed once, and never replaced by what comes late."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from protected import Place, protected
from redis_server import RedisServer, needs_redis

from ferrule import Client
from ferrule.auth.client import session as session_module
from ferrule.auth.client.sealed_store import SealedStore
from ferrule.auth.client.store import TokenStore, open_store
from ferrule.auth.client.token import Token, TokenEndpoint, TokenRefused, TokenUnavailable
from ferrule.errors import SetupError
from ferrule.stores.stores import Stores

KEY = "a secret that all machines have, 32 bytes"
REFRESH = "refresh_token"
CYCLES = 30 if os.environ.get("FERRULE_LONG") else 2
"""How many seconds programs work with tokens that live for one."""

PROGRAM = """
import asyncio, sys, time
from ferrule import Client, OAuth
from ferrule.auth.client.sealed_store import SealedStore

async def main(url, redis, key, seconds):
    auth = OAuth(storage=SealedStore(redis, keys=[key]), open_browser=False)
    end = time.monotonic() + float(seconds)
    calls = 0
    async with Client(url, auth=auth, request_timeout=30, probe_timeout=30) as client:
        while time.monotonic() < end:
            await asyncio.gather(*(client.call_tool("whoami") for _ in range(3)))
            calls += 3
            await asyncio.sleep(0.1)
    print(calls)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def redis_server() -> Iterator[RedisServer]:
    needs_redis()
    with RedisServer() as server:
        yield server


@pytest.fixture
def redis(redis_server: RedisServer) -> RedisServer:
    redis_server.revive()
    redis_server.command("FLUSHALL")
    return redis_server


@pytest.fixture(params=["sqlite", "redis"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Each kind of store that processes share."""
    if request.param == "redis":
        redis: RedisServer = request.getfixturevalue("redis")
        return redis.url
    return f"sqlite:{tmp_path / 'logins.db'}"


def test_what_one_machine_writes_another_reads_edits_and_removes(address: str) -> None:
    first, second = SealedStore(address, [KEY, b"newer" * 8]), SealedStore(address, [b"newer" * 8, KEY])
    assert first.read("a") is None
    first.write("a", {"x": [1, 2]})
    assert second.read("a") == {"x": [1, 2]}
    assert second.read("b") is None
    second.change("a", lambda document: document.update(y=2))
    second.change("new", lambda document: document.update(z=3))
    assert first.read("a") == {"x": [1, 2], "y": 2}
    second.remove("a")
    assert first.read("a") is None


def test_a_document_takes_the_place_of_the_one_it_was_made_of_only(address: str) -> None:
    first, second = SealedStore(address, [KEY]), SealedStore(address, [KEY])
    first.write("a", {"n": 1})
    old = first.read("a")
    assert old is not None
    assert second.replace("a", old, {"n": 2})
    assert not first.replace("a", old, {"n": 3})
    assert first.read("a") == {"n": 2}
    assert not first.replace("none", {}, {"n": 3})


async def test_a_name_is_held_by_one_at_a_time_over_machines(address: str) -> None:
    stores = [SealedStore(address, [KEY]) for _ in range(3)]
    inside = 0

    async def work(store: SealedStore) -> None:
        nonlocal inside
        async with store.lock("a"):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.05)
            inside -= 1

    await asyncio.gather(*(work(store) for store in stores))
    async with stores[0].lock("a"), stores[1].lock("b"):
        pass


async def test_who_waits_and_leaves_holds_nothing(address: str) -> None:
    first, second = SealedStore(address, [KEY]), SealedStore(address, [KEY])

    async def wait() -> None:
        async with second.lock("a"):
            raise AssertionError

    async with first.lock("a"):
        waiting = asyncio.create_task(wait())
        await asyncio.sleep(0.2)
        waiting.cancel()
        await asyncio.wait([waiting])
    async with asyncio.timeout(5), first.lock("a"):
        pass


def test_who_can_read_the_store_reads_no_login(redis: RedisServer) -> None:
    SealedStore(redis.url, [KEY]).write("token of https://notes.example", {"refresh": "s3cret-value"})
    (name,) = redis.command("KEYS", "*login:*")
    kept = repr((name, redis.command("GET", name)))
    assert len(kept) > 100
    assert "s3cret" not in kept
    assert "notes" not in kept
    with pytest.raises(SetupError, match="another key"):
        SealedStore(redis.url, ["x" * 32]).read("token of https://notes.example")
    # A document is good for its own name only.
    other = SealedStore(redis.url, [KEY])
    other.write("other", {})
    (second,) = set(redis.command("KEYS", "*login:*")) - {name}
    redis.command("DEL", second)
    redis.command("RESTORE", second, 0, redis.command("DUMP", name))
    with pytest.raises(SetupError):
        other.read("other")


def test_a_store_that_is_away_says_so(redis: RedisServer) -> None:
    store = SealedStore(redis.url, [KEY])
    store.write("a", {"n": 1})
    redis.kill()
    with pytest.raises(TokenUnavailable, match="cannot be used now"):
        store.read("a")


async def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="SealedStore"):
        open_store("redis://127.0.0.1/0")
    with pytest.raises(SetupError, match="too short"):
        SealedStore("memory:", ["short"])
    async with Stores.sqlite(tmp_path / "a.db") as used:
        with pytest.raises(SetupError, match="in use"):
            SealedStore(used, [KEY])


# -- logins


async def logged_in(place: Place, store: TokenStore) -> None:
    async with Client(place.url, auth=place.oauth(storage=store)) as client:
        await client.call_tool("whoami")


@pytest.mark.timeout(CYCLES + 120)
async def test_two_machines_lose_no_login_while_tokens_of_a_second_expire(redis: RedisServer, tmp_path: Path) -> None:
    """AUT-14: `FERRULE_LONG=1` takes 30 s. No file is shared, and a refresh token that is used twice ends the login."""
    async with protected(access_lifetime=1.0, refresh_grace=0.0, verifier={"leeway": 5.0}) as place:
        await logged_in(place, SealedStore(redis.url, [KEY]))
        programs = []
        for machine in ("one", "two"):
            home = tmp_path / machine
            home.mkdir()
            programs.append(
                await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", PROGRAM, place.url, redis.url, KEY, str(CYCLES)),
                    stdout=asyncio.subprocess.PIPE,
                    stderr=asyncio.subprocess.PIPE,
                    cwd=home,
                    env={**os.environ, "HOME": str(home), "XDG_CONFIG_HOME": str(home)},
                )
            )
        ended = await asyncio.gather(*(program.communicate() for program in programs))
        assert [program.returncode for program in programs] == [0, 0], ended
        renewals = [seen.status for seen in place.issuer.seen if seen.grant == REFRESH]
        print(f"{len(renewals)} renewals in {CYCLES} s, calls: {[int(out) for out, _ in ended]}")
        assert set(renewals) == {200}
        assert CYCLES // 2 <= len(renewals) <= CYCLES + CYCLES // 2 + 3
        assert len(place.person.pages) == 1


async def renewing(place: Place, store: TokenStore, ask: Any) -> Any:
    """Let a login be renewed with an answer of ours; return the session."""
    session = place.oauth(storage=store).session(place.url)
    session._adopt(await session.stored())
    session._loaded = True
    login = session.login
    assert login is not None
    session.login = structs.replace(login, token=structs.replace(login.token, renew=0.0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenEndpoint, "ask", ask)
        await session._renewed(session.login)
    return session


def put_newer(store: TokenStore, name: str) -> None:
    def edit(document: dict[str, Any]) -> None:
        document["token"] = {**document["token"], "refresh": "newer", "access": "newer"}

    store.change(name, edit)


@pytest.mark.parametrize("refused", [False, True])
async def test_an_answer_that_comes_late_replaces_no_newer_token(address: str, refused: bool) -> None:
    """The lease of a process that stood still is over; another has renewed the token meanwhile."""
    store, other = SealedStore(address, [KEY]), SealedStore(address, [KEY])
    async with protected() as place:
        await logged_in(place, store)

        async def late(self: TokenEndpoint, fields: Any, wanted: Any = ()) -> Token:
            session = place.oauth(storage=other).session(place.url)
            stored = await session.stored()
            assert stored is not None
            await asyncio.to_thread(put_newer, other, session._name(stored))
            if refused:
                raise TokenRefused("no", "invalid_grant")
            return Token("late", refresh="late")

        session = await renewing(place, store, late)
        assert session.login.token.refresh == "newer"
        stored = await session.stored()
        assert (stored.token.refresh, stored.needs_login) == ("newer", False)


async def test_a_renewed_login_that_cannot_be_kept_is_used_and_kept_later(redis: RedisServer) -> None:
    store = SealedStore(redis.url, [KEY])
    async with protected() as place:
        await logged_in(place, store)

        async def cut_off(self: TokenEndpoint, fields: Any, wanted: Any = ()) -> Token:
            redis.pause()
            return Token("access", refresh="only this one is good")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(session_module, "PAUSES", (0.01,))
            session = await renewing(place, store, cut_off)
        assert session.login.token.refresh == "only this one is good"
        redis.resume()
        for lease in redis.command("KEYS", "*:renewing"):
            redis.command("DEL", lease)  # which would end by itself
        async with asyncio.timeout(10):
            while store._stores.backend.state != "ready":
                await asyncio.sleep(0.05)

        async def renewed(self: TokenEndpoint, fields: Any, wanted: Any = ()) -> Token:
            assert fields["refresh_token"] == "only this one is good"
            return Token("access 2", refresh="next")

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(TokenEndpoint, "ask", renewed)
            await session._renewed(session.login)
        stored = await session.stored()
        assert stored.token.refresh == "next"
