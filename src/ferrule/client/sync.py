"""The client for scripts and notebooks: the same methods, blocking."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import Any

from ferrule.client.client import Client
from ferrule.errors import NotConnected


class SyncClient:
    """A Client that runs in a thread of its own; every method of Client blocks until it is done."""

    def __init__(self, target: Any, **options: Any) -> None:
        self._target = target
        self._options = options
        self._client: Client | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> SyncClient:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def connect(self) -> None:
        """Reach the server."""
        started: Future[asyncio.AbstractEventLoop] = Future()
        self._thread = threading.Thread(target=_run_loop, args=(started,), name="ferrule-client", daemon=True)
        self._thread.start()
        self._loop = started.result()
        try:
            self._client = self._wait(_made(self._target, self._options))
        except BaseException:
            self._stop()
            raise

    def close(self) -> None:
        """End the conversation; harmless when called again."""
        if self._client is not None:
            client, self._client = self._client, None
            try:
                self._wait(client.close())
            finally:
                self._stop()

    def _stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop = self._thread = None

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        if self._loop is None:
            work.close()
            raise NotConnected("the client is not connected: use `with SyncClient(...)`")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    @contextmanager
    def subscribe(self, uri: str) -> Iterator[Iterator[str]]:
        """Hear of a resource's changes; the iterator blocks until the next one."""
        changes = self._open().subscribe(uri)
        self._wait(changes.__aenter__())

        def each() -> Iterator[str]:
            while True:
                try:
                    yield self._wait(_next(changes))
                except StopIteration:
                    return

        try:
            yield each()
        finally:
            self._wait(changes.__aexit__(None, None, None))

    def _open(self) -> Client:
        if self._client is None:
            raise NotConnected("the client is not connected: use `with SyncClient(...)`")
        return self._client

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._open(), name)
        if inspect.iscoroutinefunction(attribute):
            return lambda *args, **kwargs: self._wait(attribute(*args, **kwargs))
        if inspect.isasyncgenfunction(attribute):
            return lambda *args, **kwargs: iter(self._wait(_gathered(attribute(*args, **kwargs))))
        return attribute


async def _made(target: Any, options: dict[str, Any]) -> Client:
    client = Client(target, **options)
    await client.connect()
    return client


async def _next(changes: Any) -> str:
    try:
        uri: str = await changes.__anext__()
    except StopAsyncIteration:
        raise RuntimeError("the subscription ended") from None
    return uri


async def _gathered(items: Any) -> list[Any]:
    return [item async for item in items]


def _run_loop(started: Future[asyncio.AbstractEventLoop]) -> None:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    started.set_result(loop)
    try:
        loop.run_forever()
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()
