"""The two generations of the protocol, as a checker names them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from ferrule.protocol.handshake import NEWEST as NEWEST_HANDSHAKE
from ferrule.protocol.stateless import NEWEST as NEWEST_STATELESS

Era = Literal["handshake", "stateless"]

HANDSHAKE: Era = "handshake"
STATELESS: Era = "stateless"
BOTH: tuple[Era, ...] = (HANDSHAKE, STATELESS)
VERSIONS: Mapping[Era, str] = {HANDSHAKE: NEWEST_HANDSHAKE.version, STATELESS: NEWEST_STATELESS.version}
"""The version that is offered in each era, and whose pages a rule cites."""
