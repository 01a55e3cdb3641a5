"""The id of a frame that is no message we can read, so that whoever waits for an answer is told instead of waiting.

Rule 1: nothing else is taken from such a frame; what it asks or says is never acted on.
Rule 2: a frame that is no JSON by any reading has no id: NaN, half a surrogate pair or bytes that are no UTF-8 inside
a value are forgiven here, a missing brace is not.
Rule 3: of a long frame, or one nested too deeply, only the members that stand ahead are looked at. The same holds for
one that is no JSON but opens many brackets: whether its fault or the end of the stack is met first decides nothing.
Rule 4: an id over its bound is none.
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from ferrule.budgets.weight import nests_too_deep
from ferrule.wire.messages import HEAD_SIZE, Id, is_long

MAX_READ_AGAIN = 16 * 1024
MAX_BRACKETS = 500
"""How many brackets a frame may open that is surely not nested too deeply."""

MEMBER = re.compile(rb'(?:^\s*\{|(?!^)\s*,)\s*("[^"\\]*")\s*:\s*(?:("(?:[^"\\]|\\.)*"|-?[0-9]+)(?=\s*[,}]))?')
"""A member of the outermost object: its name, and its value if that is a string or a whole number and ends here."""


class Rescued(Struct, frozen=True):
    """What is known of a message that cannot be read."""

    id: Id | UnsetType = UNSET
    response: bool = False
    """Whether it is meant as a response: then the id is one of ours."""
    nearly_json: bool = False
    """Whether it is JSON but for a value that has no form in it."""


def rescue(frame: bytes) -> Rescued:
    """Find the id of a frame that cannot be read."""
    if len(frame) > MAX_READ_AGAIN or nests_too_deep(frame):
        return rescue_from_head(frame)
    try:
        # Bytes that are no UTF-8 become surrogates, and an id with one of those is none.
        members = json.loads(frame.decode(errors="surrogateescape"))
    except RecursionError:
        return rescue_from_head(frame)
    except ValueError:
        if frame.count(b"[") + frame.count(b"{") > MAX_BRACKETS:
            return rescue_from_head(frame)
        return Rescued()
    if isinstance(members, dict):
        return _rescued(members, nearly_json=True)
    return Rescued()


def rescue_from_head(frame: bytes) -> Rescued:
    """Find the id where it stands ahead of everything long."""
    head = frame[:HEAD_SIZE]
    members: dict[str, object] = {}
    position = 0
    while (member := MEMBER.match(head, position)) is not None:
        name, value = member.groups()
        try:
            if value is None:
                members[json.loads(name)] = None
            else:
                members[json.loads(name)] = json.loads(value)
        except ValueError:
            break
        if value is None:
            break
        position = member.end()
    return _rescued(members)


def _rescued(members: dict[str, object], *, nearly_json: bool = False) -> Rescued:
    response = "method" not in members and ("result" in members or "error" in members)
    identity: Any = members.get("id")
    return Rescued(identity if _is_id(identity) else UNSET, response, nearly_json)


def _is_id(value: object) -> bool:
    if isinstance(value, str):
        if is_long(value):
            return False
        try:
            value.encode()
        except UnicodeEncodeError:
            return False
        return True
    return isinstance(value, int) and not isinstance(value, bool) and not is_long(value)
