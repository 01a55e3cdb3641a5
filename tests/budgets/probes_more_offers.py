"""Probes of what servers, their files and their schemas are made of, and of what a broken message costs."""

from __future__ import annotations

import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal
from unittest import mock

import msgspec
from msgspec import UNSET, Raw
from table import probe

from ferrule.errors import SetupError
from ferrule.protocol.tasks import wanted
from ferrule.registry import file as registry_file
from ferrule.registry.file import SnapshotFile
from ferrule.runtime.dispatch import _named
from ferrule.server.calls import forms
from ferrule.server.folder import source_files
from ferrule.server.folder.source_files import SourceFiles
from ferrule.server.hosting.links import Links, LinkState
from ferrule.server.openapi.document import Document
from ferrule.validation import checker
from ferrule.validation.checker import depth_of, foreign_checker
from ferrule.validation.yaml_scalars import plain
from ferrule.wire.rescue import rescue


@probe("ferrule.wire.rescue.MAX_BRACKETS")
async def brackets(limit: int, size: int) -> bool:
    """A text that is no JSON: is it known to have no id, whatever stands ahead?"""
    return rescue(b'{"id":1,"a":' + b"[" * (size - 1)).id is UNSET


@probe("ferrule.protocol.tasks.LONGEST_TTL", clamps=True)
async def the_life_of_a_task(limit: int, size: int) -> bool:
    return wanted(Raw(b'{"ttl":%d}' % size)).ttl == size


@probe("ferrule.runtime.dispatch.LONGEST_SUBJECT", clamps=True)
async def the_subject_of_a_failure(limit: int, size: int) -> bool:
    call: Any = SimpleNamespace(method="tools/call", params=SimpleNamespace(name="x" * size))
    return _named(call).count("x") == size


@probe("ferrule.validation.yaml_scalars.MOST_DIGITS", clamps=True)
async def digits(limit: int, size: int) -> bool:
    return isinstance(plain("1" * size), int)


DEAR = {"anyOf": [{"minLength": number} for number in range(100)]}
DEEP = {"type": "object", "properties": {"a": {"items": {"items": {"items": DEAR}}}}}


@probe("ferrule.validation.checker.MOST_WALKED", lowered=1000)
async def values_that_are_walked(limit: int, size: int) -> bool:
    """A flat list that is cheap to check, under a schema that is dear with a deep one."""
    check = foreign_checker(DEEP, "here")
    value = {"a": [0] * (size - 2)}
    text = len(msgspec.json.encode(value))
    budget = check._cost(depth_of(value), size, 0, text)
    assert budget < check._cost(-1, size, 0, text)
    with mock.patch.object(checker, "MOST_WALKED", limit):
        return not check.is_too_costly(value, budget)


@probe("ferrule.server.calls.forms.MOST_FORMS", clamps=True)
async def kept_forms(limit: int, size: int) -> bool:
    forms._kept_form.cache_clear()
    for number in range(min(size, 2 * limit)):
        forms._typed_form(Literal[f"a{number}", "b"])  # type: ignore[valid-type]
    kept = forms._kept_form.cache_info().currsize
    forms._kept_form.cache_clear()
    return kept == size


@probe("ferrule.server.hosting.links.MOST_VALUES")
async def the_state_of_a_session(limit: int, size: int) -> bool:
    link: Any = object()
    empty = len(msgspec.msgpack.encode({"a": b"x" * 70_000})) - 70_000
    known: Any = SimpleNamespace(_states={link: LinkState(values={"a": b"x" * (size - empty)})})
    written = Links.written_values(known, link)
    assert len(written) in (0, size)
    return bool(written)


@probe("ferrule.server.openapi.document.MAX_HOPS")
async def references(limit: int, size: int) -> bool:
    """One refers to the next, and the last is what was looked for."""
    parts: dict[str, Any] = {f"p{number}": {"$ref": f"#/components/p{number + 1}"} for number in range(size)}
    document = Document({"openapi": "3.1.0", "paths": {}, "components": {**parts, f"p{size}": {"type": "string"}}})
    try:
        return document.follow(parts["p0"], "here") == {"type": "string"}
    except SetupError:
        return False


@probe("ferrule.server.folder.source_files.MOST_FILES", lowered=10)
async def files_of_a_folder(limit: int, size: int) -> bool:
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(source_files, "MOST_FILES", limit):
        for number in range(min(size, 5 * limit)):
            (Path(folder) / f"a{number}.py").touch()
        try:
            return len(SourceFiles(folder).stamps()) == size
        except SetupError:
            return False


@probe("ferrule.registry.file.LARGEST_FILE", lowered=1000)
async def a_snapshot(limit: int, size: int) -> bool:
    registry: Any = mock.Mock()
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(registry_file, "LARGEST_FILE", limit):
        path = Path(folder) / "registry"
        path.write_bytes(b"x" * size)
        try:
            return SnapshotFile(path).load(registry)
        except SetupError:
            assert not registry.restore.called
            return False
