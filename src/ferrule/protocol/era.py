"""Which era a request belongs to, and which error numbers may be sent."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from msgspec import UNSET, Struct

from ferrule.codes import RESERVED, STANDARD
from ferrule.errors import Internal
from ferrule.protocol.call import Era, Revision
from ferrule.schema.methods import Method
from ferrule.schema.model import Meta
from ferrule.wire.channel import Origin

logger = logging.getLogger("ferrule.protocol")


STANDARD_CODES = STANDARD
"""The codes that JSON-RPC defines."""
RESERVED_CODES = RESERVED
"""The codes that JSON-RPC keeps for itself and for the protocols on top of it."""


def sendable(code: int, known: frozenset[int]) -> int:
    """Return the number to send: in the reserved range only those the protocol knows, outside any."""
    if code in known or code not in RESERVED_CODES:
        return code
    logger.warning("the error code %d is reserved and has no meaning in MCP: sent as %d", code, Internal.code)
    return Internal.code


class Eras(Struct, frozen=True):
    """The two generations side by side."""

    handshake: Era
    stateless: Era
    _admitted: dict[str, tuple[Mapping[str, Method], int, frozenset[str]]] = {}
    """By version, the names `admitted` returned last, the table they were made of, and how long it was then."""

    def era_of(self, meta: Meta | None, origin: Origin) -> Era:
        """Return the era of a request: stateless if it names its own version, in `_meta` or in the HTTP header."""
        if meta is not None and meta.version is not UNSET:
            return self.stateless
        if origin.version and origin.version in self.stateless.versions:
            return self.stateless
        return self.handshake

    def admitted(self, methods: Mapping[str, Method], revision: Revision) -> frozenset[str]:
        """Return the methods a peer of this revision may ask after its handshake; all sessions share the set."""
        known = self._admitted.get(revision.version)
        if known is not None:
            table, size, admitted = known
            if table is methods and size == len(methods):
                return admitted
        names = (name for name, row in methods.items() if row.handshake and name != "initialize")
        admitted = frozenset(names) - revision.absent
        self._admitted[revision.version] = (methods, len(methods), admitted)
        return admitted
