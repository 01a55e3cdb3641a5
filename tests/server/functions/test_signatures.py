"""Signatures: what a handler is called, what it takes, and what its docstring says."""

from __future__ import annotations

import functools
import gc
import inspect
import types
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import msgspec
import pytest

from ferrule.errors import SetupError
from ferrule.server.functions.signatures import NOTHING, Signature, read_signature

if TYPE_CHECKING:
    from somewhere_else import NotThere  # type: ignore[import-not-found]

T = TypeVar("T")


class Context:
    """What a handler may use."""


class OwnContext(Context):
    """A user's own."""


class Session(Generic[T]):
    """A context with a parameter."""


def read(fn: Callable[..., Any], **options: Any) -> Signature:
    return read_signature(fn, **{"context_type": Context} | options)


def names(signature: Signature) -> list[str]:
    return [parameter.name for parameter in signature.parameters]


def test_the_parameters_come_in_order_with_their_defaults() -> None:
    def search(query: str, limit: int = 10, *, deep: bool = False) -> None: ...

    signature = read(search)
    assert signature.name == "search"
    assert names(signature) == ["query", "limit", "deep"]
    assert [parameter.required for parameter in signature.parameters] == [True, False, False]
    assert signature.parameters[1].annotation is int
    assert signature.parameters[1].default == 10
    assert signature.positional == ("query", "limit")


def test_a_parameter_without_annotation_takes_anything() -> None:
    assert read(lambda x: x).parameters[0].annotation is Any


def test_a_parameter_with_the_default_none_also_takes_null() -> None:
    def greet(name: str = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert read(greet).parameters[0].annotation == str | None


def test_the_context_is_found_however_it_is_annotated() -> None:
    def plain(a: int, ctx: Context) -> None: ...
    def optional(ctx: Context | None = None) -> None: ...
    def text(ctx: "Context") -> None: ...  # noqa: UP037
    def annotated(*, ctx: Annotated[Context, "the context"]) -> None: ...
    def imported_for_checking_only(ctx: Ctx) -> None: ...  # type: ignore[name-defined]  # noqa: F821

    for fn in (plain, optional, text, annotated):
        signature = read(fn)
        assert signature.context_parameter == "ctx"
        assert "ctx" not in names(signature)
    known_by_name_only = type("Ctx", (), {})
    assert read(imported_for_checking_only, context_type=known_by_name_only).context_parameter == "ctx"


def test_a_generic_context_and_a_subclass_are_contexts_too() -> None:
    def generic(ctx: Session[int]) -> None: ...
    def own(ctx: OwnContext) -> None: ...

    assert read(generic, context_type=Session).context_parameter == "ctx"
    assert read(own).context_parameter == "ctx"


def test_a_class_of_the_users_that_is_merely_called_context_is_no_context() -> None:
    other = type("Context", (), {})

    def handler(ctx: Context) -> None: ...

    assert read(handler, context_type=other).context_parameter is None


def test_two_contexts_are_refused() -> None:
    def handler(one: Context, two: Context) -> None: ...

    with pytest.raises(SetupError, match="two contexts, 'one' and 'two'"):
        read(handler)


def test_names_of_an_enclosing_function_resolve() -> None:
    class Local(msgspec.Struct):
        x: int

    def handler(a: Local) -> Local:
        return Local(a.x)

    signature = read(handler)
    assert signature.parameters[0].annotation is Local
    assert signature.returns is Local


def test_a_name_that_is_missing_at_run_time_is_named_with_its_function_and_parameter() -> None:
    def handler(thing: NotThere) -> None: ...

    with pytest.raises(SetupError, match=r"handler\(\): parameter 'thing'.*NotThere.*TYPE_CHECKING"):
        read(handler)


def test_stars_are_refused_unless_a_schema_is_given() -> None:
    def one(*args: int) -> None: ...
    def two(**kwargs: int) -> None: ...

    with pytest.raises(SetupError, match=r"one\(\): parameter \*args"):
        read(one)
    with pytest.raises(SetupError, match=r"two\(\): parameter \*\*kwargs"):
        read(two)
    assert read(two, open_ended=True).takes_rest
    assert names(read(two, open_ended=True)) == []


def test_methods_partials_and_callable_objects_are_read_like_functions() -> None:
    class Desk:
        """A desk."""

        async def book(self, city: str) -> str:
            """Book a seat."""
            return city

        @classmethod
        def open(cls, hour: int) -> None:
            """Open."""

        @staticmethod
        def close(hour: int) -> None:
            """Close."""

        def __call__(self, day: str) -> None: ...

    assert (names(read(Desk().book)), read(Desk().book).is_async) == (["city"], True)
    assert names(read(Desk.open)) == names(read(Desk.close)) == ["hour"]
    called = read(Desk())
    assert (called.name, names(called), called.description) == ("Desk", ["day"], "A desk.")
    partial = read(functools.partial(Desk().book, city="Bonn"))
    assert (partial.name, names(partial), partial.description, partial.is_async) == ("book", [], "Book a seat.", True)


def test_a_wrapped_function_shows_what_it_wraps() -> None:
    def inner(a: int, ctx: Context) -> str:
        """Inner."""
        return str(a)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        return inner(*args, **kwargs)

    signature = read(outer)
    assert (signature.name, names(signature), signature.context_parameter) == ("inner", ["a"], "ctx")


def test_generators_are_told_apart() -> None:
    def plain() -> Iterator[int]:
        yield 1

    async def asynchronous() -> AsyncIterator[int]:
        yield 1

    assert (read(plain).is_generator, read(plain).is_async) == (True, False)
    assert (read(asynchronous).is_async_generator, read(asynchronous).is_async) == (True, False)


class Shop:
    """Not a handler, but it has some."""

    def sell(self, item: str) -> None: ...

    @classmethod
    def buy(cls, item: str) -> None: ...


def test_a_method_without_its_object_is_refused_with_the_fix() -> None:
    with pytest.raises(SetupError, match=r"sell\(\) is a method without its object.*object\.sell"):
        read(Shop.sell)
    with pytest.raises(SetupError, match="unbound classmethod"):
        read(Shop.__dict__["buy"])


def test_a_hidden_parameter_is_neither_offered_nor_resolved() -> None:
    def handler(a: int, secret: NotThere, extra: str = "x") -> None: ...

    signature = read(handler, hidden=frozenset({"secret", "extra"}))
    assert names(signature) == ["a"]
    assert signature.hidden == {"secret": NOTHING, "extra": "x"}
    with pytest.raises(SetupError, match="no parameter b to hide"):
        read(handler, hidden=frozenset({"b"}))


def test_a_description_comes_from_the_annotation_before_the_docstring() -> None:
    def handler(
        a: Annotated[int, "a text"],
        b: Annotated[int, msgspec.Meta(ge=1, description="a meta")],
        c: Annotated[int, "optional"] | None,
        d: int,
    ) -> None:
        """Do it.

        Args:
            a: not this
            d: from here
        """

    texts = [parameter.description for parameter in read(handler).parameters]
    assert texts == ["a text", "a meta", "optional", "from here"]


def test_what_a_pydantic_field_says_of_a_parameter_is_read() -> None:
    pydantic = pytest.importorskip("pydantic")
    default, named, made = pydantic.Field(5, ge=1), pydantic.Field(alias="theB"), pydantic.Field(default_factory=list)
    text = pydantic.Field(description="a text")

    def handler(a: int = default, b: int = named, c: list[int] = made, d: Annotated[int, text] = 7) -> None: ...

    handler.__annotations__["d"] = Annotated[int, text]
    a, b, c, d = read(handler).parameters
    assert (a.key, a.default, a.required) == ("a", 5, False)
    assert (b.key, b.name, b.required) == ("theB", "b", True)
    assert (c.required, c.made_default(), c.made_default() is c.made_default()) == (False, [], False)
    assert (d.default, d.description) == (7, "a text")


def test_a_default_inside_annotated_counts_unless_there_is_a_plain_one() -> None:
    pydantic = pytest.importorskip("pydantic")
    field = pydantic.Field(default=3)

    def handler(a: Any, b: Any = 4) -> None: ...

    handler.__annotations__.update(a=Annotated[int, field], b=Annotated[int, field])
    assert [parameter.default for parameter in read(handler).parameters] == [3, 4]


@pytest.mark.parametrize("written", ["Context", "Context | None"])
def test_a_name_of_the_module_goes_before_one_that_is_known(written: str) -> None:
    def handler(a: Any) -> None: ...

    own = types.FunctionType(handler.__code__, {"Context": int})
    own.__annotations__ = {"a": written}
    assert names(read(own)) == ["a"]
    foreign = types.FunctionType(handler.__code__, {})
    foreign.__annotations__ = {"a": written}
    assert read(foreign).context_parameter == "a"


def test_a_module_may_mean_something_else_by_a_name_of_pythons() -> None:
    """What a text means is kept, and yet is found anew where a name in it is another's."""

    def handler(a: Any) -> None: ...

    for own_names, meant in (({}, list[int] | None), ({"int": str}, list[str] | None), ({}, list[int] | None)):
        fn = types.FunctionType(handler.__code__, own_names)
        fn.__annotations__ = {"a": "list[int] | None"}
        assert read(fn).parameters[0].annotation == meant


def made(limit: Any = 10, deep: Any = False, written: dict[str, Any] | None = None) -> Any:
    """Make a function as a program makes many of them, all of one piece of code."""

    def search(query, limit=limit, *, deep=deep): ...  # type: ignore[no-untyped-def]

    search.__annotations__ = {"query": str, "limit": "int", "return": "str", **(written or {})}
    return search


def is_shared(one: Any, other: Any) -> bool:
    """Whether what was read of one function is used for another that is read right after it."""
    return read(one).parameters is read(other).parameters


def test_functions_that_are_alike_are_read_once_and_keep_what_is_their_own() -> None:
    first, second = made(), made()
    second.__name__ = "find"
    second.__doc__ = "Find something."
    one, other = read(first), read(second)
    assert one.parameters is other.parameters
    assert (one.name, one.description, one.fn) == ("search", None, first)
    assert (other.name, other.description, other.fn) == ("find", "Find something.", second)


@pytest.mark.parametrize("annotation", [str, "str", "list[str] | None", list[str] | None, "dict[str, Any]", Context])
def test_functions_are_alike_whose_annotations_mean_the_same(annotation: Any) -> None:
    assert is_shared(made(written={"query": annotation}), made(written={"query": annotation}))


def test_words_of_a_literal_are_no_names() -> None:
    one, other = made(written={"query": "Literal['a', 'b']"}), made(written={"query": "Literal['a', 'b']"})
    assert is_shared(one, other)
    assert read(other).parameters[0].annotation == Literal["a", "b"]


def test_types_that_are_made_anew_for_each_function_are_alike() -> None:
    assert is_shared(made(written={"query": list[str] | None}), made(written={"query": list[str] | None}))


@pytest.mark.parametrize(
    ("other", "what", "expected"),
    [
        (made(20), "default", [NOTHING, 20, False]),
        (made(True), "default", [NOTHING, True, False]),
        (made(deep=None), "default", [NOTHING, 10, None]),
        (made(written={"limit": str}), "annotation", [str, str, Any]),
        (made(written={"limit": "float"}), "annotation", [str, float, Any]),
        (made(written={"query": "str | int"}), "annotation", [str | int, int, Any]),
        (made(written={"deep": bool}), "annotation", [str, int, bool]),
    ],
)
def test_functions_of_one_code_that_differ_are_read_each(other: Any, what: str, expected: list[Any]) -> None:
    read(made())
    assert [getattr(parameter, what) for parameter in read(other).parameters] == expected


def test_the_order_of_a_union_is_that_of_each_function() -> None:
    read(made(written={"query": int | str}))
    assert str(read(made(written={"query": str | int})).parameters[0].annotation) == "str | int"


def test_the_texts_of_parameters_are_those_of_each_docstring() -> None:
    first, second = made(), made()
    first.__doc__ = "Search.\n\nArgs:\n    query: What to find."
    second.__doc__ = "Search.\n\nArgs:\n    query: Where to look."
    assert read(first).parameters[0].description == "What to find."
    assert read(second).parameters[0].description == "Where to look."


def test_what_a_function_is_read_for_counts() -> None:
    fn = made(written={"query": Context})
    assert names(read(fn)) == ["limit", "deep"]
    assert names(read(fn, context_type=None)) == ["query", "limit", "deep"]
    assert names(read(fn, hidden=frozenset({"limit"}))) == ["deep"]


def test_a_function_that_says_what_it_takes_is_read_by_that() -> None:
    read(made())
    described = made()
    described.__signature__ = inspect.Signature([inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY)])
    wrapper = functools.wraps(lambda b: None)(made())
    assert names(read(described)) == ["a"]
    assert names(read(wrapper)) == ["b"]


def test_a_method_is_refused_also_after_a_function_of_its_code() -> None:
    def show(self, name): ...  # type: ignore[no-untyped-def]

    read(show)
    show.__qualname__ = "Shop.show"
    with pytest.raises(SetupError, match="is a method without its object"):
        read(show)


def test_default_values_that_can_change_are_read_each_time() -> None:
    words = ["a"]
    assert not is_shared(made(words), made(words))


def test_a_name_that_means_a_class_of_the_users_is_looked_up_each_time() -> None:
    def handler(a: Any) -> None: ...

    for meant in (Session, OwnContext, Session):
        fn = types.FunctionType(handler.__code__, {"Thing": meant})
        fn.__annotations__ = {"a": "list[Thing]"}
        assert read(fn).parameters[0].annotation == list[meant]  # type: ignore[valid-type]


@pytest.mark.parametrize("written", ["{}", "list[{}]", "'Thing'"])
def test_nothing_of_the_users_lives_on_by_what_is_kept(written: str) -> None:
    """A program may load its tools anew, again and again."""
    source = f"class Thing: ...\ndef handler(a: {written.format('Thing')}, b: int = 1) -> Thing: ..."
    names: dict[str, Any] = {}
    exec(source, names)
    gone = weakref.ref(names["Thing"])
    read(names["handler"])
    del names["handler"], names["Thing"]
    gc.collect()
    assert gone() is None


def test_what_is_kept_goes_with_the_code() -> None:
    names: dict[str, Any] = {}
    exec("def handler(a: int) -> str: ...", names)
    assert read(names["handler"]).parameters is read(names["handler"]).parameters
    gone = weakref.ref(names["handler"].__code__)
    del names["handler"]
    gc.collect()
    assert gone() is None


def test_a_function_whose_code_has_constants_without_a_hash_is_read_too():
    def add(a: int) -> int:
        return a

    add.__code__ = add.__code__.replace(co_consts=(None, [1]))
    assert [parameter.name for parameter in read(add).parameters] == ["a"]
