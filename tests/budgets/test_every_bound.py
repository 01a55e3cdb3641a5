"""Whatever bounds what comes from outside is on docs/guides/limits.md, or stands in `unlisted.py` with its reason.

A number counts as a bound by its name: a constant of a module or of a class that has one of `WORDS`, a number of a
class of settings, and a number a constructor takes under one of the names of `PARAMETERS`.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from unlisted import UNLISTED  # noqa: E402

import ferrule  # noqa: E402

PAGE = HERE.parents[1] / "docs" / "guides" / "limits.md"
WRITTEN = set(re.findall(r"`([^`\n]+…\)|ferrule\.[\w.]+)`", PAGE.read_text(encoding="utf-8")))
WORDS = re.compile(
    r"(?:^|_)(MAX|MOST|LONGEST|LARGEST|HEAVIEST|DEEPEST|LIMIT|BUDGET|DEPTH|SIZE|BYTES|BURST|BACKLOG|QUEUE|WATER"
    r"|TIME|TIMEOUT|PATIENCE|DEADLINE|GRACE|LINGER|LIFE|LIFETIME|TTL)(?:_|$)"
)
SETTINGS = re.compile(r"(Settings|Options|Bounds)$")
PARAMETERS = re.compile(r"max_\w+|most\w*|limit|size|queue")
ALIASES = {"ServerSettings": "Server", "ClientSettings": "Client", "ReceiptSettings": "Receipts"}
"""Settings that are given as keywords of another class."""
NOT_OF_PEERS = ("ferrule.testing", "ferrule.auth.devserver")
"""They serve whoever tests and develops."""


def is_number(value: object) -> bool:
    """Whether it is one; True and False are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def modules() -> Iterator[Any]:
    """Yield every module that has to do with peers."""
    for found in pkgutil.walk_packages(ferrule.__path__, "ferrule."):
        if not found.name.startswith(NOT_OF_PEERS) and not found.name.endswith("__main__"):
            yield importlib.import_module(found.name)


def assigned(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names a module or a class gives values to."""
    for statement in body:
        targets: list[ast.expr] = []
        if isinstance(statement, ast.Assign):
            targets = statement.targets
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets = [statement.target]
        for target in targets:
            for each in target.elts if isinstance(target, ast.Tuple) else [target]:
                if isinstance(each, ast.Name):
                    yield each.id


def owners(found: type) -> set[str]:
    """Return the names under which the page may have an option of a class."""
    names = {found.__name__, ALIASES.get(found.__name__, found.__name__)}
    for each in found.__subclasses__():
        names |= owners(each)
    return names


def of_module(module: Any) -> Iterator[tuple[str, set[str]]]:
    """Yield the bounds of a module: where each stands, and all the ways the page may write that."""
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    for name in assigned(tree.body):
        if WORDS.search(name) and is_number(getattr(module, name)):
            yield f"{module.__name__}.{name}", {f"{module.__name__}.{name}"}
    for statement in tree.body:
        if not isinstance(statement, ast.ClassDef):
            continue
        found = getattr(module, statement.name)
        if not inspect.isclass(found):
            continue
        for name in assigned(statement.body):
            where = f"{module.__name__}.{found.__name__}.{name}"
            if WORDS.search(name) and is_number(getattr(found, name, None)):
                yield where, {where}
        yield from of_options(module, found)


def of_options(module: Any, found: type) -> Iterator[tuple[str, set[str]]]:
    """Yield the bounds that can be set when an object is made; a default that is a constant is looked at as that."""
    is_settings = SETTINGS.search(found.__name__)
    constants = [value for name, value in vars(module).items() if WORDS.search(name) and is_number(value)]
    for name, default in defaults(found).items():
        if not is_number(default) or not (is_settings or PARAMETERS.fullmatch(name)):
            continue
        if is_settings or default not in constants:
            ways = {f"{owner}({name}=…)" for owner in owners(declaring(found, name))}
            yield f"{module.__name__}.{found.__name__}({name}=…)", ways


def declaring(found: type, name: str) -> type:
    """Return the class that has an option first: what a class built on it has on the page counts for it too."""
    first = found
    for each in found.__mro__:
        if name in vars(each).get("__annotations__", ()):
            first = each
    return first


def defaults(found: type) -> dict[str, Any]:
    """Return what a class takes when an object is made, and what it takes by default."""
    if issubclass(found, msgspec.Struct):
        names = found.__struct_fields__
        given = found.__struct_defaults__
        return dict(zip(names[len(names) - len(given) :], given, strict=True))
    try:
        parameters = inspect.signature(found).parameters
    except (TypeError, ValueError):  # an enum, an exception or a class of classes has none
        return {}
    return {name: each.default for name, each in parameters.items()}


def bounds() -> dict[str, set[str]]:
    """Return every bound, and the ways the page may write it."""
    found: dict[str, set[str]] = {}
    for module in modules():
        found.update(of_module(module))
    return found


BOUNDS = bounds()


def test_every_bound_is_on_the_page_or_says_why_not():
    """A new one needs a row there, which needs a probe (`test_table.py`)."""
    assert len(BOUNDS) > 600
    assert sorted(where for where, ways in BOUNDS.items() if not ways & WRITTEN and where not in UNLISTED) == []


def test_what_says_why_not_is_there_and_not_on_the_page():
    assert sorted(UNLISTED.keys() - BOUNDS.keys()) == []
    assert sorted(where for where in UNLISTED if BOUNDS[where] & WRITTEN) == []


def test_a_bound_is_known_by_its_name():
    for name in ("MAX_TEXT", "_LONGEST_LENGTH", "HIGH_WATER", "LINGER_TIME", "DEPTH"):
        assert WORDS.search(name)
    for name in ("MAXIMAL", "OVERTIME", "SHORT", "VERSION"):
        assert not WORDS.search(name)
