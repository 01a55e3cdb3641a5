"""Which roots can be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.client.features.root_access import FRESH, RootAccess, is_inside, is_readable, local_path
from ferrule.schema.roots import Root


@pytest.mark.parametrize("uri", ["file:///a/b", "file:///a..b", "file:///a/...", "file:///a%5Cb", "file:///"])
def test_a_path_without_a_step_up_stays_inside(uri: str) -> None:
    assert is_inside(uri)


@pytest.mark.parametrize("uri", ["file:///..", "file:///a/..", "file:///a\\..\\b", "file:///a%5c..%2fb", "file://[x"])
def test_a_step_up_leaves_whichever_slash_divides_it(uri: str) -> None:
    """ROOT-3"""
    assert not is_inside(uri)


def test_the_path_of_a_uri_is_decoded_and_another_machine_has_none() -> None:
    assert local_path("file:///a%20b") == "/a b"
    assert local_path("file://localhost/a") == "/a"
    assert local_path("file://far.example/a") is None


def test_files_folders_and_what_is_elsewhere_can_be_read_and_what_is_missing_cannot(tmp_path: Path) -> None:
    """ROOT-3"""
    (tmp_path / "file").write_text("x")
    for uri in (tmp_path.as_uri(), (tmp_path / "file").as_uri(), "file://far.example/a"):
        assert is_readable(Root(uri=uri))
    for uri in ((tmp_path / "missing").as_uri(), "file:///%00"):
        assert not is_readable(Root(uri=uri))


async def test_what_is_elsewhere_needs_no_thread(tmp_path: Path) -> None:
    threads: list[Callable[[], Any]] = []

    async def in_thread(work: Callable[[], Any]) -> Any:
        threads.append(work)
        return work()

    access = RootAccess(in_thread)
    far = Root(uri="file://far.example/a")
    assert await access.readable([far]) == [far]
    assert not await access.has_changed()
    assert threads == []
    await access.readable([far, Root(uri=tmp_path.as_uri())])
    assert len(threads) == 1


async def test_a_server_that_asks_again_and_again_starts_one_thread(tmp_path: Path) -> None:
    """BUD-23: each look starts a thread, which costs far more than the question."""
    threads = 0
    now = 0.0

    async def in_thread(work: Callable[[], Any]) -> Any:
        nonlocal threads
        threads += 1
        await asyncio.sleep(0)
        return work()

    access = RootAccess(in_thread, clock=lambda: now)
    root = Root(uri=tmp_path.as_uri())
    assert await asyncio.gather(*(access.readable([root]) for _ in range(20))) == [[root]] * 20
    assert threads == 1
    now += FRESH / 2
    await access.readable([root])
    assert threads == 1
    tmp_path.rmdir()
    now += FRESH
    assert await access.readable([root]) == []
    assert threads == 2


async def test_other_roots_are_looked_at_at_once(tmp_path: Path) -> None:
    async def in_thread(work: Callable[[], Any]) -> Any:
        return work()

    access = RootAccess(in_thread, clock=lambda: 0.0)
    there, missing = Root(uri=tmp_path.as_uri()), Root(uri=(tmp_path / "missing").as_uri())
    assert await access.readable([there]) == [there]
    assert await access.readable([missing, there]) == [there]
