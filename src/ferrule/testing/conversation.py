"""Real conversations, kept in a file and played again: a client's tests without its server.

Rule 1: a request is answered as it was when it was recorded. What makes one request like another is its method and
its params, without `_meta`, which names the moment and not the question.
Rule 2: of several requests that are alike, the first gets the first answer, and the last answer serves for the rest.
Rule 3: what the server said before an answer, as progress, comes again before that answer.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ferrule.codes import ErrorCode
from ferrule.errors import SetupError
from ferrule.testing.recorder import Recorded
from ferrule.wire.channel import Channel, ChannelDefaults, Receiver, Traits
from ferrule.wire.codec import encode
from ferrule.wire.messages import Message

_read_line = msgspec.json.Decoder(Recorded).decode


def write_conversation(path: str | os.PathLike[str], messages: Iterable[Recorded]) -> None:
    """Write what a `Recorder` has heard, one JSON line a message; frames that are no JSON are left out."""
    lines: list[bytes] = []
    for recorded in messages:
        if not isinstance(recorded.message, bytes):
            lines.append(msgspec.json.encode(recorded))
    Path(path).write_bytes(b"".join(line + b"\n" for line in lines))


def read_conversation(path: str | os.PathLike[str]) -> list[Recorded]:
    """Read a conversation from its file; raise SetupError, with the line, for one that cannot be read."""
    try:
        lines = Path(path).read_bytes().splitlines()
    except OSError as reason:
        raise SetupError(f"cannot read {path}: {reason.strerror}") from None
    found: list[Recorded] = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_read_line(line))
        except (msgspec.DecodeError, RecursionError) as reason:
            raise SetupError(f"{path}:{number} is no message of a conversation: {reason}") from None
    return found


def _parts(message: Any) -> list[Any]:
    """Return the messages of a batch, or the only one."""
    if isinstance(message, list):
        return message
    return [message]


class Answer:
    """What a server said to one request: notifications and requests of its own, then the response."""

    def __init__(self, response: dict[str, Any], before: Sequence[dict[str, Any]]) -> None:
        self.response = response
        self.before = before


def _likeness(message: dict[str, Any]) -> bytes:
    """Return what a request is known by."""
    params = message.get("params")
    if isinstance(params, dict):
        params = {key: value for key, value in params.items() if key != "_meta"}
    return msgspec.json.encode([message.get("method"), params or {}], order="sorted")


def answers_of(messages: Iterable[Recorded]) -> dict[bytes, deque[Answer]]:
    """Return the answers of a conversation by the requests they belong to."""
    asked: dict[Any, bytes] = {}
    found: dict[bytes, deque[Answer]] = {}
    said: list[dict[str, Any]] = []
    for recorded in messages:
        for part in _parts(recorded.message):
            if not isinstance(part, dict):
                continue
            if recorded.sender == "client":
                if "method" in part and "id" in part:
                    asked[part["id"]] = _likeness(part)
            elif "method" in part:
                # A question of the server's own would need the client's answer to be the same.
                if "id" not in part:
                    said.append(part)
            elif part.get("id") in asked:
                likeness = asked.pop(part["id"])
                found.setdefault(likeness, deque()).append(Answer(part, said))
                said = []
    return found


class Replay:
    """A transport to a server that is not there: it answers as a recorded one did. `Client(Replay("talk.jsonl"))`."""

    carrier = "replay"

    def __init__(self, conversation: str | os.PathLike[str] | Iterable[Recorded]) -> None:
        if isinstance(conversation, str | os.PathLike):
            conversation = read_conversation(conversation)
        self._messages = list(conversation)
        self._channel: ReplayChannel | None = None

    async def connect(self, receiver: Receiver) -> Channel:
        """Begin the conversation from its start."""
        self._channel = ReplayChannel(receiver, answers_of(self._messages))
        receiver.channel_opened(self._channel)
        return self._channel

    async def close(self, grace: float = 2.0) -> None:
        """End the conversation."""
        if self._channel is not None:
            self._channel.close()


class ReplayChannel(ChannelDefaults):
    """The channel to a recorded server."""

    traits = Traits()

    def __init__(self, receiver: Receiver, answers: dict[bytes, deque[Answer]]) -> None:
        self._receiver = receiver
        self._answers = answers
        self._loop = asyncio.get_running_loop()
        self._closed = False
        self.context = contextvars.copy_context()

    def send(self, message: Message | Sequence[Message]) -> None:
        """Answer what is asked, in the next turn of the loop."""
        if self._closed:
            return
        sent = msgspec.json.decode(encode(message))
        for part in _parts(sent):
            if "method" in part and "id" in part:
                for frame in self._answer(part):
                    self._loop.call_soon(self._receive, frame, context=self.context)

    async def wait_writable(self) -> None:
        """Return at once."""

    def _answer(self, request: dict[str, Any]) -> list[bytes]:
        waiting = self._answers.get(_likeness(request))
        if not waiting:
            method = request.get("method")
            error = {
                "code": ErrorCode.INTERNAL_ERROR.value,
                "message": f"the recorded conversation has no answer to this {method}",
            }
            return [msgspec.json.encode({"jsonrpc": "2.0", "id": request["id"], "error": error})]
        answer = waiting[0]
        if len(waiting) > 1:
            waiting.popleft()
        frames = [msgspec.json.encode(_addressed(each, request)) for each in answer.before]
        frames.append(msgspec.json.encode({**answer.response, "id": request["id"]}))
        return frames

    def _receive(self, frame: bytes) -> None:
        if not self._closed:
            self._receiver.frame_received(frame, self)

    def close(self, reason: str = "") -> None:
        """End the conversation."""
        if not self._closed:
            self._closed = True
            self._loop.call_soon(self._receiver.channel_lost, self, None, context=self.context)


def _addressed(notification: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    """Return a notification about progress with the token of the request it is about now."""
    meta = (request.get("params") or {}).get("_meta") or {}
    params = notification.get("params") or {}
    if "progressToken" not in params or "progressToken" not in meta:
        return notification
    return {**notification, "params": {**params, "progressToken": meta["progressToken"]}}
