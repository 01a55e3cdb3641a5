"""A context for handlers that run in a thread: what has to be awaited elsewhere blocks that thread only."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from ferrule.errors import Cancelled, SetupError
from ferrule.protocol.call import Call

if TYPE_CHECKING:
    from ferrule.server.calls.context import Context


class SyncContext:
    """The same calls as a context has, each of which blocks the handler's own thread until it is done."""

    __slots__ = ("_context", "_loop")

    def __init__(self, context: Context, loop: asyncio.AbstractEventLoop | None) -> None:
        self._context, self._loop = context, loop

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._context, name)
        if not inspect.iscoroutinefunction(attribute):
            return attribute
        loop, call = self._loop, self._context.call

        def wait(*args: Any, **kwargs: Any) -> Any:
            if loop is None or _running_loop() is loop:
                raise SetupError(f"ctx.sync.{name} would block the event loop: use `await ctx.{name}` in async code")
            return _run_in(loop, call, attribute(*args, **kwargs))

        return wait


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _run_in(loop: asyncio.AbstractEventLoop, call: Call, work: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine in the loop from a thread, no longer than the call itself runs."""

    async def contained() -> tuple[Any, BaseException | None]:
        """Give what the work raises, for the thread to raise: also a BaseException such as Need."""
        waiting, owner = asyncio.current_task(), call.task if call.as_task is None else call.as_task.work

        def give_up(_: Any) -> None:
            if waiting is not None:
                waiting.cancel()

        if owner is not None:
            owner.add_done_callback(give_up)
        try:
            return await work, None
        except BaseException as error:
            return None, Cancelled("the call has ended") if isinstance(error, asyncio.CancelledError) else error
        finally:
            if owner is not None:
                owner.remove_done_callback(give_up)

    value, error = asyncio.run_coroutine_threadsafe(contained(), loop).result()
    if error is not None:
        raise error
    return value
