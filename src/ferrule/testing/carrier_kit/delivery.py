"""Rules of delivery: what is sent arrives, as it was, once, in order, at whom it was meant for."""

from __future__ import annotations

import json
from typing import Any

from ferrule.testing.carrier_kit.carrier import Carrier
from ferrule.testing.carrier_kit.far_side import PUSHED, TOLD
from ferrule.testing.carrier_kit.findings import Broken, demand, settled, soon
from ferrule.testing.carrier_kit.near_side import returned
from ferrule.testing.carrier_kit.rule import rule, scene

MANY = 1000
FLOOD = 5000

VALUES: tuple[Any, ...] = (
    None,
    "",
    [],
    {},
    {"": {"": [[], {}, [None, False, 0, -0.5]]}},
    "ünïcödé ☃ \U0001f600 \u2028\u2029 \ufeff",
    'quotes " and \\ and / and \n line \r feeds \t and \x00 \x1f \x7f',
    "data: x\n\nevent: y\n\nContent-Length: 5\r\n\r\n{}",
    [2**31, 2**53 + 1, 2**63, -(2**63), 2**64 - 1, 10**40],
    [0.1, 1e300, 5e-324, -0.0],
    "x" * 10_000,
)


@rule("TBEH-08", "TBEH-01")
async def values(carrier: Carrier) -> None:
    """Every JSON value arrives as it was sent, both ways."""
    async with scene(carrier) as met:
        for value in VALUES:
            came = await met.near.call("echo", value=value)
            sent = json.dumps({"value": value})
            back = json.dumps(came)
            demand(sent == back, f"{sent[:80]} came back as {back[:80]}")


@rule("TBEH-08", "GUAR-03")
async def once(carrier: Carrier) -> None:
    """A thousand requests are each heard once and each answered once, with the answer that is theirs."""
    async with scene(carrier) as met:
        answers = []
        for number in range(MANY):
            answers.append(met.near.start("echo", value=number))
            await met.near.way.wait_writable()
        await settled(answers, carrier.patience, "requests got no answer")
        wrong = []
        for n, each in enumerate(answers):
            if returned(each.result()) != {"value": n}:
                wrong.append(n)
        demand(not wrong, f"{len(wrong)} requests got the answer of another, or none of theirs")
        heard = (await met.near.call("heard"))["calls"]
        demand(heard == MANY, f"{MANY} requests were sent and {heard} were heard")


@rule("GUAR-02", needs=("order",))
async def order_out(carrier: Carrier) -> None:
    """A thousand messages arrive at the far side in the order they were sent."""
    async with scene(carrier) as met:
        for number in range(MANY):
            met.near.say(number)
            await met.near.way.wait_writable()
        # What is asked last is heard last.
        _in_order((await met.near.call("noted"))["numbers"], MANY)


@rule("GUAR-02")
async def order_back(carrier: Carrier) -> None:
    """A thousand messages of one call arrive at the near side in the order they were sent, before its answer."""
    async with scene(carrier) as met:
        await met.near.call("tell", count=MANY, text="")
        _in_order(met.near.numbers(TOLD), MANY)


@rule("GUAR-05", needs=("push",))
async def push(carrier: Carrier) -> None:
    """The far side can speak without being asked, and is heard in order."""
    async with scene(carrier) as met:
        await met.near.call("push", count=10)
        await soon(met.near.until(lambda: len(met.near.told(PUSHED)) >= 10), carrier.patience, "it was not heard")
        _in_order(met.near.numbers(PUSHED), 10)


@rule("GUAR-06")
async def flood(carrier: Carrier) -> None:
    """Five thousand small messages sent as fast as they are taken all arrive, and the link is as good as before."""
    async with scene(carrier) as met:
        answers = []
        for number in range(FLOOD):
            answers.append(met.near.start("size", text=str(number)))
            await met.near.way.wait_writable()
        await settled(answers, carrier.patience, "requests got no answer")
        failed = []
        for each in answers:
            if "size" not in returned(each.result()):
                failed.append(each)
        demand(not failed, f"{len(failed)} of {FLOOD} requests were refused")
        demand(await met.near.call("echo", value=1) == {"value": 1}, "after the flood the link is not as it was")


@rule("GUAR-07", needs=("peers",))
async def peers(carrier: Carrier) -> None:
    """Several peers are served at once, each with the answers to its own questions."""
    async with scene(carrier) as met:
        others = []
        for _ in range(4):
            others.append(await met.another())
        try:
            asked = []
            wanted = []
            for number in range(50):
                for who, near in enumerate([met.near, *others]):
                    asked.append(near.start("echo", value=[who, number]))
                    wanted.append({"value": [who, number]})
            await settled(asked, carrier.patience, "peers got no answer")
            for each, answer in zip(asked, wanted, strict=True):
                demand(returned(each.result()) == answer, "a peer got the answer of another")
        finally:
            for near in others:
                await near.close()
        for near in others:
            demand(not near.faults, "a peer was told what no carrier may tell")


def _in_order(numbers: list[int], count: int) -> None:
    if numbers == list(range(count)):
        return
    demand(len(set(numbers)) == len(numbers), f"{len(numbers) - len(set(numbers))} messages arrived twice")
    demand(len(numbers) == count, f"{count} messages were sent and {len(numbers)} arrived")
    for at, number in enumerate(numbers):
        if at != number:
            raise Broken(f"the messages arrived in another order, from number {at} on")
