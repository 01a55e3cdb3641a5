"""The door of the stateless era: POST only, every request stands alone."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from ferrule import Context

VERSION_KEY = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES_KEY = "io.modelcontextprotocol/clientCapabilities"
LOG_KEY = "io.modelcontextprotocol/logLevel"
SUBSCRIPTION_KEY = "io.modelcontextprotocol/subscriptionId"

REMOVED = [
    *("initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"),
    *("tasks/result", "tasks/list", "nobody/knows"),
]


@pytest.mark.parametrize("method", REMOVED)
async def test_an_unknown_or_removed_method_is_404(endpoint: Any, app: Any, method: str) -> None:
    """HTM-14, HTM-15."""
    async with endpoint(app) as doors:
        answer = doors.client("stateless").ask(method, {"uri": "note://one", "level": "info"}, id="mine")
        assert (answer.status, answer.code, answer.body["id"]) == (404, -32601, "mine")


async def test_missing_metadata_is_400_with_invalid_params(endpoint: Any, app: Any) -> None:
    """HTM-11, HTM-15."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        for missing in (VERSION_KEY, CAPABILITIES_KEY):
            meta = {VERSION_KEY: client.version, CAPABILITIES_KEY: {}}
            del meta[missing]
            body = {"jsonrpc": "2.0", "id": 5, "method": "tools/list", "params": {"_meta": meta}}
            answer = client.send(body, **client.headers("tools/list"))
            assert (answer.status, answer.code, answer.body["id"]) == (400, -32602, 5)


@pytest.mark.parametrize(
    "change",
    [
        {"mcp-method": None},
        {"mcp-method": "tools/list"},
        {"mcp-method": "Tools/Call"},
        {"mcp-method": "tools/call, tools/call"},
        {"mcp-name": None},
        {"mcp-name": "rest"},
        {"mcp-name": "ECHO"},
        {"mcp-name": "=?base64?ZWNob?="},
        {"mcp-name": "=?base64?!!!?="},
        {"mcp-name": "echo, echo"},
        {"mcp-name": "\xe9cho"},
        {"mcp-protocol-version": "2025-11-25"},
    ],
)
async def test_headers_that_are_missing_malformed_or_different_are_400(endpoint: Any, app: Any, change: Any) -> None:
    """HTM-12, HTM-4, HDR-4, HDR-5, HDR-15, HTM-15: and nothing runs."""
    async with endpoint(app) as doors:
        answer = doors.client("stateless").call("echo", {"text": "x"}, id="mine", headers=change)
        assert (answer.status, answer.code, answer.body["id"]) == (400, -32020, "mine")


async def test_a_name_may_come_encoded(endpoint: Any, app: Any) -> None:
    """HDR-5."""
    async with endpoint(app) as doors:
        answer = doors.client("stateless").call("echo", {"text": "x"}, headers={"mcp-name": "=?base64?ZWNobw==?="})
        assert (await answer.whole()).text == "x"


async def test_without_the_version_header_a_marked_request_is_refused(endpoint: Any, app: Any) -> None:
    """HTM-12, HTM-17."""
    async with endpoint(app) as doors:
        answer = doors.client("stateless").ask("tools/list", headers={"mcp-protocol-version": None})
        assert (answer.status, answer.code) == (400, -32020)


async def test_an_unsupported_version_is_400_and_tells_the_supported_ones(endpoint: Any, app: Any) -> None:
    """HTM-13."""
    async with endpoint(app) as doors:
        for version in ("2099-01-01", "2025-11-25"):
            client = doors.client("stateless", version=version)
            answer = client.ask("tools/list")
            assert (answer.status, answer.code) == (400, -32022)
            supported = answer.body["error"]["data"]["supported"]
            assert supported[0] == "2026-07-28"
        assert doors.client("stateless").ask("server/discover").result()["supportedVersions"] == supported


async def test_a_missing_client_capability_is_400_and_named(endpoint: Any, app: Any) -> None:
    """HTM-13, HTM-16."""
    async with endpoint(app) as doors:
        answer = await doors.client("stateless").call("ask_name").whole()
        assert (answer.status, answer.code) == (400, -32021)
        assert answer.body["error"]["data"]["requiredCapabilities"] == {"elicitation": {"form": {}}}


async def test_a_question_is_asked_inside_the_result_and_never_as_a_request(endpoint: Any, app: Any) -> None:
    """HTM-5."""
    async with endpoint(app) as doors:
        client = doors.client("stateless", capabilities={"elicitation": {}})
        answer = (await client.call("ask_name").whole()).result()
        assert answer["resultType"] == "input_required"
        params = {
            "name": "ask_name",
            "arguments": {},
            "requestState": answer["requestState"],
            "inputResponses": {"name": {"action": "accept", "content": {"value": "Ada"}}},
        }
        assert (await client.ask("tools/call", params).whole()).text == "hello Ada"


async def test_session_and_resume_headers_are_ignored_and_none_is_sent(endpoint: Any, app: Any) -> None:
    """HTM-2."""
    async with endpoint(app) as doors:
        old = doors.client("handshake")
        client = doors.client("stateless")
        for session in ("x", old.session, ""):
            headers = {"mcp-session-id": session, "last-event-id": "y-1"}
            answer = await client.call("count", {"to": 2}, token=1, headers=headers).whole()
            assert answer.is_stream
            assert "mcp-session-id" not in answer.headers
            assert {event.id for event in answer.events} == {""}
            assert b"retry:" not in answer.content
            assert len(answer.messages) == 3


async def test_a_server_of_this_era_only_names_its_versions_to_a_client_that_initializes(
    endpoint: Any, workshop: Any
) -> None:
    """VER-11: the request has none of the headers, so the code is that of their check."""
    async with endpoint(workshop(versions=())) as doors:
        for headers in ({}, {"mcp-protocol-version": "2025-11-25"}):
            answer = doors.initialize(**headers)
            assert (answer.status, answer.code, answer.body["id"]) == (400, -32020, 0)
            assert answer.body["error"]["data"] == {"supported": ["2026-07-28"]}
            assert "2026-07-28" in answer.body["error"]["message"]


async def test_a_notification_whose_headers_do_not_fit_is_refused(endpoint: Any, app: Any) -> None:
    """HTM-12, HTTP-5: 400, with an error that has no id."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        message = {"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": {VERSION_KEY: client.version}}}
        fitting = {"mcp-protocol-version": client.version, "mcp-method": "notifications/x"}
        assert client.send(message, **fitting).status == 202
        for headers in (
            {**fitting, "mcp-method": "notifications/y"},
            {**fitting, "mcp-protocol-version": "2025-11-25"},
            {"mcp-method": "notifications/x"},
        ):
            answer = client.send(message, **headers)
            assert (answer.status, answer.code, "id" in answer.body) == (400, -32020, False)


@pytest.mark.parametrize(
    ("fault", "identity"),
    [({"jsonrpc": "1.0"}, 7), ({"jsonrpc": None}, 7), ({"id": None}, None), ({"id": 1.5}, None), ({"id": [1]}, None)],
)
async def test_what_is_no_message_is_said_to_be_none_whatever_its_headers(
    endpoint: Any, app: Any, fault: dict[str, Any], identity: int | None
) -> None:
    """FRM-11, HTM-12: never an empty 202, neither with fitting headers nor with others."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        params = {"name": "echo", "arguments": {"text": "x"}, "_meta": {VERSION_KEY: client.version}}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params} | fault
        message = {name: value for name, value in message.items() if name != "jsonrpc" or value is not None}
        fitting = client.headers("tools/call", params)
        others: list[dict[str, Any]] = [
            {"mcp-protocol-version": client.version},
            {**fitting, "mcp-method": "tools/list"},
            {**fitting, "mcp-name": "other"},
            {**fitting, "mcp-name": None},
        ]
        for headers in (fitting, *others):
            answer = client.send(message, **headers)
            assert (answer.status, answer.code, answer.body.get("id")) == (400, -32600, identity), headers


async def test_what_is_no_request_is_202_and_acts_on_nothing(endpoint: Any, app: Any) -> None:
    """HTM-3, HTTP-5: also without `Mcp-Method`, which only a request must have."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        running = client.call("hold", {"name": "a"}, id=1)
        await doors.settle()
        version = {"mcp-protocol-version": client.version}
        for message in (
            {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": 1, "result": {}},
            {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}},
        ):
            answer = client.send(message, **version)
            assert (answer.status, answer.content) == (202, b"")
        app.gate("a").set()
        assert (await running.whole()).text == "held a"


async def test_a_client_that_leaves_has_cancelled_its_one_request(endpoint: Any, app: Any) -> None:
    """HTM-8, CANC-7: work stops, nothing more is sent, and no other request is touched."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        leaving = [client.call("hold", {"name": f"l{tell}", "tell": tell}, token=1, id=1) for tell in (0, 1)]
        staying = client.call("hold", {"name": "s"}, id=1)
        await doors.settle()
        before = [answer.content for answer in leaving]
        for answer in leaving:
            answer.leave()
        await doors.settle()
        assert app.cancelled == ["l0", "l1"]
        await asyncio.sleep(60)
        assert [answer.content for answer in leaving] == before
        app.gate("s").set()
        assert (await staying.whole()).text == "held s"
        assert (await client.call("echo", {"text": "next"}, id=1).whole()).text == "next"


async def test_a_client_that_leaves_while_its_call_waits_in_line_is_never_served(endpoint: Any, workshop: Any) -> None:
    """HTM-8."""
    app = workshop(max_concurrent=1)
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        first, second, third = (client.call("hold", {"name": name}) for name in "abc")
        await doors.settle()
        assert app.begun == ["a"]
        second.leave()
        app.gate("a").set()
        app.gate("c").set()
        await first.whole()
        await third.whole()
        assert app.begun == ["a", "c"]


async def test_equal_ids_in_flight_are_nobodys_business_but_their_askers(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        answers = [client.call("hold", {"name": f"g{n}"}, id=1) for n in range(10)]
        await doors.settle()
        for n in reversed(range(10)):
            app.gate(f"g{n}").set()
        assert [(await answer.whole()).text for answer in answers] == [f"held g{n}" for n in range(10)]


async def test_log_messages_flow_only_where_the_request_asks_for_them(endpoint: Any, app: Any) -> None:
    """HTM-5."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")

        @app.tool
        async def talk(ctx: Context) -> str:
            await ctx.info("hello")
            return "done"

        loud = await client.ask("tools/call", {"name": "talk", "arguments": {}}, meta={LOG_KEY: "info"}).whole()
        quiet = await client.ask("tools/call", {"name": "talk", "arguments": {}}).whole()
        assert [m.get("method") for m in loud.messages] == ["notifications/message", None]
        assert not quiet.is_stream


# -- listening


@pytest.mark.parametrize("response", ["auto", "sse", "json"])
async def test_a_listen_is_a_stream_that_stays_open(endpoint: Any, app: Any, response: str) -> None:
    """SUB-5, HTM-7, HTM-10, SSEV-13."""
    async with endpoint(app, response=response) as doors:
        client = doors.client("stateless")
        wanted = {"toolsListChanged": True, "resourceSubscriptions": ["note://one"]}
        listening = client.ask("subscriptions/listen", {"notifications": wanted}, id="ear")
        await listening.said("notifications/subscriptions/acknowledged")
        counted = await client.call("count", {"to": 2}, token=1).whole()
        assert len(counted.messages) == (1 if response == "json" else 3)
        await asyncio.sleep(3600)
        app.notify_tools_changed()
        app.notify_resource_updated("note://one")
        await listening.said("notifications/resources/updated")
        assert [message["method"] for message in listening.messages] == [
            "notifications/subscriptions/acknowledged",
            "notifications/tools/list_changed",
            "notifications/resources/updated",
        ]
        assert {message["params"]["_meta"][SUBSCRIPTION_KEY] for message in listening.messages} == {"ear"}
        assert (listening.over, listening.is_stream) == (False, True)
        assert listening.writes.count(b":\n\n") >= 3600 / 15
        listening.leave()
        await doors.settle()
        assert len(app.host.services.subscriptions) == 0


async def test_draining_ends_a_listen_with_its_result(endpoint: Any, app: Any) -> None:
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        listening = client.ask("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        await listening.said("notifications/subscriptions/acknowledged")
        await doors.doors.drain(5)
        assert listening.over
        assert "result" in listening.messages[-1]


# -- mirrored arguments


MIRRORED = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "limit": {"type": "integer", "x-mcp-header": "Limit"},
        "dry": {"type": ["boolean", "null"], "x-mcp-header": "Dry"},
    },
    "required": ["region"],
}


@pytest.fixture
def mirroring(workshop: Any) -> Any:
    app = workshop()

    @app.tool(schema=MIRRORED)
    async def query(region: str, limit: int = 0, dry: bool | None = None) -> str:
        return f"{region} {limit} {dry}"

    return app


@pytest.mark.parametrize(
    ("arguments", "headers", "code"),
    [
        ({"region": "eu"}, {"region": "eu"}, None),
        ({"region": "eu", "limit": 5, "dry": False}, {"region": "eu", "limit": "5", "dry": "false"}, None),
        ({"region": "eu", "limit": 5}, {"region": "eu", "limit": "5.0"}, None),
        ({"region": "日本"}, {"region": "=?base64?5pel5pys?="}, None),
        ({"region": ""}, {"region": ""}, None),
        ({"region": "eu", "dry": None}, {"region": "eu"}, None),
        ({"region": "eu"}, {}, -32020),
        ({"region": "eu"}, {"region": "us"}, -32020),
        ({"region": "eu"}, {"region": "EU"}, -32020),
        ({"region": "eu"}, {"region": "=?base64?x?="}, -32020),
        ({"region": "eu"}, {"region": "\xe9u"}, -32020),
        ({"region": "eu", "limit": 5}, {"region": "eu", "limit": "6"}, -32020),
        ({"region": "eu", "limit": 5}, {"region": "eu"}, -32020),
        ({"region": "eu", "dry": True}, {"region": "eu", "dry": "True"}, -32020),
        ({"region": "eu", "dry": None}, {"region": "eu", "dry": "false"}, -32020),
    ],
)
async def test_arguments_and_the_headers_that_mirror_them_must_agree(
    endpoint: Any, mirroring: Any, arguments: Any, headers: Any, code: int | None
) -> None:
    """HDR-7, HDR-11, HTM-12."""
    async with endpoint(mirroring) as doors:
        given = {f"mcp-param-{name}": value for name, value in headers.items()}
        answer = await doors.client("stateless").call("query", arguments, headers=given).whole()
        assert (answer.status, answer.code) == ((200, None) if code is None else (400, code))


async def test_unknown_mirrored_headers_are_nobodys_business(endpoint: Any, mirroring: Any) -> None:
    """HDR-13."""
    async with endpoint(mirroring) as doors:
        answer = await doors.client("stateless").call("echo", {"text": "x"}, headers={"mcp-param-other": "y"}).whole()
        assert answer.text == "x"


async def test_in_the_handshake_era_headers_mirror_nothing(endpoint: Any, mirroring: Any) -> None:
    async with endpoint(mirroring) as doors:
        answer = await doors.client("handshake").call("query", {"region": "eu"}, headers={"mcp-name": "other"}).whole()
        assert answer.text.startswith("eu")


async def test_checks_that_have_a_status_come_before_the_stream(endpoint: Any, mirroring: Any) -> None:
    """HTM-16: whatever form answers have."""
    async with endpoint(mirroring, response="sse") as doors:
        client = doors.client("stateless")
        refused = [
            client.ask("nobody/knows"),
            client.call("query", {"region": "eu"}),
            client.ask("tools/list", headers={"mcp-method": "other"}),
            doors.client("stateless", version="2099-01-01").ask("tools/list"),
            doors.post(b"{", **client.headers("tools/list")),
        ]
        assert [answer.status for answer in refused] == [404, 400, 400, 400, 400]
        assert not any(answer.is_stream for answer in refused)
        assert (await client.call("echo", {"text": "x"}).whole()).is_stream


async def test_a_batch_is_refused(endpoint: Any, app: Any) -> None:
    """HTM-3."""
    async with endpoint(app) as doors:
        client = doors.client("stateless")
        meta = {VERSION_KEY: client.version, CAPABILITIES_KEY: {}}
        one = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}}
        for headers in ({}, client.headers("tools/list")):
            answer = doors.post(json.dumps([one, one]).encode(), **headers)
            assert (answer.status, answer.code) == (400, -32600)
