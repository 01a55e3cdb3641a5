"""Rules of pagination, logging, and of servers that are child processes."""

from __future__ import annotations

import asyncio

from ferrule.check.answer import excerpt, shown
from ferrule.check.case import Case
from ferrule.check.era import HANDSHAKE, STATELESS
from ferrule.check.rule import Verdict, broken, judged, passed, rule, skipped
from ferrule.check.rules.lifecycle import DECLARED
from ferrule.check.wire import MessageWire
from ferrule.codes import ErrorCode
from ferrule.transports.process.child import ChildProcess

PAGINATION = "server/utilities/pagination"
LOGGING = "server/utilities/logging"
STDIO = {HANDSHAKE: "basic/transports", STATELESS: "basic/transports/stdio"}
NO_CURSOR = "ferrule-check-no-such-cursor"
GRACE = 5.0
"""How many seconds a process may take to end after its input has ended."""


@rule(
    "pagination/ends",
    "a list ends: cursors are strings, and none comes twice",
    fix="name a nextCursor only where there is a next page",
    page=PAGINATION,
)
async def ends(case: Case) -> Verdict:
    """Look at the cursors of every list."""
    faults = []
    looked = 0
    for method, capability in DECLARED.items():
        if capability not in case.talk.capabilities:
            continue
        listing = await case.listing(method)
        looked += 1
        for cursor in listing.cursors:
            if not isinstance(cursor, str):
                faults.append(f"{method}: a cursor is {shown(cursor)}")
        last = (listing.answers[-1].result or {}).get("nextCursor")
        if not listing.complete and last in listing.cursors:
            faults.append(f"{method}: the cursor {shown(last)} leads to itself")
    if not looked:
        return skipped("the server declares no list")
    return judged(faults)


@rule(
    "pagination/unknown-cursor",
    "a cursor the server never gave is refused with -32602",
    fix="answer with the error -32602, and not with the first page",
    page=PAGINATION,
    level="should",
)
async def unknown_cursor(case: Case) -> Verdict:
    """Ask for a page nobody has."""
    for method, capability in DECLARED.items():
        if capability in case.talk.capabilities:
            answer = await case.talk.request(method, {"cursor": NO_CURSOR})
            if answer.code == ErrorCode.INVALID_PARAMS:
                return passed()
            return broken(f"{method} with the cursor {NO_CURSOR!r} was answered with {answer.told}")
    return skipped("the server declares no list")


@rule(
    "logging/level",
    "a server that declares logging takes a level",
    fix="answer logging/setLevel with {}, or do not declare logging",
    page=LOGGING,
    eras=(HANDSHAKE,),
    capability="logging",
)
async def level(case: Case) -> Verdict:
    """Set the level."""
    answer = await case.talk.request("logging/setLevel", {"level": "warning"})
    if answer.result is None:
        return broken(f"logging/setLevel was answered with {answer.told}")
    return passed()


@rule(
    "logging/unknown-level",
    "a level that does not exist is refused with -32602",
    fix="answer with the error -32602",
    page=LOGGING,
    level="should",
    eras=(HANDSHAKE,),
    capability="logging",
)
async def unknown_level(case: Case) -> Verdict:
    """Set a level nobody has."""
    answer = await case.talk.request("logging/setLevel", {"level": "ferrule-check"})
    if answer.code == ErrorCode.INVALID_PARAMS:
        return passed()
    return broken(f"the level 'ferrule-check' was answered with {answer.told}")


@rule(
    "logging/declared",
    "log messages come only from a server that declares logging, and only where a request asks for them",
    fix="declare logging; in the stateless versions send log messages only for a request with a logLevel",
    page=LOGGING,
)
async def logging_declared(case: Case) -> Verdict:
    """Look for log messages; no request of ours asked for any."""
    faults = []
    for message in case.talk.seen:
        if message.get("method") != "notifications/message":
            continue
        if case.era == STATELESS or "logging" not in case.talk.capabilities:
            faults.append(shown(message))
    return judged(faults)


@rule(
    "stdio/ends-with-input",
    f"the server ends within {GRACE:g} s after its input has ended",
    fix="end the process when stdin ends; hosts close it to stop a server, and kill what stays",
    page=STDIO,
    level="should",
    kinds=("stdio",),
)
async def ends_with_input(case: Case) -> Verdict:
    """Open a conversation and close stdin."""
    async with case.conversation() as talk:
        wire = talk.wire
        if not isinstance(wire, MessageWire) or not isinstance(wire.transport, ChildProcess):
            return skipped("the server is no child process")
        loop = asyncio.get_running_loop()
        began = loop.time()
        await wire.close(GRACE)
        took = loop.time() - began
        code = wire.transport.exit_code
    if took >= GRACE:
        return broken(f"it went on for {GRACE:g} s after stdin was closed, and had to be ended")
    return passed(f"exit code {code} after {took:.1f} s")


@rule(
    "stdio/only-messages",
    "nothing but messages is on stdout",
    fix="print to stderr; a line on stdout that is no message breaks clients",
    page=STDIO,
    kinds=("stdio",),
)
async def only_messages(case: Case) -> Verdict:
    """Look at what came on stdout in every conversation."""
    faults = []
    for noise in (*case.noise, *case.talk.wire.noise):
        faults.append(f"stdout has {excerpt(noise)!r}")
    return judged(faults)
