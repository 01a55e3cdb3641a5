"""Receipts: one record a call, each with the hash of the one before, so that a change of any of them shows.

A receipt is a line of JSON. Its hash is the SHA-256 of that line without the line feed, and stands in the next line as
`prev`. A chain begins with an `open` record, which names the last hash of the chain before it. A `seal` record signs
how far the chain has come, with Ed25519.

What a chain proves: without a seal, or a hash that was kept elsewhere, the order of its records and that none was
changed or taken out of the middle. Who may write the file can write it whole anew; only a seal or a witness shows that.

Rule 1: arguments and results are kept as digests. They are keyed by default (HMAC-SHA-256 with a key of the chain), so
that nobody finds a short argument by trying all of them.
Rule 2: contents are kept only where a rule says so, after what it names was taken out.
"""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import UNSET, Struct, UnsetType

from ferrule.errors import SetupError

VERSION = 1
NO_HASH = "sha256:" + "0" * 64
"""Stands for the hash before the first chain of all."""
BLOCK = 64
"""Bytes of a block of SHA-256."""
MIN_KEY = 16
"""The fewest bytes of a key for digests."""


class ReceiptCaller(Struct, omit_defaults=True, gc=False):
    """Who called, as far as it is known."""

    iss: str = ""
    sub: str = ""
    client: str = ""


class ReceiptPeer(Struct, omit_defaults=True, gc=False):
    """The program that called."""

    name: str = ""
    version: str = ""


class Receipt(Struct, kw_only=True, gc=False):
    """One record. The chain fills in `n`, `t`, `node` and `prev`."""

    v: int = VERSION
    n: int = 0
    t: str = ""
    node: str = ""
    kind: str = "call"
    """`call`, `admin`, `denial`, `reload` or `pin`; of the chain itself `open`, `seal` and `gap`."""
    who: ReceiptCaller | UnsetType = UNSET
    peer: ReceiptPeer | UnsetType = UNSET
    session: str | UnsetType = UNSET
    """The first 8 characters."""
    method: str | UnsetType = UNSET
    target: str | UnsetType = UNSET
    upstream: str | UnsetType = UNSET
    replica: str | UnsetType = UNSET
    args: str | UnsetType = UNSET
    """The digest of the arguments."""
    result: str | UnsetType = UNSET
    """The digest of the result."""
    bytes: tuple[int, int] | UnsetType = UNSET
    """The sizes of both."""
    content: dict[str, Any] | UnsetType = UNSET
    """Arguments and result themselves, where a rule says so, redacted."""
    outcome: str | UnsetType = UNSET
    code: int | UnsetType | None = UNSET
    ms: float | UnsetType = UNSET
    trace: str | UnsetType = UNSET
    gen: int | UnsetType = UNSET
    about: dict[str, Any] | UnsetType = UNSET
    """What records of the chain itself say."""
    prev: str = NO_HASH


Recorded = tuple[Receipt, bytes, bytes, float]
"""A receipt, the arguments and the result it has digests of, and when it was made, in seconds since 1970."""


class ChainedRecord(Struct):
    """What a verification reads of every record."""

    v: int
    n: int
    kind: str
    prev: str
    about: dict[str, Any] = {}


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(ChainedRecord).decode

Sign = Callable[[bytes], bytes]
CheckSignature = Callable[[bytes, bytes], bool]
"""Whether a signature belongs to some bytes."""


def hash_of(line: bytes) -> str:
    """Return the hash of a record: of its line without the line feed."""
    return "sha256:" + hashlib.sha256(line).hexdigest()


def sealed_bytes(number: int, digest: str) -> bytes:
    """Return what a seal signs."""
    return f"ferrule receipts {number} {digest}".encode()


class KeyedDigest:
    """HMAC-SHA-256 (RFC 2104) with one key: what depends on the key alone is hashed once, and copied for each text."""

    def __init__(self, key: bytes) -> None:
        if len(key) > BLOCK:
            key = hashlib.sha256(key).digest()
        padded = key.ljust(BLOCK, b"\0")
        self._inner = hashlib.sha256(bytes(byte ^ 0x36 for byte in padded))
        self._outer = hashlib.sha256(bytes(byte ^ 0x5C for byte in padded))

    def of(self, data: bytes) -> str:
        """Return the digest in hexadecimal digits."""
        inner = self._inner.copy()
        inner.update(data)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return outer.hexdigest()


class ReceiptChain:
    """Makes the lines of one chain, in order. Pure: time is an argument."""

    def __init__(self, node: str, *, key: bytes | None = None, key_name: str = "", sign: Sign | None = None) -> None:
        if key is not None and len(key) < MIN_KEY:
            raise SetupError(f"the key for digests of receipts must have {MIN_KEY} bytes or more, not {len(key)}")
        self._node = node
        self._keyed: KeyedDigest | None = None
        if key is not None:
            self._keyed = KeyedDigest(key)
        self._key_name = key_name
        """Names the keys of seals and digests, so that they can be found again."""
        self._sign = sign
        self._second = -1
        self._second_text = ""
        """The second of the last record, and its text, which most of the next ones share."""
        self.records = 0
        """How many records there are."""
        self.last = NO_HASH
        """The hash of the last record."""

    def open(self, file: str, software: str, previous: str, now: float) -> bytes:
        """Begin the chain; `previous` is the last hash of the chain before it."""
        if self.records:
            raise SetupError("a chain of receipts is opened once")
        self.last = previous
        about = {"file": file, "key": self._key_name, "software": software, "keyed": self._keyed is not None}
        return self._add(Receipt(kind="open", about=about), now)

    def add(self, receipt: Receipt, now: float) -> bytes:
        """Return the line of a record."""
        if not self.records:
            raise SetupError("open the chain of receipts before records are added")
        return self._add(receipt, now)

    def add_recorded(self, recorded: Recorded) -> bytes:
        """Return the line of a record, with the digests of its contents."""
        receipt, arguments, result, when = recorded
        if arguments or result:
            digest = self.digest
            receipt.bytes = (len(arguments), len(result))
            receipt.args = digest(arguments)
            if result:
                receipt.result = digest(result)
        return self._add(receipt, when)

    def gap(self, lost: int, now: float) -> bytes:
        """Return the line that says how many records were lost here."""
        return self.add(Receipt(kind="gap", about={"lost": lost}), now)

    @property
    def state(self) -> tuple[int, str]:
        """How far the chain has come: given to `go_back`, it undoes what was added since."""
        return self.records, self.last

    def go_back(self, state: tuple[int, str]) -> None:
        """Forget records that could not be kept."""
        self.records, self.last = state

    def seal(self, now: float) -> bytes | None:
        """Return the line that signs the chain so far; None without a key to sign with."""
        if self._sign is None:
            return None
        number = self.records - 1
        signature = base64.b64encode(self._sign(sealed_bytes(number, self.last))).decode()
        about = {"n": number, "hash": self.last, "key": self._key_name, "signature": signature}
        return self.add(Receipt(kind="seal", about=about), now)

    def _add(self, receipt: Receipt, now: float) -> bytes:
        records = self.records
        receipt.n = records
        receipt.t = self._written(now)
        receipt.node = self._node
        receipt.prev = self.last
        line = _encode(receipt)
        self.last = hash_of(line)
        self.records = records + 1
        return line

    def digest(self, data: bytes) -> str:
        """Return the digest of arguments or of a result."""
        if self._keyed is None:
            return hash_of(data)
        return "hmac-sha256:" + self._keyed.of(data)

    def _written(self, now: float) -> str:
        """Return a time as receipts have it: UTC, microseconds."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._second_text = datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
        return "%s.%06dZ" % (self._second_text, (now - second) * 1_000_000)  # noqa: UP031  # quicker than an f-string


class Verification(Struct):
    """What a verification found."""

    problem: str = ""
    """What is wrong with the first record that is; empty where all is well."""
    line: int = 0
    """The line of that record, from 1 on; 0 where all is well."""
    records: int = 0
    """How many records are right, from the first on."""
    last: str = NO_HASH
    """The hash of the last of them."""
    seals: int = 0
    """How many seals there were whose signature was checked."""
    sealed: int = -1
    """The number of the last record that such a seal covers."""
    unchecked_seals: int = 0
    """How many seals there were and no key to check them with."""
    lost: int = 0
    """How many records the chain itself says are missing."""

    @property
    def ok(self) -> bool:
        """Whether the whole chain is right."""
        return not self.problem

    def failed(self, problem: str, line: int = 0) -> Verification:
        """Note what is wrong, in the line after those that are right unless another is named; return this."""
        self.problem = problem
        self.line = line or self.records + 1
        return self


def verify(lines: Iterable[bytes], *, previous: str | None = None, check: CheckSignature | None = None) -> Verification:
    """Check a chain from its first record on; `previous` is the last hash of the chain before it, where known."""
    found = Verification()
    for each in lines:
        line = each.removesuffix(b"\n")
        try:
            record = _decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            return found.failed(f"record {found.records} cannot be read: {error}")
        if found.records and record.n == found.records and record.prev != found.last:
            problem = f"record {found.records - 1} was changed: its hash is not the one record {found.records} has"
            return found.failed(problem, line=found.records)
        problem = _problem(record, found, previous)
        if not problem and record.kind == "seal":
            problem = _seal_problem(record, found, check)
        if problem:
            return found.failed(problem)
        if record.kind == "gap":
            found.lost += int(record.about.get("lost", 0))
        found.last = hash_of(line)
        found.records += 1
    if not found.records:
        return found.failed("there is no record")
    return found


def _problem(record: ChainedRecord, found: Verification, previous: str | None) -> str:
    """Return what is wrong with the place of a record in its chain."""
    number = found.records
    if record.v != VERSION:
        return f"record {number} has version {record.v}, which is not known"
    if record.n != number:
        return f"record {number} is missing: there is {record.n} in its place"
    if number == 0:
        if record.kind != "open":
            return "the beginning is missing: the first record must be open"
        if previous is not None and record.prev != previous:
            return "the chain does not follow the one before it"
        return ""
    if record.kind == "open":
        return f"record {number} opens a chain inside of another"
    return ""


def _seal_problem(record: ChainedRecord, found: Verification, check: CheckSignature | None) -> str:
    """Return what is wrong with a seal, which covers the record before it."""
    number = record.about.get("n")
    digest = record.about.get("hash")
    if number != found.records - 1 or digest != found.last:
        return f"record {found.records} seals another chain"
    if check is None:
        found.unchecked_seals += 1
        return ""
    try:
        signature = base64.b64decode(str(record.about.get("signature", "")), validate=True)
    except ValueError:
        return f"record {found.records} has a signature that cannot be read"
    if not check(signature, sealed_bytes(number, digest)):
        return f"record {found.records} has a signature of another key"
    found.seals += 1
    found.sealed = number
    return ""


def signer(private: bytes) -> Sign:
    """Return what signs with an Ed25519 key of 32 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    try:
        return Ed25519PrivateKey.from_private_bytes(private).sign
    except ValueError as reason:
        raise SetupError(f"the key for seals of receipts is not an Ed25519 key: {reason}") from None


def checker(public: bytes) -> CheckSignature:
    """Return what checks signatures of an Ed25519 key of 32 bytes."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        key = Ed25519PublicKey.from_public_bytes(public)
    except ValueError as reason:
        raise SetupError(f"the key for seals of receipts is not an Ed25519 key: {reason}") from None

    def check(signature: bytes, data: bytes) -> bool:
        try:
            key.verify(signature, data)
        except InvalidSignature:
            return False
        return True

    return check


def key_id(private: bytes) -> str:
    """Return the name of an Ed25519 key: how the SHA-256 of its public half begins."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public = Ed25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()
    return hashlib.sha256(public).hexdigest()[:16]


def private_key(path: str | os.PathLike[str]) -> bytes:
    """Return the Ed25519 key in a PEM file, as `openssl genpkey -algorithm ed25519` writes it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    key = _key_in(path, lambda data: load_pem_private_key(data, None))
    if not isinstance(key, Ed25519PrivateKey):
        raise SetupError(f"{path} holds no Ed25519 key: make one with `openssl genpkey -algorithm ed25519`")
    return key.private_bytes_raw()


def public_key(path: str | os.PathLike[str]) -> bytes:
    """Return the public Ed25519 key in a PEM file, as `openssl pkey -pubout` writes it."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    key = _key_in(path, load_pem_public_key)
    if not isinstance(key, Ed25519PublicKey):
        raise SetupError(f"{path} holds no public Ed25519 key: make one with `openssl pkey -in KEY -pubout`")
    return key.public_bytes_raw()


def _key_in(path: str | os.PathLike[str], load: Callable[[bytes], object]) -> object:
    try:
        with open(path, "rb") as file:
            return load(file.read())
    except (OSError, ValueError, TypeError) as reason:
        raise SetupError(f"the key in {path} cannot be read: {reason}") from None
