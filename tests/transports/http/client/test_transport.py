"""A client over Streamable HTTP against a server that says just what each test wants."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client
from ferrule.errors import Cancelled, CarrierError, PeerError, SetupError, TimedOut
from ferrule.protocol.handshake import NEWEST as HANDSHAKE
from ferrule.protocol.stateless import NEWEST as STATELESS
from ferrule.transports.http.client.pool import ROOM
from ferrule.transports.http.client.transport import HttpTransport
from ferrule.wire.messages import Request

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site, text_result

FAST = {"retry_delay": 0.01, "jitter": 0.0}


async def settled(site: Site) -> None:
    """Wait until a client that has opened a session is done with it."""
    if site.era == "handshake":
        await site.heard("GET")
        await asyncio.sleep(0.05)


def client(site: Site, **options: Any) -> Client:
    """Return a client of the site that loses no time."""
    http = {**FAST, **options.pop("http", {})}
    return Client(site.url, http=http, **options)


# -- the shape of a request


async def test_every_message_is_a_post_that_takes_both_kinds_of_answer(era: str) -> None:
    """spec:HTTP-4, seed:HTTP-01."""
    async with Site(era) as site, client(site) as one:
        await one.call_tool("t", {"a": 1})
        call = site.got("tools/call")[0]
        assert (call.verb, call.target) == ("POST", "/mcp")
        assert {"application/json", "text/event-stream"} <= set(call.headers["accept"].split(", "))
        assert call.headers["content-type"] == "application/json"
        assert call.message["params"]["arguments"] == {"a": 1}


async def test_headers_of_our_own_go_with_every_request(era: str) -> None:
    """seed:HTTP-05."""
    async with Site(era) as site, client(site, headers={"Authorization": "Bearer t", "X-Own": "x"}) as one:
        await one.call_tool("t")
    assert {(seen.headers["authorization"], seen.headers["x-own"]) for seen in site.seen} == {("Bearer t", "x")}


@pytest.mark.parametrize("headers", [{"a b": "x"}, {"a": "x\r\nb: y"}, {"Content-Length": "5"}])
async def test_headers_that_would_break_the_request_are_refused(headers: dict[str, str]) -> None:
    async with Site() as site:
        with pytest.raises(SetupError):
            await client(site, headers=headers).connect()


async def test_a_user_name_in_the_url_becomes_an_authorization_and_is_never_shown() -> None:
    async with Site() as site:
        target = site.url.replace("http://", "http://me:s%40cret@")
        async with Client(target) as one:
            await one.call_tool("t")
        assert site.seen[0].headers["authorization"] == "Basic bWU6c0BjcmV0"
        assert "me:" not in site.seen[0].headers["host"]
    with pytest.raises(CarrierError) as raised:
        await Client(target).connect()
    assert "cret" not in str(raised.value)


# -- answers


async def stream_the_answer(seen: Seen) -> None:
    seen.stream()
    seen.chunk(b": a comment\r\n")
    seen.event({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "half"}})
    seen.event_result(text_result("streamed"))
    seen.end()


async def test_the_server_chooses_json_or_a_stream_for_each_request(era: str) -> None:
    """spec:HTTP-6, spec:HTTP-7, seed:HTTP-08."""
    async with Site(era, logging={}) as site, client(site) as one:
        heard: list[Any] = []
        one.on_log(lambda level, data, logger: heard.append(data))
        site.on("tools/call", stream_the_answer, lambda seen: seen.text("whole"))
        assert (await one.call_tool("t")).text == "streamed"
        assert (await one.call_tool("t")).text == "whole"
        assert heard == ["half"]


async def test_answers_reach_their_callers_in_whatever_order_they_come(era: str) -> None:
    """seed:HTTP-07, seed:HTTP-20."""

    async def late_first(seen: Seen) -> None:
        number = seen.message["params"]["arguments"]["n"]
        await asyncio.sleep((20 - number) * 0.003)
        seen.text(str(number))

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", late_first)
        results = await asyncio.gather(*(one.call_tool("t", {"n": n}) for n in range(20)))
        assert [result.text for result in results] == [str(n) for n in range(20)]


async def test_an_answer_in_small_pieces_is_put_together(era: str) -> None:
    async def drip(seen: Seen) -> None:
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[],"resultType":"complete"}}' % seen.id
        whole = b"HTTP/1.1 200 OK\r\nContent-Type: Application/JSON; charset=utf-8\r\nContent-Length: %d\r\n\r\n%b"
        for byte in whole % (len(answer), answer):
            seen.raw(bytes([byte]))
            await asyncio.sleep(0)

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", drip)
        assert (await one.call_tool("t")).content == []


async def test_an_answer_without_a_length_ends_with_its_connection(era: str) -> None:
    async def until_close(seen: Seen) -> None:
        answer = b'{"jsonrpc":"2.0","id":%d,"result":{"content":[]}}' % seen.id
        seen.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n" + answer)
        seen.keep = False
        await seen.flushed()

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", until_close)
        assert (await one.call_tool("t")).content == []


async def test_what_a_server_says_in_between_is_no_answer(era: str) -> None:
    """seed:HTTP-09: 1xx is ignored."""

    async def hurry(seen: Seen) -> None:
        seen.raw(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n")
        seen.text("final")

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", hurry)
        assert (await one.call_tool("t")).text == "final"


async def test_a_json_rpc_error_is_handed_to_its_caller_whatever_the_status(era: str) -> None:
    """HTM-15, seed:HTTP-14."""
    async with Site(era) as site, client(site) as one:
        for status in (200, 400, 404, 409, 422, 500):
            if status == 404 and era == "handshake":
                continue
            site.on("tools/call", lambda seen, status=status: seen.error(-32602, "odd", status, data={"a": 1}))
            with pytest.raises(PeerError) as raised:
                await one.call_tool("t")
            assert (raised.value.code, raised.value.message, raised.value.data) == (-32602, "odd", {"a": 1})


@pytest.mark.parametrize("identity", [None, "server-error", 99])
async def test_an_error_under_another_id_still_belongs_to_the_request_it_answers(era: str, identity: Any) -> None:
    async with Site(era) as site, client(site) as one:
        error = {"jsonrpc": "2.0", "id": identity, "error": {"code": -32000, "message": "Bad Request"}}
        site.on("tools/call", lambda seen: seen.json(error, 400))
        with pytest.raises(PeerError, match="Bad Request"):
            await one.call_tool("t")


# -- questions and notifications (handshake era)


async def test_a_question_on_the_stream_of_a_call_is_answered_by_a_post_of_its_own() -> None:
    """HTL-3, seed:GUAR-05."""
    async with Site("handshake") as site:
        answered = asyncio.Event()

        async def ask_first(seen: Seen) -> None:
            seen.stream()
            seen.event({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
            await answered.wait()
            seen.event_result(text_result("thanks"))
            seen.end()

        def take(seen: Seen) -> None:
            seen.status(202)
            answered.set()

        site.on("tools/call", ask_first)
        site.on("response", take)
        async with client(site, roots=["/tmp"]) as one:
            assert (await one.call_tool("t")).text == "thanks"
        reply = site.got("response")[0]
        assert reply.message["id"] == "q"
        assert reply.headers["mcp-session-id"] == "session-1"


async def test_questions_are_answered_even_when_every_kept_connection_waits_for_them() -> None:
    """A full pool must not keep us from saying what its calls wait for."""
    async with Site("handshake") as site:
        told: set[str] = set()

        async def ask_first(seen: Seen) -> None:
            seen.stream()
            seen.event({"jsonrpc": "2.0", "id": f"q{seen.id}", "method": "roots/list"})
            await site.until(lambda: f"q{seen.id}" in told)
            seen.event_result(text_result("thanks"))
            seen.end()

        def take(seen: Seen) -> None:
            told.add(seen.id)
            seen.status(202)

        site.on("tools/call", ask_first)
        site.on("response", take)
        async with client(site, roots=["/tmp"], http={"pool_size": 2}) as one:
            results = await asyncio.gather(*(one.call_tool("t") for _ in range(6)))
        assert [result.text for result in results] == ["thanks"] * 6


# -- cancelling and time


async def test_a_cancelled_call_closes_its_stream_and_says_nothing_else_in_the_stateless_era() -> None:
    """HTM-8, CANC-1."""
    async with Site("stateless") as site, client(site) as one:
        cut = asyncio.Event()

        async def wait_for_the_cut(seen: Seen) -> None:
            seen.stream()
            await seen.flushed()
            await seen.gone()
            cut.set()

        site.on("tools/call", wait_for_the_cut)
        task = asyncio.create_task(one.call_tool("slow"))
        await site.heard("tools/call")
        task.cancel()
        await cut.wait()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert site.got("notifications/cancelled") == []


async def test_a_cancelled_call_is_told_of_in_the_handshake_era() -> None:
    """HTL-5."""
    async with Site("handshake") as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.gone())
        task = asyncio.create_task(one.call_tool("slow"))
        call = await site.heard("tools/call")
        task.cancel()
        notice = await site.heard("notifications/cancelled")
        assert notice.message["params"]["requestId"] == call.id
        assert notice.headers["mcp-session-id"] == "session-1"


async def test_a_call_that_was_never_sent_is_withdrawn_in_silence(era: str) -> None:
    async with Site(era) as site, client(site, http={"pool_size": 1}) as one:
        await settled(site)
        gate = asyncio.Event()

        async def hold(seen: Seen) -> None:
            await gate.wait()
            seen.text("first")

        site.on("tools/call", hold)
        first = asyncio.create_task(one.call_tool("a"))
        await site.heard("tools/call")
        second = asyncio.create_task(one.call_tool("b"))
        await asyncio.sleep(0.01)
        await one.cancel(one.pending[-1].id)
        with pytest.raises(Cancelled):
            await second
        gate.set()
        assert (await first).text == "first"
        assert [seen.message["params"]["name"] for seen in site.got("tools/call")] == ["a"]
        assert site.got("notifications/cancelled") == []


@pytest.mark.parametrize("params", [None, {}, {"requestId": 4711}, {"requestId": [1]}])
async def test_a_cancellation_of_nothing_harms_nobody(era: str, params: Any) -> None:
    async with Site(era) as site, client(site) as one:
        await one.notify("notifications/cancelled", params)
        assert (await one.call_tool("t")).text == "done"


async def test_the_caller_decides_how_long_to_wait(era: str) -> None:
    """seed:HTTP-03: the time-out is the request's own, the connection has none."""
    async with Site(era) as site, client(site, probe_on_timeout=False) as one:
        site.on("tools/call", lambda seen: seen.gone())
        with pytest.raises(TimedOut):
            await one.call_tool("t", timeout=0.05)


# -- connections


async def test_connections_are_kept_and_used_again(era: str) -> None:
    """seed:HTTP-01."""
    async with Site(era) as site, client(site) as one:
        await settled(site)
        for _ in range(20):
            await one.call_tool("t")
        assert len({seen.connection for seen in site.got("tools/call")}) == 1


async def test_no_more_requests_are_in_flight_than_connections_are_kept(era: str) -> None:
    """seed:HTTP-06."""
    async with Site(era) as site, client(site) as one:
        running = most = 0

        async def count(seen: Seen) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0.01)
            running -= 1
            seen.text("ok")

        site.on("tools/call", count)
        await asyncio.gather(*(one.call_tool("t") for _ in range(60)))
        assert most == 10


async def test_too_many_waiting_requests_are_refused_at_once(era: str) -> None:
    """seed:HTTP-06."""
    async with Site(era) as site, client(site, http={"pool_size": 1, "max_waiting": 3}) as one:
        await settled(site)
        gate = asyncio.Event()

        async def hold(seen: Seen) -> None:
            await gate.wait()
            seen.text("ok")

        site.on("tools/call", hold)
        calls = [asyncio.create_task(one.call_tool("t")) for _ in range(6)]
        await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
        gate.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(result, Exception) for result in results) == 2
        assert "3 requests wait" in str(next(result for result in results if isinstance(result, Exception)))


async def test_streams_that_stay_open_do_not_keep_others_from_being_sent(era: str) -> None:
    async with Site(era) as site, client(site, http={"pool_size": 2}) as one:
        gate = asyncio.Event()

        async def stay(seen: Seen) -> None:
            if seen.message["params"]["name"] == "quick":
                seen.text("quick")
                return
            seen.stream()
            await gate.wait()
            seen.event_result(text_result("late"))
            seen.end()

        site.on("tools/call", stay)
        slow = [asyncio.create_task(one.call_tool("slow")) for _ in range(2)]
        await site.heard("tools/call", 2)
        assert (await one.call_tool("quick")).text == "quick"
        gate.set()
        assert [(await each).text for each in slow] == ["late"] * 2


async def test_a_server_that_leaves_its_stream_open_after_the_answer_is_left(era: str) -> None:
    async with Site(era) as site, client(site) as one:
        left = asyncio.Event()

        async def linger(seen: Seen) -> None:
            seen.stream()
            seen.event_result(text_result("said"))
            await seen.flushed()
            await seen.gone()
            left.set()

        site.on("tools/call", linger)
        assert (await one.call_tool("t")).text == "said"
        await left.wait()


# -- opening and closing


async def test_a_transport_is_connected_once_and_can_be_closed_twice() -> None:
    class Deaf:
        def __getattr__(self, name: str) -> Any:
            return lambda *told: None

    async with Site() as site:
        transport = HttpTransport(site.url)
        channel = await transport.connect(Deaf())
        with pytest.raises(CarrierError, match="connected already"):
            await transport.connect(Deaf())
        await transport.close()
        await transport.close()
        channel.send(Request(1, "ping"))
        channel.close()
        await transport.connect(Deaf())
        await transport.close()
    assert site.seen == []


async def test_a_client_can_reconnect(era: str) -> None:
    async with Site(era) as site, client(site) as one:
        await one.reconnect()
        assert (await one.call_tool("t")).text == "done"
        assert one.protocol_version == (STATELESS if era == "stateless" else HANDSHAKE).version


@pytest.mark.parametrize("option", [{"retry": "often"}, {"pool_size": 0}, {"poolsize": 5}])
async def test_options_that_make_no_sense_are_refused(option: dict[str, Any]) -> None:
    with pytest.raises(SetupError):
        HttpTransport("http://127.0.0.1:1/mcp", **option)


async def test_senders_wait_while_the_server_is_not_ready_for_what_they_send() -> None:
    """GUAR-06: what is held until the stream for questions is open counts as waiting."""
    async with Site("handshake") as site:
        opened = asyncio.Event()

        async def slow_stream(seen: Seen) -> None:
            await opened.wait()
            seen.status(405)

        site.on("GET", slow_stream)
        async with client(site) as one:
            channel = one._keeper.current().live().channel
            await site.heard("GET")
            calls = [asyncio.create_task(one.call_tool("t")) for _ in range(ROOM + 5)]
            await asyncio.sleep(0)
            waiting = asyncio.create_task(channel.wait_writable())
            await asyncio.sleep(0)
            assert not waiting.done()
            assert not site.got("tools/call")
            opened.set()
            await waiting
            await asyncio.gather(*calls)
