"""Questions that become tasks: a server may ask for a task and come back for the answer (handshake era).

A model or a person may take longer to answer than anybody wants to wait on one request.
"""

from __future__ import annotations

import os
from typing import Any

import msgspec

from ferrule.client.features.answers import COSTLY
from ferrule.errors import CapabilityOff
from ferrule.protocol.call import Call
from ferrule.protocol.capabilities import declares
from ferrule.protocol.tasks import TaskWish
from ferrule.runtime.dispatch import Handler
from ferrule.runtime.tasks.methods import TaskMethods
from ferrule.runtime.tasks.run import TaskRun, carry
from ferrule.runtime.tasks.settings import TaskSettings
from ferrule.runtime.tasks.tasks import Tasks
from ferrule.schema.methods import METHODS, Method
from ferrule.schema.model import ClientCapabilities
from ferrule.stores.contracts import StoredTask

ASKED_ABOUT = ("tasks/get", "tasks/result", "tasks/list", "tasks/cancel")
"""What a server asks about the tasks its questions became."""

STOPPED = "The client was closed before the question was answered"


class QuestionTasks:
    """The tasks the questions of one server become; see `TaskHolder`."""

    def __init__(self, capabilities: ClientCapabilities, settings: TaskSettings) -> None:
        self._capabilities = capabilities
        self.requests: dict[str, Any] = (capabilities.tasks or {}).get("requests", {})
        self._owner = f"server {os.urandom(16).hex()}"
        """What several clients keep in one store is each server's own."""
        self._tasks = Tasks(self, settings)

    @property
    def methods(self) -> dict[str, Method]:
        """The methods a server may use about tasks."""
        return {name: METHODS[name] for name in ASKED_ABOUT}

    def handlers(self, questions: dict[str, Handler]) -> dict[str, Handler]:
        """Let questions become tasks, and answer what is asked about them."""
        about = TaskMethods(self._tasks).handlers()
        becoming = {}
        for name in COSTLY:
            if self._declared(name):
                becoming[name] = self._or_task(questions[name])
        return {**questions, **becoming, **{name: about[name] for name in ASKED_ABOUT}}

    def _declared(self, method: str) -> bool:
        return declares(self._capabilities, f"tasks.requests.{method.replace('/', '.')}")

    def _or_task(self, answer: Handler) -> Handler:
        async def answer_or_begin(call: Call) -> Any:
            if call.era.task_wish(call) is not TaskWish.ASKED:
                return await answer(call)
            run = TaskRun(self._tasks, call)
            await run.begin()
            run.answered.set_result(None)
            self._tasks.start(run, carry(run, answer, call.method))
            return run.created()

        return answer_or_begin

    async def close(self) -> None:
        """End what is still being answered: nobody is there to fetch it."""
        await self._tasks.close(STOPPED)

    # -- what its tasks must know

    def named(self, call: Call) -> str:
        """Return the method a task answers."""
        return call.method

    def owner(self, call: Call, *, by_session: bool) -> str:
        """Return whose a task is: there is one server at the other end, and this is its only session."""
        return self._owner

    def require(self, capability: str) -> None:
        """Refuse a request for something this client did not declare."""
        if not declares(self._capabilities, capability):
            raise CapabilityOff(f"Method not found: this client has no {capability}", {"capability": capability})

    def changed(self, task: StoredTask) -> None:
        """Nobody subscribes to a task of a client: its server is told, and asks."""

    def may_tell_progress(self, call: Call) -> bool:
        """An answer has no progress."""
        return False

    def written(self, result: object) -> bytes:
        """Write an answer as it is kept."""
        return msgspec.json.encode(result)

    def read(self, task: StoredTask) -> Any:
        """Read an answer that is kept."""
        return METHODS[task.tool].result_decoder()(task.result or b"")
