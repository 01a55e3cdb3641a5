"""Questions that become tasks: a server of the handshake era asks for a task and comes back for the answer."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import msgspec
import pytest

from ferrule import Client, Context, Http, Server, SetupError, TaskSettings, Tcp, WebSocket
from ferrule.errors import ChildFailed
from ferrule.protocol.handshake import NEWEST, REVISIONS
from ferrule.transports.http.listener import Sse

RELATED = "io.modelcontextprotocol/related-task"
STATUS = "notifications/tasks/status"
SAMPLE = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hi"}}], "maxTokens": 10}
FORM = {
    "message": "Row?",
    "requestedSchema": {"type": "object", "properties": {"row": {"type": "integer"}}, "required": ["row"]},
}
OLD = [version for version in REVISIONS if version != NEWEST.version]


class Asker:
    """A raw server that asks a client, and waits for what it is answered."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self._ids = itertools.count(1)

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ask, and give the whole answer."""
        identity = f"ask {next(self._ids)}"
        self.server.ask(method, params, identity)
        return await self.server.replied(identity)  # type: ignore[no-any-return]

    async def begin(self, method: str, params: dict[str, Any], **task: Any) -> dict[str, Any]:
        """Ask for a task, and give it as it was created."""
        answer = await self.ask(method, {**params, "task": task})
        assert "result" in answer, answer
        assert answer["result"].keys() == {"task"}
        return answer["result"]["task"]  # type: ignore[no-any-return]

    async def about(self, what: str, task: dict[str, Any]) -> dict[str, Any]:
        """Ask something about a task."""
        return await self.ask(f"tasks/{what}", {"taskId": task["taskId"]})


class User:
    """Answers when the test lets it."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.asked = 0
        self.cancelled = 0

    async def sample(self, params: Any) -> str:
        await self._wait()
        return f"after {params.messages[0].content.text}"

    async def fill(self, params: Any) -> dict[str, int]:
        await self._wait()
        return {"row": 3}

    async def _wait(self) -> None:
        self.asked += 1
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise


def client_of(server: Any, user: User, **options: Any) -> Client:
    given: dict[str, Any] = {"sampling": user.sample, "elicitation": user.fill, "question_tasks": True, **options}
    return Client(server, mode="handshake", **given)


async def test_tskx_1_it_is_declared_only_when_it_is_turned_on_and_for_what_can_be_answered(raw: Any) -> None:
    """TSKX-1, CAP-2."""

    async def declared(**options: Any) -> Any:
        server = raw()
        async with Client(server, mode="handshake", **options):
            return server.sent("initialize")[0]["params"]["capabilities"].get("tasks")

    user = User()
    both = {"sampling": {"createMessage": {}}, "elicitation": {"create": {}}}
    assert await declared(sampling=user.sample, elicitation=user.fill) is None
    assert await declared(question_tasks=True) is None
    assert await declared(sampling=user.sample, elicitation=user.fill, question_tasks=True) == {
        "list": {},
        "cancel": {},
        "requests": both,
    }
    only = await declared(url_elicitation=user.fill, question_tasks=TaskSettings(access="id"))
    assert only == {"cancel": {}, "requests": {"elicitation": {"create": {}}}}
    with pytest.raises(SetupError, match="question_tasks is True, False or TaskSettings"):
        Client(raw(), question_tasks="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "params", "expected"),
    [
        ("sampling/createMessage", SAMPLE, {"content": {"type": "text", "text": "after Hi"}}),
        ("elicitation/create", FORM, {"action": "accept", "content": {"row": 3}}),
    ],
)
async def test_tskx_4_a_question_becomes_a_task_and_its_answer_is_fetched(
    method: str, params: dict[str, Any], expected: dict[str, Any], raw: Any
) -> None:
    """TSKX-2, TSKX-4, TSKX-6, TSKX-7, TSKX-8, TSKX-12: the result is just what the question would have had."""
    server, user = raw(), User()
    async with client_of(server, user):
        asker = Asker(server)
        task = await asker.begin(method, params, ttl=60_000)
        assert (task["status"], task["ttl"]) == ("working", 60_000)
        assert task.keys() >= {"taskId", "createdAt", "lastUpdatedAt", "pollInterval"}
        assert (await asker.about("get", task))["result"]["status"] == "working"
        waiting = asyncio.ensure_future(asker.about("result", task))
        await asyncio.sleep(0.01)
        assert not waiting.done()
        user.may_answer.set()
        result = (await waiting)["result"]
        assert result["_meta"][RELATED] == {"taskId": task["taskId"]}
        assert {name: result[name] for name in expected} == expected
        assert "resultType" not in result
        told = await server.heard(STATUS)
        assert (told["params"]["taskId"], told["params"]["status"]) == (task["taskId"], "completed")
        assert (await asker.about("get", task))["result"]["status"] == "completed"
        assert (await asker.about("result", task))["result"] == result
        assert user.asked == 1


async def test_what_is_wrong_with_an_answer_is_the_error_of_its_task(raw: Any) -> None:
    """TSKX-7: as the question itself would have been refused."""

    async def refuse(params: Any) -> None: ...

    async def break_down(params: Any) -> None:
        raise ValueError("secret")

    server = raw()
    async with client_of(server, User(), sampling=refuse, elicitation=break_down):
        asker = Asker(server)
        for method, params, code in (("sampling/createMessage", SAMPLE, -1), ("elicitation/create", FORM, -32603)):
            plain = (await asker.ask(method, params))["error"]
            task = await asker.begin(method, params)
            error = (await asker.about("result", task))["error"]
            assert error["code"] == plain["code"] == code
            assert "secret" not in str(error)
            state = (await asker.about("get", task))["result"]
            assert state["status"] == "failed"


async def test_tskx_10_a_task_that_is_cancelled_stays_so_and_its_question_is_taken_back(raw: Any) -> None:
    """TSKX-5, TSKX-10."""
    server, user = raw(), User()
    async with client_of(server, user):
        asker = Asker(server)
        task = await asker.begin("elicitation/create", FORM)
        while not user.asked:
            await asyncio.sleep(0)
        cancelled = (await asker.about("cancel", task))["result"]
        assert (cancelled["taskId"], cancelled["status"]) == (task["taskId"], "cancelled")
        while not user.cancelled:
            await asyncio.sleep(0)
        user.may_answer.set()
        assert (await asker.about("get", task))["result"]["status"] == "cancelled"
        assert (await asker.about("cancel", task))["error"]["code"] == -32602
        assert "error" in await asker.about("result", task)


async def test_tskx_11_tasks_are_listed_and_unknown_ones_refused(raw: Any) -> None:
    """TSKX-11, TSKX-13."""
    server, user = raw(), User()
    async with client_of(server, user):
        asker = Asker(server)
        tasks = [await asker.begin("sampling/createMessage", SAMPLE) for _ in range(3)]
        assert len({task["taskId"] for task in tasks}) == 3
        listed = (await asker.ask("tasks/list"))["result"]["tasks"]
        assert {task["taskId"] for task in listed} == {task["taskId"] for task in tasks}
        for what in ("get", "result", "cancel"):
            assert (await asker.about(what, {"taskId": "none"}))["error"]["code"] == -32602
        assert (await asker.ask("tasks/list", {"cursor": "none"}))["error"]["code"] == -32602


async def test_tskx_2_a_client_that_was_not_told_to_answers_as_always(raw: Any) -> None:
    """TSKX-2: `task` is ignored, and nothing can be asked about tasks."""
    server, user = raw(), User()
    user.may_answer.set()
    async with client_of(server, user, question_tasks=False):
        asker = Asker(server)
        answer = await asker.ask("elicitation/create", {**FORM, "task": {}})
        assert answer["result"] == {"action": "accept", "content": {"row": 3}}
        assert (await asker.ask("tasks/list"))["error"]["code"] == -32601


@pytest.mark.parametrize("version", OLD)
async def test_a_revision_without_tasks_has_none(version: str, raw: Any) -> None:
    """Whatever was declared, the agreed revision decides."""
    server, user = raw(version=version), User()
    user.may_answer.set()
    async with client_of(server, user):
        asker = Asker(server)
        answer = await asker.ask("sampling/createMessage", {**SAMPLE, "task": {}})
        assert answer["result"]["content"]["text"] == "after Hi"
        assert (await asker.ask("tasks/list"))["error"]["code"] == -32601


async def test_a_malformed_wish_is_refused_and_so_is_one_too_many(raw: Any) -> None:
    """TSKX-14: bounded in number and in time."""
    server, user = raw(), User()
    async with client_of(server, user, question_tasks=TaskSettings(max_running=2, max_ttl=5.0)):
        asker = Asker(server)
        for task in (7, {"ttl": "long"}, {"ttl": -1}):
            assert (await asker.ask("elicitation/create", {**FORM, "task": task}))["error"]["code"] == -32602
        assert (await asker.begin("elicitation/create", FORM, ttl=10**12))["ttl"] == 5000
        await asker.begin("elicitation/create", FORM)
        assert "Busy" in (await asker.ask("elicitation/create", {**FORM, "task": {}}))["error"]["message"]


async def test_the_end_of_the_client_is_the_end_of_what_it_was_asked(raw: Any) -> None:
    server, user = raw(), User()
    async with client_of(server, user):
        await Asker(server).begin("elicitation/create", FORM)
        while not user.asked:
            await asyncio.sleep(0)
    assert user.cancelled == 1


@pytest.mark.parametrize("reconnect", [False, True])
async def test_the_end_of_the_link_is_the_end_of_what_was_asked_on_it(reconnect: bool, raw: Any) -> None:
    """Nobody is there to fetch the answer, whether the client comes back or not: nobody need give it."""
    server, user = raw(), User()
    async with client_of(server, user, reconnect=reconnect):
        await Asker(server).begin("elicitation/create", FORM)
        while not user.asked:
            await asyncio.sleep(0.01)
        server.die(ChildFailed("gone"))
        async with asyncio.timeout(20):
            while not user.cancelled:
                await asyncio.sleep(0.01)


async def test_a_call_of_ours_is_not_late_while_its_question_is_a_task(raw: Any) -> None:
    """As with a question that is no task: the server waits for us."""
    server, user = raw(answers={"tools/call": None}), User()
    async with client_of(server, user) as client:
        called = asyncio.ensure_future(client.call_tool("ask", timeout=0.3))
        request = await server.heard("tools/call")
        asker = Asker(server)
        task = await asker.begin("elicitation/create", FORM)
        await asyncio.sleep(0.6)
        assert not called.done()
        user.may_answer.set()
        assert (await asker.about("result", task))["result"]["action"] == "accept"
        server.answer(request, {"content": [{"type": "text", "text": "row 3"}]})
        assert (await called).text == "row 3"


@pytest.mark.parametrize("way", ["memory", "tcp", "http", "ws", "sse"])
async def test_tasks_of_questions_go_over_every_transport(way: str) -> None:
    app, user = Server("asker"), User()

    @app.tool
    async def reserve(ctx: Context) -> str:
        async def ask(method: str, **params: Any) -> Any:
            return msgspec.json.decode(await ctx.call.link.ask(method, params, ctx.call.channel))

        task = (await ask("elicitation/create", **FORM, task={"ttl": 60_000}))["task"]
        assert (await ask("tasks/get", taskId=task["taskId"]))["status"] == "working"
        user.may_answer.set()
        answer = await ask("tasks/result", taskId=task["taskId"])
        return f"row {answer['content']['row']}"

    listeners: dict[str, Any] = {"tcp": Tcp, "http": Http, "ws": WebSocket, "sse": Sse}
    if way == "memory":
        async with client_of(app, user) as client:
            assert (await client.call_tool("reserve")).text == "row 3"
        return
    listener, ready = listeners[way](port=0), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    await ready.wait()
    target = f"sse+http://127.0.0.1:{listener.address[1]}/sse" if way == "sse" else listener.url
    async with client_of(target, user) as client:
        assert (await client.call_tool("reserve")).text == "row 3"
    await app.stop(1.0)
    await serving
