"""Where a server is, as it is written on the command line: a file, a module, a folder, with or without a name.

This module is light: both the commands that serve and those that use a server read it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from ferrule.errors import SetupError
from ferrule.settings.option import alike
from ferrule.settings.sources import FILE, read_file

USUAL_FILES = ("server.py", "app.py", "main.py")
"""What the server of a folder without a ferrule.toml is looked for in."""
PREFIX = re.compile(r"(?!\.+\Z)[A-Za-z0-9_.-]+")
"""What begins names and URIs of a server among others."""


class Place(Struct, frozen=True):
    """A server among others: where it is, and what its names begin with."""

    prefix: str
    where: str
    """A file or module, with the name of its server where it has several."""
    named: bool
    """Whether the prefix was given, as in `shop=server.py`."""


def read_places(words: Sequence[str]) -> list[Place]:
    """Read `FILE`, `FILE:obj`, `MODULE` and `FOLDER`, with or without `name=`; raise SetupError for two of one name."""
    places: list[Place] = []
    taken: dict[str, str] = {}
    for word in words:
        place = _read_place(word)
        if place.prefix in taken and len(words) > 1:
            raise SetupError(
                f"{taken[place.prefix]} and {word} would both be {place.prefix!r}: "
                f"give one another name, as in other={place.where}"
            )
        taken[place.prefix] = word
        places.append(place)
    return places


def _read_place(word: str) -> Place:
    before, mark, where = word.partition("=")
    # A ferrule.toml's paths are made absolute, so a name may stand behind a folder.
    folder, name = os.path.split(before)
    if mark and PREFIX.fullmatch(name) and not Path(word).exists() and file_of(word) is None:
        return Place(name, _file_at(str(Path(folder) / where)), named=True)
    return Place(_own_prefix(word), _file_at(word), named=False)


def file_of(where: str) -> Path | None:
    """Return the file of a place; None for a module, and for what is not there."""
    for path in (Path(where), Path(where.rpartition(":")[0])):
        if path.is_file():
            return path.resolve()
    return None


def no_such_file(where: str) -> str:
    """Return that there is no such file, and which one of its folder may have been meant."""
    path = Path(where)
    if not path.parent.is_dir():
        return f"no such file: {where}"
    meant = alike(path.stem, [each.stem for each in path.parent.glob("*.py")])
    if not meant:
        return f"no such file: {where}"
    return f'no such file: {where}. Did you mean "{path.with_name(meant)}.py"?'


def _own_prefix(word: str) -> str:
    """Return what names a place by itself: its folder's name, its file's, or the last part of its module's."""
    path = Path(word)
    if path.is_dir():
        return path.resolve().name
    if not path.exists():
        path = Path(word.partition(":")[0])
    if path.suffix == ".py":
        return path.stem
    return path.name.rpartition(".")[2]


def _file_at(word: str) -> str:
    """Return the file of a folder, and anything else as it is; raise SetupError for a folder that has none."""
    folder = Path(word)
    if not folder.is_dir():
        return word
    found = file_in(folder)
    if found is None:
        raise SetupError(f"the folder {word} does not say which file to run: {no_usual_file()}")
    return found


def file_in(folder: Path) -> str | None:
    """Return the file of a folder's server: what its ferrule.toml names, else the usual one; None without either."""
    configuration = folder / FILE
    if configuration.is_file():
        named = read_file(str(configuration)).tables.get("run", {}).get("file")
        if isinstance(named, str):
            return str(folder / named)
        if named is not None:
            raise SetupError(f"{configuration} names several files: serve that folder alone, or name its files here")
    return usual_file(folder)


def usual_file(folder: Path) -> str | None:
    """Return the file of a folder that most call their server; None where there is none."""
    for name in USUAL_FILES:
        if (folder / name).is_file():
            return str(folder / name)
    return None


def no_usual_file() -> str:
    """Return what to do about a folder without a server, as the end of a sentence."""
    names = ", ".join(USUAL_FILES[:-1])
    return f"it has no {names} or {USUAL_FILES[-1]}; name the file, or start a project with `ferrule new NAME`"


def folder_of(places: Sequence[str]) -> str:
    """Return the folder all files are in, for its ferrule.toml; the working directory where there is no such folder."""
    folders: dict[str, None] = {}
    for place in places:
        folders[_folder_of(place)] = None
    if len(folders) == 1:
        return next(iter(folders))
    return str(Path.cwd())


def _folder_of(place: str) -> str:
    path = Path(place)
    if path.is_dir():
        return str(path.resolve())
    file = file_of(place)
    if file is not None:
        return str(file.parent)
    name, mark, named = place.partition("=")
    if mark and PREFIX.fullmatch(name):
        return _folder_of(named)
    return str(Path.cwd())
