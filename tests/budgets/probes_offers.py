"""Probes of what a server offers: arguments, subscriptions, what is kept for callers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

import msgspec
from table import probe

from ferrule import Client, FerruleError, Server, ToolError
from ferrule.budgets.account import Account
from ferrule.server.functions.binder import InvalidArguments, bind
from ferrule.server.hosting import principals as principals_module
from ferrule.server.notifications.subscriptions import COST, SHARE, Subscriber, Subscriptions
from ferrule.server.offers import resources, spelling
from ferrule.server.offers.spelling import Spellings


def numbers(a: list[int]) -> None:
    """A handler."""


def refused(raw: bytes) -> InvalidArguments | None:
    """Return how arguments of `numbers` are refused."""
    try:
        bind(numbers).invoke(raw)
    except InvalidArguments as error:
        return error
    return None


@probe("ferrule.budgets.bounds.MAX_EXPLAINED_SIZE", clamps=True)
async def explained(limit: int, size: int) -> bool:
    error = refused(b'{"a":["x","y"]}'.ljust(size))
    assert error is not None
    return {violation.path for violation in error.violations} >= {"/a/0", "/a/1"}


@probe("ferrule.budgets.bounds.MAX_VIOLATIONS", clamps=True)
async def violations(limit: int, size: int) -> bool:
    error = refused(b'{"a":[],' + b",".join(b'"b%d":0' % number for number in range(size)) + b"}")
    assert error is not None
    return len(error.violations) == size


@probe("ferrule.budgets.bounds.MAX_REPAIRED_SIZE")
async def repaired(limit: int, size: int) -> bool:
    return refused(b'{"a":[2.0%s]}' % (b" " * (size - 5))) is None


@probe("ferrule.server.offers.spelling.LONGEST_NAME", clamps=True)
async def suggested(limit: int, size: int) -> bool:
    return Spellings(["x" * size]).nearest("x" * size) != ""


@probe("ferrule.server.offers.spelling.MOST_NAMES", clamps=True)
async def among(limit: int, size: int) -> bool:
    names = [msgspec.json.encode(number).decode() for number in range(size - 1)]
    return Spellings([*names, "last"]).nearest("lasr") == "last"


@probe("ferrule.server.offers.spelling.MOST_REMEMBERED", clamps=True, lowered=20)
async def remembered_suggestions(limit: int, size: int) -> bool:
    spellings = Spellings(["last"])
    with mock.patch.object(spelling, "MOST_REMEMBERED", limit):
        for number in range(size):
            spellings.nearest(f"lasr{number}")
            assert len(spellings._remembered) <= limit
    return len(spellings._remembered) == size


@probe("ferrule.server.offers.spelling.MOST_PARTS", clamps=True, lowered=21)
async def names_taken_apart(limit: int, size: int) -> bool:
    # One letter has three parts: itself, and its pairs with the mark before and the mark behind.
    names = [chr(0x4E00 + number) for number in range(-(-size // 3))]
    spellings = Spellings(names)
    with mock.patch.object(spelling, "MOST_PARTS", limit):
        for name in names:
            spellings.nearest(name)
            assert len(spellings._shared) < limit + 3
    return len(spellings._shared) == 3 * len(names)


async def answers(tool: str, **arguments: str) -> bool:
    """Return whether a tool that is part of the server takes these arguments."""
    app = Server("shop")
    app.tool_search()
    app.offer_as_tools()
    async with Client(app) as client:
        try:
            await client.call_tool(tool, arguments)
        except ToolError:
            return False
    return True


@probe("ferrule.server.discovery.tool_search.MAX_QUERY")
async def looked_for(limit: int, size: int) -> bool:
    return await answers("search_tools", query="x" * size)


@probe("ferrule.server.discovery.as_tools.MAX_FILTER")
async def filtered(limit: int, size: int) -> bool:
    return await answers("list_resources", contains="x" * size)


@probe("Server(max_subscriptions=…)", lowered=20)
async def subscribed(limit: int, size: int) -> bool:
    app = Server("sea", max_subscriptions=limit)
    app.add_resource("sea://{name}", lambda name: name)
    async with Client(app, mode="handshake") as client:
        try:
            for number in range(size):
                await client.request("resources/subscribe", {"uri": f"sea://{number}"})
        except FerruleError:
            assert app.host.services.subscriptions.watched == limit
            return False
    return app.host.services.subscriptions.watched == 0


@probe("ferrule.budgets.process.subscriptions", lowered=100 * SHARE * COST)
async def subscriptions(limit: int, size: int) -> bool:
    account = Account("subscriptions", limit)
    all_of_them = Subscriptions(size, account)
    left = size
    try:
        for number in range(SHARE):
            subscriber = Subscriber(None, owner=number, holder=f"address {number}")
            while left > 0 and subscriber.cost < limit // SHARE:
                text = f"{left}:".ljust(min(left, limit // SHARE - subscriber.cost, 4 * COST) - COST, "x")
                all_of_them.subscribe(subscriber, text)
                left -= len(text) + COST
    except FerruleError:
        return False
    return left == 0


@probe("ferrule.server.hosting.principals.MOST_PRINCIPALS", clamps=True, lowered=50)
async def principals(limit: int, size: int) -> bool:
    with lowered(principals_module, "MOST_PRINCIPALS", limit):
        known = principals_module.Principals()
        for number in range(size):
            known.state(f"principal {number}")
        assert len(known) <= limit
        return known.find("principal 0") is not None


@probe("ferrule.server.hosting.principals.PRINCIPAL_LIFETIME", clamps=True, lowered=100)
async def remembered(limit: int, size: int) -> bool:
    now = 0.0
    with lowered(principals_module, "PRINCIPAL_LIFETIME", limit + 0.5):
        known = principals_module.Principals(lambda: now)
        known.state("first")
        now = float(size)
        known.state("second")
        return known.find("first") is not None


@probe("ferrule.server.offers.resources.MAX_KEPT_BYTES", clamps=True, lowered=1000)
async def kept_bytes(limit: int, size: int) -> bool:
    with lowered(resources, "MAX_KEPT_BYTES", limit):
        app = Server("s")
        app.add_resource("a://b", lambda: "x" * (size - 5), ttl=60)
        async with Client(app) as client:
            await client.read_resource("a://b")
        assert app.offers.resources.kept_bytes <= limit
        return app.offers.resources.kept_bytes == size


@probe("ferrule.server.offers.resources.MAX_KEPT", clamps=True, lowered=10)
async def kept_reads(limit: int, size: int) -> bool:
    with lowered(resources, "MAX_KEPT", limit):
        app = Server("s")
        app.add_resource("a://{name}", lambda name: "1", ttl=60)
        async with Client(app) as client:
            for number in range(size):
                await client.read_resource(f"a://{number:05}")
        return app.offers.resources.kept_bytes == size * 10


@contextlib.contextmanager
def lowered(module: Any, name: str, limit: float) -> Iterator[None]:
    """Put another limit in force."""
    usual = getattr(module, name)
    setattr(module, name, limit)
    try:
        yield
    finally:
        setattr(module, name, usual)
