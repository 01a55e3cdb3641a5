"""Notifications on the client's side: every kind of handler, in order, and apart from the receiving of answers."""

from __future__ import annotations

import asyncio
import logging
import queue
import sys
import types

import pytest

from ferrule import Client
from ferrule.client.features import progress
from ferrule.client.link.inbox import Inbox
from ferrule.errors import SetupError
from ferrule.schema.notices import OLD_NAMES

VENDOR = "notifications/vendor/thing"


async def settled(client):
    """Let every notification that has arrived reach its handlers."""
    await client.request("vendor/nothing")
    worker = client._notifications.inbox._worker
    if worker is not None:
        await asyncio.wait([worker])


@pytest.fixture
def talkative(raw):
    return lambda era: raw(era, {"vendor/nothing": {}, "tools/list": {"tools": []}})


class Listener:
    def __init__(self):
        self.heard = []

    def params(self, params):
        self.heard.append(params)

    def both(self, method, params):
        self.heard.append((method, params))

    async def later(self, params):
        await asyncio.sleep(0)
        self.heard.append(params)

    async def both_later(self, method, params):
        self.heard.append((method, params))

    def with_default(self, params, verbose=False):
        self.heard.append(params)

    def anything(self, *args):
        self.heard.append(args)

    def __call__(self, params):
        self.heard.append(params)


@pytest.mark.parametrize("form", ["params", "later", "with_default", "__call__"])
async def test_a_handler_may_take_the_params(form, era, talkative):
    """NOTI-03, CLNT-07"""
    server, listener = talkative(era), Listener()
    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, getattr(listener, form))
        server.tell(VENDOR, {"n": 1})
        server.tell(VENDOR)
        await settled(client)
    assert listener.heard == [{"n": 1}, {}]


@pytest.mark.parametrize("form", ["both", "both_later", "anything"])
async def test_a_handler_may_take_method_and_params(form, era, talkative):
    """NOTI-03"""
    server, listener = talkative(era), Listener()
    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, getattr(listener, form))
        server.tell(VENDOR, {"n": 1})
        await settled(client)
    assert listener.heard == [(VENDOR, {"n": 1})]


@pytest.mark.parametrize("kind", [asyncio.Queue, queue.Queue, queue.SimpleQueue])
async def test_a_handler_may_be_a_queue(kind, era, talkative):
    """NOTI-03"""
    server, heard = talkative(era), kind()
    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, heard)
        server.tell(VENDOR, {"n": 1})
        await settled(client)
    assert heard.get_nowait() == (VENDOR, {"n": 1})


async def test_a_handler_may_be_named_by_module_and_function(era, talkative, monkeypatch):
    """NOTI-03"""
    listener = Listener()
    module = types.ModuleType("handlers_of_mine")
    module.handle = listener.params
    monkeypatch.setitem(sys.modules, "handlers_of_mine", module)
    server = talkative(era)
    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, "handlers_of_mine:handle")
        server.tell(VENDOR, {"n": 1})
        await settled(client)
    assert listener.heard == [{"n": 1}]


@pytest.mark.parametrize("bad", ["no_such_module:f", "asyncio:no_such_function", "", ":", 7, [print]])
def test_what_cannot_handle_anything_is_refused_in_one_sentence(bad):
    with pytest.raises(SetupError) as refusal:
        Inbox().on(VENDOR, bad)
    assert "\n" not in str(refusal.value)


def test_a_builtin_without_a_signature_gets_the_params():
    heard = {}
    deliver = Inbox().on(VENDOR, heard.update)
    deliver(VENDOR, {"n": 1})
    assert heard == {"n": 1}


async def test_a_handler_can_be_set_by_a_decorator(era, talkative):
    server, heard = talkative(era), []
    client = Client(server, mode=era)

    @client.on_notification(VENDOR)
    def handle(params):
        heard.append(params)

    assert callable(handle)
    async with client:
        server.tell(VENDOR, {"n": 1})
        await settled(client)
    assert heard == [{"n": 1}]


@pytest.mark.parametrize(("old", "new"), OLD_NAMES.items())
async def test_an_old_name_is_understood_when_sent_and_when_handled(old, new, talkative):
    """NOTI-02"""
    server, by_old, by_new = talkative("handshake"), Listener(), Listener()
    params = {"uri": "x://y", "level": "info", "data": 1}
    async with Client(server, mode="handshake") as client:
        client.on_notification(old, by_old.both)
        client.on_notification(new, by_new.both)
        server.tell(old, params)
        server.tell(new, params)
        await settled(client)
    assert by_old.heard == by_new.heard == [(new, params)] * 2


STANDARD = [
    "notifications/resources/updated",
    "notifications/resources/list_changed",
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/message",
    "notifications/elicitation/complete",
]


@pytest.mark.parametrize("method", STANDARD)
async def test_every_standard_notification_reaches_its_handler(method, era, talkative):
    """NOTI-02, NOTI-13"""
    server, listener = talkative(era), Listener()
    async with Client(server, mode=era) as client:
        client._notifications.inbox.on(method, listener.params)
        server.tell(method, {"uri": "x://y", "level": "info", "data": 1})
        await settled(client)
    assert len(listener.heard) == 1


async def test_a_failing_handler_harms_neither_the_others_nor_what_comes_next(era, talkative, caplog):
    """NOTI-04"""
    server, listener = talkative(era), Listener()

    def broken(params):
        raise ZeroDivisionError("in the handler")

    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, broken)
        client.on_notification(VENDOR, listener.params)
        server.tell(VENDOR, {"n": 1})
        server.tell(VENDOR, {"n": 2})
        await settled(client)
    assert listener.heard == [{"n": 1}, {"n": 2}]
    assert "in the handler" in caplog.text


async def test_malformed_params_keep_nothing_that_comes_behind_them(era, talkative, caplog):
    server, listener = talkative(era), Listener()
    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, listener.params)
        for params in ({"n": 1}, [1], {"n": 2}):
            server.tell(VENDOR, params)
        await settled(client)
    assert listener.heard == [{"n": 1}, {"n": 2}]
    assert "malformed params" in caplog.text


async def test_a_handler_that_is_cancelled_keeps_nothing_that_comes_behind_it(era, talkative, caplog):
    """What it waits for was cancelled by somebody else: nobody wants the handling of notifications to end."""
    server, listener = talkative(era), Listener()

    async def waits_for_what_is_cancelled(params):
        listener.params(params)
        gone = asyncio.get_running_loop().create_future()
        gone.cancel()
        await gone

    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, waits_for_what_is_cancelled)
        server.tell(VENDOR, {"n": 1})
        server.tell(VENDOR, {"n": 2})
        await settled(client)
    assert listener.heard == [{"n": 1}, {"n": 2}]
    assert "was cancelled" in caplog.text


@pytest.mark.virtual_time
async def test_slo_07_a_slow_handler_delays_no_answer_and_what_waits_for_it_is_bounded(era, raw, caplog):
    """NOTI-04"""
    server, heard = raw(era, {"tools/call": {"content": []}}), []

    async def slow(params):
        await asyncio.sleep(10)
        heard.append(params["n"])

    async with Client(server, mode=era) as client:
        client._notifications.inbox = Inbox(limit=100)
        client.on_notification(VENDOR, slow)
        for number in range(300):
            server.tell(VENDOR, {"n": number})
            await client.call_tool("x")
        assert asyncio.get_running_loop().time() == 0
        await asyncio.wait([client._notifications.inbox._worker])
    assert heard[-100:] == list(range(200, 300))
    assert len(heard) <= 101
    assert "too slow" in caplog.text


@pytest.mark.virtual_time
async def test_what_waits_for_a_slow_handler_is_bounded_in_bytes(era, raw, caplog):
    """A few large notifications push the oldest out as many small ones do, and that is said once."""
    server, heard = raw(era, {"tools/call": {"content": []}}), []

    async def slow(params):
        await asyncio.sleep(10)
        heard.append(params["n"])

    async with Client(server, mode=era) as client:
        client._notifications.inbox = Inbox(max_bytes=50_000)
        client.on_notification(VENDOR, slow)
        for number in range(30):
            server.tell(VENDOR, {"n": number, "text": "x" * 10_000})
            await client.call_tool("x")
        await asyncio.wait([client._notifications.inbox._worker])
        assert heard[-4:] == [26, 27, 28, 29]
        assert len(heard) <= 6
        assert caplog.text.count("too slow") == 1


@pytest.mark.virtual_time
async def test_progress_callbacks_that_are_slow_do_not_pile_up(era, raw, monkeypatch):
    """PROG-4: a flood of progress starts no more callbacks than may run at once."""
    monkeypatch.setattr(progress, "MAX_PROGRESS_WAITING", 5)
    begun = []

    async def slow(done, total, message):
        begun.append(done)
        await asyncio.sleep(10)

    server = raw(era)

    def flood(request):
        token = request["params"]["_meta"]["progressToken"]
        for number in range(100):
            server.tell("notifications/progress", {"progressToken": token, "progress": number})
        return {"content": [], "resultType": "complete"}

    server.answers["tools/call"] = flood
    async with Client(server, mode=era) as client:
        await client.call_tool("x", on_progress=slow)
        await asyncio.sleep(1)
        assert begun == [0, 1, 2, 3, 4]


async def test_notifications_are_handled_in_the_order_they_came(era, talkative):
    server, heard = talkative(era), []

    async def handle(params):
        await asyncio.sleep(0.001 if params["n"] % 2 else 0)
        heard.append(params["n"])

    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, handle)
        for number in range(20):
            server.tell(VENDOR, {"n": number})
        await settled(client)
    assert heard == list(range(20))


async def test_a_handler_can_be_replaced_and_removed_while_running(era, talkative):
    """NOTI-11"""
    server, first, second = talkative(era), Listener(), Listener()
    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, first.params)
        server.tell(VENDOR, {"n": 1})
        await settled(client)
        client.remove_notification_handler(VENDOR)
        client.on_notification(VENDOR, second.params)
        server.tell(VENDOR, {"n": 2})
        await settled(client)
        client.remove_notification_handler(VENDOR)
        client.remove_notification_handler("never/set")
        server.tell(VENDOR, {"n": 3})
        await settled(client)
    assert first.heard == [{"n": 1}]
    assert second.heard == [{"n": 2}]


async def test_a_notification_nobody_handles_is_dropped_with_a_line_in_the_log(era, talkative, caplog):
    """NOTI-01, NOTI-05"""
    server = talkative(era)
    with caplog.at_level(logging.DEBUG, "ferrule"):
        async with Client(server, mode=era) as client:
            server.tell("notifications/nobody", {"n": 1})
            await settled(client)
    assert "no handler for the notification notifications/nobody" in caplog.text
    assert not server.replies()


async def test_a_handler_may_use_the_client(era, talkative):
    server, lists = talkative(era), []

    async def relist(params):
        lists.append(await client.list_tools())

    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, relist)
        server.tell(VENDOR)
        await settled(client)
    assert lists == [[]]


async def test_a_handler_still_running_ends_with_the_client(era, talkative):
    server, ended = talkative(era), []

    async def endless(params):
        try:
            await asyncio.sleep(3600)
        finally:
            ended.append(True)

    async with Client(server, mode=era) as client:
        client.on_notification(VENDOR, endless)
        server.tell(VENDOR)
        await client.request("vendor/nothing")
    assert ended == [True]
