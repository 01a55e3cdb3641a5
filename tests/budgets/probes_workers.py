"""Probes of what workers of one server ask of each other."""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from unittest import mock

from lasting import lasts_longer
from probes_more_http import REQUEST, Noting
from table import period, probe

from ferrule.errors import SetupError
from ferrule.transports.http.cluster.frames import PART
from ferrule.transports.http.message import HttpRequest
from ferrule.workers import neighbours, pipe, questions
from ferrule.workers.mesh import Mesh
from ferrule.workers.neighbours import WorkerNeighbours
from ferrule.workers.pipe import HEADER, NOTICE, QUESTION, Frame, Pipe
from ferrule.workers.plan import WorkerPlan, read_plan, say, write_plan
from ferrule.workers.questions import Question, Questions

THEIRS, OURS = "1.session", "0.session"


@asynccontextmanager
async def two_workers(*, succeeds: bool = False) -> AsyncIterator[tuple[Mesh, Questions, WorkerNeighbours]]:
    """The first of two workers; the second is there, and answers nothing."""
    with tempfile.TemporaryDirectory() as folder:
        mesh, other = [Mesh(folder, slot, 2) for slot in (0, 1)]
        asking = Questions(mesh)
        first = WorkerNeighbours(mesh, asking, succeeds=succeeds)
        for each in (mesh, other):
            each.open()
        yield mesh, asking, first
        for each in (mesh, other):
            each.close()


async def are_passed_on(identity: str, limit: int, size: int) -> bool:
    """Return whether so many requests wait at once for the worker that made an id."""
    answered = Noting()
    with mock.patch.object(neighbours, "MAX_FORWARDED", limit):
        async with two_workers(succeeds=True) as (_, _, worker):
            for _ in range(size):
                if not worker.pass_on(identity, REQUEST, answered) or answered.said:  # type: ignore[arg-type]
                    return False
    return True


@probe("ferrule.workers.neighbours.MAX_FORWARDED", lowered=5)
async def forwarded_requests(limit: int, size: int) -> bool:
    """Those that another worker answers, and those that wait for their session to come here."""
    taken = {await are_passed_on(THEIRS, limit, size), await are_passed_on(OURS, limit, size)}
    assert len(taken) == 1
    return taken.pop()


@probe("ferrule.workers.neighbours.MOST_FORWARDED_BYTES", lowered=2_000_000)
async def bodies_of_forwarded_requests(limit: int, size: int) -> bool:
    """Those that wait for their session to come here, and those for a worker that reads nothing."""
    size = min(size, 3 * limit)
    taken = set()
    with mock.patch.object(neighbours, "MOST_FORWARDED_BYTES", limit):
        async with two_workers(succeeds=True) as (mesh, _, worker):
            answered = Noting()
            for length in (limit // 2, size - limit // 2):
                worker.pass_on(OURS, request_of(length), answered)  # type: ignore[arg-type]
            taken.add(not answered.said)
            worker._all_given()
            assert worker._held.held == 0

            answered = Noting()
            worker.pass_on(THEIRS, request_of(limit // 2), answered)  # type: ignore[arg-type]
            to_other = mesh.to(1)
            assert to_other is not None
            worker.pass_on(THEIRS, request_of(size - to_other.backlog), answered)  # type: ignore[arg-type]
            taken.add(not answered.said)
    assert len(taken) == 1
    return taken.pop()


def request_of(length: int) -> HttpRequest:
    return HttpRequest("POST", "/mcp", "", {}, b"x" * length)


@probe("ferrule.workers.neighbours.MOST_BACKLOG", lowered=1000)
async def a_slow_client_of_a_worker(limit: int, size: int) -> bool:
    responder = Noting()
    with mock.patch.object(neighbours, "MOST_BACKLOG", limit):
        async with two_workers() as (mesh, _, worker):
            assert worker.pass_on(THEIRS, REQUEST, responder)  # type: ignore[arg-type]
            to_other = mesh.to(1)
            assert to_other is not None
            worker._part(to_other, Frame(PART, worker._last, b"x" * size))
    return not responder.is_cut


@probe("ferrule.workers.questions.MAX_OPEN", lowered=5)
async def open_questions(limit: int, size: int) -> bool:
    """Those we ask, and those we are asked."""
    with mock.patch.object(questions, "MAX_OPEN", limit):
        async with two_workers() as (_, asking, _):
            asks = [asyncio.ensure_future(asking.ask(1, "wait", limit=30)) for _ in range(min(size, 3 * limit))]
            await asyncio.sleep(0)
            asked = not any(each.done() for each in asks)
            for each in asks:
                each.cancel()
            await asyncio.gather(*asks, return_exceptions=True)

            asking.on("wait", lambda content: asyncio.Event().wait())  # type: ignore[arg-type, return-value]
            refused = mock.Mock()
            for number in range(size):
                asking._asked(refused, Frame(QUESTION, number, questions._encode(Question("wait", b""))))
            assert len(asking._scope.tasks) <= limit
            answering = not refused.send.called
            await asking.close()
    assert asked is answering
    return asked


def ignore_lost(lost: Pipe) -> None: ...


@probe("ferrule.workers.pipe.MAX_UNSENT", lowered=2_000_000)
async def unsent(limit: int, size: int) -> bool:
    """So many bytes wait for a worker that reads nothing: is another frame taken?"""
    here, there = socket.socketpair()
    sending = Pipe(here, lambda pipe, frame: None, ignore_lost)
    size = min(size, 3 * limit)
    with mock.patch.object(pipe, "MAX_UNSENT", limit):
        sending.send(NOTICE, 0, b"x" * (limit // 2))
        sending.send(NOTICE, 0, b"x" * (size - sending.backlog - HEADER.size))
        assert sending.backlog == size
        sending.send(NOTICE, 0)
        taken = not sending.closed
    sending.close()
    there.close()
    return taken


@probe("ferrule.workers.pipe.MOST_DESCRIPTORS")
async def descriptors(limit: int, size: int) -> bool:
    """All with one frame, which the system takes too where they are a few hundred at most."""
    here, there = socket.socketpair()
    receiving = Pipe(there, lambda pipe, frame: None, ignore_lost)
    try:
        socket.send_fds(here, [HEADER.pack(NOTICE, 0, 0)], [here.fileno()] * size)
    except OSError:
        receiving.close()
    else:
        receiving._readable()
        assert receiving.closed or len(receiving._descriptors) == size
    taken = not receiving.closed
    receiving.close()
    here.close()
    return taken


@probe("ferrule.workers.plan.LONGEST_PLAN")
async def a_plan(limit: int, size: int) -> bool:
    with tempfile.TemporaryFile() as file:

        def plan(options: str) -> bytes:
            return write_plan(
                WorkerPlan(
                    slot=0,
                    count=1,
                    folder="",
                    places=[],
                    transport="http",
                    options={"a": options},
                    listening=[],
                    status=file.fileno(),
                    request_state_keys=[],
                )
            )

        much = "x" * 100_000
        fill = size - len(plan(much)) + len(much)
        file.write(size.to_bytes(4, "big") + (plan("x" * fill) if size <= 2 * limit else b""))
        file.seek(0)
        try:
            return len(read_plan(file.fileno()).options["a"]) == fill
        except SetupError:
            return False


@probe("ferrule.workers.plan.LONGEST_LINE", clamps=True)
async def a_line(limit: int, size: int) -> bool:
    read, write = os.pipe()
    say(write, b"f", "x" * (size - 1))
    line = os.read(read, 2**16)
    for each in (read, write):
        os.close(each)
    return len(line) == size + 1


@period("ferrule.workers.neighbours.GIVING_TIME")
async def a_request_that_waits_for_its_session(lasts: float, seconds: float) -> bool:
    """It is answered then, wherever its session may be."""
    async with two_workers(succeeds=True) as (_, _, worker):
        answered: list[object] = []
        worker.handle = lambda request, responder: answered.append(request)
        assert worker.pass_on(OURS, REQUEST, Noting())  # type: ignore[arg-type]
        await asyncio.sleep(seconds)
        return not answered


@period("ferrule.workers.neighbours.ASK_LIMIT")
async def a_question_a_client_waits_for(lasts: float, seconds: float) -> bool:
    async with two_workers() as (_, _, worker):
        return await lasts_longer(worker.ask(THEIRS, "topic", b""), seconds)


@period("ferrule.workers.questions.TIME_LIMIT")
async def a_question(lasts: float, seconds: float) -> bool:
    async with two_workers() as (_, asking, _):
        return await lasts_longer(asking.ask(1, "topic"), seconds)
