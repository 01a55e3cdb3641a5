"""The work of a task: a call run to its result, or to why there is none."""

from __future__ import annotations

import asyncio
from typing import Any

from ferrule.errors import CapabilityNotSupported, Internal, InvalidRequest, Refusal
from ferrule.protocol.call import Call
from ferrule.protocol.needs import Need
from ferrule.runtime.dispatch import Handler, internal, need_within
from ferrule.runtime.tasks.run import TaskRun


async def carry(run: TaskRun, proceed: Handler, what: str) -> None:
    """Run the call of a task, and keep what it comes to."""
    run.outcome = await _outcome(run.call, proceed, what)
    if run.is_begun and not run.kept.ended:
        await run.finish(_of_a_task(run.outcome))


async def _outcome(call: Call, proceed: Handler, what: str) -> Any:
    try:
        return await proceed(call)
    except Refusal as refusal:
        return refusal
    except CapabilityNotSupported as failure:
        return call.era.lacking(failure)
    except asyncio.CancelledError:
        return Internal("The work of the task was cancelled")
    except BaseException as error:  # a handler may raise anything; it ends its own task only
        return need_within(error) or internal(what, error)


def _of_a_task(outcome: Any) -> Any:
    """Give the outcome of a task; a Need, which asks the client to call again, cannot be one."""
    if isinstance(outcome, Need):
        return InvalidRequest("A task asks with ctx.elicit, ctx.ask or ctx.sample, not by ending")
    return outcome
