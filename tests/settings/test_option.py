"""What an option may be, and what is said of one that may not."""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Protocol

import pytest
from msgspec import Struct

from ferrule import Client, Graphql, Http, Reconnect, Server, SetupError, Stdio, Tcp, Unix, WebSocket
from ferrule.settings.option import (
    Bytes,
    Fraction,
    MessageSize,
    NonNegativeInt,
    Port,
    PositiveInt,
    PositiveSeconds,
    Seconds,
    alike,
    check,
    kinds_of_option,
    read,
    require,
    require_known,
)

if typing.TYPE_CHECKING:
    from elsewhere import Unseen


class Door(Struct, frozen=True, kw_only=True):
    """Options of every kind."""

    name: str = "door"
    colour: Literal["red", "blue"] = "red"
    locked: bool = False
    keys: PositiveInt = 1
    spare: NonNegativeInt | None = None
    opens_after: Seconds = 0.0
    closes_after: PositiveSeconds | None = None
    width: Bytes = 90
    letter_size: MessageSize = 4096
    bell: Port = 80
    glass: Fraction = 0.5
    guests: Collection[str] = ()
    steps: Sequence[int] = ()
    signs: Mapping[str, str] | None = None
    on_knock: Callable[[], None] | None = None
    hinge: Unseen | None = None

    def __post_init__(self) -> None:
        check(self)


GOOD = [
    {"name": "gate"},
    {"name": Path("gate")},
    {"colour": "blue"},
    {"keys": 1},
    {"spare": 0},
    {"spare": None},
    {"opens_after": 0},
    {"opens_after": 2.5},
    {"closes_after": 1},
    {"letter_size": 1024},
    {"letter_size": 100 * 1024 * 1024},
    {"bell": 0},
    {"bell": 65535},
    {"glass": 0},
    {"glass": 1},
    {"guests": {"ada"}},
    {"guests": ["ada"]},
    {"steps": (1, 2)},
    {"signs": {"in": "out"}},
    {"on_knock": print},
    {"hinge": "anything"},
]
BAD = [
    ({"name": 5}, "name must be a str, not 5"),
    ({"colour": "green"}, "colour must be one of blue, red, not 'green'"),
    ({"locked": "no"}, "locked must be True or False, not 'no'"),
    ({"keys": 0}, "keys must be at least 1, not 0"),
    ({"keys": True}, "keys must be a whole number, not True"),
    ({"keys": 1.5}, "keys must be a whole number, not 1.5"),
    ({"spare": -1}, "spare must be at least 0 or None, not -1"),
    ({"opens_after": -0.1}, "opens_after must be at least 0 seconds, not -0.1"),
    ({"opens_after": float("nan")}, "opens_after must be at least 0 seconds, not nan"),
    ({"opens_after": "5s"}, "opens_after must be a number, not '5s'"),
    ({"closes_after": 0}, "closes_after must be more than 0 seconds or None, not 0"),
    ({"width": 0}, "width must be at least 1 byte, not 0 bytes"),
    ({"letter_size": 1023}, "letter_size must be from 1 KiB to 100 MiB, not 1023 bytes"),
    ({"bell": 65536}, "bell must be from 0 to 65535, not 65536"),
    ({"glass": 1.1}, "glass must be from 0 to 1, not 1.1"),
    ({"guests": "ada"}, "guests must be a set or a list, not 'ada': write ['ada']"),
    ({"guests": [5]}, "guests must be a set or a list of str, not [5]"),
    ({"steps": {1}}, "steps must be a list, not {1}"),
    ({"steps": ["a"]}, "steps must be a list of int, not ['a']"),
    ({"signs": ["in"]}, "signs must be a mapping or None, not ['in']"),
    ({"on_knock": "print"}, "on_knock must be a function or None, not 'print'"),
]


@pytest.mark.parametrize("options", GOOD, ids=str)
def test_a_value_of_the_kind_and_within_the_bounds_is_taken(options: dict[str, Any]) -> None:
    ((name, value),) = options.items()
    assert getattr(Door(**options), name) is value


@pytest.mark.parametrize(("options", "says"), BAD, ids=str)
def test_any_other_value_is_refused_in_one_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(SetupError) as refused:
        read(Door, options, "the door")
    assert str(refused.value) == f"the door: {says}"


def test_an_option_at_its_default_is_not_looked_at() -> None:
    kinds_of_option.cache_clear()
    Door()
    Door(name="gate")
    assert kinds_of_option.cache_info().misses == 1


def test_one_value_can_be_held_against_an_annotation() -> None:
    require("grace", None, Seconds | None)
    with pytest.raises(SetupError, match="grace must be at least 0 seconds or None, not -1"):
        require("grace", -1, Seconds | None)


def test_what_cannot_be_looked_at_is_left_to_whoever_uses_it() -> None:
    class Quacks(Protocol):
        def quack(self) -> None: ...

    for annotation in (Quacks, typing.IO[str], Any):
        require("bird", 5, annotation)
    with pytest.raises(SetupError, match="bird must be Event, not 5"):
        require("bird", 5, asyncio.Event)


def test_a_missing_option_is_named() -> None:
    class Lock(Struct, kw_only=True):
        key: str

    with pytest.raises(SetupError, match=r"the lock: .*key"):
        read(Lock, {}, "the lock")


# -- names there are not


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nmae", "the door: unknown option 'nmae'; did you mean 'name'?"),
        ("zzz", "the door: unknown option 'zzz'; the options are age, name"),
        ("title", "the door: unknown option 'title'; instead of title=… write name=…"),
        ("x" * 1000, f"the door: unknown option '{'x' * 1000}'; the options are age, name"),
    ],
)
def test_an_unknown_name_is_answered_with_what_was_meant_and_what_there_is(name: str, says: str) -> None:
    with pytest.raises(SetupError) as refused:
        require_known("the door", [name], ["name", "age"], {"title": "name=…"})
    assert str(refused.value) == says


EVERYWHERE: dict[str, tuple[Callable[[], object], str, str]] = {
    "Server": (lambda: Server("s", pagesize=3), "Server", "page_size"),  # type: ignore[call-arg]
    "Client": (lambda: Client("s.py", tool_timout=3), "Client", "tool_timeout"),  # type: ignore[call-arg]
    "add_tool": (lambda: Server("s").add_tool(print, tiemout=3), "the tool print", "timeout"),  # type: ignore[call-arg]
    "add_resource": (
        lambda: Server("s").add_resource("x://y", print, mimetype=3),  # type: ignore[call-arg]
        "the resource x://y",
        "mime_type",
    ),
    "add_prompt": (lambda: Server("s").add_prompt(print, tilte=3), "the prompt print", "title"),  # type: ignore[call-arg]
    "page": (lambda: Server("s").page("ui://x", "<html>", tilte=3), "the page ui://x", "title"),  # type: ignore[call-overload]
    "asgi": (lambda: Server("s").asgi(respnse=3), "asgi", "response"),  # type: ignore[call-arg]
    "Http": (lambda: Http(prot=3), "http", "port"),  # type: ignore[call-arg]
    "Http websocket": (lambda: Http(websocket={"pth": 3}), "websocket", "path"),  # type: ignore[typeddict-unknown-key]
    "WebSocket": (lambda: WebSocket(prot=3), "ws", "port"),  # type: ignore[call-arg]
    "Graphql": (lambda: Graphql(prot=3), "graphql", "port"),  # type: ignore[call-arg]
    "Tcp": (lambda: Tcp(prot=3), "tcp", "port"),  # type: ignore[call-arg]
    "Unix": (lambda: Unix("/nowhere", moed=3), "unix", "mode"),  # type: ignore[call-arg]
    "Stdio": (lambda: Stdio(garce=3), "stdio", "grace"),  # type: ignore[call-arg]
}


@pytest.mark.parametrize("place", EVERYWHERE)
def test_one_refusal_serves_every_struct(place: str) -> None:
    make, where, meant = EVERYWHERE[place]
    with pytest.raises(SetupError, match=rf"^{where}: unknown option '\w+'; did you mean '{meant}'\?$"):
        make()


def test_a_struct_that_users_make_names_itself() -> None:
    with pytest.raises(SetupError, match=r"^Reconnect: jitter must be from 0 to 1, not 2$"):
        Reconnect(jitter=2)


def test_names_are_compared_only_where_they_are_close() -> None:
    assert alike("prot", ["port"], 0.7) == "port"
    assert alike("prot", ["host"], 0.7) == ""
