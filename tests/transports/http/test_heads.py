"""The heads and bodies of HTTP answers."""

from __future__ import annotations

from typing import Any

from ferrule.transports.http.heads import EMPTY_HEAD, JSON_HEAD, STATELESS_STATUSES, STREAM_HEAD, TEXT_HEAD, refuse


def test_every_head_tells_browsers_to_be_careful() -> None:
    """seed:HTTP-19."""
    for head in (JSON_HEAD, STREAM_HEAD, TEXT_HEAD, EMPTY_HEAD):
        assert b"x-content-type-options: nosniff\r\n" in head
        assert b"x-frame-options: DENY\r\n" in head
        assert b"content-security-policy: " in head
        assert b"cache-control: " in head


def test_a_stream_asks_proxies_not_to_buffer_nor_to_change_it() -> None:
    """HTM-7, SSEV-03."""
    assert b"content-type: text/event-stream\r\n" in STREAM_HEAD
    assert b"x-accel-buffering: no\r\n" in STREAM_HEAD
    assert b"cache-control: no-cache, no-transform\r\n" in STREAM_HEAD


def test_a_refusal_is_a_status_and_an_error_of_no_id(answering: Any) -> None:
    """HTTP-5."""
    answer = answering()
    refuse(answer, 403, "Forbidden: because", b"vary: Origin\r\n")
    assert (answer.status, answer.headers["vary"]) == (403, "Origin")
    assert answer.body == {"jsonrpc": "2.0", "error": {"code": -32600, "message": "Forbidden: because"}}


def test_the_statuses_of_the_stateless_era_are_those_of_the_specification() -> None:
    """HTM-11, HTM-12, HTM-13, HTM-14, HTM-15."""
    refused = dict.fromkeys((-32700, -32600, -32602, -32020, -32021, -32022), 400)
    assert {**refused, -32601: 404} == STATELESS_STATUSES
