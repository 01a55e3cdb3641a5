"""Coming back after a loss: when, how often, and who is told."""

from __future__ import annotations

import asyncio
import logging
import math
from types import SimpleNamespace

import pytest

from ferrule import Client, HttpFailed, Reconnect
from ferrule.client.link.keeper import _left
from ferrule.client.link.link import GRACE
from ferrule.client.link.reconnect import Reconnection, is_final
from ferrule.errors import (
    ChildFailed,
    ConnectFailed,
    InitializeFailed,
    InitializeTimedOut,
    LinkLost,
    NotConnected,
    SetupError,
    TimedOut,
    TimedOutReconnecting,
    VersionMismatch,
)
from ferrule.protocol.session import Phase
from ferrule.transports.memory import Memory

PRE, INITIALIZING, INITIALIZED, ERROR, CLOSED = Phase
STEADY = Reconnect(jitter=0)


class Way:
    """A transport to a server in this process, which is out of reach as often as it is told."""

    def __init__(self, server):
        self._memory = Memory(server)
        self.failures = []
        self.attempts = 0
        self.slow = 0.0

    async def connect(self, receiver):
        self.attempts += 1
        if self.failures:
            raise self.failures.pop(0)
        return await self._memory.connect(receiver)

    async def close(self, grace=2.0):
        await asyncio.sleep(self.slow)
        await self._memory.close(grace)


def away(times):
    return [ConnectFailed("nobody is there") for _ in range(times)]


def told(client):
    notices = []
    client.on_connection(notices.append)
    return notices


async def restored(client):
    while client.reconnecting:
        await asyncio.sleep(0.1)


def client_of(way, era, plan=STEADY, **options):
    return Client(way, mode=era, reconnect=plan, **options)


@pytest.mark.virtual_time
async def test_a_lost_server_is_asked_again_later_each_time(era, raw):
    """SESS-12, SESS-11: after 1, 2, 4, 8, 16, 30 and again 30 seconds."""
    server = raw(era)
    way = Way(server)
    loop = asyncio.get_running_loop()
    async with client_of(way, era) as client:
        way.failures = away(7)
        notices, began = told(client), loop.time()
        server.die(ChildFailed("gone"))
        await restored(client)
        assert [notice.delay for notice in notices if notice.what == "retrying"] == [1, 2, 4, 8, 16, 30, 30, 30]
        assert loop.time() - began == pytest.approx(121, abs=0.2)
        assert client.phase is INITIALIZED
        assert way.attempts == 9


@pytest.mark.virtual_time
async def test_the_owner_is_told_of_each_step(era, raw):
    server = raw(era)
    way = Way(server)
    async with client_of(way, era) as client:
        way.failures = away(1)
        notices = told(client)
        server.die(ChildFailed("gone"))
        assert client.reconnecting
        await restored(client)
        assert [(notice.what, notice.attempt) for notice in notices] == [
            ("lost", 0),
            ("retrying", 1),
            ("retrying", 2),
            ("restored", 2),
        ]
        assert [str(notice.reason) for notice in notices[:3]] == ["gone", "gone", "nobody is there"]


@pytest.mark.virtual_time
async def test_the_link_has_the_states_of_a_supervised_child(era, raw):
    """CRA-05: failed from the sixth attempt on, which comes after the longest delay."""
    server = raw(era)
    way = Way(server)
    client = client_of(way, era)
    assert (client.link_state.state, client.link_state.restarts, client.link_state.error) == ("waiting", 0, "")
    await client.connect()
    assert (client.link_state.state, client.link_state.restarts, client.link_state.error) == ("running", 0, "")
    states = []
    client.on_connection(lambda notice: states.append((notice.what, notice.failed, client.link_state.state)))
    way.failures = away(6)
    server.die(ChildFailed("gone"))
    await restored(client)
    assert states == [
        ("lost", False, "restarting"),
        *[("retrying", False, "restarting")] * 5,
        *[("retrying", True, "failed")] * 2,
        ("restored", False, "running"),
    ]
    state = client.link_state
    assert (state.path, state.restart, state.restarts) == ("client/link", "permanent", 7)
    assert state.error == "ConnectFailed: nobody is there"
    await client.close()
    assert client.link_state.state == "stopped"


@pytest.mark.virtual_time
async def test_a_link_that_is_given_up_has_ended(era, raw):
    server = raw(era)
    way = Way(server)
    client = client_of(way, era, Reconnect(jitter=0, max_attempts=1))
    way.failures = away(1)
    with pytest.raises(ConnectFailed):
        await client.connect()
    assert client.link_state.state == "ended"
    async with client:
        way.failures = away(1)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert client.link_state.state == "ended"


@pytest.mark.virtual_time
async def test_the_phases_of_coming_back_are_told(era, raw):
    """SESS-11: error, then from the start."""
    server = raw(era)
    way = Way(server)
    steps = []
    async with client_of(way, era) as client:
        client.on_phase_change(lambda _, new: steps.append(new))
        way.failures = away(1)
        server.die(ChildFailed("gone"))
        assert client.phase is ERROR
        assert client.connection_state == "disconnected"
        await restored(client)
        opening = [PRE, INITIALIZING, INITIALIZED] if era == "handshake" else [PRE, INITIALIZED]
        assert steps == [ERROR, PRE, ERROR, *opening]


@pytest.mark.virtual_time
async def test_connected_and_disconnected_are_told_around_a_loss(era, raw):
    server = raw(era)
    said = []
    async with client_of(server, era) as client:
        client.on_connected(lambda: said.append("connected"))
        client.on_disconnected(lambda: said.append("disconnected"))
        client.on_error(lambda kind, reason: said.append((kind, reason)))
        server.die(ChildFailed("gone"))
        await restored(client)
    assert said == ["disconnected", ("ChildFailed", "gone"), "connected", "disconnected"]


@pytest.mark.virtual_time
async def test_after_the_last_attempt_it_ends_closed(era, raw, caplog):
    """SESS-11, RES-05, TCPT-14: what waits is told why, and so is who asks later."""
    caplog.set_level(logging.INFO, "ferrule.client")
    server = raw(era)
    way = Way(server)
    async with client_of(way, era, Reconnect(jitter=0, max_attempts=2)) as client:
        way.failures = away(2)
        notices = told(client)
        server.die(ChildFailed("gone"))
        with pytest.raises(LinkLost, match="not restored in 2 attempts: nobody is there") as lost:
            await client.list_tools()
        assert not lost.value.sent
        assert notices[-1].what == "gave_up"
        assert notices[-1].attempt == 2
        assert "the link was lost and not restored in 2 attempts: nobody is there" in caplog.messages
        assert "attempt 1 to reconnect failed: nobody is there" in caplog.messages
        assert client.phase is CLOSED
        assert not client.reconnecting
        with pytest.raises(NotConnected, match="not restored in 2 attempts"):
            await client.call_tool("t")
        await client.connect()
        assert client.phase is INITIALIZED


@pytest.mark.virtual_time
async def test_attempts_are_counted_from_each_loss(era, raw):
    server = raw(era)
    way = Way(server)
    async with client_of(way, era, Reconnect(jitter=0, max_attempts=2)) as client:
        for _ in range(3):
            way.failures = away(1)
            server.die(ChildFailed("gone"))
            await restored(client)
            assert client.phase is INITIALIZED


@pytest.mark.virtual_time
async def test_a_server_that_goes_again_soon_is_left_alone_longer(era, raw):
    """CRA-05: one that has stayed for as long as the longest wait is trusted again."""
    server = raw(era)
    async with client_of(server, era) as client:
        notices = told(client)
        await asyncio.sleep(100)
        for stay in (0, 0, 0, 30):
            server.die(ChildFailed("gone"))
            await restored(client)
            await asyncio.sleep(stay)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert [notice.delay for notice in notices if notice.what == "retrying"] == [1, 2, 4, 8, 1]


@pytest.mark.virtual_time
async def test_a_link_that_is_lost_while_it_is_restored_is_one_more_attempt(era, raw):
    server = raw(era, {"resources/subscribe": {}})
    async with client_of(server, era) as client:
        opening = "initialize" if era == "handshake" else "server/discover"
        answer = server.answers[opening]
        chances = [ChildFailed("gone again")]

        def die_once(request):
            if chances:
                server.die(chances.pop())
                return None
            return answer

        server.answers[opening] = die_once
        notices = told(client)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert [notice.attempt for notice in notices if notice.what == "retrying"] == [1, 2]
        assert client.phase is INITIALIZED


@pytest.mark.virtual_time
async def test_a_link_that_is_lost_as_soon_as_it_is_restored_is_given_up_and_let_go(era, raw, monkeypatch):
    server = raw(era)

    async def lose_it(*, resubscribe):
        server.die(ChildFailed("gone again"))

    async with client_of(server, era, Reconnect(jitter=0, max_attempts=1)) as client:
        monkeypatch.setattr(client._keeper.knowledge, "restore", lose_it)
        phases = []
        client.on_phase_change(lambda _, new: phases.append(new))
        notices = told(client)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert [notice.what for notice in notices] == ["lost", "retrying", "gave_up"]
        assert str(notices[-1].reason) == "the new link was lost at once: gone again"
        assert client.phase is phases[-1] is CLOSED
        assert server.users == 0


@pytest.mark.virtual_time
async def test_whoever_watches_over_a_conversation_is_told_of_each_one(era, raw, monkeypatch):
    server = raw(era)
    client = client_of(server, era)
    opened = []
    monkeypatch.setattr(client._keeper.knowledge, "opened", opened.append)
    async with client:
        first = client._keeper.current()
        server.die(ChildFailed("gone"))
        await restored(client)
        assert opened == [first, client._keeper.current()]


@pytest.mark.virtual_time
async def test_a_server_without_a_common_version_is_not_asked_for_ever(raw):
    """C-09: failures of versions are final."""
    server = raw()
    async with client_of(server, "handshake") as client:
        server.version = "1999-01-01"
        server.answers["initialize"] = server.initialize_result()
        notices = told(client)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert [notice.what for notice in notices] == ["lost", "retrying", "gave_up"]
        assert isinstance(notices[-1].reason, VersionMismatch)
        assert client.phase is CLOSED


@pytest.mark.parametrize(
    ("error", "final"),
    [
        (ConnectFailed("nobody"), False),
        (ChildFailed("dead"), False),
        (InitializeFailed("gone"), False),
        (InitializeTimedOut("late"), False),
        (LinkLost("lost"), False),
        (OSError("no route"), False),
        (HttpFailed("down", 503), False),
        (HttpFailed("not there", 404), False),
        (HttpFailed("who?", 401), True),
        (HttpFailed("no", 403), True),
        (VersionMismatch("none"), True),
        (SetupError("wrong"), True),
        (ValueError("a bug"), True),
    ],
)
def test_only_what_cannot_change_is_final(error, final):
    """SHUT-08"""
    assert is_final(error) is final


@pytest.mark.virtual_time
async def test_a_failing_owner_harms_nobody_else(era, raw, caplog):
    server = raw(era)
    async with client_of(server, era) as client:
        client.on_connection(lambda notice: 1 / 0)
        notices = told(client)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert notices[-1].what == "restored"
        assert "a handler of the connection's notice 'lost' failed" in caplog.text


async def test_closing_in_the_middle_of_a_wait_takes_no_time(era, raw):
    """CLNT-09: and whoever waits for the link learns of it."""
    server = raw(era)
    client = client_of(server, era, Reconnect(first_delay=3600, longest_delay=3600))
    await client.connect()
    server.die(ChildFailed("gone"))
    waiting = asyncio.create_task(client.list_tools())
    await asyncio.sleep(0)
    await client.close()
    with pytest.raises(NotConnected, match="the client was closed"):
        await waiting
    assert client.phase is CLOSED
    assert not client.reconnecting
    assert server.users == 0


async def test_closing_in_the_middle_of_an_attempt_leaves_nothing(raw):
    server = raw()
    client = client_of(server, "handshake", Reconnect(first_delay=0))
    await client.connect()
    server.answers["initialize"] = None
    server.die(ChildFailed("gone"))
    await server.heard("initialize", 2)
    await client.close()
    assert client.phase is CLOSED
    assert server.users == 0


@pytest.mark.virtual_time
async def test_closing_waits_for_an_attempt_to_let_go_of_what_it_opened(raw, caplog):
    server = raw()
    way = Way(server)
    client = client_of(way, "handshake", Reconnect(first_delay=0))
    await client.connect()
    server.answers["initialize"] = None
    way.slow = 4.0
    server.die(ChildFailed("gone"))
    await server.heard("initialize", 2)
    await client.close()
    assert server.users == 0
    assert not caplog.records


async def test_connecting_by_hand_ends_the_waiting(era, raw):
    server = raw(era)
    async with client_of(server, era, Reconnect(first_delay=3600, longest_delay=3600)) as client:
        server.die(ChildFailed("gone"))
        await client.connect()
        assert client.phase is INITIALIZED
        assert not client.reconnecting


@pytest.mark.virtual_time
async def test_the_sleep_and_the_chance_are_the_caller_s(era, raw):
    slept = []

    async def sleep(seconds):
        slept.append(seconds)

    server = raw(era)
    way = Way(server)
    async with client_of(way, era, Reconnect(chance=lambda: 0.5, sleep=sleep)) as client:
        way.failures = away(2)
        server.die(ChildFailed("gone"))
        await restored(client)
        assert slept == [0.75, 1.5, 3.0]


# A server that is silent


@pytest.mark.virtual_time
async def test_a_silent_server_is_taken_for_lost(raw):
    """SESS-31, SESS-29: neither the call nor the ping is answered."""
    server = raw(answers={"tools/call": None})
    async with client_of(server, "handshake") as client:
        server.answers["ping"] = None
        with pytest.raises(TimedOutReconnecting, match="does not answer pings; reconnecting"):
            await client.call_tool("t")
        assert client.phase is ERROR
        server.answers["ping"] = {}
        await restored(client)
        assert await client.ping() < 1
        assert len(server.sent("initialize")) == 2


@pytest.mark.virtual_time
async def test_without_a_ping_a_silent_server_is_asked_to_discover_itself(raw):
    """SESS-31, PING-3"""
    server = raw("stateless", {"tools/call": None})
    answer = server.answers["server/discover"]
    async with client_of(server, "stateless") as client:
        with pytest.raises(TimedOut) as late:
            await client.call_tool("t")
        assert type(late.value) is TimedOut
        assert not client.reconnecting
        server.answers["server/discover"] = None
        calls = [client.call_tool("t") for _ in range(3)]
        for failure in await asyncio.gather(*calls, return_exceptions=True):
            assert isinstance(failure, TimedOutReconnecting)
        server.answers["server/discover"] = answer
        await restored(client)
        assert client.phase is INITIALIZED


@pytest.mark.virtual_time
async def test_where_each_call_has_its_own_way_one_that_is_not_answered_says_nothing_of_the_others(raw, monkeypatch):
    server = raw("stateless", {"tools/call": None})
    async with client_of(server, "stateless") as client:
        monkeypatch.setattr(type(client._keeper.conversation), "separate", True)
        asked = len(server.sent("server/discover"))
        server.answers["server/discover"] = None
        with pytest.raises(TimedOut) as late:
            await client.call_tool("t")
        assert type(late.value) is TimedOut
        assert len(server.sent("server/discover")) == asked
        assert not client.reconnecting


@pytest.mark.virtual_time
async def test_a_silent_server_is_an_error_where_nobody_comes_back(raw):
    """SESS-31, SESS-29: connection timed out, phase error."""
    from ferrule.errors import ConnectionTimedOut

    server = raw(answers={"tools/call": None, "ping": None})
    async with client_of(server, "handshake", plan=False) as client:
        with pytest.raises(ConnectionTimedOut) as failure:
            await client.call_tool("t")
        assert type(failure.value) is ConnectionTimedOut
        assert client.phase is ERROR


async def test_whoever_stops_waiting_in_the_same_moment_does_not_harm_the_others():
    async def nothing(*_):
        """There is nothing to open or to give up."""

    keeper = Reconnection(nothing, nothing)
    assert keeper.plan is None
    left, stayed = (asyncio.create_task(keeper.wait(None)) for _ in range(2))
    await asyncio.sleep(0)
    left.cancel()
    keeper._end(LinkLost("gone", sent=False))
    with pytest.raises(LinkLost, match="gone"):
        await stayed
    with pytest.raises(asyncio.CancelledError):
        await left
    assert not keeper._waiting


@pytest.mark.virtual_time
async def test_a_client_that_is_opened_again_begins_with_the_shortest_delay():
    delays = []

    async def nothing(*_):
        """There is nothing to open or to give up."""

    keeper = Reconnection(nothing, nothing)
    keeper.on_notice(lambda notice: delays.append(notice.delay) if notice.what == "retrying" else None)
    for losses, failed in ((3, True), (1, False)):
        keeper.begin(Reconnect(jitter=0, longest_delay=4))
        assert (keeper.failed, keeper.restarts) == (False, 0)
        for _ in range(losses):
            keeper.lost(LinkLost("gone", sent=False))
            while keeper.active:
                await asyncio.sleep(0.1)
        assert (keeper.failed, keeper.restarts) == (failed, losses)
        await keeper.stop()
    assert delays == [1, 2, 4, 1]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("stayed", "second"), [(29.5, 2), (30, 1)])
async def test_a_server_that_stayed_for_just_the_longest_delay_is_trusted_again(stayed, second):
    delays = []

    async def nothing(*_):
        """There is nothing to open or to give up."""

    keeper = Reconnection(nothing, nothing)
    restored = asyncio.Event()

    def note(notice):
        if notice.what == "retrying":
            delays.append(notice.delay)
        if notice.what == "restored":
            restored.set()

    keeper.on_notice(note)
    keeper.begin(STEADY)
    keeper.lost(LinkLost("gone", sent=False))
    await restored.wait()
    keeper._restored_at = asyncio.get_running_loop().time() - stayed
    keeper.lost(LinkLost("gone", sent=False))
    while keeper.active:
        await asyncio.sleep(0.1)
    await keeper.stop()
    assert delays == [1, second]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("attempts", "told"), [(1, "in 1 attempt: far"), (2, "in 2 attempts: far")])
async def test_giving_up_tells_how_often_it_was_tried(attempts, told):
    sentences = []

    async def fail():
        raise ConnectFailed("far")

    async def give_up(sentence):
        sentences.append(sentence)

    keeper = Reconnection(fail, give_up)
    keeper.begin(Reconnect(jitter=0, max_attempts=attempts))
    keeper.lost(LinkLost("gone", sent=False))
    while keeper.active:
        await asyncio.sleep(0.1)
    await keeper.stop()
    assert sentences == [f"the link was lost and not restored {told}"]
    assert keeper._task is None


async def test_a_closed_client_begins_nothing_more():
    async def nothing(*_):
        """There is nothing to open or to give up."""

    keeper = Reconnection(nothing, nothing)
    never_opened = nothing()
    keeper.spawn(never_opened)
    assert never_opened.cr_frame is None
    keeper.begin(STEADY)
    await keeper.stop()
    closed = nothing()
    keeper.spawn(closed)
    assert closed.cr_frame is None
    assert (keeper.plan, keeper.scope) == (None, None)


@pytest.mark.parametrize(("starts_server", "grace"), [(True, GRACE), (False, 0.0)])
async def test_only_a_server_that_was_started_here_may_end_in_peace_after_a_loss(raw, starts_server, grace):
    waited = []

    async def release(seconds):
        waited.append(seconds)

    keeper = client_of(raw(), "handshake")._keeper
    keeper.conversation = SimpleNamespace(starts_server=starts_server, release=release)
    await keeper._release()
    assert waited == [grace]


@pytest.mark.parametrize(("deadline", "left"), [(7.0, 2.0), (5.0, 0.0), (4.0, 0.0), (math.inf, None)])
def test_no_time_is_left_after_a_deadline(deadline, left):
    assert _left(deadline, 5.0) == left


async def test_a_notification_waits_until_the_server_reads(era, raw, monkeypatch):
    server = raw(era)
    async with client_of(server, era) as client:
        writable = asyncio.Event()
        channel = client._keeper.current().live().channel
        monkeypatch.setattr(type(channel), "wait_writable", lambda self: writable.wait())
        notifying = asyncio.create_task(client.notify("notifications/x"))
        await asyncio.sleep(0.01)
        assert server.received[-1]["method"] == "notifications/x"
        assert not notifying.done()
        writable.set()
        await notifying
