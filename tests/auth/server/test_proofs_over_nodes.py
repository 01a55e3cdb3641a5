"""A proof of possession is shown to several real nodes that share a real Redis, or a file."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from issuer_double import NOW, RESOURCE, token, verifier
from redis_server import RedisServer, needs_redis

from ferrule import Http, Server
from ferrule.auth.dpop import make_proof
from ferrule.auth.jose import make_key
from ferrule.stores.stores import Stores

KEY = make_key()
BOUND = token(cnf={"jkt": KEY.thumbprint()})


@contextlib.asynccontextmanager
async def node(stores: Stores, **options: Any) -> AsyncIterator[str]:
    """Serve a protected server as one of several nodes; its URL."""
    app = Server("notes", auth=verifier(**options), stores=stores, metrics=True)
    listener = Http(port=0)
    ready = asyncio.Event()
    serving = asyncio.create_task(app.serve(listener, ready=ready.set))
    await ready.wait()
    try:
        yield listener.url
    finally:
        await app.stop(0.0)
        await serving


def new_proof(**said: Any) -> str:
    return make_proof(KEY, "POST", RESOURCE, now=NOW, token=BOUND, **said)


async def show(url: str, proof: str) -> httpx.Response:
    """Send a request that is refused for its content, if its sender is let in."""
    headers = {"authorization": f"DPoP {BOUND}", "dpop": proof, "content-type": "application/json"}
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(url, headers=headers, content=b"{}")


async def counts_once(first: str, second: str) -> None:
    proof = new_proof()
    assert (await show(first, proof)).status_code == 400
    assert (await show(second, proof)).status_code == 401
    assert (await show(second, new_proof())).status_code == 400


async def test_nodes_with_a_redis() -> None:
    """While it is away each node goes by itself: nobody is kept out, and a proof counts once at each."""
    needs_redis()
    with RedisServer() as redis:
        async with node(Stores.redis(redis.url)) as first, node(Stores.redis(redis.url)) as second:
            await counts_once(first, second)
            redis.kill()
            proof = new_proof()
            answers = [(await show(url, proof)).status_code for url in (first, first, second, second)]
            assert answers == [400, 401, 400, 401]
            async with httpx.AsyncClient(trust_env=False, headers={"authorization": f"Bearer {token()}"}) as client:
                metrics = (await client.get(first.replace("/mcp", "/metrics"))).text
            assert 'ferrule_store_errors_total{op="seen_add"}' in metrics


async def test_processes_with_a_file_take_a_proof_once_and_each_others_nonces(tmp_path: Path) -> None:
    path = tmp_path / "notes.db"
    async with (
        node(Stores.sqlite(path), dpop_nonce=True) as first,
        node(Stores.sqlite(path), dpop_nonce=True) as second,
    ):
        nonce = (await show(first, new_proof())).headers["dpop-nonce"]
        proof = new_proof(nonce=nonce)
        assert (await show(second, proof)).status_code == 400
        assert (await show(first, proof)).status_code == 401
