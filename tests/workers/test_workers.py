"""Several processes at one address: real ones, killed and replaced under load."""

from __future__ import annotations

import asyncio
import json
import os
import re
import secrets
import signal
import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Coroutine
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from certificates import write_certificate
from pace import LONG, prompt
from worker_program import PROGRAM, Knocking, Load, Program, until

from ferrule import Client
from ferrule.errors import CallFailed

Start = Callable[..., Program]

CONFLICT = 409
HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
INITIALIZE = (
    b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},'
    b'"clientInfo":{"name":"raw","version":"1"}}}'
)
INITIALIZED = b'{"jsonrpc":"2.0","method":"notifications/initialized"}'
PING = b'{"jsonrpc":"2.0","id":3,"method":"ping"}'
WORKER = b'{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"worker","arguments":{}}}'
NAP = (
    b'{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"nap","arguments":{"seconds":0.2},'
    b'"_meta":{"progressToken":1}}}'
)
COUNT = b'{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":"count","arguments":{}}}'
MODES = pytest.mark.parametrize("mode", ["handshake", "stateless"])


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run a test on a loop of its own."""
    asyncio.run(work)


async def processes_that_answer(url: str, mode: str, calls: int = 20) -> set[int]:
    """Return which processes answer the calls of one client, made at once."""
    async with Client(url, mode=mode) as client:
        answers = await asyncio.gather(*(client.call_tool("worker") for _ in range(calls)))
        return {answer.data for answer in answers}


def asker(one: Program) -> Callable[..., Coroutine[Any, Any, tuple[int, str | None, bytes]]]:
    """Return what sends a request over a connection of its own; it gives status, session and body of the answer."""
    port = urlsplit(one.url).port

    def ask(verb: str, body: bytes | None, headers: dict[str, str]) -> tuple[int, str | None, bytes]:
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            connection.request(verb, "/mcp", body, HEADERS | headers)
            with connection.getresponse() as answer:
                return answer.status, answer.headers["Mcp-Session-Id"], answer.read()

    async def asked(verb: str, body: bytes | None, **headers: str) -> tuple[int, str | None, bytes]:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await asyncio.to_thread(ask, verb, body, named)

    return asked


async def replace_workers(one: Program) -> None:
    """Replace all workers of a program, and wait until those from before are gone."""
    before = one.workers
    one.signal(signal.SIGHUP)
    await until(lambda: not set(before) & set(one.workers) and len(one.workers) == len(before))


def test_a_session_lives_in_one_worker_whichever_took_its_connections(program: Start) -> None:
    """Connections at the wrong worker are handed over; without a session any worker answers."""

    async def work() -> None:
        one = program(3)
        assert "with 3 workers" in one.said
        found: set[int] = set()
        for _ in range(6):
            answering = await processes_that_answer(one.url, "handshake")
            assert len(answering) == 1
            found |= answering
        assert await processes_that_answer(one.url, "stateless", 60) <= set(one.workers)
        assert found <= set(one.workers)

    run(work())


def test_a_session_over_tls_is_reached_from_any_worker(program: Start, tmp_path: Path) -> None:
    """A connection that is encrypted cannot be handed over: its requests are forwarded."""
    certificate, key = write_certificate(tmp_path)
    one = program(2, certificate=certificate, private_key=key)
    assert one.url.startswith("https://")
    port = urlsplit(one.url).port
    trusting = ssl.create_default_context(cafile=certificate)
    owners: dict[str, set[object]] = {}
    for _ in range(2):
        session = ""
        for _ in range(8):
            with closing(HTTPSConnection("localhost", port, timeout=30, context=trusting)) as connection:
                if not session:
                    connection.request("POST", "/mcp", INITIALIZE, HEADERS)
                    session = connection.getresponse().headers["Mcp-Session-Id"]
                    owners[session] = set()
                    continue
                connection.request("POST", "/mcp", WORKER, HEADERS | {"Mcp-Session-Id": session})
                with connection.getresponse() as answer:
                    assert answer.status == 200
                    owners[session].add(json.loads(answer.read())["result"]["structuredContent"]["result"])
    assert [len(found) for found in owners.values()] == [1, 1]
    assert set().union(*owners.values()) <= set(one.workers)


@pytest.mark.parametrize("transport", ["sse", "ws", "tcp"])
async def test_other_transports_have_workers_too(program: Start, transport: str) -> None:
    """What one client says goes to one worker, also where each message comes over another connection (HTTP+SSE)."""
    one = program(2, transport=transport)
    url = f"sse+{one.url}" if transport == "sse" else one.url
    found: set[int] = set()
    for _ in range(20):
        answering = await processes_that_answer(url, "handshake", 10)
        assert len(answering) == 1
        found |= answering
        if len(found) == 2:
            break
    assert found == set(one.workers)
    one.signal(signal.SIGTERM)
    assert one.end() == (0, "")


@MODES
def test_who_subscribed_hears_of_a_change_in_any_worker(program: Start, mode: str) -> None:
    """A change is told to all workers."""

    async def work() -> None:
        one = program(2)
        async with Client(one.url, mode=mode) as listener, listener.subscribe("notes://1") as changes:
            changed: set[int] = set()
            while len(changed) < 2:
                async with Client(one.url, mode="stateless") as client:
                    who = (await client.call_tool("change")).data
                if who not in changed:
                    changed.add(who)
                    async with asyncio.timeout(5):
                        await anext(aiter(changes))

    run(work())


@MODES
def test_a_question_is_answered_to_any_worker(program: Start, mode: str) -> None:
    """In a session the answer finds the worker that asked; without one, all workers can open what was sealed."""

    async def work() -> None:
        one = program(3)
        for _ in range(4):
            async with Client(one.url, mode=mode, elicitation=lambda question: {"value": "tea"}) as client:
                orders = [client.call_tool("order") for _ in range(4)]
                assert [answer.data for answer in await asyncio.gather(*orders)] == ["tea"] * 4

    run(work())


def test_a_stream_is_resumed_at_any_worker(program: Start) -> None:
    """A GET with Last-Event-ID goes to the worker that has the session, over whichever connection it comes."""
    one = program(2)
    port = int(one.url.split(":")[2].split("/")[0])
    with closing(HTTPConnection("127.0.0.1", port)) as connection:
        connection.request("POST", "/mcp", INITIALIZE, HEADERS)
        answer = connection.getresponse()
        answer.read()
        session = HEADERS | {"Mcp-Session-Id": answer.headers["Mcp-Session-Id"]}
        connection.request("POST", "/mcp", INITIALIZED, session)
        connection.getresponse().read()
    for _ in range(6):
        with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
            connection.request("POST", "/mcp", NAP, session)
            with connection.getresponse() as answer:
                while not (line := answer.readline()).startswith(b"id:"):
                    assert line
        again = session | {"Last-Event-ID": line.split()[1].decode(), "Accept": "text/event-stream"}
        status = CONFLICT
        while status == CONFLICT:  # until the worker knows that nobody reads the first one any more
            with closing(HTTPConnection("127.0.0.1", port, timeout=10)) as connection:
                connection.request("GET", "/mcp", None, again)
                with connection.getresponse() as answer:
                    status = answer.status
                    found = answer.read()
        assert status == 200
        assert b'"result"' in found


async def test_a_killed_worker_costs_what_ran_in_it_and_nothing_else(program: Start) -> None:
    """CRA-01, CRA-07, HND-03: the others serve on, nobody is refused, and it is replaced within a second.

    With FERRULE_LONG there are twenty kills, five of each worker, as many as the overseer takes in a minute.
    """
    workers, kills, pause = (4, 20, 3.0) if LONG else (2, 2, 0.0)
    one = program(workers)
    load = Load(one.url, clients=2 * workers)
    knocking = Knocking(one.url)
    await until(lambda: load.answered > 50 and knocking.answered > 5)
    order = one.workers
    killed: set[int] = set()
    for _ in range(kills):
        await asyncio.sleep(pause)
        victim = order.pop(0)
        os.kill(victim, signal.SIGKILL)
        killed.add(victim)
        await until(lambda: not set(one.workers) & killed and len(one.workers) == workers)
        order += set(one.workers) - set(order)
        await load.goes_on()
    await knocking.end()
    await load.end()
    assert one.process.poll() is None
    assert knocking.refused == 0
    assert knocking.cut <= kills
    assert knocking.longest < prompt(1.0)
    # A client speaks to one worker at a time, and has one call there.
    assert all("unknown outcome" in failure for failure in load.failed), load.failed
    assert len(load.failed) <= 2 * workers * kills
    assert set(load.lost_with) <= killed
    one.signal(signal.SIGTERM)
    code, said = one.end()
    assert code == 0
    assert "has ended by SIGKILL, and held" in said


def test_all_workers_are_replaced_without_a_lost_call(program: Start) -> None:
    """SHD-07: sessions and connections go to the successor."""

    async def work() -> None:
        one = program(2)
        before = set(one.workers)
        load = Load(one.url)
        async with Client(one.url, mode="handshake") as resting, resting.subscribe("notes://1") as changes:
            await until(lambda: load.answered > 50)
            one.signal(signal.SIGHUP)
            await until(lambda: before.isdisjoint(one.workers) and len(one.workers) == 2)
            answered = load.answered
            await until(lambda: load.answered > answered + 50)
            await load.end()
            assert load.failed == []
            # Its session was in one of those that are gone, and its subscription with it.
            assert (await resting.call_tool("change")).data in one.workers
            async with asyncio.timeout(5):
                await anext(aiter(changes))

    run(work())


async def test_a_worker_that_dies_while_its_successor_begins_has_only_one(program: Start, tmp_path: Path) -> None:
    """The successor would take the place of the one that was started instead, and end: others found nobody there."""
    slowly = tmp_path / "slowly"
    one = program(2, PROGRAM.replace("kept = []", f"kept = []\nif os.path.exists({str(slowly)!r}): time.sleep(30)"))
    slowly.touch()
    before = one.workers
    one.signal(signal.SIGHUP)
    await until(lambda: len(one.workers) == 3)
    (successor,) = set(one.workers) - set(before)
    await asyncio.sleep(0.5)
    slowly.unlink()
    os.kill(before[0], signal.SIGKILL)
    await until(lambda: successor not in one.workers, within=10)
    await until(lambda: len(one.workers) == 2)
    assert await processes_that_answer(one.url, "handshake") <= set(one.workers)


async def test_a_successor_that_hangs_is_killed_and_the_worker_stays(program: Start, tmp_path: Path) -> None:
    """It would else block this reload and every later one."""
    hangs = tmp_path / "hangs"
    text = PROGRAM.replace("kept = []", f"kept = []\nif os.path.exists({str(hangs)!r}): time.sleep(60)")
    one = program(1, text, worker_ready_timeout=3)
    hangs.touch()
    before = one.workers
    one.signal(signal.SIGHUP)
    await until(lambda: len(one.workers) == 2)
    await until(lambda: one.workers == before, within=10)
    assert await processes_that_answer(one.url, "handshake") == set(before)
    hangs.unlink()

    def is_replaced() -> bool:
        # Where the machine is busy, one more may be too late.
        one.signal(signal.SIGHUP)
        return before[0] not in one.workers

    await until(is_replaced)
    one.signal(signal.SIGTERM)
    code, said = one.end()
    assert code == 0
    assert "its successor could not take its place: worker 0 did not serve within 3 s and was killed" in said


async def test_all_sessions_of_a_worker_move_to_its_successor(program: Start) -> None:
    """CRA-08: ten thousand with FERRULE_LONG, in five seconds, and each is there afterwards.

    SES-02: a wrong id is answered alike, whichever worker it names.
    """
    count = 10_000 if LONG else 300
    one = program(2, max_sessions=40_000)
    port = urlsplit(one.url).port
    before = set(one.workers)

    def opened() -> list[str]:
        found = []
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            for _ in range(count):
                connection.request("POST", "/mcp", INITIALIZE, HEADERS)
                with connection.getresponse() as answer:
                    answer.read()
                    found.append(answer.headers["Mcp-Session-Id"])
        return found

    def statuses(sessions: list[str]) -> list[tuple[int, bytes]]:
        found = []
        with closing(HTTPConnection("127.0.0.1", port, timeout=30)) as connection:
            for session in sessions:
                connection.request("POST", "/mcp", PING, HEADERS | {"Mcp-Session-Id": session})
                with connection.getresponse() as answer:
                    found.append((answer.status, answer.read()))
        return found

    sessions = await asyncio.to_thread(opened)
    over = asyncio.Event()

    async def keep_asking() -> set[int]:
        # Each time over a new connection, which the successor may take before it knows the session.
        found = set()
        while not over.is_set():
            found |= {status for status, _ in await asyncio.to_thread(statuses, [secrets.choice(sessions)])}
        return found

    asking = [asyncio.create_task(keep_asking()) for _ in range(3)]
    one.signal(signal.SIGHUP)
    took = await until(lambda: before.isdisjoint(one.workers) and len(one.workers) == 2)
    over.set()
    assert await asyncio.gather(*asking) == [{200}] * 3
    assert took < prompt(5.0)
    assert {status for status, _ in await asyncio.to_thread(statuses, sessions)} == {200}
    wrong = [f"{mark}{sessions[0][2:-1]}~" for mark in ("0.", "1.", "v.", "?.", "")]
    assert len(set(await asyncio.to_thread(statuses, wrong))) == 1


async def test_a_stream_of_a_former_worker_is_never_taken_for_one_of_its_successor(program: Start) -> None:
    """A session moves twice. What its former owners said is kept no more, and whoever resumes it is told so."""
    one = program(1)
    ask = asker(one)
    _, session, _ = await ask("POST", INITIALIZE)
    assert session is not None
    await ask("POST", INITIALIZED, Mcp_Session_Id=session)
    former: list[str] = []
    for _ in range(3):
        status, _, said = await ask("POST", NAP, Mcp_Session_Id=session)
        first = re.search(rb"^id: (.+)$", said, re.MULTILINE)
        assert status == 200
        assert first is not None
        for event_id in former:
            status, _, said = await ask(
                "GET", None, Mcp_Session_Id=session, Accept="text/event-stream", Last_Event_ID=event_id
            )
            assert (status, b"Nothing to resume" in said) == (404, True), said
        former.append(first[1].decode())
        await replace_workers(one)
    assert len(set(former)) == 3


async def test_with_stores_a_session_moves_with_its_state_and_is_over_once_it_is_deleted(
    program: Start, tmp_path: Path
) -> None:
    """The successor owns it, also for the store: a session that is deleted there does not come back."""
    text = PROGRAM.replace('Server("notes")', f'Server("notes", stores="sqlite:{tmp_path / "kept.db"}")')
    count = """
@app.tool
async def count(ctx: Context) -> int:
    ctx.state["count"] = ctx.state.get("count", 0) + 1
    return ctx.state["count"]

if __name__"""
    one = program(1, text.replace("\nif __name__", count, 1))
    ask = asker(one)
    _, session, _ = await ask("POST", INITIALIZE)
    assert session is not None
    await ask("POST", INITIALIZED, Mcp_Session_Id=session)
    for owner in range(1, 4):
        status, _, said = await ask("POST", COUNT, Mcp_Session_Id=session)
        assert (status, b'"result":%d' % owner in said) == (200, True), said
        await replace_workers(one)
    status, _, _ = await ask("DELETE", None, Mcp_Session_Id=session)
    assert status == 204
    status, _, _ = await ask("POST", PING, Mcp_Session_Id=session)
    assert status == 404
    await replace_workers(one)
    status, _, _ = await ask("POST", PING, Mcp_Session_Id=session)
    assert status == 404


AWAY = """
from ferrule.errors import StoreUnavailable
from ferrule.stores.sqlite.stores import SqliteSessions

def while_it_is_there(name):
    use = getattr(SqliteSessions, name)

    async def used(self, *given):
        if os.path.exists(sys.argv[0] + ".away"):
            raise StoreUnavailable("for a test")
        return await use(self, *given)

    setattr(SqliteSessions, name, used)

for name in ("create", "get", "save", "claim", "release", "delete"):
    while_it_is_there(name)

if __name__"""


async def test_while_the_store_is_away_sessions_move_beside_it(program: Start, tmp_path: Path) -> None:
    """Those from before, and those that it has never seen; nobody is asked to begin anew."""
    text = PROGRAM.replace('Server("notes")', f'Server("notes", stores="sqlite:{tmp_path / "kept.db"}")')
    one = program(1, text.replace("\nif __name__", AWAY, 1))
    ask = asker(one)
    sessions = []
    for _ in range(2):
        _, session, _ = await ask("POST", INITIALIZE)
        assert session is not None
        await ask("POST", INITIALIZED, Mcp_Session_Id=session)
        sessions.append(session)
        (tmp_path / "server.py.away").touch()
    for _ in range(2):
        await replace_workers(one)
        answered = [await ask("POST", WORKER, Mcp_Session_Id=session) for session in sessions]
        assert [status for status, _, _ in answered] == [200, 200]
    (tmp_path / "server.py.away").unlink()
    await replace_workers(one)
    answered = [await ask("POST", WORKER, Mcp_Session_Id=session) for session in sessions]
    assert [status for status, _, _ in answered] == [200, 200]


def test_a_worker_that_does_not_answer_is_replaced(program: Start) -> None:
    """CRA-04: one that is stopped gives no sign of life for five seconds, and is killed."""

    async def work() -> None:
        one = program(2)
        victim = one.workers[0]
        os.kill(victim, signal.SIGSTOP)
        took = await until(lambda: victim not in one.workers and len(one.workers) == 2)
        assert took > 3
        assert await processes_that_answer(one.url, "stateless") <= set(one.workers)

    run(work())


def test_workers_end_with_their_overseer(program: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CRA-03: none is left behind, neither one that imports nor one that was stopped; the port is free."""
    # The paths of Unix sockets must be short.
    temporary = Path(tempfile.mkdtemp(prefix="t-"))
    monkeypatch.setenv("TMPDIR", str(temporary))
    hangs = tmp_path / "hangs"
    text = PROGRAM.replace("kept = []", f"kept = []\nif os.path.exists({str(hangs)!r}): time.sleep(60)")

    async def work() -> None:
        one = program(2, text)
        assert len(list(temporary.glob("ferrule-*"))) == 1
        hangs.touch()
        one.signal(signal.SIGHUP)
        await until(lambda: len(one.workers) == 3)
        workers = one.workers
        os.kill(workers[1], signal.SIGSTOP)
        one.process.kill()
        one.process.wait()
        await asyncio.sleep(0.5)
        os.kill(workers[1], signal.SIGCONT)
        one.end()
        temporary.rmdir()  # it is empty
        await until(lambda: not any(os.path.exists(f"/proc/{each}") for each in workers), within=10)
        port = int(one.url.split(":")[2].split("/")[0])
        with socket.create_server(("127.0.0.1", port)):
            pass

    run(work())


def test_a_process_that_a_tool_starts_does_not_keep_the_port(program: Start) -> None:
    """Nor anything else of its worker: whoever connects after the end is refused, not left waiting."""
    text = (
        "import os\nfrom ferrule import Server\napp = Server('x')\n"
        "@app.tool\nasync def start() -> int:\n    return os.system('exec sleep 30 >/dev/null 2>&1 & echo $! >&2')\n"
        "if __name__ == '__main__':\n    app.run('http', port=0, workers=2)\n"
    )

    async def work() -> None:
        one = program(2, text)
        async with Client(one.url, mode="stateless") as client:
            assert (await client.call_tool("start")).data == 0
        one.signal(signal.SIGTERM)
        code, said = one.end()
        child = int(said)
        try:
            assert code == 0
            assert {name for name in os.listdir(f"/proc/{child}/fd") if int(name) > 2} == set()
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", int(one.url.split(":")[2].split("/")[0])), 5).close()
        finally:
            os.kill(child, signal.SIGKILL)

    run(work())


def test_one_signal_ends_all_in_order(program: Start) -> None:
    """A call that runs is answered; the program ends with 0."""

    async def work() -> None:
        one = program(2)
        async with Client(one.url, mode="stateless") as client:
            call = asyncio.create_task(client.call_tool("nap", {"seconds": 0.5}))
            await asyncio.sleep(0.2)
            one.signal(signal.SIGTERM)
            assert (await call).data
        code, said = one.end()
        assert (code, said) == (0, "")

    run(work())


def test_a_worker_has_as_long_to_end_as_its_server_says(program: Start) -> None:
    """Its grace, the time a load balancer needs to look elsewhere, and two seconds more; then it is killed."""
    text = (
        "import time\nfrom contextlib import asynccontextmanager\nfrom ferrule import Server\n"
        "@asynccontextmanager\nasync def life(app):\n    yield\n    time.sleep(60)\n"
        "app = Server('x', lifespan=life, shutdown_grace=0.1)\n"
        "if __name__ == '__main__':\n    app.run('http', port=0, workers=2, drain_delay=0.1)\n"
    )
    one = program(2, text)
    workers = one.workers
    began = time.monotonic()
    one.signal(signal.SIGTERM)
    assert one.end() == (0, "")
    assert 2.2 <= time.monotonic() - began < 15.0  # not the 60 s of its lifespan
    assert not any(os.path.exists(f"/proc/{each}") for each in workers)


@pytest.mark.parametrize(
    ("text", "code", "sentence"),
    [
        ("from ferrule import Server\nimport nowhere\n", 1, "nowhere"),
        (
            "from ferrule import Server\ndef make():\n    return Server('x')\n"
            "if __name__ == '__main__':\n    make().run('http', port=0, workers=2)\n",
            1,
            "assign it to a name of the module",
        ),
        ("from ferrule import Server\napp = Server('x')\napp.run('http', port=0, workers=2)\n", 3, "__main__"),
        (
            "from ferrule import Server\napp = Server('x')\nif __name__ == '__main__':\n    app.run(workers=2)\n",
            1,
            "stdio cannot be served by several workers",
        ),
        (
            "from ferrule import Server\napp = Server('x')\nif __name__ == '__main__':\n"
            "    app.run('http', port=0, workers=33)\n",
            1,
            "workers must be",
        ),
        (
            "from contextlib import asynccontextmanager\nfrom ferrule import Server\n"
            "@asynccontextmanager\nasync def life(app):\n    raise ValueError('no database')\n    yield\n"
            "app = Server('x', lifespan=life)\n"
            "if __name__ == '__main__':\n    app.run('http', port=0, workers=2)\n",
            3,
            "no database",
        ),
        (
            "import __main__, os\nfrom ferrule import Server\napp = Server('x')\n"
            "if __name__ != '__main__':\n    raise ValueError('broken here')\n"
            "app.run('http', port=0, workers=2)\n",
            3,
            "broken here",
        ),
        (
            "from ferrule import Server\nfrom ferrule.workers import worker\napp = Server('x')\n"
            "if worker.slot == 1:\n    raise ValueError('no room for two')\n"
            "if __name__ == '__main__':\n    app.run('http', port=0, workers=2)\n",
            3,
            "no room for two",
        ),
    ],
    ids=[
        "cannot be imported",
        "has no name",
        "is not guarded",
        "over stdio",
        "too many",
        "lifespan fails",
        "fails in a worker",
        "fails in the second worker",
    ],
)
def test_what_cannot_be_is_told_in_one_sentence(program: Start, text: str, code: int, sentence: str) -> None:
    """CRA-02: a worker that cannot begin is not begun again and again."""
    one = program(2, text)
    ended, rest = one.end()
    assert ended == code
    assert sentence in one.said + rest


def test_a_worker_that_keeps_dying_ends_the_program(program: Start) -> None:
    """CRA-02: it is started again five times, later and later, and the last reason is told."""
    text = (
        "import asyncio, os\nfrom contextlib import asynccontextmanager\nfrom ferrule import Server\n"
        "@asynccontextmanager\nasync def life(app):\n"
        "    asyncio.get_running_loop().call_later(0.1, os._exit, 7)\n    yield\n"
        "app = Server('x', lifespan=life)\n"
        "if __name__ == '__main__':\n    app.run('http', port=0, workers=1)\n"
    )
    one = program(1, text)
    code, said = one.end()
    assert code == 1
    assert said.count("; restart ") == 5
    assert "error: worker 0 has ended with exit code 7" in said


def test_a_request_for_a_worker_that_is_gone_is_answered(program: Start) -> None:
    """A session whose worker died is not found, and the client opens another."""

    async def work() -> None:
        one = program(2)
        async with Client(one.url, mode="handshake") as client:
            worker = (await client.call_tool("worker")).data
            os.kill(worker, signal.SIGKILL)
            await until(lambda: worker not in one.workers and len(one.workers) == 2)
            with pytest.raises(CallFailed):
                await client.call_tool("worker")
            assert (await client.call_tool("worker")).data in one.workers

    run(work())
