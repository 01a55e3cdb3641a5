"""Plain web routes beside MCP, asked by a real HTTP client: on our own engine, and under a real ASGI server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from starlette.responses import JSONResponse, PlainTextResponse

from ferrule import Client, Http, Server, SetupError, WebRequest, WebResponse
from ferrule.identity.verifier import ANONYMOUS, AllowAll, RequestFacts, Verdict, Verifier


def site() -> Server:
    app = Server("site", shutdown_grace=2.0)

    @app.custom_route("/health", methods=["GET"])
    async def health(request: WebRequest) -> dict[str, str]:
        return {"status": "ok", "by": request.method}

    @app.custom_route("/files/{name}/part/{rest:path}")
    async def part(request: WebRequest) -> str:
        return f"{request.path_params['name']}|{request.path_params['rest']}|{request.query_params.get('q')}"

    @app.custom_route("/hook", methods=["POST", "PUT"])
    async def hook(request: WebRequest) -> WebResponse:
        return WebResponse({"got": await request.json()}, status_code=201, headers={"X-Seen": "yes"})

    @app.custom_route("/form", methods=["POST"])
    def form(request: WebRequest) -> str:
        assert threading.current_thread() is not threading.main_thread()
        return "in a thread"

    @app.custom_route("/theirs")
    async def theirs(request: Any) -> Any:
        return JSONResponse({"path": request.path}, status_code=202, headers={"X-Their": "own"})

    @app.custom_route("/old")
    async def old(request: Any) -> Any:
        return PlainTextResponse("as ever")

    @app.custom_route("/nothing")
    async def nothing(request: WebRequest) -> None: ...

    @app.custom_route("/broken")
    async def broken(request: WebRequest) -> str:
        raise ValueError("the secret is 42")

    @app.custom_route("/stream")
    async def stream(request: WebRequest) -> WebResponse:
        async def parts() -> AsyncIterator[str]:
            for number in range(3):
                yield f"part {number}\n"
                await asyncio.sleep(0)

        return WebResponse(parts(), media_type="text/plain")

    @app.custom_route("/cut")
    async def cut(request: WebRequest) -> WebResponse:
        async def parts() -> AsyncIterator[str]:
            yield "begun"
            await asyncio.sleep(0.1)
            raise OSError("no more")

        return WebResponse(parts())

    @app.custom_route("/raising/{what}")
    async def raising(request: WebRequest) -> str:
        raise {"cancel": asyncio.CancelledError, "exit": SystemExit}[request.path_params["what"]]

    @app.custom_route("/exiting")
    def exiting(request: WebRequest) -> str:
        raise SystemExit

    @app.custom_route("/echo")
    async def echo(request: WebRequest) -> Any:
        said = request.query_params
        if "theirs" in said:
            theirs = PlainTextResponse("x", headers={"X-Secret": "42"})
            theirs.raw_headers.append((b"x-said", said["theirs"].encode("latin-1")))
            return theirs
        status: Any = int(said["status"]) if said.get("status", "").lstrip("-").isdigit() else said.get("status", 200)
        return WebResponse("x", status, {said.get("name", "x-said"): said.get("value", "")}, said.get("type"))

    @app.custom_route("/cookies")
    async def cookies(request: WebRequest) -> Any:
        answer = PlainTextResponse("x")
        answer.set_cookie("a", "1", httponly=True)
        answer.set_cookie("b", "2")
        return answer

    @app.custom_route("/endless")
    async def endless(request: WebRequest) -> WebResponse:
        async def parts() -> AsyncIterator[bytes]:
            while True:
                yield b"x" * 1000

        return WebResponse(parts())

    @app.tool
    def add(a: int, b: int) -> int:
        return a + b

    return app


@contextlib.asynccontextmanager
async def on_the_engine(app: Server, **options: Any) -> AsyncIterator[str]:
    listener, ready = Http(port=0, **options), asyncio.Event()
    serving = asyncio.ensure_future(app.serve(listener, ready=ready.set))
    done, _ = await asyncio.wait([serving, asyncio.ensure_future(ready.wait())], return_when="FIRST_COMPLETED")
    if serving in done:
        await serving
    try:
        yield "http://{}:{}".format(*listener.address)
    finally:
        await app.stop()
        await asyncio.wait_for(serving, 60)


@contextlib.asynccontextmanager
async def under_uvicorn(app: Server, **options: Any) -> AsyncIterator[str]:
    config = uvicorn.Config(app.asgi(**options), port=0, log_level="warning", lifespan="on")
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await asyncio.wait_for(serving, 60)


@pytest.fixture(params=[on_the_engine, under_uvicorn], ids=["engine", "uvicorn"])
def front(request: pytest.FixtureRequest) -> Any:
    return request.param


def test_a_route_answers_beside_mcp(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            found = await web.get("/health")
            assert (found.status_code, found.json()) == (200, {"status": "ok", "by": "GET"})
            assert found.headers["x-content-type-options"] == "nosniff"
            head = await web.head("/health")
            assert (head.status_code, head.content) == (200, b"")
            assert (await web.get("/files/a%20b/part/d/e.txt?q=1")).text == "a b|d/e.txt|1"
            made = await web.put("/hook", json={"n": 1})
            assert (made.status_code, made.json(), made.headers["x-seen"]) == (201, {"got": {"n": 1}}, "yes")
            assert (await web.post("/form")).text == "in a thread"
            assert (await web.get("/nothing")).status_code == 204
            async with Client(f"{url}/mcp") as client:
                assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3

    asyncio.run(main())


def test_responses_of_starlette_are_understood(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            found = await web.get("/theirs")
            assert (found.status_code, found.json(), found.headers["x-their"]) == (202, {"path": "/theirs"}, "own")
            assert (await web.get("/old")).headers["content-type"] == "text/plain; charset=utf-8"

    asyncio.run(main())


def test_a_streamed_answer_comes_in_parts_and_one_that_fails_is_cut(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            assert (await web.get("/stream")).text == "part 0\npart 1\npart 2\n"
            with pytest.raises(httpx.RemoteProtocolError):
                await web.get("/cut")

    asyncio.run(main())


def test_a_failing_route_tells_a_reference_and_keeps_its_secret(front: Any, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> str:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            found = await web.get("/broken")
            assert found.status_code == 500
            return found.text

    with caplog.at_level(logging.ERROR, "ferrule.http"):
        told = asyncio.run(main())
    assert "secret" not in told
    assert told.partition("reference ")[2].strip(" )\n") in caplog.text


def test_what_a_route_does_not_take_is_refused_with_what_it_takes(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            refused = await web.delete("/hook")
            assert (refused.status_code, refused.headers["allow"]) == (405, "OPTIONS, POST, PUT")
            assert (await web.options("/hook")).status_code == 204
            assert (await web.get("/health", headers={"Origin": "https://evil.example"})).status_code == 403
            assert (await web.get("/elsewhere")).status_code == 404

    asyncio.run(main())


STRAYING = [
    "/files/a%2Fb/part/c",
    "/files/..%2F..%2Fetc/part/c",
    "/files/%2Fetc/part/c",
    "/files/../part/c",
    "/files/%2e%2e/part/c",
    "/files/a/part/%2e%2e/%2e%2e/etc/passwd",
    "/files/a/part/b/..%2f..%2fc",
    "/files/a/part//etc/passwd",
    "/files/a/part/%2Fetc/passwd",
]


def test_a_variable_of_a_path_cannot_lead_out_of_a_folder(front: Any) -> None:
    """The path goes out as it is written here: a web client would straighten it first."""

    async def main() -> None:
        async with front(site()) as url:
            host, port = url.removeprefix("http://").split(":")
            for path in STRAYING:
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                assert (await reader.read()).startswith(b"HTTP/1.1 404 "), path
                writer.close()

    asyncio.run(main())


def test_whatever_a_route_raises_is_answered_and_ends_nothing_else(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            for path in ("/raising/cancel", "/raising/exit", "/exiting"):
                assert (await web.get(path)).status_code == 500, path
            assert (await web.get("/health")).status_code == 200

    asyncio.run(main())


BREAKING = [
    {"value": "a\r\nX-Evil: 1"},
    {"name": "a\r\nX-Evil"},
    {"type": "text/plain\r\nX-Evil: 1"},
    {"theirs": "a\r\nX-Evil: 1"},
    {"status": "0"},
    {"status": "-1"},
    {"status": "101"},
    {"status": "1000"},
    {"status": "200 OK\r\nX-Evil: 1"},
]


def test_an_answer_that_would_break_its_frame_is_not_sent(front: Any) -> None:
    """Response splitting."""

    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            for query in BREAKING:
                answer = await web.get("/echo", params=query)
                assert answer.status_code == 500, query
                assert not {"x-evil", "x-secret"} & answer.headers.keys()

    asyncio.run(main())


def test_cookies_stay_apart(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            answer = await web.get("/cookies")
            assert [each.partition(";")[0] for each in answer.headers.get_list("set-cookie")] == ["a=1", "b=2"]
            assert dict(web.cookies) == {"a": "1", "b": "2"}

    asyncio.run(main())


def test_asking_for_the_head_alone_does_not_run_an_endless_answer(front: Any) -> None:
    async def main() -> None:
        async with front(site()) as url, httpx.AsyncClient(base_url=url) as web:
            assert (await web.head("/endless")).status_code == 200
            assert (await web.get("/health")).status_code == 200

    asyncio.run(main())


def test_a_page_of_another_host_name_is_kept_out() -> None:
    """A name that was rebound to our address reaches no route either."""

    async def main() -> None:
        async with on_the_engine(site()) as url, httpx.AsyncClient(base_url=url) as web:
            assert (await web.get("/health", headers={"Host": "evil.example"})).status_code == 403

    asyncio.run(main())


def test_a_handler_whose_caller_left_is_cancelled_and_a_stopping_server_waits_for_the_others() -> None:
    async def main() -> None:
        app, ended = Server("slow"), asyncio.Event()

        @app.custom_route("/for-ever")
        async def for_ever(request: WebRequest) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        @app.custom_route("/soon")
        async def soon(request: WebRequest) -> str:
            await asyncio.sleep(0.2)
            return "answered"

        async with on_the_engine(app) as url, httpx.AsyncClient(base_url=url) as web:
            with pytest.raises(httpx.ReadTimeout):
                await web.get("/for-ever", timeout=httpx.Timeout(60, read=1.5))
            await asyncio.wait_for(ended.wait(), 60)
            slow = asyncio.ensure_future(web.get("/soon"))
            await asyncio.sleep(0.05)
            await app.stop(60.0)
            assert (await slow).text == "answered"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("path", "methods", "why"),
    [
        ("health", ["GET"], "must begin with a slash"),
        ("/a", [], "none at all"),
        ("/a", ["BREW"], "not BREW"),
        ("/a/{", ["GET"], "a brace that encloses no name"),
        ("/{a}/{a}", ["GET"], "cannot be a path"),
    ],
)
def test_a_route_that_cannot_work_is_refused_at_once(path: str, methods: list[str], why: str) -> None:
    with pytest.raises(SetupError, match=why):
        Server("x").custom_route(path, methods=methods)(lambda request: "")


@pytest.mark.parametrize("path", ["/mcp"])
def test_a_path_the_server_needs_itself_cannot_be_taken(path: str) -> None:
    async def main() -> None:
        app = Server("x")
        app.custom_route(path)(lambda request: "")
        with pytest.raises(SetupError, match=f"the path {path} is served by the server itself"):
            async with on_the_engine(app):
                pass

    asyncio.run(main())


class BrokenAtTheEnd(Verifier):
    """Lets everybody in, and cannot be closed."""

    def verify(self, facts: RequestFacts) -> Verdict:
        return ANONYMOUS

    async def close(self) -> None:
        raise OSError("the connection to the keys is lost")


class BrokenAtTheStart(Verifier):
    """Cannot be started."""

    def verify(self, facts: RequestFacts) -> Verdict:
        return ANONYMOUS

    async def start(self) -> None:
        raise OSError("no keys")


def app_with(verifier: Verifier, folder: Path, log: list[str]) -> Server:
    @contextlib.asynccontextmanager
    async def lifespan(server: Any) -> AsyncIterator[None]:
        log.append("begins")
        yield
        log.append("ends")

    return Server("s", lifespan=lifespan, auth=verifier, receipts=str(folder / "receipts"))


class TestUsers:
    """What a server needs is started for its first user and ended after its last."""

    async def test_what_cannot_be_closed_keeps_nothing_else_open(self, tmp_path: Path) -> None:
        log: list[str] = []
        app = app_with(BrokenAtTheEnd(), tmp_path, log)
        await app.enter()
        with pytest.raises(OSError, match="the keys is lost"):
            await app.leave()
        assert log == ["begins", "ends"]
        assert not app.host.lifespans.in_use
        assert not [thread.name for thread in threading.enumerate() if "receipt" in thread.name]

    async def test_a_verifier_that_cannot_start_lets_everything_end_that_had_begun(self, tmp_path: Path) -> None:
        log: list[str] = []
        app = app_with(BrokenAtTheStart(), tmp_path, log)
        for _ in range(2):
            with pytest.raises(OSError, match="no keys"):
                await app.enter()
        assert log == ["begins", "ends"] * 2
        assert not app.host.lifespans.in_use

    async def test_several_users_share_one_start(self, tmp_path: Path) -> None:
        log: list[str] = []
        app = app_with(AllowAll(), tmp_path, log)
        await asyncio.gather(*(app.enter() for _ in range(3)))
        for _ in range(2):
            await app.leave()
        assert log == ["begins"]
        await app.leave()
        assert log == ["begins", "ends"]
