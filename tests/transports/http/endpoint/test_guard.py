"""Who may come in at all."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.transports.http.endpoint import guard as guarding
from ferrule.transports.http.endpoint.guard import Guard, Remembering
from ferrule.transports.http.message import HttpRequest
from ferrule.transports.http.settings import EndpointSettings

EVIL = "evil.example"


def judged(headers: dict[str, str], *, bound_to: str = "127.0.0.1", secure: bool = False, **settings: Any) -> Any:
    """Judge a request with these headers."""
    raw = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
    return Guard(EndpointSettings(**settings), bound_to).judge(HttpRequest("POST", "/mcp", "", raw, secure=secure))


# -- hosts


@pytest.mark.parametrize("bound_to", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
@pytest.mark.parametrize("host", ["localhost", "LocalHost:80", "127.0.0.1", "127.0.0.1:8000", "[::1]", "[::1]:8000"])
def test_a_local_server_is_known_by_the_names_of_loopback(bound_to: str, host: str) -> None:
    """HTTP-3."""
    assert judged({"host": host}, bound_to=bound_to).status == 0
    assert judged({"host": EVIL}, bound_to=bound_to).status == 403


WRONG_HOSTS = [
    *(EVIL, "evil.example:80", "localhost.evil.example", "evil.example.localhost", "127.0.0.1.evil.example"),
    *("localhost:80@evil.example", "evil.example#localhost", "localhost:", "localhost:x", "localhost:80:80", ":80"),
    *("localhost:٨", "", " ", "127.1", "0.0.0.0", "2130706433", "127.0.0.2", "[::]", "::1", "[::1", "::1]", "[::1]x"),
    *("localhost.", "xlocalhost", "localhostx", "localhost localhost", "localhost,evil.example", "localhost\t", "*"),
]


@pytest.mark.parametrize("host", WRONG_HOSTS)
def test_a_local_server_is_known_by_no_other_name(host: str) -> None:
    """HTTP-3."""
    raw = {b"host": host.encode("utf-8")}
    assert Guard(EndpointSettings(), "127.0.0.1").judge(HttpRequest("POST", "/mcp", "", raw)).status == 403


def test_a_local_server_refuses_a_request_for_nobody() -> None:
    """HTTP-3."""
    assert judged({}).status == 403


def test_elsewhere_any_name_will_do_until_names_are_given() -> None:
    assert judged({"host": "mcp.example.com"}, bound_to="0.0.0.0").status == 0
    given = ("MCP.example.com", "other.example:8443")
    for host, status in (
        ("mcp.example.com", 0),
        ("MCP.EXAMPLE.COM:443", 0),
        ("other.example:8443", 0),
        ("other.example", 403),
        ("other.example:1", 403),
        (EVIL, 403),
        ("localhost", 403),
    ):
        assert judged({"host": host}, bound_to="0.0.0.0", allowed_hosts=given).status == status
    assert judged({"host": EVIL}, allowed_hosts=("*",)).status == 0


# -- origins


def test_a_request_of_no_page_is_fine() -> None:
    """HTTP-2."""
    verdict = judged({"host": "localhost"})
    assert (verdict.status, verdict.head) == (0, b"")


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "http://localhost.evil.example", "http://evil.example:8000", "null", "", "*"),
        *("https://localhost:8000", "http://localhost", "http://localhost:80001", "HTTP://localhost:8000"),
        *("http://localhost:8000/", "http://localhost:8000, http://evil.example", "http://127.0.0.1:8000"),
        *("https://app.example.com.evil.example", "https://app.example.co", "http://app.example.com", "localhost:8000"),
    ],
)
def test_a_page_of_another_origin_is_403(origin: str) -> None:
    """HTTP-2, SPEC-04: names are compared exactly."""
    settings = {"allowed_origins": ("https://app.example.com",)}
    verdict = judged({"host": "localhost:8000", "origin": origin}, **settings)
    assert (verdict.status, verdict.head) == (403, b"")


def test_a_page_of_ours_and_pages_that_are_named_may_call() -> None:
    """HTTP-2."""
    for origin, settings in (
        ("http://localhost:8000", {}),
        ("https://app.example.com", {"allowed_origins": ("https://app.example.com",)}),
        ("https://anybody.example", {"allowed_origins": ("*",)}),
        ("null", {"allowed_origins": ("*",)}),
    ):
        verdict = judged({"host": "localhost:8000", "origin": origin}, **settings)
        assert verdict.status == 0
        assert f"access-control-allow-origin: {origin}\r\n".encode() in verdict.head
        assert b"vary: Origin\r\n" in verdict.head
        assert b"Mcp-Session-Id" in verdict.head
    assert judged({"host": "localhost:8000", "origin": "https://localhost:8000"}, secure=True).status == 0


def test_a_page_that_was_rebound_to_our_address_is_no_page_of_ours() -> None:
    """HTTP-2: where any Host will do, the Host cannot vouch for the Origin."""
    rebound = {"host": "evil.example:8000", "origin": "http://evil.example:8000"}
    assert judged(rebound, bound_to="0.0.0.0").status == 403
    assert judged(rebound, bound_to="0.0.0.0", allowed_hosts=("*",)).status == 403
    assert judged(rebound, bound_to="0.0.0.0", allowed_hosts=("evil.example",)).status == 0


def test_an_origin_nobody_could_have_is_refused_even_where_all_may_call() -> None:
    raw = {b"host": b"localhost", b"origin": "https://é.example".encode("latin-1")}
    guard = Guard(EndpointSettings(allowed_origins=("*",)), "127.0.0.1")
    assert guard.judge(HttpRequest("POST", "/mcp", "", raw)).status == 403


@given(st.binary(max_size=60))
def test_no_origin_can_break_out_of_its_header(origin: bytes) -> None:
    """HTP-15."""
    guard = Guard(EndpointSettings(allowed_origins=("*",)), "127.0.0.1")
    verdict = guard.judge(HttpRequest("POST", "/mcp", "", {b"host": b"localhost", b"origin": origin}))
    assert verdict.status == 403 or verdict.head.count(b"\r\n") == verdict.head.count(b"\n") == 3


# -- every route and method


SHAPES = [
    *({"host": host} for host in WRONG_HOSTS if host.isascii()),
    *(
        {"host": host, "origin": f"{scheme}://{page}"}
        for host in ("localhost:8000", "127.0.0.1:8000", "[::1]:8000", EVIL)
        for scheme in ("http", "https")
        for page in (EVIL, "evil.example:8000", "localhost.evil.example", "127.0.0.1", "localhost", "0.0.0.0:8000", "x")
    ),
    *({"host": "localhost:8000", "origin": origin} for origin in ("null", "", "file://", "chrome-extension://x", "*")),
]


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE", "OPTIONS", "PUT"])
async def test_aut_18_every_rebinding_host_and_origin_is_refused_by_every_method(
    endpoint: Any, app: Any, method: str
) -> None:
    """The good ones are served, also between the bad ones."""
    async with endpoint(app) as doors:
        client = doors.client("handshake")
        assert len(SHAPES) >= 90
        for shape in SHAPES:
            answer = doors.send(method, b"{}", headers={**client.headers(), **shape})
            assert answer.status == 403, shape
            assert "access-control-allow-origin" not in answer.headers
        for host in ("localhost", "127.0.0.1:8000", "[::1]:8000"):
            for origin in (None, f"http://{host}"):
                good = client.ask("tools/list", headers={"host": host, "origin": origin})
                assert good.status == 200


async def test_a_page_that_may_call_can_read_every_answer(endpoint: Any, app: Any, era: str) -> None:
    origin = "https://app.example.com"
    async with endpoint(app, allowed_origins=(origin,)) as doors:
        client = doors.client(era)
        page = {"origin": origin}
        answers = [
            client.ask("tools/list", headers=page),
            client.ask("nobody/knows", headers=page),
            client.call("count", {"to": 1}, token=1, headers=page),
            doors.initialize(**page),
            doors.post(b"{", **page),
            doors.post(b"{", **page, content_type="text/plain"),
            doors.send("PUT", headers=page),
            doors.send("OPTIONS", headers=page),
            doors.send("GET", headers=page),
        ]
        for answer in answers:
            await answer.until(lambda answer=answer: answer.status)
            assert answer.headers["access-control-allow-origin"] == origin
            assert answer.headers["vary"] == "Origin"
            assert "Mcp-Session-Id" in answer.headers["access-control-expose-headers"]


# -- preflight


async def test_a_preflight_tells_what_a_page_may_send(endpoint: Any, app: Any) -> None:
    async with endpoint(app, allowed_origins=("https://app.example.com",)) as doors:
        wanted = "content-type, Mcp-Param-Region, mcp-session-id, x-evil"
        page = {"origin": "https://app.example.com", "access-control-request-headers": wanted}
        answer = doors.send("OPTIONS", headers=page, plain=True)
        assert (answer.status, answer.content) == (204, b"")
        allowed = answer.headers["access-control-allow-headers"].lower().split(", ")
        for name in ("content-type", "accept", "authorization", "last-event-id", "mcp-session-id"):
            assert name in allowed
        assert {"mcp-protocol-version", "mcp-method", "mcp-name", "mcp-param-region"} <= set(allowed)
        assert "x-evil" not in allowed
        assert answer.headers["access-control-allow-methods"] == "GET, POST, DELETE, OPTIONS"
        assert int(answer.headers["access-control-max-age"]) > 0
        assert doors.send("OPTIONS", headers={"origin": "https://evil.example"}).status == 403


@given(st.binary(max_size=80))
def test_no_wish_of_a_preflight_can_break_out_of_its_header(wanted: bytes) -> None:
    """HTP-15."""
    names = b"mcp-param-" + wanted
    head = Guard(EndpointSettings(), "127.0.0.1").preflight(
        HttpRequest("OPTIONS", "/mcp", "", {b"access-control-request-headers": names}), "POST"
    )
    assert head.count(b"\n") == head.count(b"\r\n") == 3


def test_a_preflight_repeats_a_bounded_number_of_names() -> None:
    names = b", ".join(b"mcp-param-%d" % number for number in range(1000))
    head = Guard(EndpointSettings(), "127.0.0.1").preflight(
        HttpRequest("OPTIONS", "/mcp", "", {b"access-control-request-headers": names}), "POST"
    )
    assert head.count(b"mcp-param-") == 32


# -- memory


def test_a_verdict_is_made_once_and_attackers_fill_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    monkeypatch.setattr(Guard, "_look", lambda self, *key: looked.append(key) or guarding.Verdict())
    guard = Guard(EndpointSettings(), "127.0.0.1")
    for _ in range(3):
        guard.judge(HttpRequest("POST", "/mcp", "", {b"host": b"localhost"}))
    assert len(looked) == 1
    for number in range(5000):
        guard.judge(HttpRequest("POST", "/mcp", "", {b"host": b"h%d" % number}))
    assert len(guard._verdicts) <= guarding.MOST_REMEMBERED


def test_what_headers_were_judged_is_remembered_within_bounds() -> None:
    asked: list[str] = []
    remembering = Remembering(lambda value: bool(asked.append(value)) or value == "7")
    assert [remembering[b"7"], remembering[b"7"], remembering[b"8"]] == [True, True, False]
    assert asked == ["7", "8"]
    for number in range(5000):
        remembering[b"%d" % number]
    assert len(remembering) <= guarding.MOST_REMEMBERED


def test_long_values_are_judged_each_time_and_not_kept() -> None:
    guard = Guard(EndpointSettings(allowed_origins=("*",)), "127.0.0.1")
    for size in (guarding.LONGEST_REMEMBERED, guarding.LONGEST_REMEMBERED + 1, 16_000):
        accept = b"*/*," + b"x" * (size - 4)
        kind = b"application/json;" + b"x" * (size - 17)
        assert guard.takes_both[accept]
        assert guard.is_json[kind] is (size <= guarding.LONGEST_REMEMBERED)
        guard.judge(HttpRequest("POST", "/mcp", "", {b"host": b"localhost", b"origin": b"x" * (size - 9)}))
    assert [len(kept) for kept in (guard.takes_both, guard.is_json, guard._verdicts)] == [1, 1, 1]


@pytest.mark.parametrize("value", [b"," * 16_000, b";" * 16_000, b"a/b;q=0," * 2000, b"*/*;" + b"q=0;" * 4000])
def test_the_longest_accept_is_judged_at_once(value: bytes) -> None:
    guard = Guard(EndpointSettings(), "127.0.0.1")
    spent = []
    for _ in range(5):
        began = time.process_time()
        assert not guard.takes_both[value]
        assert not guard.is_json[value]
        spent.append(time.process_time() - began)
    assert min(spent) < 0.01
