"""The opening handshake, from both sides: plain calls."""

from __future__ import annotations

import time

import pytest
from raw_websocket import ACCEPT, KEY

from ferrule.errors import ConnectFailed, HttpFailed
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.websocket.deflate import AGREED, Deflate
from ferrule.transports.websocket.handshake import (
    Agreed,
    UpgradeRefused,
    accept_value,
    judge_answer,
    judge_request,
    write_request,
)

HEADERS = {
    b"host": b"127.0.0.1",
    b"upgrade": b"websocket",
    b"connection": b"keep-alive, Upgrade",
    b"sec-websocket-key": KEY,
    b"sec-websocket-version": b"13",
}


def judged(
    method: str = "GET", body: bytes = b"", compression: bool = False, **changes: bytes
) -> Agreed | UpgradeRefused:
    headers = HEADERS | {name.replace("_", "-").encode(): value for name, value in changes.items()}
    present = {name: value for name, value in headers.items() if value}
    return judge_request(HttpRequest(method, "/mcp/ws", "", present, body), compression=compression)


def test_the_accept_value_is_that_of_the_standard() -> None:
    assert accept_value(KEY) == ACCEPT


def test_a_right_request_is_agreed_to() -> None:
    """WEBS-03."""
    agreed = judged()
    assert isinstance(agreed, Agreed)
    assert agreed.head == (b"upgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: " + ACCEPT + b"\r\n")


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"upgrade": b""}, 426),
        ({"upgrade": b"h2c"}, 426),
        ({"connection": b"keep-alive"}, 426),
        ({"upgrade": b"websocket, websocket"}, 400),
        ({"sec_websocket_version": b""}, 400),
        ({"sec_websocket_version": b"12"}, 400),
        ({"sec_websocket_version": b"13, 13"}, 400),
        ({"sec_websocket_key": b""}, 400),
        ({"sec_websocket_key": b"c2hvcnQ="}, 400),
        ({"sec_websocket_key": b"not base64!"}, 400),
        ({"sec_websocket_key": KEY + b", " + KEY}, 400),
        ({"content_length": b"0"}, 400),
        ({"transfer_encoding": b"chunked"}, 400),
        ({"mcp_session_id": b"stolen"}, 409),
    ],
)
def test_a_wrong_header_is_refused(changes: dict[str, bytes], status: int) -> None:
    """WEBS-03."""
    refused = judged(**changes)
    assert isinstance(refused, UpgradeRefused)
    assert refused.status == status


def test_a_refusal_says_what_would_do() -> None:
    """WEBS-03: RFC 6455 4.4 and RFC 9110 15.5.22."""
    old, plain = judged(sec_websocket_version=b"8"), judged(upgrade=b"")
    assert isinstance(old, UpgradeRefused)
    assert isinstance(plain, UpgradeRefused)
    assert b"sec-websocket-version: 13\r\n" in old.head
    assert b"upgrade: websocket\r\n" in plain.head


def test_only_a_get_without_body_is_an_opening() -> None:
    for refused in (judged(method="POST"), judged(body=b"x")):
        assert isinstance(refused, UpgradeRefused)
        assert refused.status == 400


def test_the_subprotocol_mcp_is_chosen_where_it_is_offered() -> None:
    chosen, other = judged(sec_websocket_protocol=b"chat, mcp"), judged(sec_websocket_protocol=b"chat")
    assert isinstance(chosen, Agreed)
    assert isinstance(other, Agreed)
    assert b"Sec-WebSocket-Protocol: mcp\r\n" in chosen.head
    assert b"sec-websocket-protocol" not in other.head
    loud = judged(sec_websocket_protocol=b"MCP")
    assert isinstance(loud, Agreed)
    assert loud.subprotocol == "", "names of subprotocols differ by their case"


def test_compression_is_agreed_to_only_where_it_is_on() -> None:
    """WEBS-16, WSK-06."""
    offered = {"sec_websocket_extensions": b"permessage-deflate; client_max_window_bits"}
    off, on = judged(**offered), judged(compression=True, **offered)
    assert isinstance(off, Agreed)
    assert isinstance(on, Agreed)
    assert (off.deflate, b"extensions" in off.head) == (None, False)
    assert on.deflate == Deflate()
    assert f"sec-websocket-extensions: {AGREED}\r\n".encode() in on.head


# -- the client's side

GOOD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\nConnection: upgrade\r\nSec-WebSocket-Accept: "


def test_the_request_is_what_a_server_agrees_to() -> None:
    """WEBS-21."""
    written = write_request("/mcp/ws?x=1", "host:1", KEY, {"Authorization": "Bearer t"}, compression=True)
    first, *lines, _, _ = written.decode().split("\r\n")
    headers = {name.encode(): value.encode() for name, value in (line.split(": ", 1) for line in lines)}
    assert first == "GET /mcp/ws?x=1 HTTP/1.1"
    assert headers[b"authorization"] == b"Bearer t"
    agreed = judge_request(HttpRequest("GET", "/mcp/ws", "", headers), compression=True)
    assert isinstance(agreed, Agreed)
    assert (agreed.subprotocol, agreed.deflate) == ("mcp", Deflate())


def test_a_right_answer_is_agreed_to() -> None:
    answer = GOOD + ACCEPT + b"\r\nSec-WebSocket-Protocol: mcp\r\n\r\n"
    assert judge_answer(answer, KEY, compression=False) == Agreed(b"", "mcp")
    packed = GOOD + ACCEPT + f"\r\nSec-WebSocket-Extensions: {AGREED}\r\n\r\n".encode()
    assert judge_answer(packed, KEY, compression=True).deflate == Deflate()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Yes\r\nnonsense\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 101 Yes\r\n\r\n", "no WebSocket"),
        (GOOD + b"wrong\r\n\r\n", "does not belong to our key"),
        (GOOD + ACCEPT + b"\r\nSec-WebSocket-Protocol: chat\r\n\r\n", "subprotocol 'chat'"),
        (GOOD + ACCEPT + b"\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "extension"),
    ],
)
def test_a_wrong_answer_is_refused_in_words(answer: bytes, words: str) -> None:
    with pytest.raises(ConnectFailed, match=words):
        judge_answer(answer, KEY, compression=False)


def test_a_refusal_keeps_its_status_and_headers() -> None:
    answer = b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\n\r\n"
    with pytest.raises(HttpFailed, match="401 Unauthorized") as failure:
        judge_answer(answer, KEY, compression=False)
    assert (failure.value.status, failure.value.headers) == (401, {"www-authenticate": "Bearer"})


@pytest.mark.parametrize(
    "line",
    [b"X:" + b" " * 15_000 + b"\0", b"X: " + b"a " * 7_500 + b"\0", b"x" * 16_000, b"X:" + b"\t" * 15_000 + b"y\0"],
    ids=["blanks", "words", "a name", "tabs"],
)
def test_a_header_of_any_shape_is_judged_in_linear_time(line: bytes) -> None:
    """It took the square of its length: a second for 15,000 blanks."""
    began = time.process_time()
    for _ in range(20):
        with pytest.raises(ConnectFailed):
            judge_answer(b"HTTP/1.1 101 Switching Protocols\r\n" + line + b"\r\n\r\n", KEY, compression=False)
    assert time.process_time() - began < 0.5
