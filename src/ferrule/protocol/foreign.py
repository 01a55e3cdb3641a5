"""Results of another peer, handed on to our caller."""

from __future__ import annotations

from msgspec import Raw, Struct


class Foreign(Struct, frozen=True):
    """A result as a peer wrote it. The caller's era gives it the form its revision demands."""

    raw: Raw
    version: str
    """The revision the peer wrote it in."""
