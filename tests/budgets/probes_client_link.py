"""Probes of how long a client waits for its server, and of how much it lets a server ask and list."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any
from unittest import mock

import msgspec
from lasting import lasts_longer
from msgspec import Raw
from table import no_bound, period, probe

from ferrule import Client, Reconnect
from ferrule.client.features import requests, task_watch
from ferrule.client.link.conversation import Conversation
from ferrule.client.link.era_memory import EraMemory
from ferrule.client.link.inbox import Inbox
from ferrule.errors import HeaderMismatch, InvalidAnswer
from ferrule.protocol.call import Note
from ferrule.protocol.session import Phase
from ferrule.supervision.scope import Scope

DISCOVERED = Raw(b'{"supportedVersions":["2026-07-28"],"capabilities":{"tools":{},"resources":{"subscribe":true}}}')

Answer = Callable[[dict[str, Any]], Raw | None]


def nothing(request: dict[str, Any]) -> None:
    """Answer no request."""


class Scripted:
    """A server in this process that answers as it is told, and is silent where that returns None."""

    def __init__(self, answer: Answer = nothing) -> None:
        self._answer = answer
        self.channel: Any = None

    async def enter(self) -> None: ...

    async def leave(self) -> None: ...

    async def drain(self, grace: float) -> None: ...

    def link(self, origin: Any) -> Scripted:
        return self

    def channel_opened(self, channel: Any) -> None:
        self.channel = channel

    def frame_received(self, frame: bytes, channel: Any) -> None:
        request = msgspec.json.decode(frame)
        if "id" in request:
            answer = self._answer(request)
            if answer is not None:
                channel.send(Raw(b'{"jsonrpc":"2.0","id":%d,"result":%b}' % (request["id"], answer)))

    def frame_refused(self, max_size: int, channel: Any, head: bytes = b"") -> None: ...

    def end_received(self, channel: Any) -> None: ...

    def channel_lost(self, channel: Any, error: Exception | None) -> None: ...


def introduced(request: dict[str, Any]) -> Raw | None:
    """Answer what opens a conversation, and nothing else."""
    if request["method"] == "server/discover":
        return DISCOVERED
    return None


async def asks(ask: Callable[[Client], Any], seconds: float, answer: Answer = introduced, **options: Any) -> bool:
    """Return whether a client still waits for the answer to a question after so many seconds."""
    client = Client(Scripted(answer), mode="stateless", **options)
    await client.connect()
    still = await lasts_longer(ask(client), seconds)
    await client.close(0.0)
    return still


async def connects(seconds: float, **options: Any) -> bool:
    """Return whether a client still waits for its server to open the conversation after so many seconds."""
    return await lasts_longer(Client(Scripted(), **options).connect(), seconds)


@period("Client(tool_timeout=…)", lowered=30.0)
async def a_tool(lasts: float, seconds: float) -> bool:
    return await asks(lambda client: client.call_tool("t"), seconds, tool_timeout=lasts)


@period("Client(request_timeout=…)", lowered=5.0)
async def a_request(lasts: float, seconds: float) -> bool:
    return await asks(lambda client: client.list_tools(), seconds, request_timeout=lasts)


@period("Client(max_request_time=…)", lowered=20.0)
async def a_call_with_progress(lasts: float, seconds: float) -> bool:
    server = Scripted(introduced)
    client = Client(server, mode="stateless", tool_timeout=5.0, max_request_time=lasts, probe_on_timeout=False)
    await client.connect()

    async def tell() -> None:
        for number in range(int(2 * lasts)):
            await asyncio.sleep(1.0)
            params = b'{"progressToken":2,"progress":%d}' % number
            server.channel.send(Raw(b'{"jsonrpc":"2.0","method":"notifications/progress","params":%b}' % params))

    telling = asyncio.ensure_future(tell())
    still = await lasts_longer(client.call_tool("t", on_progress=lambda done, total, message: None), seconds)
    telling.cancel()
    await client.close(0.0)
    return still


@period("ferrule.client.link.negotiation.PATIENCE")
async def the_handshake(lasts: float, seconds: float) -> bool:
    return await connects(seconds, mode="handshake")


@period("ferrule.client.link.negotiation.CHILD_PATIENCE")
async def the_handshake_of_a_child(lasts: float, seconds: float) -> bool:
    client = Client(["sh", "-c", "cat >/dev/null"], mode="handshake", reconnect=False)
    connecting = asyncio.ensure_future(client.connect())
    await asyncio.sleep(seconds)
    still = client.phase is Phase.INITIALIZING  # once it is not, the child has its own time to end
    await client.close(0.0)
    await asyncio.gather(connecting, return_exceptions=True)
    return still


@period("Client(probe_timeout=…)", lowered=5.0)
async def the_probe(lasts: float, seconds: float) -> bool:
    return await connects(seconds, mode="stateless", probe_timeout=lasts)


@period("Client(ping_timeout=…)", lowered=5.0)
async def a_ping(lasts: float, seconds: float) -> bool:
    opened: list[bool] = []

    def once(request: dict[str, Any]) -> Raw | None:
        opened.append(True)
        return DISCOVERED if len(opened) == 1 else None

    return await asks(lambda client: client.ping(), seconds, once, ping_timeout=lasts)


@period("ferrule.client.features.subscription.PATIENCE")
async def an_acknowledgement(lasts: float, seconds: float) -> bool:
    return await asks(lambda client: client.subscribe_resource("a://b"), seconds)


@period("Client.close(drain=…)", lowered=5.0)
async def the_end(lasts: float, seconds: float) -> bool:
    client = Client(Scripted(introduced), mode="stateless", request_timeout=None)
    await client.connect()
    asking = asyncio.ensure_future(client.list_tools())
    await asyncio.sleep(0)
    still = await lasts_longer(client.close(lasts), seconds)
    await client.close(0.0)
    await asyncio.gather(asking, return_exceptions=True)
    return still


class Deaf(asyncio.Protocol):
    """A server over TCP that opens the conversation and reads nothing after that."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: Any = transport

    def data_received(self, data: bytes) -> None:
        identity = msgspec.json.decode(data)["id"]
        self.transport.write(b'{"jsonrpc":"2.0","id":%d,"result":%b}\n' % (identity, DISCOVERED))
        self.transport.pause_reading()


@period("ferrule.client.link.link.GRACE")
async def the_other_end(lasts: float, seconds: float) -> bool:
    """A server that takes nothing of what a client has sent before it is closed."""
    made: list[Deaf] = []

    def make() -> Deaf:
        made.append(Deaf())
        return made[-1]

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(make, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    client = Client(f"tcp://127.0.0.1:{port}", mode="stateless", reconnect=False)
    await client.connect()
    calling = asyncio.ensure_future(client.call_tool("t", {"text": "x" * 8_000_000}))
    await asyncio.sleep(0.01)
    still = await lasts_longer(client.close(0.0), seconds)
    calling.cancel()
    made[0].transport.abort()
    listening.close()
    await asyncio.gather(calling, return_exceptions=True)
    return still


@period("ferrule.client.link.era_memory.LASTS")
async def a_known_era(lasts: float, seconds: float) -> bool:
    memory = EraMemory(clock=asyncio.get_running_loop().time)
    memory.remember("a")
    await asyncio.sleep(seconds)
    return memory.is_handshake("a")


@probe("Inbox(limit=…)", lowered=100, clamps=True)
async def notifications(limit: int, size: int) -> bool:
    inbox = Inbox(limit=limit)
    inbox.on("n", lambda params: None)
    scope = Scope(asyncio.get_running_loop())
    for _ in range(size):
        inbox.receive(Note("n", Raw(b"{}"), None, None), scope)  # type: ignore[arg-type]
    kept = len(inbox._waiting)
    await scope.close()
    return kept == size


@probe("ferrule.client.features.requests.MAX_PAGES", lowered=10)
async def pages(limit: int, size: int) -> bool:
    def page(request: dict[str, Any]) -> Raw:
        if request["method"] == "server/discover":
            return DISCOVERED
        number = int(request["params"].get("cursor", 1))
        if number == size:
            return Raw(b'{"tools":[]}')
        return Raw(b'{"tools":[],"nextCursor":"%d"}' % (number + 1))

    with mock.patch.object(requests, "MAX_PAGES", limit):
        async with Client(Scripted(page), mode="stateless") as client:
            try:
                await client.list_tools()
            except InvalidAnswer as refusal:
                return "pages" not in str(refusal)
    return True


@probe("ferrule.client.link.conversation.MAX_FRESH_PAGES", clamps=True)
async def pages_read_again(limit: int, size: int) -> bool:
    """A server that refuses a call for its headers, and has so many pages of tools."""
    read = 0

    def answer(request: dict[str, Any]) -> Raw | None:
        nonlocal read
        if request["method"] == "server/discover":
            return DISCOVERED
        if request["method"] == "tools/list":
            read += 1
            return Raw(b'{"tools":[]}') if read == size else Raw(b'{"tools":[],"nextCursor":"%d"}' % read)
        if read:
            return Raw(b'{"content":[]}')
        error = b'{"code":%d,"message":"headers"}' % HeaderMismatch.code
        server.channel.send(Raw(b'{"jsonrpc":"2.0","id":%d,"error":%b}' % (request["id"], error)))
        return None

    server = Scripted(answer)
    # Only HTTP repeats arguments in headers; that is all that is not there in memory.
    with mock.patch.object(Conversation, "mirrors", True):
        async with Client(server, mode="stateless") as client:
            await client.call_tool("t")
    return read == size


@probe("Reconnect(max_attempts=…)", lowered=4)
async def attempts(limit: int, size: int) -> bool:
    """A lost server that is there again at an attempt of that number."""
    reached = 0

    class Rare(Scripted):
        def link(self, origin: Any) -> Scripted:
            nonlocal reached
            reached += 1
            if 1 < reached <= size:
                raise ConnectionRefusedError("not yet")
            return self

    async def skip(delay: float) -> None: ...

    server = Rare(introduced)
    plan = Reconnect(max_attempts=limit, sleep=skip)
    told: list[str] = []
    async with Client(server, mode="stateless", reconnect=plan) as client:
        client.on_connection(lambda notice: told.append(notice.what))
        server.channel.close()
        while not {"restored", "gave_up"} & set(told):
            await asyncio.sleep(0)
    return told[-1] == "restored"


@probe("ferrule.client.features.task_watch.MOST_ASKED", lowered=20)
async def questions_of_a_task(limit: int, size: int) -> bool:
    """A task that asks one new question at each look, and names the one before it again."""
    looks = 0

    def work(request: dict[str, Any]) -> Raw | None:
        nonlocal looks
        task: dict[str, Any] = {"resultType": "task", "taskId": "t", "status": "working", "pollIntervalMs": 1}
        if request["method"] == "server/discover":
            return DISCOVERED
        if request["method"] == "tasks/get":
            looks += 1
            question = {"method": "roots/list"}
            task["status"] = "input_required"
            task["inputRequests"] = {str(number): question for number in (looks - 1, looks) if number}
        if looks > size:
            task = {**task, "status": "completed", "result": {"content": []}}
        if request["method"] == "tasks/update":
            return Raw(b"{}")
        return Raw(msgspec.json.encode(task))

    with mock.patch.object(task_watch, "MOST_ASKED", limit):
        async with Client(Scripted(work), mode="stateless", tasks=True, roots=["/"]) as client:
            try:
                await client.call_tool("t")
            except InvalidAnswer:
                return False
    return True


OWN_PAUSE = "our own pause before a server is asked or reached again: the server neither sends nor holds anything by it"

no_bound("ferrule.client.link.conversation.FIRST_PAUSE", OWN_PAUSE)
no_bound("ferrule.client.link.conversation.LONGEST_PAUSE", OWN_PAUSE)
no_bound("Reconnect(first_delay=…)", OWN_PAUSE)
no_bound("Reconnect(factor=…)", "the factor of " + OWN_PAUSE)
no_bound("Reconnect(longest_delay=…)", OWN_PAUSE)
no_bound("Reconnect(jitter=…)", "the part of chance in " + OWN_PAUSE)
