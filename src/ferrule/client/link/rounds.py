"""A result that asks for input: reading it, and answering what it asks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
from msgspec import Raw

from ferrule.budgets.bounds import MAX_QUESTIONS
from ferrule.errors import InvalidAnswer, NotConnected, Refusal
from ferrule.schema.rounds import COMPLETE, INPUT_REQUIRED, InputRequired
from ferrule.schema.tasks import TASK
from ferrule.supervision.scope import Scope

_read_round = msgspec.json.Decoder(InputRequired).decode


def input_required(raw: Raw) -> InputRequired | None:
    """Give what a result asks for, None when it is complete or a task; raises InvalidAnswer for one that is neither."""
    try:
        asked = _read_round(raw)
    except msgspec.DecodeError as reason:
        raise InvalidAnswer(f"the server's request for input is malformed: {reason}") from None
    if asked.result_type in (None, COMPLETE, TASK):
        return None
    if asked.result_type != INPUT_REQUIRED:
        raise InvalidAnswer(f"the server answered with an unknown kind of result: {asked.result_type!r}")
    if asked.input_requests is not None and len(asked.input_requests) > MAX_QUESTIONS:
        raise InvalidAnswer(f"the server asks more than {MAX_QUESTIONS} questions at once")
    if not asked.input_requests and asked.request_state is None:
        raise InvalidAnswer("the server's request for input does not say which")
    return asked


async def answers_to(
    asked: InputRequired, answer: Callable[..., Coroutine[Any, Any, Any]], scope: Scope, method: str
) -> dict[str, Any]:
    """Answer all questions of a round side by side; the first failure ends the others."""
    requests = asked.input_requests or {}
    tasks = [scope.spawn(answer(each.method, each.params)) for each in requests.values()]
    try:
        return dict(zip(requests, await asyncio.gather(*tasks), strict=True))
    except Refusal as refusal:
        raise InvalidAnswer(f"{method}: the server's request for input cannot be answered: {refusal}") from None
    except asyncio.CancelledError:
        caller = asyncio.current_task()
        if caller is None or caller.cancelling():
            raise
        # Not the caller was cancelled but those who answered for it: their owner has ended.
        raise NotConnected(f"{method}: the client was closed while the server's question was being answered") from None
    finally:
        for task in tasks:
            task.cancel()
