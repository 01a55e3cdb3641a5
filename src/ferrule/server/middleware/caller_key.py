"""Who asks and for what, in the words by which layers count and keep."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Collection, Hashable
from typing import Any

from ferrule.errors import SetupError
from ferrule.protocol.call import Call
from ferrule.runtime.sessionless import SessionlessLink

Key = Callable[[Call], Hashable]

LONGEST_TARGET = 1024
"""Characters of a name or a URI by which calls are counted: layers keep thousands of them."""

_numbers = itertools.count(1)
_sessions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()


def target(call: Call) -> str:
    """Return the name of the tool or prompt, the URI of the resource, or nothing."""
    params: Any = call.params
    return str(getattr(params, "name", None) or getattr(params, "uri", None) or "")[:LONGEST_TARGET]


def caller(call: Call) -> tuple[str, Hashable]:
    """Return who asks, as well as it is known: the principal, else the session, else the address."""
    if call.origin.principal is not None:
        return "principal", call.origin.principal
    if isinstance(call.link, SessionlessLink):
        return "address", call.origin.address
    return "session", _number(call)


def _number(call: Call) -> int:
    """Return the number of a session; unlike its address in memory, no later session ever gets it."""
    number = _sessions.get(call.link)
    if number is None:
        number = _sessions[call.link] = next(_numbers)
    return number


def _session(call: Call) -> Hashable:
    if isinstance(call.link, SessionlessLink):
        return caller(call)
    return ("session", _number(call))


KEYS: dict[str, Key] = {
    "principal": caller,
    "session": _session,
    "tool": lambda call: (call.method, target(call)),
    "server": lambda call: None,
}
"""What can be counted by name."""


def methods_of(methods: Collection[str], who: str) -> frozenset[str]:
    """Return the methods a layer looks at; a text alone would be taken for a set of letters."""
    if isinstance(methods, str):
        raise SetupError(f"{who}: methods must be a set of names, not the text {methods!r}: write [{methods!r}]")
    return frozenset(methods)


def key_of(by: str | Key, who: str) -> Key:
    """Return the function that says to which count a call belongs."""
    if callable(by):
        return by
    if by not in KEYS:
        raise SetupError(f"{who}: by must be a function of the call, or one of {', '.join(KEYS)}, not {by!r}")
    return KEYS[by]
