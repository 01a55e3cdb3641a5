"""Whether a history of operations on one session could have happened one after another (Wing and Gong, 1993)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Operation:
    """What one client did, from when to when, and what it was told; `result` is None where it was told nothing."""

    name: str
    argument: Any
    result: Any
    began: float
    ended: float
    is_known: bool = True


State = tuple[str, int, str] | None
"""The owner, the epoch and the content of a session; None where there is none."""


def applied(state: State, operation: Operation) -> tuple[State, Any]:
    """Return the state after an operation, and what it would tell."""
    if operation.name == "get":
        return state, state
    if operation.name == "create":
        if state is not None:
            return state, False
        return (operation.argument, 1, ""), True
    if operation.name == "delete":
        return None, True
    if operation.name == "claim":
        if state is None:
            return None, 0
        return (operation.argument, state[1] + 1, state[2]), state[1] + 1
    owner, epoch, content = operation.argument
    if state is None or state[:2] != (owner, epoch):
        return state, False
    return (owner, epoch, content), True


def is_linearizable(history: list[Operation]) -> bool:
    """Return whether there is an order of the operations that keeps their times and explains what each was told.

    An operation without an answer may have happened at any time after it began, or not at all.
    """
    ordered = sorted(history, key=lambda operation: operation.began)
    whole = (1 << len(ordered)) - 1
    unknown = 0
    for position, operation in enumerate(ordered):
        if not operation.is_known:
            unknown |= 1 << position
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done | unknown == whole:
            return True
        if (done, state) in seen:
            continue
        seen.add((done, state))
        left = [position for position in range(len(ordered)) if not done >> position & 1]
        # Only what began before the first of the rest has ended can be next.
        first_end = min(ordered[position].ended for position in left if ordered[position].is_known)
        for position in left:
            operation = ordered[position]
            if operation.began > first_end:
                break
            following, told = applied(state, operation)
            if not operation.is_known or told == operation.result:
                stack.append((done | 1 << position, following))
    return False
