"""Beginning and ending conversations: who comes back after a loss, and to what."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from ferrule import Client, OutcomeUnknown, Reconnect, Server, SyncClient, Tcp, Unix
from ferrule.errors import CapabilityNotSupported, ChildFailed, LinkLost, NotConnected, TimedOut
from ferrule.protocol.session import Phase
from ferrule.transports.memory import Memory

QUICK = Reconnect(first_delay=0.05, longest_delay=0.2, jitter=0.0)
MORTAL = """
import os
from ferrule import Server

app = Server("mortal")


@app.tool
async def number() -> int:
    return os.getpid()


@app.tool
async def die() -> str:
    os._exit(3)


app.run()
"""


@pytest.fixture
def mortal(tmp_path):
    """Return the command of a server that can be made to die."""
    program = tmp_path / "mortal.py"
    program.write_text(MORTAL, encoding="utf-8")
    return [sys.executable, str(program)]


@pytest.mark.parametrize("target", ["server", "transport"])
async def test_over_an_object_it_is_given_a_client_comes_back_only_when_asked(target, era, raw):
    """SESS-29: off, the phase is error and calls fail at once."""
    server = raw(era)
    async with Client(server if target == "server" else Memory(server), mode=era) as client:
        server.die(ChildFailed("gone"))
        assert not client.reconnecting
        assert client.phase is Phase.ERROR
        with pytest.raises(LinkLost, match="gone"):
            await client.list_tools()


@pytest.mark.parametrize("carrier", ["tcp", "unix"])
async def test_a_way_of_its_own_is_kept_open_unless_told_otherwise(carrier, era, tmp_path):
    """SESS-29, SHUT-10"""
    app, ready = Server("s"), asyncio.Event()
    listener = Tcp(port=0) if carrier == "tcp" else Unix(path=str(tmp_path / "s"))
    serving = asyncio.create_task(listener.serve(app.host, ready.set))
    await ready.wait()
    target = f"tcp://127.0.0.1:{listener.address[1]}" if carrier == "tcp" else f"unix:{tmp_path / 's'}"
    async with Client(target, mode=era) as one, Client(target, mode=era, reconnect=False) as other:
        await listener.close(0.0)
        await serving
        while Phase.INITIALIZED in (one.phase, other.phase):
            await asyncio.sleep(0.01)
        assert one.reconnecting
        assert not other.reconnecting


async def test_the_checklist_of_a_client_is_ticked(era, raw):
    """CLNT-13: open at once, check capabilities, time out, come back, and leave nothing behind."""
    listed = {"tools": [], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    server = raw(era, {"tools/list": listed, "tools/call": None}, capabilities={"tools": {}})
    before = asyncio.all_tasks()
    async with Client(server, mode=era, reconnect=QUICK, probe_on_timeout=False) as client:
        opening = "initialize" if era == "handshake" else "server/discover"
        assert server.received[0]["method"] == opening
        with pytest.raises(CapabilityNotSupported):
            await client.list_prompts()
        with pytest.raises(TimedOut):
            await client.call_tool("x", timeout=0.01)
        server.die(LinkLost("gone"))
        assert await client.list_tools(timeout=60) == []
        assert len(server.sent(opening)) == 2
        assert client.phase is Phase.INITIALIZED
    assert client.phase is Phase.CLOSED
    assert asyncio.all_tasks() - before == set()


async def test_the_first_attempt_is_the_only_one():
    """A client that never was connected says at once why not."""
    client = Client("tcp://127.0.0.1:1", reconnect=True)
    with pytest.raises(Exception, match="cannot reach"):
        await client.connect()
    assert not client.reconnecting
    assert client.phase is Phase.ERROR


async def test_a_child_process_that_dies_is_started_again(era, mortal):
    """CRA-05: the call it died in is not repeated."""
    async with Client(mortal, mode=era, reconnect=QUICK) as client:
        first = (await client.call_tool("number")).data
        with pytest.raises(OutcomeUnknown, match="it may have run or not"):
            await client.call_tool("die")
        second = (await client.call_tool("number")).data
        assert first != second
        os.kill(second, signal.SIGKILL)
        while not client.reconnecting:
            await asyncio.sleep(0.01)
        assert (await client.call_tool("number")).data not in (first, second)


async def test_a_child_process_that_cannot_be_started_again_is_given_up(era, mortal, tmp_path):
    async with Client(mortal, mode=era, reconnect=Reconnect(first_delay=0.01, max_attempts=2)) as client:
        (tmp_path / "mortal.py").unlink()
        with pytest.raises(OutcomeUnknown):
            await client.call_tool("die")
        with pytest.raises(LinkLost, match=r"not restored in 2 attempts: .*mortal\.py"):
            await client.call_tool("number")
        assert client.phase is Phase.CLOSED


def test_a_blocking_client_comes_back_too(mortal):
    with SyncClient(mortal, reconnect=QUICK) as client:
        first = client.call_tool("number").data
        with pytest.raises(OutcomeUnknown):
            client.call_tool("die")
        assert client.call_tool("number").data != first


@pytest.mark.parametrize("mode", ["auto", "handshake", "stateless"])
@pytest.mark.parametrize("turns", [1, 3, 10])
async def test_a_client_closed_while_it_connects_says_so_and_leaves_nothing(mode, turns, raw):
    """SHUT-06: nobody is blamed for it, and no second attempt is made."""
    server = raw("stateless", {"server/discover": None, "initialize": None})
    client = Client(server, mode=mode)
    connecting = asyncio.create_task(client.connect())
    for _ in range(turns):
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(NotConnected, match="closed while it was connecting"):
        await connecting
    assert len(server.channels) == 1
    assert server.users == 0
