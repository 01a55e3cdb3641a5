"""Every class of Ferrule by its name, and what it has, for checking the names the documents show."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from typing import Any

import ferrule
from ferrule.client.settings import ClientSettings
from ferrule.server.settings import ServerSettings

SETTINGS: dict[str, Any] = {"Server": ServerSettings, "Client": ClientSettings}


def _modules() -> list[Any]:
    names = [found.name for found in pkgutil.walk_packages(ferrule.__path__, "ferrule.")]
    return [importlib.import_module(name) for name in names if not name.endswith("__main__")]


def _classes() -> dict[str, list[type]]:
    known: dict[str, list[type]] = {}
    for module in _modules():
        for name, value in vars(module).items():
            if inspect.isclass(value) and value.__module__ == module.__name__:
                known.setdefault(name, []).append(value)
    return known


CLASSES = _classes()
"""The classes of all modules; one name may belong to two, as Task and Pool do."""


def has(owner: type, name: str) -> bool:
    """Return whether a class has an attribute, be it set on its instances only."""
    if hasattr(owner, name) or any(name in getattr(base, "__annotations__", ()) for base in owner.__mro__):
        return True
    own = [base for base in owner.__mro__ if base.__module__.startswith("ferrule")]
    return any(f"self.{name}" in inspect.getsource(base) for base in own)
