"""ReceiptLog: the observer that keeps a receipt of every request a server has answered, refused or given up.

Rule 1: a call never waits for its receipt. Where one cannot be kept it is counted as lost, and calls go on; with
`required`, calls are refused until receipts can be kept again.
Rule 2: a receipt holds digests of arguments and results, and at most 8 characters of a session's id.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import UNSET, UnsetType

from ferrule.errors import SetupError
from ferrule.identity.principal import Principal
from ferrule.schema.model import Implementation
from ferrule.telemetry.observer import ObservedRequest, Observer, Outcome
from ferrule.telemetry.receipt_writer import ReceiptSettings, ReceiptWriter
from ferrule.telemetry.receipts import MIN_KEY, Receipt, ReceiptCaller, ReceiptPeer, Sign, key_id, private_key, signer
from ferrule.telemetry.redaction import RecordRule
from ferrule.telemetry.trace_context import trace_in_headers, trace_in_meta
from ferrule.wire.channel import SHORT_SESSION, Origin

FilePath = str | os.PathLike[str]

UNRECORDED = frozenset({"ping", ""})
"""Requests without receipts: pings, and what could not be read."""
DENIALS = frozenset({"forbidden", "unauthorized"})
"""Reasons of a refusal that are the verdict of a policy."""
MAX_TEXT = 256
"""Characters of what a peer wrote that a receipt repeats."""
KEY_SIZE = 32
CLOSE_TIMEOUT = 2.0
"""Seconds a server that stops gives its last receipts."""


class Receipts(ReceiptSettings, frozen=True):
    """Where receipts are kept, and what they hold; times are in seconds."""

    folder: FilePath
    """The folder of their files, or one SQLite file: a name that ends in `.db`, `.sqlite` or `.sqlite3`."""
    node: str = ""
    """The name of this process in its receipts; empty for the name of the machine."""
    required: bool = False
    """Whether calls are refused while receipts cannot be kept."""
    record: Sequence[RecordRule | Mapping[str, Any]] = ()
    """The contents that are kept: rules by tool, the first that fits counts. Without any, digests only."""
    keyed: bool = True
    """Whether digests have a key, so that nobody finds a short argument by trying all of them."""
    digest_key: bytes | str | None = None
    """That key; None for one that is made and kept in the folder, in `digest.key`, or beside the SQLite file."""
    signing_key: bytes | FilePath | None = None
    """An Ed25519 key that seals the chain: a PEM file, or the 32 bytes; None for no seals."""

    def __post_init__(self) -> None:
        if not isinstance(self.folder, str | os.PathLike) or not str(self.folder):
            raise SetupError(f"receipts: folder must be a path, not {self.folder!r}")
        for name in ("queue", "queue_bytes", "max_file", "seal_every"):
            _require_positive(name, getattr(self, name), int)
        for name in ("commit_interval", "seal_interval", "keep_days"):
            _require_positive(name, getattr(self, name), float)
        if self.digest_key is not None and len(self._digest_key) < MIN_KEY:
            raise SetupError(f"receipts: digest_key must have {MIN_KEY} bytes or more")

    @property
    def rules(self) -> list[RecordRule]:
        """The rules for contents; raises SetupError for what is none."""
        return [_rule(given) for given in self.record]

    @property
    def _digest_key(self) -> bytes:
        if isinstance(self.digest_key, str):
            return self.digest_key.encode()
        return self.digest_key or b""

    def key_in(self, path: Path) -> bytes | None:
        """Return the key for digests, kept in a file unless it is given; None for digests without one."""
        if not self.keyed:
            return None
        if self.digest_key is not None:
            return self._digest_key
        try:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return path.read_bytes()
        with open(file, "wb") as made:
            made.write(os.urandom(KEY_SIZE))
        return path.read_bytes()

    @property
    def seal_key(self) -> bytes | None:
        """The 32 bytes of the key that seals the chain; None without one."""
        if self.signing_key is None or isinstance(self.signing_key, bytes):
            return self.signing_key
        return private_key(self.signing_key)


def _rule(given: RecordRule | Mapping[str, Any]) -> RecordRule:
    if isinstance(given, RecordRule):
        return given
    if not isinstance(given, Mapping):
        raise SetupError(f"receipts: record must be a list of RecordRule, not {given!r}")
    try:
        return RecordRule(**given)
    except TypeError as reason:
        raise SetupError(f"receipts: record: {reason}") from None


def _require_positive(name: str, value: object, kind: type[float]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | kind) or value <= 0:
        raise SetupError(f"receipts: {name} must be more than 0, not {value!r}")


class ReceiptLog(Observer):
    """Keeps receipts while anyone uses a server."""

    def __init__(self, receipts: Receipts, software: str = "ferrule") -> None:
        self.receipts = receipts
        seal_key = receipts.seal_key
        sign: Sign | None = None
        key_name = ""
        if seal_key is not None:
            sign = signer(seal_key)
            key_name = key_id(seal_key)
        self._writer = ReceiptWriter(
            Path(receipts.folder),
            node=receipts.node or socket.gethostname(),
            software=software,
            key=receipts.key_in,
            key_name=key_name,
            sign=sign,
            rules=receipts.rules,
            settings=receipts,
        )
        self._coming = 0
        """Calls that run and will need room for a receipt, where receipts are required."""

    # -- the life of a server

    async def enter(self) -> None:
        """Begin to write; raises SetupError where that cannot be."""
        starting = asyncio.ensure_future(asyncio.to_thread(self._writer.start))
        try:
            await asyncio.shield(starting)
        except OSError as reason:
            raise SetupError(f"receipts cannot be written to {self.receipts.folder}: {reason}") from None
        except asyncio.CancelledError:
            # No cancellation reaches the thread, and who did not enter never leaves.
            await asyncio.wait([starting])
            await self.leave()
            raise

    async def leave(self) -> None:
        """Write what waits, for a short time at most."""
        await asyncio.to_thread(self._writer.close, CLOSE_TIMEOUT)

    # -- calls

    def is_kept_of(self, method: str) -> bool:
        """Return whether requests of a method get receipts."""
        return method not in UNRECORDED

    def take_room(self) -> bool:
        """Reserve room for the receipt of a call that begins; return False where there is none."""
        if self._writer.failure or not self._writer.has_room(self._coming):
            return False
        self._coming += 1
        return True

    def give_back_room(self) -> None:
        """Called when such a call has ended."""
        self._coming -= 1

    def request_recorded(self, request: ObservedRequest, outcome: Outcome, arguments: bytes, result: bytes) -> None:
        """Keep the receipt of a request."""
        if not self.is_kept_of(request.method):
            return
        receipt = Receipt(
            kind="denial" if outcome.reason in DENIALS else "call",
            who=_caller(request.origin),
            peer=_peer(request.peer),
            session=_session(request),
            method=request.method[:MAX_TEXT],
            target=request.name[:MAX_TEXT] or UNSET,
            outcome=outcome.kind,
            code=outcome.code,
            ms=int(request.seconds * 1_000_000) / 1000,
            trace=_trace(request),
        )
        self._writer.record(receipt, arguments, result)

    # -- facts

    @property
    def written(self) -> int:
        """How many receipts were written."""
        return self._writer.written

    @property
    def lost(self) -> int:
        """How many could not be kept."""
        return self._writer.lost

    @property
    def failure(self) -> str:
        """Why the last ones could not be written; empty where they were."""
        return self._writer.failure


def _caller(origin: Origin) -> ReceiptCaller | UnsetType:
    found: Principal | None = origin.identity
    if found is not None:
        return ReceiptCaller(found.issuer, found.subject, found.client)
    if origin.principal is not None:
        return ReceiptCaller(sub=origin.principal)
    return UNSET


def _peer(found: Implementation | None) -> ReceiptPeer | UnsetType:
    if found is None:
        return UNSET
    return ReceiptPeer(found.name[:MAX_TEXT], found.version[:MAX_TEXT])


def _session(request: ObservedRequest) -> str | UnsetType:
    if request.transport != "http" or request.stateless:
        return UNSET
    return request.origin.headers.get("mcp-session-id", "")[:SHORT_SESSION] or UNSET


def _trace(request: ObservedRequest) -> str | UnsetType:
    """Return the trace a request belongs to: of its span, or what it says."""
    found = request.trace_id
    if not found and request.meta:
        found = trace_in_meta(request.meta).trace_id
    if not found and request.transport == "http":
        found = trace_in_headers(request.origin.headers).trace_id
    return found or UNSET


def receipt_log_of(given: object, whose: str) -> ReceiptLog:
    """Return what the option `receipts` of a server names: a path, Receipts(…) or a table of its options."""
    if isinstance(given, str | os.PathLike):
        return ReceiptLog(Receipts(given))
    if isinstance(given, Mapping):
        try:
            return ReceiptLog(Receipts(**given))
        except TypeError as reason:
            raise SetupError(f"{whose}: receipts: {reason}") from None
    if isinstance(given, Receipts):
        return ReceiptLog(given)
    raise SetupError(f"{whose}: receipts must be a folder or Receipts(…), not {given!r}")
