"""Methods of one's own take what tools take: params, a context, and what providers give."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any

import pytest

from ferrule import Context, Depends, Extension, PeerError, Server, SetupError
from ferrule.schema.model import Params
from ferrule.testing import pair

LOG: list[str] = []


class City(Params, kw_only=True):
    name: str


async def database(ctx: Context) -> AsyncIterator[str]:
    LOG.append(f"open for {ctx.server.name}")
    try:
        yield "db"
    finally:
        LOG.append("close")


def currency() -> str:
    return f"EUR in {threading.current_thread().name.rpartition('-')[0]}"


Currency = Annotated[str, Depends(currency)]
Database = Annotated[str, Depends(database)]


@pytest.fixture(params=["app", "extension"])
def offering(request: pytest.FixtureRequest) -> tuple[Server, Callable[..., Any]]:
    """A server, and what answers a method of it: by itself, or as an extension."""
    app = Server("shop")
    if request.param == "app":
        return app, app.method
    extension = app.extend(Extension("com.example/shop"))
    return app, extension.method


@pytest.fixture(autouse=True)
def empty_log() -> None:
    LOG.clear()


async def test_providers_fill_parameters_and_tidy_up(offering: Any, era: Any) -> None:
    app, method = offering

    @method("shop/price", params=City)
    async def price(params: City, unit: Currency, ctx: Context, db: str = Depends(database)) -> dict[str, Any]:
        LOG.append("run")
        return {"said": [params.name, unit, db, ctx.server.name]}

    async with pair(app, era) as client:
        answer = await client.request("shop/price", {"name": "Rome"})
    assert answer["said"] == ["Rome", "EUR in ferrule-worker", "db", "shop"]
    assert LOG == ["open for shop", "run", "close"]


async def test_a_plain_function_runs_in_a_thread_with_its_providers(offering: Any, era: Any) -> None:
    app, method = offering

    @method("shop/price")
    def price(params: Any, *, unit: Currency, db: Database) -> dict[str, Any]:
        return {"said": [unit, db, threading.current_thread().name.rpartition("-")[0]]}

    async with pair(app, era) as client:
        answer = await client.request("shop/price")
    assert answer["said"] == ["EUR in ferrule-worker", "db", "ferrule-worker"]
    assert LOG == ["open for shop", "close"]


async def test_a_provider_sees_that_the_method_failed_and_cannot_hide_it(offering: Any, era: Any) -> None:
    app, method = offering

    async def hiding() -> AsyncIterator[None]:
        try:
            yield
        except ValueError:
            LOG.append("seen")

    @method("shop/fail")
    async def fail(params: Any, _db: None = Depends(hiding)) -> None:
        raise ValueError("secret")

    async with pair(app, era) as client:
        with pytest.raises(PeerError, match="Internal error"):
            await client.request("shop/fail")
    assert LOG == ["seen"]


async def test_any_order_and_any_default_will_do(offering: Any, era: Any) -> None:
    app, method = offering

    @method("shop/context-first")
    async def first(ctx: Context, params: Any, more: int = 3) -> dict[str, Any]:
        return {"said": [ctx.server.name, more]}

    @method("shop/nothing")
    async def nothing() -> dict[str, Any]:
        return {"said": []}

    @method("shop/unannotated", params=City)
    async def unannotated(params, ctx):  # type: ignore[no-untyped-def]  # as any function of two arguments
        return {"said": [params.name, ctx.server.name]}

    async with pair(app, era) as client:
        assert (await client.request("shop/context-first"))["said"] == ["shop", 3]
        assert (await client.request("shop/nothing"))["said"] == []
        assert (await client.request("shop/unannotated", {"name": "Oslo"}))["said"] == ["Oslo", "shop"]


async def test_mrtr_1_a_method_may_ask_where_the_protocol_lets_it(offering: Any, era: Any) -> None:
    """MRTR-1: in the stateless era a question stands in the result, and only three methods may have such a result."""
    app, method = offering

    async def name(ctx: Context) -> str:
        return str(await ctx.ask("Name?", str))

    @method("shop/greet")
    async def greet(params: Any, ctx: Context, whose: str = Depends(name)) -> dict[str, Any]:
        model = await ctx.sample("Greet them", max_tokens=10)
        roots = await ctx.list_roots()
        return {"said": [whose, model.text, str(roots[0].uri)]}

    answers: Any = {
        "elicitation": lambda params: {"value": "ada"},
        "sampling": lambda params: "Hello",
        "roots": ["file://far.example/x"],
    }
    async with pair(app, era, **answers) as client:
        if era == "handshake":
            assert (await client.request("shop/greet"))["said"] == ["ada", "Hello", "file://far.example/x"]
        else:
            with pytest.raises(PeerError, match="cannot ask the client for input: in this revision tools") as caught:
                await client.request("shop/greet")
            assert caught.value.code == -32600


def test_what_nothing_fills_is_refused_when_it_is_written(offering: Any) -> None:
    _, method = offering
    with pytest.raises(SetupError, match=r"three\(\): nothing fills the parameter 'c'"):

        @method("shop/three")
        async def three(a: Any, ctx: Context, c: int) -> None: ...

    with pytest.raises(SetupError, match="only tools may be"):

        @method("shop/stream")
        async def stream(params: Any) -> Any:
            yield 1

    with pytest.raises(SetupError, match="name its parameters"):
        method("shop/args")(lambda *args: None)


async def test_a_second_parameter_called_so_is_the_context_also_where_it_has_a_default(offering: Any, era: Any) -> None:
    """Written so that the function can be called without a server too."""
    app, method = offering

    @method("shop/short")
    async def short(params: Any, ctx: Any = None) -> dict[str, Any]:
        return {"said": ctx.server.name}

    @method("shop/long")
    def long(params, context=None):  # type: ignore[no-untyped-def]
        return {"said": context.server.name}

    async with pair(app, era) as client:
        for name in ("shop/short", "shop/long"):
            assert (await client.request(name))["said"] == "shop"
