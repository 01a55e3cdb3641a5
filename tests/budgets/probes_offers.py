"""Probes of what a server offers: arguments, subscriptions, what is kept for callers."""

from __future__ import annotations

import msgspec
from table import probe

from ferrule import Client, FerruleError, Server
from ferrule.budgets.account import Account
from ferrule.server.binding import InvalidArguments, bind
from ferrule.server.spelling import Spellings
from ferrule.server.subscriptions import COST, SHARE, Subscriber, Subscriptions


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


@probe("ferrule.budgets.bounds.MAX_MENDED_SIZE")
async def mended(limit: int, size: int) -> bool:
    return refused(b'{"a":[2.0%s]}' % (b" " * (size - 5))) is None


@probe("ferrule.server.spelling.LONGEST_NAME", clamps=True)
async def suggested(limit: int, size: int) -> bool:
    return Spellings(["x" * size]).nearest("x" * size) != ""


@probe("ferrule.server.spelling.MOST_NAMES", clamps=True)
async def among(limit: int, size: int) -> bool:
    names = [msgspec.json.encode(number).decode() for number in range(size - 1)]
    return Spellings([*names, "last"]).nearest("lasr") == "last"


@probe("Server(max_subscriptions=…)", lowered=20)
async def subscribed(limit: int, size: int) -> bool:
    app = Server("sea", max_subscriptions=limit)
    app.add_resource("sea://{name}", lambda name: name)
    async with Client(app, mode="handshake") as client:
        try:
            for number in range(size):
                await client.request("resources/subscribe", {"uri": f"sea://{number}"})
        except FerruleError:
            assert app.subscriptions.watched == limit
            return False
    return app.subscriptions.watched == 0


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
