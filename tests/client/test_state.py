"""What a client knows of its conversation."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client
from ferrule.protocol.session import Phase
from ferrule.schema.lifecycle import ServerCapabilities
from ferrule.testing import pair


def test_a_client_that_was_never_connected_knows_nothing(app):
    client = pair(app)
    assert client.phase is Phase.PRE_INITIALIZATION
    assert client.connection_state == "disconnected"
    assert client.protocol_version is None
    assert client.server_info is None
    assert client.server_capabilities is None
    assert client.instructions is None
    assert client.negotiated == frozenset()
    assert client.pending == []
    assert client.subscriptions == set()
    assert client.roots == []


async def test_everything_a_client_knows_can_be_looked_at(era, raw):
    """CLNT-11, CAPN-04, CAPN-11, CORR-02, SESS-25"""
    server = raw(era, {"tools/call": None})
    async with Client(server, mode=era, request_timeout=7) as client:
        client.on_notification("notifications/vendor", print)
        assert client.phase == "initialized"
        assert client.protocol_version == {"handshake": "2025-11-25", "stateless": "2026-07-28"}[era]
        assert isinstance(client.server_capabilities, ServerCapabilities)
        assert client.server_capabilities.resources.subscribe is True
        assert client.notification_handlers == {"notifications/vendor"}
        assert client.settings.request_timeout == 7
        assert client.settings.tool_timeout == 30
        call = asyncio.create_task(client.call_tool("x"))
        await server.heard("tools/call")
        await asyncio.sleep(0.01)
        (pending,) = client.pending
        assert pending.method == "tools/call"
        assert 0.005 < asyncio.get_running_loop().time() - pending.started < 60
        call.cancel()
        await asyncio.wait([call])


NEGOTIATED = {
    "nothing": ({}, {}, set()),
    "the server's": (
        {"tools": {"listChanged": True}, "resources": {"subscribe": False}, "logging": {}},
        {},
        {"tools", "tools.listChanged", "resources", "logging"},
    ),
    "the client's": (
        {"experimental": {"moon": {}}},
        {"sampling": str, "sampling_tools": True, "elicitation": str},
        {"experimental", "experimental.moon", "sampling", "sampling.tools", "elicitation", "elicitation.form"},
    ),
}


@pytest.mark.parametrize(("declared", "options", "negotiated"), NEGOTIATED.values(), ids=NEGOTIATED)
async def test_the_features_either_side_may_use_are_one_set(declared, options, negotiated, era, raw):
    """CAPN-06"""
    async with Client(raw(era, capabilities=declared), mode=era, **options) as client:
        assert client.negotiated == negotiated


async def test_what_a_client_knew_can_still_be_looked_at_when_it_is_closed(era, raw):
    async with Client(raw(era), mode=era) as client:
        pass
    assert client.server_info.name == "raw"
    assert client.phase is Phase.CLOSED
    assert client.connection_state == "disconnected"
