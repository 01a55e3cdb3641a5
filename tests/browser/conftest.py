"""A real browser, the site its pages come from, and the server they call."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import queue
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any

import pytest
from msgspec import Meta

from ferrule import Context, Server
from ferrule.transports.http.listener import Http
from ferrule.transports.tcp.listener import Tcp, Unix
from ferrule.transports.websocket.listener import WebSocket

PAGES = Path(__file__).resolve().parent / "pages"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PAGE_SECONDS = 60
START_SECONDS = 10

# The pages are ours, and a container has neither what the sandbox needs nor much shared memory.
SWITCHES = (
    *("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-proxy-server"),
)


class Page(SimpleHTTPRequestHandler):
    """Gives out the pages, and takes back what they observed."""

    def __init__(self, *request: Any, observed: queue.Queue[dict[str, Any]]) -> None:
        self.observed = observed
        super().__init__(*request, directory=str(PAGES))

    def do_POST(self) -> None:
        self.observed.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Keep quiet."""


class Site:
    """Where pages come from; one port, two origins, since a browser tells 127.0.0.1 from localhost."""

    def __init__(self) -> None:
        self.observed: queue.Queue[dict[str, Any]] = queue.Queue()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Page, observed=self.observed))
        self.guest = f"http://127.0.0.1:{self.server.server_port}"
        self.stranger = f"http://localhost:{self.server.server_port}"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def make_server(ran: list[str]) -> Server:
    """Offer tools that write down in `ran` that they ran."""
    app = Server("desk")
    released, cancelled = asyncio.Event(), asyncio.Event()

    @app.tool
    def add(a: int, b: int) -> int:
        ran.append("add")
        return a + b

    @app.tool
    async def count(ctx: Context) -> str:
        released.clear()
        await ctx.report_progress(1, 2)
        await released.wait()
        await ctx.report_progress(2, 2)
        return "counted"

    @app.tool
    async def release() -> str:
        released.set()
        return "released"

    @app.tool
    async def wait(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return "never"

    @app.tool
    async def was_cancelled() -> str:
        await asyncio.wait_for(cancelled.wait(), 60)
        return "cancelled"

    @app.tool
    def weather(city: Annotated[str, Meta(extra_json_schema={"x-mcp-header": "City"})]) -> str:
        return f"sunny in {city}"

    return app


@contextlib.contextmanager
def access_log() -> Iterator[list[tuple[str, str, int]]]:
    """Method, path and status of every answer while the block runs."""
    answered: list[tuple[str, str, int]] = []
    logger, handler = logging.getLogger("ferrule.http.access"), logging.Handler()
    handler.emit = lambda record: answered.append(record.args[:3])  # type: ignore[method-assign,index,arg-type]
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield answered
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@contextlib.contextmanager
def serving(app: Server, listener: Any) -> Iterator[None]:
    """Serve in a thread while the block runs."""
    ready = threading.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await listener.serve(app.host, ready.set)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(START_SECONDS)
    try:
        yield
    finally:
        asyncio.run_coroutine_threadsafe(listener.close(1.0), loops[0]).result(START_SECONDS)
        thread.join()


@contextlib.contextmanager
def browsing(browser: str, url: str, folder: Path) -> Iterator[None]:
    """Show a page while the block runs."""
    with (folder / "log").open("w") as log:
        command = [browser, *SWITCHES, f"--user-data-dir={folder / 'profile'}", url]
        process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
    try:
        yield
    except queue.Empty:
        pytest.fail(f"{url} said nothing in {PAGE_SECONDS} s: {(folder / 'log').read_text()[-2000:]}")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@dataclass
class Visit:
    """What a page observed, which tools ran meanwhile, and how each request was answered: method, path, status."""

    observed: dict[str, Any]
    ran: list[str]
    answered: list[tuple[str, str, int]]


@pytest.fixture(scope="module")
def visit(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Visit]:
    """Open a page in the browser, beside a server that allows the guest's origin and no other."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path")

    def open_page(page: str) -> Visit:
        ran: list[str] = []
        listener = Http(port=0, sse=True, allowed_origins=(site.guest,), access_log=True)
        with access_log() as answered, serving(make_server(ran), listener):
            host, port = listener.address
            with browsing(browser, f"{page}?server=http://{host}:{port}", tmp_path_factory.mktemp("browser")):
                return Visit(site.observed.get(timeout=PAGE_SECONDS), ran, answered)

    return open_page


def pump(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way until either side ends."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for each in (source, target):
        with contextlib.suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def carry(near: socket.socket, path: str) -> None:
    """Carry the bytes of one connection to a Unix socket and back, until either side ends."""
    with near, socket.socket(socket.AF_UNIX) as far:
        far.connect(path)
        back = threading.Thread(target=pump, args=(far, near))
        back.start()
        pump(near, far)
        back.join()


@contextlib.contextmanager
def bridge(path: str) -> Iterator[str]:
    """Let a port lead to a Unix socket, as programs that share one do; gives its address."""
    carrying: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    carrying.append(threading.Thread(target=carry, args=(listening.accept()[0], path)))
                    carrying[-1].start()

        accepting = threading.Thread(target=accept)
        accepting.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
        accepting.join()
    for each in carrying:
        each.join()


@dataclass
class Intrusion:
    """What a page observed at each port, by the name of the port, and which tools ran behind it."""

    observed: dict[str, dict[str, Any]]
    ran: dict[str, list[str]]


@pytest.fixture(scope="module")
def intrude(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Intrusion]:
    """Open a page that calls ports of every carrier that does not speak HTTP, or only to become something else."""
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip(f"no browser here: none of {', '.join(BROWSERS)} is on the path")

    def open_page() -> Intrusion:
        folder = tmp_path_factory.mktemp("intruder")
        listeners: dict[str, Any] = {
            "tcp": Tcp(port=0),
            "tcp of any framing": Tcp(port=0, framing="auto"),
            "tcp of blocks": Tcp(port=0, framing="content-length"),
            "unix": Unix(folder / "s"),
            "websocket": WebSocket(port=0),
        }
        ran: dict[str, list[str]] = {name: [] for name in listeners}
        with contextlib.ExitStack() as open_ports:
            ports: dict[str, str] = {}
            for name, listener in listeners.items():
                open_ports.enter_context(serving(make_server(ran[name]), listener))
                if name == "unix":
                    ports[name] = open_ports.enter_context(bridge(str(folder / "s")))
                else:
                    ports[name] = "{}:{}".format(*listener.address)
            query = "&".join(f"port={port}" for port in ports.values())
            with browsing(browser, f"{site.stranger}/intruder.html?{query}", folder):
                seen = site.observed.get(timeout=2 * PAGE_SECONDS)
        observed = {
            name: {step.removeprefix(f"{port} "): what for step, what in seen.items() if step.startswith(f"{port} ")}
            for name, port in ports.items()
        }
        return Intrusion(observed, ran)

    return open_page
