"""Scopes over HTTP, in both eras, on our engine and under ASGI: refused before anything runs, and step-up works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from identity_desk import HTTP_WAYS
from identity_wire import Wire
from protected_desk import TOKENS, ask, asking, bearer, protected, served, session_headers

from ferrule import Server
from ferrule.auth.challenge import read_challenges
from ferrule.auth.server.static_tokens import StaticTokens
from ferrule.server.middleware.cache import Caching

NEEDING_MORE: dict[str, tuple[str, dict[str, Any]]] = {
    "tool": ("tools/call", {"name": "save", "arguments": {}}),
    "resource": ("resources/read", {"uri": "notes://secret"}),
    "template": ("resources/read", {"uri": "notes://x/page"}),
    "prompt": ("prompts/get", {"name": "letter", "arguments": {"to": "bob"}}),
    "completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "to", "value": "b"}},
    ),
}


@pytest.fixture(params=HTTP_WAYS, ids=" ".join)
def http_way(request: pytest.FixtureRequest) -> tuple[str, str]:
    way, era = request.param
    return way, era


@pytest.mark.parametrize("what", NEEDING_MORE)
async def test_what_needs_more_is_refused_with_what_it_needs_and_done_after_step_up(
    what: str, http_way: tuple[str, str], tmp_path: Path
) -> None:
    """AUT-05, AUTH-5, AUTH-6, SPEC-23: 403 with the scopes of the operation, then the same with a better token."""
    way, era = http_way
    app, ran = protected()
    app.completion("letter.to")(lambda value: ["bob"])
    method, params = NEEDING_MORE[what]
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        refused = await ask(wire, method, params, era, headers)
        assert refused.status == 403, refused.body
        (challenge,) = read_challenges(refused.headers["www-authenticate"])
        assert (challenge.error, challenge.scopes) == ("insufficient_scope", ["notes", "write"])
        assert challenge.parameters["resource_metadata"].endswith("/.well-known/oauth-protected-resource/mcp")
        assert refused.json["id"] == 1
        assert refused.json["error"]["data"] == {"requiredScopes": ["write"]}
        assert ran.names == []
        granted = await ask(wire, method, params, era, {**headers, **bearer("ada-writes")})
        assert granted.status == 200, granted.body
        assert "result" in granted.json
        await wire.close()


async def test_what_is_hidden_does_not_exist_for_those_without_its_scopes(
    http_way: tuple[str, str], tmp_path: Path
) -> None:
    way, era = http_way
    app, ran = protected()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        for token, names in (("ada", ["whoami", "save"]), ("bob", ["whoami", "save", "erase"])):
            headers = await session_headers(wire, era, token)
            listed = await ask(wire, "tools/list", {}, era, headers)
            assert [tool["name"] for tool in listed.json["result"]["tools"]] == names
        headers = await session_headers(wire, era, "ada")
        hidden = await ask(wire, "tools/call", {"name": "erase", "arguments": {}}, era, headers)
        absent = await ask(wire, "tools/call", {"name": "nosuch", "arguments": {}}, era, headers)
        assert hidden.status == absent.status
        assert hidden.json["error"]["message"].replace("erase", "nosuch") == absent.json["error"]["message"]
        assert ran.names == []
        await wire.close()


async def test_a_token_without_the_servers_scopes_is_refused_before_its_body_is_read(
    http_way: tuple[str, str], tmp_path: Path
) -> None:
    way, _ = http_way
    app, ran = protected()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        refused = await wire.ask({"not": "a request"}, **bearer("poor"))
        assert refused.status == 403
        (challenge,) = read_challenges(refused.headers["www-authenticate"])
        assert (challenge.error, challenge.scopes) == ("insufficient_scope", ["notes"])
        assert ran.names == []
        await wire.close()


EVASIONS: dict[str, dict[str, Any]] = {
    "other case": {"name": "SAVE"},
    "prefix": {"name": "notes_save"},
    "blank": {"name": "save "},
    "NUL": {"name": "save\0"},
    "look-alike": {"name": "s\u0430ve"},
    "fullwidth": {"name": "\uff53ave"},
    "soft hyphen": {"name": "sa\u00adve"},
    "combining": {"name": "save\u0301"},
    "path": {"name": "./save"},
    "list": {"name": ["save"]},
    "itself": {"name": "save"},
}


@pytest.mark.parametrize("evasion", EVASIONS)
async def test_no_spelling_of_a_name_runs_what_needs_more(
    evasion: str, http_way: tuple[str, str], tmp_path: Path
) -> None:
    """AUT-15: the policy and the execution look at the same name."""
    way, era = http_way
    app, ran = protected()
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        body, own = asking("tools/call", {**EVASIONS[evasion], "arguments": {}}, era)
        own["Mcp_Name"] = "whoami"
        answers = [await wire.ask(body, **{**own, **headers})]
        own["Mcp_Name"] = "save"
        answers.append(await wire.ask(body, **{**own, **headers}))
        for answer in answers:
            assert "result" not in answer.json or answer.json["result"]["isError"]
        assert ran.names == []
        await wire.close()


async def test_duplicate_keys_run_nothing_that_needs_more(tmp_path: Path) -> None:
    """AUT-15."""
    app, ran = protected()
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        session = await wire.session(**bearer("ada"))
        body = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"whoami","name":"save","arguments":{}}}'
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nAuthorization: Bearer ada\r\n"
            f"Accept: application/json, text/event-stream\r\nMcp-Session-Id: {session}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        wire.writer.write(head.encode() + body)
        answer = await wire.read()
        assert answer.status in (200, 400, 403)
        assert "save" not in ran.names
        await wire.close()


async def test_of_a_batch_only_what_is_allowed_runs(tmp_path: Path) -> None:
    """AUT-15."""
    app, ran = protected(allow_batch=True)
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, "handshake", "ada")
        calls = [
            asking("tools/call", {"name": name, "arguments": {}}, "handshake", at)[0]
            for at, name in enumerate(["whoami", "save"])
        ]
        answer = await wire.ask(calls, Mcp_Protocol_Version="2025-03-26", **headers)
        assert answer.status == 200, answer.body
        by_id = {each["id"]: each for each in answer.json}
        assert "result" in by_id[0]
        assert by_id[1]["error"]["data"] == {"requiredScopes": ["write"]}
        assert ran.names == ["whoami"]
        await wire.close()


async def test_what_is_cached_for_a_caller_is_not_given_to_it_with_fewer_rights(
    http_way: tuple[str, str], tmp_path: Path
) -> None:
    """The same principal, another token: a cache in between is not asked before the scopes are looked at."""
    way, era = http_way
    app, ran = protected(middleware=[Caching(tools=["save"], ttl=60.0)])
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada-writes")
        for _ in range(2):
            assert (await ask(wire, "tools/call", {"name": "save", "arguments": {}}, era, headers)).status == 200
        assert ran.names == ["save"]
        refused = await ask(wire, "tools/call", {"name": "save", "arguments": {}}, era, {**headers, **bearer("ada")})
        assert refused.status == 403
        await wire.close()


async def test_a_layer_that_puts_in_another_name_runs_nothing_that_needs_more(
    http_way: tuple[str, str], tmp_path: Path
) -> None:
    """AUT-15: whoever runs a tool looks again."""
    from msgspec import structs

    way, era = http_way

    async def renames(call: Any, proceed: Any) -> Any:
        if call.method == "tools/call":
            call.params = structs.replace(call.params, name="save")
        return await proceed(call)

    app, ran = protected(middleware=[renames])
    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        refused = await ask(wire, "tools/call", {"name": "whoami", "arguments": {}}, era, headers)
        assert (refused.status, ran.names) == (403, [])
        await wire.close()


async def test_what_is_mounted_needs_its_scopes_where_it_is_mounted(http_way: tuple[str, str], tmp_path: Path) -> None:
    way, era = http_way
    child, ran = protected()
    app = Server("host", version="1", auth=StaticTokens(TOKENS))
    app.mount(child, prefix="n")
    later = Server("later", version="1")
    app.mount(later, prefix="l")

    @later.tool(scopes=["write"])
    async def added() -> str:
        ran.names.append("added")
        return "x"

    async with served(app, way, tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, era, "ada")
        for name in ("n_save", "l_added"):
            refused = await ask(wire, "tools/call", {"name": name, "arguments": {}}, era, headers)
            assert refused.status == 403, refused.body
        assert (await ask(wire, "resources/read", {"uri": "notes://n/secret"}, era, headers)).status == 403
        assert ran.names == []
        granted = await ask(
            wire, "tools/call", {"name": "n_save", "arguments": {}}, era, {**headers, **bearer("ada-writes")}
        )
        assert granted.text == "saved"
        await wire.close()


async def test_a_task_that_needs_more_is_not_begun(tmp_path: Path) -> None:
    app, ran = protected()

    @app.tool(scopes=["write"], task=True)
    async def grind() -> str:
        ran.names.append("grind")
        return "x"

    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, "handshake", "ada")
        params = {"name": "grind", "arguments": {}, "task": {"ttl": 60000}}
        refused = await ask(wire, "tools/call", params, "handshake", headers)
        assert (refused.status, ran.names) == (403, [])
        await wire.close()


async def test_a_subscription_to_what_needs_more_is_refused(tmp_path: Path) -> None:
    app, _ = protected()
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        headers = await session_headers(wire, "handshake", "ada")
        refused = await ask(wire, "resources/subscribe", {"uri": "notes://secret"}, "handshake", headers)
        assert refused.status == 403
        granted = {**headers, **bearer("ada-writes")}
        assert (await ask(wire, "resources/subscribe", {"uri": "notes://secret"}, "handshake", granted)).status == 200
        await wire.close()


async def test_a_server_without_auth_lets_no_stranger_use_what_needs_scopes(tmp_path: Path) -> None:
    app = Server("open", version="1")

    @app.tool(scopes=["write"])
    async def save() -> str:
        return "saved"

    assert (await app.call_tool("save")).text == "saved"
    async with served(app, "engine", tmp_path) as place:
        wire = await Wire.reach(place.url)
        answer = await ask(wire, "tools/call", {"name": "save", "arguments": {}}, "stateless", {})
        assert answer.status == 403
        await wire.close()
