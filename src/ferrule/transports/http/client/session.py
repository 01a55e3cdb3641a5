"""A server that forgets our session (handshake era) gets a new handshake, once; what is harmless is asked again.

Rule 1: one new session for one lost, however many requests find out; one that finds its new session lost too, fails.
Rule 2: subscriptions and the log level were the old session's and are gone with it; who hears of gaps is told.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from ferrule.errors import FerruleError, LinkLost, OutcomeUnknown
from ferrule.schema.notices import INITIALIZED
from ferrule.transports.http.client.request import SingleExchange
from ferrule.wire.codec import encode
from ferrule.wire.messages import Id, Notification

if TYPE_CHECKING:
    from ferrule.transports.http.client.post import Post
    from ferrule.transports.http.client.transport import HttpChannel

logger = logging.getLogger("ferrule.transports")


class Settled(Struct, rename="camel"):
    """Of the result of initialize, the version only."""

    protocol_version: str = ""


class SettledAnswer(Struct):
    """The answer to initialize."""

    result: Settled | None = None


_read_answer = msgspec.json.Decoder(SettledAnswer).decode


def settled_version(frame: bytes) -> str:
    """Read which version the answer to initialize settles on; empty when it settles on none."""
    try:
        result = _read_answer(frame).result
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
    if result is None:
        return ""
    return result.protocol_version


def session_id(headers: dict[bytes, bytes]) -> str:
    """Read the name a server gave our session; one that cannot be sent back counts as none."""
    given = headers.get(b"mcp-session-id", b"").decode("latin-1")
    if not all("!" <= character <= "~" for character in given):
        logger.warning("the server's session id has characters it may not have, and is ignored")
        return ""
    return given


class SessionRenewal:
    """Makes the handshake again when the server has forgotten the session."""

    def __init__(self, channel: HttpChannel) -> None:
        self._channel = channel
        self._waiting: list[Post] = []
        self._task: asyncio.Task[None] | None = None
        self.initialize: tuple[Id, bytes] | None = None
        """The handshake as it was made: its id and its message."""

    def session_over(self, post: Post) -> None:
        """Called when the server did not know the session a message went with."""
        place = self._channel.heading.place
        if not post.unanswered:
            # What was told or answered in a session that is over concerns nobody any more.
            post.over()
            return
        if post.renewed or self.initialize is None or self._channel.closing:
            post.fail(LinkLost(f"{place} does not know its own session; its sessions may live on another machine"))
            return
        post.renewed = True
        if post.repeatable:
            self._waiting.append(post)
        else:
            post.fail(
                OutcomeUnknown(
                    f"unknown outcome: {place} ended the session, and {post.what} was not sent again; "
                    "a new session is opened: call it again if it may run twice"
                )
            )
        if self._task is None and post.session == self._channel.heading.session:
            self._channel.hold()
            self._task = self._channel.spawn(self._renew(self.initialize))
        elif self._task is None:
            self._replay()

    async def _renew(self, handshake: tuple[Id, bytes]) -> None:
        channel = self._channel
        heading = self._channel.heading
        logger.warning("%s ended the session; a new one is opened, without its subscriptions", heading.place)
        version = heading.version
        try:
            async with asyncio.timeout(channel.options.renew_timeout):
                await self._handshake(handshake, version)
        except (FerruleError, TimeoutError, OSError) as error:
            failure = LinkLost(f"{heading.place} ended the session, and no new one could be opened: {error}")
            for post in self._waiting:
                post.fail(failure)
            self._waiting.clear()
            channel.lose(failure)
        else:
            self._replay()
            channel.gap(renewed=True)
        finally:
            self._task = None
            channel.send_held()

    async def _handshake(self, handshake: tuple[Id, bytes], version: str) -> None:
        channel = self._channel
        heading = self._channel.heading
        heading.settle("", "")
        identity, message = handshake
        asked = SingleExchange(heading.post(b"", message), "urgent", channel.options.max_message_size, identity)
        frame = await channel.ask(asked)
        if asked.status != 200 or settled_version(frame) != version:
            raise LinkLost(f"the server refused the handshake it had accepted before (HTTP {asked.status})")
        heading.settle(session_id(asked.headers), version)
        note = heading.post(heading.session_lines, encode(Notification(INITIALIZED)))
        await channel.ask(SingleExchange(note, "urgent", channel.options.max_message_size))
        channel.stand()

    def _replay(self) -> None:
        waiting = self._waiting
        self._waiting = []
        for post in waiting:
            post.send_again()
