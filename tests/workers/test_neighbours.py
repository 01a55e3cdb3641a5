"""Requests that go to another worker and come back answered, over a real mesh."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from ferrule.identity.principal import Principal
from ferrule.transports.http.cluster.frames import LONGEST_CONTENT
from ferrule.transports.http.endpoint.sessions import MovedSession
from ferrule.transports.http.message import HttpRequest, Responder
from ferrule.workers.mesh import Mesh
from ferrule.workers.neighbours import MOST_BACKLOG, OWNER_GONE, WorkerNeighbours
from ferrule.workers.questions import Questions

REQUEST = HttpRequest("POST", "/mcp", "", {b"a": b"b"}, b"body", "127.0.0.1")
THEIRS = "1.session"


class Noting:
    """A way back that no other process can take over, and notes what is said on it."""

    gone = False
    backlog = 0
    unacknowledged = None

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []
        self.lost = lambda: None
        self.over = asyncio.Event()

    def reply(self, status: int, head: bytes, body: bytes = b"") -> None:
        self.said.append((status, head, body))
        self.over.set()

    def begin(self, status: int, head: bytes, filler: bytes = b"") -> None:
        self.said.append((status, head))

    def write(self, data: bytes) -> None:
        self.said.append((data,))

    def finish(self) -> None:
        self.over.set()

    def abort(self) -> None:
        self.said.append(("cut",))
        self.over.set()

    def watch(self, lost: object) -> None:
        self.lost = lost  # type: ignore[assignment]

    async def wait_writable(self) -> None: ...


def pair(folder: Path) -> tuple[WorkerNeighbours, WorkerNeighbours, Mesh, Mesh]:
    """Return two workers that know each other."""
    meshes = [Mesh(str(folder), slot, 2) for slot in (0, 1)]
    first, second = [WorkerNeighbours(mesh, Questions(mesh)) for mesh in meshes]
    for mesh in meshes:
        mesh.open()
    return first, second, meshes[0], meshes[1]


async def test_a_request_that_cannot_move_is_forwarded_and_its_answer_comes_back(tmp_path: Path) -> None:
    first, second, *meshes = pair(tmp_path)
    asked: list[HttpRequest] = []

    def answer(request: HttpRequest, responder: Responder) -> None:
        asked.append(request)
        if request.path == "/mcp":
            responder.reply(200, b"x: y\r\n", request.body * 2)
        else:
            responder.begin(200, b"")
            responder.write(b"one")
            responder.finish()

    second.handle = answer
    whole, parts = Noting(), Noting()
    assert first.pass_on(THEIRS, REQUEST, whole)
    assert first.pass_on(THEIRS, HttpRequest("GET", "/stream", "", {}), parts)
    await asyncio.wait_for(asyncio.gather(whole.over.wait(), parts.over.wait()), 5)
    assert whole.said == [(200, b"x: y\r\n", b"bodybody")]
    assert parts.said == [(200, b""), (b"one",)]
    assert (asked[0].method, asked[0].headers, asked[0].address) == ("POST", {b"a": b"b"}, "127.0.0.1")
    for mesh in meshes:
        mesh.close()


async def test_who_sent_a_request_is_known_to_the_worker_it_is_forwarded_to(tmp_path: Path) -> None:
    """Its certificate and its proof of possession are of use where it came in only: there it was verified."""
    first, second, *meshes = pair(tmp_path)
    judged: list[HttpRequest] = []
    answered: list[HttpRequest] = []

    def noted(where: list[HttpRequest]) -> Callable[[HttpRequest, Responder], None]:
        def note(request: HttpRequest, responder: Responder) -> None:
            where.append(request)
            responder.reply(200, b"")

        return note

    second.handle, second.answer = noted(judged), noted(answered)
    ada = Principal(issuer="test", subject="ada", scopes=frozenset({"notes"}), expires=7.5, claims={"n": [1]})
    strange = Principal(issuer="test", subject="bob", claims={"of": object()})
    for identity in (ada, None, strange):
        request = HttpRequest("POST", "/mcp", "", {}, identity=identity, recheck_at=9.5, http="2")
        asking = Noting()
        assert first.pass_on(THEIRS, request, asking)
        await asyncio.wait_for(asking.over.wait(), 5)
    assert [(request.identity, request.recheck_at, request.http) for request in answered] == [
        (ada, 9.5, "2"),
        (None, 9.5, "2"),
    ]
    assert [request.identity for request in judged] == [None]
    for mesh in meshes:
        mesh.close()


async def test_who_asked_and_left_is_told_to_the_one_that_answers(tmp_path: Path) -> None:
    first, second, *meshes = pair(tmp_path)
    left = asyncio.Event()
    second.handle = lambda request, responder: responder.watch(left.set)
    asking = Noting()
    first.pass_on(THEIRS, REQUEST, asking)
    await asyncio.sleep(0.05)
    asking.lost()
    await asyncio.wait_for(left.wait(), 5)
    for mesh in meshes:
        mesh.close()


async def test_a_client_that_does_not_read_is_cut_and_the_one_that_answers_hears_so(tmp_path: Path) -> None:
    first, second, *meshes = pair(tmp_path)
    left = asyncio.Event()

    def answer(request: HttpRequest, responder: Responder) -> None:
        responder.watch(left.set)
        responder.begin(200, b"")
        responder.write(b"one")

    second.handle = answer
    slow = Noting()
    slow.backlog = MOST_BACKLOG + 1
    first.pass_on(THEIRS, REQUEST, slow)
    await asyncio.wait_for(left.wait(), 5)
    assert slow.said[-1] == ("cut",)
    for mesh in meshes:
        mesh.close()


async def test_an_answer_too_long_for_the_mesh_costs_nobody_elses(tmp_path: Path) -> None:
    first, second, *meshes = pair(tmp_path)
    waiting: list[Responder] = []

    def answer(request: HttpRequest, responder: Responder) -> None:
        if request.path == "/mcp":
            waiting.append(responder)
        else:
            responder.reply(200, b"", bytes(LONGEST_CONTENT + 1))

    second.handle = answer
    other, long = Noting(), Noting()
    first.pass_on(THEIRS, REQUEST, other)
    first.pass_on(THEIRS, HttpRequest("GET", "/long", "", {}), long)
    await asyncio.wait_for(long.over.wait(), 5)
    assert long.said == [("cut",)]
    waiting[0].reply(200, b"", b"mine")
    await asyncio.wait_for(other.over.wait(), 5)
    assert other.said == [(200, b"", b"mine")]
    for mesh in meshes:
        mesh.close()


async def test_a_worker_that_dies_leaves_nobody_waiting(tmp_path: Path) -> None:
    first, second, here, there = pair(tmp_path)
    second.handle = lambda request, responder: None
    asking = Noting()
    first.pass_on(THEIRS, REQUEST, asking)
    await asyncio.sleep(0.05)
    there.close()
    await asyncio.wait_for(asking.over.wait(), 5)
    assert asking.said[0][0] == 502
    assert asking.said[0][2] == OWNER_GONE
    here.close()


async def test_an_id_of_nobody_else_is_not_passed_on(tmp_path: Path) -> None:
    first, _, *meshes = pair(tmp_path)
    for identity in ("0.ours", "9.beyond", "1session", "", "?.odd"):
        assert not first.pass_on(identity, REQUEST, Noting())
    for mesh in meshes:
        mesh.close()


async def test_a_successor_lets_a_request_wait_for_its_session(tmp_path: Path) -> None:
    """Until all sessions were given; then it is judged as any other, and so is what comes later."""
    before = Mesh(str(tmp_path), 0, 1)
    leaving = WorkerNeighbours(before, Questions(before))
    before.open()
    after = Mesh(str(tmp_path), 0, 1)
    successor = WorkerNeighbours(after, Questions(after), succeeds=True)
    given: list[str] = []
    successor.handle = lambda request, responder: responder.reply(200 if given else 404, b"")
    successor.adopt_session = lambda record: given.append(record.id)
    after.open()
    early = Noting()
    assert successor.pass_on("0.session", REQUEST, early)
    assert early.said == []

    async def leave_to(give: object, give_session: Callable[[MovedSession], None]) -> None:
        give_session(MovedSession("0.session", b"{}"))

    await leaving.leave(leave_to)
    await asyncio.wait_for(early.over.wait(), 5)
    assert given == ["0.session"]
    assert early.said[0][0] == 200
    assert not successor.pass_on("0.session", REQUEST, Noting())
    for mesh in (before, after):
        mesh.close()


async def test_a_request_with_a_proof_that_counts_once_is_forwarded_and_not_judged_again(tmp_path: Path) -> None:
    first, second, *meshes = pair(tmp_path)

    class Movable(Noting):
        def transfer(self, body: bytes) -> object:
            raise AssertionError("it would be judged once more there")

    def answer(request: HttpRequest, responder: Responder) -> None:
        responder.reply(200, b"", str(request.identity).encode())

    second.answer = second.handle = answer
    proven = HttpRequest("POST", "/mcp", "", {}, b"", "127.0.0.1")
    proven.identity = Principal(issuer="dev", subject="ada", confirmation={"jkt": "thumb"})
    way = Movable()
    assert first.pass_on(THEIRS, proven, way)
    await asyncio.wait_for(way.over.wait(), 5)
    assert way.said[0][0] == 200
    for mesh in meshes:
        mesh.close()
