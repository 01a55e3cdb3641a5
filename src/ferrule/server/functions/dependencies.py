"""Dependencies: the values of a handler's providers, made before it runs and tidied up after.

The order in which providers run is settled when the handler is registered: a call walks a list. A handler and
providers that are all plain functions run together in one thread, so that what belongs to a thread can be provided.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterator, Mapping
from typing import Any

from msgspec import Struct, structs

from ferrule.errors import SetupError
from ferrule.server.functions.depends import Dependency
from ferrule.server.functions.signatures import Signature, probe, read_provider

Plain = Callable[[Callable[[], Any]], Awaitable[Any]]
"""Runs a plain function somewhere and returns its value."""

InThread = Callable[[], Plain]
"""Makes what runs the plain functions of one handler in threads."""

UNNAMED_CONTEXT = "context of the providers"
"""The parameter by which a handler without a context gets one for its providers; no caller can spell it."""


class ProviderKind(Struct, frozen=True, kw_only=True):
    """How the value of a provider is made."""

    make: Callable[..., Any]
    """What to call: the provider itself, or the context manager its generator makes."""
    is_async: bool
    """Whether the value, or the entry of its context manager, is awaited."""
    is_manager: bool
    wraps_async: bool = False
    """Whether it is a plain function around a coroutine function: what it returns may have to be awaited."""


class Step(Struct, frozen=True, kw_only=True):
    """One provider in the order of a handler's providers, and where its own parameters come from."""

    make: Callable[..., Any]
    is_async: bool
    is_manager: bool
    wraps_async: bool
    inline: bool
    sources: dict[str, int]
    context_parameter: str | None

    def arguments(self, values: list[Any], context: Any) -> dict[str, Any]:
        """Return what the provider is called with."""
        given = {name: values[number] for name, number in self.sources.items()}
        if self.context_parameter is not None:
            given[self.context_parameter] = context
        return given

    def enter(self, stack: contextlib.ExitStack, values: list[Any], context: Any) -> Any:
        """Make the value of a plain provider here and now."""
        made = self.make(**self.arguments(values, context))
        if self.is_manager:
            return stack.enter_context(made)
        return made

    async def enter_async(self, stack: contextlib.AsyncExitStack, values: list[Any], context: Any, plain: Plain) -> Any:
        """Make the value of any provider."""
        given = self.arguments(values, context)
        if self.is_async:
            made = self.make(**given)
            if self.is_manager:
                return await stack.enter_async_context(made)
            return await made
        run = _here if self.inline else plain
        if not self.is_manager:
            value = await run(lambda: self.make(**given))
            if self.wraps_async and isinstance(value, Coroutine):
                return await value
            return value
        entry = ProviderInThread(self.make(**given))
        stack.push_async_exit(lambda *exc: entry.leave(run, exc))
        return await run(entry.enter)


class ProviderInThread:
    """One plain provider that is entered in a thread; left there too if its caller is gone before it was entered."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager
        self._lock = threading.Lock()
        self._entered = self._given_up = False

    def enter(self) -> Any:
        """Enter it; blocks."""
        value = self._manager.__enter__()
        with self._lock:
            self._entered = not self._given_up
        if self._given_up:
            # A thread cannot be stopped: what it has opened for a caller that was cancelled is closed here.
            gone = asyncio.CancelledError()
            self._manager.__exit__(type(gone), gone, None)
        return value

    async def leave(self, run: Plain, exc: tuple[Any, ...]) -> Any:
        """Leave it, now or when it turns out to have been entered."""
        with self._lock:
            self._given_up = not self._entered
        if self._entered:
            return await run(lambda: self._manager.__exit__(*exc))
        return None


class Plan:
    """The providers of one handler, each after those it needs."""

    def __init__(self, handler: str, dependencies: Mapping[str, Dependency], context_type: type | None) -> None:
        self.steps: list[Step] = []
        self._context_type = context_type
        self._numbers: dict[Any, int] = {}
        self.sources = {name: self._number_of(wish, (f"{handler}()",), ()) for name, wish in dependencies.items()}
        self.is_async = any(step.is_async or step.wraps_async for step in self.steps)
        self.wants_context = any(step.context_parameter is not None for step in self.steps)

    def _number_of(self, wish: Dependency, names: tuple[str, ...], chain: tuple[Any, ...]) -> int:
        """Return the number of the step that makes what is wished for; a new one if there is none to share."""
        provider = wish.provider
        key = _key(wish.provider)
        needs = read_provider(provider, self._context_type, " → ".join(names))
        names = (*names, f"{needs.name}()")
        if key in chain:
            raise SetupError(f"these providers need each other: {' → '.join(names)}")
        if needs.unfilled:
            raise SetupError(
                f"{' → '.join(names)}: nothing fills the parameter {needs.unfilled[0]!r}:"
                " give it a default, a Depends(...) or the type Context"
            )
        if wish.use_cache and key in self._numbers:
            return self._numbers[key]
        sources = {}
        for name, inner in needs.dependencies.items():
            sources[name] = self._number_of(inner, names, (*chain, key))
        kind = _kind_of(provider)
        step = Step(
            make=kind.make,
            is_async=kind.is_async,
            is_manager=kind.is_manager,
            wraps_async=kind.wraps_async,
            inline=wish.inline,
            sources=sources,
            context_parameter=needs.context_parameter,
        )
        self.steps.append(step)
        number = len(self.steps) - 1
        if wish.use_cache:
            self._numbers[key] = number
        return number

    @contextlib.contextmanager
    def provided(self, context: Any) -> Iterator[dict[str, Any]]:
        """Hold the values of plain providers."""
        with contextlib.ExitStack() as stack:
            values: list[Any] = []
            for step in self.steps:
                values.append(step.enter(stack, values, context))
            yield {name: values[number] for name, number in self.sources.items()}

    @contextlib.asynccontextmanager
    async def provided_async(self, context: Any, plain: Plain) -> AsyncIterator[dict[str, Any]]:
        """Hold the values of providers of any kind."""
        async with contextlib.AsyncExitStack() as stack:
            values: list[Any] = []
            for step in self.steps:
                values.append(await step.enter_async(stack, values, context, plain))
            yield {name: values[number] for name, number in self.sources.items()}


def injected(signature: Signature, context_type: type | None, in_thread: InThread | None) -> Signature:
    """Return a handler that finds its dependencies by itself: to a caller it looks as if it had none.

    `in_thread` makes what runs plain functions in threads; without it, everything runs in the event loop.
    """
    plan = Plan(signature.name, signature.dependencies, context_type)
    if signature.is_generator and plan.is_async:
        raise SetupError(f"{signature.name}(): a generator with an asynchronous provider must be an `async def`")
    plain = _here if in_thread is None else in_thread()
    names_context = signature.context_parameter is None and plan.wants_context
    taken = UNNAMED_CONTEXT if names_context else signature.context_parameter
    invoke = _invocation(signature, UNNAMED_CONTEXT if names_context else None)
    runs_in_loop = signature.is_async or signature.is_async_generator or signature.wraps_async or plan.is_async
    if signature.is_async_generator:
        fn = _streaming(invoke, plan, taken, plain)
    elif signature.is_generator:
        fn = _streaming_directly(invoke, plan, taken)
    elif runs_in_loop:
        fn = _waiting(invoke, plan, taken, plain, is_async=signature.is_async)
    else:
        fn = _direct(invoke, plan, taken)
    return structs.replace(
        signature,
        fn=fn,
        is_async=runs_in_loop and not signature.is_async_generator,
        context_parameter=taken,
        positional=(),
        dependencies={},
        wraps_async=False,
    )


def _invocation(signature: Signature, dropped: str | None) -> Callable[[dict[str, Any], dict[str, Any]], Any]:
    """Return what calls the handler itself with the caller's values and the providers'."""
    fn = signature.fn
    positional = signature.positional

    def invoke(given: dict[str, Any], provided: dict[str, Any]) -> Any:
        given = {**given, **provided}
        given.pop(dropped, None)  # type: ignore[arg-type]  # nothing is named None
        return fn(*list(map(given.pop, positional)), **given)

    return invoke


def _direct(invoke: Any, plan: Plan, taken: str | None) -> Callable[..., Any]:
    def call(**given: Any) -> Any:
        failure: BaseException | None = None
        with plan.provided(given.get(taken or "")) as provided:
            try:
                return invoke(given, provided)
            except BaseException as error:
                failure = error
                raise
        # A provider may tidy up after an error; that the call failed is not its to hide.
        raise failure

    return call


def _waiting(invoke: Any, plan: Plan, taken: str | None, plain: Plain, *, is_async: bool) -> Callable[..., Any]:
    async def call(**given: Any) -> Any:
        failure: BaseException | None = None
        async with plan.provided_async(given.get(taken or ""), plain) as provided:
            try:
                if is_async:
                    return await invoke(given, provided)
                value = await _whole(plain, lambda: invoke(given, provided))
                if isinstance(value, Coroutine):
                    return await value
                return value
            except BaseException as error:
                failure = error
                raise
        raise failure

    return call


def _streaming(invoke: Any, plan: Plan, taken: str | None, plain: Plain) -> Callable[..., Any]:
    async def call(**given: Any) -> AsyncIterator[Any]:
        failure: BaseException | None = None
        async with plan.provided_async(given.get(taken or ""), plain) as provided:
            try:
                async with contextlib.aclosing(invoke(given, provided)) as values:
                    async for value in values:
                        yield value
                return
            except BaseException as error:
                failure = error
                raise
        raise failure

    return call


def _streaming_directly(invoke: Any, plan: Plan, taken: str | None) -> Callable[..., Any]:
    def call(**given: Any) -> Generator[Any, Any, Any]:
        failure: BaseException | None = None
        with plan.provided(given.get(taken or "")) as provided:
            try:
                return (yield from invoke(given, provided))
            except BaseException as error:
                failure = error
                raise
        raise failure

    return call


async def _here(work: Callable[[], object]) -> Any:
    return work()


async def _whole(plain: Plain, work: Callable[[], object]) -> Any:
    """Run a plain handler; a cancelled caller waits for its thread, which still uses what the providers gave."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    begun = False

    def watched() -> Any:
        nonlocal begun
        begun = True
        try:
            return work()
        finally:
            loop.call_soon_threadsafe(ended.set)

    try:
        return await plain(watched)
    except asyncio.CancelledError:
        if begun:
            await ended.wait()
        raise


def _kind_of(provider: Any) -> ProviderKind:
    kind = probe(provider)
    if inspect.isasyncgenfunction(kind):
        return ProviderKind(make=contextlib.asynccontextmanager(provider), is_async=True, is_manager=True)
    if inspect.isgeneratorfunction(kind):
        return ProviderKind(make=contextlib.contextmanager(provider), is_async=False, is_manager=True)
    if inspect.iscoroutinefunction(kind):
        return ProviderKind(make=provider, is_async=True, is_manager=False)
    inner = inspect.unwrap(kind) if callable(kind) else kind
    # What contextlib's decorators made of a generator is entered as the generator would be.
    is_async = inspect.isasyncgenfunction(inner)
    is_manager = is_async or (inner is not kind and inspect.isgeneratorfunction(inner))
    wraps_async = inspect.iscoroutinefunction(inner)
    return ProviderKind(make=provider, is_async=is_async, is_manager=is_manager, wraps_async=wraps_async)


def _key(provider: Any) -> Any:
    try:
        hash(provider)
    except TypeError:
        return id(provider)
    return provider
