"""Commands run in this process, against a server in memory."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "auth" / "client"))

from tram_shop import Done, new_app

from ferrule import Server
from ferrule.cli.main import main
from ferrule.settings.sources import use


@pytest.fixture
def app() -> Server:
    """A server with one of each."""
    return new_app()


@pytest.fixture(autouse=True)
def _no_configuration() -> Iterator[None]:
    """Let no test see the ferrule.toml of another."""
    use(None)
    yield
    use(None)


@pytest.fixture
def command(
    app: Server, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Done]:
    """Run a command whose target is the server in memory."""

    def run(*words: str, stdin: str = "") -> Done:
        monkeypatch.setattr("ferrule.cli.connection.target_of", lambda options, passed_on: app)
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        code = 0
        try:
            main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsysbinary.readouterr()
        return Done(code, said.out.decode("utf-8", "surrogateescape"), said.err.decode())

    return run
