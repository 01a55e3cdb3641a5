"""Probes of what handlers may take: time, threads, the size of their results, and what is kept of these."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import httpx
from probes_messages import WORDS_CALLED, called_over_http
from table import no_bound, period, probe

from ferrule import Client, File, Image, PeerError, Server, SetupError, ToolError
from ferrule.errors import ResourceNotFound
from ferrule.identity.verifier import ANONYMOUS, RequestFacts, Verdict, Verifier
from ferrule.schema.content import TextContent
from ferrule.server.calls import kept_results, oversize, streams, threads, tool_results
from ferrule.server.calls.kept_results import SHARE, KeptResults
from ferrule.server.calls.results import Oversized
from ferrule.server.calls.threads import Threads
from ferrule.server.discovery import as_tools
from ferrule.server.discovery.text_index import TextIndex
from ferrule.server.functions import schemas as inlining
from ferrule.server.functions.schemas import inlined
from ferrule.server.offers.uri_template import UriTemplate
from ferrule.server.openapi import document as documents
from ferrule.server.openapi import schemas as web_schemas
from ferrule.server.openapi.document import Document
from ferrule.server.openapi.schemas import Schemas
from ferrule.transports.http.endpoint import caller


async def answers(app: Server, tool: str = "work") -> bool:
    """Return whether a tool answers, and not with an error."""
    async with Client(app, mode="handshake", tool_timeout=None) as client:
        try:
            await client.call_tool(tool)
        except ToolError:
            return False
    return True


@period("Server(tool_timeout=…)", lowered=10.0)
async def a_slow_tool(lasts: float, seconds: float) -> bool:
    app = Server("s", tool_timeout=lasts)

    @app.tool
    async def work() -> None:
        await asyncio.sleep(seconds)

    return await answers(app)


# -- threads and slots


class Crowd:
    """Calls of the tools of one server, all at once."""

    def __init__(self, **options: Any) -> None:
        self.app = Server("s", max_concurrent_per_session=10**6, **options)
        self.threads = self.app.host.services.threads
        self.running = 0
        self.refusals = 0
        self._go = threading.Event()

    def block(self) -> None:
        """Work that holds a thread until all is over."""
        self._go.wait()

    async def wait(self) -> None:
        """Work that holds no thread."""
        self.running += 1
        await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def calling(self, count: int) -> AsyncIterator[None]:
        """Let the tool be called so often at once."""
        async with Client(self.app, mode="handshake", tool_timeout=None) as client:
            calls = [asyncio.ensure_future(self._call(client)) for _ in range(count)]
            await asyncio.sleep(0)
            try:
                yield
            finally:
                self._go.set()
                for call in calls:
                    call.cancel()
                await asyncio.wait(calls)

    async def _call(self, client: Client) -> None:
        try:
            await client.call_tool("work")
        except (ToolError, PeerError) as error:
            self.refusals += "busy" in str(error).lower()

    async def busy_threads(self, expected: int) -> int:
        """Wait until so many threads are busy. Return how many are, with some time for one too many."""
        async with asyncio.timeout(10):
            while self.threads.busy < expected:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.01)
        return self.threads.busy


@probe("Server(max_threads=…)", lowered=3, clamps=True)
async def threads_of_a_server(limit: int, size: int) -> bool:
    crowd = Crowd(max_threads=limit)
    crowd.app.add_tool(crowd.block, name="work", max_threads=10**6, max_waiting=10**6)
    async with crowd.calling(size):
        return await crowd.busy_threads(min(limit, size)) == size


@probe("ToolOptions(max_threads=…)", lowered=3, clamps=True)
async def threads_of_a_tool(limit: int, size: int) -> bool:
    crowd = Crowd()
    crowd.app.add_tool(crowd.block, name="work", max_threads=limit, max_waiting=10**6)
    async with crowd.calling(size):
        return await crowd.busy_threads(min(limit, size)) == size


@probe("ToolOptions(max_concurrent=…)", lowered=3, clamps=True)
async def calls_of_a_tool(limit: int, size: int) -> bool:
    crowd = Crowd()
    crowd.app.add_tool(crowd.wait, name="work", max_concurrent=limit, max_waiting=10**6)
    async with crowd.calling(size):
        return crowd.running == size


@probe("ToolOptions(max_waiting=…)", lowered=3)
async def waiting_calls_of_a_tool(limit: int, size: int) -> bool:
    refusals = []
    for way, option in (("wait", "max_concurrent"), ("block", "max_threads")):
        crowd = Crowd()
        crowd.app.add_tool(getattr(crowd, way), name="work", max_waiting=limit, **{option: 2})  # type: ignore[arg-type]
        async with crowd.calling(2 + size):
            for _ in range(100):  # the loop turns now and then between calls
                await asyncio.sleep(0)
            refusals.append(crowd.refusals)
    assert refusals == [max(0, size - limit)] * 2
    return refusals[0] == 0


class ImpatientLock:
    """A lock for whose users so many seconds pass at once, and then no more."""

    passes = 0.0
    held = threading.Event()

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def acquire(self, timeout: float = -1) -> bool:
        if 0 <= timeout <= self.passes:
            return False
        if timeout >= 0:
            self.held.set()
        return self._lock.acquire()

    def release(self) -> None:
        self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


@period("ferrule.server.calls.threads.IDLE_SECONDS")
async def an_idle_thread(lasts: float, seconds: float) -> bool:
    ImpatientLock.passes = seconds
    ImpatientLock.held.clear()
    with mock.patch.object(threads, "threading", SimpleNamespace(**{**vars(threading), "Lock": ImpatientLock})):
        pool = Threads()
        await pool.run(lambda: None)
        while pool.count and not ImpatientLock.held.wait(0.001):
            """The thread is on its way to wait, or to end."""
    return pool.count == 1


# -- results


def giving(value: object, **options: Any) -> Server:
    """Return a server with a tool that returns this."""
    app = Server("s", **options)

    def work() -> Any:
        return value

    if isinstance(value, File):
        work.__annotations__["return"] = File  # so that the server lets links be read
    app.add_tool(work)
    return app


@probe("Server(result_limit=…)", lowered=1000)
async def a_result(limit: int, size: int) -> bool:
    taken = await answers(giving("x" * size, result_limit=limit))

    async def parts() -> AsyncIterator[str]:
        for number in range(10):
            yield "x" * (size - 9 * (size // 10) if number == 9 else size // 10)

    app = Server("s", result_limit=limit)
    app.add_tool(parts, name="work")
    assert await answers(app) is taken
    return taken


@period("Server(result_ttl=…)", lowered=600.0)
async def a_kept_result(lasts: float, seconds: float) -> bool:
    kept = KeptResults(lasts, 1000, asyncio.get_running_loop().time)
    uri = kept.keep("me", b"x", "text/plain")
    await asyncio.sleep(seconds)
    try:
        kept.find("me", uri)
    except ResourceNotFound:
        return False
    return True


def all_kept(results: KeptResults, owners: int, sizes: list[int]) -> bool:
    """Return whether results of these sizes are all kept, for so many owners in turn."""
    try:
        for number, size in enumerate(sizes):
            results.keep(number % owners, b"x" * size, "text/plain")
            assert results.size <= results.max_bytes
    except Oversized:
        return False
    return len(results) == len(sizes)


def parts_of(size: int, count: int) -> list[int]:
    """Split a size."""
    return [size // count] * (count - 1) + [size - (count - 1) * (size // count)]


@probe("Server(max_kept_bytes=…)", lowered=10_000, clamps=True)
async def all_kept_results(limit: int, size: int) -> bool:
    app = Server("s", max_kept_bytes=limit)
    return all_kept(app.host.services.kept_results, 5, parts_of(size, 5))


@probe("ferrule.server.calls.kept_results.SHARE", lowered=10_000, clamps=True)
async def kept_results_of_one(limit: int, size: int) -> bool:
    return all_kept(KeptResults(60.0, limit * SHARE), 1, parts_of(size, 5))


@probe("ferrule.server.calls.kept_results.LARGEST_KEPT", lowered=10_000)
async def one_kept_result(limit: int, size: int) -> bool:
    with contextlib.ExitStack() as lowered:
        for module in (kept_results, oversize, tool_results):
            lowered.enter_context(mock.patch.object(module, "LARGEST_KEPT", limit))
        app = giving("x" * size, result_limit=10, result_policy="spill")
        taken = await answers(app)
        # Two blocks are kept as a list of them: what counts is what is kept.
        frame = len(b'[{"type":"text","text":"x"},{"type":"text","text":"x"}]')
        two = [TextContent("x" * (size - frame + 1)), TextContent("x")]
        blocks = giving(two, result_limit=10, result_policy="spill")
        assert await answers(blocks) is taken
        # A file is linked that can be kept, and sent within the result otherwise.
        file = giving(File(data=b"x" * size, embed_up_to=10))
        async with Client(file, mode="handshake") as client:
            block = (await client.call_tool("work")).content[0]
        assert (block.type == "resource_link") is taken
    return taken


@probe("ferrule.server.calls.kept_results.MOST_KEPT", lowered=20, clamps=True)
async def number_of_kept_results(limit: int, size: int) -> bool:
    with mock.patch.object(kept_results, "MOST_KEPT", limit):
        results = KeptResults(60.0, 10**6)
        taken = all_kept(results, SHARE + 1, [1] * size)
        assert len(results) <= limit
    return taken


no_bound("ferrule.server.calls.kept_results.ID_BYTES", "a number of random bytes")


class Slow(Verifier):
    """A verifier that never comes to a verdict."""

    def __init__(self) -> None:
        self.asked = 0

    def verify(self, request: RequestFacts) -> Any:
        self.asked += 1
        return self._wait()

    async def _wait(self) -> Verdict:
        await asyncio.Event().wait()
        return ANONYMOUS


@probe("ferrule.transports.http.endpoint.caller.MAX_WAITING", lowered=10_000)
async def unverified_requests(limit: int, size: int) -> bool:
    with mock.patch.object(caller, "MAX_WAITING", limit):
        served = Server("s", auth=Slow()).asgi(max_body_size=2 * 1000 * limit)
        await served.start()
    bodies = [WORDS_CALLED.ljust(1000), WORDS_CALLED.ljust(size - 1000)]
    calls = [asyncio.ensure_future(called_over_http(served, body)) for body in bodies]
    for _ in range(10):
        await asyncio.sleep(0)
    refused = [call.result() for call in calls if call.done()]
    assert all(b"too many callers" in answer for answer in refused)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    await served.stop()
    return not refused


@probe("Image(max_size=…)", lowered=10_000)
async def media(limit: int, size: int) -> bool:
    taken = await answers(giving(Image(data=b"x" * size, max_size=limit)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.png"
        path.write_bytes(b"x" * size)
        assert await answers(giving(Image(path, max_size=limit))) is taken
        assert await answers(giving(File(path, max_size=limit))) is taken
    return taken


@probe("File(embed_up_to=…)", lowered=5000, clamps=True)
async def an_embedded_file(limit: int, size: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.txt"
        path.write_bytes(b"x" * size)
        kinds = set()
        for source in (path, b"x" * size):
            async with Client(giving(File(source, embed_up_to=limit)), mode="handshake") as client:
                kinds.add((await client.call_tool("work")).content[0].type)
    assert len(kinds) == 1
    return kinds == {"resource"}


no_bound(
    "ferrule.server.calls.files.QUICK",
    "a threshold that only chooses between this thread and another, with the same outcome",
)
no_bound(
    "ferrule.server.calls.streams.FEW_TEXTS",
    "a threshold that only chooses when texts are joined, with the same outcome",
)


@probe("ferrule.server.calls.streams.MOST_PARTS", lowered=100)
async def parts_of_a_generator(limit: int, size: int) -> bool:
    app = Server("s")

    @app.tool
    async def work() -> AsyncIterator[Any]:
        for _ in range(size):
            yield ""

    with mock.patch.object(streams, "MOST_PARTS", limit):
        return await answers(app)


# -- what is offered


def accepted(make: Callable[[], object]) -> bool:
    """Return whether something can be set up."""
    try:
        make()
    except SetupError:
        return False
    return True


@probe("ferrule.server.offers.descriptions.MAX_DESCRIPTION")
async def a_description(limit: int, size: int) -> bool:
    app = Server("s")
    return accepted(lambda: app.add_tool(lambda: None, name="work", description="x" * size))


def described(paths: object) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "a", "version": "1"}, "paths": paths}


@probe("ferrule.server.openapi.rules.MAX_ANSWER", lowered=10_000)
async def an_answer_of_a_web_api(limit: int, size: int) -> bool:
    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, text="x" * size)

    async with httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(answer)) as web:
        paths = {"/work": {"get": {"operationId": "work"}}}
        return await answers(Server.from_openapi(described(paths), web, max_answer=limit))


@probe("ferrule.server.openapi.schemas.MAX_PARTS", lowered=50)
async def schemas_of_a_document(limit: int, size: int) -> bool:
    with mock.patch.object(web_schemas, "MAX_PARTS", limit):
        schemas = Schemas(Document(described({})))
        return accepted(lambda: schemas.whole({"allOf": [{} for _ in range(size - 1)]}, "request"))


@probe("ferrule.server.openapi.schemas.MAX_DATA", lowered=1000)
async def data_of_a_document(limit: int, size: int) -> bool:
    """Two lists that are one, as where a YAML file has an alias, and the rest of so many characters, wherever it is."""
    shared = ["x" * 100] * 2

    def is_taken(word: str) -> bool:
        schemas = Schemas(Document(described({})))
        rest = "x" * (size - 408 - len("enum") - len(word) - 2)
        return accepted(lambda: schemas.whole({"enum": [shared, shared], word: rest}, "request"))

    with mock.patch.object(web_schemas, "MAX_DATA", limit):
        (taken,) = {is_taken("title"), is_taken("example"), is_taken("description")}
    return taken


@probe("ferrule.server.openapi.document.MAX_PARAMETERS", lowered=20)
async def parameters_of_a_document(limit: int, size: int) -> bool:
    """Nearly all of them by a path that others refer to."""
    paths: dict[str, Any] = {"/a": {"parameters": [{"name": "a", "in": "query"}] * 2, "get": {}}}
    for number in range(size // 2 - 1):
        paths[f"/{number}"] = {"$ref": "#/paths/~1a"}
    paths["/rest"] = {"get": {"parameters": [{"name": "a", "in": "query"}] * (size % 2)}}
    with mock.patch.object(documents, "MAX_PARAMETERS", limit):
        return accepted(lambda: list(Document({"openapi": "3.1.0", "paths": paths}).operations()))


@probe("ferrule.server.functions.schemas.MAX_PARTS", lowered=50)
async def parts_of_a_schema(limit: int, size: int) -> bool:
    with mock.patch.object(inlining, "MAX_PARTS", limit):
        parts = [{"$ref": "#/$defs/a"}, *({} for _ in range(size - 3))]
        return accepted(lambda: inlined({"$defs": {"a": {}}, "allOf": parts}))


@probe("ferrule.server.discovery.text_index.MAX_WORDS", clamps=True)
async def words_of_a_query(limit: int, size: int) -> bool:
    words = [f"{'abcdefghij'[n % 10]}{'klmnopqrst'[n // 10 % 10]}{'uvwxyz'[n // 100 % 6]}" for n in range(size - 1)]
    return TextIndex({"found": ["last"]}).search(" ".join([*words, "last"])) == ["found"]


@probe("ferrule.server.discovery.as_tools.MOST_LISTED", lowered=3, clamps=True)
async def listed_by_a_tool(limit: int, size: int) -> bool:
    app = Server("s")
    for number in range(size):
        app.add_resource(f"a://{number}", lambda: "text")
    app.offer_as_tools()
    with mock.patch.object(as_tools, "MOST_LISTED", limit):
        async with Client(app, mode="handshake") as client:
            found = (await client.call_tool("list_resources")).data
    assert found.get("leftOut", 0) == size - len(found["resources"])
    return len(found["resources"]) == size


@probe("ferrule.server.offers.uri_template.MAX_VARIABLES")
async def variables_of_a_template(limit: int, size: int) -> bool:
    apart = accepted(lambda: UriTemplate("a://" + "/".join(f"{{v{number}}}" for number in range(size))))
    together = accepted(lambda: UriTemplate("a://b{?" + ",".join(f"v{number}" for number in range(size)) + "}"))
    assert apart is together
    return apart


@probe("ferrule.server.offers.uri_template.MAX_ITEMS")
async def items_of_a_variable(limit: int, size: int) -> bool:
    of_path = UriTemplate("a://b{/v*}").match("a://b" + "/i" * size) is not None
    of_query = UriTemplate("a://b{?v*}").match("a://b?" + "&".join(["v=i"] * size)) is not None
    assert of_path is of_query
    return of_path
