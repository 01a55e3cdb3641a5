"""The pytest plugin: a client of your server in any test, without an event loop in sight.

| fixture | is |
|---|---|
| `mcp_server` | the server that `ferrule.toml` names, or the option `mcp_server` of pytest; override it for another |
| `mcp_client` | a `SyncClient` of it; `@pytest.mark.mcp_client(elicitation=…)` gives it options |
| `mcp_era` | the protocol generation: `@pytest.mark.mcp_eras` runs a test in both |
| `mcp_snapshot` | compares what a client is offered with a file; `--mcp-update` writes the file |
| `mcp_clock` | runs a coroutine in virtual time: an hour takes no time |

Rule: pytest loads this at every start, also for projects without a server, so it imports nothing of ours before a
fixture is used.
"""

from __future__ import annotations

import difflib
import importlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ferrule.client.sync import SyncClient
    from ferrule.server.server import Server

ERAS = ("handshake", "stateless")
SNAPSHOTS = "snapshots"
"""The folder beside a test in which its snapshots are."""
OPTION = "mcp_server"
UNSAFE = re.compile(r"[^A-Za-z0-9_.-]+")

_loaded: dict[tuple[str, ...], Any] = {}
"""The servers that were loaded, by their place: a file is imported once."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the plugin."""
    parser.addini(OPTION, "the server that the fixture mcp_server loads, as server.py or server.py:app", default="")
    group = parser.getgroup("ferrule", "MCP servers")
    group.addoption("--mcp-update", action="store_true", help="write the snapshots that mcp_snapshot compares with")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marks of the plugin."""
    config.addinivalue_line("markers", "mcp_eras: run the test in both protocol generations")
    config.addinivalue_line("markers", "mcp_client(**options): options of the client that mcp_client makes")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the mark `mcp_eras` in both generations."""
    if metafunc.definition.get_closest_marker("mcp_eras") is None:
        return
    if "mcp_era" not in metafunc.fixturenames:
        pytest.fail(f"{metafunc.definition.nodeid}: mcp_eras needs a fixture that has an era: mcp_client or mcp_era")
    metafunc.parametrize("mcp_era", ERAS, indirect=True)


@pytest.fixture
def mcp_era(request: pytest.FixtureRequest) -> str:
    """The protocol generation of the client: `auto`, or each of both in a test with the mark `mcp_eras`."""
    return str(getattr(request, "param", "auto"))


@pytest.fixture
def mcp_server(request: pytest.FixtureRequest) -> Server:
    """The server under test: what the option `mcp_server` of pytest names, else the `ferrule.toml` of the project."""
    places = _places(request.config)
    if places not in _loaded:
        # By name: nothing in this package knows the command line, which finds servers in files.
        load: Callable[[Sequence[str]], Server] = importlib.import_module("ferrule.cli.combined").load_places
        _loaded[places] = load(places)
    server: Server = _loaded[places]
    return server


def _places(config: pytest.Config) -> tuple[str, ...]:
    """Return where the server of a project is; raise UsageError where nobody has said it."""
    named = str(config.getini(OPTION))
    if named:
        return (str(config.rootpath / named),)
    for folder in (config.invocation_params.dir, config.rootpath):
        path = folder / "ferrule.toml"
        if path.is_file():
            sources = importlib.import_module("ferrule.settings.sources")
            file = sources.read_file(str(path)).tables.get("run", {}).get("file")
            files = [file] if isinstance(file, str) else file or []
            if files:
                return tuple(str(folder / each) for each in files)
    raise pytest.UsageError(
        'mcp_server: there is no server to test: write file = "server.py" below [run] in a ferrule.toml, '
        "set mcp_server = server.py in the configuration of pytest, or write a fixture mcp_server that returns it"
    )


@pytest.fixture
def mcp_client(request: pytest.FixtureRequest, mcp_server: Server, mcp_era: str) -> Iterator[SyncClient]:
    """A client of the server, connected in memory; its methods block, so a test is a plain function."""
    options: dict[str, Any] = {"mode": mcp_era}
    for mark in reversed(list(request.node.iter_markers("mcp_client"))):
        options.update(mark.kwargs)
    sync: type[SyncClient] = importlib.import_module("ferrule.client.sync").SyncClient
    with sync(mcp_server, **options) as client:
        yield client


@pytest.fixture
def mcp_clock() -> Callable[..., Any]:
    """Runs a coroutine in virtual time: `mcp_clock(scenario())`; an hour of waiting takes no time."""
    run: Callable[..., Any] = importlib.import_module("ferrule.testing.clock").run_in_virtual_time
    return run


# -- snapshots


class Snapshot:
    """Compares what a client is offered with what it was offered when the file was written."""

    def __init__(self, path: Path, *, update: bool) -> None:
        self.path = path
        self._update = update

    def __call__(self, client: SyncClient) -> None:
        """Fail, with the difference, where what is offered has changed."""
        found = _written(client)
        if self._update:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self.path.write_text(found, encoding="utf-8")
            return
        if not self.path.is_file():
            pytest.fail(f"there is no snapshot {self.path}: write it with `pytest --mcp-update`", pytrace=False)
        kept = self.path.read_text(encoding="utf-8")
        if kept != found:
            lines = difflib.unified_diff(
                kept.splitlines(), found.splitlines(), str(self.path), "what is offered now", lineterm=""
            )
            told = "\n".join(lines)
            pytest.fail(
                f"what the server offers has changed; if that is right, `pytest --mcp-update`:\n{told}", pytrace=False
            )


def _written(client: Any) -> str:
    """Return all that a server offers, as text whose differences can be read."""
    declared = client.server_capabilities
    lists: dict[str, list[Any]] = {}
    if declared.tools is not None:
        lists["tools"] = client.list_tools()
    if declared.resources is not None:
        lists["resources"] = client.list_resources()
        lists["resourceTemplates"] = client.list_resource_templates()
    if declared.prompts is not None:
        lists["prompts"] = client.list_prompts()
    plain: dict[str, list[Any]] = {}
    for kind, items in lists.items():
        plain[kind] = sorted((item.to_dict() for item in items), key=lambda item: json.dumps(item, sort_keys=True))
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@pytest.fixture
def mcp_snapshot(request: pytest.FixtureRequest) -> Snapshot:
    """Compares what a client is offered with a file beside the test: `mcp_snapshot(mcp_client)`."""
    name = UNSAFE.sub("-", request.node.name).strip("-")
    folder = Path(request.node.path).parent / SNAPSHOTS
    return Snapshot(folder / f"{name}.json", update=bool(request.config.getoption("--mcp-update")))
