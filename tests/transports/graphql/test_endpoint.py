"""GraphQL over HTTP: methods, types, statuses, who is let in, and what ends an operation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest
from graphql_desk import codes, new_app, post, serving

from ferrule import Graphql
from ferrule.transports.graphql import endpoint

NAMES = "{ tools { items { name } } }"
ADD = 'mutation { callTool(name: "add", arguments: {a: 1, b: 1}) { isError } }'
BOTH = "application/graphql-response+json, application/json;q=0.9"


async def send(listener: Graphql, method: str = "POST", **options: Any) -> httpx.Response:
    """Send a request as it is given."""
    async with httpx.AsyncClient() as client:
        return await client.request(method, listener.url, **options)


async def test_get_runs_queries_and_nothing_else() -> None:
    """OTHT-04: the subset is POST for queries and mutations, GET for queries, WebSocket for subscriptions."""
    async with serving() as listener:
        answer = await send(listener, "GET", params={"query": NAMES})
        assert answer.json()["data"]["tools"]["items"][0] == {"name": "add"}
        variables = json.dumps({"uri": "note://today"})
        query = "query A($uri: String!) { readResource(uri: $uri) { contents { text } } } query B { __typename }"
        params = {"query": query, "variables": variables, "operationName": "A"}
        answer = await send(listener, "GET", params=params)
        assert answer.json()["data"]["readResource"]["contents"] == [{"text": "sunny"}]
        answer = await send(listener, "GET", params={"query": ADD})
        assert answer.status_code == 405
        assert answer.headers["allow"] == "POST"
        assert "send mutations with POST" in answer.text
        assert codes((await send(listener, "GET")).json()) == ["BAD_REQUEST"]
        assert codes((await send(listener, "GET", params={"query": NAMES, "variables": "[]"})).json()) == [
            "BAD_REQUEST"
        ]
        assert codes((await send(listener, "GET", params={str(n): "" for n in range(20)})).json()) == ["BAD_REQUEST"]


async def test_a_page_of_another_site_cannot_make_a_browser_run_anything() -> None:
    async with serving() as listener:
        for content_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            answer = await send(listener, content=json.dumps({"query": ADD}), headers={"content-type": content_type})
            assert answer.status_code == 415
        for site in ("cross-site", "same-site"):
            answer = await send(listener, "GET", params={"query": NAMES}, headers={"sec-fetch-site": site})
            assert answer.status_code == 403
            assert codes(answer.json()) == ["FORBIDDEN"]
        answer = await send(listener, json={"query": NAMES}, headers={"origin": "https://evil.example"})
        assert answer.status_code == 403
        answer = await send(listener, json={"query": NAMES}, headers={"host": "evil.example"})
        assert answer.status_code == 403
    async with serving(allowed_origins=["https://good.example"]) as listener:
        origin = {"origin": "https://good.example"}
        answer = await send(listener, json={"query": NAMES}, headers=origin)
        assert answer.headers["access-control-allow-origin"] == "https://good.example"
        answer = await send(listener, "OPTIONS", headers={**origin, "access-control-request-method": "POST"})
        assert answer.status_code == 204
        assert "POST" in answer.headers["access-control-allow-methods"]


async def test_the_answer_has_the_type_and_status_its_client_knows() -> None:
    async with serving() as listener:
        answer = await send(listener, json={"query": "{ missing }"})
        assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
        answer = await send(listener, json={"query": "{ missing }"}, headers={"accept": BOTH})
        assert (answer.status_code, answer.headers["content-type"]) == (400, "application/graphql-response+json")
        assert "data" not in answer.json()
        answer = await send(listener, json={"query": "{ __typename }"}, headers={"accept": BOTH})
        assert answer.status_code == 200
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"[]", "BAD_REQUEST"),
        (b' [{"query": "{ __typename }"}]', "BAD_REQUEST"),
        (b"{}", "BAD_REQUEST"),
        (b"\xff", "BAD_REQUEST"),
        (b'{"query": 3}', "BAD_REQUEST"),
        (b'{"query": "{", "variables": ' + b"[" * 5000 + b"]" * 5000 + b"}", "BAD_REQUEST"),
        (b'{"query": "{"}', "GRAPHQL_PARSE_FAILED"),
        (b'{"query": "{ __typename }", "operationName": "B"}', "BAD_REQUEST"),
        (b'{"query": "query ($a: Int!) { tools(cursor: $a) { nextCursor } }"}', "GRAPHQL_VALIDATION_FAILED"),
        (b'{"query": "query ($a: String!) { tools(cursor: $a) { nextCursor } }"}', "BAD_REQUEST"),
        (b'{"query": "subscription { listChanged { list } }"}', "BAD_REQUEST"),
    ],
)
async def test_what_is_no_operation_is_refused_with_a_code(body: bytes, code: str) -> None:
    async with serving() as listener:
        answer = await send(listener, content=body, headers={"content-type": "application/json"})
        assert codes(answer.json()) == [code]


async def test_other_methods_and_paths_are_told_what_to_use() -> None:
    async with serving(path="/g") as listener:
        answer = await send(listener, "PUT", json={"query": NAMES})
        assert answer.status_code == 405
        assert answer.headers["allow"] == "GET, POST, OPTIONS"
        async with httpx.AsyncClient() as client:
            answer = await client.get(listener.url.replace("/g", "/graphql"))
        assert answer.status_code == 404
        assert answer.text == "Not found; GraphQL is served at /g\n"


async def test_an_offer_to_upgrade_to_something_else_is_passed_over() -> None:
    """RFC 9110 §7.8: a server may ignore it, as that of curl to speak HTTP/2."""
    async with serving() as listener:
        headers = {"connection": "Upgrade", "upgrade": "h2c"}
        answer = await send(listener, json={"query": "{ __typename }"}, headers=headers)
        assert answer.json() == {"data": {"__typename": "Query"}}


async def test_a_failure_of_ours_is_answered_and_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: Any) -> None:
        raise RuntimeError("secret of the house")

    monkeypatch.setattr(endpoint, "answer_of", fail)
    async with serving() as listener:
        answer = await send(listener, json={"query": NAMES})
        assert answer.status_code == 500
        assert codes(answer.json()) == ["INTERNAL_ERROR"]
        assert "secret" not in answer.text


async def test_too_long_a_body_and_too_long_an_answer_are_refused() -> None:
    async with serving(max_body_size=2048) as listener:
        answer = await send(listener, json={"query": NAMES, "variables": {"x": "x" * 3000}})
        assert answer.status_code == 413
        call = 'mutation { callTool(name: "long", arguments: {size: 1500}) { content { text } } }'
        assert "errors" in await post(listener, call)


async def test_what_the_fields_of_one_operation_are_answered_is_bounded_together() -> None:
    """BUD-09: all of it is held until the last field has its answer, however little of it is selected."""
    part = 'callTool(name: "long", arguments: {size: 30000}) { isError }'
    async with serving(max_body_size=100_000) as listener:
        for _ in range(2):
            answer = await post(listener, f"mutation {{ a: {part} }}")
            assert answer == {"data": {"a": {"isError": False}}}
        answer = await post(listener, f"mutation {{ a: {part} b: {part} c: {part} }}")
        assert codes(answer) == ["ANSWER_TOO_LARGE"]
        assert "100000 bytes together" in answer["errors"][0]["message"]


async def test_a_client_that_goes_away_has_cancelled_its_operation() -> None:
    app = new_app()
    async with serving(app) as listener:
        _, writer = await asyncio.open_connection(*listener.address)
        body = json.dumps({"query": 'mutation { callTool(name: "hang") { isError } }'}).encode()
        lines = ("POST /graphql HTTP/1.1", "Host: localhost", "Content-Type: application/json")
        head = "\r\n".join([*lines, f"Content-Length: {len(body)}"])
        writer.write(head.encode() + b"\r\n\r\n" + body)
        await app.begun.wait()  # type: ignore[attr-defined]
        writer.close()
        await app.cancelled.wait()  # type: ignore[attr-defined]


async def test_one_operation_too_many_is_answered_503() -> None:
    app = new_app()
    async with serving(app, max_operations=1) as listener:
        hanging = asyncio.create_task(post(listener, 'mutation { callTool(name: "hang") { isError } }'))
        await app.begun.wait()  # type: ignore[attr-defined]
        answer = await send(listener, json={"query": NAMES})
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert codes(answer.json()) == ["UNAVAILABLE"]
        hanging.cancel()
        await app.cancelled.wait()  # type: ignore[attr-defined]


async def test_a_running_operation_is_answered_when_the_server_stops() -> None:
    app = new_app()
    async with serving(app) as listener:
        hanging = asyncio.create_task(post(listener, 'mutation { callTool(name: "hang") { isError } }'))
        await app.begun.wait()  # type: ignore[attr-defined]
        await listener.close(grace=0.1)
        assert codes(await hanging) == ["INTERNAL_ERROR"]
