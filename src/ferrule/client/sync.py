"""The client for scripts and notebooks: the same methods, blocking."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from ferrule.client.client import DRAIN, Client
from ferrule.client.features.answers import AnswerHandler
from ferrule.client.features.progress import ProgressHandler
from ferrule.client.features.tasks import Task
from ferrule.errors import AlreadyInitialized, NotConnected, SetupError
from ferrule.schema.lifecycle import InitializeResult
from ferrule.schema.tasks import Task as TaskState
from ferrule.schema.tools import CallToolResult

if TYPE_CHECKING:
    from ferrule.client.keywords import ClientKeywords
Work = Coroutine[Any, Any, Any]
"""What a method of Client returns before it is awaited."""

GRACE = 10.0
"""How long what is cancelled may take to end."""


class SyncClient:
    """A Client that runs in a thread of its own; every method of Client blocks until it is done."""

    def __init__(
        self,
        target: object,
        *,
        sampling: AnswerHandler | None = None,
        elicitation: AnswerHandler | None = None,
        url_elicitation: AnswerHandler | None = None,
        roots: Iterable[Any] | Callable[[], Any] | None = None,
        **options: Unpack[ClientKeywords],
    ) -> None:
        self._client = Client(
            target,
            sampling=sampling,
            elicitation=elicitation,
            url_elicitation=url_elicitation,
            roots=roots,
            **options,
        )
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> SyncClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self._client.__aexit__(kind, error, trace))

    def connect(self, *, timeout: float | None = None) -> None:
        """Reach the server."""
        self._start()
        try:
            self._wait(self._client.connect(timeout=timeout))
        except BaseException:
            self._stop()
            raise

    def initialize(self, *, timeout: float | None = None) -> InitializeResult:
        """Reach the server, and give what it says of itself."""
        self._start()
        try:
            result: InitializeResult = self._wait(self._client.initialize(timeout=timeout))
        except BaseException:
            self._stop()
            raise
        return result

    def close(self, drain: float = DRAIN) -> None:
        """Wait up to `drain` seconds for what was asked, and end the conversation; harmless when called again."""
        self._end(self._client.close(drain))

    def _end(self, work: Work) -> None:
        self._require_other_thread(work)
        future = self._scheduled(work)
        if future is None:
            return
        try:
            _result_in_spite_of_ctrl_c(future)
        finally:
            self._stop()

    def _start(self) -> None:
        if self._loop is not None:
            raise AlreadyInitialized(f"the client is connected already ({self._client.phase})")
        started: concurrent.futures.Future[asyncio.AbstractEventLoop] = concurrent.futures.Future()
        self._thread = threading.Thread(target=_run_loop, args=(started,), name="ferrule-client", daemon=True)
        self._thread.start()
        self._loop = started.result()

    def _stop(self) -> None:
        with self._lock:
            loop = self._loop
            thread = self._thread
            self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _scheduled(self, work: Work) -> concurrent.futures.Future[Any] | None:
        """Schedule work on the client's event loop; None while it has none."""
        with self._lock:
            if self._loop is not None:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        return None

    @property
    def _own_thread(self) -> bool:
        return self._thread is not None and threading.current_thread() is self._thread

    def _require_other_thread(self, work: Work) -> None:
        if self._own_thread:
            work.close()
            raise SetupError("this would block the client's own thread: call it outside of notification handlers")

    def _wait(self, work: Work) -> Any:
        self._require_other_thread(work)
        future = self._scheduled(work)
        if future is None:
            raise NotConnected(f"the client is not connected ({self._client.phase}): use `with SyncClient(...)`")
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _each(self, items: AsyncIterator[Any]) -> Iterator[Any]:
        while True:
            more, item = self._wait(_next(items))
            if not more:
                return
            yield item

    @contextmanager
    def subscribe(self, uri: str) -> Iterator[Iterator[str]]:
        """Hear of a resource's changes; the iterator blocks until the next one."""
        changes = self._client.subscribe(uri)
        self._wait(changes.__aenter__())
        try:
            yield self._until_closed(self._each(changes))
        finally:
            with suppress(NotConnected):
                self._wait(changes.__aexit__(None, None, None))

    def _until_closed(self, items: Iterator[Any]) -> Iterator[Any]:
        """A stream of a client that another thread has closed is at its end."""
        with suppress(NotConnected):
            yield from items

    @contextmanager
    def batch(self, *, timeout: float | None = None) -> Iterator[SyncBatch]:
        """Send several requests as one array when the block ends, and wait for all of them."""
        collected = SyncBatch()
        yield collected
        self._wait(collected.send(self._client, timeout))

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._client, name)
        if not inspect.ismethod(attribute):
            return attribute

        def call(*args: object, **named: object) -> Any:
            value = self._called(attribute, args, named)
            if isinstance(value, Task):
                return SyncTask(value, self._wait, self._each)
            if inspect.isasyncgen(value):
                return self._each(value)
            return value

        return call

    def _called(self, method: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Call a method on the client's event loop, or right here while it has none."""
        if self._loop is not None and not self._own_thread:
            return self._wait(_awaited(method, args, options))
        value = method(*args, **options)
        if inspect.iscoroutine(value):
            return self._wait(value)
        return value


class SyncTask:
    """A task whose methods block until they are done."""

    def __init__(
        self,
        task: Task,
        wait: Callable[[Work], Any],
        each: Callable[[AsyncIterator[Any]], Iterator[Any]],
    ) -> None:
        self._task = task
        self._wait = wait
        self._each = each
        self.id = task.id

    def status(self) -> TaskState:
        """Look how the task stands."""
        return self._wait(self._task.status())  # type: ignore[no-any-return]

    def result(
        self, *, timeout: float | None = None, on_progress: ProgressHandler | None = None, raise_on_error: bool = True
    ) -> CallToolResult:
        """Wait for the end of the task, and give its result."""
        result = self._task.result(timeout=timeout, on_progress=on_progress, raise_on_error=raise_on_error)
        return self._wait(result)  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Ask the server to end the task."""
        self._wait(self._task.cancel())

    def __iter__(self) -> Iterator[TaskState]:
        return self._each(aiter(self._task))


class SyncBatch:
    """Collects requests; what `request` gives holds the result once the block has ended."""

    def __init__(self) -> None:
        self._requests: list[tuple[str, dict[str, Any] | None, concurrent.futures.Future[Any]]] = []
        self._notices: list[tuple[str, dict[str, Any] | None]] = []

    @property
    def count(self) -> int:
        """How many requests the batch holds."""
        return len(self._requests)

    def request(self, method: str, params: dict[str, Any] | None = None) -> concurrent.futures.Future[Any]:
        """Add a request."""
        future: concurrent.futures.Future[Any] = concurrent.futures.Future()
        self._requests.append((method, params, future))
        return future

    def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Add a notification."""
        self._notices.append((method, params))

    async def send(self, client: Client, timeout: float | None) -> None:
        """Send what was collected, and settle every future."""
        async with client.batch(timeout=timeout) as batch:
            waiting = [batch.request(method, params) for method, params, _ in self._requests]
            for method, params in self._notices:
                batch.notify(method, params)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        for (_, _, future), result in zip(self._requests, results, strict=True):
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)


async def _awaited(method: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    value = method(*args, **options)
    if inspect.iscoroutine(value):
        return await value
    return value


async def _next(items: AsyncIterator[Any]) -> tuple[bool, Any]:
    try:
        return True, await anext(items)
    except StopAsyncIteration:
        return False, None


def _result_in_spite_of_ctrl_c(future: concurrent.futures.Future[object]) -> None:
    """Wait for something that takes no longer than a few seconds and must not be left half done."""
    interrupt: KeyboardInterrupt | None = None
    while True:
        try:
            future.result()
        except KeyboardInterrupt as pressed:
            interrupt = pressed
        else:
            break
    if interrupt is not None:
        raise interrupt


def _run_loop(started: concurrent.futures.Future[asyncio.AbstractEventLoop]) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    started.set_result(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(_end_tasks(asyncio.all_tasks(loop)))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def _end_tasks(tasks: set[asyncio.Task[object]]) -> None:
    """Let what a Ctrl-C has cancelled end in order, a child process included; then end the rest."""
    if tasks:
        await asyncio.wait(tasks, timeout=GRACE)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks, timeout=GRACE)
