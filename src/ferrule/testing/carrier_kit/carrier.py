"""What a carrier under judgement says of itself, and how its two ends are set up."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import ClassVar, Literal

from ferrule.testing.carrier_kit.far_side import FarSide
from ferrule.testing.carrier_kit.near_side import Era
from ferrule.transports.contract import Listener, Transport
from ferrule.wire.codec import MAX_MESSAGE_SIZE

READY_WITHIN = 5.0
"""How many seconds either end may take to be ready."""

Feature = Literal["order", "push", "half-close", "limit", "their limit", "back-pressure", "wire", "one wire", "peers"]
"""What a carrier may lack:

- `order`: what is sent arrives in that order;
- `push`: the far side can speak without being asked;
- `half-close`: who says nothing more can still hear;
- `limit`: a message may be too long; `their limit`: also one that only the far side finds too long;
- `back-pressure`: a sender learns that the receiver does not keep up;
- `wire`: something lies between the two ends that can be cut, and that strangers can open;
- `one wire`: the conversation is over when its wire is;
- `peers`: one listener serves several peers.
"""

Wire = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@dataclass(frozen=True, kw_only=True)
class Stand:
    """Both ends, set up: how to reach the far side, and what can be done to what lies between."""

    transport: Callable[[int], Transport]
    """Makes a way to the far side that sends and takes messages of at most so many bytes."""
    listener: Listener | None = None
    """What serves, where somebody has to."""
    visible: bool = True
    """Whether the far side is the one that was given; not so where another process serves its own."""
    cut: Callable[[], None] | None = None
    """Cuts every wire that is open, without a goodbye."""
    hold: Callable[[], None] | None = None
    """Lets nothing pass any more, without closing anything."""
    release: Callable[[], None] | None = None
    """Lets pass what was held."""
    holds_both_ways: bool = True
    """Whether what the far side says is held too."""
    wire: Callable[[], Awaitable[Wire]] | None = None
    """Opens a bare stream of bytes to the far side, for peers that misbehave."""


class Carrier(ABC):
    """A transport under judgement: subclass it, say what it is, and set up its two ends."""

    name: ClassVar[str] = ""
    """What the report calls it; the far side's `Origin.carrier` too, unless `origin` says otherwise."""
    origin: ClassVar[str] = ""
    address: ClassVar[str] = ""
    """What the address of a peer begins with, where peers have one."""
    era: ClassVar[Era] = "handshake"
    lacks: ClassVar[Mapping[Feature, str]] = {}
    """Which features it does not have, each with the reason in one sentence."""
    patience: float = 15.0
    """How many seconds may pass before what does not come counts as lost."""
    newline_framed: ClassVar[bool] = False
    """Whether one message is one line on the bare wire."""
    after_oversize: ClassVar[Literal["lives", "closed"]] = "lives"
    """What becomes of the conversation after the peer sent a message that is too long."""

    @abstractmethod
    def stand(self, far: FarSide, max_message_size: int = MAX_MESSAGE_SIZE) -> AbstractAsyncContextManager[Stand]:
        """Serve the far side, with this limit, for as long as the context lasts."""


@asynccontextmanager
async def serving(listener: Listener, far: FarSide) -> AsyncIterator[None]:
    """Let a listener serve the far side, and end it in order."""
    ready = asyncio.Event()
    await far.enter()
    serve = asyncio.ensure_future(listener.serve(far, ready.set))
    waiting = asyncio.ensure_future(ready.wait())
    try:
        await asyncio.wait([serve, waiting], timeout=READY_WITHIN, return_when=asyncio.FIRST_COMPLETED)
        if serve.done():
            serve.result()
        if not ready.is_set():
            raise TimeoutError(f"the listener was not ready within {READY_WITHIN:g} s")
        yield
    finally:
        waiting.cancel()
        far.tools.released.set()
        await _end(listener, serve)
        await far.leave()


async def _end(listener: Listener, serve: asyncio.Future[None]) -> None:
    try:
        await asyncio.wait_for(listener.close(1.0), READY_WITHIN)
        await asyncio.wait([serve], timeout=READY_WITHIN)
    finally:
        if not serve.done():
            serve.cancel()
        with suppress(asyncio.CancelledError):
            await serve
