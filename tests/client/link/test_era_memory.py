"""Which era a server speaks is remembered by its address, within bounds, until something fails."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ferrule import Client
from ferrule.client.link.era_memory import EraMemory, known_eras

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "transports" / "http" / "client"))

from scripted import Seen, Site


def test_a_verdict_is_forgotten_when_it_is_old() -> None:
    now = 0.0
    memory = EraMemory(lasts=10.0, clock=lambda: now)
    memory.remember("a")
    now = 10.0
    assert memory.is_handshake("a")
    now = 10.1
    assert not memory.is_handshake("a")
    assert len(memory) == 0


def test_the_oldest_of_too_many_is_forgotten() -> None:
    memory = EraMemory(limit=2)
    for address in "abac":
        memory.remember(address)
    assert [memory.is_handshake(address) for address in "abc"] == [True, False, True]


async def connect(site: Site, times: int = 1) -> None:
    for _ in range(times):
        async with Client(site.url, http={"retry_delay": 0.01, "jitter": 0.0}) as client:
            assert client.protocol_version


async def test_three_connects_to_a_server_of_the_handshake_era_make_one_probe() -> None:
    """COMPAT-5: the verdict is remembered for the address, in this process."""
    async with Site("handshake") as site:
        await connect(site, 3)
        assert len(site.got("server/discover")) == 1
        assert len(site.got("initialize")) == 3


async def test_a_server_that_fails_is_probed_again() -> None:
    """COMPAT-5: what failed may have become another server."""
    async with Site("handshake") as site:
        await connect(site)
        site.on("initialize", lambda seen: seen.error(-32603, "not now"), site._usual)
        with pytest.raises(Exception, match="not now"):
            await connect(site)
        await connect(site)
        assert len(site.got("server/discover")) == 2


async def test_a_server_that_becomes_stateless_is_found_out() -> None:
    """COMPAT-5: the next connect settles on the stateless era, also while the old verdict is remembered."""
    async with Site("handshake") as site:
        await connect(site)
        site.era = "stateless"

        def refuse(seen: Seen) -> None:
            seen.error(-32022, "Unsupported protocol version", 400, data={"supported": ["2026-07-28"]})

        site.on("initialize", refuse)
        async with Client(site.url) as client:
            assert client.protocol_version == "2026-07-28"
        assert len(known_eras) == 0


async def test_who_asks_for_an_era_gets_it_whatever_is_remembered() -> None:
    async with Site("handshake") as site:
        await connect(site)
        with pytest.raises(Exception, match=r"2026-07-28|not found"):
            async with Client(site.url, mode="stateless"):
                pass
        assert len(site.got("server/discover")) == 2
