"""Questions that workers and their overseer ask each other, each with a topic, and answered within a time limit.

Rule: nobody waits for long. Who cannot be reached, does not answer in time or fails has said nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Struct

from ferrule.supervision.scope import Scope
from ferrule.workers.mesh import Mesh
from ferrule.workers.pipe import QUESTION, REPLY, Frame, Pipe

logger = logging.getLogger("ferrule.workers")

TIME_LIMIT = 0.1
"""How many seconds an answer may take."""
MAX_OPEN = 1000
"""How many questions may be open at once, those we ask and those we are asked."""

Answer = Callable[[bytes], Awaitable[bytes | None]]
"""Answers a question; None where there is nothing to say."""


class Question(Struct, frozen=True):
    """What one process asks another."""

    topic: str
    content: bytes


class Reply(Struct, frozen=True):
    """What the other says to it."""

    content: bytes | None


_encode = msgspec.msgpack.Encoder().encode
_read_question = msgspec.msgpack.Decoder(Question).decode
_read_reply = msgspec.msgpack.Decoder(Reply).decode


class Questions:
    """The questions of one process, and those it is asked."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._topics: dict[str, Answer] = {}
        self._open: dict[int, tuple[Pipe, asyncio.Future[bytes | None]]] = {}
        """Those we have asked, by their number."""
        self._last = 0
        self._loop = asyncio.get_running_loop()
        self._scope = Scope(self._loop)
        """Where those we are asked are answered."""
        mesh.on(QUESTION, self._asked)
        mesh.on(REPLY, self._replied)
        mesh.on_lost(self._pipe_lost)

    def on(self, topic: str, answer: Answer) -> None:
        """Answer the questions of a topic."""
        self._topics[topic] = answer

    async def ask(self, slot: int, topic: str, content: bytes = b"", limit: float = TIME_LIMIT) -> bytes | None:
        """Return what a worker, or the overseer, says; None where it says nothing."""
        pipe = self._mesh.to(slot)
        if pipe is None or len(self._open) >= MAX_OPEN:
            return None
        self._last = (self._last + 1) % 2**32
        number = self._last
        reply: asyncio.Future[bytes | None] = self._loop.create_future()
        self._open[number] = (pipe, reply)
        try:
            pipe.send(QUESTION, number, _encode(Question(topic, content)))
            async with asyncio.timeout(limit):
                return await reply
        except TimeoutError:
            return None
        finally:
            self._open.pop(number, None)

    async def close(self) -> None:
        """Answer nothing more."""
        await self._scope.close()

    def _asked(self, pipe: Pipe, frame: Frame) -> None:
        asked = _read_question(frame.content)
        if len(self._scope.tasks) < MAX_OPEN:
            self._scope.spawn(self._answer(pipe, frame.exchange, asked))
        else:
            pipe.send(REPLY, frame.exchange, _encode(Reply(None)))

    async def _answer(self, pipe: Pipe, number: int, asked: Question) -> None:
        content = None
        answer = self._topics.get(asked.topic)
        if answer is not None:
            try:
                content = await answer(asked.content)
            except Exception:
                logger.exception("failed on the question of another worker: %s", asked.topic)
        pipe.send(REPLY, number, _encode(Reply(content)))

    def _replied(self, pipe: Pipe, frame: Frame) -> None:
        found = self._open.get(frame.exchange)
        if found is not None and found[0] is pipe and not found[1].done():
            found[1].set_result(_read_reply(frame.content).content)

    def _pipe_lost(self, pipe: Pipe) -> None:
        for used, reply in self._open.values():
            if used is pipe and not reply.done():
                reply.set_result(None)
