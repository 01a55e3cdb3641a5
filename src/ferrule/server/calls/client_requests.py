"""Asking the client from inside a handler: its user, its model, its folders; what was answered is remembered.

Rule: a handler may be run again from the top. What it asked and did in an earlier round it is given at once.
"""

from __future__ import annotations

import asyncio
import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Raw

from ferrule.errors import Cancelled, Declined, ToolError
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Answers, Question
from ferrule.schema.roots import ListRootsResult, Root
from ferrule.schema.sampling import CreateMessageResult, ModelPreferences, ToolChoice
from ferrule.schema.tools import Tool
from ferrule.server.calls.services import Services
from ferrule.server.hosting.progress import ProgressNotices

if TYPE_CHECKING:
    from ferrule.runtime.tasks.run import TaskRun
    from ferrule.server.application import Application
    from ferrule.server.calls.forms import Elicitation

_read_any = msgspec.json.Decoder().decode
_write = msgspec.json.Encoder().encode


class ClientRequests:
    """The half of a context that asks: every answer is known by its question, over all rounds of one call."""

    __slots__ = ("_call", "_notices", "_services")

    def __init__(self, call: Call, services: Services) -> None:
        self._call = call
        self._services = services
        self._notices: ProgressNotices | None = None
        """Made when the handler first tells of its progress."""

    @property
    def server(self) -> Application:
        """The server the handler belongs to."""
        return self._services.app

    @property
    def _outer_services(self) -> Services:
        """What the client speaks with; another server's than `server` where that is mounted."""
        return self._services

    @property
    def task(self) -> TaskRun | None:
        """The task this call runs as, with its `id` and `status`; None where it is answered as any other."""
        run: TaskRun | None = self._call.as_task
        if run is not None and run.is_begun:
            return run
        return None

    async def elicit(
        self,
        message: str,
        schema: object = None,
        *,
        key: str = "",
        url: str = "",
        elicitation_id: str = "",
        response_type: object = None,
    ) -> Elicitation:
        """Ask the client's user, by form, or by a URL to visit; return `.action` and `.data`.

        `response_type` is the name FastMCP has for `schema`.
        """
        from ferrule.server.calls.forms import elicit_question, read_elicitation, url_question

        if schema is None:
            schema = response_type
        if url:
            if not elicitation_id and self._call.peer.revision.two_way:
                # Unique within the server (MCP client/elicitation); the stateless era has none.
                elicitation_id = str(uuid.uuid4())
            question = url_question(message, url, key, elicitation_id)
            return read_elicitation((await self._learn([question]))[0])
        question = elicit_question(message, schema, key)
        return read_elicitation((await self._learn([question]))[0], schema)

    async def ask(self, message: str, schema: object = None, *, key: str = "") -> Any:
        """Ask the client's user and return the value; raise Declined when there is none."""
        answer = await self.elicit(message, schema, key=key)
        if answer.action != "accept":
            raise Declined(answer.action)
        return answer.data

    async def ask_all(self, questions: Mapping[str, tuple[str, Any]]) -> dict[str, Any]:
        """Ask several things at once, each under its key; return the values by key."""
        answers = await self.elicit_all(questions)
        for answer in answers.values():
            if answer.action != "accept":
                raise Declined(answer.action)
        return {key: answer.data for key, answer in answers.items()}

    async def elicit_all(self, questions: Mapping[str, tuple[str, Any]]) -> dict[str, Elicitation]:
        """Ask several things at once, each under its key; return what the user did with each."""
        from ferrule.server.calls.forms import elicit_question, read_elicitation

        asked = []
        for key, (message, schema) in questions.items():
            asked.append(elicit_question(message, schema, key))
        answers = {}
        for (key, (_, schema)), raw in zip(questions.items(), await self._learn(asked), strict=True):
            answers[key] = read_elicitation(raw, schema)
        return answers

    async def sample(
        self,
        messages: object,
        *,
        max_tokens: int = 1000,
        key: str = "",
        model_preferences: ModelPreferences | Mapping[str, object] | None = None,
        system_prompt: str | None = None,
        include_context: Literal["none", "thisServer", "allServers"] | None = None,
        temperature: float | None = None,
        stop_sequences: Sequence[str] | None = None,
        metadata: Mapping[str, object] | None = None,
        tools: Sequence[Tool | Mapping[str, object]] | None = None,
        tool_choice: ToolChoice | Mapping[str, object] | None = None,
    ) -> CreateMessageResult:
        """Ask the client's model; `messages` is text, a message or a list of them."""
        from ferrule.server.calls.forms import sample_question

        options = {
            "model_preferences": model_preferences,
            "system_prompt": system_prompt,
            "include_context": include_context,
            "temperature": temperature,
            "stop_sequences": stop_sequences,
            "metadata": metadata,
            "tools": tools,
            "tool_choice": tool_choice,
        }
        raw = (await self._learn([sample_question(messages, max_tokens, key, options)]))[0]
        try:
            return msgspec.json.decode(raw, type=CreateMessageResult)
        except msgspec.ValidationError as reason:
            raise ToolError(f"the client's model gave no usable answer: {reason}") from None

    async def list_roots(self, *, key: str = "") -> list[Root]:
        """Ask the client for the folders it works in."""
        raw = (await self._learn([Question("roots/list", {}, key)]))[0]
        try:
            return msgspec.json.decode(raw, type=ListRootsResult).roots
        except msgspec.ValidationError as reason:
            raise ToolError(f"the client gave no usable roots: {reason}") from None

    async def step(self, name: str, action: Callable[[], object] | Awaitable[object]) -> Any:
        """Do something that must not happen twice: its value is remembered over the rounds of this call.

        It is remembered as JSON and given so in every round, also in the one that does it.
        """
        answers = self._answers()
        place = answers.key_for_step(name)
        known = answers.find_step(place)
        if known is not None:
            if inspect.iscoroutine(action):
                action.close()
            return _read_any(known)
        value = action() if callable(action) else action
        if inspect.isawaitable(value):
            value = await value
        try:
            written = Raw(_write(value))
        except (TypeError, ValueError, RecursionError) as reason:
            raise TypeError(f"ctx.step({name!r}) must give what JSON can say, to be remembered: {reason}") from None
        answers.keep_step(place, written)
        return _read_any(written)

    def _answers(self) -> Answers:
        """Return what this call has learned so far; a retry has recalled it before its handler ran."""
        call = self._call
        if call.answers is None:
            call.answers = Answers()
        return call.answers

    async def _learn(self, questions: Sequence[Question]) -> list[Raw]:
        """Return the answers: from earlier rounds where they are known, from the client where not."""
        answers = self._answers()
        places = list(map(answers.key_for, questions))
        known = []
        for place, question in zip(places, questions, strict=True):
            known.append(answers.find(place, question))
        missing = []
        for place, question, answer in zip(places, questions, known, strict=True):
            if answer is None:
                missing.append((place, question))
        if not missing:
            found: list[Raw] = []
            for answer in known:
                if answer is not None:
                    found.append(answer)
            return found
        if self.task is not None:
            fresh = iter(await self.task.ask(missing))
        elif self._outer_services.links.running(self._call):
            fresh = iter(await _all(self._call.era.ask(self._call, missing)))
        else:
            raise Cancelled("the call has ended")
        learned = []
        for answer in known:
            if answer is None:
                learned.append(next(fresh))
            else:
                learned.append(answer)
        return learned


async def _all(awaitables: Sequence[Awaitable[Raw]]) -> list[Raw]:
    if len(awaitables) > 1:
        return list(await asyncio.gather(*awaitables))
    return [await awaitables[0]]
