"""Every kind of type, in and out, over every carrier and in both eras."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import msgspec
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from typed_tools import ANY, TYPES, Sample, echo, make_app

from ferrule import Client
from ferrule.server.functions.binder import InvalidArguments, bind
from ferrule.testing import ERAS

PROGRAM = str(Path(__file__).resolve().parent / "typed_tools.py")
CARRIERS = ("memory", "stdio", "tcp", "http", "websocket")
WAYS = [*((carrier, era) for carrier in CARRIERS for era in ERAS), ("sse", "handshake")]
"""The HTTP+SSE pair is of the older era alone."""


@pytest.fixture(scope="module")
def sockets() -> Iterator[dict[str, str]]:
    """One process that serves all carriers that are reached by an address, and where."""
    with subprocess.Popen([sys.executable, PROGRAM, "sockets"], stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield json.loads(server.stdout.readline())
        finally:
            server.terminate()


@pytest.fixture(scope="module", params=WAYS, ids="-".join)
def calls(request: pytest.FixtureRequest, sockets: dict[str, str]) -> Iterator[Any]:
    """A client of one carrier and one era, kept open for all types: call it with a tool and its arguments."""
    carrier, era = request.param
    target: Any = {"memory": make_app(), "stdio": [sys.executable, PROGRAM, "stdio"], **sockets}[carrier]
    with asyncio.Runner() as runner:
        client = Client(target, mode=era)
        runner.run(client.__aenter__())
        try:
            yield lambda name, sent: runner.run(client.call_tool(name, {"value": sent}))
        finally:
            runner.run(client.__aexit__(None, None, None))


@pytest.mark.parametrize("name", TYPES)
def test_a_type_goes_in_and_out(name: str, calls: Any) -> None:
    row: Sample = TYPES[name]
    arrived = calls(f"gets_{name}", row.sent)
    assert arrived.data is True, arrived.text
    answer = calls(f"echo_{name}", row.sent)
    assert not answer.is_error, answer.text
    expected = row.sent if row.back is ANY else row.back
    assert answer.data == expected
    assert answer.structured_content in (expected, {"result": expected})
    assert answer.text == expected or json.loads(answer.text) == expected


@pytest.fixture(scope="module")
def listed() -> dict[str, Any]:
    app = make_app()
    return {entry.tool.name: entry.tool for entry in app.offers.tools.catalogue}


@pytest.mark.parametrize("name", TYPES)
def test_a_type_is_described_as_it_is_read_and_written(name: str, listed: dict[str, Any]) -> None:
    row: Sample = TYPES[name]
    tool = listed[f"echo_{name}"]
    for schema in (tool.input_schema, tool.output_schema):
        jsonschema_rs.meta.validate(schema)
    assert jsonschema_rs.Draft202012Validator(tool.input_schema).is_valid({"value": row.sent})
    back = row.sent if row.back is ANY else row.back
    takes = jsonschema_rs.Draft202012Validator(tool.output_schema)
    assert takes.is_valid(back) or takes.is_valid({"result": back})


WRONG = (5, "§", {"§": 1}, [["§"]], True, None)
TAKE_ALL = {"recursive_alias"}
LAX = {"validated": [True]}
"""What pydantic reads otherwise than its schema says."""


@pytest.mark.parametrize("name", TYPES)
def test_what_a_schema_refuses_the_type_refuses_with_its_place(name: str, listed: dict[str, Any]) -> None:
    tool = listed[f"echo_{name}"]
    accepts = jsonschema_rs.Draft202012Validator(tool.input_schema).is_valid
    refused = [value for value in WRONG if not accepts({"value": value}) and value not in LAX.get(name, ())]
    assert refused or name in TAKE_ALL
    read = bind(echo(TYPES[name])).invoke
    for value in refused:
        with pytest.raises(InvalidArguments) as caught:
            read(msgspec.json.encode({"value": value}))
        assert caught.value.violations[0].path.startswith("/value")
