"""Where bugs are planted, and which tests judge them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
SOURCE = PROJECT / "src" / "ferrule"

STARTS_SERVERS = {"asgi/test_servers.py", "old_sse/test_listener.py"}
"""Test files that run foreign servers as processes: too slow to judge with."""


@dataclass(frozen=True)
class Area:
    """Some source files and the tests that must notice a bug in them."""

    name: str
    files: tuple[str, ...]
    """Files or folders below `src/ferrule`."""
    tests: tuple[str, ...]
    """Files or folders below the project; `folder/*` is without its folders."""
    asked_for: bool = False
    """Whether it is judged only where `ONLY` names it: what is still being built."""

    def sources(self) -> list[Path]:
        """Return the source files."""
        return [path for path in below(SOURCE, self.files) if path.name != "__init__.py"]

    def judges(self) -> list[Path]:
        """Return the test files."""
        found = below(PROJECT, self.tests)
        return [
            path for path in found if path.name.startswith("test_") and not str(path).endswith(tuple(STARTS_SERVERS))
        ]


LIMITS = "tests/docs/test_limits.py"
"""Compares the page of limits with the code: it judges the defaults."""

OBSERVED = "tests/telemetry/test_every_request.py"
"""What observers are told of every request, over real connections."""

TRACED = "tests/telemetry/test_tracer.py"
"""The spans that links make of requests."""

SHARED = frozenset({OBSERVED})
"""Test files in which one test runs what all of them look at, in a fixture of the module: they judge together."""

AREAS = (
    Area("wire", ("wire",), ("tests/wire", "tests/fuzz/test_decoder.py", LIMITS)),
    Area("protocol", ("protocol",), ("tests/protocol", LIMITS)),
    Area("balancing", ("balancing",), ("tests/balancing",), asked_for=True),
    Area("routing", ("routing",), ("tests/routing",), asked_for=True),
    Area("runtime", ("runtime/*",), ("tests/runtime/*", "tests/telemetry/test_clients.py", OBSERVED, TRACED, LIMITS)),
    Area(
        "tasks",
        ("runtime/tasks",),
        ("tests/runtime/tasks", "tests/server/tasks", "tests/client/features/test_question_tasks.py", LIMITS),
    ),
    Area(
        "engine",
        ("transports/http/engine",),
        ("tests/transports/http/engine", "tests/transports/sockets/test_observed.py", OBSERVED, LIMITS),
    ),
    Area(
        "sessions",
        ("transports/http/endpoint/session.py", "transports/http/endpoint/sessions.py"),
        ("tests/transports/http/*", "tests/transports/http/endpoint", "tests/identity", LIMITS),
    ),
    Area(
        "retry",
        ("transports/http/client/status.py",),
        ("tests/transports/http/client", LIMITS),
    ),
    Area(
        "reconnect",
        (
            "client/link/keeper.py",
            "client/link/reconnect.py",
            "client/features/tool_facts.py",
            "supervision/backoff.py",
        ),
        ("tests/client", "tests/supervision", "tests/transports/http/client/test_sessions.py", LIMITS),
    ),
)


def below(root: Path, places: tuple[str, ...]) -> list[Path]:
    """Return the Python files of some folders and files, each once."""
    found = {path for place in places for path in python_files(root / place)}
    return sorted(found)


def python_files(path: Path) -> Iterator[Path]:
    """Return a file, or the Python files of a folder."""
    if path.name == "*":
        yield from path.parent.glob("*.py")
    elif path.is_dir():
        yield from path.rglob("*.py")
    elif path.is_file():
        yield path


def mirrored(source: Path) -> str:
    """Return the test file a source file has by its name, below the project."""
    inside = source.relative_to(SOURCE)
    return (Path("tests") / inside.parent / f"test_{inside.name}").as_posix()
