"""Every way in which something fails here is an exception class of its own, and all of them are one tree."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ferrule import Client, Http, PeerError, Reconnect, Server, Tcp, ToolError, errors
from ferrule.errors import (
    AlreadyInitialized,
    Cancelled,
    CapabilityNotSupported,
    ConnectFailed,
    ConnectionTimedOut,
    EncodeError,
    FerruleError,
    HttpFailed,
    InitializeFailed,
    InitializeTimedOut,
    InvalidAnswer,
    InvalidParams,
    LinkLost,
    NotConnected,
    ResourceNotFound,
    TimedOut,
    TimedOutReconnecting,
    ToolNotFound,
    VersionMismatch,
)
from ferrule.testing import pair
from ferrule.transports.http.routes.web import WebResponse

PROMPT = {"mode": "handshake"}


async def not_initialized(app: Server, raw: Any) -> None:
    await Client(app).call_tool("add")


async def already_initialized(app: Server, raw: Any) -> None:
    async with pair(app) as client:
        await client.initialize()


async def capability_not_supported(app: Server, raw: Any) -> None:
    async with Client(Server("bare")) as client:
        await client.list_prompts()


async def init_timeout(app: Server, raw: Any) -> None:
    await Client(raw(answers={"initialize": None}), **PROMPT, init_timeout=1).connect()


async def init_failed(app: Server, raw: Any) -> None:
    await Client(raw(answers={"initialize": {"protocolVersion": 5}}), **PROMPT).connect()


async def protocol_version_mismatch(app: Server, raw: Any) -> None:
    await Client(raw("stateless", version="2099-01-01")).connect()


async def tool_not_found(app: Server, raw: Any) -> None:
    await app.call_tool("subtract")


async def resource_not_found(app: Server, raw: Any) -> None:
    await app.read_resource("nowhere://x")


async def invalid_params(app: Server, raw: Any) -> None:
    await app.get_prompt("review")


async def handler_failed(app: Server, raw: Any) -> None:
    async with pair(app) as client:
        await client.call_tool("fail", {"why": "no"})


async def cancelled(app: Server, raw: Any) -> None:
    async with Client(raw(answers={"tools/call": None}), **PROMPT) as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await asyncio.sleep(0.1)
        (waiting,) = client.pending
        await client.cancel(waiting.id, "enough")
        await call


async def request_timeout(app: Server, raw: Any) -> None:
    async with Client(raw(answers={"tools/call": None}), **PROMPT) as client:
        await client.call_tool("wait")


async def connection_timeout(app: Server, raw: Any) -> None:
    async with Client(raw(answers={"tools/call": None, "ping": None}), **PROMPT, reconnect=False) as client:
        await client.call_tool("wait")


async def timeout_reconnecting(app: Server, raw: Any) -> None:
    async with Client(raw(answers={"tools/call": None, "ping": None}), **PROMPT, reconnect=Reconnect()) as client:
        await client.call_tool("wait")


async def keepalive_failed(app: Server, raw: Any) -> None:
    async with Client(raw(answers={"ping": None}), **PROMPT) as client:
        await client.ping()


async def json_rpc(app: Server, raw: Any) -> None:
    async with pair(app) as client:
        await client.request("no/such/method")


async def message_too_large(app: Server, raw: Any) -> None:
    async with pair(app) as client:
        await client.call_tool("fail", {"why": "x" * 17_000_000})


async def invalid_message(app: Server, raw: Any) -> None:
    async with Client(raw(answers={"tools/call": lambda _: "no object"}), **PROMPT) as client:
        await client.call_tool("add")


async def socket_closed(app: Server, raw: Any) -> None:
    server = raw(answers={"tools/call": None})
    async with Client(server, **PROMPT, reconnect=False) as client:
        call = asyncio.ensure_future(client.call_tool("wait"))
        await server.heard("tools/call")
        server.die()
        await call


IN_MEMORY = [
    (not_initialized, NotConnected),
    (already_initialized, AlreadyInitialized),
    (capability_not_supported, CapabilityNotSupported),
    (init_timeout, InitializeTimedOut),
    (init_failed, InitializeFailed),
    (protocol_version_mismatch, VersionMismatch),
    (tool_not_found, ToolNotFound),
    (resource_not_found, ResourceNotFound),
    (invalid_params, InvalidParams),
    (handler_failed, ToolError),
    (cancelled, Cancelled),
    (request_timeout, TimedOut),
    (connection_timeout, ConnectionTimedOut),
    (timeout_reconnecting, TimedOutReconnecting),
    (keepalive_failed, TimedOut),
    (json_rpc, PeerError),
    (message_too_large, EncodeError),
    (invalid_message, InvalidAnswer),
    (socket_closed, LinkLost),
]


@pytest.mark.virtual_time
@pytest.mark.parametrize(("fail", "kind"), IN_MEMORY, ids=lambda value: value.__name__)
async def test_a_failure_is_an_exception_of_its_own_class(fail: Any, kind: type[Exception], app: Server, raw: Any):
    """ERRC-24: through the public methods; a response nobody asked for is no failure but a warning (CORR-04)."""
    with pytest.raises(kind) as failed:
        await fail(app, raw)
    assert type(failed.value) is kind
    assert str(failed.value)


class ServedChannel:
    """A server on a socket: `async with ServedChannel(app, listener)`."""

    def __init__(self, app: Server, listener: Any) -> None:
        self.app, self.listener = app, listener

    async def __aenter__(self) -> ServedChannel:
        ready = asyncio.Event()
        self.serving = asyncio.ensure_future(self.app.serve(self.listener, ready=ready.set))
        await ready.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.app.stop(0.0)
        await self.serving


async def test_nobody_at_the_other_end_is_a_failure_to_connect(app: Server):
    """ERRC-24: connect_failed."""
    listener = Tcp(host="127.0.0.1", port=0)
    async with ServedChannel(app, listener):
        host, port = listener.address[:2]
    with pytest.raises(ConnectFailed):
        await Client(f"tcp://{host}:{port}", reconnect=False).connect()


async def test_one_connection_too_many_is_refused_in_words(app: Server):
    """ERRC-24: too_many_connections."""
    listener = Tcp(host="127.0.0.1", port=0, max_connections=1)
    async with ServedChannel(app, listener):
        where = f"tcp://127.0.0.1:{listener.address[1]}"
        async with Client(where):
            with pytest.raises(InitializeFailed, match="connections"):
                await Client(where, reconnect=False).connect()


async def test_a_status_instead_of_an_answer_is_told_after_the_last_attempt(app: Server):
    """ERRC-24: http_error and max_retries_exceeded."""
    asked = []

    @app.custom_route("/broken", methods=["POST"])
    async def broken(request: Any) -> WebResponse:
        asked.append(request)
        return WebResponse(b"out of order", status_code=503)

    listener = Http(host="127.0.0.1", port=0)
    async with ServedChannel(app, listener):
        options = {"retry": "all", "max_retries": 1, "retry_delay": 0.01}
        client = Client(f"http://127.0.0.1:{listener.address[1]}/broken", http=options, **PROMPT)
        with pytest.raises(HttpFailed) as failed:
            await client.connect()
    assert (failed.value.status, len(asked)) == (503, 2)


def test_all_of_them_are_one_tree():
    """ERRC-24: what Ferrule raises can be caught as one; only what a tool says to the model stands beside."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    assert [kind for kind in kinds if not issubclass(kind, FerruleError)] == [ToolError]
