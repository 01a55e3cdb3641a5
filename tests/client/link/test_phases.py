"""How far a conversation is, told to whoever wants to know."""

from __future__ import annotations

import asyncio

import pytest

from ferrule import Client
from ferrule.client.link.keeper import Phases
from ferrule.errors import ChildFailed, InitializeFailed
from ferrule.protocol.session import Phase

PRE, INITIALIZING, INITIALIZED, ERROR, CLOSED = Phase


def watched(client):
    steps = []
    client.on_phase_change(lambda old, new: steps.append((old, new)))
    return steps


async def test_the_phases_of_a_good_life_are_told(era, raw):
    """SESS-02, SESS-06, SESS-07, SESS-10"""
    client = Client(raw(era), mode=era)
    steps = watched(client)
    async with client:
        pass
    opening = [(PRE, INITIALIZING), (INITIALIZING, INITIALIZED)] if era == "handshake" else [(PRE, INITIALIZED)]
    assert steps == [*opening, (INITIALIZED, CLOSED)]


async def test_losing_the_link_is_an_error_and_closing_ends_it(era, raw):
    """SESS-10"""
    server = raw(era)
    client = Client(server, mode=era)
    await client.connect()
    steps = watched(client)
    server.die(ChildFailed("gone"))
    assert client.phase is ERROR
    await client.close()
    assert steps == [(INITIALIZED, ERROR), (ERROR, CLOSED)]


async def test_a_failed_opening_is_an_error(raw, refused):
    """SESS-08, SESS-21"""
    client = Client(raw(answers={"initialize": refused(-32603)}), mode="handshake")
    steps = watched(client)
    with pytest.raises(InitializeFailed):
        await client.connect()
    assert steps == [(PRE, INITIALIZING), (INITIALIZING, ERROR)]


async def test_a_server_that_ends_on_the_probe_is_not_told_as_lost(raw):
    server = raw()
    server.answers["server/discover"] = lambda request: server.die()
    client = Client(server)
    steps = watched(client)
    async with client:
        assert steps == [(PRE, INITIALIZING), (INITIALIZING, INITIALIZED)]


async def test_connecting_again_starts_over(era, raw):
    client = Client(raw(era), mode=era)
    await client.connect()
    steps = watched(client)
    await client.reconnect()
    await client.close()
    assert steps[:2] == [(INITIALIZED, CLOSED), (CLOSED, PRE)]
    assert steps[-1] == (INITIALIZED, CLOSED)


async def test_the_words_of_a_connection_follow_the_phase(raw):
    """SESS-04"""
    server = raw(answers={"initialize": None})
    client = Client(server, mode="handshake")
    states = [client.connection_state]
    connecting = asyncio.create_task(client.connect())
    offer = await server.heard("initialize")
    states.append(client.connection_state)
    server.answer(offer, server.initialize_result())
    await connecting
    states.append(client.connection_state)
    server.die()
    states.append(client.connection_state)
    await client.close()
    assert states == ["disconnected", "connected", "ready", "disconnected"]


async def test_coming_and_going_and_failing_can_be_heard_of(era, raw):
    server = raw(era)
    client = Client(server, mode=era)
    heard = []
    client.on_connected(lambda: heard.append("connected"))
    client.on_disconnected(lambda: heard.append("disconnected"))
    client.on_error(lambda kind, reason: heard.append((kind, reason)))
    async with client:
        server.die(ChildFailed("killed by SIGSEGV"))
    assert heard == ["connected", "disconnected", ("ChildFailed", "killed by SIGSEGV")]
    async with client:
        pass
    assert heard[3:] == ["connected", "disconnected"]


async def test_a_polite_loss_has_a_sentence_too(era, raw):
    server = raw(era)
    client = Client(server, mode=era)
    heard = []
    client.on_error(lambda *error: heard.append(error))
    async with client:
        server.die()
    assert heard == [("LinkLost", "the server closed the link")]


async def test_a_failed_opening_has_its_own_sentence(raw, refused):
    client = Client(raw(answers={"initialize": refused(-1, "closed on Mondays")}), mode="handshake")
    heard = []
    client.on_error(lambda *error: heard.append(error))
    with pytest.raises(InitializeFailed):
        await client.connect()
    assert heard == [("InitializeFailed", "the server refused initialize: closed on Mondays (-1)")]


def test_a_failing_handler_harms_neither_the_others_nor_the_client(caplog):
    phases, heard = Phases(), []

    def broken(old, new):
        raise ZeroDivisionError("in the handler")

    phases.on_change(broken)
    phases.on_change(lambda old, new: heard.append(new))
    phases.tell(INITIALIZED)
    phases.tell(INITIALIZED)
    assert heard == [INITIALIZED]
    assert "in the handler" in caplog.text
