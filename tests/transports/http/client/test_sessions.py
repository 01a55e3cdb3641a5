"""Sessions of the handshake era over HTTP: kept, renewed, ended, and the streams that belong to them."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Reconnect
from ferrule.errors import LinkLost, OutcomeUnknown
from ferrule.protocol.handshake import NEWEST
from ferrule.testing.carrier_kit.near_side import NearSide
from ferrule.transports.http.client.transport import HttpTransport
from ferrule.wire.channel import Gap

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site, text_result, tool

FAST = {"retry_delay": 0.01, "jitter": 0.0}


def client(site: Site, **options: Any) -> Client:
    """Return a client of the site that loses no time."""
    http = {**FAST, **options.pop("http", {})}
    return Client(site.url, http=http, mode="handshake", **options)


async def test_the_session_and_the_version_go_with_every_later_request() -> None:
    """HTL-25, VER-5."""
    async with Site("handshake") as site:
        async with client(site) as one:
            await one.call_tool("t")
            await site.heard("GET")
        first, *later = site.seen
        assert first.method == "initialize"
        assert "mcp-session-id" not in first.headers
        assert "mcp-protocol-version" not in first.headers
        assert {seen.headers["mcp-session-id"] for seen in later} == {"session-1"}
        assert {seen.headers["mcp-protocol-version"] for seen in later} == {NEWEST.version}
        assert {"notifications/initialized", "tools/call", "GET", "DELETE"} == {seen.method for seen in later}


async def test_a_server_without_sessions_is_asked_without_one() -> None:
    async with Site("handshake") as site:
        info = {"capabilities": {"tools": {}}, "serverInfo": {"name": "x", "version": "1"}}
        site.on("initialize", lambda seen: seen.result({"protocolVersion": NEWEST.version, **info}))
        async with client(site) as one:
            await one.call_tool("t")
        assert not any("mcp-session-id" in seen.headers for seen in site.seen)
        assert site.got("DELETE") == []


async def test_nothing_overtakes_the_end_of_the_handshake() -> None:
    """Some servers refuse what comes before `initialized` has been taken."""
    async with Site("handshake") as site:
        ready = False

        async def slow(seen: Seen) -> None:
            nonlocal ready
            await asyncio.sleep(0.05)
            ready = True
            seen.status(202)

        site.on("notifications/initialized", slow)
        site.on("tools/call", lambda seen: seen.text(str(ready)))
        async with client(site) as one:
            assert (await one.call_tool("t")).text == "True"


async def test_a_server_that_answers_notifications_with_an_endless_stream_holds_up_nothing() -> None:
    async with Site("handshake") as site:

        async def stream(seen: Seen) -> None:
            seen.stream()
            await seen.gone()

        site.on("notifications/initialized", stream)
        async with client(site) as one:
            assert (await one.call_tool("t")).text == "done"


async def test_the_session_is_ended_when_the_client_closes() -> None:
    """HTL-30."""
    async with Site("handshake") as site:
        async with client(site):
            pass
        assert site.seen[-1].verb == "DELETE"
        assert site.seen[-1].headers["mcp-session-id"] == "session-1"


async def test_a_server_that_does_not_end_sessions_does_not_hold_up_the_client() -> None:
    async with Site("handshake") as site:
        site.on("DELETE", lambda seen: seen.gone())
        began = time.monotonic()
        async with client(site):
            pass
        assert time.monotonic() - began < 60


async def test_closing_takes_no_longer_than_its_grace_and_leaves_no_task() -> None:
    async with Site("handshake") as site:
        site.on("DELETE", lambda seen: seen.gone())
        one = client(site, reconnect=False)
        await one.connect()
        before = asyncio.all_tasks()
        assert one._keeper.conversation is not None
        await one._keeper.conversation.transport.close(0.05)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() <= before
        await one.close()


# -- the standing stream


async def test_notifications_come_on_the_standing_stream() -> None:
    """HTL-6, HTL-8, SSEV-13."""
    async with Site("handshake", tools={"listChanged": True}) as site:
        told = asyncio.Event()

        async def stand(seen: Seen) -> None:
            seen.stream()
            seen.event(b"", mark="0")
            seen.event({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}, mark="1")
            await seen.gone()

        site.on("GET", stand)
        async with client(site) as one:
            one.on_notification("notifications/tools/list_changed", lambda params: told.set())
            await told.wait()
        assert site.got("GET")[0].headers["accept"] == "text/event-stream"


async def test_a_server_without_a_standing_stream_is_asked_once() -> None:
    """HTL-7."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")
        await asyncio.sleep(0.2)
        await one.call_tool("t")
        assert len(site.got("GET")) == 1


async def test_a_standing_stream_that_ends_is_resumed_after_the_pause_the_server_wished() -> None:
    """HTL-12, HTL-21, HTL-22, SSEV-07, SSEV-08."""
    async with Site("handshake") as site:
        times: list[float] = []

        async def once(seen: Seen) -> None:
            times.append(time.monotonic())
            seen.stream()
            seen.event(b"", mark="event-7", retry=150)
            seen.end()

        async def again(seen: Seen) -> None:
            times.append(time.monotonic())
            seen.stream()
            await seen.gone()

        site.on("GET", once, again)
        async with client(site):
            resumed = await site.heard("GET", 2)
            assert resumed.headers["last-event-id"] == "event-7"
            assert times[1] - times[0] >= 0.15


# -- answers that are resumed


async def test_a_call_whose_stream_is_cut_is_resumed_and_answered_once() -> None:
    """HTL-12, HTL-20, HTL-21, HTL-22: the priming event is no message, and the call is posted once."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")

        async def cut(seen: Seen) -> None:
            seen.stream()
            seen.event(b"", mark="a-0", retry=100)
            seen.event({"jsonrpc": "2.0", "method": "notifications/x"}, mark="a-1")
            await seen.flushed()
            seen.cut()

        async def rest(seen: Seen) -> None:
            seen.stream()
            seen.event_result(text_result("resumed"), mark="a-2", identity=site.got("tools/call")[0].id)
            seen.end()

        site.on("tools/call", cut)
        site.on("GET", rest)
        assert (await one.call_tool("t")).text == "resumed"
        resumed = site.got("GET")[1]
        assert (resumed.verb, resumed.headers["last-event-id"]) == ("GET", "a-1")
        assert resumed.headers["mcp-session-id"] == "session-1"
        assert len(site.got("tools/call")) == 1


async def test_a_server_may_let_its_client_poll_for_as_long_as_it_likes() -> None:
    """HTL-21, HTL-22."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")

        async def later(seen: Seen) -> None:
            seen.stream()
            seen.event(b"", mark="p", retry=100)
            seen.end()

        async def done(seen: Seen) -> None:
            seen.stream()
            seen.event_result(text_result("at last"), identity=site.got("tools/call")[0].id)
            seen.end()

        site.on("tools/call", later)
        site.on("GET", *[later] * 8, done)
        assert (await one.call_tool("t", timeout=60)).text == "at last"
        assert len(site.got("GET")) == 10


@pytest.mark.parametrize(("wished", "least", "most"), [("0", 0.09, 0.5), ("1000000000", 60.0, 60.0)])
async def test_res_09_the_pause_a_server_wishes_is_clamped(wished: str, least: float, most: float) -> None:
    """FRM-17."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")
        loop = asyncio.get_running_loop()
        waits: list[float] = []
        later = loop.call_later

        def noted(delay: float, *work: Any, **context: Any) -> Any:
            if getattr(work[0], "__name__", "") == "_resume":
                waits.append(delay)
                delay = min(delay, 0.1)
            return later(delay, *work, **context)

        loop.call_later = noted  # type: ignore[method-assign]

        async def cut(seen: Seen) -> None:
            seen.stream()
            seen.chunk(f"id: 1\nretry: {wished}\ndata:\n\n".encode())
            seen.end()

        async def rest(seen: Seen) -> None:
            seen.stream()
            seen.event_result(text_result("ok"), identity=site.got("tools/call")[0].id)
            seen.end()

        site.on("tools/call", cut)
        site.on("GET", rest)
        await one.call_tool("t")
        assert least <= waits[0] <= most


async def cut(seen: Seen) -> None:
    """Begin a stream that can be resumed, and lose it."""
    seen.stream()
    seen.event(b"", mark="1", retry=100)
    await seen.flushed()
    seen.cut()


async def test_res_05_a_stream_is_given_up_after_a_documented_number_of_attempts() -> None:
    """The pauses grow, so nothing spins; the error says that the outcome is unknown."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")

        site.on("tools/call", cut)
        site.on("GET", lambda seen: seen.status(503))
        cpu = time.process_time()
        with pytest.raises(OutcomeUnknown, match="unknown outcome"):
            await one.call_tool("t", timeout=60)
        assert time.process_time() - cpu < 0.5
        assert len(site.got("GET")) == 1 + 5


async def test_a_server_that_cannot_resume_leaves_the_outcome_unknown() -> None:
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")

        site.on("tools/call", cut)
        site.on("GET", lambda seen: seen.status(400))
        with pytest.raises(OutcomeUnknown, match="does not resume"):
            await one.call_tool("t")


# -- sessions that are over


def forget(site: Site) -> None:
    """Let the server forget every session but its newest."""

    def judged(usual: Any) -> Any:
        def script(seen: Seen) -> None:
            if seen.headers.get("mcp-session-id") == f"session-{site.sessions}":
                usual(seen)
            else:
                error = {"code": -32600, "message": "Session not found"}
                seen.json({"jsonrpc": "2.0", "id": "server-error", "error": error}, 404)

        return script

    site.sessions += 100
    for method in ("tools/call", "tools/list", "resources/read"):
        site.on(method, judged(lambda seen: seen.text("done") if seen.method == "tools/call" else site._usual(seen)))


async def test_res_06_a_forgotten_session_is_renewed_once_and_harmless_requests_are_asked_again() -> None:
    """HTL-28."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")
        forget(site)
        lists = await asyncio.gather(*(one.request("tools/list") for _ in range(8)))
        assert lists == [{"tools": []}] * 8
        assert len(site.got("initialize")) == 2
        assert "mcp-session-id" not in site.got("initialize")[1].headers
        assert len(site.got("notifications/initialized")) == 2
        assert site.got("tools/list")[-1].headers["mcp-session-id"] == "session-102"
        await site.heard("GET", 2)
        assert (await one.call_tool("t")).text == "done"
        assert len(site.got("initialize")) == 2


async def test_a_call_that_may_have_run_is_not_repeated_in_the_new_session() -> None:
    """seed:HTTP-20."""
    async with Site("handshake") as site, client(site) as one:
        await site.heard("GET")
        forget(site)
        with pytest.raises(OutcomeUnknown, match="ended the session"):
            await one.call_tool("t")
        assert (await one.call_tool("t")).text == "done"
        assert len(site.got("tools/call")) == 2
        assert len(site.got("initialize")) == 2


async def test_a_tool_known_to_do_no_harm_twice_is_repeated_in_the_new_session() -> None:
    async with Site("handshake") as site, client(site) as one:
        site.on("tools/list", lambda seen: seen.result({"tools": [tool("t", idempotentHint=True)]}))
        await one.list_tools()
        forget(site)
        assert (await one.call_tool("t")).text == "done"


async def test_a_server_that_forgets_every_session_is_not_asked_in_a_loop() -> None:
    """RES-06."""
    async with Site("handshake") as site, client(site) as one:
        site.on("tools/list", lambda seen: seen.status(404))
        with pytest.raises(LinkLost, match="does not know its own session"):
            await one.request("tools/list")
        assert len(site.got("initialize")) == 2


async def test_a_session_that_cannot_be_renewed_ends_the_link() -> None:
    async with Site("handshake") as site, client(site, reconnect=False) as one:
        site.on("tools/list", lambda seen: seen.status(404))
        site.on("initialize", lambda seen: seen.status(503))
        with pytest.raises(LinkLost, match="no new one"):
            await one.request("tools/list")
        with pytest.raises(LinkLost):
            await one.call_tool("t")


# -- what may have been missed


def gaps(one: Any) -> list[Gap]:
    """Collect what the transport tells of gaps."""
    heard: list[Gap] = []
    one._keeper.conversation.link.channel.hear_gaps(heard.append)
    return heard


async def test_a_renewed_session_is_told_of() -> None:
    async with Site("handshake") as site, client(site, reconnect=False) as one:
        heard = gaps(one)
        forget(site)
        await one.list_tools()
        assert heard == ["session"]


@pytest.mark.parametrize("resubscribe", [True, False])
async def test_subscriptions_are_restored_in_a_renewed_session_where_they_are_to_be(resubscribe: bool) -> None:
    async with Site("handshake", resources={"subscribe": True}) as site:
        site.on("resources/subscribe", lambda seen: seen.result({}))
        site.on("resources/unsubscribe", lambda seen: seen.result({}))
        restored = asyncio.Event()
        async with client(site, reconnect=Reconnect(first_delay=0.0, resubscribe=resubscribe)) as one:
            one.on_connection(lambda notice: restored.set() if notice.what == "restored" else None)
            async with one.subscribe("notes://1"):
                forget(site)
                await one.request("tools/list")
                await asyncio.wait_for(restored.wait(), 60)
                sessions = [seen.headers["mcp-session-id"] for seen in site.got("resources/subscribe")]
                if resubscribe:
                    assert sessions == ["session-1", "session-102"]
                    assert one.subscriptions == {"notes://1"}
                else:
                    assert sessions == ["session-1"]
                    assert one.subscriptions == set()


async def test_a_stream_of_a_session_that_is_over_is_told_of_and_one_that_never_was_is_not() -> None:
    async with Site("handshake") as site:

        async def once(seen: Seen) -> None:
            seen.stream()
            seen.event(b"", mark="1", retry=100)
            await seen.flushed()
            seen.cut()

        site.on("GET", once, lambda seen: seen.status(404))
        async with client(site, reconnect=False) as one:
            heard = gaps(one)
            await site.heard("GET", 2)
            while not heard:
                await asyncio.sleep(0.01)
            assert heard == ["stream"]
            one._keeper.conversation.link.channel.stand()  # type: ignore[union-attr]
            await site.heard("GET", 3)
            await one.list_tools()
            assert heard == ["stream"]


def lose_stream(site: Site) -> None:
    """Let the stream for notifications end, and not be resumed; one that is asked for after that stays."""

    async def cut_off(seen: Seen) -> None:
        seen.stream()
        seen.event(b"", mark="1", retry=10)
        await seen.flushed()
        seen.cut()

    async def stays(seen: Seen) -> None:
        seen.stream()
        await seen.gone()

    site.on("GET", cut_off, lambda seen: seen.status(404), stays)


async def test_a_lost_stream_is_asked_for_again_where_the_server_still_knows_us() -> None:
    async with Site("handshake", resources={"subscribe": True}) as site:
        lose_stream(site)
        site.on("resources/subscribe", lambda seen: seen.result({}))
        site.on("resources/unsubscribe", lambda seen: seen.result({}))
        site.on("ping", lambda seen: seen.result({}))
        async with client(site, reconnect=Reconnect(first_delay=0.0)) as one, one.subscribe("notes://1") as changes:
            await asyncio.wait_for(anext(changes), 60)
            await site.heard("GET", 3)
            assert len(site.got("ping")) == 1


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_lost_stream_is_let_go_where_nobody_wants_it_or_we_are_unknown(wanted: bool) -> None:
    async with Site("handshake") as site:
        lose_stream(site)
        site.on("ping", lambda seen: seen.error(-32600, "who are you?"))
        async with client(site, reconnect=Reconnect(first_delay=0.0)) as one:
            heard = gaps(one)
            if wanted:
                one.on_notification("notifications/x", lambda params: None)
            while not heard or len(site.got("ping")) < wanted:
                await asyncio.sleep(0.01)
            await one.list_tools()
            assert (len(site.got("ping")), len(site.got("GET"))) == (int(wanted), 2)


async def test_a_notification_that_waits_for_the_stream_is_sent_before_the_session_ends() -> None:
    async with Site("handshake") as site:
        site.on("GET", lambda seen: asyncio.sleep(10))
        async with client(site) as one:
            await one.notify("notifications/vendor/last", {"n": 1})
        assert [seen.message["params"] for seen in site.got("notifications/vendor/last")] == [{"n": 1}]
        assert len(site.got("DELETE")) == 1


# -- states of a channel


async def test_a_session_nobody_renews_in_time_ends_the_link() -> None:
    async with Site("handshake") as site, client(site, reconnect=False, http={"renew_timeout": 0.1}) as one:
        site.on("tools/list", lambda seen: seen.status(404))
        site.on("initialize", lambda seen: seen.gone())
        with pytest.raises(LinkLost, match=r"no new one could be opened: it took longer than 0\.1 s"):
            await one.request("tools/list")


async def test_a_new_session_of_another_version_ends_the_link() -> None:
    async with Site("handshake") as site, client(site, reconnect=False) as one:
        site.on("tools/list", lambda seen: seen.status(404))
        info = {"name": "other", "version": "1"}
        result = {"protocolVersion": "2024-11-05", "capabilities": {"tools": {}}, "serverInfo": info}
        site.on("initialize", lambda seen: seen.result(result))
        with pytest.raises(LinkLost, match="refused the handshake it had accepted before"):
            await one.request("tools/list")


async def test_a_session_that_is_over_while_nobody_hears_of_it_fails_its_requests() -> None:
    """A transport makes no handshake of its own."""
    async with Site("handshake") as site:
        near = NearSide(HttpTransport(site.url, **FAST))
        await near.connect()
        site.on("tools/list", lambda seen: seen.status(404))
        with pytest.raises(LinkLost, match="does not know its own session"):
            await near.ask("tools/list", {})
        assert len(site.got("initialize")) == 1
        await near.close()


async def test_what_is_sent_while_a_session_is_renewed_waits_for_it() -> None:
    async with Site("handshake") as site, client(site) as one:
        forget(site)
        renewed = asyncio.Event()
        usual = site._usual

        async def slow(seen: Seen) -> None:
            await renewed.wait()
            usual(seen)

        site.on("initialize", slow)
        site.on("ping", lambda seen: seen.result({}))
        first = asyncio.ensure_future(one.list_tools())
        await site.heard("initialize", 2)
        calls = len(site.got("tools/list"))
        second = asyncio.ensure_future(one.ping())
        await asyncio.sleep(0.05)
        assert site.got("ping") == []
        renewed.set()
        await asyncio.gather(first, second)
        assert len(site.got("tools/list")) == calls + 1
        assert site.got("ping")[0].headers["mcp-session-id"] == f"session-{site.sessions}"
