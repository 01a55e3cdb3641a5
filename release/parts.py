"""The packages that a package brings along, read from what is installed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BYTECODE = ".pyc"


@dataclass
class Part:
    """One installed package."""

    name: str
    version: str
    licence: str
    size: int
    """Bytes of its files, without bytecode."""
    needs: list[str] = field(default_factory=list)


def installed(site: Path | None = None) -> dict[str, Distribution]:
    """Return what is installed in a folder of packages, or where this Python looks."""
    found = distributions() if site is None else distributions(path=[str(site)])
    return {canonicalize_name(each.metadata["Name"]): each for each in found}


def parts_of(root: str, extras: Iterable[str] = (), site: Path | None = None) -> dict[str, Part]:
    """Return a package and all that it needs, by name; raise KeyError for one that is not installed."""
    known = installed(site)
    parts: dict[str, Part] = {}
    waiting = [(canonicalize_name(root), frozenset(extras))]
    done: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        name, wanted = waiting.pop()
        if (name, wanted) in done:
            continue
        done.add((name, wanted))
        part = parts.get(name) or _part(name, known[name])
        parts[name] = part
        for need in needs_of(known[name], wanted):
            needed = canonicalize_name(need.name)
            if needed not in part.needs:
                part.needs.append(needed)
            waiting.append((needed, frozenset(need.extras)))
    return dict(sorted(parts.items()))


def needs_of(package: Distribution, extras: Iterable[str] = ()) -> list[Requirement]:
    """Return what a package requires on this machine, with some of its extras."""
    found = []
    for text in package.requires or ():
        need = Requirement(text)
        if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            found.append(need)
    return found


def licence_of(package: Distribution) -> str:
    """Return the licence a package names, as an SPDX expression where it has one."""
    expression = fields_of(package, "License-Expression")
    if expression:
        return expression[0]
    classified = [each.rpartition(" :: ")[2] for each in fields_of(package, "Classifier") if each.startswith("License")]
    named = [SPDX.get(each, each) for each in classified]
    if named:
        return " OR ".join(sorted(named))
    short = "".join(fields_of(package, "License")).partition("\n")[0].strip()
    return SPDX.get(short, short) or "unknown"


def fields_of(package: Distribution, name: str) -> list[str]:
    """Return what the metadata of a package says under a name."""
    return list(package.metadata.get_all(name) or ())


SPDX = {
    "MIT License": "MIT",
    "MIT": "MIT",
    "BSD License": "BSD-3-Clause",
    "Apache Software License": "Apache-2.0",
    "Apache 2": "Apache-2.0",
    "Apache License 2.0": "Apache-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
"""What older packages write, and the identifier of it."""


def _part(name: str, package: Distribution) -> Part:
    size = 0
    for file in package.files or ():
        path = Path(str(package.locate_file(file)))
        if path.suffix != BYTECODE and path.is_file():
            size += path.stat().st_size
    return Part(name, package.version, licence_of(package), size)
