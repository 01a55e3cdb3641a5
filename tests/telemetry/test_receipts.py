"""Chains of receipts: what is changed in one shows."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ferrule.errors import SetupError
from ferrule.telemetry.receipts import (
    NO_HASH,
    Receipt,
    ReceiptCaller,
    ReceiptChain,
    ReceiptPeer,
    checker,
    hash_of,
    signer,
    verify,
)

SECRET = bytes(range(32))
PUBLIC = Ed25519PrivateKey.from_private_bytes(SECRET).public_key().public_bytes_raw()
OTHER_PUBLIC = Ed25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()


def call(number: int = 0) -> Receipt:
    """Return a receipt of a call."""
    return Receipt(
        who=ReceiptCaller(iss="https://login", sub="ada", client="cli"),
        peer=ReceiptPeer(name="host", version="2"),
        session="3f9a01c2",
        method="tools/call",
        target=f"tool_{number}",
        outcome="ok",
        code=None,
        ms=12.4,
        gen=7,
    )


def chain_of(count: int, seal_every: int = 0, previous: str = NO_HASH) -> list[bytes]:
    """Return the lines of a chain with so many calls."""
    chain = ReceiptChain("a1", key_name="k", sign=signer(SECRET))
    lines = [chain.open("f", "ferrule", previous, 0.0)]
    for number in range(count):
        lines.append(chain.add(call(number), float(number)))
        if seal_every and number % seal_every == seal_every - 1:
            seal = chain.seal(float(number))
            assert seal is not None
            lines.append(seal)
    return lines


def test_a_receipt_is_a_line_of_json_with_the_hash_of_the_one_before() -> None:
    """OBSV-03: SHA-256 and the required fields."""
    chain = ReceiptChain("a1")
    first = chain.open("2026-11-15-1.jsonl", "ferrule 1", NO_HASH, 0.0)
    receipt = call(1)
    receipt.args = chain.digest(b"{}")
    line = chain.add(receipt, 1_763_237_754.123456)
    assert json.loads(line) == {
        "v": 1,
        "n": 1,
        "t": "2025-11-15T20:15:54.123456Z",
        "node": "a1",
        "kind": "call",
        "who": {"iss": "https://login", "sub": "ada", "client": "cli"},
        "peer": {"name": "host", "version": "2"},
        "session": "3f9a01c2",
        "method": "tools/call",
        "target": "tool_1",
        "args": hash_of(b"{}"),
        "outcome": "ok",
        "code": None,
        "ms": 12.4,
        "gen": 7,
        "prev": hash_of(first),
    }
    assert b"\n" not in line
    assert chain.last == hash_of(line)
    opened = json.loads(first)
    assert (opened["kind"], opened["prev"], opened["about"]["file"]) == ("open", NO_HASH, "2026-11-15-1.jsonl")


def test_a_whole_chain_is_right() -> None:
    found = verify(chain_of(100))
    assert (found.ok, found.records, found.problem) == (True, 101, "")
    assert found.last == hash_of(chain_of(100)[-1])


def test_lines_may_end_with_a_line_feed() -> None:
    assert verify(line + b"\n" for line in chain_of(3)).ok


@given(st.data())
def test_any_change_of_any_record_but_the_last_shows(data: st.DataObject) -> None:
    """OBSV-03: one byte, one record less, two in another order, one twice."""
    lines = chain_of(8)
    at = data.draw(st.integers(0, len(lines) - 2))
    what = data.draw(st.sampled_from(["byte", "removed", "swapped", "twice", "forged"]))
    if what == "byte":
        position = data.draw(st.integers(0, len(lines[at]) - 1))
        changed = bytearray(lines[at])
        changed[position] ^= data.draw(st.integers(1, 255))
        lines[at] = bytes(changed)
    elif what == "removed":
        del lines[at]
    elif what == "swapped":
        lines[at], lines[at + 1] = lines[at + 1], lines[at]
    elif what == "twice":
        lines.insert(at, lines[at])
    else:
        record = json.loads(lines[at])
        record["target"] = "another"
        lines[at] = json.dumps(record, separators=(",", ":")).encode()
    found = verify(lines)
    assert not found.ok
    assert found.records <= at + 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda lines: lines.pop(0), "record 0 is missing: there is 1 in its place"),
        (lambda lines: lines.pop(3), "record 3 is missing: there is 4 in its place"),
        (lambda lines: lines.__setitem__(3, lines[3].replace(b"tool_2", b"tool_x")), "record 3 was changed"),
        (lambda lines: lines.__setitem__(3, b"{"), "record 3 cannot be read"),
        (lambda lines: lines.__setitem__(3, b"\xff"), "record 3 cannot be read"),
        (lambda lines: lines.__setitem__(3, lines[3].replace(b'"v":1', b'"v":9')), "record 3 has version 9"),
        (
            lambda lines: lines.__setitem__(0, lines[0].replace(b"open", b"call")),
            "the beginning is missing: the first record must be open",
        ),
        (lambda lines: lines.__setitem__(3, lines[3].replace(b'"call"', b'"open"')), "record 3 opens a chain"),
        (lambda lines: lines.clear(), "there is no record"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(change: Any, problem: str) -> None:
    lines = chain_of(5)
    change(lines)
    assert verify(lines).problem.startswith(problem)


def test_a_chain_follows_the_one_before_it() -> None:
    first = chain_of(3)
    end = verify(first).last
    assert verify(chain_of(3, previous=end), previous=end).ok
    assert verify(chain_of(3), previous=end).problem == "the chain does not follow the one before it"


def test_a_seal_shows_that_the_chain_is_ours() -> None:
    lines = chain_of(10, seal_every=5)
    found = verify(lines, check=checker(PUBLIC))
    assert (found.ok, found.seals, found.sealed, found.unchecked_seals) == (True, 2, 11, 0)
    unchecked = verify(lines)
    assert (unchecked.ok, unchecked.seals, unchecked.sealed, unchecked.unchecked_seals) == (True, 0, -1, 2)
    assert verify(lines, check=checker(OTHER_PUBLIC)).problem == "record 6 has a signature of another key"


def test_a_chain_that_was_written_anew_by_another_has_no_seal_of_ours() -> None:
    """OBSV-03: the hashes are right, and the seal is not."""
    forger = ReceiptChain("a1", key_name="k", sign=signer(bytes(32)))
    lines = [forger.open("f", "ferrule", NO_HASH, 0.0), forger.add(call(), 0.0)]
    seal = forger.seal(0.0)
    assert seal is not None
    assert verify([*lines, seal]).ok
    assert not verify([*lines, seal], check=checker(PUBLIC)).ok


def test_a_seal_of_another_place_is_noticed() -> None:
    chain = ReceiptChain("a1", sign=signer(SECRET))
    lines = [chain.open("f", "ferrule", NO_HASH, 0.0)]
    about = {"n": 7, "hash": chain.last, "signature": ""}
    lines.append(chain.add(Receipt(kind="seal", about=about), 0.0))
    assert verify(lines, check=checker(PUBLIC)).problem == "record 1 seals another chain"
    chain.go_back((1, hash_of(lines[0])))
    about = {"n": 0, "hash": chain.last, "signature": "?"}
    lines[1] = chain.add(Receipt(kind="seal", about=about), 0.0)
    assert verify(lines, check=checker(PUBLIC)).problem == "record 1 has a signature that cannot be read"


def test_a_gap_says_how_many_were_lost() -> None:
    chain = ReceiptChain("a1")
    lines = [chain.open("f", "ferrule", NO_HASH, 0.0), chain.gap(17, 0.0), chain.gap(3, 0.0)]
    found = verify(lines)
    assert (found.ok, found.lost) == (True, 20)


def test_a_digest_is_keyed_so_that_short_arguments_cannot_be_guessed() -> None:
    one = ReceiptChain("a1", key=b"k" * 16)
    other = ReceiptChain("a1", key=b"K" * 16)
    plain = ReceiptChain("a1")
    assert one.digest(b"1234").startswith("hmac-sha256:")
    assert len({chain.digest(b"1234") for chain in (one, other, plain)}) == 3
    assert one.digest(b"1234") == one.digest(b"1234") != one.digest(b"1235")
    assert plain.digest(b"1234") == hash_of(b"1234")


def test_wrong_use_is_told_at_once() -> None:
    with pytest.raises(SetupError, match="16 bytes or more, not 3"):
        ReceiptChain("a1", key=b"abc")
    chain = ReceiptChain("a1")
    with pytest.raises(SetupError, match="open the chain"):
        chain.add(call(), 0.0)
    chain.open("f", "ferrule", NO_HASH, 0.0)
    with pytest.raises(SetupError, match="opened once"):
        chain.open("f", "ferrule", NO_HASH, 0.0)
    assert chain.seal(0.0) is None


def test_a_receipt_takes_a_few_microseconds_and_is_verified_in_a_few_more() -> None:
    """8 microseconds is the bar, and 20 s for a million; a busy machine gets three times that."""
    chain = ReceiptChain("a1", key=b"k" * 32)
    lines = [chain.open("f", "ferrule", NO_HASH, 0.0)]
    arguments = b'{"a":1}' * 20
    best = float("inf")
    for _ in range(10):
        start = time.process_time()
        for number in range(1_000):
            receipt = call(number)
            receipt.args = chain.digest(arguments)
            receipt.result = chain.digest(arguments)
            lines.append(chain.add(receipt, 1.0))
        best = min(best, time.process_time() - start)
    start = time.process_time()
    assert verify(lines).ok
    verified = (time.process_time() - start) / len(lines)
    assert best / 1_000 < 24e-6
    assert verified < 60e-6
