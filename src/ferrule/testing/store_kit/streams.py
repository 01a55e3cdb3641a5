"""Rules of event logs and of the bus: what was said is read in order, and what is missing is told."""

from __future__ import annotations

from ferrule.stores.contracts import EventLog, Notice
from ferrule.testing.carrier_kit.findings import demand
from ferrule.testing.store_kit.stand import StoreMaker, eventually, rule

MANY = 100


def fill(log: EventLog, stream: str, first: int, last: int, now: float = 0.0) -> None:
    """Append events with these numbers."""
    for number in range(first, last + 1):
        log.append(stream, number, b"%d" % number, now)


def said(first: int, last: int) -> list[bytes]:
    """Return the events `fill` appends."""
    return [b"%d" % number for number in range(first, last + 1)]


@rule("events")
async def events_in_order(maker: StoreMaker) -> None:
    """The events after a number are read in order, as soon as they are appended."""
    async with maker.stand() as stand:
        log = stand.stores.events
        fill(log, "ann.1", 1, MANY)
        fill(log, "ann.2", 1, 3)
        demand(await log.after("ann.1", 0) == said(1, MANY), "not all were read")
        demand(await log.after("ann.1", MANY - 2) == said(MANY - 1, MANY), "not the last two were read")
        demand(await log.after("ann.1", MANY) == [], "after the last event there was one")
        demand(await log.after("ann.2", 1) == said(2, 3), "another stream was read")


@rule("events")
async def events_unknown(maker: StoreMaker) -> None:
    """What is not known any more, or not yet, is None and never a part of it."""
    async with maker.stand() as stand:
        log = stand.stores.events
        demand(await log.after("nobody", 0) is None, "a stream that never was has events")
        fill(log, "ann.1", 5, 9)
        for number in (-2, -1, 0, 3, 10, 10**9):
            demand(await log.after("ann.1", number) is None, f"after {number} something is known")
        demand(await log.after("ann.1", 4) == said(5, 9), "all that is kept was not read")
        fill(log, "ann.1", 12, 13)
        demand(await log.after("ann.1", 8) is None, "events are missing, and were not missed")
        log.forget("ann.1")
        demand(await log.after("ann.1", 12) is None, "a stream that was forgotten has events")


@rule("events")
async def events_shortened(maker: StoreMaker) -> None:
    """A stream that was shortened keeps its last bytes, and is forgotten where none are wanted."""
    async with maker.stand() as stand:
        log = stand.stores.events
        fill(log, "ann.1", 1, 9)
        log.shorten("ann.1", 3, 2)
        demand(await log.after("ann.1", 3) is None, "more is kept than was wanted")
        demand(await log.after("ann.1", 4) == said(5, 9), "less is kept than was wanted")
        log.shorten("ann.1", 0, 0)
        demand(await log.after("ann.1", 8) is None, "the stream was not forgotten")


@rule("events")
async def events_grow_old(maker: StoreMaker) -> None:
    """A stream that was silent for longer than the age is forgotten; one that was not is kept."""
    async with maker.stand(age=1.0) as stand:
        log = stand.stores.events
        fill(log, "old.1", 1, 3)
        await stand.pass_time(1.5)
        fill(log, "young.1", 1, 3, 1.5)
        log.sweep(1.5)
        demand(await log.after("old.1", 0) is None, "it was there after its time")
        demand(await log.after("young.1", 0) == said(1, 3), "it was gone before its time")


@rule("events", is_shared=True)
async def events_elsewhere(maker: StoreMaker) -> None:
    """What one process appended, another reads soon; it goes on with the next number, and both read all of it."""
    async with maker.stand() as stand:
        here = stand.stores.events
        there = stand.elsewhere.events
        fill(here, "ann.1", 1, 5)
        await eventually(lambda: there.after("ann.1", 0), said(1, 5), "what was appended was not seen")
        fill(there, "ann.1", 6, 8)
        demand(await there.after("ann.1", 2) == said(3, 8), "the process that goes on has a part only")
        await eventually(lambda: here.after("ann.1", 2), said(3, 8), "the first process has its part only")
        fill(here, "ann.1", 9, 9)
        demand(await here.after("ann.1", 2) == said(3, 9), "the first process cannot go on")


class Heard:
    """A subscriber that keeps what it hears."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    def __call__(self, notice: Notice) -> None:
        self.notices.append(notice)

    async def bodies(self) -> list[bytes]:
        """Return what was heard so far."""
        return [notice.body for notice in self.notices]


@rule("bus")
async def notices(maker: StoreMaker) -> None:
    """The subscribers of a topic hear its notices in order, each once, until they have had enough."""
    async with maker.stand() as stand:
        bus = stand.stores.bus
        ann, bob, other = Heard(), Heard(), Heard()
        subscription = bus.subscribe("tools", ann)
        bus.subscribe("tools", bob)
        bus.subscribe("prompts", other)
        for number in range(MANY):
            bus.publish("tools", b"%d" % number)
        wanted = said(0, MANY - 1)
        await eventually(ann.bodies, wanted, "notices were not heard")
        await eventually(bob.bodies, wanted, "notices were not heard by the second")
        subscription.close()
        bus.publish("tools", b"last")
        await eventually(bob.bodies, [*wanted, b"last"], "the last notice was not heard")
        demand(await ann.bodies() == wanted, "who had closed its subscription heard more")
        demand(not other.notices, "a notice of another topic was heard")
        demand(ann.notices[0].sender == bus.node, "the sender is another")
        demand(await bus.deliver(bus.node, "tools", b"now"), "a notice did not reach this node")
        await eventually(bob.bodies, [*wanted, b"last", b"now"], "what was delivered was not heard")
        demand(not await bus.deliver("nobody", "tools", b"now"), "a notice reached a node that is not there")


@rule("bus", is_shared=True)
async def notices_elsewhere(maker: StoreMaker) -> None:
    """A notice reaches the subscribers of all processes; one that is sent to a node reaches that node only."""
    async with maker.stand() as stand:
        here, there = Heard(), Heard()
        stand.stores.bus.subscribe("tools", here)
        stand.elsewhere.bus.subscribe("tools", there)

        async def both() -> bool:
            stand.stores.bus.publish("tools", b"ping")
            return bool(here.notices and there.notices)

        await eventually(both, True, "a process did not hear a notice")
        stand.stores.bus.send(stand.elsewhere.bus.node, "tools", b"for you")

        async def last() -> bytes:
            return there.notices[-1].body

        await eventually(last, b"for you", "what was sent to a node did not reach it")
        demand(await stand.stores.bus.deliver(stand.elsewhere.bus.node, "tools", b"now"), "it did not reach a node")
        await eventually(last, b"now", "what was delivered to a node did not reach it")
        demand(b"for you" not in await here.bodies(), "what was sent to another node was heard here")
