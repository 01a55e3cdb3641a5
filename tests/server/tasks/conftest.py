"""A peer that runs tools as tasks in the way of either era."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

EXTENSION = "io.modelcontextprotocol/tasks"
RELATED = "io.modelcontextprotocol/related-task"
ABLE = {"elicitation": {}, "sampling": {}, "extensions": {EXTENSION: {}}}


class WithTasks:
    """What a bare peer does about tasks; what the two eras do differently is hidden here."""

    def __init__(self, app: Any, era: str = "handshake", **options: Any) -> None:
        options.setdefault("capabilities", ABLE)
        super().__init__(app, era, **options)

    async def start(
        self, name: str, arguments: Any = None, task: Any = None, meta: Any = None, **more: Any
    ) -> dict[str, Any]:
        """Call a tool as a task, and give the task."""
        params = {"name": name, "arguments": arguments or {}, **more}
        if not self.stateless:
            params["task"] = task or {}
        answer = await self.request("tools/call", params, meta=meta)
        assert "result" in answer, answer
        return answer["result"] if self.stateless else answer["result"]["task"]

    async def look(self, task: dict[str, Any]) -> dict[str, Any]:
        """Ask how a task stands, and give the whole response."""
        return await self.request("tasks/get", {"taskId": task["taskId"]})

    async def until(self, task: dict[str, Any], *statuses: str) -> dict[str, Any]:
        """Look until a task is in one of some states."""
        while True:
            state = (await self.look(task))["result"]
            if state["status"] in statuses:
                return state
            await asyncio.sleep(0.001)

    async def end(self, task: dict[str, Any]) -> dict[str, Any]:
        """Look until a task has ended."""
        return await self.until(task, "completed", "failed", "cancelled")

    async def outcome(self, task: dict[str, Any]) -> dict[str, Any]:
        """Return the response a task came to: with a result, or with an error."""
        if not self.stateless:
            return await self.request("tasks/result", {"taskId": task["taskId"]})
        state = await self.end(task)
        return {name: state[name] for name in ("result", "error") if name in state}

    async def text(self, task: dict[str, Any]) -> str:
        """Return the text a task came to."""
        text: str = (await self.outcome(task))["result"]["content"][0]["text"]
        return text

    async def cancel(self, task: dict[str, Any]) -> dict[str, Any]:
        """Cancel a task, and give the whole response."""
        return await self.request("tasks/cancel", {"taskId": task["taskId"]})

    async def reply(self, task: dict[str, Any], *answers: Any) -> Any:
        """Answer what a task asks, in order, and give the questions."""
        if self.stateless:
            asked = (await self.until(task, "input_required"))["inputRequests"]
            responses = dict(zip(asked, answers, strict=False))
            done = await self.request("tasks/update", {"taskId": task["taskId"], "inputResponses": responses})
            assert done["result"]["resultType"] == "complete"
            return list(asked.values())
        waiting = self.ask("tasks/result", {"taskId": task["taskId"]})
        before, questions = len(self.told("elicitation/create")), []
        for at, answer in enumerate(answers):
            question = await self.hear("elicitation/create", before + at)
            questions.append(question)
            self.answer(question, answer)
        self.waiting = waiting
        return questions


def accepted(**content: Any) -> dict[str, Any]:
    """Return the answer of a user who filled in a form."""
    return {"action": "accept", "content": content}


@pytest.fixture
def peer(wire: type) -> type:
    """A bare peer that can be answered with tasks."""
    return type("TaskPeer", (WithTasks, wire), {})


@pytest.fixture
def accept() -> Any:
    """The answer of a user who filled in a form."""
    return accepted
