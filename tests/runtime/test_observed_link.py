"""Every notification a server sends is reported to observers who want to know, on every transport."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ferrule import Client, Context, Http, Observer, Server, Tcp, WebSocket
from ferrule.errors import SetupError
from ferrule.runtime.link import Link
from ferrule.runtime.observed_link import ObservedChannel, ObservedLink
from ferrule.telemetry.observer import ObservedNotification, ObservedRequest, Outcome
from ferrule.transports.http.endpoint.exchange import NullChannel
from ferrule.wire.channel import ChannelDefaults, Origin
from patience import PATIENT

BATCH = b'[{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"work","_meta":{"progressToken":"p"}}}]'


class Witness(Observer):
    """Keeps what was sent, and what was asked and answered."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, Any]] = []
        self.asked: list[tuple[str, Any]] = []

    def notification_sent(self, notification: ObservedNotification) -> None:
        assert notification.size == len(notification.params)
        self.sent.append((notification.method, read(notification.params)))

    def question_recorded(self, request: ObservedRequest, params: bytes) -> None:
        self.asked.append((request.method, read(params)["message"]))

    def answer_recorded(self, request: ObservedRequest, outcome: Outcome, result: bytes) -> None:
        self.asked.append((outcome.kind, read(result)["content"]))


def read(text: bytes) -> Any:
    value = msgspec.json.decode(text or b"{}")
    value.pop("_meta", None)
    value.pop("progressToken", None)
    return value


def new_app(witness: Observer) -> Server:
    app = Server("talk", observer=witness, allow_batch=True)

    @app.resource("r://one")
    def one() -> str:
        return "1"

    @app.tool
    async def work(ctx: Context) -> str:
        await ctx.report_progress(1, 2)
        await ctx.info("looking")
        return "done"

    @app.tool
    async def choose(ctx: Context) -> str:
        return str((await ctx.elicit("Which?", str)).data)

    return app


async def reached(app: Server, listener: Any, use: Callable[[str], Any]) -> None:
    """Serve on a listener while something uses it."""
    serving = asyncio.ensure_future(app.serve(listener))
    try:
        async with asyncio.timeout(60):
            while not (url := url_of(listener)):
                await asyncio.sleep(0.01)
        await use(url)
    finally:
        await app.stop()
        await serving


def url_of(listener: Any) -> str:
    try:
        return str(listener.url)
    except SetupError:
        return ""  # it does not listen yet


LISTENERS = {"memory": None, "http": Http, "tcp": Tcp, "websocket": WebSocket}


@pytest.mark.parametrize("listener", LISTENERS.values(), ids=LISTENERS)
@pytest.mark.parametrize("era", ["handshake", "stateless"])
def test_what_a_server_tells_is_reported_on_every_transport(listener: Any, era: str) -> None:
    witness = Witness()
    app = new_app(witness)

    async def scenario(target: Any) -> None:
        client = Client(target, mode=era, log_level="info", elicitation=lambda question: {"value": "blue"}, **PATIENT)  # type: ignore[arg-type]
        changed = asyncio.Event()
        client.on_notification("notifications/resources/updated", lambda params: changed.set())
        async with client, client.subscribe("r://one"):
            await client.call_tool("work", on_progress=lambda *told: None)
            assert (await client.call_tool("choose")).text == "blue"
            app.notify_resource_updated("r://one")
            await asyncio.wait_for(changed.wait(), 60)

    if listener is None:
        asyncio.run(scenario(app))
    else:
        asyncio.run(reached(app, listener(port=0), scenario))
    for wanted in (
        ("notifications/progress", {"progress": 1, "total": 2}),
        ("notifications/message", {"level": "info", "data": "looking"}),
        ("notifications/resources/updated", {"uri": "r://one"}),
    ):
        assert witness.sent.count(wanted) == 1, (wanted, witness.sent)
    if era == "handshake":  # in the other the question is part of a result
        assert witness.asked == [("elicitation/create", "Which?"), ("ok", {"value": "blue"})]


class Sink(ChannelDefaults):
    """A channel that keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    async def wait_writable(self) -> None:
        return

    def close(self, reason: str = "") -> None:
        return


def test_what_a_call_in_a_batch_tells_is_reported_once() -> None:
    witness = Witness()
    app = new_app(witness)

    async def scenario() -> Link:
        link = app.host.link(Origin(carrier="memory"))
        channel = Sink()
        link.channel_opened(channel)
        link.frame_received(
            b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26",'
            b'"capabilities":{},"clientInfo":{"name":"t","version":"1"}}}',
            channel,
        )
        link.frame_received(b'{"jsonrpc":"2.0","method":"notifications/initialized"}', channel)
        link.frame_received(BATCH, channel)
        async with asyncio.timeout(60):
            while not any(isinstance(each, list) for each in channel.sent):
                await asyncio.sleep(0.01)
        assert isinstance(link.channel, ObservedChannel)
        link.channel_lost(channel, None)
        return link

    link = asyncio.run(scenario())
    assert isinstance(link, ObservedLink)
    assert link.closed
    assert [method for method, _ in witness.sent].count("notifications/progress") == 1


def test_without_such_an_observer_links_send_as_ever() -> None:
    class Other(Observer):
        def request_finished(self, request: ObservedRequest, outcome: Outcome) -> None: ...

    async def kind(app: Server) -> type:
        return type(app.host.link(Origin(carrier="memory")))

    assert asyncio.run(kind(Server("plain"))) is Link
    assert asyncio.run(kind(Server("other", observer=Other()))) is Link


async def test_a_request_that_failed_fails_whether_or_not_it_had_a_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    failed: list[Any] = []
    monkeypatch.setattr(Link, "request_failed", lambda link, identity, error, channel=None: failed.append(channel))
    link = new_app(Witness()).link(Origin("test"))
    assert isinstance(link, ObservedLink)
    link.request_failed(1, ValueError(), NullChannel())
    link.request_failed(1, ValueError(), None)
    assert isinstance(failed[0], ObservedChannel)
    assert failed[1] is None
