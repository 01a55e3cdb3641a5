"""Ferrule's own parts in this process, beside the figures the seeds publish for an Erlang system.

The seeds' figures cross process mailboxes on another machine; ours are calls on one thread. They are read side by
side, not like for like. Throughput is CPU time of this thread, the best of several runs; percentiles are of single
operations, each timed by itself, with the clock's own cost in them (`clock_us`).

The first four parts are the seeds': registry, queue, pool and session. A workload has so many operations of each part,
dealt out to so many workers: names in a registry, principals in a queue, tasks at a pool, sessions.
"""

from __future__ import annotations

import asyncio
import gc
import inspect
import itertools
import os
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from bench.figures import percentiles
from bench.machine import environment, resident_mib

Op = Callable[[], Any]
"""An operation; one that is a coroutine function is run by all workers at once."""
RUNS = 5


@dataclass(frozen=True)
class Workload:
    """How many operations of each part are done, and by how many workers."""

    operations: int
    workers: int


WORKLOADS = {
    "core_ops_1k": Workload(1_000, 1),
    "core_ops_10k": Workload(10_000, 10),
    "core_ops_100k": Workload(100_000, 100),
    "core_ops_1m": Workload(1_000_000, 100),
}
SUSTAINED = "core_ops_sustained"
"""The seeds' four parts in turn, for `SUSTAINED_SECONDS`."""
SUSTAINED_SECONDS = 30.0
SUSTAINED_TURN = 1000
"""Operations of one part before the next has its turn."""
SEED_SUSTAINED = 372_000
"""Operations per second that the seeds sustained for so long."""
SEED_TOGETHER = 2_690_000
"""Operations per second of the seeds' four parts together."""
CORE = ("registry", "queue", "pool", "session")

CALL_FRAME = b'{"jsonrpc":"2.0","id":1001,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":40}}}'


@dataclass(frozen=True)
class Part:
    """One part of Ferrule: how to make an operation of it, and the figure it is read beside."""

    name: str
    seed: str
    published: int | None
    """The seeds' figure per second; None where they publish none."""
    build: Callable[[int], Op]
    """Takes the number of workers."""
    is_floor: bool = True
    """Whether the published figure is asked of us too."""


def routing(workers: int) -> Op:
    """Find an entry by its name, and hand a message of a transport to the server it is bound to."""
    from ferrule.registry.local import LocalRegistry

    registry = LocalRegistry()
    registry.register("server", "bench", lambda transport, data: None)
    names = [f"transport-{number}" for number in range(workers)]
    for name in names:
        registry.register("transport", name, object())
        registry.bind(name, "bench")
    next_name = itertools.cycle(names).__next__

    def find_and_route() -> object:
        name = next_name()
        registry.find("transport", name)
        return _result_of(registry.route(name, CALL_FRAME))

    return find_and_route


def queueing(workers: int) -> Op:
    """Let a call wait in the fair queue of a bulkhead that is full, and admit it when another has ended."""
    from ferrule.balancing.bulkhead import Bulkhead, BulkheadSettings

    bulkhead = Bulkhead(BulkheadSettings(in_flight=1, queue=1000, share=1.0))
    next_principal = itertools.cycle(range(workers)).__next__
    running = bulkhead.enter(next_principal(), 0.0)

    def wait_and_leave() -> object:
        nonlocal running
        waiting = bulkhead.enter(next_principal(), 0.0)
        running = bulkhead.leave(running, 0.0)
        if running is not waiting:
            raise RuntimeError("the queue admitted another call than the one that waited")
        return running

    return wait_and_leave


def borrowing(workers: int) -> Op:
    """Borrow a connection of a pool that has one for every two workers, and give it back."""
    from ferrule.routing.pool import Pool, PoolSettings

    size = max(1, workers // 2)
    pools: dict[asyncio.AbstractEventLoop, Any] = {}

    async def opened() -> object:
        return object()

    async def closed(connection: object) -> None:
        """Nothing to close."""

    async def healthy(connection: object) -> bool:
        return True

    async def borrow() -> None:
        loop = asyncio.get_running_loop()
        pool = pools.get(loop)
        if pool is None:
            pool = pools[loop] = Pool(opened, closed, healthy, PoolSettings(min_size=0, max_size=size))
        async with pool.connection():
            pass

    return borrow


def decoding(workers: int) -> Op:
    """Read a tools/call frame."""
    from ferrule.wire.codec import decode

    return lambda: decode(CALL_FRAME)


def encoding(workers: int) -> Op:
    """Write the answer to a tools/call."""
    from ferrule.schema.content import TextContent
    from ferrule.schema.tools import CallToolResult
    from ferrule.wire.codec import encode
    from ferrule.wire.messages import Success

    answer = Success(1001, CallToolResult(content=[TextContent(text="42")], structured_content={"result": 42}))
    return lambda: encode(answer)


def tracking(workers: int) -> Op:
    """Return a request of ours its id, then find it again by its answer."""
    from ferrule.protocol.era import Eras
    from ferrule.protocol.handshake import Handshake
    from ferrule.protocol.session import Session
    from ferrule.schema.methods import METHODS
    from ferrule.wire.channel import Origin
    from ferrule.wire.messages import Success

    sessions = []
    for _ in range(workers):
        sessions.append(Session(Eras(Handshake(), Handshake()), METHODS, Origin("bench"), None))
    next_session = itertools.cycle(sessions).__next__

    def start_and_finish() -> object:
        session = next_session()
        awaited = session.expect("tools/call", None, 0.0)
        return session.receive(Success(awaited.id, None), None)

    return start_and_finish


def validating(workers: int) -> Op:
    """Check a call's arguments against a compiled JSON Schema."""
    from ferrule.validation.checker import given_schema

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    _, checker = given_schema(schema, "bench")
    arguments = {"a": 2, "b": 40}
    return lambda: checker.accepts(arguments)


def reading(workers: int) -> Op:
    """Read one of a thousand resources through its handler."""
    from ferrule import Server

    app = Server("bench")

    async def entry() -> str:
        return "The text of an entry."

    uris = [f"catalogue://entries/{number}" for number in range(1000)]
    for uri in uris:
        app.add_resource(uri, entry)
    next_uri = itertools.cycle(uris).__next__
    return lambda: _result_of(app.read_resource(next_uri()))


def notifying(workers: int) -> Op:
    """Tell the one subscriber of one of a thousand resources, up to the encoded frame."""
    from ferrule.server.notifications.subscriptions import Subscriber, Subscriptions
    from ferrule.wire.channel import ChannelDefaults
    from ferrule.wire.codec import encode

    class Frames(ChannelDefaults):
        def send(self, message: object) -> None:
            encode(message)

    subscriptions = Subscriptions()
    uris = [f"catalogue://entries/{number}" for number in range(1000)]
    for uri in uris:
        subscriptions.add(Subscriber(Frames(), uris=(uri,)))
    next_uri = itertools.cycle(uris).__next__
    return lambda: subscriptions.updated(next_uri(), {})


def checking(_: int) -> Op:
    """Ask a closed breaker whether a call may be sent, and tell it that it went well."""
    from ferrule.balancing.breaker import Breaker

    breaker = Breaker()

    def allow_and_settle() -> object:
        return breaker.allow(0.0) and breaker.ok(0.0)

    return allow_and_settle


def picking(_: int) -> Op:
    """Pick the least loaded of three targets."""
    from ferrule.balancing.policy import Target, policy_named

    policy = policy_named("least_loaded")
    targets = [Target(name, latency=number / 1000) for number, name in enumerate("abc")]
    return lambda: policy.pick(targets, None, random.random)


def _result_of(work: Coroutine[object, object, object]) -> object:
    """Run a coroutine that never has to wait."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value
    raise RuntimeError("the operation waited for something")


PARTS = (
    Part("registry", "PERF-01", 553_000, routing),
    # The seeds' queue is first in, first out; ours is fair among principals, and knows shares and deadlines.
    Part("queue", "PERF-02", 971_000, queueing, is_floor=False),
    Part("pool", "PERF-11", None, borrowing, is_floor=False),
    Part("session", "PERF-07", 553_000, tracking),
    Part("decode a message", "PERF-05", 1_000_000, decoding),
    Part("encode a message", "PERF-05", 1_000_000, encoding),
    Part("validate arguments", "PERF-06", 500_000, validating),
    Part("read a resource", "PERF-08", 242_000, reading),
    Part("notify a subscriber", "PERF-09", 100_000, notifying),
    Part("check a breaker", "ROUT-04", 1_000_000, checking),
    Part("pick a target", "ROUT-02", 500_000, picking),
)


def _run(op: Op, count: int, workers: int = 1) -> float:
    """Return the CPU seconds of so many operations."""
    before = time.thread_time_ns()
    if inspect.iscoroutinefunction(op):
        asyncio.run(_deal(op, count, workers))
    else:
        for _ in itertools.repeat(None, count):
            op()
    return (time.thread_time_ns() - before) / 1e9


async def _deal(op: Callable[[], Awaitable[object]], count: int, workers: int) -> None:
    """Let the workers do so many operations, all at once."""

    async def work(share: int) -> None:
        for _ in itertools.repeat(None, share):
            await op()

    shares = [count // workers + (number < count % workers) for number in range(workers)]
    await asyncio.gather(*map(work, shares))


def _each(op: Op, count: int, workers: int = 1) -> list[float]:
    """Time every operation by itself, in µs, fastest first."""
    clock = time.perf_counter_ns
    took: list[float] = []
    if inspect.iscoroutinefunction(op):

        async def timed() -> None:
            before = clock()
            await op()
            took.append((clock() - before) / 1e3)

        asyncio.run(_deal(timed, count, workers))
    else:
        for _ in itertools.repeat(None, count):
            before = clock()
            op()
            took.append((clock() - before) / 1e3)
    return sorted(took)


def measure_part(part: Part, operations: int, workers: int) -> dict:
    """Measure one part."""
    op = part.build(workers)
    _run(op, min(operations, 1_000), workers)
    gc.collect()
    best = min(_run(op, operations, workers) for _ in range(RUNS))
    took = _each(op, operations, workers)
    return {
        "seed": part.seed,
        "seed_per_s": part.published,
        "operations": operations,
        "throughput_msg_per_s": round(operations / best, 1),
        **{f"latency_{name}": value for name, value in percentiles(took).items()},
        "latency_min_us": round(took[0], 3),
        "latency_max_us": round(took[-1], 3),
        "latency_avg_us": round(sum(took) / operations, 3),
    }


def run_workload(workload: str) -> dict:
    """Measure every part that exists; gives the record in the seeds' shape."""
    load = WORKLOADS[workload]
    memory_before = resident_mib(os.getpid())
    wall_before, cpu_before = time.perf_counter(), time.process_time()
    components, left_out = {}, {}
    for part in PARTS:
        try:
            components[part.name] = measure_part(part, load.operations, load.workers)
        except Exception as error:
            left_out[part.name] = f"{type(error).__name__}: {error}"
    wall, cpu = time.perf_counter() - wall_before, time.process_time() - cpu_before
    memory_after = resident_mib(os.getpid())
    core = [components[name] for name in CORE if name in components]
    done = [component["operations"] / component["throughput_msg_per_s"] for component in core]
    total = sum(component["operations"] for component in core)
    return {
        "workload_id": workload,
        "benchmark": "core_operations",
        "timestamp": int(time.time()),
        "environment": environment(),
        "operations": total,
        "workers": load.workers,
        "duration_s": round(sum(done), 4),
        "throughput_msg_per_s": round(total / sum(done), 1) if done else 0.0,
        "seed_per_s": SEED_TOGETHER,
        **_whole_latency(components),
        "clock_us": percentiles(_each(lambda: None, 10_000))["p50_us"],
        "precision": "nanosecond",
        "memory_start_mib": memory_before,
        "memory_end_mib": memory_after,
        "memory_delta_mib": round(memory_after - memory_before, 1),
        "cpu_percent_avg": round(cpu / wall * 100, 1),
        "scope": "per_node",
        "components": components,
        "left_out": left_out,
    }


def _whole_latency(components: dict[str, dict]) -> dict[str, float]:
    """Return the slowest part's percentiles for the whole: no operation of the workload is typically slower."""
    names = ("latency_p50_us", "latency_p95_us", "latency_p99_us")
    return {name: max((component[name] for component in components.values()), default=0.0) for name in names}


def run_sustained(seconds: float = SUSTAINED_SECONDS, workers: int = 100) -> dict:
    """Do operations of the four parts in turn for so long; returns how many, and how many a second at the end."""
    parts = [part for part in PARTS if part.name in CORE]
    ops = [part.build(workers) for part in parts]
    memory_before = resident_mib(os.getpid())
    began, cpu_before = time.perf_counter(), time.process_time()
    until = began + seconds
    operations = 0
    rates = []
    while (now := time.perf_counter()) < until:
        for op in ops:
            _run(op, SUSTAINED_TURN, workers)
        operations += SUSTAINED_TURN * len(ops)
        rates.append(SUSTAINED_TURN * len(ops) / (time.perf_counter() - now))
    wall, cpu = time.perf_counter() - began, time.process_time() - cpu_before
    memory_after = resident_mib(os.getpid())
    last = rates[-max(1, len(rates) // 10) :]
    return {
        "workload_id": SUSTAINED,
        "benchmark": "core_operations",
        "timestamp": int(time.time()),
        "environment": environment(),
        "operations": operations,
        "workers": workers,
        "duration_s": round(wall, 2),
        "throughput_msg_per_s": round(operations / wall, 1),
        "last_tenth_msg_per_s": round(sum(last) / len(last), 1),
        "seed_per_s": SEED_SUSTAINED,
        "memory_start_mib": memory_before,
        "memory_end_mib": memory_after,
        "memory_delta_mib": round(memory_after - memory_before, 1),
        "cpu_percent_avg": round(cpu / wall * 100, 1),
        "scope": "per_node",
    }
