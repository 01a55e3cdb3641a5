"""The ASGI app inside FastAPI and alone, under real servers, over HTTP/1.1 and HTTP/2.

The servers are child processes that run `asgi_mounted.py` or `asgi_site.py`; what happened in them is read from the
diaries they keep.
"""

from __future__ import annotations

import asyncio
import importlib.util
import itertools
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client
from ferrule.errors import HttpFailed
from ferrule.testing import ERAS

httpx = pytest.importorskip("httpx", reason="httpx is not installed: nothing to ask the servers with")
pytest.importorskip("fastapi", reason="fastapi is not installed: nothing to mount the server in")

HERE = Path(__file__).resolve().parent
PATIENCE = 120.0

COMMANDS = {
    "uvicorn-h11": ["uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--http", "h11"],
    "uvicorn-httptools": ["uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--http", "httptools"],
    "hypercorn": ["hypercorn", "--bind", "127.0.0.1:{port}"],
    "granian": ["granian", "--interface", "asgi", "--host", "127.0.0.1", "--port", "{port}", "--http", "auto"],
}
WAYS = [
    ("uvicorn-h11", "HTTP/1.1"),
    ("uvicorn-httptools", "HTTP/1.1"),
    ("hypercorn", "HTTP/1.1"),
    ("hypercorn", "HTTP/2"),
    ("granian", "HTTP/1.1"),
    ("granian", "HTTP/2"),
]
BOTH = "application/json, text/event-stream"
MODERN = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
    "progressToken": "p",
}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


def unused_port() -> int:
    """Choose a port the system gives nobody by itself, so that it is still unused when the server comes to bind it."""
    for port in random.sample(range(20_000, 32_000), 1000):
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


class Site:
    """A child process that serves one of our two applications."""

    def __init__(self, command: list[str], target: str, folder: Path) -> None:
        self.port = unused_port()
        self.diary_file = folder / f"{command[0]}-{self.port}.txt"
        self.diary_file.touch()
        self.printed = self.diary_file.with_suffix(".log")
        words = [word.format(port=self.port) for word in command]
        with self.printed.open("wb") as printed:
            self.process = subprocess.Popen(
                [sys.executable, "-m", words[0], target, *words[1:]],
                cwd=HERE,
                env={**os.environ, "ASGI_SITE_DIARY": str(self.diary_file)},
                stdout=printed,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_ready(self) -> Site:
        """Wait until it accepts connections."""

        def accepts() -> bool:
            assert self.process.poll() is None, self.printed.read_text()
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
            except OSError:
                return False
            return True

        eventually(accepts)
        return self

    @property
    def diary(self) -> list[str]:
        """What was noted so far."""
        return self.diary_file.read_text(encoding="utf-8").split("\n")[:-1]

    @contextmanager
    def client(self, version: str = "HTTP/1.1") -> Iterator[Any]:
        """Yield an HTTP client that speaks one version only."""
        two = version == "HTTP/2"
        url = f"http://127.0.0.1:{self.port}"
        with httpx.Client(base_url=url, http1=not two, http2=two, timeout=PATIENCE) as client:
            yield client

    def kill(self) -> None:
        """End it at once, with the workers it has started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    until = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < until, "it never came to hold"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """All servers that are installed, started side by side."""
    folder = tmp_path_factory.mktemp("diaries")
    here = {name: Site(command, "asgi_mounted:api", folder) for name, command in COMMANDS.items() if installed(command)}
    yield here
    for site in here.values():
        site.kill()


def installed(command: list[str]) -> bool:
    return importlib.util.find_spec(command[0]) is not None


@pytest.fixture(params=WAYS, ids=lambda way: "-".join(way).replace("/", ""))
def way(request: pytest.FixtureRequest, sites: dict[str, Site]) -> tuple[Site, str]:
    """One server, and the version of HTTP it is asked in."""
    name, version = request.param
    if name not in sites:
        pytest.skip(f"{COMMANDS[name][0]} is not installed")
    return sites[name].wait_ready(), version


def called(tool: str, **arguments: Any) -> dict[str, Any]:
    """Return what a client of the stateless era posts for a call."""
    params = {"name": tool, "arguments": arguments, "_meta": META}
    return {
        "url": "/mcp",
        "json": {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        "headers": {"accept": BOTH, "mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": tool},
    }


class Session:
    """A client of the handshake era, after its handshake."""

    def __init__(self, client: Any) -> None:
        opened = client.post("/mcp", json=rpc("initialize", INITIALIZE), headers={"accept": BOTH})
        assert opened.json()["result"]["protocolVersion"] == INITIALIZE["protocolVersion"]
        self.headers = {"accept": BOTH, "mcp-session-id": opened.headers["mcp-session-id"]}
        note = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert client.post("/mcp", json=note, headers=self.headers).status_code == 202

    def called(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Return what is posted for a call."""
        params = {"name": tool, "arguments": arguments, "_meta": {"progressToken": "p"}}
        return {"url": "/mcp", "json": rpc("tools/call", params), "headers": self.headers}


def rpc(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}


def events(response: Any) -> Iterator[dict[str, Any]]:
    """Read the messages of a stream as they come."""
    for line in response.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_the_routes_of_the_application_around_it_still_answer(way: tuple[Site, str]) -> None:
    site, version = way
    with site.client(version) as client:
        answer = client.get("/hello")
    assert (answer.http_version, answer.json()) == (version, "hello")


def test_a_stateless_call_is_answered_as_json(way: tuple[Site, str]) -> None:
    """OTHT-01."""
    site, version = way
    with site.client(version) as client:
        answer = client.post(**called("add", a=1, b=2))
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json()["result"]["structuredContent"] == {"result": 3}
    assert answer.http_version == version


def test_a_session_lives_from_initialize_to_delete(way: tuple[Site, str]) -> None:
    site, version = way
    with site.client(version) as client:
        session = Session(client)
        answer = client.post(**session.called("add", a=20, b=22))
        assert answer.json()["result"]["structuredContent"] == {"result": 42}
        assert client.delete("/mcp", headers=session.headers).status_code == 204
        assert client.post(**session.called("add", a=1, b=1)).status_code == 404


def test_a_path_of_one_slash_is_the_mount_itself(way: tuple[Site, str]) -> None:
    site, version = way
    with site.client(version) as client:
        answer = client.post(**{**called("add", a=1, b=2), "url": "/below/"})
    assert answer.json()["result"]["structuredContent"] == {"result": 3}


@pytest.mark.parametrize("era", ["stateless", "handshake"])
def test_progress_arrives_while_the_call_still_runs(way: tuple[Site, str], era: str) -> None:
    site, version = way
    with site.client(version) as client:
        make = called if era == "stateless" else Session(client).called
        # A busy machine may read at once what was sent apart, but not again and again.
        for _ in range(20):
            came = []
            with client.stream("POST", **make("steps", count=3, pause=0.06)) as answer:
                assert answer.headers["content-type"] == "text/event-stream"
                for message in events(answer):
                    came.append((time.monotonic(), message))
            assert [message["params"]["progress"] for _, message in came[:-1]] == [1, 2, 3]
            assert came[-1][1]["result"]["structuredContent"] == {"result": "all steps"}
            times = [when for when, _ in came]
            if all(later - earlier > 0.02 for earlier, later in itertools.pairwise(times)):
                break
        else:
            pytest.fail(f"all came at once: {times}")


def test_what_belongs_to_no_call_arrives_on_the_stream_of_a_session(way: tuple[Site, str]) -> None:
    site, version = way
    with site.client(version) as client, site.client(version) as other:
        session = Session(client)
        with client.stream("GET", "/mcp", headers=session.headers) as stream:
            # The head comes before there is anything to say.
            assert stream.headers["content-type"] == "text/event-stream"
            other.post(**called("grow", name=f"new{version[-1]}{time.monotonic_ns()}"))
            assert next(events(stream))["method"] == "notifications/tools/list_changed"


def test_a_client_that_hangs_up_cancels_its_stateless_call(way: tuple[Site, str]) -> None:
    site, version = way
    name = f"stateless{version[-1]}"
    hang_up_in_the_middle(site, version, lambda client: called("wait", name=name, seconds=30))
    eventually(lambda: f"{name} cancelled" in site.diary)


def test_a_client_that_hangs_up_does_not_cancel_its_call_in_a_session(way: tuple[Site, str]) -> None:
    site, version = way
    name = f"session{version[-1]}"
    hang_up_in_the_middle(site, version, lambda client: Session(client).called("wait", name=name, seconds=3.0))
    eventually(lambda: site.diary[-1].startswith(f"{name} ") and "begun" not in site.diary[-1])
    assert site.diary[-1] == f"{name} done"


def hang_up_in_the_middle(site: Site, version: str, make: Callable[[Any], dict[str, Any]]) -> None:
    """Leave while a call runs, after the time from which on the server listens."""
    with site.client(version) as client:
        call = make(client)
        with pytest.raises(httpx.ReadTimeout):
            client.post(**call, timeout=httpx.Timeout(PATIENCE, read=1.0))


def test_a_reader_that_takes_nothing_and_hangs_up_ends_its_call(way: tuple[Site, str]) -> None:
    site, version = way
    already = site.diary.count("flood ended")
    with site.client(version) as client, client.stream("POST", **called("flood", size=500_000)) as answer:
        assert answer.status_code == 200
        time.sleep(0.3)
        assert site.diary.count("flood ended") == already
    eventually(lambda: site.diary.count("flood ended") == already + 1)


@pytest.mark.parametrize("path", ["/mcp/ws", "/below/mcp/ws"])
@pytest.mark.parametrize("name", COMMANDS)
def test_our_client_speaks_websocket_with_a_mounted_server_in_both_eras(
    name: str, path: str, sites: dict[str, Site]
) -> None:
    """WEBS-01, WEBS-19, WEBS-21: an ASGI server does the frames."""
    if name not in sites:
        pytest.skip(f"{COMMANDS[name][0]} is not installed")
    site = sites[name].wait_ready()

    async def converse(era: Any) -> None:
        told: list[float] = []
        async with Client(f"ws://127.0.0.1:{site.port}{path}", mode=era) as client:
            results = await asyncio.gather(*(client.call_tool("add", {"a": n, "b": 1}) for n in range(100)))
            assert [result.data for result in results] == list(range(1, 101))
            steps = {"count": 2, "pause": 0.01}
            await client.call_tool("steps", steps, on_progress=lambda done, *rest: told.append(done))
        assert told == [1, 2]

    for era in ERAS:
        asyncio.run(converse(era))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_websocket_of_a_foreign_page_or_at_another_path_is_refused_by_the_server(
    name: str, sites: dict[str, Site]
) -> None:
    """WEBS-17, WEBS-03."""
    if name not in sites:
        pytest.skip(f"{COMMANDS[name][0]} is not installed")
    site = sites[name].wait_ready()

    async def knock(path: str, **headers: str) -> int:
        with pytest.raises(HttpFailed) as refusal:
            await Client(f"ws://127.0.0.1:{site.port}{path}", headers=headers).connect()
        return refusal.value.status

    assert asyncio.run(knock("/mcp/ws", Origin="https://evil.example")) == 403
    assert asyncio.run(knock("/elsewhere")) in (403, 404)


def test_a_mounted_server_starts_once_at_the_first_request(sites: dict[str, Site]) -> None:
    """It was asked by all the tests above, at two mounts."""
    for site in sites.values():
        site.wait_ready()
        with site.client() as client:
            client.post(**called("add", a=1, b=2))
        assert site.diary.count("started") == 1


@pytest.mark.parametrize("name", COMMANDS)
def test_a_server_alone_starts_before_its_first_request_and_ends_in_order(name: str, tmp_path: Path) -> None:
    command = COMMANDS[name]
    if not installed(command):
        pytest.skip(f"{command[0]} is not installed")
    site = Site(command, "asgi_site:alone", tmp_path)
    try:
        ask_and_end(site.wait_ready())
    finally:
        site.kill()
    assert site.diary == ["started", "stopped"]
    assert "Traceback" not in site.printed.read_text()


def ask_and_end(site: Site) -> None:
    """Tell a server to stop in the middle of a call, and wait until it has."""
    eventually(lambda: site.diary == ["started"])
    with site.client() as client, client.stream("POST", **called("steps", count=8, pause=0.1)) as answer:
        messages = events(answer)
        next(messages)
        site.process.send_signal(signal.SIGTERM)
        *_, last = messages
    assert last["result"]["structuredContent"] == {"result": "all steps"}
    site.process.wait(PATIENCE)
