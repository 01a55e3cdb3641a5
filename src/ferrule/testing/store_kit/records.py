"""Rules of values and tasks: what is kept is found as it was, changes only as it may, and ends at its time."""

from __future__ import annotations

import asyncio

from msgspec import Raw, structs

from ferrule.codes import ErrorCode
from ferrule.schema.rounds import InputRequest
from ferrule.schema.tasks import GOING_ON, TaskError
from ferrule.stores.contracts import StoredTask
from ferrule.testing.carrier_kit.findings import demand
from ferrule.testing.store_kit.stand import LONG, StoreMaker, rule

MANY = 20
"""How many try the same at once."""


@rule("values")
async def kept(maker: StoreMaker) -> None:
    """A value is kept until it is replaced or deleted, whatever its bytes are; an empty one is a value."""
    async with maker.stand() as stand:
        values = stand.stores.values
        demand(await values.get("a") is None, "a value was there that nobody had put")
        for value in (b"", b"1", bytes(range(256)), b"\x00" * 1_000_000):
            await values.put("a", value)
            demand(await values.get("a") == value, f"{value[:10]!r} came back as something else")
        await values.delete("a")
        await values.delete("a")
        demand(await values.get("a") is None, "a value was there after it was deleted")


@rule("values")
async def added_once(maker: StoreMaker) -> None:
    """Of many who add the same key at once, one succeeds, and its value is kept."""
    async with maker.stand() as stand:
        places = [stand.stores.values, (stand.another or stand.stores).values]
        adding = []
        for number in range(MANY):
            adding.append(places[number % 2].add("a", b"%d" % number, LONG))
        added = await asyncio.gather(*adding)
        demand(added.count(True) == 1, f"{added.count(True)} of {MANY} added it")
        demand(await places[0].get("a") == b"%d" % added.index(True), "the value of another was kept")


@rule("values")
async def taken_once(maker: StoreMaker) -> None:
    """Of many who take a value at once, one gets it, and it is gone."""
    async with maker.stand() as stand:
        places = [stand.stores.values, (stand.another or stand.stores).values]
        await places[0].put("a", b"1", LONG)
        taken = await asyncio.gather(*(places[number % 2].take("a") for number in range(MANY)))
        demand(taken.count(b"1") == 1, f"{taken.count(b'1')} of {MANY} got it")
        demand(taken.count(None) == MANY - 1, "somebody got something else")
        demand(await places[0].get("a") is None, "it was there after it was taken")


@rule("values")
async def replaced_once(maker: StoreMaker) -> None:
    """Of many who replace a value they have seen, one succeeds; what is not there is not replaced."""
    async with maker.stand() as stand:
        places = [stand.stores.values, (stand.another or stand.stores).values]
        demand(not await places[0].replace("a", b"", b"1"), "what was not there was replaced")
        await places[0].put("a", b"0", LONG)
        replacing = [places[number % 2].replace("a", b"0", b"%d" % (number + 1), LONG) for number in range(MANY)]
        replaced = await asyncio.gather(*replacing)
        demand(replaced.count(True) == 1, f"{replaced.count(True)} of {MANY} replaced it")
        demand(await places[0].get("a") == b"%d" % (replaced.index(True) + 1), "the value of another was kept")
        demand(
            await places[0].replace("a", b"%d" % (replaced.index(True) + 1), b"x", stand.tick), "it was not replaced"
        )
        await stand.pass_time(stand.tick * 1.5)
        demand(await places[0].get("a") is None, "it was there after its time")


@rule("values")
async def values_expire(maker: StoreMaker) -> None:
    """A value with a time to live is gone after it, and can be added again; one without stays."""
    async with maker.stand() as stand:
        values = stand.stores.values
        await values.put("short", b"1", stand.tick)
        await values.put("long", b"2", LONG)
        await values.put("ever", b"3")
        await stand.pass_time(stand.tick * 1.5)
        demand(await values.get("short") is None, "it was there after its time")
        demand(await values.get("long") == b"2", "it was gone before its time")
        demand(await values.get("ever") == b"3", "it was gone, and had no end")
        demand(await values.add("short", b"4"), "it could not be added after its time")
        demand(await values.get("short") == b"4", "what was added after its time was not kept")


@rule("values", is_shared=True)
async def values_elsewhere(maker: StoreMaker) -> None:
    """What one process has put, another finds at once."""
    async with maker.stand() as stand:
        await stand.stores.values.put("a", b"1")
        demand(await stand.elsewhere.values.get("a") == b"1", "it was not found")
        await stand.elsewhere.values.delete("a")
        demand(await stand.stores.values.get("a") is None, "it was found after another had deleted it")


def new(name: str, owner: str = "ann", created: float = 1.0, ttl: float | None = None) -> StoredTask:
    """Return a task that has just begun."""
    return StoredTask(id=name, owner=owner, tool="t", created=created, updated=created, ttl=ttl, poll_interval=1.0)


@rule("tasks")
async def tasks_kept(maker: StoreMaker) -> None:
    """A task is found as it was created, with all that is said about it, until it is deleted."""
    async with maker.stand() as stand:
        tasks = stand.stores.tasks
        full = structs.replace(
            new("a", ttl=LONG),
            status="input_required",
            status_message="what?",
            progress=(1.0, None),
            input_requests={"k": InputRequest(method="roots/list", params=Raw(b'{"a":[1,"\xc3\xbc"]}'))},
            result=bytes(range(256)),
            error=TaskError(code=ErrorCode.INTERNAL_ERROR.value, message="no", data={"a": [1]}),
        )
        demand(await tasks.get("a", 1.0) is None, "a task was there that nobody had created")
        await tasks.create(full, 1.0)
        demand(await tasks.get("a", 1.0) == full, "it came back as something else")
        await tasks.delete("a")
        await tasks.delete("a")
        demand(await tasks.get("a", 1.0) is None, "it was there after it was deleted")


@rule("tasks")
async def tasks_end_once(maker: StoreMaker) -> None:
    """A task changes only from a status that is expected; of many who end it at once, one succeeds."""
    async with maker.stand() as stand:
        tasks = stand.stores.tasks
        await tasks.create(new("a"), 1.0)
        asked = structs.replace(new("a"), status="input_required")
        demand(not await tasks.update(asked, {"input_required"}), "it changed from a status that was not expected")
        demand(await tasks.update(asked, {"working"}), "it did not change from the status that was expected")
        places = [tasks, (stand.another or stand.stores).tasks]
        ends = []
        for number in range(MANY):
            ended = structs.replace(new("a"), status="completed", result=b"%d" % number)
            ends.append(places[number % 2].update(ended, GOING_ON))
        won = await asyncio.gather(*ends)
        demand(won.count(True) == 1, f"{won.count(True)} of {MANY} ended it")
        found = await tasks.get("a", 1.0)
        demand(found is not None and found.result == b"%d" % won.index(True), "the result of another was kept")
        demand(not await tasks.update(new("nobody"), GOING_ON), "a task was changed that is not there")


@rule("tasks")
async def tasks_page(maker: StoreMaker) -> None:
    """The tasks of one owner come by time of creation and id, page by page, and nobody else's."""
    async with maker.stand() as stand:
        tasks = stand.stores.tasks
        wanted = []
        for created, name in [(1.0, "b"), (1.0, "a"), (300.5, "c"), (2.0, "d"), (1.7e9, "e")]:
            await tasks.create(new(name, created=created), 1.0)
            await tasks.create(new("other" + name, owner="bob", created=created), 1.0)
            wanted.append((created, name))
        wanted.sort()
        await tasks.create(new("gone", created=1.5), 1.0)
        await tasks.delete("gone")
        found: list[tuple[float, str]] = []
        while page := await tasks.page("ann", found[-1] if found else None, 2, 1.0):
            demand(len(page) <= 2, "a page was longer than asked for")
            for task in page:
                found.append((task.created, task.id))
        demand(found == wanted, f"the pages had {found}, not {wanted}")
        demand(await tasks.page("nobody", None, 10, 1.0) == [], "somebody without tasks has some")


@rule("tasks")
async def tasks_expire(maker: StoreMaker) -> None:
    """A task is gone after its time, from pages too; one without an end stays."""
    async with maker.stand() as stand:
        tasks = stand.stores.tasks
        await tasks.create(new("short", ttl=stand.tick), 1.0)
        await tasks.create(new("ever"), 1.0)
        await stand.pass_time(stand.tick * 1.5)
        demand(await tasks.get("short", 1.0) is None, "it was there after its time")
        page = await tasks.page("ann", None, 10, 1.0)
        demand([task.id for task in page] == ["ever"], "a page has what is gone, or lacks what is not")
        await tasks.expire(1.0)
        demand(await tasks.get("ever", 1.0) == new("ever"), "it was gone, and had no end")


@rule("tasks", is_shared=True)
async def tasks_elsewhere(maker: StoreMaker) -> None:
    """What one process has created, another finds at once and may end."""
    async with maker.stand() as stand:
        await stand.stores.tasks.create(new("a"), 1.0)
        demand(await stand.elsewhere.tasks.get("a", 1.0) == new("a"), "it was not found")
        ended = structs.replace(new("a"), status="failed")
        demand(await stand.elsewhere.tasks.update(ended, GOING_ON), "it could not be ended")
        demand(await stand.stores.tasks.get("a", 1.0) == ended, "its end was not seen")
