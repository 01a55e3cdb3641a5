"""Shell completion, made of the table of commands."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from ferrule.cli.main import COMMANDS, main


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]):
    def script(shell: str) -> str:
        main(["completion", shell])
        return capsys.readouterr().out

    return script


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_command_and_option_is_completed(shell: str, script) -> None:
    text = script(shell)
    for command in COMMANDS:
        assert command.name in text
    flag = "-l transport" if shell == "fish" else "--transport"
    assert flag in text
    assert "verify tail show export" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_read_its_script(shell: str, script) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} on this machine")
    done = subprocess.run([shell, "-n"], input=script(shell), text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ferrule", "ins"], {"inspect", "install"}),
        (["ferrule", "run", "--tra"], {"--transport", "--traceback"}),
        (["ferrule", "run", "--transport", "s"], {"stdio", "streamable-http", "sse"}),
        (["ferrule", "receipts", "v"], {"verify"}),
        (["ferrule", "receipts", "show", "--out"], {"--outcome"}),
        (["ferrule", "completion", "f"], {"fish"}),
        (["ferrule", "bench", "--in"], {"--in-flight"}),
    ],
)
def test_bash_completes(words: list[str], expected: set[str], script) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash on this machine")
    quoted = " ".join(f"'{word}'" for word in words)
    program = (
        f"{script('bash')}\nCOMP_WORDS=({quoted})\nCOMP_CWORD={len(words) - 1}\n_ferrule\necho ${{COMPREPLY[@]}}\n"
    )
    done = subprocess.run([bash], input=program, text=True, capture_output=True, check=True)
    assert set(done.stdout.split()) == expected


def test_the_table_can_be_read_by_programs(capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", "bash", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert {each["words"][0] for each in told} == {command.name for command in COMMANDS}
