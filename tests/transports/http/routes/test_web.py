"""Requests of plain HTTP routes."""

from __future__ import annotations

import pytest

from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.routes.web import WebRequest


def request(body: bytes) -> WebRequest:
    return WebRequest(HttpRequest("POST", "/", "", {}, body), {})


async def test_a_body_is_read_as_json() -> None:
    assert await request(b'{"a": [1, null]}').json() == {"a": [1, None]}
    with pytest.raises(ValueError, match="truncated"):
        await request(b"{").json()


async def test_a_body_of_too_many_values_is_refused_before_it_is_read() -> None:
    """BUD-21"""
    with pytest.raises(ValueError, match="too many values"):
        await request(b"[" + b"{}," * 1_000_000 + b"1]").json()
