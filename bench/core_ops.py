"""Ferrule's own parts in this process, beside the figures the seeds publish for an Erlang system.

The seeds' figures cross process mailboxes on another machine; ours are calls on one thread. They are read side by
side, not like for like. Throughput is CPU time of this thread, the best of several runs; percentiles are of single
operations, each timed by itself, with the clock's own cost in them (`clock_us`).
"""

from __future__ import annotations

import gc
import itertools
import os
import random
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from bench.figures import percentiles
from bench.machine import environment, resident_mib

Op = Callable[[], object]
RUNS = 5

WORKLOADS = {"core_ops_1k": 1_000, "core_ops_10k": 10_000, "core_ops_100k": 100_000, "core_ops_1m": 1_000_000}
"""How many operations of each part a workload does."""

CALL_FRAME = b'{"jsonrpc":"2.0","id":1001,"method":"tools/call","params":{"name":"add","arguments":{"a":2,"b":40}}}'


@dataclass(frozen=True)
class Part:
    """One part of Ferrule: how to make an operation of it, and the seeds' figure per second."""

    name: str
    seed: str
    floor: int
    build: Callable[[], Op]


def decoding() -> Op:
    """Read a tools/call frame."""
    from ferrule.wire.codec import decode

    return lambda: decode(CALL_FRAME)


def encoding() -> Op:
    """Write the answer to a tools/call."""
    from ferrule.schema.content import TextContent
    from ferrule.schema.tools import CallToolResult
    from ferrule.wire.codec import encode
    from ferrule.wire.messages import Success

    answer = Success(1001, CallToolResult(content=[TextContent(text="42")], structured_content={"result": 42}))
    return lambda: encode(answer)


def tracking() -> Op:
    """Return a request of ours its id, then find it again by its answer."""
    from ferrule.protocol.era import Eras
    from ferrule.protocol.handshake import Handshake
    from ferrule.protocol.session import Session
    from ferrule.schema.methods import METHODS
    from ferrule.wire.channel import Origin
    from ferrule.wire.messages import Success

    session = Session(Eras(Handshake(), Handshake()), METHODS, Origin("bench"), None)

    def start_and_finish() -> object:
        awaited = session.expect("tools/call", None, 0.0)
        return session.receive(Success(awaited.id, None), None)

    return start_and_finish


def validating() -> Op:
    """Check a call's arguments against a compiled JSON Schema."""
    from ferrule.validation.checker import given_schema

    number = {"type": "integer"}
    schema = {"type": "object", "properties": {"a": number, "b": number}, "required": ["a", "b"]}
    _, checker = given_schema(schema, "bench")
    arguments = {"a": 2, "b": 40}
    return lambda: checker.accepts(arguments)


def reading() -> Op:
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


def notifying() -> Op:
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


def checking() -> Op:
    """Ask a closed breaker whether a call may be sent, and tell it that it went well."""
    from ferrule.balancing.breaker import Breaker

    breaker = Breaker()

    def allow_and_settle() -> object:
        return breaker.allow(0.0) and breaker.ok(0.0)

    return allow_and_settle


def picking() -> Op:
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
    Part("decode a message", "PERF-05", 1_000_000, decoding),
    Part("encode a message", "PERF-05", 1_000_000, encoding),
    Part("validate arguments", "PERF-06", 500_000, validating),
    Part("track a request", "PERF-07", 553_000, tracking),
    Part("read a resource", "PERF-08", 242_000, reading),
    Part("notify a subscriber", "PERF-09", 100_000, notifying),
    Part("check a breaker", "ROUT-04", 1_000_000, checking),
    Part("pick a target", "ROUT-02", 500_000, picking),
)


def _run(op: Op, count: int) -> float:
    """Tell the CPU seconds of so many operations."""
    turns = itertools.repeat(None, count)
    before = time.thread_time_ns()
    for _ in turns:
        op()
    return (time.thread_time_ns() - before) / 1e9


def _each(op: Op, count: int) -> list[float]:
    """Time every operation by itself, in µs, fastest first."""
    clock = time.perf_counter_ns
    took = []
    for _ in itertools.repeat(None, count):
        before = clock()
        op()
        took.append(clock() - before)
    took.sort()
    return [nanoseconds / 1e3 for nanoseconds in took]


def measure_part(part: Part, operations: int) -> dict:
    """Measure one part."""
    op = part.build()
    _run(op, min(operations, 1_000))
    gc.collect()
    best = min(_run(op, operations) for _ in range(RUNS))
    took = _each(op, operations)
    return {
        "seed": part.seed,
        "seed_per_s": part.floor,
        "operations": operations,
        "throughput_msg_per_s": round(operations / best, 1),
        **{f"latency_{name}": value for name, value in percentiles(took).items()},
        "latency_min_us": round(took[0], 3),
        "latency_max_us": round(took[-1], 3),
        "latency_avg_us": round(sum(took) / operations, 3),
    }


def run_workload(workload: str) -> dict:
    """Measure every part that exists; gives the record in the seeds' shape."""
    operations = WORKLOADS[workload]
    memory_before = resident_mib(os.getpid())
    wall_before, cpu_before = time.perf_counter(), time.process_time()
    components, left_out = {}, {}
    for part in PARTS:
        try:
            components[part.name] = measure_part(part, operations)
        except Exception as error:
            left_out[part.name] = f"{type(error).__name__}: {error}"
    wall, cpu = time.perf_counter() - wall_before, time.process_time() - cpu_before
    memory_after = resident_mib(os.getpid())
    done = [component["operations"] / component["throughput_msg_per_s"] for component in components.values()]
    total = sum(component["operations"] for component in components.values())
    return {
        "workload_id": workload,
        "benchmark": "core_operations",
        "timestamp": int(time.time()),
        "environment": environment(),
        "operations": total,
        "workers": 1,
        "duration_s": round(sum(done), 4),
        "throughput_msg_per_s": round(total / sum(done), 1) if done else 0.0,
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
