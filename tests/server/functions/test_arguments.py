"""Arguments: raw JSON becomes the values of the parameters, or a list of everything that is wrong."""

import contextlib
import datetime
import decimal
import enum
import pathlib
import sys
import time
import tracemalloc
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import jsonschema_rs
import msgspec
import pydantic
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ferrule.budgets.bounds import MAX_EXPLAINED_SIZE
from ferrule.server.functions.arguments import NoObject, TypedReader
from ferrule.server.functions.binder import Binding, InvalidArguments, Violation, bind

Small = Annotated[int, msgspec.Meta(ge=1, le=100)]


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0


class Options(TypedDict, total=False):
    deep: bool
    names: list[str]


class Pair(NamedTuple):
    a: int
    b: str = "x"


class Even(msgspec.Struct):
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError("must be even")


class Tree(msgspec.Struct):
    value: int
    children: list["Tree"] = []


class Add(msgspec.Struct, tag="add"):
    left: "Add | Subtract | Number"
    right: "Add | Subtract | Number"


class Subtract(msgspec.Struct, tag="subtract"):
    left: "Add | Subtract | Number"
    right: "Add | Subtract | Number"


class Number(msgspec.Struct, tag="number"):
    value: int


def read(annotation: Any, value: Any) -> Any:
    """Read one argument by its annotation."""

    def handler(a: Any) -> Any:
        return a

    handler.__annotations__["a"] = annotation
    return bind(handler).invoke(msgspec.json.encode({"a": value}))


def refusal(fn: Callable[..., Any], raw: bytes, **options: Any) -> InvalidArguments:
    with pytest.raises(InvalidArguments) as caught:
        bind(fn, **options).invoke(raw)
    return caught.value


def listed(error: InvalidArguments) -> set[tuple[str, str]]:
    return {(violation.path, violation.rule) for violation in error.violations}


@pytest.mark.parametrize(
    ("annotation", "sent", "got"),
    [
        (int, 2**70, 2**70),
        (float, 2, 2.0),
        (bytes, "YQ==", b"a"),
        (datetime.datetime, "2026-07-28T10:00:00Z", datetime.datetime(2026, 7, 28, 10, tzinfo=datetime.UTC)),
        (datetime.date, "2026-07-28", datetime.date(2026, 7, 28)),
        (datetime.timedelta, "PT90S", datetime.timedelta(seconds=90)),
        (decimal.Decimal, "1.10", decimal.Decimal("1.10")),
        (decimal.Decimal, 1.5, decimal.Decimal("1.5")),
        (uuid.UUID, "00000000-0000-0000-0000-000000000001", uuid.UUID(int=1)),
        (pathlib.Path, "a/b", pathlib.Path("a/b")),
        (pathlib.Path | None, None, None),
        (dict[str, list[pathlib.Path]], {"k": ["a"]}, {"k": [pathlib.Path("a")]}),
        (Literal["a", 1], 1, 1),
        (Colour, "red", Colour.RED),
        (int | str | None, "x", "x"),
        (set[int], [1, 2], {1, 2}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (Point, {"x": 1}, Point(1)),
        (list[Point], [{"x": 1, "y": 2}], [Point(1, 2.0)]),
        (Options, {"deep": True}, {"deep": True}),
        (Pair, [1], Pair(1)),
        (Tree, {"value": 1, "children": [{"value": 2}]}, Tree(1, [Tree(2)])),
        (Add | Subtract | Number, {"type": "number", "value": 1}, Number(1)),
        (dict[int, str], {"1": "a"}, {1: "a"}),
        (Any, {"a": [None]}, {"a": [None]}),
    ],
    ids=str,
)
def test_a_value_arrives_as_its_type(annotation: Any, sent: Any, got: Any) -> None:
    value = read(annotation, sent)
    assert value == got
    assert type(value) is type(got)


def test_a_handler_does_not_run_on_bad_arguments() -> None:
    """seed:TOOL-09: only validated arguments reach the handler."""
    ran = []

    def handler(a: Small) -> None:
        ran.append(a)

    for raw in (b'{"a":0}', b'{"a":"x"}', b"{}", b'{"a":1,"b":2}', b"[]", b"null", b"{"):
        refusal(handler, raw)
    assert ran == []
    bind(handler).invoke(b'{"a":7}')
    assert ran == [7]


def test_types_required_fields_ranges_and_patterns_are_all_reported_at_once() -> None:
    """seed:TOOL-10, seed:TOOL-11, ERRC-22: one failure lists every violation with path, value and rule."""

    def search(
        query: Annotated[str, msgspec.Meta(pattern="^[a-z]+$", min_length=2)],
        limit: Annotated[int, msgspec.Meta(ge=1)],
        place: Point,
        ids: list[int],
        kind: Literal["a", "b"] = "a",
        when: datetime.date | None = None,
        needed: str = "",
    ) -> None: ...

    raw = b'{"query":"X","limit":-5,"place":{"y":"s"},"ids":[1,"2",null],"kind":"c","when":"soon","extra":1}'
    error = refusal(search, raw)
    assert listed(error) == {
        ("/extra", "additionalProperties"),
        ("/query", "pattern"),
        ("/query", "minLength"),
        ("/limit", "minimum"),
        ("/place", "required"),
        ("/place/y", "type"),
        ("/ids/1", "type"),
        ("/ids/2", "type"),
        ("/kind", "enum"),
        ("/when", "format"),
    }
    by_path = {violation.path: violation for violation in error.violations}
    assert by_path["/limit"].value == -5
    assert by_path["/limit"].message == "-5 is less than the minimum of 1"
    assert len(str(error).splitlines()) == len(error.violations)


def test_a_missing_argument_is_named() -> None:
    """seed:TOOL-10: required fields."""

    def handler(a: int, b: int, c: int = 1) -> None: ...

    error = refusal(handler, b'{"c":"x"}')
    assert [(violation.path, violation.rule) for violation in error.violations] == [
        ("", "required"),
        ("", "required"),
        ("/c", "type"),
    ]
    assert '"a" is a required property' in str(error)
    assert '"b" is a required property' in str(error)


def test_what_the_types_accept_is_not_reported_beside_what_they_refuse() -> None:
    def handler(tags: set[int], at: datetime.datetime, n: int, bad: int) -> None: ...

    error = refusal(handler, b'{"tags":[1,1],"at":"2026-07-28T00:00:00","n":2.0,"bad":"x"}')
    assert listed(error) == {("/bad", "type")}


def test_what_only_the_type_refuses_is_reported_in_its_own_words() -> None:
    def handler(one: Even, many: list[Even], data: bytes) -> None: ...

    error = refusal(handler, b'{"one":{"n":3},"many":[{"n":2},{"n":5}],"data":"?"}')
    assert listed(error) == {("/one", "value"), ("/many/1", "value"), ("/data", "value")}
    assert {violation.message for violation in error.violations} == {"must be even", "Invalid base64 encoded string"}
    assert next(violation for violation in error.violations if violation.path == "/many/1").value == {"n": 5}


def test_what_the_schema_says_of_a_whole_argument_is_said_once_whatever_its_name() -> None:
    def handler(n: int = pydantic.Field(alias="a/b~c"), many: list[int] = []) -> None: ...  # noqa: B006

    error = refusal(handler, b'{"a/b~c":"x","many":[1,"y"]}')
    assert [violation.path for violation in error.violations] == ["/a~1b~0c", "/many/1"]


def test_an_error_of_the_types_own_code_is_not_taken_for_a_bad_argument() -> None:
    class Broken(msgspec.Struct):
        n: int

        def __post_init__(self) -> None:
            raise KeyError("oops")

    with pytest.raises(KeyError):
        read(Broken, {"n": 1})


def test_an_error_of_the_handler_is_not_taken_for_a_bad_argument() -> None:
    def handler(a: int) -> None:
        raise msgspec.ValidationError("from the handler")

    with pytest.raises(msgspec.ValidationError, match="from the handler"):
        bind(handler).invoke(b'{"a":1}')


@pytest.mark.parametrize(
    ("annotation", "sent", "got"),
    [
        (int, 2.0, 2),
        (int | None, 2.0, 2),
        (Small, 5.0, 5),
        (Literal[1, 2], 2.0, 2),
        (list[int], [1.0, 2], [1, 2]),
        (Point, {"x": 1.0, "y": 2.0}, Point(1, 2.0)),
        (dict[str, dict[str, int]], {"a": {"b": 3.0}}, {"a": {"b": 3}}),
    ],
    ids=str,
)
def test_a_whole_number_written_as_a_float_is_an_integer(annotation: Any, sent: Any, got: Any) -> None:
    value = read(annotation, sent)
    assert value == got
    assert repr(value) == repr(got)


def test_a_float_stays_a_float_where_its_type_lets_it() -> None:
    assert repr(read(Any, 2.0)) == "2.0"
    assert repr(read(float, 2.0)) == "2.0"
    with pytest.raises(InvalidArguments):
        read(int, 2.5)
    with pytest.raises(InvalidArguments):
        read(Small, 500.0)


@pytest.mark.parametrize(
    ("annotation", "sent", "got"),
    [
        (dict[str, int], '{"a":1}', {"a": 1}),
        (Point, '{"x":1.0}', Point(1)),
        (list[int], "[1]", [1]),
        (int, "5", 5),
        (float, "5", 5.0),
        (bool, "true", True),
        (int | None, "null", None),
        (list[int] | None, "[1, 2]", [1, 2]),
    ],
    ids=str,
)
def test_a_text_is_parsed_when_only_that_makes_it_fit(annotation: Any, sent: str, got: Any) -> None:
    value = read(annotation, sent)
    assert value == got
    assert type(value) is type(got)


@pytest.mark.parametrize("annotation", [str, Any, int | str, str | None], ids=str)
@pytest.mark.parametrize("text", ["5", "null", '{"a":1}', '"x"'])
def test_a_text_that_fits_is_left_alone(annotation: Any, text: str) -> None:
    assert read(annotation, text) == text


@pytest.mark.parametrize(
    ("annotation", "sent"),
    [
        (int, "five"),
        (int, "5.5"),
        (int, '"5"'),
        (Small, "500"),
        (list[int], '["a"]'),
        (dict[str, int], "{"),
        (Literal["a"], '"a"'),
        (bool, "1"),
        (list[int], "[" * 5000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_text_is_not_parsed_into_something_that_does_not_fit(annotation: Any, sent: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        read(annotation, sent)
    (violation,) = caught.value.violations
    assert violation.path == "/a"


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"{",
        b"nonsense",
        b'{"a":1}x',
        b'{"a":"\xff"}',
        b'{"a":"\\ud800"}',
        b'{"a":1e999}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"a":NaN}',
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' + b'{"a":' * 5000 + b"1" + b"}" * 5001,
        b"\x00",
        b"null",
        b"[]",
        b'"a"',
    ],
    ids=lambda raw: repr(raw[:12]),
)
@pytest.mark.parametrize("annotation", [int, Any, str, list[Any], Tree], ids=str)
@pytest.mark.parametrize("schema", [None, {"type": "object", "required": ["a"]}], ids=["typed", "given"])
def test_malformed_json_is_an_invalid_argument_and_no_other_exception(
    raw: bytes, annotation: Any, schema: dict[str, Any] | None
) -> None:
    def handler(a: Any) -> None: ...

    handler.__annotations__["a"] = annotation
    error = refusal(handler, raw, schema=schema)
    assert error.violations
    assert len(str(error)) < 2000


def test_no_arguments_at_all_are_an_empty_object() -> None:
    def handler(a: int = 3) -> int:
        return a

    assert bind(handler).invoke(b"") == 3


def test_a_failure_deep_in_a_recursive_union_is_told_in_bounded_time() -> None:
    """SCH-4: a listing would take a time that is exponential in the depth; the type's own word does not."""

    def evaluate(tree: Add | Subtract | Number) -> None: ...

    tree: Any = {"type": "number", "value": "x"}
    for _ in range(60):
        tree = {"type": "add", "left": tree, "right": {"type": "number", "value": 1}}
    started = time.perf_counter()
    error = refusal(evaluate, msgspec.json.encode({"tree": tree}))
    assert time.perf_counter() - started < 10
    (violation,) = error.violations
    assert violation.path == "/tree" + "/left" * 60 + "/value"
    assert violation.message == "Expected `int`, got `str`"


def test_the_errors_of_the_alternative_that_was_meant_are_listed() -> None:
    """ERRC-22: an optional or tagged value is explained as deep as a plain one."""

    def handler(tree: Add | Subtract | Number, place: Point | None, n: Small | None) -> None: ...

    tree = {"type": "add", "left": {"type": "number", "value": "x"}, "right": {"type": "number"}}
    error = refusal(handler, msgspec.json.encode({"tree": tree, "place": {"x": "1", "y": "2"}, "n": 0}))
    assert listed(error) == {
        ("/tree/left/value", "type"),
        ("/tree/right", "required"),
        ("/place/x", "type"),
        ("/place/y", "type"),
        ("/n", "minimum"),
    }


def test_patterns_that_only_python_knows_still_report_their_violation() -> None:
    def handler(a: Annotated[str, msgspec.Meta(pattern=r"^(?P<q>['\"]).*(?P=q)\Z")]) -> None: ...

    assert [violation.path for violation in refusal(handler, b'{"a":"x"}').violations] == ["/a"]


def test_a_default_is_used_and_a_container_is_fresh_each_time() -> None:
    sentinel = object()

    def handler(items: list[int] = [], *, by: dict[str, int] = {"a": 1}, other: Any = sentinel) -> Any:  # noqa: B006
        items.append(1)
        by["a"] += 1
        return items, by, other

    binding = bind(handler)
    assert binding.invoke(b"{}") == ([1], {"a": 2}, sentinel)
    assert binding.invoke(b"{}") == ([1], {"a": 2}, sentinel)
    assert binding.invoke(b'{"items":"[]"}') == ([1], {"a": 2}, sentinel)
    assert "default" not in binding.input_schema["properties"]["other"]
    assert binding.input_schema["properties"]["by"]["default"] == {"a": 1}


def test_the_validator_is_loaded_only_when_something_fails() -> None:
    """PERF-06: a typed call never touches the JSON Schema validator."""
    import subprocess

    code = (
        "import sys; from ferrule.server.functions.binder import bind\n"
        "def f(a: int) -> int: return a\n"
        "b = bind(f); b.check_output(b.invoke(b'{\"a\":1}'))\n"
        "assert 'jsonschema_rs' not in sys.modules and 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer", "minimum": 1}},
    "required": ["query"],
}


def test_a_given_schema_decides_and_the_parameters_get_their_arguments() -> None:
    """seed:TOOL-03, seed:TOOL-09: a handler with a schema runs only on what the schema allows."""

    def search(query, limit=10):  # type: ignore[no-untyped-def]
        return query, limit

    binding = bind(search, schema=SCHEMA)
    assert binding.invoke(b'{"query":"x"}') == ("x", 10)
    assert binding.invoke(b'{"query":"x","limit":3,"other":1}') == ("x", 3)
    error = refusal(search, b'{"query":1,"limit":0}', schema=SCHEMA)
    assert listed(error) == {("/query", "type"), ("/limit", "minimum")}


def test_a_handler_of_one_unnamed_argument_gets_them_all() -> None:
    """seed:TOOL-03: `handler(args)`."""
    assert bind(lambda args: args, schema=SCHEMA).invoke(b'{"query":"x","z":1}') == {"query": "x", "z": 1}
    assert bind(lambda query: query, schema=SCHEMA).invoke(b'{"query":"x","z":1}') == "x"


def test_a_handler_with_keywords_gets_them_all_by_name() -> None:
    """seed:TOOL-03: `**kwargs` takes what no parameter names."""

    def handler(query: str, *args: Any, **rest: Any) -> Any:
        return query, args, rest

    assert bind(handler, schema=SCHEMA).invoke(b'{"query":"x","z":1}') == ("x", (), {"z": 1})
    assert bind(lambda **all: all, schema=SCHEMA).invoke(b'{"query":"x","z":1}') == {"query": "x", "z": 1}


def test_typed_parameters_of_a_given_schema_are_converted_after_it() -> None:
    def handler(at: datetime.date, n: int, place: Point | None = None) -> Any:
        return at, n, place

    binding = bind(handler, schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    day = datetime.date(2026, 7, 28)
    assert binding.invoke(b'{"at":"2026-07-28","n":2.0,"place":{"x":1}}') == (day, 2, Point(1))
    schema = {"type": "object"}
    error = refusal(handler, b'{"at":"x","place":{"x":"?"}}', schema=schema)
    assert listed(error) == {("", "required"), ("/at", "value"), ("/place/x", "type")}


def test_a_typed_handler_of_one_unnamed_argument_gets_its_type() -> None:
    def handler(place: Point) -> Point:
        return place

    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}
    assert bind(handler, schema=schema).invoke(b'{"x":1}') == Point(1)


def test_texts_are_repaired_for_a_given_schema_too() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer"}, "o": {"type": "object"}, "s": {"type": "string"}},
    }

    def handler(n=None, o=None, s=None):  # type: ignore[no-untyped-def]
        return n, o, s

    assert bind(handler, schema=schema).invoke(b'{"n":"5","o":"{}","s":"5"}') == (5, {}, "5")
    error = refusal(handler, b'{"n":"5","o":"[]","s":5}', schema=schema)
    assert listed(error) == {("/o", "type"), ("/s", "type")}


SIGNATURES: list[tuple[Any, ...]] = [
    (int,),
    (Small, str),
    (Annotated[str, msgspec.Meta(min_length=1, max_length=3, pattern="[a-c]")], bool),
    (list[int] | None, dict[str, float]),
    (Literal["a", "b", 1], Colour),
    (Point, Options),
    (tuple[int, str], Pair),
    (Tree,),
    (int | str | None, list[bool | None]),
    (Annotated[list[Any], msgspec.Meta(min_length=1)], Annotated[float, msgspec.Meta(gt=0, lt=10)]),
]

near_misses = st.sampled_from(
    [
        {"x": 1},
        {"x": 1, "y": 2},
        {"x": "1"},
        {"deep": True, "names": ["a"]},
        {"value": 1, "children": [{"value": 2, "children": []}]},
        {"value": 1, "children": [{"value": None}]},
        [1, "a"],
        [1],
        ["a"],
        "a",
        "abc",
        "red",
        "1",
        1,
        0,
        100,
        101,
        True,
    ]
)
# A short alphabet, because the tables of all characters take seconds to build on a first run.
texts = st.text(alphabet='abc01 \x00"\\é中😀', max_size=4)
whole_floats = st.integers(-3, 200).map(float) | st.lists(st.integers(0, 3).map(float), max_size=2)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: not number.is_integer())
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)


def compiled(annotations: tuple[Any, ...]) -> tuple[Binding, Callable[[bytes], Any], jsonschema_rs.Validator]:
    def one(a: Any) -> Any: ...
    def two(a: Any, b: Any = "red") -> Any: ...

    fn: Any = one if len(annotations) == 1 else two
    fn.__annotations__.update(zip("ab", annotations, strict=False))
    binding = bind(fn)
    decode = TypedReader(binding.signature.parameters, binding.input_schema)._decode
    return binding, decode, jsonschema_rs.Draft202012Validator(binding.input_schema)


COMPILED = [compiled(annotations) for annotations in SIGNATURES]


@given(
    which=st.integers(0, len(SIGNATURES) - 1),
    arguments=st.dictionaries(st.sampled_from(["a", "b", "c"]), near_misses | json_values, max_size=3),
)
@example(which=0, arguments={"a": 2**80})
@example(which=2, arguments={"a": "ab\u0000"})
def test_the_types_accept_exactly_what_the_published_schema_accepts(which: int, arguments: dict[str, Any]) -> None:
    """seed:TOOL-09, SCH-2: decoding and validating agree, floats that are whole numbers aside."""
    _, decode, validator = COMPILED[which]
    try:
        decode(msgspec.json.encode(arguments))
        decoded = True
    except msgspec.ValidationError:
        decoded = False
    assert decoded == validator.is_valid(arguments)


@given(
    which=st.integers(0, len(SIGNATURES) - 1),
    arguments=st.dictionaries(st.sampled_from(["a", "b"]), near_misses | json_values | whole_floats, max_size=2),
)
def test_a_call_accepts_all_that_the_published_schema_accepts(which: int, arguments: dict[str, Any]) -> None:
    """seed:TOOL-09, SCH-2: nothing valid is refused, and what is refused has a violation where it is invalid."""
    binding, _, validator = COMPILED[which]
    try:
        binding.invoke(msgspec.json.encode(arguments))
        violations: tuple[Violation, ...] = ()
    except InvalidArguments as error:
        violations = error.violations
    if validator.is_valid(arguments):
        assert violations == ()
    elif not any(isinstance(value, str) for value in arguments.values()):
        errors = [error for error in validator.iter_errors(arguments) if error.kind.name != "additionalProperties"]
        wrong = {str(error.instance_path[0]) if error.instance_path else None for error in errors}
        assert {found.parameter for found in violations if found.rule != "additionalProperties"} == wrong


@given(raw=st.binary(max_size=40) | st.text(alphabet='{}[]":,ab\\u0 1.e-', max_size=40).map(str.encode))
def test_no_bytes_raise_anything_but_invalid_arguments(raw: bytes) -> None:
    for binding, *_ in COMPILED[:4]:
        with contextlib.suppress(InvalidArguments):
            binding.invoke(raw)


def test_a_pydantic_model_is_a_parameter_like_any_other() -> None:
    pydantic = pytest.importorskip("pydantic")
    seat: Any = pydantic.create_model("Seat", row=(int, pydantic.Field(ge=1)), day=(datetime.date, ...))

    def book(seat: Any, others: Any = ()) -> Any:
        return seat, others

    book.__annotations__.update(seat=seat, others=list[seat])
    value, others = bind(book).invoke(b'{"seat":{"row":1,"day":"2026-07-28"},"others":[{"row":2,"day":"2026-07-28"}]}')
    assert (value, [other.row for other in others]) == (seat(row=1, day=datetime.date(2026, 7, 28)), [2])
    error = refusal(book, b'{"seat":{"row":0},"others":[{"row":1,"day":"soon"}]}')
    assert listed(error) == {("/seat", "required"), ("/seat/row", "minimum"), ("/others/0/day", "format")}
    assert "http" not in str(error)


ACCEPTED = [
    (int, 2.0, 2),
    (int, "5", 5),
    (float, 5, 5.0),
    (float, "1.5", 1.5),
    (bool, "true", True),
    (str | None, None, None),
    (decimal.Decimal, 1.5, decimal.Decimal("1.5")),
    (decimal.Decimal, "1.5", decimal.Decimal("1.5")),
    (list[int], "[1, 2]", [1, 2]),
    (Point, '{"x": 1}', Point(1)),
    (tuple[int, ...], [1], (1,)),
    (set[int], [1, 1], {1}),
]
REFUSED = [
    (int, 2.5),
    (int, True),
    (int, "5.5"),
    (int, ""),
    (bool, 1),
    (bool, "yes"),
    (str, 5),
    (str, None),
    (float, "NaN"),
    (datetime.date, 5),
    (datetime.datetime, "2026-07-28"),
    (datetime.timedelta, 5),
    (bytes, "not base64"),
    (list[int], 5),
    (list[int], {"0": 1}),
    (Literal["a"], "A"),
]


@pytest.mark.parametrize(("annotation", "sent", "got"), ACCEPTED, ids=str)
def test_what_means_the_same_in_json_is_accepted(annotation: Any, sent: Any, got: Any) -> None:
    """The table of coercions in the guide to types, left half."""
    value = read(annotation, sent)
    assert value == got
    assert type(value) is type(got)


@pytest.mark.parametrize(("annotation", "sent"), REFUSED, ids=str)
def test_what_would_have_to_be_guessed_is_refused(annotation: Any, sent: Any) -> None:
    """The same table, right half."""
    with pytest.raises(InvalidArguments) as caught:
        read(annotation, sent)
    assert caught.value.violations[0].path.startswith("/")


def test_a_set_that_is_sent_what_it_cannot_hold_refuses_it() -> None:
    for annotation in (set, frozenset[Any]):
        with pytest.raises(InvalidArguments, match="holds an array or object, which a set cannot"):
            read(annotation, [[1]])


def test_an_argument_goes_by_its_alias() -> None:
    pydantic = pytest.importorskip("pydantic")
    named = pydantic.Field(alias="class", ge=1)

    def handler(class_: int = named, other: int = 2) -> tuple[int, int]:
        return class_, other

    binding = bind(handler)
    assert binding.invoke(b'{"class":3}') == (3, 2)
    assert binding.parameters == ("class", "other")
    assert binding.input_schema["required"] == ["class"]
    error = refusal(handler, b'{"class_":3}')
    assert listed(error) == {("", "required"), ("/class_", "additionalProperties")}
    assert listed(refusal(handler, b'{"class":0}')) == {("/class", "minimum")}


@pytest.mark.parametrize("annotation", [str | datetime.date, str | bytes, str | list[int], pathlib.Path | int], ids=str)
@pytest.mark.parametrize("text", ["[1]", "5", "null"])
def test_a_text_is_left_alone_where_any_of_the_choices_takes_it(annotation: Any, text: str) -> None:
    assert str(read(annotation, text)) == text


PAD = "x" * MAX_EXPLAINED_SIZE
"""Makes arguments long, so that they are read the short way."""


@pytest.mark.parametrize(
    ("annotation", "sent", "got"),
    [
        (int, 2.0, 2),
        (int, "7", 7),
        (list[int], "[1, 2.0]", [1, 2]),
        (list[int], [1, 2.0], [1, 2]),
        (Point, '{"x": 1}', Point(1)),
        (bool, "true", True),
        (int | None, "null", None),
        (set[Any], [1, 2], {1, 2}),
        (Colour, "red", Colour.RED),
    ],
)
def test_long_arguments_are_mended_as_short_ones_are(annotation: Any, sent: Any, got: Any) -> None:
    values: list[Any] = []

    def handler(pad: str, a: annotation, b: int = 3) -> None:
        values.append((a, b))

    bind(handler).invoke(msgspec.json.encode({"pad": PAD, "a": sent}))
    assert values == [(got, 3)]


@pytest.mark.parametrize("annotation", [int, list[int], Point, Colour, Literal["a", "b"], set[Any], dict[str, int]])
@pytest.mark.parametrize("sent", ["x", '"a"', {"z": 1}, [[]], [1, "x"]])
def test_long_arguments_are_refused_as_short_ones_are(annotation: Any, sent: Any) -> None:
    def short(a: annotation) -> None: ...

    def long(pad: str, a: annotation) -> None: ...

    outcomes: list[Any] = []
    for handler, arguments in ((short, {"a": sent}), (long, {"pad": PAD, "a": sent})):
        try:
            bind(handler).invoke(msgspec.json.encode(arguments))
        except InvalidArguments as error:
            outcomes.append({violation.parameter for violation in error.violations})
        else:
            outcomes.append("taken")
    assert outcomes[0] == outcomes[1]


def test_of_long_arguments_the_first_violation_of_each_is_named_and_nothing_is_repeated() -> None:
    def handler(a: list[int], b: Point, c: str, d: int) -> None: ...

    error = refusal(handler, msgspec.json.encode({"a": [1, PAD, PAD], "b": {"x": PAD}, "c": 1}))
    assert [(violation.path, violation.rule) for violation in error.violations] == [
        ("/a", "type"),
        ("/b", "type"),
        ("/c", "type"),
        ("", "required"),
    ]
    assert "Expected `int`, got `str` - at `$[1]`" in str(error)
    assert "xxx" not in repr(error.violations)
    unknown = refusal(handler, msgspec.json.encode({"a": [1], PAD: 1}))
    assert unknown.violations[0].rule == "additionalProperties"
    assert len(str(unknown)) < 600


def test_of_many_wrong_parts_each_argument_names_the_first() -> None:
    """4 KB of `{}` for records took 9 ms to explain: all of them were listed to show 20."""

    def handler(a: list[Point], b: list[int]) -> None: ...

    raw = msgspec.json.encode({"a": [{}] * 600, "b": ["x"] * 300})
    took = []
    for _ in range(20):
        before = time.process_time()
        error = refusal(handler, raw)
        took.append(time.process_time() - before)
    assert min(took) < 0.005
    assert [violation.parameter for violation in error.violations] == ["a", "b"]


def test_names_nobody_asked_for_are_counted_and_the_first_are_named() -> None:
    def handler(a: int = 0) -> None: ...

    error = refusal(handler, msgspec.json.encode({f"k{n}": n for n in range(100)}))
    assert [violation.path for violation in error.violations] == [f"/k{n}" for n in range(20)]
    assert error.omitted == 80
    assert str(error).endswith("and 80 more")


@pytest.mark.parametrize("text", ["1.5e1", "10.00", "1.0E1", "-0.0", "[3e0]"])
def test_whole_numbers_are_known_however_they_are_written(text: str) -> None:
    values: list[Any] = []

    def handler(a: int | list[int], pad: str = "") -> None:
        values.append(a)

    for pad in ("", PAD):
        bind(handler).invoke(f'{{"a":{text},"pad":"{pad}"}}'.encode())
    assert values[0] == values[1] == msgspec.json.decode(text)
    assert not isinstance(values[0], float)


def test_a_number_out_of_range_in_a_long_argument_is_refused() -> None:
    def handler(a: list[int], pad: str) -> None: ...

    error = refusal(handler, f'{{"a":[1.0,1e999],"pad":"{PAD}"}}'.encode())
    assert [violation.parameter for violation in error.violations] == ["a"]


def test_long_arguments_that_are_no_object_are_told_so() -> None:
    def handler(a: int) -> None: ...

    for raw in (msgspec.json.encode([PAD]), msgspec.json.encode(PAD)):
        assert isinstance(refusal(handler, raw), NoObject)
    deep = b'{"a":' + b"[" * MAX_EXPLAINED_SIZE + b"]" * MAX_EXPLAINED_SIZE + b"}"
    assert refusal(handler, deep).violations[0].rule in {"depth", "type", "json"}


class Shelf(pydantic.BaseModel):
    items: list[int]


def costs(fn: Callable[..., Any], raw: bytes, **options: Any) -> tuple[float, int]:
    """Return the CPU seconds and the bytes at most that refusing arguments takes."""
    invoke = bind(fn, **options).invoke
    seconds = []
    for _ in range(3):
        start = time.process_time()
        with contextlib.suppress(InvalidArguments):
            invoke(raw)
        seconds.append(time.process_time() - start)
    tracemalloc.start()
    with contextlib.suppress(InvalidArguments):
        invoke(raw)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return min(seconds), most


def long_arguments(size: int) -> dict[str, bytes]:
    many = b"[" + b",".join([b"{}"] * (size // 3)) + b"]"
    return {
        "objects": b'{"a":' + many + b"}",
        "a text of objects": b'{"a":' + msgspec.json.encode(many.decode()) + b"}",
        "floats": b'{"a":[' + b",".join([b"2.0"] * (size // 4)) + b',"x"]}',
        "unknown names": b'{"a":0,' + b",".join(b'"a%d":1' % number for number in range(size // 12)) + b"}",
        "places in a text": b'{"a":"' + b" - at `$" * (size // 8) + b'"}',
        "a long name": b'{"' + b" - at `$" * (size // 8) + b'":1}',
    }


@pytest.mark.parametrize("annotation", [str, int, list[int], Point, Literal["a", "b"], dict[str, int]])
@pytest.mark.parametrize("kind", list(long_arguments(0)))
def test_refusing_long_arguments_costs_no_more_than_reading_them(annotation: Any, kind: str) -> None:
    """Of 4 MB of `{}` for a text the refusal took 1.4 s and 150 MiB."""

    def handler(a: annotation) -> None: ...

    raw = long_arguments(1_000_000)[kind]
    seconds, most = costs(handler, raw)
    if most > 20 * len(raw):
        pytest.skip("it fits")
    assert seconds < 4 * (20e-6 + 20e-9 * len(raw))
    assert most < 4 * len(raw) + 100_000


@pytest.mark.parametrize("size", [3000, 60_000])
def test_explaining_shorter_arguments_is_bounded_too(size: int) -> None:
    def handler(a: list[int]) -> None: ...

    for raw in long_arguments(size).values():
        seconds, _ = costs(handler, raw)
        assert seconds < 0.05
        assert len(str(refusal(handler, raw))) < 3000


def test_a_model_with_thousands_of_errors_is_told_their_number() -> None:
    def handler(a: Shelf) -> None: ...

    raw = b'{"a":{"items":[' + b",".join([b"{}"] * 5000) + b"]}}"
    assert "5,000 things are wrong with it" in str(refusal(handler, raw))
    few = b'{"a":{"items":[' + b",".join([b"1"] * 5000) + b',"x"]}}'
    assert refusal(handler, few).violations[0].path == "/a/items/5000"


def test_a_given_schema_says_of_long_arguments_only_that_they_do_not_fit() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}

    def handler(a: Any) -> None: ...

    raw = long_arguments(60_000)["objects"]
    [found] = refusal(handler, raw, schema=schema).violations
    assert (found.rule, found.value) == ("schema", "…")
