"""A signature that cannot work is refused when it is decorated, in a sentence that says which, why and what to do."""

import enum
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import InitVar, dataclass, field
from typing import Annotated, Any, ClassVar, Literal, Never, Protocol

import msgspec
import pydantic
import pytest

from ferrule import Context, Server
from ferrule.errors import SetupError


class Stranger:
    def __init__(self, x: int) -> None: ...


class Shape(Protocol):
    x: int


@dataclass
class Scaled:
    x: int
    scale: InitVar[int] = 2


@dataclass
class Unresolved:
    x: "NotThere"  # noqa: F821


@dataclass
class Deep:
    items: "list[Worse]"


@dataclass
class Worse:
    z: complex


class Empty(enum.Enum):
    pass


class Shop:
    def sell(self, item: str) -> None: ...


class Later(pydantic.BaseModel):
    x: "NotThere"  # noqa: F821


NO_JSON = (
    r"handler\(\): parameter 'bad' has the type {type}, which cannot be read from JSON \({reason}.*\); use a builtin"
)


@pytest.mark.parametrize(
    ("type_", "shown", "reason"),
    [
        (complex, "complex", "complex is not a type JSON has a form for"),
        (Callable[[int], int], r"Callable\[\[int\], int\]", "Callable is not a type JSON has a form for"),
        (type[int], r"type\[int\]", "type is not a type JSON has a form for"),
        (Iterator[int], r"Iterator\[int\]", "Iterator is not a type JSON has a form for"),
        (Stranger, "Stranger", "Stranger is not a type JSON has a form for"),
        (Shape, "Shape", "Shape is not a type JSON has a form for"),
        (list[Stranger], r"list\[.*Stranger\]", "Stranger is not a type JSON has a form for"),
        (Stranger | int, r".*Stranger \| int", "Stranger is not a type JSON has a form for"),
        (Never, "Never", "no value is of the type Never"),
        (ClassVar[int], r"ClassVar\[int\]", ".*not supported"),
        (Scaled, "Scaled", "the dataclass Scaled has the InitVar 'scale', which no value keeps: make it a field"),
        (list[Scaled], r"list\[.*Scaled\]", "the dataclass Scaled has the InitVar 'scale'"),
        (Unresolved, "Unresolved", "a field of Unresolved has an annotation that cannot be resolved: .*NotThere"),
        (Deep, "Deep", "complex is not a type JSON has a form for"),
        (Empty, "Empty", "the enum Empty has no members"),
        (Literal[b"x"], r"Literal\[b'x'\]", "the choice b'x' has no JSON form: write it as text"),
        (set[list[int]], r"set\[list\[int\]\]", "the items of .* have no hash: use list"),
        (dict[tuple[int, int], int], r"dict\[.*\]", "the keys of a JSON object are text"),
        (Annotated[str, msgspec.Meta(ge=1)], r"Annotated\[str, \.\.\.\]", "Can only set `ge` on"),
        (Annotated[str, pydantic.Field(ge=1)], r"Annotated\[str, \.\.\.\]", "Can only set `ge` on a number"),
        (
            Annotated[str, pydantic.Field(pattern="(")],
            r"Annotated\[str, \.\.\.\]",
            "the pattern .* is not a valid",
        ),
        (Annotated[Stranger, pydantic.Strict()], r"Annotated\[Stranger, \.\.\.\]", "pydantic cannot read it: "),
        (Later, "Later", "pydantic cannot read it: .*not fully defined"),
    ],
    ids=str,
)
def test_a_type_that_cannot_be_read(type_: Any, shown: str, reason: str) -> None:
    async def handler(good: int, bad: Any) -> None: ...

    handler.__annotations__["bad"] = type_
    with pytest.raises(SetupError, match=NO_JSON.format(type=shown, reason=reason)):
        Server("unusable").tool(handler)


def stars(*rest: int) -> None: ...
def keywords(**rest: int) -> None: ...
def two_contexts(one: Context, two: Context) -> None: ...
def missing_name(a: "NotThere") -> None: ...  # noqa: F821
def class_field(a: int = field(default=3)) -> None: ...
def struct_field(a: int = msgspec.field(default=3)) -> None: ...
def shared(a: int = pydantic.Field(alias="b"), b: int = 1) -> None: ...
def several(a: int = pydantic.Field(validation_alias=pydantic.AliasChoices("x", "y"))) -> None: ...


@pytest.mark.parametrize(
    ("fn", "sentence"),
    [
        (stars, r"stars\(\): parameter \*rest has no schema: name each parameter, or give schema={...}"),
        (keywords, r"keywords\(\): parameter \*\*rest has no schema: name each parameter, or give schema={...}"),
        (two_contexts, r"two_contexts\(\) takes two contexts, 'one' and 'two': keep one"),
        (missing_name, r"missing_name\(\): parameter 'a': the annotation 'NotThere' cannot be resolved"),
        (class_field, r"class_field\(\): parameter 'a' has a field\(\) of a class as its default: write the default"),
        (struct_field, r"struct_field\(\): parameter 'a' has a field\(\) of a class as its default"),
        (shared, r"shared\(\): parameters 'a' and 'b' are both sent as 'b': change one alias"),
        (several, r"several\(\): parameter 'a' has several aliases: an argument has one name"),
        (Shop.sell, r"sell\(\) is a method without its object: register the bound method, as in object\.sell"),
        (functools.partial(stars, 1), r"stars\(\): parameter \*rest has no schema"),
    ],
    ids=lambda value: getattr(value, "__name__", "") or str(value)[:20],
)
def test_a_signature_that_cannot_be_called(fn: Any, sentence: str) -> None:
    with pytest.raises(SetupError, match=sentence):
        Server("unusable").tool(fn)


def test_a_refused_function_is_not_offered() -> None:
    app = Server("unusable")
    with pytest.raises(SetupError, match=re.escape("stars()")):
        app.tool(stars)
    assert len(app.offers.tools.catalogue) == 0
