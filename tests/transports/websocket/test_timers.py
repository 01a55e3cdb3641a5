"""What is due and when: plain calls, the clock is an argument."""

from __future__ import annotations

from ferrule.transports.websocket.settings import ChannelSettings
from ferrule.transports.websocket.timers import Due, Seen, Timers


def seen(
    received: int = 0,
    taken: int = 0,
    congested: bool = False,
    reading: bool = True,
    inside: bool = False,
    unfinished: int = 0,
) -> Seen:
    return Seen(received, taken, congested, reading, inside, unfinished)


def new(now: float = 0.0, **settings: object) -> Timers:
    return Timers(ChannelSettings(**settings), now)  # type: ignore[arg-type]


def looks(vigil: Timers, at: dict[float, Seen]) -> dict[float, Due]:
    """What is due at each time, where something is."""
    return {now: due for now, what in at.items() if (due := vigil.look(now, what))}


def test_a_ping_is_due_every_thirty_seconds() -> None:
    """WEBS-08."""
    vigil = new(100.0)
    assert looks(vigil, {129.9: seen(), 130.0: seen(), 131.0: seen()}) == {130.0: "ping"}
    vigil.pong(132.0)
    assert looks(vigil, {161.9: seen(), 162.0: seen()}) == {162.0: "ping"}


def test_without_pong_the_peer_is_dead_ten_seconds_later() -> None:
    """WEBS-08, WSK-08: forty seconds after its last sign of life."""
    assert looks(new(), {30.0: seen(), 39.9: seen(received=5), 40.0: seen(received=5)}) == {
        30.0: "ping",
        40.0: "no pong",
    }


def test_pings_can_be_switched_off() -> None:
    assert looks(new(ping_interval=None), {30.0: seen(), 1e9: seen()}) == {}


def test_a_peer_in_the_middle_of_a_long_frame_cannot_send_a_pong() -> None:
    steps = {30.0: seen(1, inside=True), 39.0: seen(2, inside=True), 48.9: seen(3, inside=True)}
    vigil = new()
    assert looks(vigil, steps) == {30.0: "ping"}
    assert looks(vigil, {58.8: seen(3, inside=True), 58.9: seen(3, inside=True)}) == {58.9: "no pong"}


def test_no_pong_is_missed_while_we_do_not_read() -> None:
    vigil = new()
    assert looks(vigil, {30.0: seen(), 45.0: seen(reading=False), 54.0: seen()}) == {30.0: "ping"}
    assert looks(vigil, {55.0: seen()}) == {55.0: "no pong"}


def test_the_last_part_of_a_message_is_awaited_thirty_seconds() -> None:
    """WEBS-12."""
    vigil = new(ping_interval=None)
    assert looks(vigil, {10.0: seen(unfinished=-1), 39.9: seen(unfinished=-1)}) == {}
    assert looks(vigil, {40.0: seen(unfinished=-1)}) == {40.0: "no end"}


def test_the_next_message_in_parts_has_its_own_thirty_seconds() -> None:
    vigil = new(ping_interval=None)
    steps = {10.0: seen(unfinished=-1), 39.0: seen(unfinished=-2), 68.9: seen(unfinished=-2), 69.0: seen(unfinished=2)}
    assert looks(vigil, steps) == {}
    assert looks(vigil, {70.0: seen(unfinished=-3), 99.9: seen(unfinished=-3), 100.0: seen(unfinished=-3)}) == {
        100.0: "no end"
    }


def test_a_peer_that_takes_nothing_for_five_seconds_is_stuck() -> None:
    """WEBS-10."""
    vigil = new(ping_interval=None)
    assert looks(vigil, {1.0: seen(congested=True), 5.9: seen(congested=True), 6.0: seen(congested=True)}) == {
        6.0: "stuck"
    }


def test_a_peer_that_takes_something_is_given_time_but_is_read_again_after_five_seconds() -> None:
    """WEBS-10: backpressure holds what comes in for at most so long."""
    vigil = new(ping_interval=None)
    steps = {at: seen(taken=int(at), congested=True, reading=at > 6) for at in (1.0, 4.0, 6.0, 9.0, 13.0)}
    assert looks(vigil, steps) == {6.0: "read on"}


def test_relief_starts_the_five_seconds_again() -> None:
    vigil = new(ping_interval=None)
    steps = {1.0: seen(congested=True), 5.0: seen(), 6.0: seen(congested=True), 10.9: seen(congested=True)}
    assert looks(vigil, steps) == {}
    assert looks(vigil, {11.0: seen(congested=True)}) == {11.0: "stuck"}


def test_once_the_end_is_set_nothing_else_is_due() -> None:
    """WSK-11."""
    vigil = new()
    vigil.end_within(20.0, 10.0)
    vigil.end_within(20.0, 15.0)
    late = seen(congested=True, unfinished=-1)
    assert looks(vigil, {29.9: late, 30.0: late}) == {30.0: "cut"}
