"""GraphQL as a listener: options, addresses, one life after another."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from graphql_desk import new_app, post, serving

from ferrule import Graphql, SetupError
from ferrule.transports.graphql.listener import sort_options
from ferrule.transports.registry import TRANSPORTS


def test_it_is_found_by_its_name_and_listens_where_graphql_servers_do() -> None:
    """OTHT-04: port 4000, path /graphql."""
    listener = TRANSPORTS["graphql"].new_listener({})
    assert isinstance(listener, Graphql)
    options = sort_options({})
    assert (options.engine.port, options.graphql.path) == (4000, "/graphql")


async def test_its_address_is_known_while_it_serves() -> None:
    with pytest.raises(SetupError, match="does not listen yet"):
        _ = Graphql().address
    async with serving() as listener:
        assert listener.url == f"http://127.0.0.1:{listener.address[1]}/graphql"
        with pytest.raises(SetupError, match="serves already"):
            await new_app().serve(listener)


async def test_it_can_serve_again_after_it_was_closed() -> None:
    listener = Graphql(port=0)
    for _ in range(2):
        ready = asyncio.Event()
        task = asyncio.create_task(new_app().serve(listener, ready=ready.set))
        await ready.wait()
        assert (await post(listener, "{ __typename }"))["data"] == {"__typename": "Query"}
        await listener.close(grace=1.0)
        await task


def test_wrong_options_are_refused() -> None:
    with pytest.raises(SetupError, match="begin with a slash"):
        Graphql(path="graphql")
    with pytest.raises(SetupError, match="max_depth"):
        Graphql(max_depth=0)


def test_without_graphql_core_it_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['graphql'] = None\n"
        "from ferrule import Graphql, Server\n"
        "Server('s').run('graphql', port=0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "pip install 'ferrule[graphql]'" in done.stderr
