"""The exercise every Python client runs: each feature once, as a user would, and what was observed.

A client program gives a `Session` over its own SDK; `main` connects it to the server that the command line names,
walks the features and prints one JSON object `{feature: observed value}`. Only the standard library is used here.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import logging
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

FEATURE_SECONDS = 30
ROOT = "file:///tmp"
UNICODE = "naïve 🚀\nsecond\tline \u2028 end"
LARGE = 300_000
PARALLEL = 20
PERSON = {"name": "Ada", "age": 36}


@dataclass
class Target:
    """The server to start or to reach, and how to speak with it: `legacy`, `modern`, or `auto` to find out."""

    command: list[str]
    mode: str
    version: str | None
    url: str | None = None
    """Where the server is reached over HTTP; there is nothing to start then."""


@dataclass
class Called:
    """A tool result, the same for every SDK."""

    text: str
    is_error: bool = False
    structured: Any = None


@dataclass
class Heard:
    """What the client's own handlers received."""

    elicitations: list[dict[str, Any]] = field(default_factory=list)
    samplings: list[dict[str, Any]] = field(default_factory=list)
    logs: list[list[Any]] = field(default_factory=list)
    updates: list[str] = field(default_factory=list)
    tool_changes: list[str] = field(default_factory=list)

    def elicitation(self, message: str, schema: dict[str, Any]) -> dict[str, Any]:
        """Note a form request and give the content to answer with."""
        types = {name: prop.get("type") for name, prop in schema.get("properties", {}).items()}
        self.elicitations.append({"message": message, "fields": types, "required": sorted(schema.get("required", []))})
        return dict(PERSON)

    def sampling(self, messages: list[tuple[str, str]], max_tokens: int) -> str:
        """Note a sampling request and give the model's text."""
        self.samplings.append({"messages": [list(message) for message in messages], "maxTokens": max_tokens})
        return f"model says: {messages[-1][1]}"


class Session:
    """What the exercise needs from one SDK's connected client. Protocol errors are raised as the SDK raises them."""

    heard: Heard

    def protocol_version(self) -> str:
        raise NotImplementedError

    def server(self) -> dict[str, Any]:
        raise NotImplementedError

    async def ping(self) -> None:
        raise NotImplementedError

    async def tool_names(self) -> list[str]:
        raise NotImplementedError

    async def resource_uris(self) -> list[str]:
        raise NotImplementedError

    async def template_uris(self) -> list[str]:
        raise NotImplementedError

    async def prompts(self) -> dict[str, list[str]]:
        raise NotImplementedError

    async def call(self, tool: str, arguments: dict[str, Any], on_progress: Any = None) -> Called:
        raise NotImplementedError

    async def read(self, uri: str) -> dict[str, Any]:
        raise NotImplementedError

    async def prompt(self, name: str, arguments: dict[str, str]) -> list[list[str]]:
        raise NotImplementedError

    async def complete(self, prompt: str, argument: str, value: str) -> list[str]:
        raise NotImplementedError

    async def set_log_level(self, level: str) -> None:
        raise NotImplementedError

    def resource_updates(self, uri: str) -> contextlib.AbstractAsyncContextManager[Any]:
        """While open, updates of `uri` are added to `heard.updates`."""
        raise NotImplementedError

    def tool_changes(self) -> contextlib.AbstractAsyncContextManager[Any]:
        """While open, changes of the tool list are added to `heard.tool_changes`."""
        return contextlib.nullcontext()

    def error_code(self, error: Exception) -> int | None:
        """The JSON-RPC code of an error the SDK raised."""
        raise NotImplementedError

    async def call_and_cancel(self, tool: str, arguments: dict[str, Any]) -> None:
        call = asyncio.create_task(self.call(tool, arguments))
        await asyncio.sleep(0.6)
        call.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await call


async def wait_until(condition: Callable[[], Any], seconds: float = 60) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)


async def code_of(session: Session, request: Awaitable[Any]) -> int | str | None:
    """The error code a request ends with, or `isError` for a tool result that says so."""
    try:
        result = await request
    except Exception as error:
        return session.error_code(error)
    return "isError" if getattr(result, "is_error", False) else None


async def add(session: Session) -> Any:
    called = await session.call("add", {"a": 2, "b": 3})
    return {"text": called.text, "structured": called.structured}


async def echo(session: Session) -> Any:
    return (await session.call("echo", {"text": UNICODE})).text


async def large(session: Session) -> Any:
    return len((await session.call("echo", {"text": "x" * LARGE})).text)


async def parallel(session: Session) -> Any:
    texts = [f"call {number}" for number in range(PARALLEL)]
    results = await asyncio.gather(*(session.call("echo", {"text": text}) for text in texts))
    return [called.text for called in results] == texts


async def unknown_tool(session: Session) -> Any:
    return await code_of(session, session.call("no_such_tool", {}))


async def fail(session: Session) -> Any:
    called = await session.call("fail", {})
    return {"isError": called.is_error, "saysWhy": "deliberate failure" in called.text}


async def progress(session: Session) -> Any:
    values: list[list[float | None]] = []

    async def on_progress(done: float, total: float | None = None, message: str | None = None) -> None:
        values.append([done, total])

    called = await session.call("count", {"n": 3}, on_progress)
    await wait_until(lambda: len(values) >= 3)
    return {"values": values, "result": called.text}


async def cancel(session: Session) -> Any:
    await session.call_and_cancel("slow", {"ms": 60_000})
    for _ in range(300):
        count = (await session.call("cancelled_calls", {})).text
        if count != "0":
            return int(count)
        await asyncio.sleep(0.1)
    return 0


async def elicit(session: Session) -> Any:
    called = await session.call("ask", {})
    return {"answer": called.text, "asked": session.heard.elicitations}


async def sample(session: Session) -> Any:
    called = await session.call("sample", {"prompt": "hi"})
    return {"answer": called.text, "asked": session.heard.samplings}


async def roots(session: Session) -> Any:
    return (await session.call("roots", {})).text


async def read_static(session: Session) -> Any:
    return await session.read("test://static")


async def read_binary(session: Session) -> Any:
    return base64.b64decode((await session.read("test://binary"))["blob"]).hex()


async def read_template(session: Session) -> Any:
    return (await session.read("test://items/42"))["text"]


async def read_missing(session: Session) -> Any:
    return await code_of(session, session.read("test://missing"))


async def prompt(session: Session) -> Any:
    formal = await session.prompt("greet", {"name": "Ada"})
    casual = await session.prompt("greet", {"name": "Ada", "style": "casual"})
    return [*formal, *casual]


async def completion(session: Session) -> Any:
    return [await session.complete("greet", "style", value) for value in ("", "c")]


async def subscribe(session: Session) -> Any:
    async with session.resource_updates("test://counter"):
        await session.call("touch", {})
        await wait_until(lambda: session.heard.updates)
        await asyncio.sleep(0.1)
    return {"updates": session.heard.updates, "read": (await session.read("test://counter"))["text"]}


async def log(session: Session) -> Any:
    await session.set_log_level("info")
    await session.call("log", {"level": "debug", "message": "quiet"})
    await session.call("log", {"level": "warning", "message": "watch out"})
    await wait_until(lambda: session.heard.logs)
    return session.heard.logs


async def list_changed(session: Session) -> Any:
    before = await session.tool_names()
    async with session.tool_changes():
        await session.call("grow", {})
        await wait_until(lambda: session.heard.tool_changes)
    added = sorted(set(await session.tool_names()) - set(before))
    return {"notified": bool(session.heard.tool_changes), "added": added}


async def tools(session: Session) -> Any:
    return sorted(await session.tool_names())


async def resources(session: Session) -> Any:
    return sorted(await session.resource_uris())


async def templates(session: Session) -> Any:
    return sorted(await session.template_uris())


async def prompts(session: Session) -> Any:
    return await session.prompts()


async def protocol(session: Session) -> Any:
    return session.protocol_version()


async def server(session: Session) -> Any:
    return session.server()


async def ping(session: Session) -> Any:
    await session.ping()
    return "pong"


FEATURES: tuple[Callable[[Session], Awaitable[Any]], ...] = (
    protocol,
    server,
    ping,
    tools,
    resources,
    templates,
    prompts,
    add,
    echo,
    large,
    parallel,
    unknown_tool,
    fail,
    progress,
    cancel,
    elicit,
    sample,
    roots,
    read_static,
    read_binary,
    read_template,
    read_missing,
    prompt,
    completion,
    subscribe,
    log,
    list_changed,
)


def one_sentence(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {FEATURE_SECONDS} s"
    return f"{type(error).__name__}: {error}"


async def observe(feature: Callable[[Session], Awaitable[Any]], session: Session) -> Any:
    try:
        async with asyncio.timeout(FEATURE_SECONDS):
            return await feature(session)
    except Exception as error:
        return {"error": one_sentence(error)}


async def exercise(session: Session) -> dict[str, Any]:
    """Walk every feature that exists in this revision: `ping` is gone from the stateless era."""
    left_out = {ping} if session.protocol_version() >= "2026" else set()
    return {feature.__name__: await observe(feature, session) for feature in FEATURES if feature not in left_out}


Connect = Callable[[Target], contextlib.AbstractAsyncContextManager[Session]]


async def connect_and_exercise(connect: Connect, target: Target) -> dict[str, Any]:
    observed: dict[str, Any] = {}
    try:
        async with asyncio.timeout(FEATURE_SECONDS) as connecting, connect(target) as session:
            connecting.reschedule(None)
            observed["connect"] = "connected"
            observed |= await exercise(session)
    except (Exception, asyncio.CancelledError, BaseExceptionGroup) as error:
        observed["connect" if not observed else "close"] = {"error": one_sentence(error)}
    return observed


def parse_target() -> Target:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=("legacy", "modern", "auto"), required=True)
    parser.add_argument("--version", default=None)
    parser.add_argument("--url", default=None)
    parser.add_argument("command", nargs="*")
    options = parser.parse_args()
    if bool(options.command) == bool(options.url):
        parser.error("give the command that starts the server, or the --url of one that runs")
    return Target(options.command, options.mode, options.version, options.url)


def main(connect: Connect) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    observed = asyncio.run(connect_and_exercise(connect, parse_target()))
    json.dump(observed, sys.stdout)


@contextlib.asynccontextmanager
async def collecting(source: AsyncIterator[Any], add_item: Callable[[Any], None]) -> AsyncIterator[None]:
    """Read `source` in the background while the block runs."""

    async def collect() -> None:
        async for item in source:
            add_item(item)

    reader = asyncio.create_task(collect())
    try:
        yield
    finally:
        reader.cancel()
        await asyncio.gather(reader, return_exceptions=True)
