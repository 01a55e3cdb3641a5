"""A server with tools for every kind of type: the table of types, and two tools for each of its rows.

typed_tools.py stdio      serves its own stdin and stdout
typed_tools.py sockets    serves TCP, HTTP and WebSocket, and prints where
"""

from __future__ import annotations

import asyncio
import collections
import datetime
import decimal
import enum
import ipaddress
import json
import pathlib
import re
import sys
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import (
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    NewType,
    NotRequired,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
)

import annotated_types
import attrs
import msgspec
import pydantic
import typing_extensions

from ferrule import Server

T = TypeVar("T")


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Mood(enum.StrEnum):
    GOOD = "good"
    BAD = "bad"


class Access(enum.Flag):
    READ = 1
    WRITE = 2


class Odd(enum.Enum):
    ONE = 1
    TWO = "two"
    PAIR = (1, 2)


@dataclass
class Point:
    x: int
    tags: list[str] = field(default_factory=list)


@dataclass(kw_only=True, frozen=True, slots=True)
class Keyed:
    x: int = 1
    y: str


@dataclass
class Line:
    start: Point
    end: Point | None = None


@dataclass
class Loose:
    """Nothing that msgspec could read by itself."""

    when: str | datetime.date
    size: Annotated[decimal.Decimal, annotated_types.Gt(0)]
    odd: Odd = Odd.ONE
    more: list[Loose] = field(default_factory=list)


class Options(TypedDict):
    deep: bool
    limit: NotRequired[int]


class Partial(TypedDict, total=False):
    a: Required[int]
    b: str


class Frozen(typing_extensions.TypedDict):
    a: typing_extensions.ReadOnly[int]
    b: NotRequired[str]


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Camel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    long_name: int
    other_one: str = "x"


class Cat(msgspec.Struct, tag="cat"):
    name: str


class Dog(msgspec.Struct, tag="dog"):
    name: str


class Row(msgspec.Struct, array_like=True):
    a: int
    b: str


@attrs.define
class Seat:
    row: int
    notes: list[str] = attrs.field(factory=list)


@attrs.define
class Hidden:
    _secret: int
    shown: str = "x"


class Model(pydantic.BaseModel):
    size: int = pydantic.Field(ge=1, alias="theSize")
    day: datetime.date = datetime.date(2020, 1, 1)


class Outer(pydantic.BaseModel):
    inner: Model
    kind: Literal["outer"] = "outer"


class Numbers(pydantic.RootModel[list[int]]):
    pass


class CatModel(pydantic.BaseModel):
    kind: Literal["cat"]
    name: str


class DogModel(pydantic.BaseModel):
    kind: Literal["dog"]
    name: str


@pydantic.dataclasses.dataclass
class Aliased:
    size: int = pydantic.Field(ge=1, alias="theSize")


@dataclass
class Holder:
    model: Model
    others: list[Model] = field(default_factory=list)


@dataclass
class Left:
    kind: Literal["left"]
    x: int


@dataclass
class Right:
    kind: Literal["right"]
    x: int
    y: int = 0


@dataclass
class Page(Generic[T]):
    items: list[T]
    total: int = 0


class PageStruct(msgspec.Struct, Generic[T]):
    items: list[T]


class PageDict(TypedDict, Generic[T]):
    items: list[T]


@attrs.define
class PageAttrs(Generic[T]):
    items: list[T]


class PageModel(pydantic.BaseModel, Generic[T]):
    items: list[T]


@dataclass
class Node:
    value: int
    kids: list[Node] = field(default_factory=list)


class NodeStruct(msgspec.Struct):
    value: int
    next: NodeStruct | None = None


class NodeDict(TypedDict):
    value: int
    kids: list[NodeDict]


class NodeModel(pydantic.BaseModel):
    value: int
    kids: list[NodeModel] = []


@dataclass
class Hen:
    egg: Egg | None = None


@dataclass
class Egg:
    hen: Hen | None = None


class Email(str):
    __slots__ = ()


UserId = NewType("UserId", int)
Ints: TypeAlias = list[int]
Named = typing_extensions.TypeAliasType("Named", list[int])
Json = typing_extensions.TypeAliasType("Json", "int | str | list[Json] | dict[str, Json] | None")

DAY = datetime.date(2026, 7, 28)
NOON = datetime.datetime(2026, 7, 28, 12, tzinfo=datetime.UTC)
IDENTITY = uuid.UUID("12345678-1234-5678-1234-567812345678")
ANY = object()
"""What need not be compared, as it has no equal."""


class Sample(NamedTuple):
    """A type, what is sent for it, what a handler gets, and what comes back if not the same as was sent."""

    type: Any
    sent: Any
    got: Any
    back: Any = ANY


TYPES: dict[str, Sample] = {
    "int": Sample(int, 5, 5),
    "big_int": Sample(int, 2**70, 2**70),
    "float": Sample(float, 1.5, 1.5),
    "float_of_int": Sample(float, 1, 1.0),
    "str": Sample(str, "x", "x"),
    "bool": Sample(bool, True, True),
    "object_in_list": Sample(list[object], [{"a": 1}], [{"a": 1}]),
    "any_in_list": Sample(list[Any], [{"a": [None]}], [{"a": [None]}]),
    "bounded": Sample(Annotated[int, msgspec.Meta(ge=1, le=9)], 3, 3),
    "bounded_by_others": Sample(Annotated[int, annotated_types.Interval(ge=1, lt=9)], 3, 3),
    "bounded_by_pydantic": Sample(Annotated[str, pydantic.Field(pattern="^a", max_length=3)], "ab", "ab"),
    "bounded_optional": Sample(Annotated[int | None, pydantic.Field(ge=1)], 3, 3),
    "bounded_decimal": Sample(Annotated[decimal.Decimal, annotated_types.Ge(1)], 1.5, decimal.Decimal("1.5")),
    "described": Sample(Annotated[list[int], "some numbers"], [1], [1]),
    "validated": Sample(Annotated[int, pydantic.AfterValidator(lambda n: n + 1)], 3, 4, 4),
    "literal": Sample(Literal["a", "b"], "a", "a"),
    "literal_mix": Sample(Literal["a", 1, None, True], 1, 1),
    "literal_enum": Sample(Literal[Colour.RED, "x"], "red", Colour.RED),
    "enum": Sample(Colour, "red", Colour.RED),
    "int_enum": Sample(Level, 2, Level.HIGH),
    "str_enum": Sample(Mood, "good", Mood.GOOD),
    "flag": Sample(Access, 3, Access.READ | Access.WRITE),
    "odd_enum": Sample(Odd, [1, 2], Odd.PAIR),
    "union": Sample(int | str, "5", "5"),
    "optional": Sample(int | None, None, None),
    "nested_optional": Sample(list[int | None] | None, [1, None], [1, None]),
    "text_union": Sample(datetime.date | str, "2026-07-28", DAY),
    "text_union_otherwise": Sample(datetime.date | str, "soon", "soon"),
    "path_union": Sample(int | pathlib.PurePosixPath | None, "a/b", pathlib.PurePosixPath("a/b")),
    "array_union": Sample(list[int] | set[str], ["a"], {"a"}),
    "class_union": Sample(Left | Right, {"kind": "right", "x": 1, "y": 2}, Right("right", 1, 2)),
    "tagged_union": Sample(Cat | Dog, {"type": "dog", "name": "x"}, Dog("x")),
    "model_union": Sample(CatModel | DogModel, {"kind": "dog", "name": "x"}, DogModel(kind="dog", name="x")),
    "discriminated": Sample(
        Annotated[CatModel | DogModel, pydantic.Field(discriminator="kind")],
        {"kind": "dog", "name": "x"},
        DogModel(kind="dog", name="x"),
    ),
    "datetime": Sample(datetime.datetime, "2026-07-28T12:00:00Z", NOON),
    "date": Sample(datetime.date, "2026-07-28", DAY),
    "time": Sample(datetime.time, "12:00:00", datetime.time(12)),
    "timedelta": Sample(datetime.timedelta, "PT5S", datetime.timedelta(seconds=5)),
    "decimal": Sample(decimal.Decimal, "1.5", decimal.Decimal("1.5"), 1.5),
    "uuid": Sample(uuid.UUID, str(IDENTITY), IDENTITY),
    "path": Sample(pathlib.Path, "a/b", pathlib.Path("a/b")),
    "bytes": Sample(bytes, "AQI=", b"\1\2"),
    "bytearray": Sample(bytearray, "AQI=", bytearray(b"\1\2")),
    "pattern": Sample(re.Pattern[str], "a+", re.compile("a+")),
    "ipv4": Sample(ipaddress.IPv4Address, "1.2.3.4", ipaddress.IPv4Address("1.2.3.4")),
    "ipv6_network": Sample(ipaddress.IPv6Network, "::/64", ipaddress.IPv6Network("::/64")),
    "list": Sample(list[int], [1], [1]),
    "set": Sample(set[int], [1], {1}),
    "frozenset": Sample(frozenset[str], ["a"], frozenset({"a"})),
    "tuple": Sample(tuple[int, str], [1, "a"], (1, "a")),
    "long_tuple": Sample(tuple[int, ...], [1, 2], (1, 2)),
    "empty_tuple": Sample(tuple[()], [], ()),
    "deque": Sample(collections.deque[int], [1], collections.deque([1])),
    "sequence": Sample(Sequence[int], [1], [1]),
    "iterable": Sample(Iterable[int], [1], [1]),
    "dict": Sample(dict[str, int], {"a": 1}, {"a": 1}),
    "int_keys": Sample(dict[int, str], {"1": "a"}, {1: "a"}),
    "date_keys": Sample(dict[datetime.date, int], {"2026-07-28": 1}, {DAY: 1}),
    "enum_keys": Sample(dict[Colour, int], {"red": 1}, {Colour.RED: 1}),
    "mapping": Sample(Mapping[str, int], {"a": 1}, {"a": 1}),
    "defaultdict": Sample(collections.defaultdict[str, list[int]], {"a": [1]}, {"a": [1]}),
    "ordered_dict": Sample(collections.OrderedDict[str, int], {"b": 1, "a": 2}, collections.OrderedDict(b=1, a=2)),
    "counter": Sample(collections.Counter[str], {"a": 2}, collections.Counter("aa")),
    "dataclass": Sample(Point, {"x": 1, "tags": ["a"]}, Point(1, ["a"])),
    "keyed_dataclass": Sample(Keyed, {"x": 2, "y": "a"}, Keyed(x=2, y="a")),
    "nested_dataclass": Sample(Line, {"start": {"x": 1, "tags": []}, "end": None}, Line(Point(1))),
    "loose_dataclass": Sample(
        Loose,
        {"when": "2026-07-28", "size": 1.5, "odd": "two", "more": [{"when": "x", "size": 2, "odd": 1, "more": []}]},
        Loose("2026-07-28", decimal.Decimal("1.5"), Odd.TWO, [Loose("x", decimal.Decimal(2))]),
    ),
    "typed_dict": Sample(Options, {"deep": True}, {"deep": True}),
    "partial_typed_dict": Sample(Partial, {"a": 1}, {"a": 1}),
    "frozen_typed_dict": Sample(Frozen, {"a": 1}, {"a": 1}),
    "named_tuple": Sample(Pair, [1, "y"], Pair(1, "y")),
    "struct": Sample(Camel, {"longName": 1, "otherOne": "z"}, Camel(1, "z")),
    "array_struct": Sample(Row, [1, "a"], Row(1, "a")),
    "attrs": Sample(Seat, {"row": 1, "notes": ["a"]}, Seat(1, ["a"])),
    "private_attrs": Sample(Hidden, {"secret": 1, "shown": "y"}, Hidden(1, "y")),
    "model": Sample(Model, {"theSize": 1, "day": "2026-07-28"}, Model(theSize=1, day=DAY)),
    "nested_model": Sample(
        Outer,
        {"inner": {"theSize": 1, "day": "2026-07-28"}, "kind": "outer"},
        Outer(inner=Model(theSize=1, day=DAY)),
    ),
    "models": Sample(list[Model], [{"theSize": 1, "day": "2026-07-28"}], [Model(theSize=1, day=DAY)]),
    "model_values": Sample(
        dict[str, Model], {"a": {"theSize": 1, "day": "2026-07-28"}}, {"a": Model(theSize=1, day=DAY)}
    ),
    "optional_model": Sample(Model | None, {"theSize": 1, "day": "2026-07-28"}, Model(theSize=1, day=DAY)),
    "model_or_text": Sample(Model | str, "x", "x"),
    "model_in_dataclass": Sample(
        Holder, {"model": {"theSize": 1, "day": "2026-07-28"}, "others": []}, Holder(Model(theSize=1, day=DAY))
    ),
    "root_model": Sample(Numbers, [1, 2], Numbers([1, 2])),
    "pydantic_dataclass": Sample(Aliased, {"theSize": 1}, Aliased(theSize=1)),
    "pydantic_dataclasses": Sample(list[Aliased], [{"theSize": 1}], [Aliased(theSize=1)]),
    "pydantic_url": Sample(pydantic.HttpUrl, "http://a.b/", pydantic.HttpUrl("http://a.b/")),
    "generic_dataclass": Sample(Page[int], {"items": [1], "total": 1}, Page([1], 1)),
    "generic_of_models": Sample(
        Page[Model], {"items": [{"theSize": 1, "day": "2026-07-28"}], "total": 0}, Page([Model(theSize=1, day=DAY)])
    ),
    "generic_of_unions": Sample(
        Page[datetime.date | str], {"items": ["2026-07-28", "x"], "total": 0}, Page([DAY, "x"])
    ),
    "generic_struct": Sample(PageStruct[int], {"items": [1]}, PageStruct([1])),
    "generic_typed_dict": Sample(PageDict[int], {"items": [1]}, {"items": [1]}),
    "generic_attrs": Sample(PageAttrs[int], {"items": [1]}, PageAttrs([1])),
    "generic_model": Sample(PageModel[int], {"items": [1]}, PageModel[int](items=[1])),
    "recursive_dataclass": Sample(Node, {"value": 1, "kids": [{"value": 2, "kids": []}]}, Node(1, [Node(2)])),
    "recursive_struct": Sample(
        NodeStruct, {"value": 1, "next": {"value": 2, "next": None}}, NodeStruct(1, NodeStruct(2))
    ),
    "recursive_typed_dict": Sample(
        NodeDict, {"value": 1, "kids": [{"value": 2, "kids": []}]}, {"value": 1, "kids": [{"value": 2, "kids": []}]}
    ),
    "recursive_model": Sample(
        NodeModel,
        {"value": 1, "kids": [{"value": 2, "kids": []}]},
        NodeModel(value=1, kids=[NodeModel(value=2)]),
    ),
    "mutual_recursion": Sample(Hen, {"egg": {"hen": {"egg": None}}}, Hen(Egg(Hen()))),
    "new_type": Sample(UserId, 5, 5),
    "type_alias": Sample(Ints, [1], [1]),
    "named_alias": Sample(Named, [1], [1]),
    "recursive_alias": Sample(Json, {"a": [1, "b", None]}, {"a": [1, "b", None]}),
    "kind_of_text": Sample(Email, "x", Email("x")),
}


def echo(row: Sample) -> Callable[..., Any]:
    """Make a handler that gives what it gets."""

    async def handler(value: Any) -> Any:
        return value

    handler.__annotations__ = {"value": row.type, "return": row.type}
    return handler


def gets(row: Sample) -> Callable[..., Any]:
    """Make a handler that tells whether it gets what it should."""

    async def handler(value: Any) -> bool:
        return bool(value == row.got) and type(value) in (type(row.got), collections.defaultdict)

    handler.__annotations__["value"] = row.type
    return handler


def make_app() -> Server:
    """Make the server: `echo_<name>` and `gets_<name>` for every type."""
    app = Server("typed", version="1.0.0", page_size=50)
    for name, row in TYPES.items():
        app.add_tool(f"echo_{name}", echo(row))
        app.add_tool(f"gets_{name}", gets(row))
    return app


async def serve_sockets() -> None:
    from ferrule.transports.http.listener import Http
    from ferrule.transports.tcp.listener import Tcp
    from ferrule.transports.websocket.listener import WebSocket

    tcp, http, websocket = Tcp(port=0), Http(port=0, sse=True), WebSocket(port=0)

    def tell() -> None:
        host, port = tcp.address
        where = {"tcp": f"tcp://{host}:{port}", "http": http.url, "websocket": websocket.url}
        where["sse"] = "sse+" + http.url.removesuffix("/mcp") + "/sse"
        print(json.dumps(where), flush=True)

    await make_app().serve(tcp, http, websocket, ready=tell)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        make_app().run("stdio")
    else:
        asyncio.run(serve_sockets())
