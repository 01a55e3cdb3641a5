"""What a server remembers of each link, and what follows from it."""

import asyncio
import logging

import pytest

from ferrule import Context, Server, TimedOut
from ferrule.protocol.session import Phase
from ferrule.testing import pair
from ferrule.transports.memory import MemoryChannel
from ferrule.transports.process.stdio import StdioChannel
from ferrule.transports.tcp.connections import ServedChannel
from ferrule.wire.channel import ChannelDefaults, Origin

MANY_ROUNDS = 1000


def plain(**options):
    app = Server("plain", **options)

    @app.tool
    async def look(ctx: Context) -> str:
        return ctx.peer.version

    app.add_resource("x://y", lambda: "")
    return app


class TestSessions:
    """The links that are open now."""

    async def test_a_server_knows_its_links_and_what_they_declared(self, wire):
        """SRVR-08, CAPN-04"""
        app = plain()
        declared = {"roots": {"listChanged": True}, "sampling": {}, "com.example/odd": {"a": 1}}
        async with wire(app, capabilities=declared) as first:
            async with wire(app) as second:
                assert list(app.host.links) == [first.link, second.link]
            assert list(app.host.links) == [first.link]
            session = first.link.session
            assert session.phase is Phase.INITIALIZED
            assert session.peer.capabilities.roots.list_changed
            assert session.peer.capabilities.elicitation is None
            assert session.peer.declared == declared
            assert len(app.host.links) == 1
        assert not app.host.links

    async def test_the_collections_can_be_inspected(self):
        """SRVR-08, SRVR-09"""
        app = plain()
        app.add_prompt("p", lambda: "")
        app.add_resource("x://{z}", lambda z: "")
        assert [tool.name for tool in app.list_tools()] == ["look"]
        assert [resource.uri for resource in app.list_resources()] == ["x://y"]
        assert [template.uri_template for template in app.list_resource_templates()] == ["x://{z}"]
        assert [prompt.name for prompt in app.list_prompts()] == ["p"]

    async def test_nothing_is_left_of_many_links(self, era):
        """SHUT-07"""
        app = plain()
        for _ in range(200):
            async with pair(app, era) as client:
                await client.call_tool("look")
        assert len(app.host.links) == 0
        assert len(app.host.services.subscriptions) == 0

    async def test_one_link_serves_both_eras_at_once(self, wire):
        """COMPAT-1, VER-10, STL-5, STL-8"""
        async with wire(plain()) as peer:
            assert (await peer.call("look"))["result"]["structuredContent"] == {"result": "2025-11-25"}
            peer.stateless, peer.version = True, "2026-07-28"
            assert (await peer.call("look"))["result"]["structuredContent"] == {"result": "2026-07-28"}
            peer.stateless = False
            assert (await peer.call("look"))["result"]["structuredContent"] == {"result": "2025-11-25"}


TRAITS = {"stdio": StdioChannel.traits, "memory": MemoryChannel.traits, "tcp": ServedChannel.traits}


@pytest.mark.usefixtures("virtual_time")
class TestSilence:
    """Peers that say nothing."""

    async def link(self, app, carrier):
        """Open a link over some carrier, as its listener would."""
        far = app.link(Origin(carrier=carrier))
        closed = asyncio.Event()

        class Channel(ChannelDefaults):
            traits = TRAITS[carrier]

            def send(self, message): ...

            async def wait_writable(self): ...

            def close(self, reason=""):
                closed.set()

        far.channel_opened(Channel())
        return far, closed

    async def test_a_peer_that_never_initializes_is_closed_after_a_minute(self, caplog):
        """SESS-18"""
        app = plain()
        link, closed = await self.link(app, "tcp")
        await asyncio.sleep(59)
        assert not closed.is_set()
        with caplog.at_level(logging.ERROR):
            await asyncio.sleep(2)
        assert closed.is_set()
        assert link.session.phase is Phase.ERROR
        assert "did not initialize within 60.0 s" in caplog.text

    @pytest.mark.parametrize("carrier", ["stdio", "memory"])
    async def test_a_peer_that_owns_the_process_may_take_its_time(self, carrier):
        app = plain()
        _, closed = await self.link(app, carrier)
        await asyncio.sleep(3600)
        assert not closed.is_set()

    async def test_the_wait_can_be_set_and_switched_off(self):
        """SESS-18"""
        _, closed = await self.link(plain(init_timeout=5), "tcp")
        await asyncio.sleep(6)
        assert closed.is_set()
        _, closed = await self.link(plain(init_timeout=None), "tcp")
        await asyncio.sleep(3600)
        assert not closed.is_set()

    async def test_a_ready_client_is_pinged_every_thirty_seconds(self, wire):
        """PING-2, PING-06, PING-07, PING-03"""
        app = plain()
        async with wire(app) as peer:
            for number in range(1, 4):
                await asyncio.sleep(30)
                asked = peer.told("ping")
                assert len(asked) == number
                peer.answer(asked[-1], {})
            assert peer.told_at("ping") == pytest.approx([30, 60, 90], abs=0.1)

    async def test_a_client_that_misses_a_ping_is_closed(self, wire):
        """PING-2, PING-08"""
        app = plain()
        async with wire(app) as peer:
            await asyncio.sleep(39.9)
            assert not peer.lost
            await asyncio.sleep(0.2)
            assert peer.lost
            assert not app.host.links

    async def test_how_many_pings_may_be_missed_can_be_set(self, wire):
        """PING-2, PING-13"""
        app = plain(keepalive_interval=10, pong_timeout=5, max_missed=3)
        async with wire(app) as peer:
            await asyncio.sleep(44)
            assert not peer.lost
            await asyncio.sleep(2)
            assert peer.lost

    async def test_pinging_can_be_switched_off(self, wire):
        """PING-13"""
        async with wire(plain(keepalive_interval=None)) as peer:
            await asyncio.sleep(3600)
            assert peer.told("ping") == []

    async def test_a_stateless_client_is_never_pinged(self, wire):
        """PING-3, RPC-14"""
        async with wire(plain(), "stateless") as peer:
            await peer.call("look")
            await asyncio.sleep(3600)
            assert peer.told("ping") == []

    async def test_our_own_client_answers_pings_by_itself(self):
        """PING-11, PING-03"""
        app = plain()
        async with pair(app) as client:
            await asyncio.sleep(3600)
            assert (await client.call_tool("look")).data == "2025-11-25"
            assert len(app.host.links) == 1


class TestLoad:
    """How much one link may ask at once."""

    async def test_ovl_02_calls_over_the_limit_wait_in_line_and_then_are_told_busy(self, wire):
        """OVL-02"""
        app = Server("busy", max_concurrent_per_session=64, max_waiting_per_session=100)
        release = asyncio.Event()
        running = []

        @app.tool
        async def wait() -> str:
            running.append(1)
            await release.wait()
            return "done"

        async with wire(app) as peer:
            asked = [peer.ask("tools/call", {"name": "wait"}) for _ in range(2000)]
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert len(running) == 64
            assert "result" in await peer.request("ping")
            release.set()
            answers = [await peer.response(identity) for identity in asked]
        busy = [answer for answer in answers if "error" in answer]
        assert len(busy) == 2000 - 164
        assert {answer["error"]["code"] for answer in busy} == {-32000}
        assert len(running) == 164

    async def test_a_listen_takes_no_slot(self, wire):
        app = Server("standing", max_concurrent_per_session=1)
        app.add_tool("tool", lambda: "ok")
        async with wire(app, "stateless") as peer:
            for _ in range(3):
                await peer.watch(toolsListChanged=True)
            assert "result" in await peer.call("tool")

    async def test_handlers_that_ask_do_not_freeze_the_link(self, wire):
        """GUAR-08"""
        app = Server("asking", max_concurrent_per_session=5)

        @app.tool
        async def ask(ctx: Context) -> str:
            return await ctx.ask("Name?", str)

        async with wire(app, capabilities={"elicitation": {}}) as peer:
            asked = [peer.ask("tools/call", {"name": "ask"}) for _ in range(20)]
            for number in range(20):
                question = await peer.hear("elicitation/create", after=number)
                peer.answer(question, {"action": "accept", "content": {"value": str(number)}})
            names = {(await peer.response(identity))["result"]["structuredContent"]["result"] for identity in asked}
        assert names == {str(number) for number in range(20)}

    async def test_sok_04_cancelled_and_timed_out_calls_leave_the_books_empty(self, era):
        """SOK-04"""
        app = Server("books")

        @app.tool
        async def wait() -> None:
            await asyncio.Event().wait()

        async with pair(app, era, probe_on_timeout=False) as client:
            for _ in range(MANY_ROUNDS):
                calls = [asyncio.ensure_future(client.call_tool("wait")) for _ in range(50)]
                late = [asyncio.ensure_future(client.call_tool("wait", timeout=0.001)) for _ in range(50)]
                await asyncio.sleep(0)
                for call in calls:
                    call.cancel()
                outcomes = await asyncio.gather(*late, return_exceptions=True)
                assert all(isinstance(outcome, TimedOut) for outcome in outcomes)
            await asyncio.sleep(0.01)
            [link] = app.host.links
            assert not link.session.running
            assert not link.scope.tasks
            assert not client.pending


class TestCancelling:
    """A cancel reaches its own call and no other."""

    @staticmethod
    def app():
        app = Server("cancelling")
        app.log = []

        @app.tool
        async def wait(name: str) -> str:
            app.log.append(f"{name} started")
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                app.log.append(f"{name} cancelled")
                raise

        return app

    async def test_a_cancelled_call_is_stopped_and_never_answered(self, era, wire):
        """CANC-04, CANC-2"""
        app = self.app()
        async with wire(app, era) as peer:
            identity = peer.ask("tools/call", {"name": "wait", "arguments": {"name": "a"}})
            await asyncio.sleep(0.01)
            peer.notify("notifications/cancelled", {"requestId": identity, "reason": "enough"})
            await asyncio.sleep(0.01)
            assert app.log == ["a started", "a cancelled"]
            assert not [m for m in peer.heard if m.get("id") == identity]

    @pytest.mark.parametrize(
        "params", [{"requestId": 999}, {"requestId": "1"}, {"requestId": None}, {}, [], {"requestId": {}}], ids=str
    )
    async def test_a_cancellation_of_nothing_does_no_harm_and_is_not_answered(self, era, wire, params):
        """CANC-3, NOTI-01"""
        app = self.app()
        async with wire(app, era) as peer:
            await peer.request("tools/list")
            heard = len(peer.heard)
            identity = peer.ask("tools/call", {"name": "wait", "arguments": {"name": "a"}})
            await asyncio.sleep(0)
            peer.notify("notifications/cancelled", params)
            await asyncio.sleep(0.01)
            assert app.log == ["a started"]
            assert len(peer.heard) == heard
            peer.notify("notifications/cancelled", {"requestId": identity})

    async def test_a_cancellation_that_comes_too_late_does_no_harm(self, era, wire):
        """CANC-3"""
        app = self.app()
        async with wire(app, era) as peer:
            await peer.request("tools/list", id=77)
            peer.notify("notifications/cancelled", {"requestId": 77})
            assert "result" in await peer.request("tools/list")

    async def test_initialize_is_not_cancelled(self, wire):
        """CANC-1, LIFE-8"""
        async with wire(self.app()) as peer:
            peer.notify("notifications/cancelled", {"requestId": 1})
            assert "result" in await peer.request("tools/list")

    async def test_ses_08_one_session_cannot_cancel_anothers_call(self, era, wire):
        """SES-08"""
        app = self.app()
        async with wire(app, era) as victim, wire(app, era) as other:
            identity = victim.ask("tools/call", {"name": "wait", "arguments": {"name": "v"}}, id=50)
            await asyncio.sleep(0.01)
            other.notify("notifications/cancelled", {"requestId": identity})
            await asyncio.sleep(0.01)
            assert app.log == ["v started"]
        await asyncio.sleep(0.01)
        assert app.log == ["v started", "v cancelled"]

    async def test_ses_07_one_session_cannot_answer_anothers_question(self, wire):
        """SES-07"""
        app = Server("questions")

        @app.tool
        async def ask(ctx: Context) -> str:
            return await ctx.ask("Name?", str)

        able = {"capabilities": {"elicitation": {}}}
        async with wire(app, **able) as first, wire(app, **able) as second:
            identity = first.ask("tools/call", {"name": "ask"})
            question = await first.hear("elicitation/create")
            second.answer(question, {"action": "accept", "content": {"value": "forged"}})
            await asyncio.sleep(0.01)
            assert not [m for m in first.heard if m.get("id") == identity]
            first.answer(question, {"action": "accept", "content": {"value": "true"}})
            assert (await first.response(identity))["result"]["structuredContent"] == {"result": "true"}

    async def test_ses_06_an_id_in_flight_is_refused_and_the_first_still_answered(self, era, wire):
        """SES-06, RPC-4"""
        app = Server("ids")
        release = asyncio.Event()

        @app.tool
        async def wait() -> str:
            await release.wait()
            return "first"

        async with wire(app, era) as peer:
            peer.ask("tools/call", {"name": "wait"}, id="same")
            await asyncio.sleep(0)
            peer.ask("tools/list", id="same")
            refused = await peer.response("same")
            assert refused["error"]["code"] == -32600
            peer.heard.remove(refused)
            peer.times.pop()
            release.set()
            assert (await peer.response("same"))["result"]["structuredContent"] == {"result": "first"}
