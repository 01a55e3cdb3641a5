"""What GraphQL offers of a server, driven by the client `gql`."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from gql import Client, GraphQLRequest, gql
from gql.transport.exceptions import TransportQueryError
from gql.transport.httpx import HTTPXAsyncTransport
from gql.transport.websockets import WebsocketsTransport
from graphql_desk import codes, new_app, post, serving

from ferrule import Graphql, Middleware, Principal, RequestFacts, Server, Unauthorized, Verifier


def http(listener: Graphql) -> Client:
    """Make a client over HTTP."""
    return Client(transport=HTTPXAsyncTransport(url=listener.url))


def socket(listener: Graphql) -> Client:
    """Make a client over WebSocket."""
    return Client(transport=WebsocketsTransport(url=listener.url.replace("http://", "ws://")))


async def test_a_query_lists_tools_and_resources_and_a_mutation_calls_a_tool() -> None:
    """OTHT-02: POST /graphql with a query of tools and resources, and a mutation that calls a tool."""
    async with serving() as listener, http(listener) as client:
        listed = await client.execute(
            gql("{ tools { items { name inputSchema } nextCursor } resources { items { uri mimeType } } }")
        )
        assert [tool["name"] for tool in listed["tools"]["items"]] == ["add", "fail", "hang", "who", "long"]
        assert listed["tools"]["items"][0]["inputSchema"]["required"] == ["a", "b"]
        assert listed["tools"]["nextCursor"] is None
        assert [each["uri"] for each in listed["resources"]["items"]] == ["note://today", "note://broken"]
        called = await client.execute(
            GraphQLRequest(
                'mutation ($of: JSON) { callTool(name: "add", arguments: $of) '
                "{ content { type text } structuredContent isError } }",
                variable_values={"of": {"a": 1, "b": 2}},
            )
        )
        assert called["callTool"] == {
            "content": [{"type": "text", "text": "3"}],
            "structuredContent": {"result": 3},
            "isError": False,
        }


async def test_arguments_may_be_written_into_the_document() -> None:
    async with serving() as listener:
        answer = await post(
            listener, 'mutation { callTool(name: "add", arguments: {a: 4, b: -1}) { structuredContent } }'
        )
        assert answer == {"data": {"callTool": {"structuredContent": {"result": 3}}}}


async def test_templates_prompts_and_contents_are_there() -> None:
    query = """{
      server { supportedVersions capabilities }
      resourceTemplates { items { uriTemplate name } }
      prompts { items { name arguments { name required } } }
      readResource(uri: "note://monday") { contents { uri text blob } }
      getPrompt(name: "greet", arguments: {name: "Ada"}) { messages { role content { type text } } }
    }"""
    async with serving() as listener:
        data = (await post(listener, query))["data"]
        assert "tools" in data["server"]["capabilities"]
        assert data["resourceTemplates"]["items"] == [{"uriTemplate": "note://{day}", "name": "note"}]
        assert data["prompts"]["items"] == [{"name": "greet", "arguments": [{"name": "name", "required": True}]}]
        assert data["readResource"]["contents"] == [{"uri": "note://monday", "text": "monday", "blob": None}]
        message = data["getPrompt"]["messages"][0]
        assert message == {"role": "user", "content": {"type": "text", "text": "Say hello to Ada"}}


async def test_a_list_is_read_page_by_page() -> None:
    async with serving(new_app(page_size=3)) as listener:
        query = "query ($at: String) { tools(cursor: $at) { items { name } nextCursor } }"
        first = (await post(listener, query))["data"]["tools"]
        second = (await post(listener, query, at=first["nextCursor"]))["data"]["tools"]
        assert [len(first["items"]), len(second["items"])] == [3, 2]
        assert second["nextCursor"] is None


async def test_bytes_are_base64() -> None:
    app = Server("bytes")

    @app.resource("raw://x")
    def raw() -> bytes:
        return b"\0\1"

    async with serving(app) as listener:
        answer = await post(listener, '{ readResource(uri: "raw://x") { contents { text blob } } }')
        (contents,) = answer["data"]["readResource"]["contents"]
        assert base64.b64decode(contents["blob"]) == b"\0\1"


async def test_a_failed_tool_is_a_result_and_a_refused_call_an_error() -> None:
    async with serving() as listener:
        answer = await post(listener, 'mutation { callTool(name: "fail") { isError content { text } } }')
        assert answer["data"]["callTool"] == {"isError": True, "content": [{"text": "out of paper"}]}
        answer = await post(listener, 'mutation { callTool(name: "none") { isError } }')
        assert answer["data"] is None
        assert codes(answer) == ["INVALID_PARAMS"]
        assert answer["errors"][0]["path"] == ["callTool"]
        assert answer["errors"][0]["extensions"]["number"] == -32602


async def test_what_a_handler_raises_is_masked() -> None:
    async with serving() as listener:
        answer = await post(listener, '{ readResource(uri: "note://broken") { contents { text } } }')
        assert codes(answer) == ["INTERNAL_ERROR"]
        assert "secret" not in str(answer)


async def test_calls_of_a_mutation_run_one_after_another() -> None:
    app = Server("order")
    running = 0
    most = 0

    @app.tool
    async def step() -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1
        return most

    async with serving(app) as listener:
        await post(listener, 'mutation { a: callTool(name: "step") { isError } b: callTool(name: "step") { isError } }')
    assert most == 1


async def test_middleware_and_visibility_hold() -> None:
    seen: list[str] = []

    class Counting(Middleware):
        async def on_call_tool(self, call: Any, proceed: Any) -> Any:
            seen.append(call.origin.carrier)
            return await proceed(call)

    app = new_app(middleware=[Counting()])

    @app.visible
    def hidden(ctx: Any, offer: Any) -> bool:
        return offer.name != "fail"

    async with serving(app) as listener:
        answer = await post(listener, "{ tools { items { name } } }")
        assert "fail" not in [tool["name"] for tool in answer["data"]["tools"]["items"]]
        assert codes(await post(listener, 'mutation { callTool(name: "fail") { isError } }')) == ["INVALID_PARAMS"]
    assert seen == ["graphql"]


async def test_a_subscription_hears_of_a_resource() -> None:
    app = new_app()
    async with serving(app) as listener, socket(listener) as client:
        events = client.subscribe(gql('subscription { resourceUpdated(uris: ["note://today"]) { uri } }'))
        heard = asyncio.ensure_future(anext(events))
        subscriptions = app.host.services.subscriptions
        while not len(subscriptions):
            await asyncio.sleep(0.01)
        app.notify_resource_updated("note://today")
        assert await heard == {"resourceUpdated": {"uri": "note://today"}}
        await events.aclose()
        while len(subscriptions):
            await asyncio.sleep(0.01)


async def test_a_subscription_hears_of_a_list() -> None:
    app = new_app()
    async with serving(app) as listener, socket(listener) as client:
        events = client.subscribe(gql("subscription { listChanged(lists: [TOOLS]) { list } }"))
        heard = asyncio.ensure_future(anext(events))
        while not len(app.host.services.subscriptions):
            await asyncio.sleep(0.01)
        app.add_tool("one_more", lambda: "")
        assert await asyncio.wait_for(heard, 5) == {"listChanged": {"list": "TOOLS"}}


async def test_queries_and_mutations_run_over_the_websocket_too() -> None:
    async with serving() as listener, socket(listener) as client:
        answer = await client.execute(
            gql('mutation { callTool(name: "add", arguments: {a: 1, b: 1}) { structuredContent } }')
        )
        assert answer == {"callTool": {"structuredContent": {"result": 2}}}
        with pytest.raises(TransportQueryError, match="INVALID_PARAMS"):
            await client.execute(gql('{ readResource(uri: "nothing://") { contents { text } } }'))


async def test_introspection_is_off_and_can_be_switched_on() -> None:
    query = "{ __schema { queryType { name } } }"
    async with serving() as listener:
        assert set(codes(await post(listener, query))) == {"GRAPHQL_VALIDATION_FAILED"}
        assert (await post(listener, "{ __typename }"))["data"] == {"__typename": "Query"}
    async with serving(introspection=True) as listener:
        assert (await post(listener, query))["data"] == {"__schema": {"queryType": {"name": "Query"}}}
        transport = HTTPXAsyncTransport(url=listener.url)
        async with Client(transport=transport, fetch_schema_from_transport=True) as session:
            assert session.client.schema is not None
            assert session.client.schema.get_type("Tool") is not None


async def test_the_caller_is_who_the_verifier_says() -> None:
    class Tokens(Verifier):
        def verify(self, facts: RequestFacts) -> Any:
            if facts.headers.get("authorization") != "Bearer ada":
                return Unauthorized("no token")
            assert facts.transport in ("graphql", "websocket")
            return Principal(issuer="tests", subject="ada")

    call = 'mutation { callTool(name: "who") { content { text } } }'
    async with serving(new_app(auth=Tokens())) as listener:
        answer = await post(listener, call)
        assert answer["error"]["message"] == "no token"
        transport = HTTPXAsyncTransport(url=listener.url, headers={"authorization": "Bearer ada"})
        async with Client(transport=transport) as session:
            assert (await session.execute(gql(call)))["callTool"]["content"][0]["text"] == "graphql tests#ada"
        url = listener.url.replace("http://", "ws://")
        async with Client(transport=WebsocketsTransport(url=url, headers={"authorization": "Bearer ada"})) as session:
            assert (await session.execute(gql(call)))["callTool"]["content"][0]["text"] == "graphql tests#ada"
