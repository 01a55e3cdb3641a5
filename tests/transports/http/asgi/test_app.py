"""The ASGI app: when it starts and ends, what it reads, and which paths it answers; driven as a server drives it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import pytest

from ferrule import Server, Tcp
from ferrule.budgets import process
from ferrule.errors import SetupError
from ferrule.transports.http.heads import TEXT_HEAD
from ferrule.transports.http.message import HttpRequest, Responder

BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
HEADERS = {"host": "example.com", "content-type": "application/json", "accept": BOTH}


def rpc(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()


def stateless(tool: str, **arguments: Any) -> tuple[bytes, dict[str, str]]:
    """Return body and headers of a call in the stateless era."""
    named = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool}
    return rpc("tools/call", {"name": tool, "arguments": arguments, "_meta": META}), {**HEADERS, **named}


class Visit:
    """One request, as a server hands it to an app; what the app sends is written down."""

    def __init__(self, *parts: bytes, method: str = "POST", path: str = "/mcp", **more: Any) -> None:
        headers = more.pop("headers", HEADERS)
        pairs = headers if isinstance(headers, list) else headers.items()
        self.scope = {
            "type": "http",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in pairs],
            "client": ("203.0.113.9", 4711),
            "scheme": "http",
            **more,
        }
        self._parts = list(parts or [b""])
        self.sent: list[Any] = []
        self.reads = 0
        self.left = asyncio.Event()

    async def receive(self) -> Any:
        self.reads += 1
        if self._parts and not self.left.is_set():
            part = self._parts.pop(0)
            return {"type": "http.request", "body": part, "more_body": bool(self._parts)}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def send(self, event: Any) -> None:
        self.sent.append(event)

    async def to(self, app: Any) -> Visit:
        """Make the request."""
        await app(self.scope, self.receive, self.send)
        return self

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[bytes, bytes]:
        return dict(self.sent[0]["headers"])

    @property
    def body(self) -> bytes:
        return b"".join(event["body"] for event in self.sent[1:])

    @property
    def result(self) -> Any:
        return json.loads(self.body)["result"]


def a_call(tool: str = "add", **more: Any) -> Visit:
    """Make the visit of a stateless call."""
    body, headers = stateless(tool, **(more.pop("arguments", None) or {"a": 1, "b": 2}))
    return Visit(body, headers=headers, **more)


class Lifespan:
    """The lifespan of an app, as a server drives it."""

    def __init__(self, app: Any) -> None:
        self._events: asyncio.Queue[Any] = asyncio.Queue()
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self._task = asyncio.create_task(app({"type": "lifespan"}, self._events.get, self._told.put))

    async def say(self, what: str) -> Any:
        """Tell the app of its start or end, and give what it answers."""
        await self._events.put({"type": f"lifespan.{what}"})
        told = await self._told.get()
        if told["type"] != "lifespan.startup.complete":
            await self._task
        return told


class Workshop(Server):
    """A server with two tools that notes when it starts and stops."""

    def __init__(self) -> None:
        super().__init__("workshop", lifespan=self._life)
        self.diary: list[str] = []
        self.fails = ""
        self.tool(self.add)
        self.add_tool("rest", self.rest)

    @asynccontextmanager
    async def _life(self, server: Server) -> AsyncIterator[None]:
        if self.fails == "start":
            raise OSError("no database")
        await asyncio.sleep(0)
        self.diary.append("started")
        yield
        self.diary.append("stopped")
        if self.fails == "stop":
            raise OSError("no farewell")

    async def add(self, a: int, b: int) -> int:
        return a + b

    async def rest(self, seconds: float) -> str:
        await asyncio.sleep(seconds)
        self.diary.append("rested")
        return "rested"


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


# -- when it starts and ends


async def test_many_first_requests_at_once_start_it_once(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    visits = await asyncio.gather(*(a_call().to(mcp) for _ in range(20)))
    assert [visit.result["structuredContent"] for visit in visits] == [{"result": 3}] * 20
    assert workshop.diary == ["started"]


async def test_stopping_the_listeners_beside_it_waits_for_none_of_its_calls(workshop: Workshop) -> None:
    """The application it lives in ends it; a listener that is closed beside it is not the last."""
    mcp, ready = workshop.asgi(), asyncio.Event()
    resting, begun = asyncio.Event(), asyncio.Event()

    @workshop.tool
    async def nap() -> str:
        begun.set()
        await resting.wait()
        return "slept"

    await mcp.start()
    body, headers = stateless("nap")
    asked = asyncio.create_task(Visit(body, headers=headers).to(mcp))
    await begun.wait()
    for _ in range(2):
        ready.clear()
        served = asyncio.create_task(workshop.serve(Tcp(port=0), ready=ready.set))
        await ready.wait()
        await asyncio.wait_for(workshop.stop(600), 60)
        await served
    assert not asked.done()
    assert (await a_call().to(mcp)).result["structuredContent"] == {"result": 3}
    resting.set()
    assert (await asked).result["structuredContent"] == {"result": "slept"}
    await mcp.stop()
    assert workshop.diary == ["started", "stopped"]


def test_it_starts_again_in_another_event_loop(workshop: Workshop) -> None:
    mcp = workshop.asgi()

    async def ask() -> Any:
        return (await a_call().to(mcp)).result["structuredContent"]

    assert [asyncio.run(ask()) for _ in range(3)] == [{"result": 3}] * 3
    assert workshop.diary == ["started", "stopped"] * 3


def test_it_starts_again_after_a_loop_that_was_closed_in_the_middle(workshop: Workshop) -> None:
    mcp = workshop.asgi()

    async def ask() -> Any:
        return (await a_call().to(mcp)).result["structuredContent"]

    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(ask()) == {"result": 3}
    left_behind = asyncio.all_tasks(loop)
    loop.close()
    assert asyncio.run(ask()) == {"result": 3}
    assert workshop.diary == ["started", "stopped", "started", "stopped"]
    for task in left_behind:
        # That they never end is what this test is about, and nothing to warn of.
        task._log_destroy_pending = False  # type: ignore[attr-defined]


async def test_two_event_loops_cannot_run_it_at_once(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    await a_call().to(mcp)
    errors: list[BaseException] = []

    def elsewhere() -> None:
        try:
            asyncio.run(a_call().to(mcp))
        except SetupError as error:
            errors.append(error)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    await asyncio.to_thread(thread.join)
    assert "one event loop at a time" in str(errors[0])
    assert (await a_call().to(mcp)).status == 200


async def test_a_start_that_fails_is_tried_again_by_the_next_request(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    workshop.fails = "start"
    errors = await asyncio.gather(*(a_call().to(mcp) for _ in range(3)), return_exceptions=True)
    assert [str(error) for error in errors] == ["no database"] * 3
    workshop.fails = ""
    assert (await a_call().to(mcp)).status == 200


async def test_a_first_request_that_is_cancelled_does_not_stop_the_start(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    first = asyncio.create_task(a_call().to(mcp))
    second = asyncio.create_task(a_call().to(mcp))
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).status == 200


async def test_a_lifespan_starts_it_before_any_request(workshop: Workshop) -> None:
    lifespan = Lifespan(workshop.asgi())
    assert await lifespan.say("startup") == {"type": "lifespan.startup.complete"}
    assert workshop.diary == ["started"]
    assert await lifespan.say("shutdown") == {"type": "lifespan.shutdown.complete"}
    assert workshop.diary == ["started", "stopped"]


async def test_a_lifespan_says_why_it_cannot_start(workshop: Workshop) -> None:
    workshop.fails = "start"
    told = await Lifespan(workshop.asgi()).say("startup")
    assert told == {"type": "lifespan.startup.failed", "message": "no database"}


async def test_a_lifespan_says_what_went_wrong_at_the_end(workshop: Workshop) -> None:
    workshop.fails = "stop"
    lifespan = Lifespan(workshop.asgi())
    await lifespan.say("startup")
    assert await lifespan.say("shutdown") == {"type": "lifespan.shutdown.failed", "message": "no farewell"}


@pytest.mark.usefixtures("virtual_time")
async def test_the_end_waits_for_running_calls_and_sends_readers_away(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    lifespan = Lifespan(mcp)
    await lifespan.say("startup")
    session = {**HEADERS, "mcp-session-id": await open_session(mcp)}
    resting = asyncio.create_task(a_call("rest", arguments={"seconds": 1.5}).to(mcp))
    reading = asyncio.create_task(Visit(method="GET", headers=session).to(mcp))
    await asyncio.sleep(0.1)
    await lifespan.say("shutdown")
    assert workshop.diary == ["started", "rested", "stopped"]
    assert (await resting).result["structuredContent"] == {"result": "rested"}
    assert (await reading).sent[-1]["more_body"] is False


@pytest.mark.usefixtures("virtual_time")
async def test_a_call_that_outlasts_the_grace_is_answered_with_an_error(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    lifespan = Lifespan(mcp)
    await lifespan.say("startup")
    resting = asyncio.create_task(a_call("rest", arguments={"seconds": 600}).to(mcp))
    await asyncio.sleep(0.5)
    await lifespan.say("shutdown")
    assert asyncio.get_running_loop().time() < 10
    assert b"stopped before this call was done" in (await resting).body


async def test_after_the_end_requests_are_refused_until_a_lifespan_begins_anew(workshop: Workshop) -> None:
    mcp = workshop.asgi(health=True)
    for _ in range(2):
        lifespan = Lifespan(mcp)
        await lifespan.say("startup")
        assert (await a_call().to(mcp)).status == 200
        await lifespan.say("shutdown")
        assert (await a_call().to(mcp)).status == 503
        assert (await Visit(method="GET", path="/readyz").to(mcp)).status == 503
    assert workshop.diary == ["started", "stopped"] * 2


async def test_a_client_that_leaves_ends_its_call_but_none_of_a_session(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    own = a_call("rest", arguments={"seconds": 30})
    params = {"name": "rest", "arguments": {"seconds": 0.5}}
    in_session = Visit(rpc("tools/call", params), headers={**HEADERS, "mcp-session-id": await open_session(mcp)})
    running = [asyncio.create_task(visit.to(mcp)) for visit in (own, in_session)]
    await asyncio.sleep(0.05)
    for visit in (own, in_session):
        visit.left.set()
    await asyncio.gather(*running)
    assert workshop.diary == ["started", "rested"]


async def open_session(mcp: Any) -> str:
    """Make the handshake, and give the id of the session."""
    visit = await Visit(rpc("initialize", INITIALIZE)).to(mcp)
    identity = visit.headers[b"mcp-session-id"].decode()
    note = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}).encode()
    assert (await Visit(note, headers={**HEADERS, "mcp-session-id": identity}).to(mcp)).status == 202
    return identity


# -- what it is asked


async def test_a_websocket_is_closed_before_it_is_accepted(workshop: Workshop) -> None:
    visit = Visit()
    await workshop.asgi()({"type": "websocket", "path": "/mcp"}, visit.receive, visit.send)
    assert (visit.reads, [event["type"] for event in visit.sent]) == (1, ["websocket.close"])


async def test_what_is_neither_http_nor_lifespan_is_an_error(workshop: Workshop) -> None:
    visit = Visit()
    with pytest.raises(SetupError, match="not carrier-pigeon"):
        await workshop.asgi()({"type": "carrier-pigeon"}, visit.receive, visit.send)


def test_an_option_of_the_engine_is_none_of_an_app(workshop: Workshop) -> None:
    with pytest.raises(SetupError, match="unknown option 'port'; instead of port="):
        workshop.asgi(port=8000)


@pytest.mark.parametrize(
    ("own", "root", "path", "status"),
    [
        ("/mcp", "", "/mcp", 200),
        ("/mcp", "/tools", "/tools/mcp", 200),
        ("/mcp", "/tools", "/mcp", 200),
        ("/mcp", "/tools/", "/tools/mcp", 200),
        ("/mcp", "/tools", "/toolsmcp", 404),
        ("/mcp", "/tools", "/tools", 404),
        ("/mcp", "", "/", 404),
        ("/mcp", "", "/mcp/mcp", 404),
        ("/mcp", "/mcp", "/mcp/mcp", 200),
        ("/mcp", "/mcp", "/mcp/", 200),
        ("/mcp", "/mcp", "/mcp", 200),
        ("/mcp", "/api/mcp", "/api/mcp/", 200),
        ("/mcp", "/xmcp", "/xmcp/", 404),
        ("/", "", "/", 200),
        ("/", "", "", 200),
        ("/", "/tools", "/tools", 200),
        ("/", "/tools", "/tools/", 200),
        ("/", "/tools", "/tools/else", 404),
        ("/", "", "/mcp", 404),
        ("/a/b", "", "/a/b", 200),
        ("/a/b", "/a", "/a/b", 404),
    ],
)
async def test_the_path_counts_from_where_it_is_mounted(
    workshop: Workshop, own: str, root: str, path: str, status: int
) -> None:
    visit = await a_call(path=path, root_path=root).to(workshop.asgi(path=own))
    assert visit.status == status


async def test_a_request_is_handed_on_as_the_doors_know_it(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    await a_call().to(mcp)
    seen: list[HttpRequest] = []

    def route(request: HttpRequest, responder: Responder) -> None:
        seen.append(request)
        responder.reply(200, TEXT_HEAD)

    mcp._stay.endpoint.routes["/caf%C3%A9%25/x"] = route
    headers = [("host", "example.com"), ("x-twice", " one"), ("x-twice", "two ")]
    await Visit(
        b"half ",
        b"and half",
        method="PUT",
        path="/café%/x",
        query_string=b"a=%20b",
        scheme="https",
        headers=headers,
    ).to(mcp)
    (request,) = seen
    assert (request.method, request.path, request.query) == ("PUT", "/caf%C3%A9%25/x", "a=%20b")
    assert request.headers == {b"host": b"example.com", b"x-twice": b"one, two"}
    assert (request.body, request.address, request.secure) == (b"half and half", "203.0.113.9", True)


async def test_a_server_that_knows_no_client_is_fine(workshop: Workshop) -> None:
    assert (await a_call(client=None).to(workshop.asgi())).status == 200


async def test_a_body_in_many_parts_is_read_whole(workshop: Workshop) -> None:
    body, headers = stateless("add", a=1, b=2)
    visit = Visit(*(body[n : n + 1] for n in range(len(body))), headers=headers)
    assert (await visit.to(workshop.asgi())).result["structuredContent"] == {"result": 3}


async def test_a_body_announced_over_the_limit_is_refused_unread(workshop: Workshop) -> None:
    visit = Visit(bytes(1025), headers={**HEADERS, "content-length": "1025"})
    await visit.to(workshop.asgi(max_body_size=1024))
    assert (visit.status, visit.reads) == (413, 0)


async def test_a_body_that_grows_over_the_limit_is_read_no_further(workshop: Workshop) -> None:
    visit = Visit(*[bytes(600)] * 100)
    await visit.to(workshop.asgi(max_body_size=1024))
    assert (visit.status, visit.reads) == (413, 2)


class Trickle(Visit):
    """A request whose body begins and does not end."""

    async def receive(self) -> Any:
        if not self._parts:
            await self.left.wait()
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": self._parts.pop(0), "more_body": True}


async def test_bodies_that_are_being_read_are_on_one_account(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for which there is no room is answered 503; whatever becomes of a body, nothing of it stays counted."""
    monkeypatch.setattr("ferrule.transports.http.asgi.app.MAX_READING", 1000)
    app, before = workshop.asgi(), process.requests.held
    await app.start()
    slow = Trickle(b"x" * 600)
    reading = asyncio.ensure_future(slow.to(app))
    await asyncio.sleep(0.01)
    assert process.requests.held == before + 600
    refused = await Visit(b"x" * 300, b"x" * 300).to(app)
    assert (refused.status, refused.headers[b"retry-after"]) == (503, b"1")
    assert (await a_call().to(app)).status == 200, "one that comes whole needs no room"
    assert process.requests.held == before + 600
    slow.left.set()
    await reading
    assert (slow.sent, process.requests.held) == ([], before)
    body, headers = stateless("add", a=1, b=2)
    assert (await Visit(body[:9], body[9:], headers=headers).to(app)).result["structuredContent"] == {"result": 3}
    assert process.requests.held == before
    await app.stop()


async def test_a_client_that_leaves_in_the_middle_of_its_request_is_not_answered(workshop: Workshop) -> None:
    visit = Visit(b"{", b"}")
    visit.left.set()
    await visit.to(workshop.asgi())
    assert visit.sent == []


@pytest.mark.parametrize(("hosts", "status"), [({}, 200), ({"allowed_hosts": ("other.example",)}, 403)])
async def test_any_host_is_served_unless_some_are_named(workshop: Workshop, hosts: Any, status: int) -> None:
    assert (await a_call().to(workshop.asgi(**hosts))).status == status


async def test_head_and_options_are_answered_by_the_doors(workshop: Workshop) -> None:
    mcp = workshop.asgi()
    head, options = [await Visit(method=method).to(mcp) for method in ("HEAD", "OPTIONS")]
    assert (head.status, head.body) == (405, b"")
    assert int(head.headers[b"content-length"]) > 0
    assert (options.status, b"content-length" in options.headers) == (204, False)
    assert b"POST" in options.headers[b"allow"]


# -- inside Starlette and FastAPI


@contextmanager
def asked_by(api: Any, *, lifespan: bool) -> Iterator[Any]:
    """Yield Starlette's own client; without a lifespan each of its requests has an event loop of its own."""
    client = pytest.importorskip("starlette.testclient", reason="starlette is not installed").TestClient(api)
    if lifespan:
        with client:
            yield client
    else:
        yield client


@pytest.mark.parametrize("lifespan", [True, False])
def test_the_test_client_of_starlette_works(workshop: Workshop, lifespan: bool) -> None:
    with asked_by(workshop.asgi(), lifespan=lifespan) as client:
        for _ in range(3):
            body, headers = stateless("add", a=1, b=2)
            answer = client.post("/mcp", content=body, headers=headers)
            assert answer.json()["result"]["structuredContent"] == {"result": 3}
    assert workshop.diary == ["started", "stopped"] * (1 if lifespan else 3)


def test_a_session_lives_as_long_as_the_test_client(workshop: Workshop) -> None:
    with asked_by(workshop.asgi(), lifespan=True) as client:
        opened = client.post("/mcp", content=rpc("initialize", INITIALIZE), headers=HEADERS)
        session = {**HEADERS, "mcp-session-id": opened.headers["mcp-session-id"]}
        params = {"name": "add", "arguments": {"a": 1, "b": 2}}
        answer = client.post("/mcp", content=rpc("tools/call", params), headers=session)
        assert answer.json()["result"]["structuredContent"] == {"result": 3}


def test_an_application_around_it_can_hand_its_lifespan_on(workshop: Workshop) -> None:
    fastapi = pytest.importorskip("fastapi", reason="fastapi is not installed")
    mcp = workshop.asgi()
    api = fastapi.FastAPI(lifespan=mcp.lifespan)
    api.mount("/tools", mcp)
    with asked_by(api, lifespan=True) as client:
        assert workshop.diary == ["started"]
        body, headers = stateless("add", a=1, b=2)
        assert client.post("/tools/mcp", content=body, headers=headers).status_code == 200
    assert workshop.diary == ["started", "stopped"]


@pytest.mark.parametrize("place", ["/mcp", "/mcp/"])
def test_mounted_at_its_own_path_it_answers_there(workshop: Workshop, place: str) -> None:
    """Starlette itself sends the one without the slash to the other."""
    fastapi = pytest.importorskip("fastapi", reason="fastapi is not installed")
    api = fastapi.FastAPI()
    api.mount("/mcp", workshop.asgi())
    with asked_by(api, lifespan=True) as client:
        body, headers = stateless("add", a=1, b=2)
        assert client.post(place, content=body, headers=headers).json()["result"]["structuredContent"] == {"result": 3}


def test_a_middleware_that_wraps_responses_sees_it_like_any_app(workshop: Workshop) -> None:
    fastapi = pytest.importorskip("fastapi", reason="fastapi is not installed")
    api = fastapi.FastAPI()

    @api.middleware("http")
    async def mark(request: Any, proceed: Any) -> Any:
        response = await proceed(request)
        response.headers["x-marked"] = "yes"
        return response

    api.mount("/", workshop.asgi(response="sse"))
    with asked_by(api, lifespan=True) as client:
        body, headers = stateless("rest", seconds=0.3)
        answer = client.post("/mcp", content=body, headers=headers)
    assert (answer.headers["x-marked"], answer.headers["content-type"]) == ("yes", "text/event-stream")
    assert '"rested"' in answer.text
