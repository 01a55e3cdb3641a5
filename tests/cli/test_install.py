"""`ferrule install`: every host's own format, nothing else in its file touched, and everything undone."""

from __future__ import annotations

import io
import json
import os
import re
import stat
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from ferrule.cli.host_file import JsonText, edit_json
from ferrule.cli.install import HOSTS, difference, launch_of, replace_file
from ferrule.cli.main import main
from ferrule.client.targets import transport_for

COMMAND = [sys.executable, "-m", "ferrule", "run", "--transport", "stdio"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's home with a project in it, in which commands are run."""
    project = tmp_path / "hello"
    project.mkdir()
    (project / "ferrule.toml").write_text('[run]\nfile = "server.py"\n')
    (project / "server.py").write_text("from ferrule import Server\napp = Server('x')\n")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.chdir(project)
    return tmp_path


def install(*words: str) -> None:
    """Run the command for somebody who has agreed already."""
    main(["install", "--yes", *words])


def place(host: str, home: Path) -> Path:
    if host == "mcp.json":
        return home / "hello" / "mcp.json"
    return home / HOSTS[host].linux


def parsed(host: str, text: str) -> Any:
    """Read a host's file with a real reader of its format."""
    if HOSTS[host].format == "toml":
        return tomllib.loads(text)
    if HOSTS[host].format == "yaml":
        return yaml.safe_load(text)
    lines = [line for line in text.splitlines() if not line.strip().startswith("//")]
    return json.loads("\n".join(lines))


def stdio(home: Path, **more: Any) -> dict[str, Any]:
    return {**more, "command": COMMAND[0], "args": [*COMMAND[1:], str(home / "hello")]}


def expected(host: str, home: Path) -> dict[str, Any]:
    """Return a server as the documentation of a host writes it."""
    if host in ("claude-code", "vscode"):
        return stdio(home, type="stdio")
    if host == "zed":
        return stdio(home, source="custom")
    if host == "goose":
        words = stdio(home)
        command = {"cmd": words["command"], "args": words["args"], "envs": {}}
        return {"enabled": True, "name": "hello", "timeout": 300, "type": "stdio", **command}
    return stdio(home)


FULL = {
    "json": '{\n    // mine\n    "theme": 1,\n    "TABLE": {\n        "other": {"command": "x"} // keep\n    },\n}\n',
    "toml": '# mine\nmodel = "o"\n\n[mcp_servers.other]\ncommand = "x"  # keep\n',
    "yaml": "# mine\nmodel: o\nextensions:\n  other:\n    cmd: x # keep\n    args: []\nlast: 1\n",
}


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_without_a_file_gets_one_and_loses_it_again(host: str, home: Path) -> None:
    install(host)
    path = place(host, home)
    assert parsed(host, path.read_text()) == {HOSTS[host].table: {"hello": expected(host, home)}}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    install(host, "--undo")
    assert list(path.parent.glob(f"*{path.name}*")) == []


@pytest.mark.parametrize("host", HOSTS)
def test_the_rest_of_a_file_stays_and_undo_restores_every_byte(host: str, home: Path) -> None:
    path = place(host, home)
    path.parent.mkdir(parents=True, exist_ok=True)
    before = FULL[HOSTS[host].format].replace("TABLE", HOSTS[host].table)
    path.write_text(before)
    path.chmod(0o640)
    install(host)
    after = path.read_text()
    assert "mine" in after
    assert "# keep" in after or "// keep" in after
    kept = [line for line in before.splitlines() if line not in after.splitlines()]
    # Only the line before the new one may get a comma.
    assert len(kept) <= 1
    assert '"other": {"command": "x"}, // keep' in after or HOSTS[host].format != "json"
    install(host, "--name", "hello")
    assert path.read_text() == after
    install(host, "--undo")
    assert path.read_text() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [each.name for each in path.parent.iterdir() if "ferrule-" in each.name] == []


@pytest.mark.parametrize("host", ["cursor", "codex", "goose"])
def test_windows_line_ends_and_a_byte_order_mark_stay(host: str, home: Path) -> None:
    path = place(host, home)
    path.parent.mkdir(parents=True)
    before = FULL[HOSTS[host].format].replace("TABLE", HOSTS[host].table).replace("\n", "\r\n").encode("utf-8-sig")
    path.write_bytes(before)
    install(host)
    after = path.read_bytes()
    assert after.startswith(b"\xef\xbb\xbf")
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\n")
    install(host, "--undo")
    assert path.read_bytes() == before


@pytest.mark.parametrize("host", ["cursor", "codex", "goose"])
def test_a_server_of_the_same_name_is_replaced(host: str, home: Path) -> None:
    install(host)
    install(host, "--env", "TOKEN=s3cret")
    servers = parsed(host, place(host, home).read_text())[HOSTS[host].table]
    assert list(servers) == ["hello"]
    assert (servers["hello"].get("env") or servers["hello"].get("envs")) == {"TOKEN": "s3cret"}


BROKEN = {
    "json": ['{"mcpServers": ', "[1]", '{"a": 1} {"b": 2}', '{"a" 1}', "{'a': 1}", '{"mcpServers": []}', '{"a": tru}'],
    "toml": ["[x", "mcp_servers = 3", 'mcp_servers = { other = { command = "x" } }', "a = 1\na = 2"],
    "yaml": [
        "extensions:\n- a\n",
        "extensions:\n  # c\n  - a\n",
        "extensions: {other: {cmd: x}}",
        "a:\n\tb: 1",
        '{ "mcpServers": {\n',
        "[broken\nx = = 1\n",
        "- a\n- b\n",
        "just words\n",
        "a: [1,\nb: 2\n",
        "extensions:\n  a: 1\nextensions:\n  b: 1\n",
    ],
}


@pytest.mark.parametrize(
    ("host", "text"),
    [(host, text) for host in ("cursor", "codex", "goose") for text in BROKEN[HOSTS[host].format]],
)
def test_a_file_that_cannot_be_changed_safely_is_left_as_it_is(
    host: str, text: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place(host, home)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(SystemExit) as end:
        install(host)
    assert end.value.code == 1
    assert f"error: {path} is not changed: " in capsys.readouterr().err
    assert path.read_text() == text
    assert list(path.parent.iterdir()) == [path]


def test_a_broken_yaml_file_is_left_as_it_is_where_nothing_reads_yaml(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An install of Ferrule brings no such package along."""
    monkeypatch.setitem(sys.modules, "yaml", None)
    path = place("goose", home)
    path.parent.mkdir(parents=True)
    for text in ('{ "mcpServers": {\n', "[broken\n", "just words\n"):
        path.write_text(text)
        with pytest.raises(SystemExit):
            install("goose")
        assert path.read_text() == text
        assert "is not changed: line 1: a key with a colon is wanted, not" in capsys.readouterr().err
    path.write_text('GOOSE_MODEL: x\n"quoted key": 1\nlist:\n- a\n---\n')
    install("goose")
    assert "extensions:\n" in path.read_text()


def test_where_a_file_ends_too_early_is_told(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place("cursor", home)
    path.parent.mkdir(parents=True)
    path.write_text('{"mcpServers": {\n')
    with pytest.raises(SystemExit):
        install("cursor")
    assert 'line 2: a "name" or } is wanted, not the end of the file' in capsys.readouterr().err


def test_no_text_and_deep_nesting_are_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = place("cursor", home)
    path.parent.mkdir(parents=True)
    for data in (b"\xff\xfe{}", b"[" * 100_000):
        path.write_bytes(data)
        with pytest.raises(SystemExit):
            install("cursor")
        assert path.read_bytes() == data
        assert "is not changed" in capsys.readouterr().err


JSON_SHAPES = {
    "": '{\n  "mcpServers": {\n    "new": {}\n  }\n}\n',
    "{}": '{\n  "mcpServers": {\n    "new": {}\n  }\n}',
    "{ // empty\n}": '{ // empty\n  "mcpServers": {\n    "new": {}\n  }\n}',
    '{"a": 1}': '{"a": 1,\n  "mcpServers": {\n    "new": {}\n  }}',
    '{\n  // mine\n  "mcpServers": {\n    "a": {}\n  }\n}': (
        '{\n  // mine\n  "mcpServers": {\n    "a": {},\n    "new": {}\n  }\n}'
    ),
    '{\n\t"a": 1, // one\n}': '{\n\t"a": 1, // one\n\t"mcpServers": {\n\t\t"new": {}\n\t}\n}',
    '{"mcpServers": {}}': '{"mcpServers": {\n    "new": {}\n  }}',
    '{"x": "// no { comment \\" }", "mcpServers": {"a": {}}}': (
        '{"x": "// no { comment \\" }", "mcpServers": {"a": {},\n    "new": {}}}'
    ),
    '{"mcpServers": {"new": {"old": [1, {"b": 2}]}}, "z": null}': '{"mcpServers": {"new": {}}, "z": null}',
}


@pytest.mark.parametrize(("before", "after"), JSON_SHAPES.items(), ids=repr)
def test_a_server_is_put_into_json_of_any_layout(before: str, after: str) -> None:
    assert edit_json(before, "mcpServers", "new", {}) == after


KEYS = st.text('ab\\"/*{,:}é', max_size=4)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False) | KEYS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS, inner, max_size=2),
    max_leaves=6,
)
FILES = st.dictionaries(KEYS, VALUES, max_size=3)
SERVERS = st.dictionaries(st.sampled_from(["new", "old", "b"]), VALUES, max_size=3)


@given(rest=FILES, servers=st.none() | SERVERS, indent=st.sampled_from([None, 1, 4, "\t"]), notes=st.booleans())
def test_any_json_file_keeps_everything_else(
    rest: dict[str, Any], servers: dict[str, Any] | None, indent: Any, notes: bool
) -> None:
    """Comments at the ends of lines stay, in number and in order."""
    whole = dict(rest)
    if servers is not None:
        whole["mcpServers"] = servers
    text = json.dumps(whole, indent=indent)
    lines = text.split("\n")
    if notes:
        lines = [f"{line} // note {number}" for number, line in enumerate(lines)]
    after = edit_json("\n".join(lines), "mcpServers", "new", {"command": "x"})
    assert JsonText(after).read().value == {**rest, "mcpServers": {**(servers or {}), "new": {"command": "x"}}}
    kept = re.findall(r"// note \d+", after)
    assert kept == sorted(kept, key=lambda note: int(note.split()[-1]))
    if notes and "new" not in (servers or {}):
        assert len(kept) == len(lines)


def test_a_file_that_was_changed_since_is_not_undone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install("cursor")
    path = place("cursor", home)
    changed = path.read_text().replace("hello", "world")
    path.write_text(changed)
    with pytest.raises(SystemExit):
        install("cursor", "--undo")
    assert "was changed since" in capsys.readouterr().err
    assert path.read_text() == changed
    with pytest.raises(SystemExit):
        install("zed", "--undo")
    assert "there is nothing to undo" in capsys.readouterr().err


def test_the_difference_is_shown_without_secrets_and_without_neighbours(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = place("cursor", home)
    path.parent.mkdir(parents=True)
    path.write_text('{\n  "mcpServers": {\n    "other": {"env": {"KEY": "other-s3cret"}}\n  }\n}\n')
    install("cursor", "--env", "TOKEN=s3cret", "--dry-run")
    said = capsys.readouterr()
    assert '+        "TOKEN": "…"' in said.out
    assert "s3cret" not in (said.out + said.err).replace("other-s3cret", "")
    assert "TOKEN" not in path.read_text()
    launch = launch_of(options(home), [])
    assert difference("a\n", "a\n", "x", launch) == []


def options(home: Path) -> Any:
    from argparse import Namespace

    return Namespace(target=str(home / "hello"), name=None, env=[], header=[], server=None)


@pytest.mark.parametrize(
    ("words", "name", "entry"),
    [
        (["https://api.example.com/mcp", "--header", "A: b"], "api.example.com", {"headers": {"A": "b"}}),
        (["server.py:app"], "hello", {"args": ["server.py:app"]}),
        (["--", "uvx", "some-server"], "some-server", {"args": ["some-server"]}),
    ],
)
def test_urls_files_and_commands_are_installed(words: list[str], name: str, entry: dict[str, Any], home: Path) -> None:
    install("cursor", *words)
    [(found, written)] = json.loads(place("cursor", home).read_text())["mcpServers"].items()
    assert found == name
    if "args" in entry:
        assert written["args"][-1].endswith(entry["args"][0])
        assert Path(written["command"]).is_absolute() or words[1] == "uvx"
    else:
        assert written == {"url": words[0], **entry}


def test_what_is_installed_can_be_started_from_anywhere(home: Path) -> None:
    """A client understands the file, and its paths are absolute."""
    install("mcp.json", "server.py")
    path = home / "hello" / "mcp.json"
    entry = json.loads(path.read_text())["mcpServers"]["hello"]
    assert Path(entry["command"]).is_absolute()
    assert Path(entry["args"][-1]).is_absolute()
    assert transport_for(str(path)) is not None


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["windsurf", "--project"], "Windsurf reads no file of a project"),
        (["cursor", "nothing.py"], "no such file: nothing.py"),
        (["cursor", "tcp://h:1"], "a host cannot start tcp://h:1"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        install(*words)
    assert end.value.code == 1
    assert said in capsys.readouterr().err


def test_a_host_with_a_typo_is_answered_with_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        install("curser")
    assert end.value.code == 2
    assert 'Did you mean "cursor"?' in capsys.readouterr().err


class Keyboard(io.StringIO):
    """A terminal on which somebody types."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("typed", "written"), [("y\n", True), ("n\n", False), ("\n", False), ("", False)])
def test_a_command_is_shown_whole_and_written_when_somebody_agrees(
    typed: str, written: bool, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SEC-9: however long it is, with its arguments quoted, and nothing in it can hide from the terminal."""
    monkeypatch.setattr("sys.stdin", Keyboard(typed))
    long = "x" * 5000
    words = ["--env", "TOKEN=s3cret", "--", "/bin/sh", "-c", f"rm -rf / # {long}\x1b[2K"]
    if written:
        main(["install", "cursor", *words])
    else:
        with pytest.raises(SystemExit):
            main(["install", "cursor", *words])
    said = capsys.readouterr().err
    assert f"TOKEN=… /bin/sh -c 'rm -rf / # {long}\\x1b[2K'" in said
    assert "can do whatever you can" in said
    assert "s3cret" not in said
    assert place("cursor", home).exists() == written
    assert ("nothing was installed" in said) != written


def test_where_nobody_can_be_asked_nothing_is_installed(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SEC-9: a script says that it means it; an address runs nothing here, so nobody need be asked."""
    with pytest.raises(SystemExit):
        main(["install", "cursor"])
    assert "say --yes" in capsys.readouterr().err
    assert not place("cursor", home).exists()
    main(["install", "cursor", "--dry-run"])
    assert not place("cursor", home).exists()
    main(["install", "cursor", "https://api.example.com/mcp"])
    assert place("cursor", home).exists()


def test_a_project_has_a_file_of_its_own(home: Path) -> None:
    install("vscode", "--project")
    assert "servers" in json.loads((home / "hello" / ".vscode" / "mcp.json").read_text())


@pytest.mark.parametrize(
    ("host", "mac", "windows"),
    [
        (
            "claude-desktop",
            "Library/Application Support/Claude/claude_desktop_config.json",
            "roaming/Claude/claude_desktop_config.json",
        ),
        ("vscode", "Library/Application Support/Code/User/mcp.json", "roaming/Code/User/mcp.json"),
        ("zed", ".config/zed/settings.json", "roaming/Zed/settings.json"),
        ("goose", ".config/goose/config.yaml", "roaming/Block/goose/config/config.yaml"),
        ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
    ],
)
def test_each_system_has_its_own_places(host: str, mac: str, windows: str) -> None:
    home = Path("/home/ada")
    assert HOSTS[host].path("darwin", home, None) == home / mac
    assert HOSTS[host].path("win32", home, str(home / "roaming")) == home / windows


def test_a_link_to_a_file_stays_a_link(home: Path) -> None:
    path = place("cursor", home)
    path.parent.mkdir(parents=True)
    real = home / "dotfiles.json"
    real.write_text("{}")
    path.symlink_to(real)
    install("cursor")
    assert path.is_symlink()
    assert "hello" in real.read_text()


def test_a_write_that_fails_leaves_the_file_and_nothing_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def fail(number: int) -> None:
        raise OSError("full")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="full"):
        replace_file(path, b"new", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]
    assert path.read_text() == "old"
