"""Lifespans: several in one server, typed, and those of mounted servers."""

import contextlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ferrule import Client, Context, Server, SetupError, ToolError
from ferrule.testing import pair


def lifespan_of(name, log, value=None, *, fails=False):
    @contextlib.asynccontextmanager
    async def lifespan(server):
        if fails:
            raise OSError("no such database")
        log.append(f"{name} begins")
        try:
            yield value
        finally:
            log.append(f"{name} ends")

    lifespan.__qualname__ = name
    return lifespan


@dataclass
class AppState:
    users: int


class TestSeveral:
    """A server may have more than one lifespan."""

    async def test_they_begin_in_order_end_in_reverse_and_what_they_yield_is_one_dict(self, era):
        log = []
        app = Server(
            "s", lifespan=[lifespan_of("a", log, {"x": 1}), lifespan_of("b", log), lifespan_of("c", log, {"y": 2})]
        )

        @app.tool
        async def both(ctx: Context) -> dict[str, int]:
            return ctx.lifespan

        async with pair(app, era) as client:
            assert (await client.call_tool("both")).data == {"x": 1, "y": 2}
        assert log == ["a begins", "b begins", "c begins", "c ends", "b ends", "a ends"]

    async def test_one_value_among_lifespans_that_yield_nothing_is_given_as_it_is(self, era):
        app = Server("s", lifespan=[lifespan_of("a", []), lifespan_of("b", [], AppState(7))])

        @app.tool
        async def users(ctx: Context[AppState]) -> int:
            return ctx.lifespan.users

        async with pair(app, era) as client:
            assert (await client.call_tool("users")).data == 7

    @pytest.mark.parametrize(
        ("values", "reason"),
        [(({"x": 1}, {"x": 2}), "'x', which one before it yielded"), (({"x": 1}, AppState(1)), "yielded AppState")],
    )
    async def test_values_that_cannot_be_put_together_are_refused_and_everything_ends(self, values, reason):
        log = []
        app = Server("s", lifespan=[lifespan_of("a", log, values[0]), lifespan_of("b", log, values[1])])
        with pytest.raises(SetupError, match=reason):
            await app.enter()
        assert log[-2:] == ["b ends", "a ends"]

    async def test_the_one_that_cannot_begin_is_named_and_those_before_it_end(self, caplog):
        log = []
        app = Server("shop", lifespan=[lifespan_of("queue", log), lifespan_of("database", log, fails=True)])
        with pytest.raises(OSError, match="no such database") as caught:
            await app.enter()
        assert caught.value.__notes__ == ["while the lifespan database of the server 'shop' began"]
        assert "the lifespan database of the server shop cannot begin: no such database" in caplog.text
        assert log == ["queue begins", "queue ends"]

    def test_what_is_no_lifespan_is_refused(self):
        with pytest.raises(SetupError, match="is not a function"):
            Server("s", lifespan=[{}])


class TestMounted:
    """The lifespans of mounted servers go with the one that mounts them."""

    async def test_they_begin_after_the_host_in_order_and_end_before_it(self, era):
        log = []
        host = Server("host", lifespan=lifespan_of("host", log, "of the host"))
        one = Server("one", lifespan=lifespan_of("one", log, "of one"))
        two = Server("two", lifespan=lifespan_of("two", log))

        @one.tool
        async def whose(ctx: Context) -> str:
            return ctx.lifespan

        one.mount(two, "two")
        host.mount(one, "one")
        async with pair(host, era) as client:
            assert (await client.call_tool("one_whose")).data == "of one"
        assert log == ["host begins", "one begins", "two begins", "two ends", "one ends", "host ends"]

    async def test_a_server_that_is_used_by_itself_begins_once(self):
        log = []
        host, child = Server("host"), Server("child", lifespan=lifespan_of("child", log))
        host.mount(child, "c")
        async with Client(child), Client(host):
            pass
        assert log == ["child begins", "child ends"]

    async def test_one_that_cannot_begin_ends_the_others(self):
        log = []
        host = Server("host", lifespan=lifespan_of("host", log))
        host.mount(Server("good", lifespan=lifespan_of("good", log)), "g")
        host.mount(Server("bad", lifespan=lifespan_of("bad", log, fails=True)), "b")
        with pytest.raises(OSError, match="no such database") as caught:
            await host.enter()
        assert "of the server 'bad'" in caught.value.__notes__[0]
        assert log == ["host begins", "good begins", "good ends", "host ends"]

    async def test_a_server_with_a_lifespan_is_mounted_before_the_host_runs_or_begun_by_hand(self):
        log = []
        host, child = Server("host"), Server("child", lifespan=lifespan_of("child", log))
        async with Client(host):
            with pytest.raises(SetupError, match="'child' has a lifespan and 'host' is running already"):
                host.mount(child, "c")
            await child.enter()
            host.mount(child, "c")
            await child.leave()
            host.mount(Server("simple"), "s")


async def test_a_call_without_a_client_is_told_that_nobody_began_the_lifespan():
    app = Server("s", lifespan=lifespan_of("s", []))

    @app.tool
    async def whose(ctx: Context) -> str:
        return str(ctx.lifespan)

    with pytest.raises(ToolError, match="the lifespan of the server 's' has not begun"):
        await app.call_tool("whose")
    await app.enter()
    assert not (await app.call_tool("whose")).is_error
    await app.leave()


def test_a_function_that_can_be_no_lifespan_is_refused_at_once():
    async def takes_nothing():
        yield

    async def never_yields(server): ...

    with pytest.raises(SetupError, match=r"takes_nothing must take the server: async def .*\(server\)"):
        Server("s", lifespan=takes_nothing)
    with pytest.raises(SetupError, match="never_yields never yields: write `yield`"):
        Server("s", lifespan=[never_yields])


def test_a_type_checker_knows_the_state(tmp_path):
    page = tmp_path / "page.py"
    page.write_text(
        "from dataclasses import dataclass\n"
        "from ferrule import Context, Depends, Server\n"
        "app = Server('s')\n"
        "@dataclass\nclass State:\n    users: int\n"
        "def limit() -> int:\n    return 3\n"
        "@app.tool\nasync def typed(ctx: Context[State], n: int = Depends(limit)) -> int:\n"
        "    reveal_type(ctx.lifespan.users)\n    return ctx.lifespan.users\n"
        "@app.tool\nasync def untyped(ctx: Context) -> str:\n    return str(ctx.lifespan)\n"
        "@app.tool\nasync def wrong(ctx: Context[State]) -> str:\n    return ctx.lifespan.name\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path), str(page)]
    here = Path(__file__).resolve().parents[3]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, cwd=here)
    assert 'Revealed type is "int"' in done.stdout.replace("builtins.", "")
    wrong = [line for line in done.stdout.splitlines() if "error:" in line]
    assert all(":18: " in line for line in wrong), done.stdout
    assert '"State" has no attribute "name"' in done.stdout
