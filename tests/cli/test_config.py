"""`ferrule config` and `ferrule version`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ferrule import __version__
from ferrule.cli.main import main

FILE = """\
# a comment
[run]
file = "server.py"

[server]
tool_timeout = 30

[ http ]   # spaces are allowed
port = 9000

[client]
headers = {Authorization = "Bearer s3cret"}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ferrule.toml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_option_is_shown_with_where_it_was_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FERRULE_SERVER_TOOL_TIMEOUT", "40")
    monkeypatch.setenv("FERRULE_CLIENT_REQUEST_TIMEOUT", "7")
    main(["config", "--transport", "http", "--host", "0.0.0.0"])
    path = folder / "ferrule.toml"
    assert capsys.readouterr().out.splitlines() == [
        f"run.file\t{folder}/server.py\t{path}:3",
        "run.transport\thttp\t--transport",
        "server.tool_timeout\t40.0\tFERRULE_SERVER_TOOL_TIMEOUT",
        f"client.headers\t(set, not shown)\t{path}:12",
        "client.request_timeout\t7.0\tFERRULE_CLIENT_REQUEST_TIMEOUT",
        "http.host\t0.0.0.0\t--host",
        f"http.port\t9000\t{path}:9",
    ]


def test_defaults_are_shown_where_they_are_asked_for(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["config", str(folder), "--all", "--table", "server", "--json"])
    told = json.loads(capsys.readouterr().out)
    settings = {each["option"]: each for each in told["settings"]}
    assert told["file"] == str(folder / "ferrule.toml")
    assert settings["page_size"]["value"] == 1000
    assert settings["page_size"]["source"] == "default"
    assert settings["tool_timeout"]["source"] == "file"
    assert "observer" not in settings


@pytest.mark.parametrize(
    ("words", "text", "said"),
    [
        (["nothing.py"], FILE, "there is no file or folder nothing.py"),
        (["--table", "sever"], FILE, 'no table "sever". Did you mean "server"?'),
        ([], "[http]\nprot = 1\n", "ferrule.toml:2: [http]: unknown option 'prot'; did you mean 'port'?"),
        ([], "[htttp]\nport = 1\n", "unknown table 'htttp'; did you mean 'http'?"),
        ([], "[http]\nport = -1\n", "must be from 0 to 65535"),
        ([], "[http\n", "is not TOML"),
    ],
)
def test_a_mistake_is_told_with_what_was_meant(
    words: list[str], text: str, said: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "ferrule.toml").write_text(text)
    with pytest.raises(SystemExit) as end:
        main(["config", *words])
    assert end.value.code == 1
    assert said in capsys.readouterr().err


def test_nothing_set_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    main(["config"])
    said = capsys.readouterr()
    assert said.out == ""
    assert "every option is at its default" in said.err


def test_versions_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    main(["version"])
    lines = dict(line.split("\t") for line in capsys.readouterr().out.splitlines())
    assert lines["ferrule"] == __version__
    assert lines["protocol"].startswith("2026-07-28, 2025-11-25")
    main(["version", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["packages"]["msgspec"] == lines["msgspec"]
