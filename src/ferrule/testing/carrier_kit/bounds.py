"""Rules of bounds: how long a message may be, and how much may wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from ferrule.errors import EncodeError
from ferrule.testing.carrier_kit.carrier import Carrier
from ferrule.testing.carrier_kit.findings import Broken, NotApplicable, demand, given, settled, soon
from ferrule.testing.carrier_kit.near_side import NearSide, returned
from ferrule.testing.carrier_kit.rule import Scene, rule, scene
from ferrule.wire.codec import MAX_MESSAGE_SIZE

SMALL_LIMIT = 64 * 1024
ENVELOPE = 1024
"""More than what stands around the text of a call."""
PIECE = 32 * 1024
MOST_TAKEN = 32 * 1024 * 1024
"""A sender that was let send so much to nobody is not held back at all."""
LONG, LONG_ONES = 256 * 1024, 40
STUCK_AFTER = 0.1
"""A wait that lasts so long is one: whoever has room returns at once."""


@rule("TBEH-08", needs=("limit",))
async def limit(carrier: Carrier) -> None:
    """A message just under the limit passes; one over it is refused before anything is written, and all goes on."""
    await _keeps_limit(carrier, SMALL_LIMIT)


@rule("TBEH-08", "SIZE-12", needs=("limit",))
async def sixteen_mebibytes(carrier: Carrier) -> None:
    """The limit everyone has unless told otherwise, 16 MiB, is kept to the real thing."""
    await _keeps_limit(carrier, MAX_MESSAGE_SIZE)


async def _keeps_limit(carrier: Carrier, most: int) -> None:
    async with scene(carrier, most) as met:
        near = met.near
        size = most - ENVELOPE
        demand(await near.call("size", text="x" * size) == {"size": size}, "a message under the limit did not pass")
        try:
            near.start("size", text="x" * most)
        except EncodeError:
            pass
        else:
            raise Broken("a message of ours that is over the limit was sent")
        refused = await near.call("large", size=most)
        demand(refused == {"refused": True}, "a message of the far side's that is over the limit was sent")
        demand(await near.call("echo", value=1) == {"value": 1}, "after a message over the limit the link is lost")


@rule("TBEH-08", needs=("limit", "their limit"))
async def their_limit(carrier: Carrier) -> None:
    """A peer that sends more than the far side takes is told so; the link then lives or is closed, as declared."""
    async with scene(carrier, SMALL_LIMIT) as met:
        near = await met.another()
        asked = near.start("size", text="x" * (SMALL_LIMIT * 2))
        await soon(near.until(lambda: _was_refused(near)), carrier.patience, "nothing says that it was too long")
        if carrier.after_oversize == "closed":
            await soon(near.until(lambda: bool(near.lost)), carrier.patience, "the link was not closed")
        demand(not asked.done() or asked.exception() or "error" in asked.result(), "the message was taken")
        if carrier.after_oversize == "lives":
            demand(await near.call("echo", value=1) == {"value": 1}, "the link does not live on")
        await near.close()
        demand(not near.faults, "; ".join(near.faults))
        demand(await met.near.call("echo", value=2) == {"value": 2}, "another peer suffered from it")


def _was_refused(near: NearSide) -> bool:
    for message in near.messages:
        if isinstance(message, dict) and "error" in message:
            return True
    for error in near.errors:
        if error is not None:
            return True
    return bool(near.failed)


@rule("TBEH-08", "GUAR-06", needs=("back-pressure",))
async def back_pressure_out(carrier: Carrier) -> None:
    """Who writes to a peer that does not read has to wait, soon; when the peer reads on, everything arrives."""
    async with scene(carrier) as met:
        hold, release = _holding(met)
        asked: list[asyncio.Future[Any]] = []
        hold()
        try:
            while len(asked) * PIECE < MOST_TAKEN:
                asked.append(met.near.start("size", text="x" * PIECE))
                if await _must_wait(met.near):
                    break
            else:
                raise Broken(f"{MOST_TAKEN} bytes were taken for a peer that does not read, and nobody had to wait")
        finally:
            release()
        await settled(asked, carrier.patience, "what was held back did not arrive")
        wrong = []
        for each in asked:
            if returned(each.result()) != {"size": PIECE}:
                wrong.append(each)
        demand(not wrong, f"{len(wrong)} of {len(asked)} messages were not taken")
        await soon(met.near.way.wait_writable(), carrier.patience, "who has to wait was not let go")


@rule("GUAR-06", needs=("back-pressure", "wire", "one wire"))
async def waiting_ends(carrier: Carrier) -> None:
    """Who waits for a peer that does not read is let go when the wire is cut."""
    async with scene(carrier) as met:
        hold, release = _holding(met)
        hold()
        try:
            sent = 0
            while sent < MOST_TAKEN and not await _must_wait(met.near):
                met.near.start("size", text="x" * PIECE)
                sent += PIECE
            waiting = asyncio.ensure_future(met.near.way.wait_writable())
            await asyncio.sleep(STUCK_AFTER)
            met.cut()
        finally:
            release()
        await settled([waiting], carrier.patience, "who waited to write waits for ever")


async def _must_wait(near: NearSide) -> bool:
    try:
        await asyncio.wait_for(near.way.wait_writable(), STUCK_AFTER)
    except TimeoutError:
        return True
    return False


@rule("GUAR-06", needs=("back-pressure",))
async def back_pressure_back(carrier: Carrier) -> None:
    """A far side that streams to a peer that does not read has to wait, soon; when it reads on, everything arrives."""
    async with scene(carrier) as met:
        far = met.here
        hold, release = _holding(met)
        if not met.stand.holds_both_ways:
            raise NotApplicable("the stand does not say how to hold what the far side says")
        count = MOST_TAKEN // PIECE
        call = met.near.start("tell", count=count, text="x" * PIECE)
        await soon(met.near.until(lambda: met.near.received >= 3), carrier.patience, "the stream did not begin")
        hold()
        try:
            said = -1
            while said != far.tools.said and far.tools.said < count:
                said = far.tools.said
                await asyncio.sleep(STUCK_AFTER)
            demand(
                far.tools.said < count,
                f"{MOST_TAKEN} bytes were taken for a peer that does not read, and nobody had to wait",
            )
        finally:
            release()
        await settled([call], carrier.patience, "the stream did not go on")
        demand(returned(call.result()) == {"count": count}, "the call was not answered")
        # The handshake's own answer is one frame more.
        demand(met.near.received >= count + 1, f"{count} messages were said and {met.near.received} arrived")


@rule("TBEH-08", "GUAR-06")
async def crossing(carrier: Carrier) -> None:
    """Long questions and their long answers, more than fits into any buffer, do not wait for each other."""
    async with scene(carrier) as met:
        asked = [met.near.start("echo", value="x" * LONG) for _ in range(LONG_ONES)]
        await settled(asked, carrier.patience, "both sides wait for the other to read first")
        wrong = []
        for each in asked:
            if len(returned(each.result()).get("value", "")) != LONG:
                wrong.append(each)
        demand(not wrong, f"{len(wrong)} of {LONG_ONES} long questions were not answered in full")


def _holding(met: Scene) -> tuple[Callable[[], None], Callable[[], None]]:
    hold = given(met.stand.hold, "the stand does not say how to hold what passes")
    return hold, given(met.stand.release, "the stand does not say how to let pass what was held")
