"""Tasks of 2025-11-25 with the other SDKs: their clients with our server, our client with theirs.

Proves: TEST-08
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

import peer_programs
import pytest
from install_peers import peers_folder, venv_python

from ferrule import Client, PeerError, ToolError
from ferrule.errors import Cancelled

pytestmark = pytest.mark.interop

OUR_SERVER = [sys.executable, str(peer_programs.HERE / "ferrule_tasks_server.py")]
PEERS = peer_programs.HERE / "peers"
DECLARED: dict[str, Any] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}


def needed(peer: str) -> None:
    if (reason := peer_programs.missing(peer)) is not None:
        pytest.skip(reason)


def seen_by(command: list[str]) -> dict[str, Any]:
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-3000:]
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return seen


def test_the_python_sdk_uses_our_tasks() -> None:
    """TSKX-1, TSKX-4, TSKX-7, TSKX-9, TSKX-10, TSKX-11, SPEC-15."""
    needed("mcp1")
    program = [str(venv_python(peers_folder() / "mcp1")), str(PEERS / "mcp1_tasks_client.py")]
    assert seen_by([*program, *OUR_SERVER]) == {
        "declared": DECLARED,
        "created": "working",
        "asked": True,
        "greeting": "Hello, Ann!",
        "failure": [True, "no luck"],
        "failed": "failed",
        "cancelled": "cancelled",
        "listed": 3,
    }


def test_the_typescript_sdk_uses_our_tasks() -> None:
    """TSKX-1, TSKX-4, TSKX-7, TSKX-9, TSKX-10, TSKX-11, SPEC-15: it tells a failed task without its words."""
    needed("ts1")
    program = [peer_programs.node(), str(PEERS / "ts1_tasks_client.mjs"), str(peers_folder() / "ts1")]
    seen = seen_by([*program, *OUR_SERVER])
    assert "failed" in str(seen.pop("failure"))
    assert seen == {
        "declared": DECLARED,
        "created": "taskCreated",
        "asked": True,
        "greeting": "Hello, Ann!",
        "cancelled": "cancelled",
        "listed": 3,
    }


def test_our_client_uses_tasks_of_the_python_sdk() -> None:
    """TSKX-3, TSKX-6, TSKX-7, TSKX-9, TSKX-10."""
    needed("mcp1")

    async def user(question: Any) -> dict[str, str]:
        return {"value": "Ann"}

    async def use() -> None:
        server = [str(venv_python(peers_folder() / "mcp1")), str(PEERS / "mcp1_tasks_server.py")]
        async with Client(server, mode="handshake", init_timeout=100, request_timeout=60, elicitation=user) as client:
            await client.list_tools()
            assert (await client.call_tool("greet", timeout=60)).text == "Hello, Ann!"
            task = await client.start_task("greet")
            assert (await client.task(task.id).result(timeout=60)).text == "Hello, Ann!"
            endless = await client.start_task("wait")
            assert endless.id in {state.task_id for state in await client.list_tasks()}
            await endless.cancel()
            with pytest.raises(Cancelled):
                await endless.result(timeout=60)
            with pytest.raises(PeerError):
                await client.task("nobody").status()

    asyncio.run(asyncio.wait_for(use(), 100))


def test_the_python_sdk_asks_our_client_by_tasks() -> None:
    """TSKX-1, TSKX-2, TSKX-4, TSKX-6, TSKX-7: the client is the one who is asked for tasks."""
    needed("mcp1")

    async def user(question: Any) -> dict[str, str]:
        await asyncio.sleep(0.2)
        return {"value": "Ann"}

    async def model(question: Any) -> str:
        return f"Hello, {question.messages[0].content.text}!"

    async def use() -> None:
        server = [str(venv_python(peers_folder() / "mcp1")), str(PEERS / "mcp1_asking_server.py")]
        options: Any = {"elicitation": user, "sampling": model}
        async with Client(server, mode="handshake", question_tasks=True, **options) as client:
            assert (await client.call_tool("greet", timeout=60)).text == "Hello, Ann!"
        async with Client(server, mode="handshake", **options) as client:
            with pytest.raises(ToolError, match="task"):
                await client.call_tool("greet", timeout=60)

    asyncio.run(asyncio.wait_for(use(), 100))
