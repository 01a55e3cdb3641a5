"""Frames as they are written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.websocket.frames import (
    FIN,
    MASKED,
    NO_CODE,
    PIECE,
    TEXT,
    Closing,
    MaskedWriter,
    PlainWriter,
    apply_mask,
    frame_head,
)


def test_masking_is_the_exclusive_or_of_every_fourth_byte() -> None:
    """The example of RFC 6455 5.7."""
    assert apply_mask(b"Hello", b"\x37\xfa\x21\x3d") == b"\x7f\x9f\x4d\x51\x58"


@given(st.binary(max_size=300), st.binary(min_size=4, max_size=4))
def test_masking_twice_is_not_masking(payload: bytes, key: bytes) -> None:
    masked = apply_mask(payload, key)
    assert masked == bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))
    assert apply_mask(masked, key) == payload


@pytest.mark.parametrize("size", [PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 65536, 70001])
def test_long_payloads_are_masked_in_pieces_without_a_seam(size: int) -> None:
    payload, key = bytes(at % 251 for at in range(size)), b"\x01\x02\x04\x08"
    assert apply_mask(payload, key) == bytes(byte ^ key[at % 4] for at, byte in enumerate(payload))


@pytest.mark.parametrize(
    ("size", "head"),
    [
        (0, b"\x81\x00"),
        (125, b"\x81\x7d"),
        (126, b"\x81\x7e\x00\x7e"),
        (65535, b"\x81\x7e\xff\xff"),
        (65536, b"\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00"),
    ],
)
def test_a_length_is_written_in_its_shortest_form(size: int, head: bytes) -> None:
    """WEBS-04."""
    assert frame_head(FIN | TEXT, size) == head
    assert frame_head(FIN | TEXT, size, MASKED) == bytes((head[0], head[1] | MASKED)) + head[2:]


def test_every_message_is_a_frame_of_its_own_that_ends_with_a_line_feed() -> None:
    """WEBS-15: all of them in one piece, for one write."""
    assert PlainWriter().texts([b"{}", b"[1]"]) == b"\x81\x03{}\n\x81\x04[1]\n"


def test_a_client_masks_each_frame_with_the_next_four_random_bytes() -> None:
    asked: list[int] = []

    def random(size: int) -> bytes:
        asked.append(size)
        return bytes(at % 256 for at in range(size))

    writer = MaskedWriter(random)
    written = writer.texts([b"{}", b"{}"])
    assert written[:2] == b"\x81\x83"
    assert (written[2:6], written[11:15]) == (b"\x00\x01\x02\x03", b"\x04\x05\x06\x07")
    assert apply_mask(written[6:9], written[2:6]) == b"{}\n"
    for _ in range(1022):
        writer.frame(FIN | TEXT, b"")
    assert len(asked) == 1
    writer.frame(FIN | TEXT, b"")
    assert len(asked) == 2


def test_a_reason_that_does_not_fit_is_cut_between_characters() -> None:
    payload = Closing(1002, "é" * 100).payload()
    assert payload == b"\x03\xea" + ("é" * 61).encode()
    assert Closing(NO_CODE).payload() == b""
    assert str(Closing(1001)) == "1001"
