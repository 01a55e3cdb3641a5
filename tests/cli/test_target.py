"""Finding the server in somebody's file."""

from __future__ import annotations

import sys

import pytest

from ferrule.cli.target import load_server
from ferrule.errors import SetupError


@pytest.fixture(autouse=True)
def modules_and_paths_are_put_back(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", list(sys.argv))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


@pytest.fixture
def write(tmp_path):
    def write(text, name="my_server.py"):
        (tmp_path / name).write_text(f"from ferrule import Server\n{text}\n")
        return str(tmp_path / name)

    return write


@pytest.mark.parametrize("name", ["mcp", "server", "app", "something_else"])
def test_a_server_is_found_by_the_usual_names_or_any_other(name, write):
    assert load_server(write(f"{name} = Server('mine')")).name == "mine"


def test_two_servers_are_both_named_and_none_is_taken(write):
    with pytest.raises(SetupError, match=r"defines 2 servers, zebra and app: name the one to run, as in .*:zebra$"):
        load_server(write("zebra = Server('zebra')\napp = Server('app')"))
    with pytest.raises(SetupError, match=r"defines 3 servers, a, b, c: name the one to run"):
        load_server(write("a = Server('a')\nb = Server('b')\nc = Server('c')"))


def test_one_server_under_two_names_is_one(write):
    assert load_server(write("app = Server('app')\nmcp = app")).name == "app"


def test_a_server_that_another_mounts_is_a_part_of_it(write):
    place = write("part = Server('part')\napp = Server('app')\napp.mount(part, prefix='p')")
    assert load_server(place).name == "app"
    assert load_server(f"{place}:part").name == "part"


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_a_function_that_makes_a_server_can_be_named(kind, write):
    place = write(f"{kind} create():\n    return Server('made')\n{kind} other():\n    return 7")
    assert load_server(f"{place}:create").name == "made"
    with pytest.raises(SetupError, match=r":other returned int, not a Server"):
        load_server(f"{place}:other")


def test_a_function_that_fails_is_told_with_its_line(write):
    place = write("def create():\n    raise ValueError('no')")
    with pytest.raises(SetupError, match=r":create cannot make a server: ValueError: no \(my_server.py, line 3\)"):
        load_server(f"{place}:create")


def test_relative_imports_work_also_without_a_package(write, tmp_path):
    (tmp_path / "neighbour_of_yours.py").write_text("NAME = 'next door'")
    assert load_server(write("from .neighbour_of_yours import NAME\napp = Server(NAME)")).name == "next door"


def test_a_mistake_in_a_neighbour_is_told_where_it_is(write, tmp_path):
    (tmp_path / "bad_neighbour.py").write_text("\n\nx = 1 / 0\n")
    with pytest.raises(SetupError, match=r"ZeroDivisionError: division by zero \(bad_neighbour.py, line 3\)"):
        load_server(write("import bad_neighbour"))
    (tmp_path / "worse_neighbour.py").write_text("\ndef f(:\n")
    with pytest.raises(SetupError, match=r"SyntaxError: .* \(worse_neighbour.py, line 2\)"):
        load_server(write("import worse_neighbour"))


def test_modules_of_other_libraries_are_answered_with_ours(write):
    with pytest.raises(SetupError, match=r"'ferrule.exceptions'; here it is from ferrule import ToolError"):
        load_server(write("from ferrule.exceptions import ToolError"))


def test_a_file_sees_its_own_arguments(write, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ferrule", "run", "x"])
    place = write("import sys\napp = Server('|'.join(sys.argv[1:]))")
    assert load_server(place, ["a", "--b"]).name == "a|--b"
    assert sys.argv == [place, "a", "--b"]


def test_a_server_can_be_named(write):
    place = write("app = Server('app')\nother = Server('other')")
    assert load_server(f"{place}:other").name == "other"


def test_a_file_may_have_a_colon_in_its_name(write):
    place = write("app = Server('app')\nother = Server('other')", "a:b.py")
    assert load_server(f"{place}:app").name == "app"
    assert load_server(f"{place}:other").name == "other"


def test_a_file_finds_its_neighbours(write, tmp_path):
    (tmp_path / "neighbour_of_mine.py").write_text("NAME = 'next door'")
    assert load_server(write("from neighbour_of_mine import NAME\napp = Server(NAME)")).name == "next door"


def test_a_file_is_not_run_as_a_program(write):
    assert load_server(write("app = Server('app')\nif __name__ == '__main__':\n    raise SystemExit(3)")).name == "app"


BAD = {
    "no server": ("x = 1", "", "defines no Server; write `app = Server"),
    "another name": ("app = Server('a')\nmcp = Server('b')", ":moon", "has no server named 'moon'; it has app, mcp"),
    "a name in an empty file": ("", ":app", "has no server named 'app'; it has none"),
    "a name that is no server": ("app = 7", ":app", "has no server named 'app'"),
    "a mistake": ("\n1 / 0", "", r"cannot be loaded: ZeroDivisionError: division by zero \(line 3\)"),
    "a mistake in the grammar": ("def f(:", "", r"cannot be loaded: SyntaxError: .* \(line 2\)"),
    "a missing module": (
        "import no_such_module",
        "",
        r"ModuleNotFoundError: No module named 'no_such_module' \(line 2\)",
    ),
    "a bad tool": ("app = Server('a')\n@app.tool\ndef f(*a): ...", "", "cannot be loaded: SetupError"),
}


@pytest.mark.parametrize(("text", "name", "said"), BAD.values(), ids=BAD)
def test_a_file_that_gives_no_server_is_one_sentence_with_the_line(text, name, said, write):
    with pytest.raises(SetupError, match=said) as refusal:
        load_server(write(text) + name)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("place", ["missing.py", "missing.py:app", ".", "", ":app"])
def test_what_is_no_file_is_said_so(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SetupError, match="no such file"):
        load_server(place)


def test_what_is_no_python_is_said_so(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(SetupError, match="is not a Python file"):
        load_server(str(tmp_path / "notes.txt"))
