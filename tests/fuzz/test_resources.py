"""Every peer pays for what it asks: hostile messages of every method, on every wire, from both sides, measured.

`make test` runs a slice that is the same each time. `make fuzz` goes on with other seeds and larger sizes until its
time is over; `FERRULE_FUZZ_SEED` repeats a run, `FERRULE_FUZZ_SECONDS` sets the time for each wire.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

import pytest
from corpus import CLIENT_CORPUS, CORPUS
from fuzz_client import URLS, ClientTarget, hostile_answers
from fuzz_wires import (
    AsgiSocketTarget,
    AsgiTarget,
    HttpTarget,
    MemoryTarget,
    StdioTarget,
    Target,
    TcpTarget,
    WebSocketTarget,
    WireLoop,
    new_server,
)
from grammar import HANDSHAKE_VERSIONS, NEWEST, Message, to_client, to_server
from mutate import Case, any_size, broken, filled, plain, repeated, with_spaces
from resource_oracle import HOPELESS, Judge, NewBase

from ferrule import Server
from ferrule.testing import ERAS

LONG = os.environ.get("FERRULE_LONG") == "1"
KIB = 1024
LARGEST = 300 * KIB if LONG else 40 * KIB
"""Bytes that a message is made longer by, at most."""
SEED = os.environ.get("FERRULE_FUZZ_SEED") or (os.urandom(4).hex() if LONG else "the same each time")
SECONDS = float(os.environ.get("FERRULE_FUZZ_SECONDS", "15"))
"""Seconds that each wire is tried with `make fuzz`."""
INPUTS = 150
"""How many inputs each wire is tried with otherwise."""

SESSION = 64 * KIB
"""What a new session may keep: its link, its channel, their tables, which grow by leaps."""

UNREADABLE = (b'{"jsonrpc":"2.0","id":"ping","method":"ping"', b'{"jsonrpc":"2.0"}', b'{"jsonrpc":"2.0","id":"ping"}')
"""The smallest messages that are refused: broken JSON, and two that are of no kind."""

UNASKED = b'{"jsonrpc":"2.0","method":"notifications/x"}'
"""The smallest message that a client takes without having asked."""

FAILED_CALLS = (
    b'{"jsonrpc":"2.0","id":987654321,"result":1}',
    b'{"jsonrpc":"2.0","id":987654321,"result":',
    b'{"jsonrpc":"2.0","id":987654321,"result":{"\xff":1}}',
    b'{"jsonrpc":"2.0","id":987654321,"result":{"tools":[1],"resources":[1],"prompts":[1],"contents":[1],"tasks":[1],'
    b'"resourceTemplates":[1],"messages":[{"role":"user","content":1}],"content":[1],"completion":1,"taskId":1}}',
)
"""The smallest answers that fail a call: two results of no use, and two that cannot be read."""

STANDING = 32 * KIB
"""What a call may keep that stands for as long as its caller wants: its stream and its task."""

TWO_ERAS = ("2025-11-25", NEWEST)
WIRES: dict[str, Callable[[WireLoop, Server, str], Target]] = {
    "memory": MemoryTarget,
    "tcp": TcpTarget,
    "content-length": lambda loop, server, version: TcpTarget(loop, server, version, "content-length"),
    "stdio": StdioTarget,
    "websocket": WebSocketTarget,
    "http": HttpTarget,
    "asgi": AsgiTarget,
    "asgi websocket": AsgiSocketTarget,
}


def judged(work: Callable[[Judge, WireLoop], Awaitable[None]]) -> Judge:
    """Run work with a judge in a loop of wires, and return the judge."""
    loop = WireLoop()
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        judge = Judge(loop)

        async def listened() -> None:
            with judge.listening():
                await work(judge, loop)

        runner.run(listened())
    return judge


class Trial:
    """One target and a judge: brings cases, and looks at everything that must hold."""

    def __init__(self, judge: Judge, target: Target) -> None:
        self.judge = judge
        self.target = target
        self.bases: dict[str, float] = {}

    async def start(self) -> None:
        """Serve, and learn what the smallest messages cost: one that is answered and some that are refused."""
        await self.target.start()
        costs = []
        for frame in UNREADABLE:
            case = self.target.ping_case()._replace(frame=frame, sure=False)
            costs.append(await self.least(case, 15))
        # These come last: over stdio nobody is told any more after many messages in a row that cannot be read.
        costs.append(await self.target.base())
        self.bases["ping"] = max(costs)

    async def least(self, case: Case, times: int) -> float:
        """Return the least that a case costs."""
        target = self.target
        costs = []
        for _ in range(times):
            self.leave(case)
            costs.append((await target.run(case, 0)).cpu)
        target.heard()
        self.leave(case)
        return min(costs)

    async def base_of(self, message: Message) -> float:
        """Return what a message costs before it is spoilt."""
        if message.name not in self.bases:
            cases = [plain(message)]
            if "arguments" in message.params:
                # To say what is wrong with arguments takes longer than to take them.
                tree = {**message.tree, "params": {**message.params, "arguments": {"a": "x", "items": 1, "value": 1}}}
                cases.append(plain(message._replace(tree=tree)))
            self.bases[message.name] = max([await self.least(case, 5) for case in cases])
        return max(self.bases[message.name], self.bases["ping"])

    async def new_base_of(self, message: Message) -> float:
        """Measure once more what a message costs before it is spoilt."""
        self.bases.pop(message.name, None)
        return await self.base_of(message)

    async def bring(self, case: Case, base: float, new_base: NewBase | None = None) -> bool:
        """Bring a case, and judge it by its cost, its answers, and the ping after it.

        Return whether it can be brought again in good time.
        """
        judge, target = self.judge, self.target
        first: list[tuple[bytes, list[Any]]] = []

        async def run(number: int) -> Any:
            self.leave(case)
            cost = await target.run(case, number)
            if not first:
                first.append((case.numbered(number), target.heard()))
                if not target.in_time:
                    judge.found(target.name, case.name, "was not answered in time")
            return cost

        cost = await judge.judge(target.name, case.name, base, run, new_base)
        self._look_at_ids(case, *first[0])
        self.leave(case)
        await self.ping(case.name)
        return cost.cpu < HOPELESS

    def leave(self, case: Case) -> None:
        """Hang up where a case leaves a connection that nobody is answered on any more.

        It was broken, or a call stands on it and the wire has one answer at a time.
        """
        target = self.target
        blocked = case.standing and target.one_answer_each
        if target.wire is not None and (case.alone or blocked):
            target.wire.hang_up()

    def _look_at_ids(self, case: Case, frame: bytes, heard: list[Any]) -> None:
        ids = [part.get("id") for part in heard if "method" not in part]
        identity = readable_id(case, frame)
        if self.target.one_answer_each and ids == [None]:
            return  # what HTTP itself refuses needs no id: the answer is that of its request
        if identity is not None and self.target.opened and ids.count(identity) != 1:
            told = f"the id {identity!r:.60} is answered {ids.count(identity)} times: {str(heard)[:200]}"
            self.judge.found(self.target.name, case.name, told)

    async def ping(self, after: str) -> None:
        """See that the next who asks is answered."""
        target = self.target
        await target.run(target.ping_case(), 0)
        heard = target.heard()
        if "Session not found" in str(heard):
            # Whoever opens many sessions loses the oldest of its own.
            target.forget_session()
            await target.run(target.ping_case(), 0)
            heard = target.heard()
        if not target.in_time or [part.get("id") for part in heard] != ["ping"]:
            self.judge.found(target.name, after, f"the ping after it was answered with {str(heard)[:200]}")

    async def keeps(self, case: Case) -> None:
        """See what a case leaves behind."""
        target = self.target

        async def run(number: int) -> Any:
            cost = await target.run(case, number)
            target.heard()
            self.leave(case)
            return cost

        beside = SESSION if b'"initialize"' in case.frame else 0
        if case.standing:
            beside = STANDING
        await self.judge.judge_kept(target.name, case.name, beside, run)


def readable_id(case: Case, frame: bytes) -> Any:
    """Return the id that must be answered exactly once; None where opinions may differ."""
    if not case.awaits or case.messages != 1 or len(frame) > 100 * KIB:
        return None
    try:
        message = json.loads(frame)
        str(message.get("id")).encode()
    except (ValueError, RecursionError):
        return None
    sound = message.get("jsonrpc") == "2.0" and message.get("method") == case.method
    identity = message.get("id")
    return identity if sound and isinstance(identity, str) and len(identity) <= 1000 else None


def slice_of(messages: list[Message], chance: random.Random) -> Iterable[tuple[Message, Case]]:
    """Yield cases of every message in turn, without an end; what is costly to make is made when it is tried."""
    while True:
        chance.shuffle(messages)
        ways = [filled(message, LARGEST, chance) for message in messages]
        for round_number in range(60):
            for message, way in zip(messages, ways, strict=True):
                case = next(way, None)
                if case is not None:
                    yield message, case
                if round_number == 0:
                    yield message, repeated(message, any_size(LARGEST, chance))
                    yield message, with_spaces(message, any_size(LARGEST, chance))
                    yield message, broken(message, chance)


def goes_on(number: int, began: float) -> bool:
    """Whether there is another input to try: as many as were agreed, or, in a long run, as long as there is time."""
    return time.monotonic() - began < SECONDS if LONG else number < INPUTS


async def try_server(judge: Judge, target: Target) -> None:
    """Bring cases to a server; every tenth is also looked at for what it leaves behind."""
    trial = Trial(judge, target)
    await trial.start()
    messages = to_server(stateless=target.modern)
    began = time.monotonic()
    try:
        for number, (message, case) in enumerate(slice_of(messages, random.Random(f"{target.name} {SEED}"))):
            if not goes_on(number, began):
                break
            base = await trial.base_of(message)
            await trial.bring(case, base, partial(trial.new_base_of, message))
            if number % 10 == 0:
                await trial.keeps(case)
    finally:
        await target.stop()


def agree(judge: Judge) -> None:
    """Fail with what was found, and with how to find it again."""
    print(f"{judge.tried} inputs, seed {SEED!r}; nearest to their allowance:")
    for share, case in sorted(judge.dearest, reverse=True)[:5]:
        print(f"  {share:.0%} {case}")
    assert not judge.findings, f"seed {SEED!r}\n{judge.report()}"


@pytest.mark.parametrize(
    ("wire", "version"),
    [
        *((wire, version) for wire in WIRES for version in TWO_ERAS),
        *(("memory", old) for old in HANDSHAKE_VERSIONS[1:]),
    ],
)
def test_a_hostile_client_costs_what_it_sends(wire: str, version: str) -> None:
    """BUD-23."""

    async def work(judge: Judge, loop: WireLoop) -> None:
        await try_server(judge, WIRES[wire](loop, new_server(), version))

    agree(judged(work))


class ClientTrial:
    """One client and a judge."""

    def __init__(self, judge: Judge, target: ClientTarget) -> None:
        self.judge = judge
        self.target = target
        self.bases: dict[str, float] = {}

    async def base_of(self, message: Message) -> float:
        """Return what a message costs before it is spoilt."""
        key = message.method or "unasked"
        if key not in self.bases:
            if message.method:
                cases = [plain(message), *(Case("failed", frame, method=message.method) for frame in FAILED_CALLS)]
            else:
                cases = [Case("unasked", frame) for frame in (UNASKED, *UNREADABLE)]
            self.bases[key] = max([await self._least(case) for case in cases])
        return self.bases[key]

    async def _least(self, case: Case) -> float:
        """Return the least that a case costs."""
        return min([(await self.target.run(case, 0)).cpu for _ in range(6)])

    async def new_base_of(self, message: Message) -> float:
        """Measure once more what a message costs before it is spoilt."""
        self.bases.pop(message.method or "unasked", None)
        return await self.base_of(message)

    async def bring(self, case: Case, base: float, new_base: NewBase | None = None) -> bool:
        """Bring a case, and judge it by its cost and by what the call raised. Return whether it can be tried again."""
        judge, target = self.judge, self.target
        calls = 0

        async def run(number: int) -> Any:
            nonlocal calls
            calls += 1
            cost = await target.run(case, number)
            if calls == 1:
                if not target.in_time:
                    judge.found(target.name, case.name, "the call did not end in time")
                if target.strange:
                    judge.found(target.name, case.name, f"the call raised {target.strange}")
            return cost

        cost = await judge.judge(target.name, case.name, base, run, new_base)
        return cost.cpu < HOPELESS

    async def keeps(self, case: Case) -> None:
        """See what a case leaves behind."""

        async def run(number: int) -> Any:
            return await self.target.run(case, number)

        beside = SESSION if case.method in ("initialize", "server/discover") else 0
        await self.judge.judge_kept(self.target.name, case.name, beside, run)


async def try_client(judge: Judge, target: ClientTarget) -> None:
    """Bring cases to a client; every tenth is also looked at for what it leaves behind."""
    trial = ClientTrial(judge, target)
    messages = hostile_answers(target.era)
    if target.kind != "http":
        messages += [message._replace(method="") for message in to_client()]
    began = time.monotonic()
    try:
        for number, (message, case) in enumerate(slice_of(messages, random.Random(f"{target.name} {SEED}"))):
            if not goes_on(number, began):
                break
            base = await trial.base_of(message)
            await trial.bring(case, base, partial(trial.new_base_of, message))
            if number % 10 == 0:
                await trial.keeps(case)
    finally:
        await target.stop()


@pytest.mark.parametrize("wire", WIRES)
def test_the_first_input_is_answered_also_where_it_cannot_be_read(wire: str) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        trial = Trial(judge, WIRES[wire](loop, new_server(), NEWEST))
        await trial.start()
        try:
            ping = trial.target.ping_case()
            await trial.bring(ping._replace(frame=ping.frame[:-1]), 1.0)
        finally:
            await trial.target.stop()

    agree(judged(work))


@pytest.mark.parametrize("wire", WIRES)
def test_a_call_that_stands_holds_up_no_other_input(wire: str) -> None:
    """Over HTTP nobody is answered behind such a call: its connection is left before the next input."""
    messages = {message.name: message for message in to_server(stateless=True)}
    standing = plain(messages["subscriptions/listen short"])
    usual = plain(messages["tasks/get short"])
    assert standing.standing
    assert not usual.standing

    async def work(judge: Judge, loop: WireLoop) -> None:
        trial = Trial(judge, WIRES[wire](loop, new_server(), NEWEST))
        await trial.start()
        try:
            for leave_standing in (trial.keeps(standing), trial.least(standing, 2), trial.bring(standing, 1.0)):
                await leave_standing
                await trial.bring(usual, 1.0)
        finally:
            await trial.target.stop()

    agree(judged(work))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("wire", URLS)
def test_a_hostile_server_costs_what_it_sends(wire: str, era: str) -> None:
    """BUD-23."""

    async def work(judge: Judge, loop: WireLoop) -> None:
        await try_client(judge, ClientTarget(loop, wire, era))

    agree(judged(work))


@pytest.mark.parametrize("version", TWO_ERAS)
@pytest.mark.parametrize("wire", WIRES)
def test_what_was_found_once_is_not_found_again(wire: str, version: str) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        for tools in (0, 1000):
            target = WIRES[wire](loop, new_server(tools), version)
            trial = Trial(judge, target)
            await trial.start()
            try:
                for each in CORPUS.values():
                    if wire in each.wires and each.tools == tools:
                        case = each.make(target.modern)._replace(name=each.name)
                        bearable = await trial.bring(case, trial.bases["ping"])
                        if bearable and (LONG or each.kept):
                            await trial.keeps(case)
            finally:
                await target.stop()

    agree(judged(work))


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize("wire", URLS)
def test_what_a_client_was_found_to_suffer_from_is_not_found_again(wire: str, era: str) -> None:
    async def work(judge: Judge, loop: WireLoop) -> None:
        target = ClientTarget(loop, wire, era)
        trial = ClientTrial(judge, target)
        answers = {message.method: message for message in hostile_answers(era)}
        try:
            for name, case in CLIENT_CORPUS.items():
                message = answers.get(case.method)
                if (case.method and message is None) or (not case.method and wire == "http"):
                    continue
                base = await trial.base_of(message or Message("unasked", {}))
                await trial.bring(case._replace(name=name), base)
        finally:
            await target.stop()

    agree(judged(work))
