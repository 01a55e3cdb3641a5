"""Requests of every wrong shape at the HTTP engine: refused, closed, and nothing hidden in them runs."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pytest
from raw_http import EngineProcess, engine

HIDDEN = b"GET /hidden HTTP/1.1\r\nHost: a\r\n\r\n"
POST = b"POST /open HTTP/1.1\r\nHost: a\r\n"
GET = b"GET /open HTTP/1.1\r\nHost: a\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def server(request: pytest.FixtureRequest) -> Iterator[EngineProcess]:
    options = {"head_timeout": 2.0, "body_timeout": 2.0, "max_body_size": 65536, "http2": False}
    with engine(loop=request.param, **options) as process:
        yield process


def refused(server: EngineProcess, data: bytes, *statuses: int) -> None:
    """Expect one refusal, the end of the connection, nothing run, and the next honest request served."""
    before = server.count()["ran"]
    responses = server.say(data)
    assert [response.status for response in responses] in [[status] for status in statuses]
    assert responses[0].headers["connection"] == "close"
    assert responses[0].headers["x-content-type-options"] == "nosniff"
    after = server.count()["ran"]
    assert "/hidden" not in after
    assert after == before


AMBIGUOUS = {
    "cl and te": POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "te and cl": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    "te and cl 0": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n",
    "two cl": POST + b"Content-Length: 0\r\nContent-Length: 33\r\n\r\n",
    "two equal cl": POST + b"Content-Length: 0\r\nContent-Length: 0\r\n\r\n",
    "list of cl": POST + b"Content-Length: 0, 0\r\n\r\n",
    "cl +5": POST + b"Content-Length: +5\r\n\r\nhello",
    "cl -5": POST + b"Content-Length: -5\r\n\r\nhello",
    "cl 0x5": POST + b"Content-Length: 0x5\r\n\r\nhello",
    "cl 5_0": POST + b"Content-Length: 5_0\r\n\r\nhello",
    "cl 5.0": POST + b"Content-Length: 5.0\r\n\r\nhello",
    "cl 5 5": POST + b"Content-Length: 5 5\r\n\r\nhello",
    "cl empty": POST + b"Content-Length: \r\n\r\n",
    "cl full width": POST + "Content-Length: \uff15\r\n\r\nhello".encode(),
    "cl superscript": POST + b"Content-Length: \xb2\r\n\r\nhello",
    "cl huge": POST + b"Content-Length: 18446744073709551621\r\n\r\nhello",
    "te xchunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "te identity": POST + b"Transfer-Encoding: identity\r\n\r\n",
    "te chunked identity": POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "te gzip chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "te chunked twice": POST + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "te on two lines": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    "te empty": POST + b"Transfer-Encoding:\r\n\r\n0\r\n\r\n",
    "te quoted": POST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "te vertical tab": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "te in 1.0": b"POST /open HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n",
    "space before colon": POST + b"Content-Length : 0\r\n\r\n",
    "tab before colon": POST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "space before name": POST + b" Content-Length: 0\r\n\r\n",
    "obs-fold": POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "obs-fold in te": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "bare cr in value": POST + b"X: a\rContent-Length: 0\r\n\r\n",
    "bare cr ends line": b"POST /open HTTP/1.1\rHost: a\r\n\r\n",
    "bare lf in value": POST + b"X: a\nContent-Length: 0\r\n\r\n",
    "bare lf everywhere": b"POST /open HTTP/1.1\nHost: a\nContent-Length: 0\n\n",
    "nul in value": POST + b"X: a\x00b\r\nContent-Length: 0\r\n\r\n",
    "nul in name": POST + b"X\x00: a\r\n\r\n",
    "control in value": POST + b"X: a\x01b\r\n\r\n",
    "lf first": b"\n" + POST + b"Content-Length: 0\r\n\r\n",
    "lf after crlf": b"\r\n\n" + POST + b"Content-Length: 0\r\n\r\n",
    "cr first": b"\r" + POST + b"Content-Length: 0\r\n\r\n",
    "no colon": POST + b"Content-Length 0\r\n\r\n",
    "no name": POST + b": 0\r\n\r\n",
    "no host": b"POST /open HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
    "two hosts": GET + b"Host: b\r\n\r\n",
    "two equal hosts": GET + b"Host: a\r\n\r\n",
    "odd host": b"GET /open HTTP/1.1\r\nHost: a b\r\n\r\n",
    "host with path": b"GET /open HTTP/1.1\r\nHost: a/b\r\n\r\n",
    "host with user": b"GET /open HTTP/1.1\r\nHost: u@a\r\n\r\n",
}


@pytest.mark.parametrize("shape", AMBIGUOUS)
def test_htp_04_ambiguous_framing_is_refused_and_hides_nothing(server: EngineProcess, shape: str) -> None:
    refused(server, AMBIGUOUS[shape] + HIDDEN, 400)


CHUNKS = {
    "negative": b"-1\r\nx\r\n0\r\n\r\n",
    "0x3": b"0x3\r\nabc\r\n0\r\n\r\n",
    "+3": b"+3\r\nabc\r\n0\r\n\r\n",
    "3_0": b"3_0\r\nabc\r\n0\r\n\r\n",
    "20 digits": b"f" * 20 + b"\r\nabc\r\n0\r\n\r\n",
    "no size": b"\r\nabc\r\n0\r\n\r\n",
    "space before": b" 3\r\nabc\r\n0\r\n\r\n",
    "space after": b"3 \r\nabc\r\n0\r\n\r\n",
    "lf only": b"3\nabc\n0\n\n",
    "extension with lf": b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    "extension with cr": b"3;a\rb\r\nabc\r\n0\r\n\r\n",
    "extension with nul": b"3;a\x00\r\nabc\r\n0\r\n\r\n",
    "no crlf after data": b"3\r\nabc0\r\n\r\n",
    "data longer": b"3\r\nabcdef\r\n0\r\n\r\n",
    "lf after data": b"3\r\nabc\n0\r\n\r\n",
    "long extension": b"3;" + b"a" * 1024 * 1024 + b"\r\nabc\r\n0\r\n\r\n",
    "many extensions": (b"1;" + b"a" * 1000 + b"\r\nx\r\n") * 20 + b"0\r\n\r\n",
    "10k trailers": b"0\r\n" + b"X: a\r\n" * 10_000 + b"\r\n",
    "long trailer": b"0\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
    "malformed trailer": b"0\r\nX a\r\n\r\n",
    "trailer with bare lf": b"0\r\nX: a\nContent-Length: 4\r\n\r\n",
    "tiny chunks": b"1\r\nx\r\n" * 10_000 + b"0\r\n\r\n",
}


@pytest.mark.parametrize("shape", CHUNKS)
def test_htp_05_malformed_chunks_are_refused(server: EngineProcess, shape: str) -> None:
    refused(server, CHUNKED + CHUNKS[shape] + HIDDEN, 400)


def test_htp_05_framing_that_never_ends_is_refused_after_16_kib(server: EngineProcess) -> None:
    for endless in (b"3;", b"0\r\nX: "):
        with server.peer() as peer:
            assert peer.send(CHUNKED + endless + b"a" * 12 * 1024)
            peer.socket.settimeout(0.05)
            with pytest.raises(TimeoutError):
                peer.socket.recv(1)
            peer.socket.settimeout(60)
            peer.send(b"a" * 5 * 1024)
            assert [response.status for response in peer.responses()] == [400]


def test_well_formed_chunks_extensions_and_trailers_are_read(server: EngineProcess) -> None:
    body = b'3;name="a;b"\r\nabc\r\n00000A ;x\r\n0123456789\r\n0;last\r\nX-Sum: 1\r\n\r\n'
    last = GET + b"Connection: close\r\n\r\n"
    bodies = [response.body for response in server.say(CHUNKED + body + last)]
    assert bodies == [b"POST /open? 13", b"GET /open? 0"]


TOO_MUCH = {
    "1 MiB value": (GET + b"X: " + b"a" * 1024 * 1024 + b"\r\n\r\n", 431),
    "1 MiB name": (GET + b"a" * 1024 * 1024 + b": x\r\n\r\n", 431),
    "20k headers": (GET + b"X: a\r\n" * 20_000 + b"\r\n", 431),
    "101 headers": (GET + b"X: a\r\n" * 100 + b"\r\n", 431),
    "200 kB URI": (b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "10 kB URI": (b"GET /" + b"a" * 10_000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    "1 MiB request line": (b"GET " * 262_144, 414),
    "1000 empty lines": (b"\r\n" * 1000 + GET + b"\r\n", 400),
}


@pytest.mark.parametrize("shape", TOO_MUCH)
def test_htp_06_oversize_heads_are_refused(server: EngineProcess, shape: str) -> None:
    data, status = TOO_MUCH[shape]
    refused(server, data + HIDDEN, status)


def test_htp_06_an_oversize_head_is_refused_after_16_kib(server: EngineProcess) -> None:
    with server.peer() as peer:
        peer.send(GET + b"X: " + b"a" * 17 * 1024)
        assert [response.status for response in peer.responses()] == [431]


def test_an_empty_line_before_a_request_is_forgiven(server: EngineProcess) -> None:
    answers = server.say(b"\r\n" + GET + b"\r\n\r\n\r\n" + GET + b"Connection: close\r\n\r\n")
    assert [answer.status for answer in answers] == [200, 200]


STRANGERS = {
    "http/0.9": (b"GET /hidden\r\n", 400),
    "http/0.9 with head": (b"GET /hidden\r\n\r\n", 400),
    "http/9.9": (b"GET /hidden HTTP/9.9\r\nHost: a\r\n\r\n", 505),
    "http/1.2": (b"GET /hidden HTTP/1.2\r\nHost: a\r\n\r\n", 505),
    "http/2.0": (b"GET /hidden HTTP/2.0\r\nHost: a\r\n\r\n", 505),
    "lower case": (b"GET /hidden http/1.1\r\nHost: a\r\n\r\n", 400),
    "long version": (b"GET /hidden HTTP/1.10\r\nHost: a\r\n\r\n", 400),
    "h2 preface": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9), 505),
    "tls hello": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), 400),
    "connect": (b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\n\r\n" + HIDDEN, 400),
    "other host": (b"GET http://b/hidden HTTP/1.1\r\nHost: a\r\n\r\n", 421),
    "other port": (b"GET http://a:1/hidden HTTP/1.1\r\nHost: a\r\n\r\n", 421),
    "with user": (b"GET http://u@a/hidden HTTP/1.1\r\nHost: a\r\n\r\n", 421),
    "other scheme": (b"GET ftp://a/hidden HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "options *": (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "no slash": (b"GET hidden HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "fragment": (b"GET /hidden#a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "8 bit target": (b"GET /hidden\xff HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "two spaces": (b"GET  /hidden HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "space in target": (b"GET /hidden a HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "tabs": (b"GET\t/hidden\tHTTP/1.1\r\nHost: a\r\n\r\n", 400),
    "rtsp": (b"PLAY /hidden RTSP/1.0\r\nHost: a\r\n\r\n", 400),
    "expectation": (GET + b"Expect: the-unexpected\r\n\r\n", 417),
}


@pytest.mark.parametrize("shape", STRANGERS)
def test_htp_07_other_protocols_and_forms_are_never_executed(server: EngineProcess, shape: str) -> None:
    refused(server, STRANGERS[shape][0], STRANGERS[shape][1])


def test_htp_07_the_same_host_in_absolute_form_is_served(server: EngineProcess) -> None:
    head = b" HTTP/1.1\r\nHost: A:80\r\n"
    answers = server.say(
        b"GET http://a:80/open?b" + head + b"\r\nGET http://a:80" + head + b"Connection: close\r\n\r\n"
    )
    assert [answer.body for answer in answers] == [b"GET /open?b 0", b"GET /? 0"]


def test_htp_07_http_1_0_is_kept_alive_when_it_asks(server: EngineProcess) -> None:
    asking = b"GET /open HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"
    answers = server.say(asking + b"GET /open HTTP/1.0\r\n\r\n" + HIDDEN)
    assert [answer.headers["connection"] for answer in answers] == ["keep-alive", "close"]
    assert "/hidden" not in server.count()["ran"]


def test_an_upgrade_nobody_offers_is_passed_over(server: EngineProcess) -> None:
    upgrade = GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    answers = server.say(upgrade + GET + b"Connection: close\r\n\r\n")
    assert [answer.status for answer in answers] == [200, 200]


@pytest.mark.parametrize("method", [b"BREW", b"get", b"PROPFIND", b"M-SEARCH", b"A" * 7000])
def test_htp_09_unknown_methods_are_not_implemented(server: EngineProcess, method: bytes) -> None:
    answers = server.say(method + b" /hidden HTTP/1.1\r\nHost: a\r\n\r\n" + HIDDEN)
    assert [answer.status for answer in answers] == [501]
    assert "POST" in answers[0].headers["allow"].upper()
    assert "/hidden" not in server.count()["ran"]


@pytest.mark.parametrize("method", [b"G\x00T", b"G(T", b'"GET"', b"GET:", b"\xc0GET"])
def test_htp_09_what_is_no_method_is_refused(server: EngineProcess, method: bytes) -> None:
    refused(server, method + b" /hidden HTTP/1.1\r\nHost: a\r\n\r\n", 400)


def test_htp_09_a_method_of_10_kb_is_refused(server: EngineProcess) -> None:
    refused(server, b"A" * 10_000 + b" /hidden HTTP/1.1\r\nHost: a\r\n\r\n", 414, 501)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "DELETE", "OPTIONS"])
def test_htp_09_known_methods_are_handed_on(server: EngineProcess, method: str) -> None:
    answers = server.say(f"{method} /open HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert [answer.body for answer in answers] == [f"{method} /open? 0".encode()]


def test_htp_09_head_has_the_length_and_no_body(server: EngineProcess) -> None:
    with server.peer() as peer:
        peer.send(b"HEAD /open HTTP/1.1\r\nHost: a\r\n\r\n" + GET + b"Connection: close\r\n\r\n")
        seen = peer.read_all()
    head, _, rest = seen.partition(b"\r\n\r\n")
    assert b"content-length: 13" in head
    assert rest.startswith(b"HTTP/1.1 200 OK\r\n")
    assert rest.endswith(b"GET /open? 0")


PATHS = ["/mcp/..", "//mcp", "/mcp%2f", "/MCP", "/mcp;x", "/mcp%00", "/%c0%ae", "/mcp/./", "/mcp\\", "/%2e%2e/mcp"]


@pytest.mark.parametrize("path", PATHS)
def test_htp_10_a_path_is_handed_on_as_it_came(server: EngineProcess, path: str) -> None:
    answers = server.say(f"GET {path}?a=%00?b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
    assert [answer.body for answer in answers] == [f"GET {path}?a=%00?b 0".encode()]


def test_htp_03_a_compressed_body_is_never_inflated(server: EngineProcess) -> None:
    bomb = gzip.compress(bytes(16 * 1024 * 1024))
    head = POST + b"Content-Encoding: gzip\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(bomb)
    before = server.rss()
    assert [answer.body for answer in server.say(head + bomb)] == [b"POST /open? %d" % len(bomb)]
    assert server.rss() - before < 8
