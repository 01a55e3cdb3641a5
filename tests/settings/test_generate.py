"""What follows from the structs of options is what they say today."""

from __future__ import annotations

import inspect
from pathlib import Path

import generate
import pytest

from ferrule.settings.option import kinds_of_option, require_kind

FILES = generate.files()
EVERY_TYPED_DICT = [(module, title) for module, classes in generate.MODULES.items() for title in classes]
DECLARED = sorted({place for names in generate.MODULES.values() for each in names.values() for place in each.structs})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(generate.PROJECT)))
def test_a_file_is_as_the_structs_want_it(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == FILES[path], "an option was added or changed: run `make options`"


def owner_of(struct: type, name: str) -> type:
    """Return the class that declares a field."""
    return next(owner for owner in struct.__mro__ if name in inspect.get_annotations(owner))


def annotations_of(struct: type) -> dict[str, str]:
    """Return the annotations of a struct as they are written, those of its bases included."""
    found: dict[str, str] = {}
    for owner in reversed(struct.__mro__):
        found.update(inspect.get_annotations(owner))
    return found


@pytest.mark.parametrize(("module", "title"), EVERY_TYPED_DICT, ids=lambda value: value)
def test_keywords_have_the_names_and_types_of_their_structs(module: str, title: str) -> None:
    """Held against the structs at run time, not as the generator reads them."""
    keywords = generate.MODULES[module][title]
    wanted: dict[str, str] = {}
    for place in reversed(keywords.structs):
        struct = generate.struct_at(place)
        for name in keywords.only.get(place, struct.__struct_fields__):
            wanted[name] = generate.written_out(annotations_of(struct)[name], owner_of(struct, name).__module__)
    for name in keywords.without:
        wanted.pop(name, None)
    typed = inspect.get_annotations(generate.struct_at(f"{module}:{title}"))
    written = {name: annotation.__forward_arg__ for name, annotation in typed.items()}
    inherited = inspect.get_annotations(generate.struct_at(f"{module}:{keywords.base}")) if keywords.base else {}
    assert written.keys() == wanted.keys() | keywords.more.keys() | inherited.keys()
    for name, annotation in wanted.items():
        assert written[name] == keywords.written.get(name, annotation)


@pytest.mark.parametrize("place", DECLARED)
def test_every_option_has_a_help_text(place: str) -> None:
    assert [field.name for field in generate.fields(place) if not field.help] == []


@pytest.mark.parametrize("place", [place for place in DECLARED if place != generate.UNIX])
def test_every_default_is_what_its_option_may_be(place: str) -> None:
    """A default is never checked at run time, so that a server without options pays for no check."""
    struct = generate.struct_at(place)
    made = struct()
    for name in struct.__struct_fields__:
        require_kind(name, getattr(made, name), kinds_of_option(struct, name))
