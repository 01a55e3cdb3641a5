"""Peers that speak another protocol on a stream of messages."""

from __future__ import annotations

import time

import pytest

from ferrule.transports.stream import foreign_protocol

HTTP = [
    *(b"POST / HTTP/1.1", b"GET /x?y=1 HTTP/1.0", b"OPTIONS * HTTP/1.1", b"PRI * HTTP/2.0", b"post / http/1.1"),
    *(b"PROPFIND /dav HTTP/1.1", b"M-SEARCH * HTTP/1.1", b"GET /", b"POST /" + b"a" * 100_000, b"HTTP/1.1 200 OK"),
    *(
        b"Host: 127.0.0.1:5000",
        b"host:x",
        b"Origin: null",
        b"Cookie: a=b",
        b"User-Agent: x",
        b"Sec-Fetch-Mode: x",
    ),
    *(b"Content-Type: text/plain", b"Connection: keep-alive", b"  Host: x", b"Access-Control-Request-Method: POST"),
]
OURS = [
    *(b"{}", b"[1]", b'{"method":"GET / HTTP/1.1"}', b" {}", b"1", b"null", b'"Host: x"', b"hello there", b"\xff"),
    *(b"Hostess: x", b"GETTING / HTTP", b"Content-Length: 5", b"a b c HTTP", b""),
]


@pytest.mark.parametrize("line", HTTP)
def test_lines_of_http_are_known(line: bytes) -> None:
    assert foreign_protocol(line) == "HTTP"


def test_a_handshake_of_tls_is_known() -> None:
    assert foreign_protocol(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03") == "TLS"


@pytest.mark.parametrize("line", OURS)
def test_other_lines_are_left_to_who_reads_messages(line: bytes) -> None:
    assert foreign_protocol(line) == ""


@pytest.mark.parametrize(
    "line",
    [
        *(b" " * 1_000_000, b"A" * 1_000_000, b"A " * 500_000, b"A " + b"b" * 1_000_000, b"A\t" * 500_000),
        *(b"Sec-" + b"a" * 1_000_000, b"Host" + b" " * 1_000_000, b"Access-Control-" * 70_000),
    ],
)
def test_looking_takes_no_longer_than_reading(line: bytes) -> None:
    start = time.process_time()
    for _ in range(10):
        assert foreign_protocol(line) == ""
    assert time.process_time() - start < 1
