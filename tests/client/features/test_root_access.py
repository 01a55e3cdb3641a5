"""Which roots can be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.client.features.root_access import RootAccess, is_inside, is_readable, local_path
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
