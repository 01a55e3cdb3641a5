"""Documents of clients: how many are fetched at once, and what is kept of each."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import Mapping
from typing import Any

import pytest

from ferrule.auth.address import AddressRules
from ferrule.auth.fetch import Fetched, Fetcher
from ferrule.auth.proxy.documents import MAX_FETCHES, ClientDocuments
from ferrule.auth.proxy.parameters import AddressRate, OAuthError
from ferrule.balancing.rate import Rate


class Site(Fetcher):
    """Publishes one document at every URL, once it may answer."""

    def __init__(self, **document: Any) -> None:
        super().__init__(AddressRules())
        self.open = asyncio.Event()
        self.document = document
        self.asked = 0
        self.most = 0
        self._running = 0

    async def get(self, url: str, headers: Mapping[str, str] | None = None, *, redirects: int = 0) -> Fetched:
        self.asked += 1
        self._running += 1
        self.most = max(self.most, self._running)
        await self.open.wait()
        self._running -= 1
        return Fetched(url, 200, {}, json.dumps({"client_id": url, **self.document}).encode())


def documents(site: Site) -> ClientDocuments:
    return ClientDocuments(site, AddressRate(Rate.parse("1000/s")), lambda: 0.0)


def url(number: int) -> str:
    return f"https://app.example/{number}.json"


async def leave(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_whoever_leaves_frees_no_place_for_another_fetch() -> None:
    site = Site()
    asked = documents(site)
    first = []
    for number in range(5 * MAX_FETCHES):
        first.append(asyncio.create_task(asked.get(url(number), "192.0.2.1")))
        await asyncio.sleep(0)
        joined = asyncio.create_task(asked.get(url(number), "192.0.2.1"))
        await asyncio.sleep(0)
        await leave(joined)
    site.open.set()
    came = await asyncio.gather(*first, return_exceptions=True)
    assert site.most == MAX_FETCHES
    assert [isinstance(each, OAuthError) for each in came].count(False) == MAX_FETCHES


async def test_who_began_a_fetch_and_leaves_does_not_take_it_away_from_the_others() -> None:
    site = Site(client_name="Ada's")
    asked = documents(site)
    first = asyncio.create_task(asked.get(url(1), "192.0.2.1"))
    await asyncio.sleep(0)
    others = [asyncio.create_task(asked.get(url(1), "192.0.2.1")) for _ in range(3)]
    await asyncio.sleep(0)
    await leave(first)
    site.open.set()
    assert await asyncio.gather(*others) == [{"client_name": "Ada's"}] * 3
    assert site.asked == 1


class Marked(dict[str, Any]):
    """A document that can be found again among all that lives."""


@pytest.mark.parametrize("said", [{"client_name": "x"}, {"client_id": "https://elsewhere.example/"}])
async def test_nothing_else_of_a_document_stays_whether_it_is_taken_or_not(
    said: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = Fetched.document
    monkeypatch.setattr(Fetched, "document", lambda answer: Marked(read(answer)))
    site = Site(junk=[[]] * 1000, **said)
    site.open.set()
    asked = documents(site)
    await asyncio.gather(asked.get(url(1), "192.0.2.1"), return_exceptions=True)
    gc.collect()
    assert url(1) in asked._kept
    assert [each for each in gc.get_objects() if isinstance(each, Marked)] == []
