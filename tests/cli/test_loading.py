"""Finding the server in somebody's file."""

from __future__ import annotations

import sys

import pytest

from ferrule.cli.loading import load_server
from ferrule.errors import SetupError


@pytest.fixture(autouse=True)
def modules_and_paths_are_put_back(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
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


def test_the_usual_names_come_first_in_their_order(write):
    place = write("zebra = Server('zebra')\napp = Server('app')\nserver = Server('server')\nmcp = Server('mcp')")
    assert load_server(place).name == "mcp"


def test_a_server_can_be_named(write):
    place = write("app = Server('app')\nother = Server('other')")
    assert load_server(f"{place}:other").name == "other"


def test_a_file_may_have_a_colon_in_its_name(write):
    place = write("app = Server('app')\nother = Server('other')", "a:b.py")
    assert load_server(place).name == "app"
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
