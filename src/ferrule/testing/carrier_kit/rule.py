"""What a rule is: one sentence about carriers, and a way to find out whether it holds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from ferrule.testing.carrier_kit.carrier import Carrier, Feature, Stand
from ferrule.testing.carrier_kit.far_side import FarSide
from ferrule.testing.carrier_kit.findings import NotApplicable, demand, given
from ferrule.testing.carrier_kit.near_side import NearSide
from ferrule.wire.codec import MAX_MESSAGE_SIZE


@dataclass(frozen=True)
class Rule:
    """One sentence that holds for every carrier that has what it needs."""

    name: str
    sentence: str
    ids: tuple[str, ...]
    """The requirements it proves."""
    needs: tuple[Feature, ...]
    work: Callable[[Carrier], Awaitable[None]]

    def lacking(self, carrier: Carrier) -> str:
        """Return the reason why the rule says nothing about a carrier, if there is one."""
        for feature in self.needs:
            if feature in carrier.lacks:
                return carrier.lacks[feature]
        return ""

    def __str__(self) -> str:
        return self.name


def rule(*ids: str, needs: tuple[Feature, ...] = ()) -> Callable[[Callable[[Carrier], Awaitable[None]]], Rule]:
    """Make a function a rule: its name is the rule's, the first line of its docstring the sentence."""

    def made(work: Callable[[Carrier], Awaitable[None]]) -> Rule:
        name = getattr(work, "__name__", "").replace("_", " ")
        return Rule(name, (work.__doc__ or "").partition("\n")[0], ids, needs, work)

    return made


@dataclass(frozen=True)
class Scene:
    """A near and a far side that have met."""

    carrier: Carrier
    stand: Stand
    far: FarSide
    near: NearSide

    @property
    def cut(self) -> Callable[[], None]:
        """Cuts the wire."""
        return given(self.stand.cut, "the stand does not say how to cut the wire")

    @property
    def here(self) -> FarSide:
        """The far side, where it can be looked at."""
        if not self.stand.visible:
            raise NotApplicable("the far side is in another process, where it cannot be looked at")
        return self.far

    async def another(self, max_message_size: int = MAX_MESSAGE_SIZE) -> NearSide:
        """Let one more peer come."""
        near = NearSide(self.stand.transport(max_message_size), self.carrier.era, self.carrier.patience)
        await near.connect()
        return near


@asynccontextmanager
async def scene(carrier: Carrier, max_message_size: int = MAX_MESSAGE_SIZE) -> AsyncIterator[Scene]:
    """Let a near and a far side meet; what no carrier may do is looked for at the end, whatever the rule."""
    far = FarSide()
    async with carrier.stand(far, max_message_size) as stand:
        near = NearSide(stand.transport(max_message_size), carrier.era, carrier.patience)
        try:
            await near.connect()
            yield Scene(carrier, stand, far, near)
        finally:
            far.tools.released.set()
            await near.close()
    faults = near.faults + far.faults
    demand(not faults, "; ".join(dict.fromkeys(faults)))
