"""Proofs of possession at real workers: each counts once, whichever worker is shown it."""

from __future__ import annotations

import time
from pathlib import Path

import httpx
from worker_program import Program

from ferrule.auth.dpop import make_proof
from ferrule.auth.jose import make_key

PROTECTED = """
import sys
from ferrule import Principal, Server, StaticTokens

ada = Principal(issuer="dev", subject="ada", confirmation={"jkt": sys.argv[1]})
app = Server("notes", auth=StaticTokens({"a-token": ada}, dpop_nonce=True))

@app.tool
async def ping() -> str:
    return "pong"

if __name__ == "__main__":
    app.run("http", port=0, workers=2)
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
CALL = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "ping", "arguments": {}}}
KEY = make_key()


async def send(url: str, message: object, proof: str, session: str = "") -> httpx.Response:
    """Send a message over a connection of its own: whichever worker takes it."""
    headers = {"authorization": "DPoP a-token", "dpop": proof, "accept": "application/json, text/event-stream"}
    if session:
        headers["mcp-session-id"] = session
    async with httpx.AsyncClient(trust_env=False) as client:
        return await client.post(url, headers=headers, json=message)


async def test_a_proof_counts_once_and_sessions_are_found_with_one(tmp_path: Path) -> None:
    """Neither a detour to the worker that has the session uses a proof up, nor does any worker refuse a nonce."""
    path = tmp_path / "protected.py"
    path.write_text(PROTECTED)
    program = Program(str(path), KEY.thumbprint())
    try:
        url = program.url
        refused = await send(url, INITIALIZE, make_proof(KEY, "POST", url, now=time.time(), token="a-token"))
        nonce = refused.headers["dpop-nonce"]

        def proof() -> str:
            return make_proof(KEY, "POST", url, now=time.time(), token="a-token", nonce=nonce)

        session = (await send(url, INITIALIZE, proof())).headers["mcp-session-id"]
        answers = [await send(url, CALL, proof(), session) for _ in range(12)]
        assert [answer.status_code for answer in answers] == [200] * 12
        assert all("pong" in answer.text for answer in answers)
        used = proof()
        replays = [(await send(url, CALL, used, session)).status_code for _ in range(12)]
        assert replays == [200] + [401] * 11
    finally:
        program.process.terminate()
        program.end()
        assert program.process.stderr is not None
        program.process.stderr.close()
