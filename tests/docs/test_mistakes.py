"""The page of typical mistakes: each is made, and answered as the page says."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from ferrule import Client, Server
from ferrule.cli.main import main
from ferrule.errors import SetupError
from ferrule.settings.sources import use

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "mistakes.md"
TEXT = PAGE.read_text(encoding="utf-8")
FILES = {
    "broken.py": "x = (1\n",
    "missing.py": "import nothing_of_that_name\nfrom ferrule import Server\napp = Server('x')\n",
    "empty.py": "x = 1\n",
    "two.py": "from ferrule import Server\na = Server('a')\nb = Server('b')\n",
    "broken.json": '{"mcpServers": {"a": {"command": "x"}',
    "taken/server.py": "",
    "notes/readme.txt": "",
    "taken/ferrule.toml": "[http]\nprot = 3\n",
}


class Mistake(NamedTuple):
    """A row of the page."""

    written: str
    code: int
    answer: str

    def __str__(self) -> str:
        return re.sub(r"\W+", " ", self.written).strip()


def rows(heading: str) -> Iterator[Mistake]:
    """Read the table below a heading."""
    table = TEXT.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    for line in table.splitlines():
        cells = re.findall(r"\| `((?:[^`]|``)+)` (?=\|)|\| (\d) (?=\|)", line)
        texts = [text.replace("``", "`") for text, _ in cells if text]
        numbers = [int(number) for _, number in cells if number]
        if texts:
            yield Mistake(texts[0], numbers[0] if numbers else 0, texts[1])


COMMANDS = list(rows("At the command line"))
STATEMENTS = list(rows("In Python"))


def fits(answer: str, said: str) -> bool:
    """Whether a sentence is the one that the page gives; `…` stands for anything."""
    return re.fullmatch(".*".join(map(re.escape, answer.split("…"))), said) is not None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the server of the page, and with files that are wrong."""
    made = tmp_path_factory.mktemp("shop")
    code = TEXT.partition("```python\n")[2].partition("```")[0]
    for name, text in {**FILES, "server.py": code}.items():
        place = made / name
        place.parent.mkdir(exist_ok=True)
        place.write_text(text, encoding="utf-8")
    return made


@pytest.fixture
def command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[[str], tuple[int, str]]]:
    """Run a command in the folder; gives its exit code and what it said on stderr."""

    def run(line: str) -> tuple[int, str]:
        monkeypatch.chdir(folder)
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[1:])
        return int(ended.value.code or 0), capfd.readouterr().err

    use(None)
    yield run
    use(None)


def test_the_page_has_about_forty_mistakes() -> None:
    assert len(COMMANDS) + len(STATEMENTS) == len(re.findall(r"^\| `", TEXT, re.MULTILINE))
    assert 30 <= len(COMMANDS) + len(STATEMENTS) <= 42


@pytest.mark.parametrize("mistake", COMMANDS, ids=str)
def test_a_mistake_at_the_command_line_is_answered_with_one_sentence(
    mistake: Mistake, command: Callable[[str], tuple[int, str]]
) -> None:
    code, said = command(mistake.written)
    assert code == mistake.code
    assert "Traceback" not in said
    sentences = [line.removeprefix("error: ") for line in said.splitlines() if line.startswith("error: ")]
    assert len(sentences) == 1, said
    assert fits(mistake.answer, sentences[0]), sentences[0]


@pytest.mark.parametrize("mistake", STATEMENTS, ids=str)
def test_a_mistake_in_python_is_answered_with_one_sentence(mistake: Mistake) -> None:
    app = Server("shop")

    def add(a: int, b: int) -> int:
        return a + b

    names: dict[str, Any] = {"Server": Server, "Client": Client, "app": app, "add": add}
    with pytest.raises((SetupError, ImportError)) as refused:
        exec(mistake.written, names)
    assert fits(mistake.answer, str(refused.value)), refused.value
    assert os.linesep not in str(refused.value)
