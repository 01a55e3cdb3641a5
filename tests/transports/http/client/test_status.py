"""What a client sends again, when, and what it never sends twice."""

from __future__ import annotations

import asyncio
import email.utils
import json
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ferrule import Client
from ferrule.errors import HttpFailed, LinkLost, OutcomeUnknown, PeerError
from ferrule.supervision.backoff import Backoff
from ferrule.transports.http.client.post import Post
from ferrule.transports.http.client.status import hand_on, judge, retry_after
from ferrule.wire.messages import ErrorObject

sys.path.insert(0, str(Path(__file__).resolve().parent))

from scripted import Seen, Site, text_result, tool

FAST = {"retry_delay": 0.01, "jitter": 0.0}


def client(site: Site, **options: Any) -> Client:
    """Return a client of the site that loses no time."""
    http = {**FAST, **options.pop("http", {})}
    return Client(site.url, http=http, **options)


def test_a_message_that_needs_no_answer_is_over_when_it_is_taken() -> None:
    ended: list[Any] = []
    post = SimpleNamespace(status=202, unanswered=[], over=lambda: ended.append("over"), fail=ended.append)
    judge(cast("Post", post))
    assert ended == ["over"]


def test_an_error_of_the_server_is_handed_to_each_who_waits_once_the_message_is_over() -> None:
    steps: list[Any] = []
    channel = SimpleNamespace(deliver=lambda frame: steps.append(json.loads(frame)))
    post = SimpleNamespace(unanswered=[1, "b"], channel=channel, over=lambda: steps.append(list(post.unanswered)))
    hand_on(cast("Post", post), ErrorObject(-32000, "Busy"))
    error = {"code": -32000, "message": "Busy"}
    assert steps == [[], *({"jsonrpc": "2.0", "id": identity, "error": error} for identity in (1, "b"))]


# -- how long


def test_pauses_double_up_to_the_longest() -> None:
    """seed:HTTP-11."""
    pauses = [Backoff(1.0, longest=60.0, jitter=0.0).delay(attempt, lambda: 1.0) for attempt in range(1, 9)]
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert Backoff().delay(10**6, lambda: 0.0) == 60


NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("value", "wait"),
    [
        ("7", 7.0),
        (" 0 ", 0.0),
        (email.utils.formatdate(NOW + 90, usegmt=True), 90.0),
        (email.utils.formatdate(NOW - 90, usegmt=True), 0.0),
        ("Tue, 14 Nov 2023 23:14:50 +0100", 90.0),
        ("Tue, 14 Nov 2023 22:14:50 -0000", 90.0),
        ("9" * 50, 999_999_999_999.0),
        ("soon", None),
        ("-5", None),
        ("", None),
        ("1.5", None),
    ],
)
def test_a_server_may_name_seconds_or_a_date(value: str, wait: float | None) -> None:
    assert retry_after(value, NOW) == wait


# -- statuses


@pytest.mark.parametrize("status", [429, 503])
async def test_what_the_server_did_not_begin_is_sent_again(era: str, status: int) -> None:
    """seed:HTTP-09."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/call", *[lambda seen: seen.status(status)] * 3, lambda seen: seen.text("then"))
        assert (await one.call_tool("t")).text == "then"
        assert len(site.got("tools/call")) == 4


async def test_after_three_repetitions_it_is_given_up(era: str) -> None:
    """seed:HTTP-10."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.status(503))
        with pytest.raises(HttpFailed, match=r"HTTP 503 \(tried 4 times\)") as raised:
            await one.call_tool("t")
        assert raised.value.status == 503
        assert len(site.got("tools/call")) == 4


@pytest.mark.parametrize("status", [500, 502, 504])
async def test_what_may_have_begun_is_sent_again_only_if_that_does_no_harm(era: str, status: int) -> None:
    """seed:HTTP-09, seed:HTTP-20."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.status(status))
        with pytest.raises(HttpFailed, match=f"HTTP {status}"):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 1
        site.on("tools/list", lambda seen: seen.status(status), lambda seen: seen.result({"tools": []}))
        assert await one.request("tools/list") == {"tools": []}


@pytest.mark.parametrize("status", [400, 401, 403, 405, 410, 501, 505])
async def test_other_statuses_are_final(era: str, status: int) -> None:
    """seed:HTTP-09."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/list", lambda seen: seen.status(status))
        with pytest.raises(HttpFailed, match=f"HTTP {status}"):
            await one.request("tools/list")
        assert len(site.got("tools/list")) == 1


async def test_which_statuses_are_worth_another_attempt_can_be_said(era: str) -> None:
    """C-20: what is harmless is sent again after these, and after no others."""
    async with Site(era) as site, client(site, http={"retry_statuses": (408, 503)}) as one:
        site.on("tools/list", lambda seen: seen.status(408), lambda seen: seen.result({"tools": []}))
        assert await one.request("tools/list") == {"tools": []}
        site.on("tools/list", lambda seen: seen.status(502))
        with pytest.raises(HttpFailed, match="HTTP 502"):
            await one.request("tools/list")
        assert len(site.got("tools/list")) == 3
        site.on("tools/call", lambda seen: seen.status(408))
        with pytest.raises(HttpFailed, match="HTTP 408"):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 1


async def test_an_error_in_the_body_is_told_when_repeating_did_not_help(era: str) -> None:
    async with Site(era) as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.error(-32000, "Busy", 503))
        with pytest.raises(PeerError, match="Busy"):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 4


@pytest.mark.parametrize("date", [False, True])
async def test_ovl_09_retry_after_is_honoured_in_both_forms(era: str, date: bool) -> None:
    async with Site(era) as site, client(site) as one:
        after = email.utils.formatdate(time.time() + 2, usegmt=True) if date else "1"
        site.on("tools/call", lambda seen: seen.status(503, retry_after=after), lambda seen: seen.text("then"))
        began = time.monotonic()
        await one.call_tool("t")
        assert time.monotonic() - began >= 0.9


async def test_a_server_that_wants_too_long_a_pause_is_given_up(era: str) -> None:
    async with Site(era) as site, client(site) as one:
        site.on("tools/call", lambda seen: seen.status(503, retry_after="3600"))
        with pytest.raises(HttpFailed, match="503"):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 1


async def test_ovl_09_many_refused_clients_come_back_spread_by_chance() -> None:
    """With the usual jitter the second attempts of many calls fill half the pause instead of one moment."""
    async with Site() as site, client(site, http={"retry_delay": 0.4, "jitter": 0.5, "pool_size": 40}) as one:
        first: dict[Any, float] = {}
        second: list[float] = []

        def refuse_once(seen: Seen) -> None:
            if seen.id in first:
                second.append(time.monotonic() - first[seen.id])
                seen.text("ok")
            else:
                first[seen.id] = time.monotonic()
                seen.status(503)

        site.on("tools/call", refuse_once)
        await asyncio.gather(*(one.call_tool("t") for _ in range(40)))
        assert min(second) >= 0.19
        assert max(second) - min(second) > 0.1


async def test_never_means_never(era: str) -> None:
    async with Site(era) as site, client(site, http={"retry": "never"}) as one:
        site.on("tools/list", lambda seen: seen.status(503))
        with pytest.raises(HttpFailed):
            await one.request("tools/list")
        assert len(site.got("tools/list")) == 1


async def test_a_cancelled_call_is_not_sent_again(era: str) -> None:
    async with Site(era) as site, client(site, http={"retry_delay": 1.0}) as one:
        site.on("tools/call", lambda seen: seen.status(503))
        task = asyncio.create_task(one.call_tool("t"))
        await site.heard("tools/call")
        await asyncio.sleep(0.03)
        task.cancel()
        await asyncio.sleep(1.2)
        assert len(site.got("tools/call")) == 1


# -- cuts


def cut(seen: Seen) -> None:
    """Say nothing and leave."""
    seen.cut()


async def test_res_07_a_call_that_may_have_run_is_never_sent_again_in_silence(era: str) -> None:
    """seed:HTTP-20, HTM-9."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/call", cut)
        with pytest.raises(OutcomeUnknown, match=r"unknown outcome.*not sent again"):
            await one.call_tool("t")
        await asyncio.sleep(0.1)
        assert len(site.got("tools/call")) == 1


async def test_res_07_a_cut_in_the_middle_of_the_answer_is_no_different(era: str) -> None:
    async def half(seen: Seen) -> None:
        seen.raw(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{")
        await seen.flushed()
        seen.cut()

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", half)
        with pytest.raises(OutcomeUnknown):
            await one.call_tool("t")
        assert len(site.got("tools/call")) == 1


async def test_a_harmless_request_is_sent_again_under_a_new_id(era: str) -> None:
    """HTM-9, seed:HTTP-13: only the one that was cut."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/list", cut, cut, lambda seen: seen.result({"tools": []}))
        assert await one.request("tools/list") == {"tools": []}
        ids = [seen.id for seen in site.got("tools/list")]
        assert len(set(ids)) == 3


@pytest.mark.parametrize("hints", [{"idempotentHint": True}, {"readOnlyHint": True}])
async def test_a_tool_that_says_it_does_no_harm_twice_is_called_again(era: str, hints: dict[str, bool]) -> None:
    """seed:HTTP-20."""
    async with Site(era) as site, client(site) as one:
        site.on("tools/list", lambda seen: seen.result({"tools": [tool("t", **hints), tool("u")]}))
        await one.list_tools()
        site.on("tools/call", cut, lambda seen: seen.text("again"))
        assert (await one.call_tool("t")).text == "again"
        site.on("tools/call", cut)
        with pytest.raises(OutcomeUnknown):
            await one.call_tool("u")


async def test_all_means_also_what_may_have_run(era: str) -> None:
    """seed:HTTP-12."""
    async with Site(era) as site, client(site, http={"retry": "all"}) as one:
        site.on("tools/call", cut, lambda seen: seen.text("twice"))
        assert (await one.call_tool("t")).text == "twice"


async def test_a_stream_lost_in_the_stateless_era_is_not_resumed() -> None:
    """HTM-9, HTM-2."""

    async def half(seen: Seen) -> None:
        seen.stream()
        seen.event({"jsonrpc": "2.0", "method": "notifications/x"}, mark="1")
        await seen.flushed()
        seen.cut()

    async with Site() as site, client(site) as one:
        site.on("tools/call", half)
        with pytest.raises(OutcomeUnknown):
            await one.call_tool("t")
        site.on("tools/list", half, lambda seen: seen.result({"tools": []}))
        assert await one.request("tools/list") == {"tools": []}
        assert site.got("GET") == []


async def test_a_kept_connection_that_died_in_the_meantime_costs_nothing(era: str) -> None:
    """seed:HTTP-15."""
    died = asyncio.Event()
    async with Site(era) as site, client(site) as one:

        async def last(seen: Seen) -> None:
            seen.text("last")
            await seen.flushed()
            seen.cut()
            died.set()

        site.on("tools/call", last)
        for _ in range(3):
            assert (await one.call_tool("t")).text == "last"
            await died.wait()
            died.clear()
            # The end of it is on its way, however slow the machine is: some turns of the loop later it is known.
            for _ in range(20):
                await asyncio.sleep(0)


async def test_a_server_that_ends_each_connection_is_served_by_new_ones(era: str) -> None:
    def closing(seen: Seen) -> None:
        seen.result(text_result("bye"), connection="close")

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", closing)
        for _ in range(5):
            assert (await one.call_tool("t")).text == "bye"
        assert len({seen.connection for seen in site.got("tools/call")}) == 5


async def test_a_connection_the_server_is_about_to_close_is_not_used_again(era: str) -> None:
    def soon(seen: Seen) -> None:
        seen.result(text_result("ok"), keep_alive="timeout=1, max=5")

    async with Site(era) as site, client(site) as one:
        site.on("tools/call", soon)
        await one.call_tool("t")
        await asyncio.sleep(0.02)
        await one.call_tool("t")
        assert len({seen.connection for seen in site.got("tools/call")}) == 2


# -- no connection


async def test_res_05_a_server_that_is_gone_is_tried_with_growing_pauses_and_then_given_up(era: str) -> None:
    async with Site(era) as site, client(site, http={"retry_delay": 0.05}) as one:
        await site.stop_listening()
        site.on("tools/call", lambda seen: seen.result(text_result("bye"), connection="close"))
        await one.call_tool("t")
        began, cpu = time.monotonic(), time.process_time()
        with pytest.raises(LinkLost, match=r"tried 4 times\).*refused"):
            await one.call_tool("t")
        waited = time.monotonic() - began
        assert waited >= 0.05 + 0.1 + 0.2
        assert time.process_time() - cpu < 0.3 * waited, "it waits, and does not spin"


async def test_a_server_that_comes_back_in_time_is_found(era: str) -> None:
    async with Site(era) as site, client(site, http={"retry_delay": 0.1}) as one:
        port = site.port
        await site.stop_listening()
        site.on("tools/call", lambda seen: seen.result(text_result("bye"), connection="close"))
        await one.call_tool("t")
        call = asyncio.create_task(one.call_tool("t"))
        await asyncio.sleep(0.05)
        server = await asyncio.start_server(site._serve, "127.0.0.1", port)
        assert (await call).text == "bye"
        server.close()


# -- batches


@pytest.mark.parametrize("cut", ["connection", "status"])
@pytest.mark.parametrize(
    ("methods", "sent"),
    [(["tools/list", "tools/call"], 1), (["tools/call", "tools/list"], 1), (["tools/list", "prompts/list"], 2)],
    ids=["a call last", "a call first", "no call"],
)
async def test_a_batch_that_holds_a_call_is_never_sent_twice(methods: list[str], sent: int, cut: str) -> None:
    """A batch may be sent again only if each of its requests may; a tool that ran must not run twice."""

    def lose(seen: Seen) -> None:
        if cut == "connection":
            seen.cut()
        else:
            seen.status(502)

    def answer(seen: Seen) -> None:
        seen.json([{"jsonrpc": "2.0", "id": each["id"], "result": {}} for each in seen.message])

    async with Site("handshake", prompts={}) as site:
        site.on("batch", lose, answer)
        async with client(site, mode="handshake", allow_batch=True) as asker:
            async with asker.batch() as batch:
                futures = [batch.request(method, {"name": "x"} if method == "tools/call" else {}) for method in methods]
            answers = await asyncio.gather(*futures, return_exceptions=True)
        assert len(site.got("batch")) == sent
        assert all(isinstance(each, Exception) for each in answers) is (sent == 1)
