"""What the words of `ferrule run` mean: files, modules and folders, with and without names."""

from __future__ import annotations

from pathlib import Path

import pytest

from ferrule.cli.place import Place, folder_of, read_places
from ferrule.errors import SetupError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two projects side by side, and a file."""
    for name in ("shop", "weather"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "server.py").write_text("")
    (tmp_path / "weather" / "ferrule.toml").write_text('[run]\nfile = "other.py"\n')
    (tmp_path / "tram.py").write_text("")
    (tmp_path / "a=b.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


READ = {
    "tram.py": Place("tram", "tram.py", named=False),
    "tram.py:app": Place("tram", "tram.py:app", named=False),
    "t=tram.py:app": Place("t", "tram.py:app", named=True),
    "shop": Place("shop", "shop/server.py", named=False),
    "weather": Place("weather", "weather/other.py", named=False),
    "w=weather": Place("w", "weather/other.py", named=True),
    "some.module:app": Place("module", "some.module:app", named=False),
    "m=some.module": Place("m", "some.module", named=True),
    "a=b.py": Place("a=b", "a=b.py", named=False),
    "a=b.py:app": Place("a=b", "a=b.py:app", named=False),
    "/of/a/toml/t=tram.py": Place("t", "/of/a/toml/tram.py", named=True),
}


@pytest.mark.parametrize(("word", "place"), READ.items(), ids=READ)
def test_a_word_is_a_file_a_module_or_a_folder_and_may_have_a_name(word: str, place: Place, folder: Path) -> None:
    assert read_places([word]) == [place]


def test_two_of_one_name_are_refused_with_the_fix(folder: Path) -> None:
    with pytest.raises(SetupError, match=r"^shop/server.py and weather/server.py would both be 'server': give one"):
        read_places(["shop/server.py", "weather/server.py"])
    assert [place.prefix for place in read_places(["shop/server.py", "w=weather/server.py"])] == ["server", "w"]


def test_a_folder_without_a_server_is_refused_with_the_fix(folder: Path) -> None:
    (folder / "empty").mkdir()
    with pytest.raises(SetupError, match=r"the folder empty does not say .* no server.py, app.py or main.py; name the"):
        read_places(["empty", "tram.py"])
    (folder / "weather" / "ferrule.toml").write_text('[run]\nfile = ["a.py", "b.py"]\n')
    with pytest.raises(SetupError, match=r"weather/ferrule.toml names several files: serve that folder alone"):
        read_places(["weather", "tram.py"])


@pytest.mark.parametrize(
    ("words", "where"),
    [
        ([], "."),
        (["shop"], "shop"),
        (["shop/server.py:app"], "shop"),
        (["x=shop/server.py", "y=shop"], "shop"),
        (["shop/server.py", "weather/server.py"], "."),
        (["some.module"], "."),
    ],
)
def test_a_configuration_is_looked_for_beside_all_files(words: list[str], where: str, folder: Path) -> None:
    assert folder_of(words) == str((folder / where).resolve())
