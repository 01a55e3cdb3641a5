"""Peers in Rust and Go take part where they are asked for, and are skipped with a reason where they cannot be had."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.contestants import NATIVE_NAMES, RUST, asked_for_native, contestants, is_native, is_python
from bench.native import NATIVE, RMCP, BuildFailed, NativePeer, build, build_all
from bench.results import Results
from bench.rounds import Pace
from bench.tables import native_table

from bench import native, run

PACE = Pace(1, 0.1, 0.1)


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Peers belong into a folder where none is."""
    monkeypatch.setenv("FERRULE_BENCH_PEERS", str(tmp_path))


def choice(only: list[str], *, natives: bool) -> run.Choice:
    """Return a choice of contestants."""
    return run.Choice(["call"], PACE, only, natives)


def test_without_the_tool_a_peer_is_skipped_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(native.shutil, "which", lambda name: None)
    own = [one for one in contestants() if one.name == "ferrule"]
    field = run.field_of(own, choice([], natives=True))
    assert [one.name for one in field] == ["ferrule"]
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "skipped: rmcp-3.8.0: cargo is not on this machine"
    assert len(said) == len(NATIVE)


def test_nothing_is_built_where_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(peer: NativePeer) -> None:
        raise AssertionError(f"{peer} was built")

    monkeypatch.setattr(native, "build", refuse)
    own = [one for one in contestants() if one.name == "ferrule"]
    assert [one.name for one in run.field_of(own, choice([], natives=False))] == ["ferrule"]
    assert [one.name for one in run.field_of(own, choice(["ferrule"], natives=False))] == ["ferrule"]


@pytest.mark.parametrize(
    ("only", "asked"), [([], False), (["ferrule"], False), (["ferrule", "rmcp"], True), (["mcp-2"], False)]
)
def test_who_names_one_asks_for_it(only: list[str], asked: bool) -> None:
    assert asked_for_native(only) is asked


def test_what_a_failed_build_says_last_is_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = tmp_path / "cargo"
    script.write_text("#!/bin/sh\necho compiling >&2\necho 'error: no such crate' >&2\nexit 1\n")
    script.chmod(0o755)
    monkeypatch.setattr(native.shutil, "which", lambda name: str(script) if name == "cargo" else None)
    assert build_all([RMCP]) == {RMCP: "cargo failed: error: no such crate"}
    with pytest.raises(BuildFailed, match="no such crate"):
        build(RMCP)


def test_a_program_counts_until_its_source_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "bench" / "servers" / "small"
    source.mkdir(parents=True)
    (source / "main.go").write_text("package main\n")
    monkeypatch.setattr(native, "BENCH", tmp_path / "bench")
    peer = NativePeer("small", "go")
    assert not peer.installed()
    peer.home.mkdir()
    peer.program.write_text("")
    (peer.home / "ready").write_text(peer.digest())
    assert peer.installed()
    (source / "main.go").write_text("package other\n")
    assert not peer.installed()


def test_every_peer_has_its_source_and_its_pins_here() -> None:
    for peer in NATIVE:
        names = {path.name for path in peer.source.iterdir()}
        assert {"Cargo.lock", "Cargo.toml"} <= names or {"go.mod", "go.sum", "main.go"} <= names
    pins = [
        path.read_text()
        for peer in NATIVE
        for path in (peer.source / "Cargo.toml", peer.source / "go.mod")
        if path.exists()
    ]
    for name in NATIVE_NAMES:
        version = name.rpartition("-")[2]
        assert any(version in pin for pin in pins)


def test_native_peers_are_no_python_peers() -> None:
    assert [is_native(name) for name in (RUST, "mcp-2.3.0", "ferrule")] == [True, False, False]
    assert [is_python(name) for name in (RUST, "mcp-go-1.2.1", "mcp-2.3.0", "ts-sdk-1.32.2")] == [
        False,
        False,
        True,
        False,
    ]


def test_the_table_beside_them_names_the_best_and_who_is_ahead() -> None:
    results = Results()
    results.add("call", "x2", "ferrule", 1, {"cpu_us": 1.0})
    results.add("call", "x2", "ts-sdk-1.32.2", 1, {"cpu_us": 2.0})
    assert native_table(results) == ""
    for case, costs in {"x1": (10.0, 8.0, 90.0), "x64": (5.0, 7.0, 6.0), "x4": (10.0, 10.5, 20.0)}.items():
        for name, cost in zip(("ferrule", "rmcp-3.8.0", "go-sdk-1.8.0"), costs, strict=True):
            results.add("call", case, name, 1, {"cpu_us": cost})
    _, one, many, four = native_table(results).splitlines()
    assert one.split()[-5:] == ["rmcp-3.8.0", "0.80", "behind", "-", "-"]
    assert many.split()[-5:] == ["go-sdk-1.8.0", "1.20", "ahead", "-", "-"]
    assert four.split()[-5:] == ["rmcp-3.8.0", "1.05", "tie", "-", "-"]


def test_the_table_beside_them_shows_the_floors_and_takes_the_best_of_all_peers() -> None:
    results = Results()
    costs = {"ferrule": 10.0, "rmcp-3.8.0": 9.0, "ts-sdk-1.32.2": 8.0}
    floors = {"flat-sketch": 7.5, "eager-sketch": 6.0, "bare-loop": 4.0}
    for name, cost in {**costs, **floors}.items():
        results.add("call", "x1", name, 1, {"cpu_us": cost})
    _, one = native_table(results).splitlines()
    assert one.split()[-6:] == ["8.0", "ts-sdk-1.32.2", "0.80", "behind", "6.0", "4.0"]


def test_native_peers_are_built_by_nothing_else() -> None:
    """`make test` and `make peers` neither need cargo and go nor start them."""
    makefile = (Path(run.PROJECT) / "Makefile").read_text(encoding="utf-8")
    recipes = {text.split(":")[0]: text for text in makefile.split("\n\n")}
    assert "native" not in recipes["peers"]
    assert "native" not in recipes["test"]
    assert "$(if $(NATIVE),--native)" in makefile
