"""Reading a result that asks for input."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from ferrule.errors import InvalidAnswer
from ferrule.schema.rounds import COMPLETE, INPUT_REQUIRED, InputRequired
from ferrule.schema.tasks import TASK

_read_round = msgspec.json.Decoder(InputRequired).decode


def input_required(raw: Raw) -> InputRequired | None:
    """Give what a result asks for, None when it is complete or a task; raises InvalidAnswer for one that is neither."""
    try:
        asked = _read_round(raw)
    except msgspec.DecodeError as reason:
        raise InvalidAnswer(f"the server's request for input is malformed: {reason}") from None
    if asked.result_type in (None, COMPLETE, TASK):
        return None
    if asked.result_type != INPUT_REQUIRED:
        raise InvalidAnswer(f"the server answered with an unknown kind of result: {asked.result_type!r}")
    if not asked.input_requests and asked.request_state is None:
        raise InvalidAnswer("the server's request for input does not say which")
    return asked
