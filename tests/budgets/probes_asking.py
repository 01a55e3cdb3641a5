"""Probes of state that a client carries, of the questions it answers, and of what it keeps."""

from __future__ import annotations

import asyncio
from typing import Any

from msgspec import Raw, structs
from probes_peers import Questioner, stopped_clock
from table import no_bound, period, probe

from ferrule import Client, Context, PeerError, Server, SetupError
from ferrule.client.features.cache import Cache
from ferrule.errors import TooManyRounds
from ferrule.protocol.seal import HEADER, NONCE_SIZE, Keyring, Seal, SealTooLarge, Tampered
from ferrule.server.middleware.timing import Timing

KEYS = [b"k" * 32]
YES = {"value": True}


OVERHEAD = HEADER.size + NONCE_SIZE + 16


@probe("ferrule.protocol.seal.MAX_TOKEN_SIZE", lowered=1003)  # a token has never one character more than 4, 8, 12 …
async def sealed_state(limit: int, size: int) -> bool:
    payload = b"x" * (size * 3 // 4 - OVERHEAD)
    seal = Seal(Keyring(KEYS), limit)
    token = Seal(Keyring(KEYS), 10**9).seal(payload, binding=b"", expires=1.0, nonce=b"n" * NONCE_SIZE)
    assert len(token) == size
    try:
        assert seal.open(token, binding=b"", now=0.0) == payload
        opened = True
    except Tampered:
        opened = False
    try:
        assert seal.seal(payload, binding=b"", expires=1.0, nonce=b"n" * NONCE_SIZE) == token
        sealed = True
    except SealTooLarge:
        sealed = False
    assert opened is sealed
    return opened


@probe("ferrule.protocol.seal.MIN_KEY_SIZE")
async def a_sealing_key(limit: int, size: int) -> bool:
    try:
        Keyring([b"k" * max(0, 2 * limit - size)])  # as much below the limit as the size is above it
    except SetupError:
        return False
    return True


def asking(times: int, **options: Any) -> Server:
    """Return a server with a tool that asks the user so often."""
    app = Server("s", **options)

    @app.tool
    async def work(ctx: Context) -> str:
        for number in range(times):
            await ctx.elicit(f"{number}?", bool)
        return "done"

    return app


@period("Server(request_state_lifetime=…)", lowered=600.0)
async def a_state(lasts: float, seconds: float) -> bool:
    app = asking(1, request_state_lifetime=lasts)
    era = app.host._stateless
    era._sealing = structs.replace(era._sealing, now=asyncio.get_running_loop().time)

    async def think(question: Any) -> Any:
        await asyncio.sleep(seconds)
        return YES

    async with Client(app, mode="stateless", elicitation=think, tool_timeout=None) as client:
        try:
            await client.call_tool("work")
        except PeerError as refusal:
            return "expired" not in str(refusal)
    return True


@probe("Client(max_rounds=…)", lowered=3)
async def rounds(limit: int, size: int) -> bool:
    async with Client(asking(size), mode="stateless", elicitation=lambda question: YES, max_rounds=limit) as client:
        try:
            await client.call_tool("work")
        except TooManyRounds:
            return False
    return True


@probe("Client(question_rate=…)", lowered=5)
async def questions_a_second(limit: int, size: int) -> bool:
    server = Questioner()
    client = Client(server, mode="handshake", sampling=lambda question: "yes", question_rate=limit)  # type: ignore[arg-type]
    async with client:
        with stopped_clock():
            server.ask(size)
            for _ in range(size // 10 + 10):
                await asyncio.sleep(0)
    return not server.refusals


no_bound("Client(root_check_interval=…)", "our own pause between two looks at the roots")


@period("Server(cache_ttl=…)", lowered=60.0)
async def a_list_that_is_kept(lasts: float, seconds: float) -> bool:
    layer = Timing()
    app = Server("s", cache_ttl=lasts, middleware=[layer])
    app.add_tool(lambda: None, name="work")
    async with Client(app, mode="stateless") as client:
        await client.list_tools()
        await asyncio.sleep(seconds)
        await client.list_tools()
    return layer.times["tools/list", ""].count == 1


@probe("Cache(limit=…)", lowered=10, clamps=True)
async def results_a_client_keeps(limit: int, size: int) -> bool:
    cache = Cache(limit=limit)
    for number in range(size):
        cache.keep("resources/read", {"uri": f"a://{number}"}, Raw(b'{"ttlMs":1000}'), 0.0)
        assert len(cache) <= limit
    return len(cache) == size
