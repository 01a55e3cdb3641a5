"""`ferrule run A.py B.py`: several files served as one server."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ferrule import Client, Server
from ferrule.cli.combined import load_places
from ferrule.errors import SetupError
from patience import PATIENT

SHOP = """
import sys
from ferrule import Server

app = Server("shop", instructions="Sells things.")

@app.tool
def price(item: str) -> str:
    return f"{item}: 3"

@app.resource("goods://all")
def goods() -> str:
    return "trams"

@app.custom_route("/hours", methods=["GET"])
async def hours(request):
    return "9 to 5"
"""
WEATHER = """
from ferrule import Server

app = Server("weather", instructions="Knows the weather.")

@app.tool
def price(city: str) -> str:
    return f"{city}: free"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with two servers, whose modules are forgotten afterwards."""
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "weather.py").write_text(WEATHER)
    monkeypatch.chdir(tmp_path)
    known = set(sys.modules)
    path = list(sys.path)
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - known:
        del sys.modules[name]


def offered(server: Server) -> list[str]:
    return sorted(server.offers.tools.catalogue.registered)


def test_each_file_is_mounted_under_its_name_or_the_one_it_is_given(folder: Path) -> None:
    server = load_places(["shop.py", "w=weather.py"])
    assert offered(server) == ["shop_price", "w_price"]
    assert server.name == "shop+w"
    assert server.instructions == "shop: Sells things.\n\nw: Knows the weather."
    assert asyncio.run(said(server)) == "tram: 3 Bern: free trams"


async def said(server: Server) -> str:
    async with Client(server) as client:
        price = await client.call_tool("shop_price", {"item": "tram"})
        weather = await client.call_tool("w_price", {"city": "Bern"})
        goods = await client.read_resource("goods://shop/all")
    return f"{price.text} {weather.text} {goods.text}"


def test_a_file_alone_is_served_as_it_is_unless_it_is_given_a_name(folder: Path) -> None:
    assert offered(load_places(["shop.py"])) == ["price"]
    assert offered(load_places(["x=shop.py"])) == ["x_price"]


def test_files_of_one_name_in_two_folders_are_two_modules(folder: Path) -> None:
    """Each finds its own names when an annotation is read later, as that of a dataclass is."""
    for name, kind in (("one", "int"), ("two", "str")):
        (folder / name).mkdir()
        (folder / name / "server.py").write_text(
            "from __future__ import annotations\nfrom dataclasses import dataclass\nfrom typing import get_type_hints\n"
            f"from ferrule import Server\nThing = {kind}\napp = Server('s')\n"
            "@dataclass\nclass Pack:\n    thing: Thing\n"
            "@app.tool\ndef kind() -> str:\n    return get_type_hints(Pack)['thing'].__name__\n"
        )
    server = load_places(["one", "two"])

    async def scenario() -> list[str]:
        async with Client(server) as client:
            return [(await client.call_tool(name)).text for name in ("one_kind", "two_kind")]

    assert asyncio.run(scenario()) == ["int", "str"]


def broken(folder: Path) -> list[str]:
    (folder / "weather.py").write_text("1 / 0")
    return ["shop.py", "weather.py"]


def spaced(folder: Path) -> list[str]:
    (folder / "my shop.py").write_text(SHOP)
    return ["my shop.py", "weather.py"]


def twice_imported(folder: Path) -> list[str]:
    (folder / "other").mkdir()
    for place in (folder, folder / "other"):
        (place / "helpers.py").write_text("")
        (place / f"main_{place.name}.py").write_text("import helpers\nfrom ferrule import Server\napp = Server('s')")
    return [f"a=main_{folder.name}.py", "b=other/main_other.py"]


def protected(folder: Path) -> list[str]:
    (folder / "weather.py").write_text(
        "from ferrule import Server\nfrom ferrule import Principal, StaticTokens\n"
        "app = Server('s', auth=StaticTokens({'t' * 32: Principal(issuer='us', subject='ada')}))"
    )
    return ["shop.py", "weather.py"]


def with_receipts(folder: Path) -> list[str]:
    (folder / "weather.py").write_text("from ferrule import Server\napp = Server('s', receipts='kept')")
    return ["shop.py", "weather.py"]


def with_a_method(folder: Path) -> list[str]:
    (folder / "weather.py").write_text(
        "from ferrule import Server\napp = Server('s')\n@app.method('x/y')\nasync def y() -> None: ..."
    )
    return ["shop.py", "weather.py"]


def one_route(folder: Path) -> list[str]:
    (folder / "weather.py").write_text(SHOP)
    return ["shop.py", "weather.py"]


REFUSED: dict[Callable[[Path], list[str]], str] = {
    broken: r"^weather.py cannot be loaded: ZeroDivisionError: division by zero \(line 1\)",
    spaced: r"the names of my shop.py cannot begin with 'my shop': .*as in other=my shop.py",
    twice_imported: r"main_other.py has the module .*other/helpers.py beside it, and .* rename one of them",
    protected: r"weather.py is a server with auth, which belongs to whoever holds the connections: serve it alone",
    with_receipts: r"weather.py is a server with receipts.* in \[server\] of a ferrule.toml",
    with_a_method: r"weather.py answers x/y, a method of its own, which has no prefix: serve it alone",
    one_route: r"the path /hours of weather.py is taken by a file before it",
}


@pytest.mark.parametrize(("prepare", "sentence"), REFUSED.items(), ids=[each.__name__ for each in REFUSED])
def test_what_cannot_be_served_together_is_refused(
    prepare: Callable[[Path], list[str]], sentence: str, folder: Path
) -> None:
    with pytest.raises(SetupError, match=sentence):
        load_places(prepare(folder))


def test_files_that_share_one_verifier_are_served_with_it(folder: Path) -> None:
    (folder / "guard.py").write_text(
        "from ferrule import Principal, StaticTokens\n"
        "guard = StaticTokens({'t' * 32: Principal(issuer='us', subject='ada')})"
    )
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(
            "from ferrule import Server\nfrom guard import guard\napp = Server('s', auth=guard)"
        )
    server = load_places(["one.py", "two.py"])
    assert server.settings.auth is sys.modules["guard"].guard


# -- as programs

FERRULE = [sys.executable, "-m", "ferrule"]


def test_a_toml_may_name_several_files_and_its_options_hold_for_workers(folder: Path) -> None:
    project = folder / "project"
    (project / "parts").mkdir(parents=True)
    for name in ("shop.py", "weather.py"):
        (folder / name).rename(project / "parts" / name)
    (project / "ferrule.toml").write_text(
        '[run]\nfile = ["parts/shop.py", "w=parts/weather.py"]\ntransport = "http"\nworkers = 2\n'
        '[server]\ntitle = "Two in one"\n[http]\nport = 0\n'
    )
    process = subprocess.Popen([*FERRULE, "run", str(project)], stderr=subprocess.PIPE, text=True, cwd=folder)
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("shop+w serves MCP at http://127.0.0.1:"), line
        url = line.split()[4]

        async def scenario() -> tuple[str, str | None]:
            async with Client(url, **PATIENT) as client:
                done = await client.call_tool("w_price", {"city": "Bern"})
                return done.text, client.server_info.title

        assert asyncio.run(scenario()) == ("Bern: free", "Two in one")
        with urllib.request.urlopen(url.replace("/mcp", "/hours"), timeout=60) as answer:
            assert b"9 to 5" in answer.read()
    finally:
        process.terminate()
        process.communicate(timeout=60)
    assert process.returncode == 0


def test_every_file_is_followed_with_reload(folder: Path) -> None:
    words = [*FERRULE, "run", "--reload", "shop.py", "weather.py"]
    lines: list[str] = []

    async def scenario() -> None:
        async with Client(words, cwd=str(folder), stderr=lines.append, **PATIENT) as client:
            await until(client, {"shop_price", "weather_price"})
            (folder / "weather.py").write_text(WEATHER.replace("def price", "def wind"))
            await until(client, {"shop_price", "weather_wind"})
            (folder / "shop.py").write_text("1 / 0")
            async with asyncio.timeout(60):
                while not any("not reloaded" in line for line in lines):
                    await asyncio.sleep(0.05)
            assert (await client.call_tool("weather_wind", {"city": "Bern"})).text == "Bern: free"
            (folder / "shop.py").write_text(SHOP.replace("def price", "def cost"))
            await until(client, {"shop_cost", "weather_wind"})
            assert (await client.call_tool("shop_cost", {"item": "tram"})).text == "tram: 3"

    asyncio.run(scenario())
    assert "reloaded shop.py, weather.py" in lines
    assert any(line.startswith("not reloaded: shop.py cannot be loaded: ZeroDivisionError") for line in lines)


async def until(client: Client, wanted: set[str]) -> None:
    """Wait until the server offers just these tools."""
    async with asyncio.timeout(60):
        while {tool.name for tool in await client.list_tools()} != wanted:
            await asyncio.sleep(0.05)
