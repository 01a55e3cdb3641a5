"""The options of a client, and the times everybody waits unless told otherwise."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule import Client, Server, SetupError
from ferrule.client.settings import ANSWERS, ClientSettings
from ferrule.porting_hints import CLIENT_OPTIONS
from ferrule.transports.http.client.options import HttpOptions
from ferrule.transports.tcp.settings import TcpOptions, TcpSettings, UnixSettings
from ferrule.transports.websocket.settings import WebSocketOptions, WebSocketSettings


def of_client(**options: Any) -> ClientSettings:
    return Client(Server("s"), **options).settings


def of_server(**options: Any) -> Any:
    return Server("s", **options).host.services.settings


def unix(**options: Any) -> UnixSettings:
    return UnixSettings(path="/nowhere", **options)


AGREED: list[tuple[Callable[..., Any], str, float]] = [
    (of_server, "init_timeout", 60),
    (of_client, "request_timeout", 5),
    (of_client, "tool_timeout", 30),
    (of_client, "ping_timeout", 5),
    (TcpOptions, "connect_timeout", 5),
    (HttpOptions, "connect_timeout", 5),
    (WebSocketOptions, "connect_timeout", 5),
    (TcpSettings, "idle_timeout", 300),
    (unix, "idle_timeout", 300),
    (WebSocketSettings, "ping_interval", 30),
    (WebSocketOptions, "ping_interval", 30),
]


@pytest.mark.parametrize(("make", "name", "seconds"), AGREED, ids=lambda value: getattr(value, "__name__", value))
def test_a_time_has_its_agreed_default_and_can_be_set(make: Callable[..., Any], name: str, seconds: float) -> None:
    """SESS-30"""
    assert getattr(make(), name) == seconds
    assert getattr(make(**{name: 1.5}), name) == 1.5


def test_an_option_there_is_not_is_named() -> None:
    with pytest.raises(
        SetupError,
        match=r"Client: unknown option 'request_time_out'; did you mean 'request_timeout'\?$",
    ):
        Client(Server("s"), request_time_out=1)  # type: ignore[call-arg]


@pytest.mark.parametrize("name", CLIENT_OPTIONS)
def test_an_option_of_another_library_is_answered_with_ours(name: str) -> None:
    with pytest.raises(SetupError) as caught:
        Client(Server("s"), **{name: 1})  # type: ignore[arg-type]
    assert str(caught.value) == f"Client: unknown option '{name}'; instead of {name}=… write {CLIENT_OPTIONS[name]}"
    ours = re.findall(r"(\w+)=", CLIENT_OPTIONS[name])
    known = {*ClientSettings.__struct_fields__, *ANSWERS, "on_progress", "raise_on_error", "timeout"}
    assert set(ours) <= known


@pytest.mark.parametrize(
    ("option", "value"), [("mode", "old"), ("reconnect", 3), ("log_level", "loud"), ("protocol_version", "1")]
)
def test_a_value_that_cannot_be_is_refused_in_words(option: str, value: Any) -> None:
    with pytest.raises(SetupError, match=repr(value)):
        Client(Server("s"), **{option: value})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("request_timeout", "5"),
        ("tool_timeout", -1),
        ("max_rounds", 1.5),
        ("name", 7),
        ("probe_on_timeout", "no"),
        ("env", ["A=1"]),
        ("sampling", 7),
        ("elicitation", "ask"),
        ("url_elicitation", {}),
        ("roots", "/tmp"),
        ("roots", Path("/tmp")),
        ("roots", 7),
    ],
)
def test_an_option_of_the_wrong_kind_is_refused_when_it_is_given(option, value):
    """The text of a path taken for a list of roots would offer `/` itself."""
    with pytest.raises(SetupError, match=rf"Client: {option} must be .*{re.escape(repr(value))}"):
        Client(Server("any"), **{option: value})
