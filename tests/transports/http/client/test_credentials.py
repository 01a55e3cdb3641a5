"""Requests ask the client's credentials: before they are sent, and when the server refuses them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ferrule import AuthorizationFailed, CallFailed, Client, Context, Http, HttpFailed, Server
from ferrule.errors import Unauthorized
from ferrule.identity.principal import Principal
from ferrule.identity.verifier import RequestFacts, Verdict, Verifier
from ferrule.transports.contract import Authorization, Refused

MODES = ("handshake", "stateless")


class Keys:
    """Credentials that do as a test tells them."""

    def __init__(self) -> None:
        self.token = "good"
        self.ready = True
        self.gate = asyncio.Event()
        self.asked: list[str] = []
        self.refusals: list[Refused] = []
        self.on_refusal: Callable[[Refused], Awaitable[bool]] | None = None

    def credentials(self, url: str, tls: object) -> Keys:
        return self

    def authorize(self, method: str, url: str) -> Authorization | None:
        self.asked.append(method)
        if not self.ready:
            return None
        return Authorization(f"authorization: Bearer {self.token}\r\n".encode(), 0)

    async def prepare(self) -> None:
        await self.gate.wait()
        self.ready = True

    async def refused(self, refusal: Refused) -> bool:
        self.refusals.append(refusal)
        if self.on_refusal is None:
            return False
        return await self.on_refusal(refusal)


class Door(Verifier):
    """Lets in whoever says the word, and notes what came."""

    def __init__(self) -> None:
        self.word = "good"
        self.seen: list[tuple[str, str]] = []

    def verify(self, facts: RequestFacts) -> Verdict:
        said = facts.headers.get("authorization", "")
        self.seen.append((facts.method, said))
        if said == f"Bearer {self.word}":
            return Principal(issuer="test", subject="ada")
        return Unauthorized()


class Bench:
    """A server behind a door."""

    def __init__(self) -> None:
        self.door = Door()
        self.keys = Keys()
        self.runs = 0
        self.app = Server("doors", auth=self.door)
        self.listener = Http(port=0, sse=True)

        @self.app.tool
        async def count(ctx: Context) -> int:
            self.runs += 1
            return self.runs

        @self.app.tool
        async def wait(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "done"

    async def __aenter__(self) -> Bench:
        ready = asyncio.Event()
        self._serving = asyncio.create_task(self.app.serve(self.listener, ready=ready.set))
        await ready.wait()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.app.stop(0.0)
        await self._serving

    def client(self, **options: Any) -> Client:
        """Return a client with the keys."""
        return Client(self.listener.url, auth=self.keys, **options)


@pytest.mark.parametrize("mode", MODES)
async def test_a_request_waits_for_its_credentials_and_only_then_its_time_begins(mode: Any) -> None:
    async with Bench() as bench, bench.client(mode=mode, tool_timeout=0.4) as client:
        bench.keys.ready = False
        call = asyncio.create_task(client.call_tool("count"))
        await asyncio.sleep(0.8)
        assert not call.done()
        bench.keys.gate.set()
        assert (await call).data == 1


async def test_a_request_that_was_sent_after_a_wait_still_times_out() -> None:
    async with Bench() as bench, bench.client(tool_timeout=0.3) as client:
        bench.keys.ready = False
        call = asyncio.create_task(client.call_tool("wait", {"seconds": 30}))
        await asyncio.sleep(0.4)
        bench.keys.gate.set()
        began = time.monotonic()
        with pytest.raises(Exception, match="got no answer within"):
            await call
        assert time.monotonic() - began < 10


@pytest.mark.parametrize("mode", MODES)
async def test_a_request_that_was_withdrawn_while_it_waited_is_never_sent(mode: Any) -> None:
    async with Bench() as bench, bench.client(mode=mode) as client:
        bench.keys.ready = False
        call = asyncio.create_task(client.call_tool("count"))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        bench.keys.gate.set()
        await asyncio.sleep(0.1)
        assert bench.runs == 0
        assert (await client.call_tool("count")).data == 1


@pytest.mark.parametrize("mode", MODES)
async def test_what_was_refused_was_not_run_and_is_sent_again(mode: Any) -> None:
    async with Bench() as bench, bench.client(mode=mode) as client:
        await asyncio.sleep(0.1)
        bench.door.word = "better"

        async def find(refusal: Refused) -> bool:
            bench.keys.token = "better"
            return True

        bench.keys.on_refusal = find
        assert (await client.call_tool("count")).data == 1
        [refusal] = [each for each in bench.keys.refusals if each.operation == "tools/call 'count'"]
        assert refusal.status == 401
        assert refusal.headers["www-authenticate"] == "Bearer"
        assert bench.runs == 1


async def test_a_server_that_refuses_for_ever_is_asked_a_few_times_only() -> None:
    async with Bench() as bench, bench.client(mode="stateless") as client:
        bench.door.word = "never"

        async def hope(refusal: Refused) -> bool:
            return True

        bench.keys.on_refusal = hope
        with pytest.raises(HttpFailed, match="HTTP 401"):
            await client.call_tool("count")
        assert len(bench.keys.refusals) == 6
        assert bench.runs == 0


async def test_credentials_that_fail_fail_the_request_and_not_the_link() -> None:
    async with Bench() as bench, bench.client() as client:
        bench.door.word = "other"

        async def fail(refusal: Refused) -> bool:
            raise ZeroDivisionError

        bench.keys.on_refusal = fail
        with pytest.raises(AuthorizationFailed, match="failed with ZeroDivisionError"):
            await client.call_tool("count")
        bench.door.word = "good"
        assert (await client.call_tool("count")).data == 1


async def test_the_stream_of_notifications_is_asked_for_again_when_it_is_refused() -> None:
    async with Bench() as bench:
        client = bench.client(mode="handshake")
        original = bench.door.verify

        def verify(facts: RequestFacts) -> Verdict:
            if facts.method == "GET" and len([1 for method, _ in bench.door.seen if method == "GET"]) == 0:
                bench.door.seen.append(("GET", ""))
                return Unauthorized()
            return original(facts)

        bench.door.verify = verify  # type: ignore[method-assign]

        async def again(refusal: Refused) -> bool:
            return True

        bench.keys.on_refusal = again
        async with client:
            await asyncio.sleep(0.3)
            assert [refusal.operation for refusal in bench.keys.refusals] == ["GET"]
            assert [method for method, _ in bench.door.seen].count("GET") == 2


async def test_a_stream_that_was_replaced_while_it_waited_is_never_asked_for() -> None:
    async with Bench() as bench, bench.client(mode="handshake") as client:
        await asyncio.sleep(0.1)
        before = [method for method, _ in bench.door.seen].count("GET")
        bench.keys.ready = False
        conversation = client._keeper.conversation
        assert conversation is not None
        assert conversation.link is not None
        channel = conversation.link.channel
        assert channel is not None
        for _ in range(3):
            channel.stand()
        await asyncio.sleep(0.05)
        bench.keys.gate.set()
        await asyncio.sleep(0.2)
        assert [method for method, _ in bench.door.seen].count("GET") == before + 1


async def test_the_end_of_a_session_shows_who_ends_it() -> None:
    async with Bench() as bench:
        async with bench.client(mode="handshake"):
            pass
        assert ("DELETE", "Bearer good") in bench.door.seen


async def test_a_client_that_closes_while_a_request_waits_leaves_no_task() -> None:
    async with Bench() as bench:
        client = bench.client(mode="stateless")
        await client.connect()
        bench.keys.ready = False
        call = asyncio.create_task(client.call_tool("count"))
        await asyncio.sleep(0.1)
        await client.close(0.0)
        with pytest.raises(CallFailed):
            await call
        assert [task for task in asyncio.all_tasks() if "Gate" in repr(task)] == []


@pytest.mark.parametrize("mode", MODES)
async def test_a_client_without_credentials_makes_no_gate(mode: Any) -> None:
    app = Server("open")
    listener = Http(port=0)
    ready = asyncio.Event()
    serving = asyncio.create_task(app.serve(listener, ready=ready.set))
    await ready.wait()
    async with Client(listener.url, mode=mode) as client:
        conversation = client._keeper.conversation
        assert conversation is not None
        assert conversation.link is not None
        assert conversation.link.channel.gate is None  # type: ignore[union-attr]
    await app.stop(0.0)
    await serving
