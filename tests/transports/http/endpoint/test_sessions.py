"""The table of sessions: found by an id nobody can guess, ended when idle, old or too many."""

from __future__ import annotations

import asyncio
import base64
import gc
import random
import statistics
import time
import tracemalloc
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.identity.principal import Principal
from ferrule.stores.memory import MemoryEventLog
from ferrule.transports.http.endpoint.keepalive import Keepalive
from ferrule.transports.http.endpoint.sessions import (
    ID_BYTES,
    INTRODUCTION,
    Eviction,
    MovedSession,
    ReplayChannel,
    Sessions,
)
from ferrule.transports.http.endpoint.streams import EndpointStreams
from ferrule.transports.http.settings import EndpointSettings
from ferrule.wire.channel import Channel, Origin
from ferrule.wire.messages import ErrorObject, Failure, Notification, Success


class Link:
    """A receiver that notes its end."""

    def __init__(self) -> None:
        self.lost = self.busy = False

    def channel_opened(self, channel: Channel) -> None: ...

    def channel_lost(self, channel: Channel, error: Exception | None) -> None:
        self.lost = True


class Table:
    """A table of sessions, with a clock that is set by hand."""

    def __init__(self, **settings: Any) -> None:
        self.shared = EndpointStreams(
            MemoryEventLog(), Keepalive(2.0, 15.0, lambda now: None), EndpointSettings(**settings)
        )
        self.sessions = Sessions(lambda origin: Link(), lambda link: link.busy, self.shared)  # type: ignore[attr-defined,arg-type,return-value]

    def open(self, principal: str | None = None, address: str = "192.0.2.1", introduction: bytes = b"") -> Any:
        session = self.sessions.prepare(Origin("http", address, principal=principal))
        self.sessions.add(session, introduction)
        return session

    def use(self, *sessions: Any) -> None:
        for session in sessions:
            assert self.sessions.find(session.id.encode(), session.binding) is session

    def at(self, now: float) -> Table:
        self.shared.now = now
        return self


# -- ids


def test_ses_01_session_ids_are_long_unique_visible_and_free_of_time() -> None:
    """HTL-24."""
    table = Table()
    ids = [table.sessions.prepare(Origin("http")).id for _ in range(10_000)]
    assert ID_BYTES * 8 >= 128
    assert len(set(ids)) == len(ids)
    assert {len(identity) for identity in ids} == {32}
    assert all("!" <= character <= "~" for identity in ids for character in identity)
    for place in range(32):
        # A counter or a clock would show as a place where few characters occur.
        assert len({identity[place] for identity in ids}) == 64
    assert len({identity[:8] for identity in ids}) == len(ids)


def test_nothing_that_can_be_known_tells_the_next_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """SES-07: neither the clock, nor the seed of `random`, nor the ids before; every bit is as good as tossed."""
    seen: list[list[str]] = []
    monkeypatch.setattr(time, "time", lambda: 1_700_000_000.0)
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000 * 10**9)
    for _ in range(2):
        random.seed(7)
        table = Table()
        seen.append([table.sessions.prepare(Origin("http")).id for _ in range(2000)])
    assert not set(seen[0]) & set(seen[1])
    numbers = [int.from_bytes(base64.urlsafe_b64decode(identity), "big") for each in seen for identity in each]
    for bit in range(8 * ID_BYTES):
        ones = sum(number >> bit & 1 for number in numbers)
        changes = sum((one ^ next_one) >> bit & 1 for one, next_one in pairwise(numbers))
        # 4000 tosses: seven standard deviations either way.
        assert 1780 < ones < 2220
        assert 1780 < changes < 2220


def test_a_session_is_found_by_its_whole_id_only() -> None:
    table = Table()
    session = table.open()
    right = session.id.encode()
    assert table.sessions.find(right, None) is session
    for wrong in (right[:-1], right + b"x", right.swapcase(), right + b", " + right, b"", b"\xff", b"/" + right):
        assert table.sessions.find(wrong, None) is None


def test_another_principals_session_is_not_found_and_not_harmed() -> None:
    table = Table()
    session = table.open("alice")
    table.at(100)
    for other in ("bob", None, "", "ALICE"):
        assert table.sessions.find(session.id.encode(), other) is None
    assert session.used == 0
    assert table.sessions.find(session.id.encode(), "alice") is session
    unowned = table.open(None)
    assert table.sessions.find(unowned.id.encode(), "alice") is None


def test_a_session_is_bound_to_the_whole_of_its_principal() -> None:
    table = Table()
    session = table.open("subject|client")
    assert table.sessions.find(session.id.encode(), "subject|other client") is None
    assert table.sessions.find(session.id.encode(), "other subject|client") is None
    assert table.sessions.find(session.id.encode(), "subject|client") is session


# -- endings


def test_an_idle_session_ends_after_its_time() -> None:
    """seed:HTTP-22, HTL-23, HTL-27."""
    table = Table(session_idle_timeout=100, session_lifetime=10_000)
    session = table.open()
    table.sessions.sweep(100)
    assert len(table.sessions) == 1
    table.sessions.sweep(100.1)
    assert (len(table.sessions), session.link.lost) == (0, True)


def test_an_idle_session_ends_after_its_time_in_the_first_second_too() -> None:
    table = Table(session_idle_timeout=0.25)
    session = table.open()
    table.sessions.sweep(0.5)
    assert (len(table.sessions), session.link.lost) == (0, True)


def test_a_sweep_that_found_nothing_due_misses_none_of_those_that_come_later() -> None:
    """Each ends at its own time, whatever was opened or used between the sweeps, and nobody before it."""
    table = Table(session_idle_timeout=100, session_lifetime=250)
    opened: dict[str, float] = {}
    used: dict[str, float] = {}
    for now in range(0, 1000, 5):
        table.at(now).sessions.sweep(now)
        kept = {session.id: session for session in table.sessions}
        due = {each for each in used if used[each] < now - 100 or opened[each] < now - 250}
        assert kept.keys() == used.keys() - due
        for each in due:
            del used[each], opened[each]
        if now % 35 == 0 and now < 600:
            session = table.open()
            opened[session.id] = used[session.id] = now
        if now % 15 == 0:
            for session in list(table.sessions)[::2]:
                table.use(session)
                used[session.id] = now
    assert len(table.sessions) == 0


def test_a_session_that_is_used_does_not_end() -> None:
    table = Table(session_idle_timeout=100, session_lifetime=10_000)
    session = table.open()
    for now in range(0, 9_000, 90):
        table.at(now)
        assert table.sessions.find(session.id.encode(), None) is session
        table.sessions.sweep(now)
    assert len(table.sessions) == 1


def test_even_a_busy_session_grows_too_old_once_it_rests() -> None:
    table = Table(session_idle_timeout=100, session_lifetime=1000)
    session = table.open()
    session.link.busy = True
    table.at(1001).sessions.sweep(1001)
    assert len(table.sessions) == 1
    session.link.busy = False
    table.at(1002).sessions.sweep(1002)
    assert len(table.sessions) == 0


async def test_a_session_whose_stream_is_always_read_grows_too_old_all_the_same(answering: Any) -> None:
    """Most clients keep a stream open for as long as they live: only a running call puts the end off."""
    table = Table(session_idle_timeout=100, session_lifetime=1000)
    session = table.open()
    reader = answering()
    session.standing.attach(reader, b"")
    session.link.busy = True
    for now in range(0, 2000, 50):
        table.at(now).sessions.sweep(now)
    assert len(table.sessions) == 1
    session.link.busy = False
    table.at(2001).sessions.sweep(2001)
    assert (len(table.sessions), session.link.lost, reader.over) == (0, True, True)


def test_the_idle_time_begins_when_the_last_call_has_ended() -> None:
    table = Table(session_idle_timeout=100, session_lifetime=10_000)
    session = table.open()
    session.link.busy = True
    table.at(500).sessions.sweep(500)
    session.link.busy = False
    table.at(600).sessions.sweep(600)
    assert len(table.sessions) == 1
    table.at(601).sessions.sweep(601)
    assert len(table.sessions) == 0


async def test_a_session_that_is_read_lasts_for_its_whole_lifetime(answering: Any) -> None:
    table = Table(session_idle_timeout=100, session_lifetime=1000)
    table.open().standing.attach(answering(), b"")
    table.at(1000).sessions.sweep(1000)
    assert len(table.sessions) == 1
    table.at(1001).sessions.sweep(1001)
    assert len(table.sessions) == 0


async def test_a_session_whose_reader_has_just_left_lasts_for_its_whole_lifetime_too(answering: Any) -> None:
    table = Table(session_idle_timeout=100, session_lifetime=1000)
    session = table.open()
    reader = answering()
    session.standing.attach(reader, b"")
    table.at(950)
    reader.leave()
    table.at(1000).sessions.sweep(1000)
    assert len(table.sessions) == 1
    table.at(1000.1).sessions.sweep(1000.1)
    assert len(table.sessions) == 0


async def test_the_idle_time_begins_when_the_last_reader_has_left(answering: Any) -> None:
    """SES-11."""
    table = Table(session_idle_timeout=100, session_lifetime=1_000_000)
    session = table.open()
    reader = answering()
    session.standing.attach(reader, b"")
    for now in range(0, 1000, 2):
        table.at(now).sessions.sweep(now)
    reader.leave()
    for now in range(1000, 1099, 2):
        table.at(now).sessions.sweep(now)
        assert len(table.sessions) == 1
    table.at(1101).sessions.sweep(1101)
    assert len(table.sessions) == 0


async def test_ses_11_sessions_in_use_never_expire(endpoint: Any, app: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a wall clock that jumps end any: time is the loop's, which only goes forward."""
    async with endpoint(app, session_idle_timeout=60) as doors:
        calling, reading, idle = doors.client(), doors.client(), doors.client()
        running = calling.call("rest", {"seconds": 10_000})
        stream = reading.get()
        await asyncio.sleep(10)
        for jump in (3600, -3600):
            monkeypatch.setattr(time, "time", lambda jump=jump: 1_700_000_000 + jump)
            await asyncio.sleep(10)
            assert len(doors.doors.sessions) == 3
        monkeypatch.undo()
        await asyncio.sleep(5_000)
        assert len(doors.doors.sessions) == 2
        assert idle.ask("tools/list").status == 404
        assert (await running.whole()).text == "rested 10000 s"
        assert not stream.over
        await asyncio.sleep(50)
        assert [client.ask("tools/list").status for client in (calling, reading)] == [200, 200]


def test_the_idlest_makes_room_when_there_are_too_many() -> None:
    table = Table(max_sessions=100)
    sessions = []
    for now in range(100):
        table.at(now)
        sessions.append(table.open())
    table.at(500)
    for session in sessions[:10]:
        table.sessions.find(session.id.encode(), None)
    for now in range(501, 521):
        table.at(now).open()
    assert len(table.sessions) == 100
    assert [session.link.lost for session in sessions[:40]] == [False] * 10 + [True] * 20 + [False] * 10


def test_a_session_in_use_makes_room_only_when_all_are_in_use() -> None:
    table = Table(max_sessions=3)
    sessions = [table.open() for _ in range(3)]
    for session in sessions[:2]:
        session.link.busy = True
    newer = table.open()
    assert [session.link.lost for session in sessions] == [False, False, True]
    newer.link.busy = True
    table.open()
    assert len(table.sessions) == 3
    assert [session.link.lost for session in (*sessions[:2], newer)].count(True) == 1


def test_a_session_that_is_used_while_it_is_noted_as_idle_makes_no_room() -> None:
    """The idlest are noted many at a time; whoever is used after that is no longer one of them."""
    table = Table(max_sessions=100)
    sessions = []
    for now in range(100):
        sessions.append(table.at(now).open())
        table.use(sessions[-1])
    table.use(table.at(200).open())
    assert sessions[0].link.lost
    table.use(*sessions[1:5])
    for now in range(300, 303):
        table.use(table.at(now).open())
    assert [session.link.lost for session in sessions[:10]] == [True] + [False] * 4 + [True] * 3 + [False] * 2


def test_sessions_nobody_used_make_room_before_those_that_were() -> None:
    """BUD-14: all from one address, as behind a proxy: 51,000 handshakes end none of the sessions that were used."""
    table = Table()
    most = table.shared.settings.max_sessions
    used = [table.open() for _ in range(100)]
    table.use(*used)
    flood = [table.at(now).open() for now in range(1, 51_001)]
    assert len(table.sessions) == most
    assert not any(session.link.lost for session in used)
    assert [session.link.lost for session in flood].count(False) == most - 100
    assert not flood[-1].link.lost


def test_whoever_opens_most_sessions_pushes_out_its_own() -> None:
    """Its sessions are used as well, so only their number tells; idle ones of others are left alone."""
    table = Table(max_sessions=500)
    others = [table.open(address=f"198.51.100.{number}") for number in range(100)]
    table.use(*others)
    for now in range(1, 2_001):
        table.use(table.at(now).open(address="203.0.113.9"))
    assert len(table.sessions) == 500
    assert not any(session.link.lost for session in others)


@pytest.mark.parametrize("count", [63, 64])
def test_whoever_holds_sixty_four_sessions_holds_many(count: int) -> None:
    """Where nobody does, the idlest of all makes room."""
    table = Table(max_sessions=100)
    sessions = []
    for now in range(100):
        address = f"198.51.100.{now}" if now < 100 - count else "203.0.113.9"
        sessions.append(table.at(now).open(address=address))
        table.use(sessions[-1])
    table.at(1000).open(address="192.0.2.1")
    lost = [number for number, session in enumerate(sessions) if session.link.lost]
    assert lost == [0 if count < 64 else 100 - count]


def test_a_newcomer_from_elsewhere_is_not_the_one_that_makes_room() -> None:
    table = Table(max_sessions=500)
    flood = [table.at(now).open(address="203.0.113.9") for now in range(500)]
    table.use(*flood)
    newcomer = table.open(address="198.51.100.1")
    for now in range(500, 600):
        table.use(table.at(now).open(address="203.0.113.9"))
    assert not newcomer.link.lost


def test_the_principal_counts_before_the_address() -> None:
    table = Table(max_sessions=500)
    others = [table.open(f"person {number}") for number in range(100)]
    table.use(*others)
    for now in range(1, 1_001):
        table.use(table.at(now).open("flooder"))
    assert not any(session.link.lost for session in others)


def test_a_session_with_a_long_introduction_counts_as_several() -> None:
    table = Table(max_sessions=1000)
    others = [table.open(address=f"198.51.100.{number}") for number in range(100)]
    table.use(*others)
    large = [table.open(introduction=b" " * 16_000) for _ in range(1000)]
    table.use(*(session for session in large if not session.link.lost))
    assert len(table.sessions) == 100 + 900 // (1 + 16_000 // INTRODUCTION)
    assert not any(session.link.lost for session in others)
    huge = table.open(address="198.51.100.200", introduction=b" " * 16_000_000)
    assert huge.link.lost
    assert not any(session.link.lost for session in others)


def test_a_session_that_is_alone_stays_however_long_its_introduction() -> None:
    table = Table(max_sessions=2)
    assert not table.open(introduction=b" " * 16_000).link.lost
    assert len(table.sessions) == 1


def test_what_ended_is_counted_no_more() -> None:
    table = Table(max_sessions=100)
    for _ in range(3):
        for session in [table.open() for _ in range(100)]:
            table.sessions.end(session)
            table.sessions.end(session)
    kept = [table.open() for _ in range(100)]
    assert not any(session.link.lost for session in kept)
    assert table.sessions._eviction is None
    table.open()
    assert [session.link.lost for session in kept].count(True) == 1
    table.sessions.end_all()
    kept = [table.open(introduction=b" " * 2 * INTRODUCTION) for _ in range(50)]
    assert not any(session.link.lost for session in kept)
    table.sessions.end_all()
    assert (len(table.sessions), table.sessions._total) == (0, 0)


def test_making_room_is_quick_among_many() -> None:
    table = Table(max_sessions=5_000)
    for now in range(5_000):
        table.at(now).open()
    began = time.perf_counter()
    for now in range(5_000, 7_000):
        table.at(now).open()
    assert time.perf_counter() - began < 30
    assert len(table.sessions) == 5_000


# -- who makes room


class Counted:
    """What is looked at of a session."""

    def __init__(self, identity: str, owner: str = "somebody", size: int = 1) -> None:
        self.id = identity
        self.owner = owner
        self.size = size
        self.used = 0.0
        self.unused = True
        self.active = False


class Room(dict[str, Any]):
    """Sessions by id."""

    def eviction(self) -> Eviction:
        return Eviction(self, lambda session: cast("Counted", session).active)

    def open(self, *names: str, owner: str = "somebody") -> list[Any]:
        sessions = [Counted(name, owner) for name in names]
        self.update({session.id: session for session in sessions})
        return sessions


def noted(eviction: Eviction) -> tuple[object, ...]:
    unused = {owner: list(sessions) for owner, sessions in eviction._unused.items()}
    return eviction._shares._held, eviction._shares.total, eviction._unused_shares._held, unused


STEPS = st.lists(st.tuples(st.sampled_from(["open", "use", "end"]), st.sampled_from("abc"), st.integers(1, 9)))


@given(STEPS, STEPS)
def test_one_that_is_made_late_knows_what_one_knows_that_was_there_from_the_beginning(
    before: list[tuple[str, str, int]], after: list[tuple[str, str, int]]
) -> None:
    room = Room()
    early = room.eviction()
    there = [early]
    number = 0
    for steps in (before, after):
        for step, owner, amount in steps:
            number += 1
            if step == "open":
                session = room[str(number)] = Counted(str(number), owner, amount)
                for each in there:
                    each.added(cast("Any", session))
            elif room:
                session = list(room.values())[amount % len(room)]
                if step == "end":
                    del room[session.id]
                    for each in there:
                        each.ended(cast("Any", session))
                elif session.unused:
                    session.unused = False
                    for each in there:
                        each.taken_up(cast("Any", session))
        there.append(room.eviction())
        assert noted(early) == noted(there[-1])
    assert noted(early) == noted(there[1])


def test_one_that_nobody_used_makes_room_before_one_that_is_idle_for_longer() -> None:
    room = Room()
    idle, unused, newest = room.open("idle", "unused", "newest")
    idle.unused = False
    unused.used = newest.used = 5.0
    assert room.eviction().choose(newest, 9.0) is unused


def test_one_in_use_that_nobody_used_since_its_handshake_counts_as_used() -> None:
    room = Room()
    streaming, idle, newest = room.open("streaming", "idle", "newest")
    streaming.active = True
    eviction = room.eviction()
    assert eviction.choose(newest, 9.0) is idle
    assert not streaming.unused
    assert list(eviction._unused["somebody"]) == ["idle", "newest"]


def test_of_sessions_that_are_all_in_use_the_idlest_makes_room() -> None:
    room = Room()
    sessions = room.open(*map(str, range(5)))
    for number, session in enumerate(sessions):
        session.active = True
        session.unused = False
        session.used = 10.0 - number
    assert room.eviction().choose(sessions[-1], 20.0) is sessions[-2]


def test_of_an_owner_without_sessions_nothing_is_noted() -> None:
    room = Room()
    sessions = room.open(*map(str, range(200)))
    for session in sessions:
        session.unused = False
    eviction = room.eviction()
    assert eviction.choose(sessions[-1], 1.0) is not sessions[-1]
    assert eviction._idlest
    for session in sessions:
        del room[session.id]
        eviction.ended(session)
    assert eviction._idlest == {}
    assert noted(eviction) == ({}, 0, {}, {})


# -- the end


async def test_delete_really_ends_what_runs(endpoint: Any, app: Any) -> None:
    """HTL-30, SPEC-02, HTL-27."""
    async with endpoint(app) as doors:
        client, other = doors.client(), doors.client()
        streamed = client.call("hold", {"name": "streamed", "tell": 1}, token=1)
        plain = client.call("hold", {"name": "plain"})
        stays = other.call("hold", {"name": "stays"})
        standing = client.get()
        await doors.settle()
        ended = client.delete()
        assert (ended.status, ended.content) == (204, b"")
        await doors.settle()
        assert sorted(app.cancelled) == ["plain", "streamed"]
        assert streamed.over
        assert standing.over
        assert (plain.status, plain.content, plain.over) == (202, b"", True)
        assert [answer.status for answer in (client.ask("tools/list"), client.get(), client.delete())] == [404] * 3
        await asyncio.sleep(100)
        assert plain.content == b""
        app.gate("stays").set()
        assert (await stays.whole()).text == "held stays"


async def test_delete_is_heard_by_a_call_that_cannot_be_stopped_too(endpoint: Any, app: Any) -> None:
    @app.tool
    async def stubborn(seconds: float) -> str:
        for _ in range(3):
            try:
                await asyncio.sleep(seconds)
            except asyncio.CancelledError:
                continue
        return "done"

    async with endpoint(app, response="json") as doors:
        client = doors.client()
        answer = client.call("stubborn", {"seconds": 1})
        await doors.settle()
        assert client.delete().status == 204
        assert answer.status == 202
        await asyncio.sleep(10)
        assert answer.content == b""


async def test_a_call_whose_session_has_to_make_room_is_told_so(endpoint: Any, app: Any) -> None:
    """Its client did not ask for the end, and still waits."""
    async with endpoint(app, max_sessions=1) as doors:
        client = doors.client()
        answer = client.call("hold", {"name": "a"})
        await doors.settle()
        doors.client()
        assert (answer.status, "Session not found" in answer.body["error"]["message"]) == (404, True)


# -- what they cost


WRONG_IDS = [
    *("x" * 32, "X" * 4096, "../../etc/passwd", "%00", "null", "0", "{}", "a, b", "\t", "é"),
]


async def test_ses_02_every_wrong_session_id_is_answered_alike(endpoint: Any, app: Any) -> None:
    """HTL-26, HTL-27, SPEC-02: 404 and the same body; 400 where none is given."""
    async with endpoint(app, session_idle_timeout=60) as doors:
        deleted, expired, alive = doors.client(), doors.client(), doors.client()
        deleted.delete()
        alive.get()
        await asyncio.sleep(100)
        ids = [deleted.session, expired.session, alive.session[:-1], alive.session.swapcase(), *WRONG_IDS]
        ids += [alive.session + ", " + alive.session, ""]
        for method in ("POST", "GET", "DELETE"):
            seen = set()
            for identity in ids:
                body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}' if method == "POST" else b""
                headers = {"mcp-session-id": identity.encode("utf-8")}
                answer = doors.send(method, body, headers=headers)
                assert answer.status == 404, identity
                seen.add((answer.head, answer.content))
            assert len(seen) == 1
            missing = doors.send(method, body)
            assert (missing.status, "Mcp-Session-Id" in missing.body["error"]["message"]) == (400, True)
        assert alive.ask("tools/list").status == 200


async def test_ses_02_no_wrong_id_takes_longer_to_refuse(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        clients = [doors.client() for _ in range(50)]
        right = clients[7].session
        near, far = right[:-1] + ("a" if right[-1] != "a" else "b"), "x" * 32
        took: dict[str, list[float]] = {near: [], far: []}
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}'
        for _ in range(400):
            for identity, times in took.items():
                began = time.perf_counter()
                doors.send("POST", body, headers={"mcp-session-id": identity})
                times.append(time.perf_counter() - began)
        first, second = (min(statistics.quantiles(times, n=20)[:8]) for times in took.values())
        assert abs(first - second) < max(0.5 * min(first, second), 20e-6)


async def test_an_idle_session_costs_at_most_one_and_a_half_kilobytes(endpoint: Any, app: Any) -> None:
    """seed:HTTP-22. The number is one at which the tables of sessions are well filled."""
    count = 2600
    async with endpoint(app) as doors:
        for _ in range(50):
            doors.client()
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(count):
            doors.client()
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(doors.doors.sessions) == count + 50
        assert (after - before) / count <= 1536


async def test_sok_01_sessions_of_every_fate_leave_next_to_nothing(endpoint: Any, app: Any) -> None:
    """Opened and deleted, refused, vanished and abandoned: the second batch costs nothing that stays."""

    async def batch(doors: Any, size: int) -> None:
        for number in range(size):
            client = doors.client()
            answer = client.call("count", {"to": 2}, token=1)
            standing = client.get()
            await answer.whole()
            standing.leave()
            if number % 2:
                client.delete()
            doors.post(b'{"jsonrpc":"2.0","id":1,"method":"initialize"}')
            doors.client("stateless").call("rest", {"seconds": 100}).leave()
        await asyncio.sleep(200)

    async with endpoint(app, session_idle_timeout=60, event_age=60) as doors:
        await asyncio.sleep(1)
        tasks = asyncio.all_tasks()
        await batch(doors, 100)
        gc.collect()
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
        await batch(doors, 250)
        gc.collect()
        after = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert len(doors.doors.sessions) == 0
        assert len(app.host.links) == 1
        assert (after - before) / 1000 < 1024
        assert asyncio.all_tasks() == tasks


# -- sessions that another process began

GREETING = {"protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": {"name": "s", "version": "1"}}


class Greeting(Link):
    """A receiver that answers every introduction."""

    def frame_received(self, frame: bytes, channel: Channel, origin: Origin) -> None:
        channel.send(Success(0, GREETING))


def greeting_table(**settings: Any) -> Table:
    """A table whose links make every handshake."""
    table = Table(**settings)
    table.sessions._link = lambda origin: Greeting()  # type: ignore[assignment,return-value]
    return table


@pytest.mark.parametrize(("principal", "owner"), [("alice", "alice"), (None, "192.0.2.7")])
def test_a_session_of_another_process_is_held_by_its_principal_or_its_address(
    principal: str | None, owner: str
) -> None:
    record = MovedSession("an-id", b"{}", principal=principal, address="192.0.2.7")
    session = greeting_table().sessions.adopt(record)
    assert session is not None
    assert session.owner == owner


def test_a_session_of_another_process_is_found_by_its_binding_and_not_by_its_principal() -> None:
    ada = Principal(issuer="https://issuer.example", subject="ada", client="editor")
    origin = Origin("http", "192.0.2.7", principal=ada.key, identity=ada)
    before = greeting_table()
    before.sessions.mark = "w1."
    session = before.sessions.prepare(origin)
    before.sessions.add(session, b"{}", origin)
    record = before.sessions.record(session, ())
    assert (record.binding, record.principal) == (ada.binding, ada.key)
    after = greeting_table()
    adopted = after.sessions.adopt(record)
    assert adopted is not None
    for other in (ada.key, None, ""):
        assert after.sessions.find(record.id.encode(), other) is None
    assert after.sessions.find(record.id.encode(), ada.binding) is adopted


def test_no_two_owners_of_a_session_give_its_streams_the_same_name() -> None:
    table = greeting_table()
    table.sessions.mark = "w1."
    session = table.open(introduction=b"{}")
    names = [session.new_stream().name]
    for _ in range(3):
        record = table.sessions.record(session, ())
        table = greeting_table()
        table.sessions.mark = "w1."
        session = table.sessions.adopt(record)
        names.append(session.new_stream().name)
    assert len(set(names)) == 4


def test_a_session_too_large_for_the_table_is_over_and_nothing_of_it_is_kept() -> None:
    table = Table(max_sessions=10)
    table.sessions.mark = "w1."
    table.open(address="192.0.2.1")
    added: list[Any] = []
    table.sessions.on_add = added.append
    session = table.open(address="192.0.2.2", introduction=b" " * 100_000)
    assert session.over
    assert session.id not in table.sessions._records
    assert added == []
    assert len(table.sessions) == 1


def test_a_session_of_another_process_that_is_too_large_for_the_table_is_not_taken_over() -> None:
    table = greeting_table(max_sessions=10)
    assert table.sessions.adopt(MovedSession("first", b"{}", address="192.0.2.1")) is not None
    assert table.sessions.adopt(MovedSession("second", b" " * 100_000, address="192.0.2.2")) is None


def test_only_an_answer_to_its_introduction_makes_the_handshake_of_a_session_that_is_heard_again() -> None:
    channel = ReplayChannel()
    channel.send(Notification("notifications/message", {}))
    channel.send(Failure(0, ErrorObject(-32602, "no")))
    assert not channel.greeted
    channel.send(Success(0, GREETING))
    assert channel.greeted
