"""The far side of a judged stdio carrier, in a process of its own: stdio_far_side.py <limit>."""

from __future__ import annotations

import asyncio
import sys

from ferrule.errors import CarrierError
from ferrule.testing.carrier_kit import FarSide
from ferrule.transports.process.stdio import Stdio


async def main() -> None:
    far = FarSide()
    await far.enter()
    try:
        await Stdio(max_message_size=int(sys.argv[1])).serve(far, lambda: None)
    finally:
        await far.leave()


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except CarrierError as gone:
        print(gone, file=sys.stderr)
