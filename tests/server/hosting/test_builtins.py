"""What every server answers by itself: the handshake, discovery, capabilities, ping."""

import asyncio
import gc
import json
import logging
import tracemalloc

import pytest

from ferrule import Context, Server
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.model import Icon
from ferrule.server.hosting.builtins import MOST_MET
from ferrule.testing import pair
from ferrule.wire.channel import ChannelDefaults, Origin
from ferrule.wire.codec import encode

SERVER_INFO = "io.modelcontextprotocol/serverInfo"
CLIENT = {"name": "raw", "version": "1"}


def full(**options):
    """A server that offers one of everything."""
    app = Server("full", version="2.0", instructions="Use it well.", title="Full", **options)

    @app.tool
    async def tool(ctx: Context) -> str:
        return "ok"

    app.add_prompt("prompt", lambda word: word)
    app.add_resource("x://y", lambda: "")
    app.completion("word")(lambda value: [])
    return app


async def declared(app, era, wire, version=""):
    """What a server declares on the wire."""
    async with wire(app, era, version=version) as peer:
        opened = await (peer.response(1) if era == "handshake" else peer.request("server/discover"))
    return opened["result"]


class TestCapabilities:
    """What a server says it offers."""

    async def test_what_is_offered_is_declared(self, era, wire):
        """CAPN-02, TOOL-1, RES-1, PROMPT-1, COMP-1, LOG-1, CAP-1, SRVR-01, DISC-3"""
        assert (await declared(full(), era, wire))["capabilities"] == {
            "tools": {"listChanged": True},
            "prompts": {"listChanged": True},
            "resources": {"subscribe": True, "listChanged": True},
            "completions": {},
            "logging": {},
        }

    async def test_an_empty_server_declares_nothing(self, era, wire):
        """CAPN-03, CAP-3"""
        assert (await declared(Server("empty"), era, wire))["capabilities"] == {}

    async def test_what_was_told_is_declared_whatever_is_offered(self, era, wire):
        """CAPN-06, LIFE-12, CAP-3"""
        told = ServerCapabilities(
            tools=ListCapability(), resources=ResourcesCapability(subscribe=True), experimental={"com.example/x": {}}
        )
        assert (await declared(full(capabilities=told), era, wire))["capabilities"] == {
            "tools": {},
            "resources": {"subscribe": True},
            "experimental": {"com.example/x": {}},
        }

    @pytest.mark.parametrize(
        ("capability", "requests"),
        [
            ("tools", [("tools/list", {}), ("tools/call", {"name": "tool"})]),
            ("prompts", [("prompts/list", {}), ("prompts/get", {"name": "prompt", "arguments": {"word": "x"}})]),
            (
                "resources",
                [("resources/list", {}), ("resources/templates/list", {}), ("resources/read", {"uri": "x://y"})],
            ),
            (
                "completions",
                [
                    (
                        "completion/complete",
                        {"ref": {"type": "ref/prompt", "name": "prompt"}, "argument": {"name": "word", "value": ""}},
                    )
                ],
            ),
        ],
    )
    async def test_what_is_not_declared_is_refused_though_it_is_there(self, era, wire, capability, requests):
        """CAPN-09, CAPN-10, DISC-3, ERRC-11, RPC-19, CAP-4"""
        everything = {"tools": ListCapability(), "prompts": ListCapability(), "resources": ResourcesCapability()}
        everything["completions"] = {}
        some = {name: value for name, value in everything.items() if name != capability}
        async with (
            wire(full(capabilities=ServerCapabilities(**some)), era) as without,
            wire(full(capabilities=ServerCapabilities(**everything)), era) as having,
        ):
            for method, params in requests:
                error = (await without.request(method, params))["error"]
                assert (error["code"], error["data"]) == (-32601, {"capability": capability})
                assert "result" in await having.request(method, params)

    async def test_a_capability_offered_later_is_declared_to_those_who_come_later(self, era, wire):
        app = Server("growing")
        assert (await declared(app, era, wire))["capabilities"] == {}
        app.add_tool("tool", lambda: None)
        assert (await declared(app, era, wire))["capabilities"] == {"tools": {"listChanged": True}}
        app.remove_tool("tool")
        assert (await declared(app, era, wire))["capabilities"] == {"tools": {"listChanged": True}}
        async with wire(app, era) as peer:
            assert (await peer.request("tools/list"))["result"]["tools"] == []

    async def test_the_clients_declaration_never_shrinks_the_servers(self, wire):
        """LIFE-12, CAPN-06"""
        async with wire(full(), capabilities={"tools": {}, "roots": {}}) as peer:
            assert (await peer.response(1))["result"]["capabilities"].keys() >= {"tools", "prompts", "resources"}

    def test_a_check_of_capabilities_makes_nothing_anew(self):
        """CAPN-12, CAPN-11"""
        app = full()
        assert app.host.capabilities is app.host.capabilities
        assert isinstance(app.host.capabilities, ServerCapabilities)


class TestOpening:
    """The handshake and discovery."""

    @pytest.mark.parametrize("version", REVISIONS)
    async def test_the_handshake_answers_with_who_the_server_is(self, wire, version):
        """LIFE-2, VER-2, SPEC-24, SPEC-07"""
        result = await declared(full(), "handshake", wire, version)
        assert result["protocolVersion"] == version
        assert result["instructions"] == "Use it well."
        assert (result["serverInfo"]["name"], result["serverInfo"]["version"]) == ("full", "2.0")
        assert ("title" in result["serverInfo"]) is (version >= "2025-06-18")
        assert "_meta" not in result

    async def test_discovery_tells_versions_capabilities_and_hints(self, wire):
        """DISC-1, DISC-2, STL-7, CACHE-1, VER-9"""
        result = await declared(full(), "stateless", wire)
        assert result["supportedVersions"] == ["2026-07-28", *REVISIONS]
        assert result["instructions"] == "Use it well."
        assert result["resultType"] == "complete"
        assert (result["ttlMs"], result["cacheScope"]) == (0, "private")
        assert result["_meta"][SERVER_INFO]["name"] == "full"
        assert "serverInfo" not in result

    async def test_every_stateless_result_names_the_server_and_its_kind(self, wire):
        """STL-7, RPC-16"""
        requests = [
            ("tools/list", {}),
            ("tools/call", {"name": "tool"}),
            ("prompts/get", {"name": "prompt", "arguments": {"word": "w"}}),
            ("resources/read", {"uri": "x://y"}),
            ("server/discover", {}),
        ]
        async with wire(full(), "stateless") as peer:
            for method, params in requests:
                result = (await peer.request(method, params))["result"]
                assert result["resultType"] == "complete"
                assert result["_meta"][SERVER_INFO]["version"] == "2.0"

    async def test_no_handshake_result_has_stateless_members(self, wire):
        async with wire(full()) as peer:
            for method, params in (
                ("tools/list", {}),
                ("tools/call", {"name": "tool"}),
                ("resources/read", {"uri": "x://y"}),
            ):
                result = (await peer.request(method, params))["result"]
                assert not {"resultType", "ttlMs", "cacheScope", "_meta"} & result.keys()

    async def test_a_server_shows_its_own_icons_and_texts(self, era):
        """ICON-1, LIFE-2"""
        icon = Icon(src="https://example.com/i.png")
        app = full(description="All of it", website_url="https://example.com", icons=[icon])
        async with pair(app, era) as client:
            info = client.server_info
        assert (info.title, info.description, info.website_url, info.icons) == (
            "Full",
            "All of it",
            "https://example.com",
            [icon],
        )

    async def test_no_request_depends_on_discovery(self, wire):
        """DISC-4, STL-5"""
        async with wire(full(), "stateless") as peer:
            assert "result" in await peer.call("tool")

    async def test_instructions_reach_the_client(self, era):
        """SPEC-24"""
        async with pair(full(), era) as client:
            assert client.instructions == "Use it well."


class TestPing:
    """Ping."""

    @pytest.mark.parametrize("params", [None, {}, {"odd": [1]}, {"_meta": {"a": 1}}], ids=str)
    async def test_a_ping_is_answered_with_an_empty_object_in_every_phase(self, wire, params):
        """PING-1, PING-01, PING-02, PING-04"""
        app = full()
        async with wire(app, "stateless") as peer:
            message = {"jsonrpc": "2.0", "id": 1, "method": "ping", **({} if params is None else {"params": params})}
            peer.send(message)
            assert await peer.response(1) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        async with wire(app) as peer:
            peer.send({**message, "id": "later"})
            assert (await peer.response("later"))["result"] == {}

    async def test_the_stateless_era_has_no_ping(self, wire):
        """PING-3"""
        async with wire(full(), "stateless") as peer:
            assert (await peer.request("ping"))["error"]["code"] == -32601


class TestUnknown:
    """What nobody knows."""

    async def test_an_unknown_method_is_named(self, era, wire):
        """ERRC-03, RPC-19, RPC-20"""
        async with wire(full(), era) as peer:
            error = (await peer.request("nix/nothing"))["error"]
        assert (error["code"], error["data"]) == (-32601, {"method": "nix/nothing"})

    async def test_a_clients_own_methods_are_unknown_to_a_server(self, era, wire):
        """RPC-20"""
        async with wire(full(), era) as peer:
            for method in ("sampling/createMessage", "elicitation/create", "roots/list"):
                assert (await peer.request(method))["error"]["code"] == -32601

    async def test_an_unknown_notification_is_not_answered(self, era, wire, caplog):
        """NOTI-01, NOTI-05, RPC-9"""
        async with wire(full(), era) as peer:
            heard = len(peer.heard)
            with caplog.at_level(logging.DEBUG, logger="ferrule.dispatch"):
                peer.notify("notifications/nix", {"a": 1})
                peer.notify("tools/list", {})
            await asyncio.sleep(0.01)
            assert len(peer.heard) == heard
        assert "no handler for the notification notifications/nix" in caplog.text

    async def test_requests_before_the_handshake_are_refused(self, wire):
        """LIFE-6, ERRC-12"""
        for profile, code in (("spec", -32600), ("erlmcp", -32005)):
            async with wire(full(error_profile=profile), "stateless") as peer:
                peer.send({"jsonrpc": "2.0", "id": 1, "method": "tools/list"})
                error = (await peer.response(1))["error"]
                assert error["code"] == code
                assert "initialize" in error["message"]

    async def test_a_second_handshake_is_refused_and_the_session_goes_on(self, wire):
        """LIFE-13"""
        async with wire(full()) as peer:
            params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
            assert (await peer.request("initialize", params))["error"]["code"] == -32600
            assert "result" in await peer.call("tool")

    async def test_unknown_members_never_cause_an_error(self, era, wire):
        """RPC-15"""
        async with wire(full(), era, capabilities={"com.example/odd": 5}) as peer:
            params = {"name": "tool", "arguments": {}, "odd": True}
            assert "result" in await peer.request("tools/call", params, meta={"com.example/odd": [1]})


class TestIntroductions:
    """What clients say of themselves is remembered in few words, and let go with them."""

    @staticmethod
    def said(padding):
        return {
            "protocolVersion": "2025-11-25",
            "capabilities": {"experimental": {"x": {}}},
            "clientInfo": CLIENT,
            "padding": padding,
        }

    async def test_clients_that_say_the_same_share_one_copy(self):
        app = Server("s", keepalive_interval=None)
        peers = [await opened(app, self.said("")) for _ in range(3)]
        assert len({id(link.session.peer.declared) for link in peers}) == 1
        assert peers[0].session.peer.declared == {"experimental": {"x": {}}}

    async def test_a_long_introduction_is_taken_and_not_kept(self):
        """Forty of two megabytes hold next to nothing, though their sessions live on."""
        app = Server("s", keepalive_interval=None)
        await opened(app, self.said("first"))
        gc.collect()
        tracemalloc.start()
        try:
            peers = [await opened(app, self.said(f"{number}" + "x" * 2_000_000)) for number in range(40)]
            gc.collect()
            kept = tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()
        assert all(link.session.peer is not None for link in peers)
        assert kept < 2_000_000

    async def test_many_short_ones_are_bounded_together(self):
        """The oldest are read anew when they come again."""
        app = Server("s", keepalive_interval=None)
        first = (await opened(app, self.said("first"))).session.peer.declared
        assert (await opened(app, self.said("first"))).session.peer.declared is first
        for number in range(MOST_MET):
            (await opened(app, self.said(f"{number}"))).close()
        assert (await opened(app, self.said("first"))).session.peer.declared is not first

    @pytest.mark.parametrize(
        ("member", "value"),
        [
            ("capabilities", {"experimental": {"x": "y" * 70_000}}),
            ("capabilities", {"experimental": {"x": [[]] * 600}}),
            ("clientInfo", {"name": "n" * 70_000, "version": "1"}),
        ],
        ids=["long capabilities", "many capabilities", "long name"],
    )
    async def test_a_client_that_says_too_much_is_refused(self, member, value):
        app = Server("s", keepalive_interval=None)
        ear = Ear()
        link = await opened(app, {**self.said(""), member: value}, ear)
        assert link.session.peer is None
        assert ear.heard[0]["error"]["code"] == -32602
        assert f"`$.{member}`" in ear.heard[0]["error"]["message"]


class Ear(ChannelDefaults):
    """The channel of a client: keeps what it is sent."""

    def __init__(self):
        self.heard = []

    def send(self, message):
        self.heard.append(json.loads(encode(message)))


async def opened(app, params, ear=None):
    """Make the handshake on a link of its own."""
    link = app.link(Origin("test"))
    ear = ear or Ear()
    link.channel_opened(ear)
    frame = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}).encode()
    link.frame_received(frame, ear)
    return link


async def test_a_capability_that_holds_no_number_of_ours_is_refused_as_bad_params():
    """A number too large for a float is the client's mistake, not a failure of the server."""
    answers = []

    class Wire(ChannelDefaults):
        def send(self, message):
            answers.append(message)

        async def wait_writable(self):
            """There is room."""

        def close(self, reason=""):
            """Nothing is open."""

    link = Server("s").link(Origin("tcp"))
    link.channel_opened(Wire())
    capabilities = '{"experimental":{"x":1e999}}'
    params = (
        f'{{"protocolVersion":"2025-11-25","capabilities":{capabilities},"clientInfo":{{"name":"c","version":"1"}}}}'
    )
    link.frame_received(f'{{"jsonrpc":"2.0","id":1,"method":"initialize","params":{params}}}'.encode(), link.channel)
    assert answers[0].error.code == -32602
    assert "out of range" in answers[0].error.message
