"""Which door a request takes, and what refuses it before it gets there."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ferrule import Server
from ferrule.protocol.handshake import REVISIONS
from ferrule.stores.memory import MemoryEventLog

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
MODERN = {VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}}
MODERN_HEADERS = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/list"}


def request(method: str = "tools/list", meta: Any = None, **params: Any) -> dict[str, Any]:
    """A request under the id 7."""
    own = {} if meta is None else {"_meta": meta}
    return {"jsonrpc": "2.0", "id": 7, "method": method, "params": {**params, **own}}


# -- one endpoint


async def test_a_posted_request_has_its_response_in_the_body(endpoint: Any, app: Any, era: str) -> None:
    """seed:HTTP-01, HTTP-1, HTTP-6, SPEC-01."""
    async with endpoint(app) as doors:
        answer = doors.client(era).ask("tools/list", id="seven")
        assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
        assert answer.body["id"] == "seven"
        assert [tool["name"] for tool in answer.body["result"]["tools"]][:2] == ["echo", "rest"]


async def test_a_call_that_waits_is_answered_later_and_as_json(endpoint: Any, app: Any, era: str) -> None:
    async with endpoint(app) as doors:
        client = doors.client(era)
        slow, quick = client.call("rest", {"seconds": 1}), client.call("echo", {"text": "quick"})
        assert (await quick.whole()).text == "quick"
        assert not slow.over
        assert (await slow.whole()).text == "rested 1 s"
        assert not slow.is_stream


async def test_both_eras_are_served_side_by_side_at_one_path(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        old, new = doors.client("handshake"), doors.client("stateless")
        answers = [client.call("echo", {"text": text}) for client, text in ((old, "a"), (new, "b"), (old, "c"))]
        assert [(await answer.whole()).text for answer in answers] == ["a", "b", "c"]
        assert [("resultType" in answer.result()) for answer in answers] == [False, True, False]


@pytest.mark.parametrize("method", ["HEAD", "PUT", "PATCH", "TRACE", "PROPFIND", "post"])
async def test_other_methods_are_405_and_say_which_are_allowed(endpoint: Any, app: Any, method: str) -> None:
    """HTTP-1, SPEC-01."""
    async with endpoint(app) as doors:
        answer = doors.send(method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, POST, DELETE, OPTIONS")


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("settings", [{"stateless": True}, {}])
async def test_where_there_are_no_sessions_get_and_delete_are_405(
    endpoint: Any, workshop: Any, method: str, settings: Any
) -> None:
    """HTM-1, HTL-7, HTL-30."""
    async with endpoint(workshop(**({} if settings else {"versions": ()})), **settings) as doors:
        answer = doors.send(method, headers={"mcp-session-id": "x", "accept": "text/event-stream"})
        assert (answer.status, answer.headers["allow"]) == (405, "POST, OPTIONS")
        allowed = doors.send("OPTIONS").headers
        assert (allowed["allow"], allowed["access-control-allow-methods"]) == ("POST, OPTIONS",) * 2


@pytest.mark.parametrize("path", ["/", "/mcp/", "//mcp", "/MCP", "/mcp/..", "/mcp%2f", "/mcp;x", "/%6dcp", "/sse", ""])
async def test_a_path_that_is_not_exactly_ours_is_404(endpoint: Any, app: Any, path: str) -> None:
    async with endpoint(app) as doors:
        answer = doors.send("POST", b"{}", path=path)
        assert answer.status == 404
        assert b"/mcp" in answer.content


async def test_the_path_can_be_chosen(endpoint: Any, app: Any) -> None:
    async with endpoint(app, path="/tools/mcp") as doors:
        assert doors.send("POST", json.dumps(request(id=1)).encode(), path="/tools/mcp").status == 400
        assert doors.send("POST", b"{}", path="/mcp").status == 404


async def test_every_answer_carries_the_security_headers(endpoint: Any, app: Any, era: str) -> None:
    """seed:HTTP-19."""
    async with endpoint(app) as doors:
        client = doors.client(era)
        answers = [
            client.ask("tools/list"),
            client.tell("notifications/unknown"),
            client.call("count", {"to": 1}, token=1),
            doors.post(b"no json"),
            doors.send("PUT"),
            doors.send("OPTIONS"),
            doors.send("GET", path="/livez"),
            doors.send("GET", path="/nowhere"),
            doors.send("POST", headers={"origin": "https://evil.example"}),
        ]
        for answer in answers:
            await answer.until(lambda answer=answer: answer.status)
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert answer.headers["content-security-policy"] == "script-src 'self'"
            assert "cache-control" in answer.headers


async def test_custom_headers_reach_the_handler_in_any_spelling(endpoint: Any, app: Any, era: str) -> None:
    """HTTP-8."""
    async with endpoint(app) as doors:
        answer = doors.client(era).call("headers", {"name": "X-Request-Source"}, headers={"x-request-source": "test"})
        assert (await answer.whole()).text == "test"


# -- what a body must be


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (None, 200),
        ("*/*", 200),
        ("application/json, text/event-stream", 200),
        ("TEXT/Event-Stream;q=0.5,Application/JSON", 200),
        ("application/*, text/*;q=0.1", 200),
        ("application/json", 406),
        ("text/event-stream", 406),
        ("text/html", 406),
        ("application/json, text/event-stream;q=0", 406),
        ("*/*, application/json;q=0.0", 406),
        ("*/*;q=0, application/json, text/event-stream", 200),
        (", ".join(f"x/y{n}" for n in range(10_000)), 406),
    ],
)
async def test_htp_11_a_client_must_accept_both_forms_of_an_answer(
    endpoint: Any, app: Any, era: str, accept: str | None, status: int
) -> None:
    """HTTP-4, and catalogue:HTP-11 as far as it is about Accept."""
    async with endpoint(app) as doors:
        client = doors.client(era)
        answer = client.ask("tools/list", headers={"accept": accept})
        assert answer.status == status
        assert (answer.code is None) == (status == 200)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("application/json", 200),
        ("Application/JSON; charset=utf-8", 200),
        ('application/json; profile=x ; Charset="UTF8"', 200),
        ("application/json; charset=latin-1", 415),
        ("application/json, application/json", 415),
        ("application/jsonp", 415),
        ("text/plain", 415),
        ("", 415),
        (None, 415),
    ],
)
async def test_htp_11_a_body_must_say_that_it_is_json(
    endpoint: Any, app: Any, era: str, given: str | None, status: int
) -> None:
    """HTTP-4, and catalogue:HTP-11 as far as it is about Content-Type."""
    async with endpoint(app) as doors:
        assert doors.client(era).ask("tools/list", headers={"content-type": given}).status == status


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity"])
async def test_htp_03_an_encoded_body_is_415_and_never_inflated(endpoint: Any, app: Any, era: str, coding: str) -> None:
    async with endpoint(app) as doors:
        answer = doors.client(era).ask("tools/list", headers={"content-encoding": coding})
        assert answer.status == 415


async def test_a_body_over_the_limit_is_413_and_names_the_limit(endpoint: Any, app: Any, era: str) -> None:
    """SIZE-09."""
    async with endpoint(app, max_body_size=2000) as doors:
        client = doors.client(era)
        refused = client.call("echo", {"text": "x" * 2000})
        assert (refused.status, "2000" in refused.body["error"]["message"]) == (413, True)
        assert (await client.call("echo", {"text": "x" * 1000}).whole()).status == 200


async def test_a_result_over_the_limit_fails_its_own_call_only(endpoint: Any, app: Any, era: str) -> None:
    @app.tool
    async def big() -> str:
        return "x" * 5000

    async with endpoint(app, max_body_size=4000) as doors:
        client = doors.client(era)
        answer = await client.call("big").whole()
        assert answer.code == -32603
        assert (await client.call("echo", {"text": "still there"}).whole()).text == "still there"


@pytest.mark.parametrize("body", [b"", b"{", b"no json", b'{"jsonrpc":"2.0","id":1,', b"\xff\xfe{}", b"\x80"])
async def test_a_body_that_is_no_json_is_400_with_a_parse_error(endpoint: Any, app: Any, era: str, body: bytes) -> None:
    """HTM-15, HTTP-5: whether the request names a session, a version, or nothing."""
    async with endpoint(app) as doors:
        for headers in ({}, doors.client(era).headers("tools/list")):
            answer = doors.post(body, **headers)
            assert (answer.status, answer.code) == (400, -32700)


@pytest.mark.parametrize(
    ("body", "identity"),
    [
        (b"[]", None),
        (b'"text"', None),
        (b"null", None),
        (b'{"jsonrpc":"1.0","id":3,"method":"tools/list"}', 3),
        (b'{"jsonrpc":"2.0","id":3,"method":5}', 3),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}', None),
        (b'{"jsonrpc":"2.0","id":3,"method":"tools/list","result":{},"error":{}}', 3),
    ],
)
async def test_a_body_that_is_no_message_is_400_or_names_the_id_it_is_about(
    endpoint: Any, app: Any, era: str, body: bytes, identity: Any
) -> None:
    """HTM-15."""
    async with endpoint(app) as doors:
        client = doors.client(era)
        answer = client.send(body, **client.headers("tools/list"))
        assert (answer.body.get("id"), answer.code) == (identity, -32600)
        assert answer.status == (200 if identity and not client.stateless else 400)
        nobody = doors.post(body)
        assert (nobody.status, nobody.code) == (400, -32600)


async def test_what_cannot_be_read_is_answered_alike_whoever_asked_before(endpoint: Any, app: Any) -> None:
    """RPC-8: a stateless error leaves the id out; before a revision is known it is null."""
    async with endpoint(app) as doors:
        seen = []
        for _ in range(2):
            seen.append([doors.post(b"{").body.get("id", "absent"), doors.post(b"{", **MODERN_HEADERS).body.get("id")])
            seen[-1].append("id" in doors.post(b"{", **MODERN_HEADERS).body)
            await doors.client("stateless").call("echo", {"text": "x"}).whole()
            await doors.client("handshake").call("echo", {"text": "x"}).whole()
        assert seen == [[None, None, False]] * 2


# -- the era of a request


@pytest.mark.parametrize("version", ["2025-03-26", "2025-06-18", "2025-11-25"])
async def test_htp_12_the_mark_in_the_body_decides_and_the_header_must_agree(
    endpoint: Any, app: Any, version: str
) -> None:
    """HTM-12, HTP-12: a body of one era under the header of another is refused."""
    async with endpoint(app) as doors:
        answer = doors.post(request(meta=MODERN), mcp_protocol_version=version, mcp_method="tools/list")
        assert (answer.status, answer.code, answer.body["id"]) == (400, -32020, 7)


async def test_a_mark_is_seen_however_it_is_written(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client("handshake")
        body = json.dumps(request(meta=MODERN)).replace("protocolVersion", r"protocol\u0056ersion").encode()
        answer = client.send(body, **MODERN_HEADERS, mcp_session_id=client.session)
        assert answer.body["result"]["resultType"] == "complete"
        opened = doors.post(
            json.dumps(doors_initialize()).replace("initialize", r"initi\u0061lize").encode(), mcp_session_id="mine"
        )
        assert opened.headers["mcp-session-id"] not in ("mine", client.session)


def doors_initialize() -> dict[str, Any]:
    return request(
        "initialize", protocolVersion="2025-11-25", capabilities={}, clientInfo={"name": "t", "version": "1"}
    )


async def test_a_bare_meta_marks_nothing(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client("handshake")
        answer = client.ask("tools/list", meta={"progressToken": 1})
        assert "resultType" not in answer.result()
        assert doors.post(request(meta={"progressToken": 1})).status == 400


async def test_a_modern_header_without_the_mark_is_a_modern_request_that_lacks_it(endpoint: Any, app: Any) -> None:
    """HTM-11."""
    async with endpoint(app) as doors:
        for meta in (None, {}, {"progressToken": 1}):
            answer = doors.post(request(meta=meta), **MODERN_HEADERS)
            assert (answer.status, answer.code, answer.body["id"]) == (400, -32602, 7)


async def test_an_initialize_with_the_mark_is_an_unknown_method(endpoint: Any, app: Any) -> None:
    """HTM-14."""
    async with endpoint(app) as doors:
        headers = {**MODERN_HEADERS, "mcp_method": "initialize"}
        answer = doors.post(request("initialize", meta=MODERN, protocolVersion="2025-11-25"), **headers)
        assert (answer.status, answer.code) == (404, -32601)
        assert len(doors.doors.sessions) == 0


async def test_an_initialize_that_offers_a_stateless_version_gets_our_newest_with_sessions(
    endpoint: Any, app: Any
) -> None:
    async with endpoint(app) as doors:
        opened = doors.initialize("2026-07-28")
        assert opened.result()["protocolVersion"] == next(iter(REVISIONS))
        assert "mcp-session-id" in opened.headers


@pytest.mark.parametrize("method", ["POST", "GET", "DELETE"])
@pytest.mark.parametrize(
    "version", ["2024-01-01", "", "1", "x" * 10_000, "2025-11-25, 2025-11-25", "2025-11-25 ;", "2026-07-28"]
)
async def test_htp_12_a_version_nobody_speaks_is_400(endpoint: Any, app: Any, method: str, version: str) -> None:
    """HTL-31, SPEC-03, and catalogue:HTP-12."""
    async with endpoint(app) as doors:
        client = doors.client("handshake")
        headers = {**client.headers(), "mcp-protocol-version": version}
        for body in (json.dumps(request()).encode(), b'{"jsonrpc":"2.0","id":1,"method":"x"}', b"[1]", b"{"):
            answer = doors.send(method, b"" if method != "POST" else body, headers=headers)
            assert answer.status == 400
        opening = json.dumps(doors_initialize()).encode()
        assert doors.send("POST", opening, headers={"mcp-protocol-version": version}).status == 400
        assert client.ask("tools/list").status == 200


async def test_in_a_session_the_version_is_known_without_the_header(endpoint: Any, app: Any) -> None:
    """HTL-32, SPEC-03."""
    async with endpoint(app) as doors:
        client = doors.client("handshake")
        assert doors.post(request(), mcp_session_id=client.session).status == 200
        assert doors.post(request(), **client.headers()).status == 200


@pytest.mark.parametrize("version", [None, "2025-11-25"])
async def test_a_server_of_the_stateless_era_alone_refuses_old_requests(
    endpoint: Any, workshop: Any, version: str | None
) -> None:
    """HTM-17: no version header means 2025-03-26 only where such clients are served."""
    async with endpoint(workshop(versions=())) as doors:
        for body in (request(), doors_initialize()):
            answer = doors.post(body, mcp_protocol_version=version, mcp_session_id="x")
            assert (answer.status, answer.code) == (400, -32020)
        assert (await doors.client("stateless").call("echo", {"text": "hi"}).whole()).text == "hi"


async def test_without_the_header_an_old_client_is_met_only_where_it_is_served(endpoint: Any, workshop: Any) -> None:
    """HTM-17, HTL-32."""
    async with endpoint(workshop(), stateless=True) as doors:
        assert doors.post(request()).status == 200
    async with endpoint(workshop(versions=("2025-11-25",)), stateless=True) as doors:
        assert doors.post(request()).status == 400
        assert doors.post(request(), mcp_protocol_version="2025-11-25").status == 200


# -- the order in which requests are refused


async def test_a_request_is_refused_for_the_first_thing_that_is_wrong_with_it(endpoint: Any, app: Any) -> None:
    """HTM-16: everything that has a status is decided before anything runs."""
    faults = [
        (403, {"origin": "https://evil.example"}),
        (415, {"content_type": "text/plain"}),
        (406, {"accept": "text/html"}),
        (413, {}),
    ]
    async with endpoint(app, max_body_size=1024) as doors:
        for first, (status, _) in enumerate(faults):
            headers = {name: value for _, given in faults[first:] for name, value in given.items()}
            assert doors.post(b"x" * 1025, **headers).status == status
        assert doors.post(b"x" * 1023).status == 400


async def test_the_modern_ladder_has_one_order(endpoint: Any, app: Any) -> None:
    """Required headers, metadata, headers that agree, version, method, params: HTM-11, HTM-12, HTM-13, HTM-14."""
    right = {"mcp_protocol_version": "2026-07-28", "mcp_method": "nobody/knows"}
    wrong = {"mcp_protocol_version": "2026-07-28", "mcp_method": "tools/call"}
    unsupported = {**MODERN, VERSION_KEY: "2099-01-01"}
    steps = [
        ({"mcp_protocol_version": "2026-07-28"}, None, 400, -32020),
        (wrong, None, 400, -32602),
        (wrong, unsupported, 400, -32020),
        ({**right, "mcp_protocol_version": "2099-01-01"}, unsupported, 400, -32022),
        (right, MODERN, 404, -32601),
        ({**right, "mcp_method": "completion/complete"}, MODERN, 404, -32601),
    ]
    async with endpoint(app) as doors:
        for headers, meta, status, code in steps:
            method = "completion/complete" if headers.get("mcp_method") == "completion/complete" else "nobody/knows"
            answer = doors.post(request(method, meta=meta, ref=5), **headers)
            assert (answer.status, answer.code, answer.body["id"]) == (status, code, 7), headers


# -- life


async def test_a_server_that_drains_takes_nobody_new_and_says_when_to_come_back(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        old, new = doors.client("handshake"), doors.client("stateless")
        running = [client.call("rest", {"seconds": 1}) for client in (old, new)]
        await doors.settle()
        draining = asyncio.ensure_future(doors.doors.drain(5))
        await doors.settle()
        for late in (
            doors.initialize(),
            doors.initialize(mcp_session_id=old.session),
            new.call("echo", {"text": "late"}),
            doors.post(b"{"),
        ):
            assert (late.status, late.headers["retry-after"]) == (503, "1")
        busy = await old.call("echo", {"text": "late"}).whole()
        assert "stopping" in busy.body["error"]["message"]
        assert [(await answer.whole()).text for answer in running] == ["rested 1 s"] * 2
        await draining


async def test_readiness_ends_with_draining_and_liveness_does_not(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        assert [doors.send("GET", path=path).status for path in ("/livez", "/readyz")] == [200, 200]
        await doors.doors.drain(0)
        ready = doors.send("GET", path="/readyz")
        assert (ready.status, ready.headers["retry-after"]) == (503, "1")
        assert doors.send("GET", path="/livez").status == 200


async def test_health_can_be_turned_off(endpoint: Any, app: Any) -> None:
    async with endpoint(app, health=False) as doors:
        assert [doors.send("GET", path=path).status for path in ("/livez", "/readyz")] == [404, 404]


async def test_nothing_is_left_of_an_endpoint_that_closed(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        held = [doors.client(era).call("hold", {"name": era}) for era in ("handshake", "stateless")]
        doors.client("handshake").get()
        await doors.settle()
        assert app.begun == ["handshake", "stateless"]
        assert len(app.host.links) == 3
    await held[0].whole()
    await doors.settle()
    assert sorted(app.cancelled) == ["handshake", "stateless"]
    assert not app.host.links
    assert app.host.services.changes.loop is None


async def test_an_endpoint_can_be_closed_before_it_was_started_and_twice(endpoint: Any, app: Any) -> None:
    doors = endpoint(app).doors
    await doors.close()
    await doors.start()
    await doors.close()
    await doors.close()


async def test_the_events_are_kept_in_the_log_that_is_given(endpoint: Any, app: Any) -> None:
    log = MemoryEventLog()
    async with endpoint(app, log=log) as doors:
        await doors.client("handshake").call("count", {"to": 2}, token=1).whole()
        assert len(log) == 1


async def test_a_server_without_tools_serves_too(endpoint: Any) -> None:
    async with endpoint(Server("empty")) as doors:
        for era in ("handshake", "stateless"):
            answer = doors.client(era).ask("tools/list")
            assert answer.code == -32601


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_streams_that_stand_open_are_bounded_and_calls_are_not_refused_for_them(
    endpoint: Any, app: Any, era: str
) -> None:
    async with endpoint(app, max_streams=3) as doors:
        clients = [doors.client(era) for _ in range(4)]

        def listen(client: Any) -> Any:
            if era == "handshake":
                return client.get()
            return client.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})

        streams = [listen(client) for client in clients[:3]]
        await doors.settle()
        assert [stream.status for stream in streams] == [200] * 3
        refused = listen(clients[3])
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert (await clients[3].call("count", {"to": 2}, token=1).whole()).text == "counted to 2"
        streams[0].leave()
        await doors.settle()
        assert listen(clients[3]).status in (0, 200)
