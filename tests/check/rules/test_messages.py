"""Each rule is broken once, by a server that is right in all else, and found by its own name."""

from __future__ import annotations

from typing import Any

import pytest
from checked import check, findings, named
from plain_server import CAPABILITIES, META, TOOLS, Change, Json, PlainServer

from ferrule.check.era import HANDSHAKE, STATELESS, Era
from ferrule.check.table import RULES
from ferrule.errors import LinkLost

H, S = HANDSHAKE, STATELESS


def error(code: int) -> Change:
    return lambda message, answer: {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": code, "message": "no"}}


def result(**members: Any) -> Change:
    """Put members into a result; None takes one away."""

    def change(message: Json, answer: Json) -> Json:
        kept = {key: value for key, value in {**answer.get("result", {}), **members}.items() if value is not None}
        return {"jsonrpc": "2.0", "id": answer["id"], "result": kept}

    return change


def tool(**members: Any) -> Change:
    return result(tools=[{**TOOLS[0], **members}])


def silent(message: Json, answer: Any) -> None:
    return None


def id_as_text(message: Json, answer: Any) -> Any:
    return {**answer, "id": str(answer["id"])} if isinstance(answer, dict) and "id" in message else answer


def answers_notifications(message: Json, answer: Any) -> Any:
    if "id" in message or not str(message.get("method")).startswith("notifications/ferrule"):
        return answer
    return {"jsonrpc": "2.0", "id": None, "error": {"code": -32601, "message": "no"}}


def without_version(message: Json, answer: Any) -> Any:
    return {key: value for key, value in answer.items() if key != "jsonrpc"} if isinstance(answer, dict) else answer


def asks(method: str) -> Change:
    """Ask the client something before the answer."""
    question = {"jsonrpc": "2.0", "id": "q", "method": method}
    return lambda message, answer: (question, answer)


def tells(method: str) -> Change:
    return lambda message, answer: ({"jsonrpc": "2.0", "method": method, "params": {}}, answer)


def second_time_reversed() -> Change:
    calls: list[int] = []

    def change(message: Json, answer: Json) -> Json:
        calls.append(1)
        tools = answer["result"]["tools"]
        return {**answer, "result": {**answer["result"], "tools": tools[:: 1 if len(calls) == 1 else -1]}}

    return change


def pages_for_ever(message: Json, answer: Json) -> Json:
    return {**answer, "result": {**answer.get("result", {"tools": []}), "nextCursor": "again"}} if answer else answer


def refuses_as(code: int) -> Change:
    return lambda message, answer: error(code)(message, answer) if "error" in answer else answer


def of_cursor(change: Change) -> Change:
    return lambda message, answer: change(message, answer) if "cursor" in message.get("params", {}) else answer


def of_tool(name: str, change: Change) -> Change:
    return lambda message, answer: change(message, answer) if message["params"]["name"] == name else answer


CALL = "tools/call"
NO_TEXT = {"type": "image", "data": "!!", "mimeType": "image/png"}

BROKEN: list[tuple[str, Era, str, dict[str, Change]]] = [
    ("fail", H, "lifecycle/initialize-result", {"initialize": result(serverInfo={"name": "plain"})}),
    ("fail", H, "lifecycle/unknown-version", {"initialize": result(protocolVersion="1999-01-01")}),
    ("fail", H, "lifecycle/ping", {"ping": error(-32601)}),
    ("warn", H, "lifecycle/stateless-version", {"initialize": result(protocolVersion="2026-07-28")}),
    ("fail", H, "lifecycle/declared-answered", {"prompts/list": error(-32601)}),
    ("fail", S, "lifecycle/declared-answered", {"tools/list": result(tools="none")}),
    ("fail", H, "lifecycle/offered-declared", {"initialize": result(capabilities={})}),
    ("fail", S, "lifecycle/offered-declared", {"server/discover": result(capabilities={})}),
    ("fail", H, "tools/list-shape", {"tools/list": result(tools=[{"name": ""}])}),
    ("warn", H, "tools/names", {"tools/list": tool(name="has space")}),
    ("warn", S, "tools/unique-names", {"tools/list": result(tools=[TOOLS[0], TOOLS[0]])}),
    ("fail", H, "tools/input-schema", {"tools/list": tool(inputSchema={"type": "string"})}),
    ("fail", S, "tools/input-schema", {"tools/list": tool(inputSchema={"type": "object", "required": "a"})}),
    ("fail", H, "tools/output-schema", {"tools/list": tool(outputSchema={"type": "array"})}),
    ("fail", H, "tools/annotations", {"tools/list": tool(annotations={"readOnlyHint": "yes"})}),
    ("warn", S, "tools/stable-order", {"tools/list": second_time_reversed()}),
    ("warn", H, "tools/unknown-tool", {CALL: result(content=[], isError=True)}),
    ("fail", H, "tools/missing-arguments", {CALL: of_tool("pick", result(isError=None))}),
    ("fail", H, "tools/result-shape", {CALL: of_tool("sum", result(content=[NO_TEXT]))}),
    ("fail", S, "tools/result-shape", {CALL: of_tool("sum", result(content=None))}),
    ("fail", H, "tools/structured-content", {CALL: of_tool("sum", result(structuredContent={"sum": "3"}))}),
    ("fail", S, "tools/structured-content", {CALL: of_tool("sum", result(structuredContent=None))}),
    ("warn", H, "tools/structured-text", {CALL: of_tool("sum", result(content=[]))}),
    (
        "fail",
        S,
        "tools/header-annotations",
        {
            "tools/list": tool(
                inputSchema={"type": "object", "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
            )
        },
    ),
    ("fail", H, "resources/list-shape", {"resources/list": result(resources=[{"uri": "one.txt", "name": "one"}])}),
    (
        "fail",
        H,
        "resources/templates-shape",
        {"resources/templates/list": result(resourceTemplates=[{"uriTemplate": "a://{b c}", "name": "a"}])},
    ),
    ("warn", H, "resources/unknown", {"resources/read": error(0)}),
    ("fail", S, "resources/unknown", {"resources/read": result(contents=[])}),
    ("fail", H, "resources/read", {"resources/read": result(contents=[{"uri": "note://one", "blob": "no base64"}])}),
    ("fail", H, "resources/subscribe", {"resources/subscribe": error(-32601)}),
    ("fail", H, "prompts/list-shape", {"prompts/list": result(prompts=[{"name": "a", "arguments": [{}]}])}),
    ("warn", H, "prompts/unknown", {"prompts/get": error(0)}),
    ("warn", S, "prompts/missing-arguments", {"prompts/get": of_tool("greet", error(-32603))}),
    ("fail", H, "prompts/messages", {"prompts/get": of_tool("hello", result(messages=[{"role": "system"}]))}),
    ("fail", H, "completion/values", {"completion/complete": result(completion={"values": ["a"] * 101})}),
    ("warn", H, "completion/unknown-reference", {"completion/complete": result(completion={"values": []})}),
    ("fail", H, "pagination/ends", {"tools/list": pages_for_ever}),
    ("warn", S, "pagination/unknown-cursor", {"tools/list": of_cursor(result(tools=[], resultType="complete"))}),
    ("fail", H, "logging/level", {"logging/setLevel": error(-32603)}),
    ("warn", H, "logging/unknown-level", {"logging/setLevel": result()}),
    ("fail", S, "logging/declared", {"tools/list": tells("notifications/message")}),
    ("warn", H, "messages/unknown-method", {"ferrule/no-such-method": error(-32602)}),
    ("warn", S, "messages/unknown-method", {"ferrule/no-such-method": error(-32602)}),
    ("fail", H, "messages/id-echo", {"*": id_as_text}),
    ("fail", H, "messages/notification-unanswered", {"*": answers_notifications}),
    ("warn", H, "messages/parse-error", {"!garbage": error(-32600)}),
    ("fail", H, "messages/batch", {"!batch": error(-32600)}),
    ("warn", S, "messages/unknown-members", {"tools/list": error(-32602)}),
    ("fail", H, "messages/version", {"tools/list": without_version}),
    ("fail", H, "messages/result-or-error", {"ping": lambda m, a: {**a, "result": []}}),
    ("fail", H, "messages/error-shape", {"prompts/get": lambda m, a: {**a, "error": {"code": "x", "message": "y"}}}),
    ("fail", H, "messages/known-ids", {"tools/list": lambda m, a: ({**a, "id": "nobody"}, a)}),
    ("fail", S, "messages/reserved-codes", {"prompts/get": error(-32042)}),
    ("fail", H, "messages/requests-declared", {"tools/list": asks("roots/list")}),
    ("fail", S, "messages/requests-declared", {"tools/list": asks("ping")}),
    ("fail", S, "stateless/discover", {"server/discover": result(capabilities={"tools": {"listChanged": "yes"}})}),
    ("warn", S, "stateless/server-info", {"server/discover": result(_meta=None)}),
    ("fail", S, "stateless/result-type", {"tools/list": result(resultType=None)}),
    ("fail", S, "stateless/cache-hints", {"tools/list": result(ttlMs=-1)}),
    ("fail", S, "stateless/unsupported-version", {"*": refuses_as(-32602)}),
    ("warn", S, "stateless/removed-methods", {"ping": result()}),
]
NEEDS = {
    "messages/version": ("tools",),
    "messages/result-or-error": ("lifecycle/ping",),
    "messages/error-shape": ("prompts",),
    "messages/known-ids": ("tools",),
    "messages/reserved-codes": ("prompts",),
    "messages/requests-declared": ("tools",),
    "logging/declared": ("tools",),
    "stateless/result-type": ("tools",),
}
"""Rules on everything that was said need others that make the server say something."""


@pytest.mark.parametrize(("outcome", "era", "rule", "changes"), BROKEN, ids=[f"{b[2]} {b[1]}" for b in BROKEN])
async def test_a_broken_rule_is_found(outcome: str, era: Era, rule: str, changes: dict[str, Change]) -> None:
    async with PlainServer(changes).on_tcp() as address:
        report = await check(address, rule, *NEEDS.get(rule, ()), eras=(era,), seconds=5.0)
    assert f"{outcome} {rule}" in named(report)


async def test_a_server_that_keeps_every_rule_has_no_findings_and_no_tool_is_called_that_may_change_something() -> None:
    server = PlainServer()
    async with server.on_tcp() as address:
        report = await check(address)
    assert findings(report) == []
    looked = {finding.rule for finding in report.findings if finding.outcome == "pass"}
    assert looked >= {rule for _, _, rule, _ in BROKEN}
    assert set(server.called) == {"sum", "pick", "ferrule-check-no-such-tool"}
    assert {era.version for era in report.eras} == {"2025-11-25", "2026-07-28"}


async def test_a_tool_that_is_named_is_called() -> None:
    server = PlainServer()
    async with server.on_tcp() as address:
        await check(address, "tools/result-shape", eras=(HANDSHAKE,), calls={"drop": {}})
    assert server.called == ["sum", "drop"]


def test_every_rule_of_messages_is_broken_by_a_test() -> None:
    """But those of HTTP and of processes, which have tests of their own, and the last question."""
    tried = {rule for _, _, rule, _ in BROKEN}
    elsewhere = {"lifecycle/older-version", "lifecycle/early-request", "lifecycle/end", "stateless/versions-agree"}
    elsewhere |= {"stateless/missing-metadata", "stateless/client-info-optional"}
    assert [rule.id for rule in RULES if rule.area not in ("http", "stdio") and rule.id not in tried | elsewhere] == []


def requires(member: str, *, wanted: bool) -> Change:
    """Refuse a request that has, or has not, a member of its metadata."""

    def change(message: Json, answer: Json) -> Json:
        if (f"{META}{member}" in message["params"]["_meta"]) is wanted:
            return answer
        return error(-32602)(message, answer) if wanted else {**answer, "result": {"capabilities": CAPABILITIES}}

    return change


async def test_metadata_is_required_where_it_must_be_and_only_there() -> None:
    async with PlainServer({"server/discover": requires("clientInfo", wanted=True)}).on_tcp() as address:
        report = await check(address, "stateless", eras=(STATELESS,))
    assert "fail stateless/client-info-optional" in named(report)


async def test_a_server_that_forgets_its_version_is_found() -> None:
    asked: list[int] = []

    def older_each_time(message: Json, answer: Json) -> Json:
        asked.append(1)
        return {
            **answer,
            "result": {**answer["result"], "protocolVersion": ["2025-11-25", "2025-06-18"][len(asked) - 1]},
        }

    async with PlainServer({"initialize": older_each_time}).on_tcp() as address:
        report = await check(address, "lifecycle/older-version", eras=(HANDSHAKE,))
    assert named(report) == ["fail lifecycle/older-version"]


async def test_what_no_era_is_spoken_by_is_told_in_one_sentence() -> None:
    async with PlainServer({"*": error(-32601)}).on_tcp() as address:
        with pytest.raises(LinkLost, match=r"cannot be checked: handshake: initialize was answered .*; stateless: "):
            await check(address)
