"""Tasks that one worker runs and another is asked about."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from worker_program import Program

from ferrule import Client
from ferrule.errors import PeerError

Start = Callable[..., Program]

TASKS = """
import asyncio, json, os, sys
from ferrule import Context, Server
from ferrule.auth.server.static_tokens import StaticTokens
from ferrule.identity.principal import Principal
from ferrule.runtime.tasks.settings import TaskSettings

def who(name):
    return Principal(issuer="staff", subject=name)

app = Server("tasks", tasks=TaskSettings(poll_interval=POLL),
             auth=StaticTokens({"a" * 20: who("ada"), "b" * 20: who("bob")}))

@app.tool(task="optional")
async def order(ctx: Context) -> str:
    return await ctx.ask("Which?", str)

@app.tool(task="optional")
async def pack(seconds: float) -> int:
    await asyncio.sleep(seconds)
    return os.getpid()

if __name__ == "__main__":
    app.run(sys.argv[2], port=0, workers=int(sys.argv[1]), **json.loads(sys.argv[3]))
"""


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
async def test_any_worker_answers_for_the_tasks_of_all(program: Start, mode: str) -> None:
    """Status, result, answers, cancelling and the list; another principal sees none of it."""
    # Without a session a client listens, and would otherwise look again only after this time.
    poll = {"handshake": "0.02", "stateless": "20"}[mode]
    one = program(2, TASKS.replace("POLL", poll))

    def client(token: str = "a") -> Client:
        return Client(
            one.url,
            mode=mode,
            headers={"Authorization": f"Bearer {token * 20}"},
            elicitation=lambda question: {"value": "tea"},
        )

    started: dict[str, str] = {}
    while len(started) < 2:
        async with client() as starting:
            task = await starting.start_task("pack", {"seconds": 60})
            # The id says which worker runs it; one task of each is enough.
            if task.id[0] in started:
                await starting.cancel_task(task.id)
            else:
                started[task.id[0]] = task.id
    async with client("b") as stranger:
        for task_id in started.values():
            with pytest.raises(PeerError, match="not found"):
                await stranger.get_task(task_id)
    async with client() as asking:
        for task_id in started.values():
            assert (await asking.get_task(task_id)).status == "working"
        if mode == "handshake":
            assert set(started.values()) <= {state.task_id for state in await asking.list_tasks()}
        for task_id in started.values():
            await asking.cancel_task(task_id)
            assert (await asking.get_task(task_id)).status == "cancelled"
    for _ in range(4):
        async with client() as first, client() as second:
            task = await first.start_task("pack", {"seconds": 0.1})
            assert (await second.task(task.id).result()).data in one.workers
            asked = await first.start_task("order", {})
            # Where a question is a request, it goes to a session of the worker that runs the task.
            answering = second if mode == "stateless" else first
            async with asyncio.timeout(10):
                assert (await answering.task(asked.id).result()).data == "tea"
