"""The table of transports."""

from __future__ import annotations

import logging
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from ferrule.errors import SetupError
from ferrule.transports.http.client.transport import HttpTransport
from ferrule.transports.registry import TRANSPORTS, TransportKind, Transports, load


class Kite:
    """A listener whose options are its parameters."""

    def __init__(self, *, max_message_size: int = 1024) -> None:
        self.max_message_size = max_message_size


WITHOUT_CLIENT = {"graphql"}
"""Served to those who speak no MCP."""
KIND = TransportKind(name="kite", aliases=("dragon",), prefixes=("kite://",), listener=Kite)


@pytest.mark.parametrize("kind", TRANSPORTS.kinds, ids=lambda kind: kind.name)
def test_every_row_of_ours_names_what_there_is(kind: TransportKind) -> None:
    assert kind.listener is not None
    assert callable(load(kind.listener))
    assert kind.help
    if kind.name in WITHOUT_CLIENT:
        assert (kind.transport, kind.prefixes) == (None, ())
        return
    assert kind.transport is not None
    assert callable(load(kind.transport))
    assert kind.prefixes


def test_an_alias_is_the_same_kind() -> None:
    assert TRANSPORTS["streamable-http"] is TRANSPORTS["http"]
    assert [kind.name for kind in TRANSPORTS.kinds] == ["stdio", "http", "sse", "ws", "graphql", "tcp", "unix"]


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("HTTP://example.com", "http"),
        ("sse+https://example.com/sse", "sse"),
        ("wss://example.com", "ws"),
        ("tls://example.com:1", "tcp"),
        ("unix:/run/mcp", "unix"),
        ("stdio:uvx server", "stdio"),
    ],
)
def test_an_address_belongs_to_the_kind_of_its_prefix(address: str, name: str) -> None:
    kind = TRANSPORTS.of_address(address)
    assert kind is not None
    assert kind.name == name


@pytest.mark.parametrize("address", ["server.py:app", "pigeon://roof", "", "http:/one-slash"])
def test_what_begins_like_none_is_no_address(address: str) -> None:
    assert TRANSPORTS.of_address(address) is None


@pytest.mark.parametrize(
    "taken",
    [
        TransportKind(name="kite"),
        TransportKind(name="dragon"),
        TransportKind(name="other", aliases=("kite",)),
        TransportKind(name="other", prefixes=("kite://",)),
    ],
    ids=str,
)
def test_what_is_taken_is_not_given_twice(taken: TransportKind) -> None:
    table = Transports(KIND)
    with pytest.raises(SetupError, match=r"already|are taken"):
        table.register(taken)
    assert list(table) == ["kite", "dragon"]


def test_an_option_there_is_not_is_named() -> None:
    with pytest.raises(SetupError, match="kite: unknown option 'wind'; the options are max_message_size"):
        KIND.new_listener({"wind": 3})


def test_a_kind_with_one_side_says_so() -> None:
    with pytest.raises(SetupError, match="kite has no client"):
        KIND.new_transport("kite://sky", {})
    with pytest.raises(SetupError, match="bottle cannot be served by name"):
        TransportKind(name="bottle").new_listener({})


def test_a_transport_is_made_with_its_options() -> None:
    made = TRANSPORTS["http"].new_transport("http://localhost/mcp", {"max_retries": 0})
    assert isinstance(made, HttpTransport)
    assert made.destination.options.max_retries == 0


def test_a_broken_package_spoils_no_other(monkeypatch: Any, caplog: Any) -> None:
    found = [
        EntryPoint("broken", "no.such.module:KIND", "kites"),
        EntryPoint("wrong", "ferrule.errors:SetupError", "kites"),
        EntryPoint("good", f"{__name__}:KIND", "kites"),
    ]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found if group == "kites" else [])
    table = Transports(group="kites")
    with caplog.at_level(logging.WARNING):
        assert table["kite"] is KIND
    assert "the transport broken of an installed package cannot be used: No module named 'no'" in caplog.text
    assert "is not a TransportKind" in caplog.text
