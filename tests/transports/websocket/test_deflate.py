"""permessage-deflate: what is offered and accepted, and bounds on what comes out."""

from __future__ import annotations

import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.websocket.deflate import AGREED, Deflate, Undeflatable, accept_answer, accept_offer


@given(st.binary(max_size=2000), st.integers(9, 15))
def test_what_was_compressed_comes_out_again(message: bytes, window: int) -> None:
    """WEBS-16."""
    assert Deflate().inflate(Deflate(window).deflate(message), 2000) == message


def test_the_example_of_the_standard_is_read() -> None:
    """RFC 7692 7.2.3.1 and 7.2.3.4."""
    assert Deflate().deflate(b"Hello") == b"\xf2\x48\xcd\xc9\xc9\x07\x00"
    assert Deflate().inflate(b"\xf2\x48\xcd\xc9\xc9\x07\x00", 5) == b"Hello"
    assert Deflate().inflate(b"\xf3\x48\xcd\xc9\xc9\x07\x00\x00", 5) == b"Hello"


def test_what_would_be_longer_than_the_limit_does_not_come_out() -> None:
    """WSK-06."""
    bomb = zlib.compressobj(wbits=-15)
    packed = bomb.compress(b"0" * 1_000_000) + bomb.flush(zlib.Z_SYNC_FLUSH)
    assert len(packed) < 2000
    assert Deflate().inflate(packed, 999_999) is None
    assert Deflate().inflate(packed, 1_000_000) == b"0" * 1_000_000


def test_damage_is_told() -> None:
    with pytest.raises(Undeflatable):
        Deflate().inflate(b"\xff\xff", 100)


@pytest.mark.parametrize(
    ("offers", "answer", "window"),
    [
        ("permessage-deflate", AGREED, 15),
        ("permessage-deflate; client_max_window_bits", AGREED, 15),
        ("x-webkit-deflate-frame, permessage-deflate", AGREED, 15),
        ("permessage-deflate; server_max_window_bits=10", AGREED + "; server_max_window_bits=10", 10),
        ('permessage-deflate; server_max_window_bits="12"', AGREED + "; server_max_window_bits=12", 12),
        ("permessage-deflate; server_max_window_bits=8, permessage-deflate", AGREED, 15),
        ("permessage-deflate; nonsense, permessage-deflate; client_no_context_takeover", AGREED, 15),
    ],
)
def test_the_first_offer_that_suits_is_accepted(offers: str, answer: str, window: int) -> None:
    assert accept_offer(offers) == (answer, Deflate(window))


@pytest.mark.parametrize(
    "offers",
    [
        "",
        "permessage-bzip2",
        "permessage-deflate; server_max_window_bits",
        "permessage-deflate; server_max_window_bits=16",
        "permessage-deflate; server_max_window_bits=8",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; client_max_window_bits=7",
        "permessage-deflate; client_max_window_bits; client_max_window_bits",
    ],
)
def test_an_offer_we_cannot_keep_is_declined(offers: str) -> None:
    assert accept_offer(offers) is None


@pytest.mark.parametrize(
    ("answer", "window"),
    [
        (AGREED, 15),
        ("permessage-deflate; server_no_context_takeover", 15),
        (f"{AGREED}; client_max_window_bits=9", 9),
        (f"{AGREED}; client_max_window_bits=15; server_max_window_bits=10", 15),
    ],
)
def test_a_server_chooses_within_what_was_offered(answer: str, window: int) -> None:
    """WEBS-16: also how far back our own messages may refer."""
    assert accept_answer(answer) == Deflate(window)


@pytest.mark.parametrize(
    "answer",
    [
        "permessage-deflate",
        f"{AGREED}; client_max_window_bits",
        f"{AGREED}; client_max_window_bits=8",
        f"{AGREED}; client_max_window_bits=16",
        f"{AGREED}, {AGREED}",
        "permessage-bzip2",
        f"{AGREED}; x=1",
    ],
)
def test_what_was_not_offered_or_cannot_be_kept_is_no_agreement(answer: str) -> None:
    assert accept_answer(answer) is None
