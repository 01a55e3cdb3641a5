"""The secrets of a proxy."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from ferrule.auth.proxy.keys import Keys, read_key_file
from ferrule.errors import SetupError

OLD, NEW = "o" * 32, b"n" * 32


def test_what_is_sealed_opens_for_its_purpose_only_and_in_time() -> None:
    keys = Keys([NEW])
    token = keys.seal("client", b"x", 100.0)
    assert keys.open("client", token, 99.0) == b"x"
    assert keys.open("client", token, 100.0) is None
    assert keys.open("vault", token, 99.0) is None
    middle = len(token) // 2
    other = "B" if token[middle] == "A" else "A"
    assert keys.open("client", token[:middle] + other + token[middle + 1 :], 99.0) is None
    assert keys.open("client", "", 99.0) is None
    assert Keys([OLD]).open("client", token, 99.0) is None


def test_secrets_change_without_a_gap() -> None:
    before, between, after = Keys([OLD]), Keys([NEW, OLD]), Keys([NEW])
    token, mac = before.seal("client", b"x"), before.mac("browser", "b")
    assert between.open("client", token, 0.0) == b"x"
    assert between.is_mac("browser", "b", mac)
    assert after.open("client", token, 0.0) is None
    assert not after.is_mac("browser", "b", mac)
    assert after.is_mac("browser", "b", between.mac("browser", "b"))


@pytest.mark.parametrize("wrong", ["", "x", "ä", "a.b"])
def test_a_mac_belongs_to_its_purpose_and_its_text(wrong: str) -> None:
    keys = Keys([NEW])
    mac = keys.mac("browser", "b")
    assert not keys.is_mac("browser", "c", mac)
    assert not keys.is_mac("client", "b", mac)
    assert not keys.is_mac("browser", "b", wrong)


def test_each_purpose_has_a_key_of_its_own() -> None:
    keys = Keys([NEW, OLD])
    made = [*keys.derived("a"), *keys.derived("b")]
    assert len(set(made)) == 4
    assert NEW not in made


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(SetupError, match="too short"):
        Keys(["short"])


def test_a_key_file_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    made = read_key_file(path)
    assert len(made) == 1
    assert len(made[0]) == 43
    assert read_key_file(path) == made
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_key_file_may_hold_several(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(f"{'n' * 32}\n{OLD}\n")
    path.chmod(0o600)
    assert read_key_file(path) == ["n" * 32, OLD]


def test_a_key_file_that_others_may_read_or_that_is_empty_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_text(OLD)
    path.chmod(0o644)
    with pytest.raises(SetupError, match="chmod 600"):
        read_key_file(path)
    path.chmod(0o600)
    path.write_text("")
    with pytest.raises(SetupError, match="is empty"):
        read_key_file(path)
    with pytest.raises(SetupError, match="cannot be used"):
        read_key_file(tmp_path / "nowhere" / "keys")
