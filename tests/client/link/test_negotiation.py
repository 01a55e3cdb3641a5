"""Settling the era: every way a server can answer the probe, and every way the handshake can go."""

from __future__ import annotations

import asyncio
import json
import sys

import msgspec
import pytest

from ferrule import Client
from ferrule.client.link import negotiation
from ferrule.errors import (
    ChildFailed,
    InitializeFailed,
    InitializeTimedOut,
    NotConnected,
    SetupError,
    VersionMismatch,
)
from ferrule.protocol.handshake import REVISIONS
from ferrule.protocol.session import Phase
from ferrule.testing import Recorder, pair
from ferrule.transports.memory import Memory

META = "io.modelcontextprotocol/"
STATELESS = "2026-07-28"
NEWEST = "2025-11-25"


def now() -> float:
    return asyncio.get_running_loop().time()


# The probe


async def test_a_server_that_discovers_itself_is_spoken_to_in_the_stateless_era(raw):
    """COMPAT-2: the probe comes first, and no handshake follows."""
    server = raw("stateless")
    async with Client(server) as client:
        assert client.protocol_version == STATELESS
        assert client.server_info.name == "raw"
        assert client.phase is Phase.INITIALIZED
    assert [message["method"] for message in server.received] == ["server/discover"]


def unsupported(*versions):
    return {"code": -32022, "data": {"supported": list(versions), "requested": STATELESS}}


HANDSHAKE_SERVERS = {
    "discovers only handshake versions": {"result": {"supportedVersions": [NEWEST], "capabilities": {}}},
    "names only handshake versions": unsupported(NEWEST, "2024-11-05"),
    "refuses our version and names none": {"code": -32022},
    "names versions that are no list": {"code": -32022, "data": {"supported": NEWEST}},
    "does not know the method": {"code": -32601},
    "misses a handshake": {"code": -32600},
    "dislikes the params": {"code": -32602},
    "fails": {"code": -32603},
    "has an error of its own": {"code": -32000, "data": "odd"},
    "has an error with a positive number": {"code": 1},
    "complains of a header": {"code": -32020},
    "answers something else": {"result": {}},
    "answers with malformed versions": {"result": {"supportedVersions": "all", "capabilities": {}}},
    "answers with malformed capabilities": {"result": {"supportedVersions": [STATELESS], "capabilities": {"tools": 7}}},
}


def as_answer(verdict, refused):
    return verdict["result"] if "result" in verdict else refused(verdict["code"], "no", verdict.get("data"))


@pytest.mark.parametrize("verdict", HANDSHAKE_SERVERS.values(), ids=HANDSHAKE_SERVERS)
async def test_anything_but_a_stateless_answer_leads_to_the_handshake(verdict, raw, refused):
    """COMPAT-2: no single error number decides."""
    server = raw("handshake", {"server/discover": as_answer(verdict, refused)})
    async with Client(server) as client:
        assert client.protocol_version == NEWEST
    assert [m["method"] for m in server.received] == ["server/discover", "initialize", "notifications/initialized"]


@pytest.mark.parametrize("verdict", HANDSHAKE_SERVERS.values(), ids=HANDSHAKE_SERVERS)
async def test_a_client_of_the_stateless_era_only_never_makes_the_handshake(verdict, raw, refused):
    """COMPAT-7: it probes all the same."""
    server = raw("handshake", {"server/discover": as_answer(verdict, refused)})
    client = Client(server, mode="stateless")
    with pytest.raises(InitializeFailed) as failed:
        await client.connect()
    assert "\n" not in str(failed.value)
    assert [message["method"] for message in server.received] == ["server/discover"]
    assert client.phase is Phase.ERROR


async def test_a_server_that_shares_no_version_with_us_cannot_be_spoken_to(raw, refused):
    server = raw("handshake", {"server/discover": refused(-32022, "no", {"supported": ["2099-01-01"]})})
    with pytest.raises(VersionMismatch, match="2099-01-01"):
        await Client(server).connect()
    assert not server.sent("initialize")


async def test_a_discovery_that_shares_no_version_with_us_is_a_mismatch(raw):
    server = raw("stateless", version="2099-01-01")
    with pytest.raises(VersionMismatch, match="2099-01-01"):
        await Client(server).connect()
    assert not server.sent("initialize")


EAGER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    with open(sys.argv[1], "a") as heard:
        heard.write(line)
    if message.get("method") != "server/discover":
        continue
    result = {"resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": {}}
    said = [{"id": message["id"], "result": result}]
    said += [{"id": 1, "method": "roots/list"}, {"id": 2, "method": "ping"}, {"id": 3, "method": 7}]
    sys.stdout.write("".join(json.dumps({"jsonrpc": "2.0", **each}) + "\\n" for each in said))
    sys.stdout.flush()
"""
"""A server of the stateless era that asks right behind its answer, and writes down what it hears."""


async def test_what_a_stateless_server_asks_right_behind_its_answer_is_not_answered(tmp_path):
    """RPC-14 STDIO-6: all of it comes in one read, before the client has looked at the answer."""
    heard = tmp_path / "heard"
    async with Client([sys.executable, "-c", EAGER, str(heard)]) as client:
        assert client.protocol_version == STATELESS
        await client.ping()
    assert [json.loads(line).get("method") for line in heard.read_text().splitlines()] == ["server/discover"] * 2


@pytest.fixture
def newer_revision(monkeypatch):
    """Let the client know one stateless revision more, which it tries first."""
    known = {"2099-01-01": msgspec.structs.replace(negotiation.STATELESS_REVISIONS[STATELESS], version="2099-01-01")}
    monkeypatch.setattr(negotiation, "STATELESS_REVISIONS", {**known, **negotiation.STATELESS_REVISIONS})


def refusing_newer(refused, *supported):
    def answer(request):
        version = request["params"]["_meta"][f"{META}protocolVersion"]
        return refused(-32022, "no", {"supported": list(supported), "requested": version})

    return answer


async def test_a_refused_version_is_followed_by_one_both_know(newer_revision, raw, refused):
    """VER-8"""
    server = raw("stateless")
    discovered = server.answers["server/discover"]
    refuse = refusing_newer(refused, STATELESS, NEWEST)
    server.answers["server/discover"] = lambda request: (
        discovered if request["params"]["_meta"][f"{META}protocolVersion"] == STATELESS else refuse(request)
    )
    async with Client(server) as client:
        assert client.protocol_version == STATELESS
        await client.ping()
    tried = [request["params"]["_meta"][f"{META}protocolVersion"] for request in server.sent("server/discover")]
    assert tried == ["2099-01-01", STATELESS, STATELESS]


async def test_each_version_is_tried_once_however_often_the_server_names_it(newer_revision, raw, refused):
    """VER-8: there is no loop."""
    server = raw("stateless")
    server.answers["server/discover"] = refusing_newer(refused, "2099-01-01", STATELESS)
    with pytest.raises(VersionMismatch, match="refused version"):
        await Client(server).connect()
    assert len(server.sent("server/discover")) == 3, "one that is refused and named in one breath is asked again, once"


async def test_a_discovery_decides_which_of_several_versions_is_spoken(newer_revision, raw):
    async with Client(raw("stateless")) as client:
        assert client.protocol_version == STATELESS
        await client.ping()


@pytest.mark.virtual_time
async def test_silence_leads_to_the_handshake_after_five_seconds(raw):
    """COMPAT-2: a timeout is no stateless answer."""
    server = raw("handshake", {"server/discover": None})
    async with Client(server) as client:
        assert now() == 5
        assert client.protocol_version == NEWEST


@pytest.mark.virtual_time
async def test_how_long_the_probe_may_take_can_be_set(raw):
    async with Client(raw("handshake", {"server/discover": None}), probe_timeout=0.5):
        assert now() == 0.5


@pytest.mark.virtual_time
async def test_an_answer_that_comes_after_the_handshake_began_is_dropped(raw, caplog):
    server = raw("handshake", {"server/discover": None, "initialize": None})
    client = Client(server)
    connecting = asyncio.create_task(client.connect())
    probe, offer = await server.heard("server/discover"), await server.heard("initialize")
    server.answer(probe, raw("stateless").discover_result())
    server.answer(offer, server.initialize_result())
    await connecting
    assert client.protocol_version == NEWEST
    assert "unknown request" in caplog.text
    await client.close()


@pytest.mark.virtual_time
async def test_a_server_too_slow_for_the_probe_may_say_later_that_it_has_no_handshake(raw, refused):
    server = raw("stateless")
    late = iter([None, server.discover_result()])
    server.answers["server/discover"] = lambda request: next(late)
    server.answers["initialize"] = refused(-32022, "no handshake here", {"supported": [STATELESS]})
    async with Client(server) as client:
        assert client.protocol_version == STATELESS
        assert client.phase is Phase.INITIALIZED


@pytest.mark.virtual_time
async def test_a_server_that_refuses_both_is_no_server(raw, refused):
    server = raw("stateless", {"server/discover": None, "initialize": refused(-32022, "no")})
    with pytest.raises(InitializeTimedOut, match="discover within 10 s"):
        await Client(server).connect()


async def test_a_server_that_ends_on_the_probe_is_started_again_for_the_handshake(raw):
    """COMPAT-2: an exit is a verdict too, and the next process gets no probe."""
    server = raw("handshake")
    server.answers["server/discover"] = lambda request: server.die(ChildFailed("exited with code 1"))
    async with Client(server) as client:
        assert client.protocol_version == NEWEST
    assert len(server.channels) == 2
    assert [m["id"] for m in server.received if "id" in m] == [1, 1]


async def test_a_server_that_ends_on_everything_tells_why(raw):
    server = raw("handshake")
    die = ChildFailed("'serve' exited with code 3; its last words on stderr: no licence")
    server.answers["server/discover"] = server.answers["initialize"] = lambda request: server.die(die)
    client = Client(server)
    with pytest.raises(ChildFailed, match="no licence"):
        await client.connect()
    assert client.phase is Phase.ERROR


@pytest.mark.parametrize("mode", ["handshake", "stateless"])
async def test_a_server_that_ends_in_one_era_is_not_tried_in_the_other(mode, raw):
    server = raw("handshake")
    server.answers["server/discover"] = server.answers["initialize"] = lambda request: server.die(ChildFailed("gone"))
    with pytest.raises(ChildFailed, match="gone"):
        await Client(server, mode=mode).connect()
    assert len(server.channels) == 1


async def test_the_era_is_kept_for_the_conversation_and_probed_again_in_the_next(raw, refused):
    """COMPAT-5: a later error does not demote a stateless server."""
    server = raw("stateless", {"tools/list": refused(-32601, "Method not found")})
    client = Client(server)
    await client.connect()
    with pytest.raises(Exception, match="Method not found"):
        await client.list_tools()
    assert client.protocol_version == STATELESS
    assert not server.sent("initialize")
    server.answers |= raw("handshake").answers
    await client.reconnect()
    assert client.protocol_version == NEWEST
    await client.close()


ODD_DISCOVERIES = {
    "no hints": {"ttlMs": None, "cacheScope": None},
    "garbled hints": {"ttlMs": "soon", "cacheScope": 7},
    "garbled metadata": {"_meta": "none"},
    "a garbled name": {"_meta": {f"{META}serverInfo": 7}},
    "members of tomorrow": {"moon": "full", "capabilities": {"moon": {}, "tools": {"shiny": True}}},
}


@pytest.mark.parametrize("odd", ODD_DISCOVERIES.values(), ids=ODD_DISCOVERIES)
async def test_a_discovery_is_read_with_mercy(odd, raw):
    """DISC-5"""
    server = raw("stateless")
    server.answers["server/discover"] = {**server.discover_result(), **odd}
    async with Client(server) as client:
        assert client.protocol_version == STATELESS


async def test_a_name_in_the_body_of_a_discovery_is_taken_too(raw):
    """DISC-5"""
    server = raw("stateless")
    server.answers["server/discover"] |= {"_meta": {}, "serverInfo": {"name": "early bird", "version": "0"}}
    async with Client(server) as client:
        assert client.server_info.name == "early bird"


# The handshake


async def test_the_handshake_is_the_first_thing_said_and_is_complete(raw):
    """LIFE-1, LIFE-3, VER-1, CORR-01, CORR-07, SESS-07, SESS-25, SESS-26, CLNT-02"""
    server = raw()
    async with Client(server, mode="handshake", name="tester", version="7") as client:
        assert client.protocol_version == NEWEST
        assert client.server_capabilities.resources.subscribe
        assert client.server_info.name == "raw"
        await client.ping()
    offer, ready, ping = server.received
    info = {"name": "tester", "version": "7"}
    assert offer == {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": NEWEST, "capabilities": {}, "clientInfo": info},
    }
    assert ready == {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert ping == {"jsonrpc": "2.0", "id": 2, "method": "ping"}


@pytest.mark.parametrize("version", REVISIONS)
async def test_each_revision_of_the_handshake_can_be_asked_for(version, raw):
    """VER-1"""
    server = raw(version=version)
    async with Client(server, protocol_version=version) as client:
        assert client.protocol_version == version
    assert server.received[0]["params"]["protocolVersion"] == version


async def test_the_stateless_revision_can_be_asked_for(raw, refused):
    async with Client(raw("stateless"), protocol_version=STATELESS) as client:
        assert client.protocol_version == STATELESS
    server = raw("handshake", {"server/discover": refused(-32022, "no", {"supported": [NEWEST]})})
    with pytest.raises(VersionMismatch, match="refused version 2026-07-28"):
        await Client(server, protocol_version=STATELESS).connect()


@pytest.mark.parametrize("answered", REVISIONS)
async def test_a_counter_offer_we_speak_is_taken(answered, raw):
    """SESS-25"""
    async with Client(raw(version=answered), mode="handshake") as client:
        assert client.protocol_version == answered


@pytest.mark.parametrize("answered", ["2026-07-28", "2023-01-01", "1.0", ""])
async def test_a_counter_offer_we_do_not_speak_ends_the_link(answered, raw):
    """VER-3, SESS-08, LIFE-9"""
    server = raw(version=answered)
    client = Client(server, mode="handshake")
    with pytest.raises(VersionMismatch, match=f"'{answered}'"):
        await client.connect()
    assert client.phase is Phase.ERROR
    assert server.channel.lost
    assert not server.sent("notifications/initialized")


INFO = {"name": "x", "version": "1"}
MALFORMED_ANSWERS = {
    "nothing": {},
    "no version": {"capabilities": {}, "serverInfo": INFO},
    "no capabilities": {"protocolVersion": NEWEST, "serverInfo": INFO},
    "capabilities of another shape": {"protocolVersion": NEWEST, "capabilities": [], "serverInfo": INFO},
    "a capability of another shape": {
        "protocolVersion": NEWEST,
        "capabilities": {"tools": True},
        "serverInfo": INFO,
    },
    "a version of another type": {"protocolVersion": 20251125, "capabilities": {}, "serverInfo": INFO},
    "no name": {"protocolVersion": NEWEST, "capabilities": {}, "serverInfo": {}},
    "no object": [],
}


@pytest.mark.parametrize("answer", MALFORMED_ANSWERS.values(), ids=MALFORMED_ANSWERS)
async def test_a_malformed_answer_ends_in_one_sentence_and_phase_error(answer, raw):
    """SESS-08, SESS-21, CAPN-13"""
    server = raw(answers={"initialize": answer})
    client = Client(server, mode="handshake")
    with pytest.raises(InitializeFailed, match="malformed") as failed:
        await client.connect()
    assert "\n" not in str(failed.value)
    assert client.phase is Phase.ERROR
    assert not server.sent("notifications/initialized")


async def test_a_refused_handshake_tells_the_server_s_words(raw, refused):
    """LIFE-9, SESS-21"""
    server = raw(answers={"initialize": refused(-32603, "the database is down")})
    with pytest.raises(InitializeFailed, match="the database is down"):
        await Client(server, mode="handshake").connect()


async def test_a_server_that_closes_the_link_during_the_handshake_is_told_of(raw):
    """LIFE-11, SESS-21"""
    server = raw()
    server.answers["initialize"] = lambda request: server.die()
    with pytest.raises(InitializeFailed, match="ended the link"):
        await Client(server, mode="handshake").connect()


@pytest.mark.virtual_time
async def test_a_silent_server_is_given_up_after_ten_seconds(raw):
    """LIFE-8, LIFE-9, SESS-06, SESS-08, SESS-18, SESS-21: and nothing is cancelled."""
    server = raw(answers={"initialize": None})
    client = Client(server, mode="handshake")
    with pytest.raises(InitializeTimedOut, match="within 10 s"):
        await client.connect()
    assert now() == 10
    assert client.phase is Phase.ERROR
    assert not server.sent("notifications/cancelled")


def timers():
    return [timer for timer in asyncio.get_running_loop()._scheduled if not timer.cancelled()]


@pytest.mark.parametrize("how", ["success", "error", "silence", "loss"])
@pytest.mark.virtual_time
async def test_no_timer_is_left_when_the_handshake_is_over(how, raw, refused):
    """SESS-20"""
    server = raw()
    server.answers["initialize"] = {
        "success": server.initialize_result(),
        "error": refused(-32603),
        "silence": None,
        "loss": lambda request: server.die(),
    }[how]
    client = Client(server, mode="handshake")
    await asyncio.wait([asyncio.create_task(client.connect())])
    if how == "success":
        await asyncio.sleep(11)
        assert client.phase is Phase.INITIALIZED
    await client.close()
    assert timers() == []


@pytest.mark.virtual_time
async def test_how_long_the_handshake_may_take_can_be_set_for_the_client_and_for_one_call(raw):
    """SESS-18"""
    server = raw(answers={"initialize": None})
    client = Client(server, mode="handshake", init_timeout=3)
    with pytest.raises(InitializeTimedOut, match="within 3 s"):
        await client.connect()
    with pytest.raises(InitializeTimedOut, match=r"within 0.05 s"):
        await client.initialize(timeout=0.05)
    assert now() == pytest.approx(3.05)


@pytest.mark.virtual_time
async def test_a_child_process_has_thirty_seconds():
    """LIFE-9"""
    client = Client([sys.executable, "-c", "import time; time.sleep(600)"], mode="handshake")
    with pytest.raises(InitializeTimedOut, match="within 30 s"):
        await client.connect()
    assert 30 <= now() < 40


async def test_giving_up_on_the_handshake_cancels_nothing_on_the_wire(raw):
    """LIFE-8"""
    server = raw(answers={"initialize": None})
    client = Client(server, mode="handshake")
    connecting = asyncio.create_task(client.connect())
    await server.heard("initialize")
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    assert not server.sent("notifications/cancelled")
    assert server.channel.lost
    assert client.phase is Phase.CLOSED


async def test_nothing_is_asked_before_the_handshake_is_answered(raw):
    """LIFE-4, SESS-01, SESS-15, SESS-16"""
    server = raw(answers={"initialize": None})
    client = Client(server, mode="handshake")
    with pytest.raises(NotConnected, match="pre_initialization"):
        await client.list_tools()
    connecting = asyncio.create_task(client.connect())
    offer = await server.heard("initialize")
    assert client.phase is Phase.INITIALIZING
    with pytest.raises(NotConnected, match="not open yet"):
        await client.call_tool("x")
    assert len(server.received) == 1
    server.answer(offer, server.initialize_result())
    await connecting
    await client.close()


async def test_a_ping_of_the_server_is_answered_before_the_handshake_is(raw):
    """PING-1, PING-04"""
    server = raw(answers={"initialize": None})
    client = Client(server, mode="handshake")
    connecting = asyncio.create_task(client.connect())
    offer = await server.heard("initialize")
    server.ask("ping")
    assert await server.replied() == {"jsonrpc": "2.0", "id": "q1", "result": {}}
    server.answer(offer, server.initialize_result())
    await connecting
    await client.close()


# What a client says of itself


def capabilities_of(request):
    params = request["params"]
    return params["capabilities"] if request["method"] == "initialize" else params["_meta"][f"{META}clientCapabilities"]


DECLARED = {
    "nothing": ({}, {}, {}),
    "a model": ({"sampling": str}, {"sampling": {}}, {"sampling": {}}),
    "a model with tools and context": (
        {"sampling": str, "sampling_tools": True, "sampling_context": True},
        {"sampling": {"tools": {}, "context": {}}},
        {"sampling": {"tools": {}, "context": {}}},
    ),
    "a form": ({"elicitation": str}, {"elicitation": {"form": {}}}, {"elicitation": {"form": {}}}),
    "a url": ({"url_elicitation": str}, {"elicitation": {"url": {}}}, {"elicitation": {"url": {}}}),
    "roots": ({"roots": []}, {"roots": {"listChanged": True}}, {"roots": {}}),
    "roots from a function": ({"roots": list}, {"roots": {"listChanged": True}}, {"roots": {}}),
}


@pytest.mark.parametrize("declared", DECLARED.values(), ids=DECLARED)
async def test_a_client_declares_just_what_it_can_answer(declared, era, raw):
    """CAP-2, CAP-3, CAPN-01, ELIC-1, ROOT-1, ROOT-01, SAMP-1, SAMP-01"""
    options, in_handshake, in_stateless = declared
    server = raw(era)
    async with Client(server, mode=era, **options):
        pass
    assert capabilities_of(server.received[0]) == (in_handshake if era == "handshake" else in_stateless)


@pytest.mark.parametrize(("version", "declared"), [("2025-03-26", {"sampling": {}}), ("2024-11-05", {"sampling": {}})])
async def test_an_older_revision_hears_only_of_what_it_knows(version, declared, raw):
    """CAP-2"""
    server = raw(version=version)
    async with Client(server, protocol_version=version, sampling=str, elicitation=str):
        pass
    assert server.received[0]["params"]["capabilities"] == declared


async def test_a_revision_without_modes_hears_of_forms_only(raw):
    """CAP-2, ELIC-1: 2025-06-18 reads any elicitation capability as one for forms."""
    declared = []
    for options in ({"elicitation": str}, {"url_elicitation": str}):
        server = raw(version="2025-06-18")
        async with Client(server, protocol_version="2025-06-18", **options):
            declared.append(server.received[0]["params"]["capabilities"])
    assert declared == [{"elicitation": {}}, {}]


async def test_every_stateless_request_says_who_asks(app):
    """STL-1, STL-2, STL-3, VER-6"""
    recorder = Recorder(Memory(app))
    async with pair(recorder, "stateless", name="tester", log_level="info", elicitation=str) as client:
        await client.list_tools()
        await client.call_tool("add", {"a": 1, "b": 2}, on_progress=print, meta={"com.example/trace": "t"})
        await client.read_resource("notes://1")
        await client.get_prompt("review", {"language": "python"})
        await client.complete("review", {"name": "language", "value": "p"})
        await client.request("tools/list", {"_meta": {"com.example/own": 1}})
        await client.ping()
    requests = [message for message in recorder.sent("client") if "id" in message]
    for request in requests:
        meta = request["params"]["_meta"]
        assert meta[f"{META}protocolVersion"] == STATELESS
        assert meta[f"{META}clientCapabilities"] == {"elicitation": {"form": {}}}
        assert meta[f"{META}clientInfo"]["name"] == "tester"
        assert meta[f"{META}logLevel"] == "info"
    call = next(request for request in requests if request["method"] == "tools/call")
    assert call["params"]["_meta"]["progressToken"] == call["id"]
    assert call["params"]["_meta"]["com.example/trace"] == "t"
    assert requests[-2]["params"]["_meta"]["com.example/own"] == 1


async def test_a_client_need_not_tell_its_name(app):
    """STL-2"""
    recorder = Recorder(Memory(app))
    async with pair(recorder, "stateless", send_client_info=False) as client:
        await client.list_tools()
    assert f"{META}clientInfo" not in json.dumps(recorder.sent("client"))


async def test_instructions_are_known_in_both_eras(era, app):
    """SPEC-24"""
    async with pair(app, era) as client:
        assert client.instructions == "Use it well."


WRONG_OPTIONS = {
    "unknown": ({"timout": 3}, "timout"),
    "mode": ({"mode": "modern"}, "auto, handshake, stateless"),
    "version": ({"protocol_version": "2025-01-01"}, "2025-06-18"),
    "level": ({"log_level": "loud"}, "alert, critical, debug"),
}


@pytest.mark.parametrize("wrong", WRONG_OPTIONS.values(), ids=WRONG_OPTIONS)
def test_an_option_that_cannot_be_is_refused_in_one_sentence(wrong):
    options, said = wrong
    with pytest.raises(SetupError, match=said) as refusal:
        Client("server.py", **options)
    assert "\n" not in str(refusal.value)
