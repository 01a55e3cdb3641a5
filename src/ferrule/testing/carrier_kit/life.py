"""Rules of life and death: ready in time, lost once, closed for good, and as good as new afterwards."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import Counter
from pathlib import Path

from ferrule.client.client import Client
from ferrule.errors import CallFailed, CarrierError
from ferrule.testing.carrier_kit.carrier import READY_WITHIN, Carrier
from ferrule.testing.carrier_kit.far_side import FarSide
from ferrule.testing.carrier_kit.findings import Broken, demand, given, settled, soon
from ferrule.testing.carrier_kit.near_side import NearSide, returned
from ferrule.testing.carrier_kit.rule import Scene, rule, scene
from ferrule.wire.codec import MAX_MESSAGE_SIZE

DESCRIPTORS = next((Path(place) for place in ("/proc/self/fd", "/dev/fd") if Path(place).is_dir()), None)


def holdings() -> Counter[str]:
    """Count what is held now, by what it is."""
    loop = asyncio.get_running_loop()
    held: Counter[str] = Counter()
    for task in asyncio.all_tasks(loop):
        held[f"task {_nameless(repr(task.get_coro()))}"] += 1
    for thread in threading.enumerate():
        # The loop keeps the threads in which it looks up names; how many it has made by now is chance.
        if not thread.name.startswith("asyncio_"):
            held[f"thread {_nameless(thread.name)}"] += 1
    for target in _open_descriptors():
        held[f"descriptor of {target}"] += 1
    # The loop does not tell which timers it has; one that keeps them elsewhere is believed to have none.
    for timer in getattr(loop, "_scheduled", ()):
        if not timer.cancelled():
            held[f"timer {_what(timer)}"] += 1
    return held


def _what(timer: asyncio.TimerHandle) -> str:
    callback = getattr(timer, "_callback", None)
    return _nameless(getattr(callback, "__qualname__", repr(callback)))


def _nameless(text: str) -> str:
    """Leave out addresses and numbers, so that the next one of a kind is called the same."""
    return re.sub(r"\d+", "", text.split(" at 0x", maxsplit=1)[0])


def _open_descriptors() -> list[str]:
    if DESCRIPTORS is None:
        return []
    targets = []
    for found in DESCRIPTORS.iterdir():
        try:
            targets.append(found.readlink().name.split(":")[0])
        except OSError:
            # The one the listing itself used is gone by now.
            continue
    return targets


async def left_over(before: Counter[str], within: float) -> Counter[str]:
    """Return what is held more than before, once it had a while to be let go of."""
    loop = asyncio.get_running_loop()
    until = loop.time() + within
    # Nothing tells when something is let go of.
    while (more := holdings() - before) and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return more


CONNECTIONS = 20
"""More than a carrier with many wires has open after one call."""
SETTLE_WITHIN = 5.0
"""How many seconds what was closed may take to be gone."""
REPETITIONS = 3
"""What the rest of the process happens to make meanwhile is not there each time; what a carrier leaves is."""


@rule("TBEH-08", "TBEH-01", "PERF-13")
async def ready(carrier: Carrier) -> None:
    """Both ends are ready within five seconds."""
    loop = asyncio.get_running_loop()
    far = FarSide()
    began = loop.time()
    async with carrier.stand(far, MAX_MESSAGE_SIZE) as stand:
        took = loop.time() - began
        demand(took <= READY_WITHIN, f"the far side took {took:.1f} s")
        near = NearSide(stand.transport(MAX_MESSAGE_SIZE), carrier.era)
        await soon(near.connect(), READY_WITHIN, "the near side was not connected")
        demand(len(near.opened) == 1, f"the near side was told {len(near.opened)} times that its channel is open")
        demand(near.way is near.channel, "connect gave another channel than the receiver was told of")
        await near.close()


@rule("TBEH-02", "TBEH-08")
async def information(carrier: Carrier) -> None:
    """The far side learns which carrier a peer came by, and its address where there is one."""
    async with scene(carrier) as met:
        came = await met.near.call("origin")
        wanted = carrier.origin or carrier.name
        demand(came["carrier"] == wanted, f"the carrier is called {came['carrier']!r}, not {wanted!r}")
        if carrier.address:
            found = came["address"].startswith(carrier.address)
            demand(found, f"the address is {came['address']!r} and does not begin with {carrier.address!r}")


@rule("TBEH-03", "TBEH-08", needs=("wire",))
async def loss(carrier: Carrier) -> None:
    """When the wire is cut every pending call learns it, both sides are told once, and sending does no harm."""
    async with scene(carrier) as met:
        near = met.near
        far = met.far
        pending = [near.start("hold") for _ in range(3)]
        await _begun(met, 3)
        met.cut()
        await settled(pending, carrier.patience, "pending calls do not learn that the wire was cut")
        # A carrier that asks for what it missed may still give the answers.
        for each in pending:
            answered = each.exception() is not None or "error" not in each.result()
            demand(answered, "a pending call was answered with an error that nobody sent")
        near.start("echo", value="into the void")
        if "one wire" in carrier.lacks:
            return
        await _told_once(near)
        demand(near.errors[0] is not None, "the near side is not told why the wire was lost")
        near.start("echo", value="into the void")
        near.way.close()
        near.way.close()
        if met.stand.visible:
            await _gone(far, carrier.patience)
            demand(far.tools.withdrawn == 3, "calls of a peer that is gone run on")


@rule("TBEH-03", needs=("wire",))
async def calls_end(carrier: Carrier) -> None:
    """A client whose wire is cut raises CallFailed from every call that waits, and its user is not left hanging."""
    far = FarSide()
    async with carrier.stand(far, MAX_MESSAGE_SIZE) as stand:
        cut = given(stand.cut, "the stand does not say how to cut the wire")
        async with Client(stand.transport(MAX_MESSAGE_SIZE), mode=carrier.era) as client:
            calls = [asyncio.ensure_future(client.call_tool("hold")) for _ in range(3)]
            await client.call_tool("echo", {"value": 1})
            cut()
            await settled(calls, carrier.patience, "pending calls do not end")
            wrong = []
            for each in calls:
                if not isinstance(each.exception(), CallFailed):
                    wrong.append(each)
            demand(not wrong, "a pending call ended with something else than CallFailed")


@rule("TBEH-03", needs=("one wire",))
async def goodbye(carrier: Carrier) -> None:
    """When the far side closes, the near side is told once, after all that was said before."""
    async with scene(carrier) as met:
        before = met.near.start("echo", value="before")
        last = met.near.start("leave")
        await settled([before, last], carrier.patience, "the near side does not learn that the far side closed")
        demand(before.exception() is None, "what was said before the goodbye was lost")
        demand(last.exception() is not None, "a call that was never answered got an answer")
        await _told_once(met.near)
        if met.stand.visible:
            await _gone(met.far, carrier.patience)


@rule("TBEH-08", "TBEH-01")
async def closing(carrier: Carrier) -> None:
    """Closing tells the receiver once, may be repeated, and makes sending harmless; calls that wait end."""
    async with scene(carrier) as met:
        near = met.near
        await near.call("echo", value=1)
        pending = near.start("hold")
        await _begun(met, 1)
        await near.close()
        demand(near.ends_of(near.way) == 1, "closing the transport does not tell the receiver that its channel is lost")
        demand(pending.done(), "a call that waited goes on waiting after the transport was closed")
        near.start("echo", value="into the void")
        near.way.close()
        await soon(near.way.wait_writable(), carrier.patience, "who writes to a closed channel has to wait")
        await near.close()
        demand(near.ends_of(near.way) == 1, "the receiver is told again that its channel is lost")


@rule("TBEH-08")
async def release(carrier: Carrier) -> None:
    """Closing both ends releases every task, timer, thread and descriptor, whatever was never answered."""
    async with scene(carrier) as met:  # what is made once in a process and kept is made here
        await met.near.call("echo", value=1)
    left = await _left_behind(carrier)
    for _ in range(REPETITIONS - 1):
        if left:
            left &= await _left_behind(carrier)
    listed = []
    for what, count in sorted(left.items()):
        listed.append(f"{count} times {what}" if count > 1 else what)
    demand(not left, f"left behind: {', '.join(listed)}")


async def _left_behind(carrier: Carrier) -> Counter[str]:
    """Return what is held after both ends were closed and was not held before."""
    before = holdings()
    async with scene(carrier) as met:
        if "peers" not in carrier.lacks:
            other = await met.another()
        else:
            other = None
        await met.near.call("tell", count=10, text="")
        met.near.start("hold")
        await _begun(met, 1)
        if other is not None:
            await other.close()
    return await left_over(before, SETTLE_WITHIN)


@rule("TBEH-08")
async def recovery(carrier: Carrier) -> None:
    """After a cut, and after a close, the same transport can be connected again and is as good as new."""
    async with scene(carrier) as met:
        near = met.near
        await near.call("echo", value=1)
        if met.stand.cut is not None:
            met.stand.cut()
            if "one wire" in carrier.lacks:
                await _goes_on(near)
            else:
                await _told_once(near)
                await _again(met, "after a cut")
        await near.close()
        await _again(met, "after a close")


async def _goes_on(near: NearSide) -> None:
    """Ask until there is an answer: a connection may be used before it is known that it was cut."""
    for _ in range(CONNECTIONS):
        try:
            demand(await near.call("echo", value=2) == {"value": 2}, "after a cut the answers are others")
        except CallFailed:
            continue
        return
    raise Broken("after a cut the conversation does not go on")


async def _again(met: Scene, when: str) -> None:
    near = NearSide(met.near.transport, met.carrier.era, met.carrier.patience)
    await near.connect()
    demand(await near.call("echo", value=when) == {"value": when}, f"{when} a new connection does not work")
    await near.close()
    demand(not near.faults, "; ".join(near.faults))


@rule("TBEH-08")
async def draining(carrier: Carrier) -> None:
    """A listener that closes lets running calls be answered, then tells its peers, and lets nobody in."""
    async with scene(carrier) as met:
        listener = given(met.stand.listener, "nobody listens")
        near = met.near
        napping = near.start("nap", seconds=0.3)
        await _begun(met, 1)
        await soon(listener.close(carrier.patience / 2), carrier.patience, "the listener did not close")
        await settled([napping], carrier.patience, "a running call was not answered")
        demand(napping.exception() is None, f"a running call was not answered: {napping.exception()}")
        demand(returned(napping.result()) == {"slept": 0.3}, "a running call was not let end")
        if "one wire" not in carrier.lacks:
            await _told_once(near)
        try:
            late = await met.another()
            await late.call("echo", value=1)
        except (CarrierError, CallFailed) as refusal:
            demand(str(refusal), "who comes too late is not told why")
        else:
            await late.close()
            raise Broken("a listener that has closed serves a peer")
        await listener.close(0.1)


async def _begun(met: Scene, count: int) -> None:
    """Wait until so many calls run, where that can be seen; else until the far side has heard all that was sent."""
    if not met.stand.visible:
        await met.near.call("echo", value="heard")
        return
    await soon(met.far.until_begun(count), met.carrier.patience, "calls did not begin")


async def _told_once(near: NearSide) -> None:
    await soon(near.until(lambda: bool(near.lost)), near.patience, "the near side is not told that its channel is lost")
    await asyncio.sleep(0.05)
    demand(
        near.ends_of(near.way) == 1, f"the near side is told {near.ends_of(near.way)} times that its channel is lost"
    )


async def _gone(far: FarSide, within: float) -> None:
    link = far.links[-1]
    await soon(link.until(lambda: bool(link.lost)), within, "the far side is not told that its channel is lost")
    await asyncio.sleep(0.05)
    demand(len(link.lost) == 1, f"the far side is told {len(link.lost)} times that its channel is lost")
