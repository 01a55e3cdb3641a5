"""Probes of GraphQL: of what a document may ask for, and of what operations may run and hold at once."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from graphql import ExecutionResult
from table import no_bound, period, probe

from ferrule import Graphql, Server
from ferrule.budgets.account import Account
from ferrule.budgets.weight import weight
from ferrule.transports.graphql import endpoint as endpoint_module
from ferrule.transports.graphql import measure
from ferrule.transports.graphql.endpoint import GraphqlEndpoint
from ferrule.transports.graphql.errors import PARSE_FAILED, TOO_COMPLEX
from ferrule.transports.graphql.operation import MAX_ERRORS, Payload, Refused, prepare, written
from ferrule.transports.graphql.requests import Reply, Requests
from ferrule.transports.graphql.settings import GraphqlSettings
from ferrule.transports.graphql.socket import OperationSocket
from ferrule.transports.http.endpoint.guard import Guard
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.messages import Success

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports" / "websocket"))

from raw_websocket import RawWebSocket, opening, serving

MUCH = 10**9
HANG = 'mutation {callTool(name: "hang") {isError}}'


# -- documents


def complaints(document: str, **settings: int) -> list[str]:
    """Return the codes of what is wrong with a document, none where it may run."""
    allowed = {"max_document_length": MUCH, "max_tokens": MUCH, "max_aliases": MUCH, "max_cost": MUCH, **settings}
    try:
        prepare(Payload(document), GraphqlSettings(**allowed))
    except Refused as refused:
        return [str(error["extensions"]["code"]) for error in refused.errors]
    return []


@probe("GraphqlSettings(max_document_length=…)", lowered=16_384)
async def a_long_document(limit: int, size: int) -> bool:
    return complaints("{__typename}".ljust(size), max_document_length=limit) == []


@probe("GraphqlSettings(max_tokens=…)", lowered=100)
async def tokens(limit: int, size: int) -> bool:
    with mock.patch.object(measure, "MAX_REPEATS", MUCH):
        return complaints("{" + "__typename " * (size - 2) + "}", max_tokens=limit) == []


@probe("GraphqlSettings(max_depth=…)", lowered=15)
async def depth(limit: int, size: int) -> bool:
    """Fields that the schema does not have: what is wrong with them is found later."""
    found = complaints("{a" * size + "}" * size, max_depth=limit)
    return TOO_COMPLEX not in found and PARSE_FAILED not in found


@probe("GraphqlSettings(max_aliases=…)", lowered=5)
async def aliases(limit: int, size: int) -> bool:
    return complaints("{" + " ".join(f"a{n}:__typename" for n in range(size)) + "}", max_aliases=limit) == []


@probe("GraphqlSettings(max_cost=…)", lowered=300)
async def cost(limit: int, size: int) -> bool:
    """A page of tools with one field costs a field for itself, one for its items, and a hundred for those."""
    lists, fields = divmod(size, 102)
    document = [f"a{n}:tools{{items{{name}}}}" for n in range(lists)] + [f"b{n}:__typename" for n in range(fields)]
    with mock.patch.object(measure, "MAX_REPEATS", MUCH):
        return complaints("{" + " ".join(document) + "}", max_cost=limit) == []


@probe("ferrule.transports.graphql.measure.MAX_REPEATS", lowered=10)
async def repeats(limit: int, size: int) -> bool:
    with mock.patch.object(measure, "MAX_REPEATS", limit):
        return complaints("{" + "__typename " * size + "}") == []


@probe("ferrule.transports.graphql.operation.MAX_ERRORS", clamps=True)
async def errors(limit: int, size: int) -> bool:
    """Of a document, and of its variables; one more says that there are more."""
    assert limit == MAX_ERRORS
    reported = {len(complaints("{" + " ".join(f"a{n}" for n in range(size)) + "}"))}
    document = "subscription ($uris: [String!]!) {resourceUpdated(uris: $uris) {uri}}"
    operation = prepare(Payload(document, {"uris": [1] * size}), GraphqlSettings())
    result = await operation.subscribe(mock.Mock())
    assert isinstance(result, ExecutionResult)
    reported.add(len(result.errors or ()))
    assert reported <= {size, limit + 1}
    return reported == {size} and size <= limit


@probe("ferrule.transports.graphql.endpoint.MAX_FIELDS")
async def names_of_a_query(limit: int, size: int) -> bool:
    query = "&".join(["query={__typename}", *["a=b"] * (size - 1)])
    async with endpoint() as asked:
        _, answer = await asked.ask(HttpRequest("GET", "/graphql", query, {b"host": b"127.0.0.1"}))
    return b'"errors"' not in answer


# -- requests


class Way:
    """The way back of a request: keeps the answer."""

    def __init__(self) -> None:
        self.answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        self.answer.set_result((status, body))

    def watch(self, gone: Any) -> None: ...


class Asked:
    """An endpoint in this process, and how it is asked."""

    def __init__(self, app: Server, made: GraphqlEndpoint) -> None:
        self.app = app
        self.made = made

    def start(self, request: HttpRequest) -> Way:
        way = Way()
        self.made.handle(request, way)  # type: ignore[arg-type]
        return way

    async def ask(self, request: HttpRequest) -> tuple[int, bytes]:
        return await self.start(request).answer

    def requests(self) -> Requests:
        return Requests(self.made._backend, self.made._origin(HttpRequest("GET", "/", "", {})))


@asynccontextmanager
async def endpoint(**settings: int) -> AsyncIterator[Asked]:
    app = Server("s", keepalive_interval=None)

    @app.tool
    async def hang() -> str:
        await asyncio.Event().wait()
        return ""

    @app.resource("a://{name}")
    async def note(name: str) -> str:
        return name

    await app.enter()
    made = GraphqlEndpoint(app.host, GraphqlSettings(**settings), Guard(EndpointSettings(), "127.0.0.1"))
    try:
        yield Asked(app, made)
    finally:
        await made.close(0.0)
        await app.leave()


def posted(document: str, size: int = 0) -> HttpRequest:
    """Write a request whose body has so many bytes."""
    body = json.dumps({"query": document, "x": ""}).encode()
    body = body.replace(b'""', b'"%b"' % (b"x" * (size - len(body))))
    headers = {b"content-type": b"application/json", b"host": b"127.0.0.1"}
    return HttpRequest("POST", "/graphql", "", headers, body)


@probe("GraphqlSettings(max_body_size=…)", lowered=2000)
async def sizes(limit: int, size: int) -> bool:
    """A request, an answer, and the answers of the fields of one operation together; WebSockets have a probe."""
    async with endpoint(max_body_size=limit) as asked:
        taken = {(await asked.ask(posted("{__typename}", size)))[0] == 200}
    answer = {"data": "x" * (size - len('{"data":""}'))}
    taken.add(b"limit" not in written(answer, limit))
    answers = Account("answers", limit)
    for part in (1000, size - 1000):
        reply = Reply(MUCH, answers)
        reply.send(Success(1, {"x": "x" * (part - len('{"jsonrpc":"2.0","id":1,"result":{"x":""}}'))}))
    taken.add(reply.answer.exception() is None)
    assert len(taken) == 1
    return taken.pop()


@probe("GraphqlSettings(max_operations=…)", lowered=5)
async def operations(limit: int, size: int) -> bool:
    async with endpoint(max_operations=limit) as asked:
        for _ in range(size):
            way = asked.start(posted(HANG))
            if way.answer.done():
                return way.answer.result()[0] != 503
    return True


@probe("ferrule.transports.graphql.endpoint.MAX_RUNNING", lowered=100_000)
async def bytes_of_operations(limit: int, size: int) -> bool:
    """Two requests that are estimated to take so much together."""
    with mock.patch.object(endpoint_module, "MAX_RUNNING", limit):
        async with endpoint() as asked:
            least = weight(posted(HANG, 20_000).body)
            first = posted(HANG, 10_000 + (size - least) % 2)
            second = posted(HANG, 20_000 + (size - least - weight(first.body)) // 2)
            assert weight(first.body) + weight(second.body) == size
            ways = [asked.start(first), asked.start(second)]
            return not any(way.answer.done() for way in ways)


# -- WebSockets


@probe("GraphqlSettings(max_websockets=…)", lowered=4)
async def websockets(limit: int, size: int) -> bool:
    async with serving(kind=Graphql, max_websockets=limit) as listener:
        for _ in range(size):
            peer = await RawWebSocket.connect(listener)
            if await peer.ask(opening("/graphql", Sec_WebSocket_Protocol="graphql-transport-ws")) == 503:
                return False
    return True


@probe("GraphqlSettings(max_subscriptions=…)", lowered=5)
async def operations_of_a_websocket(limit: int, size: int) -> bool:
    channel = mock.Mock()
    async with endpoint() as asked:
        settings = GraphqlSettings(max_subscriptions=limit)
        speaking = OperationSocket(settings, asked.requests, Account("held", MUCH))
        speaking.channel_opened(channel)
        speaking.frame_received(b'{"type":"connection_init"}', channel)
        for number in range(size):
            message = {"type": "subscribe", "id": str(number), "payload": {"query": HANG}}
            speaking.frame_received(json.dumps(message).encode(), channel)
            if b'"error"' in channel.send_text.call_args.args[0]:
                break
        refused = b'"error"' in channel.send_text.call_args.args[0]
        speaking.channel_lost(channel, None)
    return not refused


@period("GraphqlSettings(init_timeout=…)", lowered=10.0)
async def a_silent_websocket(lasts: float, seconds: float) -> bool:
    async with serving(kind=Graphql, init_timeout=lasts) as listener:
        peer = await RawWebSocket.open(listener, opening("/graphql", Sec_WebSocket_Protocol="graphql-transport-ws"))
        closed = asyncio.ensure_future(peer.closed_with())
        await asyncio.wait([closed], timeout=seconds)
        still = not closed.done()
        closed.cancel()
    return still


@probe("ferrule.transports.graphql.requests.MOST_HELD", clamps=True)
async def events(limit: int, size: int) -> bool:
    """So many resources change, and the subscriber reads none of it."""
    uris = [f"a://{n}" for n in range(min(size, 2 * limit))]
    async with endpoint() as asked:
        told = await asked.requests().listen({"resourceSubscriptions": uris})
        for uri in uris:
            asked.app.notify_resource_updated(uri)
        await asyncio.sleep(0.01)
        held = len(told._held)
        told.end()
    return held == size


ESTIMATE = "a factor of the cost of a document, which has a probe"

no_bound("GraphqlSettings(port=…)", "the port that is listened on")
no_bound("ferrule.transports.graphql.measure.PAGE_SIZE", ESTIMATE)
no_bound("ferrule.transports.graphql.measure.LIST_SIZE", ESTIMATE)
