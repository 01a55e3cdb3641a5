"""Words of the command line as arguments of a tool."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ferrule.cli.arguments import MAX_INPUT, ArgumentReader, kind_name, kinds_of, text_arguments
from ferrule.errors import SetupError

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "on": {"type": "boolean"},
        "name": {"type": "string"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"type": "array", "items": {"type": "integer"}},
        "point": {"$ref": "#/$defs/Point"},
        "colour": {"enum": ["red", "green"]},
        "level": {"enum": [1, 2]},
        "any": {},
    },
    "$defs": {"Point": {"type": "object", "properties": {"x": {"type": "integer"}}}},
}


def read(*words: str, schema: Any = SCHEMA, stdin: str = "") -> dict[str, Any]:
    return ArgumentReader("tool", schema, stdin).read(words)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("count=3", 3),
        ("count=-3", -3),
        ("ratio=2.5", 2.5),
        ("ratio=3", 3.0),
        ("on=yes", True),
        ("on=false", False),
        ("name=3", "3"),
        ("name=true", "true"),
        ("name=a=b:=c", "a=b:=c"),
        ("name=", ""),
        ("maybe=null", None),
        ("maybe=4", 4),
        ("either=5", "5"),
        ("either:=5", 5),
        ("tags=one", ["one"]),
        ('tags=["a","b"]', ["a", "b"]),
        ("sizes=4", [4]),
        ('point={"x":1}', {"x": 1}),
        ("colour=red", "red"),
        ("level=2", 2),
        ("any=7", 7),
        ("any=text", "text"),
        ('any:={"deep":[1]}', {"deep": [1]}),
    ],
)
def test_a_value_is_read_as_the_schema_says(word: str, value: object) -> None:
    [found] = read(word).values()
    assert found == value
    assert type(found) is type(value)


def test_a_key_given_twice_is_a_list() -> None:
    assert read("tags=a", "tags=b,c") == {"tags": ["a", "b,c"]}
    assert read("sizes=1", "sizes=2") == {"sizes": [1, 2]}
    with pytest.raises(SetupError, match='"count" is given 2 times, and the tool "tool" takes one'):
        read("count=1", "count=2")


def test_files_and_stdin_are_read(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("hello\n")
    (tmp_path / "data.json").write_text('{"x": 2}')
    assert read(f"name=@{tmp_path}/text.txt", f"point:=@{tmp_path}/data.json", "-", stdin='{"count": 9}') == {
        "count": 9,
        "name": "hello\n",
        "point": {"x": 2},
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["count=three"], "\"count\" must be integer, not 'three'"),
        (["count=1.5"], "must be integer"),
        (["ratio=nan"], "must be number"),
        (["ratio=1e999"], "must be number"),
        (["on=perhaps"], "must be boolean"),
        (["sizes=1", "sizes=x"], "must be integer"),
        (["cuont=3"], 'takes no "cuont". Did you mean "count"?'),
        (["nonsense"], '"nonsense" is not an argument: write key=value'),
        (["=3"], "is not an argument"),
        (["any:={"], "any is not JSON"),
        (["name=@no/such/file"], "cannot read no/such/file: No such file"),
        (["count=" + "9" * 5000], "must be integer"),
    ],
)
def test_what_is_wrong_is_one_sentence(words: list[str], said: str) -> None:
    with pytest.raises(SetupError) as refusal:
        read(*words)
    assert said in str(refusal.value)


def test_stdin_must_be_an_object_of_known_keys() -> None:
    with pytest.raises(SetupError, match="stdin must be a JSON object with the arguments, not array"):
        read("-", stdin="[]")
    with pytest.raises(SetupError, match="stdin is not JSON"):
        read("-", stdin="")
    with pytest.raises(SetupError, match='Did you mean "count"'):
        read("-", stdin='{"cuont": 1}')


def test_stdin_has_its_bound() -> None:
    with pytest.raises(SetupError, match="stdin has more than"):
        read("-", stdin=" " * (MAX_INPUT + 1))


def test_what_is_missing_is_named_with_its_type() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}}}
    schema["required"] = ["a", "b"]
    with pytest.raises(SetupError, match=r'the tool "tool" needs a \(integer\), b \(one of x, y\): write key=value'):
        read(schema=schema)


def test_an_unknown_key_is_refused_where_nothing_else_may_be_given() -> None:
    assert read("other=1") == {"other": 1}
    with pytest.raises(SetupError, match='takes no "other": it takes count'):
        read("other=1", schema={"properties": {"count": {}}, "additionalProperties": False})


LOOP = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}]}}}


SHAPES: list[Any] = [
    None,
    [],
    "x",
    {"properties": []},
    {"properties": {"a": 3}},
    {"properties": {"a": {"type": 7, "enum": 3}}},
    {"properties": {"a": {"$ref": "#/$defs/A"}}, **LOOP},
    {"properties": {"a": {"$ref": "http://evil/x"}}},
    {"properties": {"a": {"anyOf": [[], 3, None]}}},
    {"required": 3},
    {"required": [7]},
]


@pytest.mark.parametrize("schema", SHAPES, ids=repr)
def test_a_schema_of_any_shape_does_no_harm(schema: Any) -> None:
    assert read("a=1", schema=schema) == {"a": 1}


def test_kinds_are_named() -> None:
    assert kinds_of(SCHEMA["properties"]["maybe"], SCHEMA) == {"integer", "null"}
    assert kind_name(SCHEMA["properties"]["maybe"], SCHEMA) == "integer or null"
    assert kind_name(SCHEMA["properties"]["any"], SCHEMA) == "anything"


def test_a_file_has_its_bound(tmp_path: Path) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_INPUT + 1)
    with pytest.raises(SetupError, match="an argument may have"):
        read(f"name=@{tmp_path}/large")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(SetupError, match="is not UTF-8 text"):
        read(f"name=@{tmp_path}/binary")


def test_arguments_of_a_prompt_are_texts(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("x = 1")
    assert text_arguments(["n=3", f"code=@{tmp_path}/code.py"]) == {"n": "3", "code": "x = 1"}
    with pytest.raises(SetupError, match="write key=value, or key=@file"):
        text_arguments(["n"])
