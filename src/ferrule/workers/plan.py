"""What an overseer tells a worker: over a pipe, never in arguments or the environment, for it holds secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from ferrule.errors import SetupError

LONGEST_PLAN = 1024 * 1024
PULSE = 1.0
"""How many seconds lie between two signs of life."""
READY, ALIVE, FAILED, GRACE = b"r", b".", b"f", b"g"
"""How the lines begin that a worker says to its overseer: that it serves, and where; that it lives, and how many bytes
of memory it holds; why it cannot begin; how many seconds it may take to end."""
LONGEST_LINE = 2048
"""Bytes of such a line: a pipe takes so many at once."""
LEAVE = b"l"
"""What an overseer says to a worker: another has taken your place, leave it what you have and end."""

_encode = msgspec.msgpack.Encoder().encode


class WorkerPlan(Struct, frozen=True, kw_only=True):
    """What one worker is and does."""

    slot: int
    count: int
    """How many workers there are."""
    folder: str
    """Where workers find each other."""
    places: list[str]
    """The files or modules of the server, each with its name."""
    configuration: str = ""
    """The `ferrule.toml` that holds; empty where there is none."""
    arguments: list[str] = []
    """Those of the files."""
    transport: str
    options: dict[str, Any]
    listening: list[int]
    """The descriptors of the listening sockets."""
    status: int
    """The descriptor to say READY and ALIVE on."""
    succeeds: bool = False
    """Whether another worker has the slot still, and leaves it what it has."""
    request_state_keys: list[bytes]
    """The secrets that all workers share, where the server has none of its own."""


def say(status: int, sign: bytes, told: str) -> None:
    """Say a line to the overseer."""
    line = (sign + told.encode()).replace(b"\n", b" ")[:LONGEST_LINE]
    with suppress(OSError):  # an overseer that is gone is noticed elsewhere
        os.write(status, line + b"\n")


def write_plan(plan: WorkerPlan) -> bytes:
    """Return a plan as bytes; raises SetupError for options that cannot go to another process."""
    try:
        return _encode(plan)
    except (TypeError, msgspec.EncodeError) as reason:
        raise SetupError(f"workers are other processes, and an option cannot go there: {reason}") from None


def read_plan(descriptor: int) -> WorkerPlan:
    """Read a plan; its length stands before it.

    What a worker was given is its own: a process that a tool starts would else keep the port after the server's end.
    """
    with os.fdopen(os.dup(descriptor), "rb", buffering=0) as pipe:
        size = int.from_bytes(_exactly(pipe, 4), "big")
        if size > LONGEST_PLAN:
            raise SetupError("the plan of a worker is too long")
        plan = msgspec.msgpack.decode(_exactly(pipe, size), type=WorkerPlan)
    for number in (descriptor, plan.status, *plan.listening):
        os.set_inheritable(number, False)
    return plan


def _exactly(pipe: Any, size: int) -> bytes:
    found = b""
    while len(found) < size:
        piece = pipe.read(size - len(found))
        if not piece:
            raise SetupError("the overseer has ended before its worker began")
        found += piece
    return found
