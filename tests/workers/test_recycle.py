"""Workers that are old or hold much memory are replaced, and no call is lost."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
from worker_program import Load, Program, until

from ferrule import Client
from ferrule.errors import SetupError
from ferrule.server.settings import read_run_settings
from ferrule.workers.recycle import MIB, RecycleRule

Start = Callable[..., Program]


def test_the_rule_of_age_and_memory() -> None:
    old = RecycleRule(max_age=100.0)
    assert old.reason(79.9, 0, 0, chance=1.0) == ""
    assert "80 s old" in old.reason(80.0, 0, 0, chance=1.0)
    assert old.reason(99.9, 0, 0, chance=0.0) == ""
    large = RecycleRule(max_memory=100 * MIB)
    assert large.reason(50.0, 100 * MIB, 1, chance=0.5) == ""
    assert "101 MiB" in large.reason(50.0, 101 * MIB, 1, chance=0.5)
    # However fast it grows, and where a successor would hold as much, it stays.
    assert large.reason(1.9, 101 * MIB, 1, chance=0.5) == ""
    assert large.reason(50.0, 102 * MIB, 101 * MIB, chance=0.5) == ""
    assert large.begins_above(101 * MIB)
    assert RecycleRule().reason(1e9, 2**60, 0, chance=1.0) == ""


def test_the_options_are_bounded_and_need_workers() -> None:
    assert read_run_settings({"workers": 2, "worker_max_age": 60, "worker_max_memory": MIB}).worker_max_age == 60
    ages = ({"worker_max_age": 0.5}, {"worker_max_age": 1e12}, {"worker_ready_timeout": 0.5})
    for wrong in (*ages, {"worker_max_memory": 1}):
        with pytest.raises(SetupError, match=next(iter(wrong))):
            read_run_settings({"workers": 2, **wrong})
    with pytest.raises(SetupError, match="set workers too"):
        read_run_settings({"worker_max_age": 60})


@pytest.mark.parametrize(
    ("options", "grown", "reason"),
    [({"worker_max_age": 2}, 0, "s old"), ({"worker_max_memory": 150 * MIB}, 150, "MiB of memory, more than 150")],
    ids=["by age", "by memory"],
)
async def test_workers_are_replaced_without_a_lost_call(
    program: Start, options: dict[str, object], grown: int, reason: str
) -> None:
    """CRA-07: why a worker was replaced is in the log."""
    one = program(2, **options)
    async with Client(one.url, mode="handshake") as client:
        load = Load(one.url)
        before = (await client.call_tool("grow", {"mebibytes": grown})).data
        await until(lambda: before not in one.workers)
        await load.goes_on()
        await load.end()
        assert load.failed == []
        # Its session has moved.
        assert (await client.call_tool("worker")).data != before
    one.signal(signal.SIGTERM)
    code, said = one.end()
    assert code == 0
    assert reason in said
