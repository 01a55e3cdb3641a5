"""A client that uses everything a server offers, in whichever revision it speaks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import traffic_app
from traffic_record import EXTENSION, R2, R5

from ferrule import Client
from ferrule.errors import FerruleError, Refusal, ToolError
from ferrule.schema.content import TextContent, ToolUseContent
from ferrule.schema.model import Icon
from ferrule.schema.roots import Root
from ferrule.schema.sampling import CreateMessageResult
from ferrule.testing import Recorder

PATIENCE = 30.0
CANCELLED = "notifications/cancelled"
LIST_CHANGES = tuple(f"notifications/{kind}/list_changed" for kind in ("tools", "prompts", "resources"))
ICONS = [Icon(src="data:image/png;base64,aGVsbG8=")]

FORM_ANSWERS = {
    "Fill in": {"mail": "a@example.com", "ratio": 1.25, "count": 2, "colour": "g"},
    "Choose": {"titled": ["x", "y"], "old": "p"},
    "Who?": {"name": "Ada", "age": 36},
    "When?": {"value": "later"},
    "Your name?": {"value": "Ada"},
    "May I?": {},
}


@dataclass
class Stage:
    """The client, and what is heard of it."""

    client: Client
    recorder: Recorder
    revision: str

    @property
    def stateless(self) -> bool:
        """Whether this revision has no sessions."""
        return self.revision == R5

    async def until(self, happened: Callable[[], Any], what: str) -> None:
        """Wait for something to be said."""
        try:
            async with asyncio.timeout(PATIENCE):
                while not happened():
                    await asyncio.sleep(0.005)
        except TimeoutError:
            raise AssertionError(f"{self.revision}: waited in vain for {what}") from None

    async def until_heard(self, method: str, times: int = 1) -> None:
        """Wait for a message of the server's."""
        await self.until(lambda: len(self.recorder.sent("server", method)) >= times, method)


async def sampling(params: Any) -> Any:
    """Answer as a model would."""
    if "wait for ever" in str(params.messages):
        await asyncio.sleep(60)
    if "refuse this" in str(params.messages):
        raise Refusal("User rejected sampling request", code=-1)
    if params.tools:
        use = ToolUseContent("use-2", "weather", {"city": "Bonn"}, traffic_app.META)
        return CreateMessageResult(
            role="assistant", content=[use], model="m-1", stop_reason="toolUse", meta=traffic_app.META
        )
    said = TextContent("said", annotations=traffic_app.HINTS, meta=traffic_app.META)
    content = [said] if params.include_context == "thisServer" else said
    return CreateMessageResult(
        role="assistant", content=content, model="m-1", stop_reason="endTurn", meta=traffic_app.META
    )


async def elicitation(params: Any) -> Any:
    """Answer as a person would."""
    return FORM_ANSWERS.get(params.message, "decline")


async def url_elicitation(params: Any) -> str:
    """Agree to visit the page."""
    return "accept"


def make_client(recorder: Recorder, revision: str) -> Client:
    """Make the client that can answer everything."""
    return Client(
        recorder,
        mode="stateless" if revision == R5 else "handshake",
        protocol_version=revision,
        sampling=sampling,
        sampling_tools=True,
        sampling_context=True,
        elicitation=elicitation,
        url_elicitation=url_elicitation,
        roots=[Root(uri="file:///work", name="work", meta=traffic_app.META), Path("/tmp")],
        log_level="debug" if revision == R5 else None,
        request_timeout=PATIENCE,
        tool_timeout=PATIENCE,
    )


@contextlib.asynccontextmanager
async def opened(recorder: Recorder, revision: str) -> AsyncIterator[Stage]:
    """Open the conversation, hear of everything, and close it."""
    client = make_client(recorder, revision)
    client.on_log(lambda *_: None)
    async with client:
        yield Stage(client, recorder, revision)


async def tried(work: Awaitable[Any]) -> None:
    """Do what may be refused or fail: what matters is what is said."""
    with contextlib.suppress(FerruleError, ToolError):
        await work


async def look_around(stage: Stage) -> None:
    """List everything, in pages."""
    client = stage.client
    await client.ping()
    for listing in (client.list_tools, client.list_resources, client.list_resource_templates, client.list_prompts):
        await listing()
    await tried(client.request("tools/list", {"cursor": "bm9uc2Vuc2U="}))
    await client.request(EXTENSION)


async def call_tools(stage: Stage) -> None:
    """Call every tool that asks nothing of the client."""
    call = stage.client.call_tool
    await call("add", {"a": 1, "b": 2}, meta=traffic_app.META)
    for name in ("person", "blocks", "nothing", "marked", "numbers", "given"):
        await call(name)
    for name in ("fail", "crash", "late", "unwritable", "no_such_tool"):
        await tried(call(name))
    await tried(call("add", {"a": "one"}))
    for kind in traffic_app.refusals():
        await tried(call("refuse", {"kind": kind.__name__}))


async def hear_notices(stage: Stage) -> None:
    """Let tools tell how far they are and what they log."""
    told: list[Any] = []
    await stage.client.call_tool("progress", on_progress=lambda *progress: told.append(progress))
    if not stage.stateless:
        await stage.client.set_log_level("debug")
    await stage.client.call_tool("log")
    await stage.until_heard("notifications/message", len(traffic_app.LOG_LEVELS) + 2)


async def be_asked(stage: Stage) -> None:
    """Let tools, prompts and resources ask the client."""
    asking = ("form", "choices", "typed", "yes", "url", "model", "model_refused", "model_with_tools")
    for what in (*asking, "model_with_context", "roots", "everything"):
        await tried(stage.client.call_tool(f"ask_{what}"))
    await tried(stage.client.get_prompt("asking_prompt"))
    await tried(stage.client.read_resource("traffic://asking"))


async def read(stage: Stage) -> None:
    """Read resources of every kind, and some that are none."""
    for place in (traffic_app.COUNTER, "traffic://bytes", "traffic://parts", "traffic://items/3", "traffic://notes/n"):
        await stage.client.read_resource(place)
    for place in ("traffic://gone", "traffic://broken", "traffic://items/three"):
        await tried(stage.client.read_resource(place))


async def prompt_and_complete(stage: Stage) -> None:
    """Get prompts and complete their arguments."""
    client = stage.client
    await client.get_prompt("show", {"style": "plain"})
    await client.get_prompt("greet", {"name": "Ada", "tone": "casual"})
    for name, arguments in (
        ("greet", {}),
        ("greet", {"name": "A", "tone": "rude"}),
        ("gone", {}),
        ("broken_prompt", {}),
    ):
        await tried(client.get_prompt(name, arguments))
    typed = {"name": "style", "value": "s"}
    await tried(client.complete("show", typed))
    await tried(client.complete("traffic://items/{id}", {"name": "id", "value": ""}, context={"other": "1"}))
    await tried(client.complete({"type": "ref/prompt", "name": "show", "title": "Show"}, typed))
    await tried(client.complete("gone", typed))


async def follow_changes(stage: Stage) -> None:
    """Subscribe, hear of changes of a resource and of the lists, and unsubscribe."""
    client = stage.client
    async with client.subscribe(traffic_app.COUNTER) as changes:
        await client.watch_lists("tools", "prompts", "resources")
        for tool in ("touch", "touch_with_note"):
            await client.call_tool(tool)
            await asyncio.wait_for(anext(changes), PATIENCE)
        await client.call_tool("grow")
        for method in LIST_CHANGES:
            await stage.until_heard(method)
        await client.call_tool("shrink")
        for method in LIST_CHANGES:
            await stage.until_heard(method, 2)
    await tried(client.subscribe_resource("traffic://gone"))


async def give_up(stage: Stage) -> None:
    """Cancel calls in each way a client has: by its id, by its task, by time."""
    client = stage.client
    await cancelling(stage, lambda call: client.cancel(running(client)[0].id, "not wanted any more"))
    await cancelling(stage, stop)
    await tried(client.call_tool("wait", timeout=0.05))


async def cancelling(stage: Stage, cancel: Callable[[asyncio.Task[Any]], Awaitable[Any]]) -> None:
    """Call a tool that never ends, cancel it, and wait until the server is told."""
    before = len(stage.recorder.sent("client", CANCELLED))
    call = asyncio.create_task(stage.client.call_tool("wait"))
    await stage.until(lambda: running(stage.client), "the call")
    await cancel(call)
    await asyncio.gather(call, return_exceptions=True)
    await stage.until(lambda: len(stage.recorder.sent("client", CANCELLED)) > before, CANCELLED)


def running(client: Client) -> list[Any]:
    """Return the tool calls that are not answered yet."""
    return [awaited for awaited in client.pending if awaited.method == "tools/call"]


async def stop(call: asyncio.Task[Any]) -> None:
    """Cancel the caller itself."""
    call.cancel()


async def give_up_while_asked(stage: Stage) -> None:
    """Cancel a call whose server waits for an answer: the server then cancels its own question."""
    if stage.stateless:
        return
    question = "sampling/createMessage"
    before = len(stage.recorder.sent("server", question))
    waiting = asyncio.create_task(stage.client.call_tool("ask_forever"))
    await stage.until_heard(question, before + 1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await stage.until_heard(CANCELLED)


async def move(stage: Stage) -> None:
    """Change the roots."""
    await stage.client.add_root("file:///elsewhere", "elsewhere")
    await stage.client.remove_root("file:///elsewhere")


async def send_arrays(stage: Stage) -> None:
    """Send requests and a notice as one array, where that exists."""
    if stage.revision != R2:
        return
    async with stage.client.batch() as batch:
        futures = [batch.request("tools/list"), batch.request("tools/call", {"name": "add", "arguments": {}})]
        batch.notify("notifications/roots/list_changed")
    await asyncio.gather(*futures, return_exceptions=True)


async def be_pinged(stage: Stage) -> None:
    """Wait for the server's own ping."""
    if not stage.stateless:
        await stage.until_heard("ping")


STEPS = (
    look_around,
    call_tools,
    hear_notices,
    be_asked,
    read,
    prompt_and_complete,
    follow_changes,
    give_up,
    give_up_while_asked,
    move,
    send_arrays,
    be_pinged,
)


async def exercise(stage: Stage) -> None:
    """Do everything."""
    for step in STEPS:
        await step(stage)
