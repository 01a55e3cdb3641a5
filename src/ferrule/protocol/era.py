"""What an era decides, and which era a request belongs to."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import UNSET, Raw, Struct

from ferrule.codes import RESERVED, STANDARD
from ferrule.errors import CapabilityNotSupported, Internal, Refusal
from ferrule.protocol.call import Call, Peer, Revision
from ferrule.schema.methods import Method
from ferrule.schema.model import Meta
from ferrule.wire.channel import Origin

if TYPE_CHECKING:
    from ferrule.protocol.needs import Answers, Need, Question
    from ferrule.protocol.session import Session
    from ferrule.protocol.tasks import TaskWish


logger = logging.getLogger("ferrule.protocol")


class Era(Protocol):
    """The rules of one protocol generation."""

    @property
    def versions(self) -> tuple[str, ...]:
        """The revisions of this era we speak, newest first."""

    def admit(self, session: Session, row: Method, meta: Meta | None) -> Peer:
        """Return who asks, or raise Refusal."""

    def recall(self, call: Call) -> Answers:
        """Return what earlier rounds of this call have learned."""

    def require(self, call: Call, question: Question) -> None:
        """Raise CapabilityNotSupported unless the client can be asked this."""

    def ask(self, call: Call, missing: Sequence[tuple[str, Question]]) -> list[Awaitable[Raw]]:
        """Return what to wait for to learn the answers, or raise Need."""

    def pause(self, call: Call, need: Need) -> object:
        """Return the result that names what is missing."""

    def seal(self, call: Call, result: object) -> object:
        """Return a result its form on the wire."""

    def lacking(self, failure: CapabilityNotSupported) -> Refusal:
        """Return the refusal for a client that lacks a capability the request needs."""

    def code(self, refusal: Refusal) -> int:
        """Return a refusal its number."""

    def data(self, refusal: Refusal) -> Any:
        """Return what a refusal tells besides its number and its message."""

    def task_wish(self, call: Call) -> TaskWish:
        """Return what a call says about becoming a task."""

    def task_demanded(self, tool: str) -> Refusal:
        """Refuse a call that must become a task and may not."""

    def admit_to_tasks(self, call: Call) -> None:
        """Raise Refusal unless the caller may ask about tasks."""


STANDARD_CODES, RESERVED_CODES = STANDARD, RESERVED
"""What JSON-RPC keeps for itself and for the protocols on top of it."""


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

    def era_of(self, meta: Meta | None, origin: Origin) -> Era:
        """A request that carries its own version, in its `_meta` or its HTTP header, is stateless; any other is not."""
        if meta is not None and meta.version is not UNSET:
            return self.stateless
        if origin.version and origin.version in self.stateless.versions:
            return self.stateless
        return self.handshake

    def admitted(self, methods: Mapping[str, Method], revision: Revision) -> frozenset[str]:
        """Return the methods a peer of this revision may ask after its handshake; all sessions share the set."""
        known = self._admitted.get(revision.version)
        if known is None or known[0] is not methods or known[1] != len(methods):
            names = (name for name, row in methods.items() if row.handshake and name != "initialize")
            known = self._admitted[revision.version] = (methods, len(methods), frozenset(names) - revision.absent)
        return known[2]
