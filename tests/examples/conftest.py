"""Runs async tests, and loads examples as modules."""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from types import ModuleType

import pytest

from ferrule.testing import ERAS

sys.path.insert(0, str(Path(__file__).resolve().parent))

from example_files import EXAMPLES, Load, loaded


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    needed = pyfuncitem._fixtureinfo.argnames
    asyncio.run(asyncio.wait_for(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in needed}), 120))
    return True


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Load:
    """Load an example as `python EXAMPLE ARGUMENTS` would, without running it."""

    def load_one(name: str, *arguments: object) -> ModuleType:
        monkeypatch.setattr(sys, "argv", [str(EXAMPLES / name), *map(str, arguments)])
        return loaded(name)

    return load_one
