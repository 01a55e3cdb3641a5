"""What belongs to a caller is nobody else's: sessions, streams, tasks, request state, kept results, caches."""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import pytest
from identity_desk import HTTP_WAYS, served
from identity_wire import META, Wire
from protected_desk import TOKENS, ask, asking, bearer, principal, protected, session_headers

from ferrule import ANONYMOUS, Client, Context, Principal, Refusal, Unauthorized
from ferrule.auth.server.static_tokens import StaticTokens
from ferrule.schema.tasks import TASKS_EXTENSION
from ferrule.server.middleware.cache import Caching
from ferrule.testing import ERAS

STRANGERS = ["bob", "ada-elsewhere", "ada-of-another-issuer", "robot"]
"""Another subject, another client of the same subject, the same subject of another issuer, the client alone."""
OTHER_PRINCIPALS = ["bob", "ada-of-another-issuer", "robot"]
"""What outlives a session belongs to (issuer, subject): another client of the same subject is no stranger to it."""
SAME = ["ada", "ada-renewed", "ada-writes"]


@pytest.fixture(params=HTTP_WAYS, ids=" ".join)
def http_way(request: pytest.FixtureRequest) -> tuple[str, str]:
    way, era = request.param
    return way, era


# -- sessions


@pytest.mark.parametrize("stranger", STRANGERS)
@pytest.mark.parametrize("way", ["engine", "asgi"])
async def test_a_session_is_its_principals_and_its_clients(stranger: str, way: str, tmp_path: Path) -> None:
    """SES-03, SES-04, SEC-7: to anybody else it does not exist, in the words for one that never was."""
    app, ran = protected(protection={})
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        session = await wire.session(**bearer("ada"))
        body, own = asking("tools/call", {"name": "whoami", "arguments": {}}, "handshake")
        answers = []
        for identity in (session, "never-was"):
            headers = {**own, **bearer(stranger), "Mcp_Session_Id": identity}
            answers.append(await wire.ask(body, **headers))
            answers.append(await wire.ask(method="GET", **headers))
            answers.append(await wire.ask(method="GET", Last_Event_ID="0-0", **headers))
            answers.append(await wire.ask(method="DELETE", **headers))
        assert [answer.status for answer in answers] == [404] * 8
        assert [answer.body for answer in answers[:4]] == [answer.body for answer in answers[4:]]
        assert ran.names == []
        for token in SAME:
            kept = await wire.ask(body, **{**own, **bearer(token), "Mcp_Session_Id": session})
            assert kept.text == "dev#ada editor"
        assert (await wire.ask(body, Mcp_Session_Id=session, **own)).status == 401
        await wire.close()


@pytest.mark.parametrize("stranger", STRANGERS)
async def test_a_session_of_the_old_pair_is_its_principals_and_its_clients(stranger: str, tmp_path: Path) -> None:
    """SES-03, SES-04."""
    app, _ = protected(protection={})
    async with served(app, "sse", tmp_path) as place:
        wire = await Wire.reach(place.url.removeprefix("sse+"))
        wire.send(method="GET", **bearer("ada"))
        await wire.reader.readuntil(b"session_id=")
        session = await wire.reader.readline()
        path = f"/messages?session_id={session.strip().decode()}"
        other = await Wire.reach(place.url.removeprefix("sse+"))
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        assert (await other.ask(ping, path=path, **bearer(stranger))).status == 404
        assert (await other.ask(ping, path=path, **bearer("ada-renewed"))).status == 202
        await other.close()
        await wire.close()


# -- what outlives a session


def working(**options: Any) -> Any:
    """Make a server with a task, a question and a long result."""
    auth = options.pop("auth", None) or StaticTokens(TOKENS)
    app, ran = protected(auth=auth, result_limit=200, result_policy="spill", **options)

    @app.tool(task=True)
    async def grind() -> str:
        await asyncio.sleep(30)
        return "ground"

    @app.tool
    async def book(ctx: Context) -> str:
        return f"{ctx.principal} row {await ctx.ask('Which row?', int)}"

    @app.tool
    async def long(ctx: Context) -> str:
        return "x" * 5000

    return app, ran


def with_tasks(params: dict[str, Any], era: str) -> dict[str, Any]:
    if era == "handshake":
        return {**params, "task": {"ttl": 60_000}}
    return params


def as_task_client(method: str, params: dict[str, Any], era: str) -> tuple[dict[str, Any], dict[str, str]]:
    body, own = asking(method, params, era)
    if era == "stateless":
        known = {**META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {TASKS_EXTENSION: {}}}}
        body["params"]["_meta"] = known
        if "taskId" in params:
            own["Mcp_Name"] = params["taskId"]
    return body, own


async def ask_as_task_client(wire: Wire, method: str, params: dict[str, Any], era: str, headers: dict[str, str]) -> Any:
    body, own = as_task_client(method, params, era)
    return await wire.ask(body, **{**own, **headers})


def task_of(begun: Any) -> str:
    """Return the id of a task that was begun, in either era."""
    result = begun.json["result"]
    return str(result["task"]["taskId"] if "task" in result else result["taskId"])


@pytest.mark.parametrize("stranger", OTHER_PRINCIPALS)
async def test_a_task_is_its_principals(stranger: str, http_way: tuple[str, str], tmp_path: Path) -> None:
    """SEC-8: a stranger who knows its id is told what whoever makes one up is told."""
    way, era = http_way
    app, _ = working()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        begun = await ask_as_task_client(
            wire, "tools/call", with_tasks({"name": "grind", "arguments": {}}, era), era, headers
        )
        task = task_of(begun)
        others = await session_headers(wire, era, stranger)
        for method in ("tasks/get", "tasks/cancel"):
            stolen = await ask_as_task_client(wire, method, {"taskId": task}, era, others)
            made_up = await ask_as_task_client(wire, method, {"taskId": "made-up"}, era, others)
            assert stolen.status == made_up.status
            assert stolen.json["error"]["code"] == -32602
            assert stolen.json["error"]["message"].replace(task, "made-up") == made_up.json["error"]["message"]
        own = await ask_as_task_client(wire, "tasks/get", {"taskId": task}, era, headers)
        assert "error" not in own.json
        await ask_as_task_client(wire, "tasks/cancel", {"taskId": task}, era, headers)
        await wire.close()


@pytest.mark.parametrize("stranger", OTHER_PRINCIPALS)
@pytest.mark.parametrize("way", ["engine", "asgi"])
async def test_request_state_opens_for_its_principal_only(stranger: str, way: str, tmp_path: Path) -> None:
    """ELIC-13, SEC-8."""
    app, _ = working()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        wire.called(1, "book", "stateless", **bearer("ada"))
        asked = (await wire.read()).json["result"]
        (key,) = asked["inputRequests"]
        retry = {
            "requestState": asked["requestState"],
            "inputResponses": {key: {"action": "accept", "content": {"value": 3}}},
        }
        wire.called(2, "book", "stateless", more=retry, **bearer(stranger))
        assert (await wire.read()).json["error"]["code"] == -32602
        wire.called(3, "book", "stateless", more=retry, **bearer("ada-renewed"))
        assert (await wire.read()).text == "dev#ada row 3"
        await wire.close()


@pytest.mark.parametrize("stranger", OTHER_PRINCIPALS)
async def test_a_kept_result_is_its_principals(stranger: str, http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    app, _ = working()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        answer = await ask(wire, "tools/call", {"name": "long", "arguments": {}}, era, headers)
        (link,) = [part for part in answer.json["result"]["content"] if part["type"] == "resource_link"]
        others = await session_headers(wire, era, stranger)
        stolen = await ask(wire, "resources/read", {"uri": link["uri"]}, era, others)
        assert "error" in stolen.json, stolen.body
        own = await ask(wire, "resources/read", {"uri": link["uri"]}, era, headers)
        assert "x" * 5000 in own.json["result"]["contents"][0]["text"]
        await wire.close()


async def test_a_cache_keeps_callers_apart(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    app, ran = protected(protection={}, middleware=[Caching(tools=["whoami"], ttl=60.0)])
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        for token, key in (("ada", "dev#ada"), ("bob", "dev#bob"), ("ada-of-another-issuer", "other#ada")):
            headers = await session_headers(wire, era, token)
            for _ in range(2):
                answer = await ask(wire, "tools/call", {"name": "whoami", "arguments": {}}, era, headers)
                assert answer.text == f"{key} editor"
        assert len(ran.names) == 3
        await wire.close()


# -- who has no token, where none is needed


class Optional(StaticTokens):
    """Lets everybody in, and knows those who show a token."""

    def verify(self, facts: Any) -> Any:
        if not facts.headers.get("authorization"):
            return ANONYMOUS
        return super().verify(facts)


async def test_with_and_without_a_token_on_one_server_nothing_is_shared(tmp_path: Path) -> None:
    """SES-03: nobody's session is not somebody's, nor the other way round; nor are their tasks."""
    app, _ = working(auth=Optional({"ada": principal("ada"), "bob": principal("bob")}))
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        callers: dict[str, dict[str, str]] = {"ada": bearer("ada"), "bob": bearer("bob"), "nobody": {}}
        sessions = {name: await wire.session(**headers) for name, headers in callers.items()}
        tasks = {}
        for name, headers in callers.items():
            own = {**headers, "Mcp_Session_Id": sessions[name]}
            params = {"name": "grind", "arguments": {}, "task": {"ttl": 60_000}}
            begun = await ask(wire, "tools/call", params, "handshake", own)
            tasks[name] = begun.json["result"]["task"]["taskId"]
        for owner in callers:
            for name, headers in callers.items():
                used = await ask(wire, "ping", {}, "handshake", {**headers, "Mcp_Session_Id": sessions[owner]})
                assert used.status == (200 if name == owner else 404), (owner, name)
                seen = await ask(
                    wire,
                    "tasks/get",
                    {"taskId": tasks[owner]},
                    "handshake",
                    {**headers, "Mcp_Session_Id": sessions[name]},
                )
                assert ("error" in seen.json) == (name != owner), (owner, name, seen.body)
        for name, headers in callers.items():
            own = {**headers, "Mcp_Session_Id": sessions[name]}
            await ask(wire, "tasks/cancel", {"taskId": tasks[name]}, "handshake", own)
        await wire.close()


# -- how long a refusal takes


SAMPLES = 60
ROUNDS = 12
"""How often it is tried: chance differs from round to round, what a lookup tells of an id does not."""


async def medians(wire: Wire, requests: list[tuple[Any, dict[str, str]]]) -> list[float]:
    """Return how long each of some requests takes, asked in turn."""
    took: list[list[float]] = [[] for _ in requests]
    for _ in range(SAMPLES):
        for (body, options), times in zip(requests, took, strict=True):
            begun = time.perf_counter()
            await wire.ask(body, **options)
            times.append(time.perf_counter() - begun)
    return [statistics.median(times) for times in took]


async def are_alike(wire: Wire, *requests: tuple[Any, dict[str, str]]) -> bool:
    """Return whether two requests take as long, within 10 %, by their medians."""
    for _ in range(ROUNDS):
        foreign, unknown = await medians(wire, list(requests))
        if abs(foreign / unknown - 1.0) <= 0.1:
            return True
    return False


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
async def test_a_foreign_session_is_refused_as_fast_as_one_that_never_was(method: str, tmp_path: Path) -> None:
    """SES-03: time does not tell whether an id is somebody's."""
    app, _ = protected(protection={})
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        session = await wire.session(**bearer("ada"))
        body, own = asking("ping", {}, "handshake")
        own |= {**bearer("bob"), "method": method}
        never = session[:-4] + ("aaaa" if session[-4:] != "aaaa" else "bbbb")
        shown = body if method == "POST" else None
        alike = await are_alike(
            wire, (shown, {**own, "Mcp_Session_Id": session}), (shown, {**own, "Mcp_Session_Id": never})
        )
        assert alike
        await wire.close()


async def test_a_foreign_task_is_refused_as_fast_as_one_that_never_was(
    http_way: tuple[str, str], tmp_path: Path
) -> None:
    """SEC-8: nor whether a task is."""
    way, era = http_way
    app, _ = working()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        begun = await ask_as_task_client(
            wire, "tools/call", with_tasks({"name": "grind", "arguments": {}}, era), era, headers
        )
        task = task_of(begun)
        others = await session_headers(wire, era, "bob")
        never = task[:-4] + ("aaaa" if task[-4:] != "aaaa" else "bbbb")
        requests = []
        for identity in (task, never):
            body, own = as_task_client("tasks/get", {"taskId": identity}, era)
            requests.append((body, {**own, **others}))
        assert await are_alike(wire, *requests)
        await ask_as_task_client(wire, "tasks/cancel", {"taskId": task}, era, headers)
        await wire.close()


# -- what ends with a token


@pytest.mark.parametrize("era", ERAS)
async def test_a_remembered_head_does_not_outlive_its_token(era: str, tmp_path: Path) -> None:
    """AUTH-7: the same head on the same connection is let in until the token expires, and not once more."""
    ends = time.time() + 1.5
    app, _ = protected(auth=StaticTokens({"brief": principal("ada", expires=ends)}))
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "brief")
        statuses = []
        while time.time() < ends + 0.3:
            sent = time.time()
            answer = await ask(wire, "tools/call", {"name": "whoami", "arguments": {}}, era, headers)
            if answer.status == 200:
                assert sent < ends
            statuses.append(answer.status)
            await asyncio.sleep(0.02)
        assert (statuses[0], statuses[-1]) == (200, 401)
        assert set(statuses) == {200, 401}
        await wire.close()


@pytest.mark.parametrize("era", ERAS)
async def test_a_websocket_ends_with_its_token(era: str, tmp_path: Path) -> None:
    app, _ = protected(auth=StaticTokens({"brief": principal("ada", expires=time.time() + 1.0)}))
    async with served(app, "websocket", tmp_path) as place:
        client = Client(place.url, mode=era, reconnect=False, headers=bearer("brief"))
        async with client:
            assert (await client.call_tool("whoami")).text == "dev#ada editor"
            await asyncio.sleep(1.3)
            with pytest.raises(Exception, match=r"expired|closed|lost|401|4401"):
                await client.call_tool("whoami")


# -- what is looked at again


class Revocable(StaticTokens):
    """Takes its tokens back, as an issuer does that is asked every minute."""

    recheck = 0.1
    keep = 0.0

    def __init__(self) -> None:
        super().__init__({"ada": principal("ada"), "bob": principal("bob")})
        self.revoked: set[str] = set()
        self.fails = 0
        self.asked = 0

    def verify(self, facts: Any) -> Any:
        self.asked += 1
        if self.fails:
            self.fails -= 1
            return Refusal("Unavailable", status=503)
        verdict = super().verify(facts)
        if isinstance(verdict, Principal) and verdict.subject in self.revoked:
            return Unauthorized("Unauthorized: taken back")
        return verdict


async def is_cut(client: Client) -> bool:
    """Return whether a connection ends within its time."""
    try:
        for _ in range(200):
            await client.call_tool("whoami")
            await asyncio.sleep(0.02)
    except Exception:
        return True
    return False


@pytest.mark.parametrize("way", ["websocket", "asgi websocket"])
async def test_a_websocket_ends_when_its_token_is_taken_back_and_others_do_not(way: str, tmp_path: Path) -> None:
    auth = Revocable()
    app, _ = protected(auth=auth)
    async with served(app, way, tmp_path) as place:
        ada = Client(place.url, reconnect=False, headers=bearer("ada"))
        bob = Client(place.url, reconnect=False, headers=bearer("bob"))
        async with ada, bob:
            begun = auth.asked
            while auth.asked < begun + 4:
                await asyncio.sleep(0.02)
            assert (await ada.call_tool("whoami")).text == "dev#ada editor"
            auth.revoked.add("ada")
            assert await is_cut(ada)
            assert (await bob.call_tool("whoami")).text == "dev#bob editor"


async def test_one_failed_look_is_made_again_before_a_connection_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.transports.verification.RECHECK_PAUSE", 0.05)
    auth = Revocable()
    app, _ = protected(auth=auth)
    async with (
        served(app, "websocket", tmp_path) as place,
        Client(place.url, reconnect=False, headers=bearer("ada")) as ada,
    ):
        auth.fails = 1
        begun = auth.asked
        while auth.asked < begun + 3:
            await asyncio.sleep(0.02)
        assert (await ada.call_tool("whoami")).text == "dev#ada editor"
        auth.fails = 2
        assert await is_cut(ada)


async def test_a_stream_ends_so_that_its_reader_comes_back_and_is_looked_at(tmp_path: Path) -> None:
    auth = Revocable()
    app, _ = protected(auth=auth)
    async with served(app, "engine", tmp_path, stream_keepalive=0.2) as place:
        wire = await Wire.reach(place.url)
        session = await wire.session(**bearer("ada"))
        wire.send(method="GET", Mcp_Session_Id=session, **bearer("ada"))
        await wire.reader.readuntil(b"\r\n\r\n")
        await asyncio.wait_for(wire.reader.readuntil(b"0\r\n\r\n"), 30)
        auth.revoked.add("ada")
        assert (await wire.ask(method="GET", Mcp_Session_Id=session, **bearer("ada"))).status == 401
        await wire.close()
