"""Where tokens are kept: nobody else can read them, no writer loses what another wrote, one lock a name."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from ferrule import AuthorizationFailed, SetupError
from ferrule.auth.client import store as store_module
from ferrule.auth.client.store import (
    FileStore,
    KeyringStore,
    MemoryStore,
    TokenStore,
    config_folder,
    file_lock,
    open_store,
)


class Ring:
    """Stands for the keyring of a system."""

    priority = 5.0

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], str] = {}

    def get_password(self, service: str, name: str) -> str | None:
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        self.kept[service, name] = password

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path


@pytest.fixture(params=["memory", "file", "keyring"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> TokenStore:
    """Each kind of store."""
    if request.param == "memory":
        return MemoryStore()
    if request.param == "file":
        return FileStore(tmp_path / "tokens.json")
    return KeyringStore(Ring())


def test_a_document_takes_the_place_of_the_one_it_was_made_of_only(kept: TokenStore) -> None:
    kept.write("a", {"n": 1})
    old = kept.read("a")
    assert old is not None
    assert kept.replace("a", old, {"n": 2})
    assert not kept.replace("a", old, {"n": 3})
    assert kept.read("a") == {"n": 2}


async def test_what_is_written_is_read_changed_and_removed(kept: TokenStore) -> None:
    assert kept.read("a") is None
    kept.write("a", {"x": 1})
    kept.write("b", {"y": 2})
    kept.change("a", lambda document: document.update(z=3))
    kept.change("c", lambda document: document.update(new=True))
    assert kept.read("a") == {"x": 1, "z": 3}
    assert kept.read("c") == {"new": True}
    kept.remove("a")
    kept.remove("never there")
    assert kept.read("a") is None
    assert kept.read("b") == {"y": 2}
    async with kept.lock("a"):
        pass


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    """ACLI-19: whatever the umask is."""
    before = os.umask(0)
    try:
        store = FileStore(tmp_path / "new" / "tokens.json")
        store.write("a", {"x": 1})
    finally:
        os.umask(before)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700
    assert [path.name for path in store.path.parent.iterdir() if path.is_file()] == ["tokens.json"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o666, 0o620])
def test_a_file_others_can_reach_is_not_used(mode: int, tmp_path: Path) -> None:
    """ACLI-19: neither to read nor to write."""
    store = FileStore(tmp_path / "tokens.json")
    store.write("a", {"x": 1})
    store.path.chmod(mode)
    with pytest.raises(SetupError, match="chmod 600"):
        store.read("a")
    with pytest.raises(SetupError, match="chmod 600"):
        store.write("a", {"x": 2})


def test_a_link_in_the_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("{}")
    target.chmod(0o600)
    (tmp_path / "tokens.json").symlink_to(target)
    with pytest.raises(SetupError, match="cannot be read"):
        FileStore(tmp_path / "tokens.json").read("a")


async def test_a_link_in_the_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    """In a folder of several people another could have made the folder of the locks, and put links there."""
    target = tmp_path / "precious"
    target.write_text("precious")
    locks = tmp_path / "tokens.json.locks"
    locks.mkdir()
    for name in ("", "a"):
        (locks / f"{sha256(name.encode()).hexdigest()[:32]}.lock").symlink_to(target)
    store = FileStore(tmp_path / "tokens.json")
    with pytest.raises(SetupError, match="lock"):
        store.write("a", {"x": 1})
    with pytest.raises(SetupError, match="lock"):
        async with store.lock("a"):
            raise AssertionError("held")
    assert target.read_text() == "precious"


@pytest.mark.parametrize("text", ["", "[]", "not JSON", '{"a": '])
def test_a_file_that_holds_something_else_is_left_alone(text: str, tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(SetupError, match="move it away"):
        FileStore(path).write("a", {})
    assert path.read_text() == text


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    def work(number: int) -> None:
        FileStore(tmp_path / "tokens.json").write(f"name {number}", {"n": number})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store = FileStore(tmp_path / "tokens.json")
    assert [store.read(f"name {number}") for number in range(20)] == [{"n": number} for number in range(20)]


async def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    inside: list[int] = []

    async def work() -> None:
        async with file_lock(tmp_path, "name"):
            inside.append(1)
            assert len(inside) == 1
            await asyncio.sleep(0.02)
            inside.pop()

    await asyncio.gather(*(work() for _ in range(5)))


async def test_a_lock_that_is_never_let_go_of_is_told_and_another_name_is_free(tmp_path: Path) -> None:
    async with file_lock(tmp_path, "name"):
        async with file_lock(tmp_path, "other"):
            pass
        with pytest.raises(AuthorizationFailed, match="another process"):
            async with file_lock(tmp_path, "name", timeout=0.1):
                pass


async def test_a_process_that_dies_lets_go_of_its_lock(tmp_path: Path) -> None:
    program = (
        "import asyncio, os, sys\nfrom pathlib import Path\nfrom ferrule.auth.client.store import file_lock\n"
        "async def main():\n    async with file_lock(Path(sys.argv[1]), 'name'):\n        os._exit(9)\n"
        "asyncio.run(main())\n"
    )
    assert subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False).returncode == 9
    async with file_lock(tmp_path, "name", timeout=1.0):
        pass


def test_the_option_chooses_the_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = MemoryStore()
    assert open_store(own) is own
    assert isinstance(open_store("memory"), MemoryStore)
    file = open_store("file")
    assert isinstance(file, FileStore)
    assert file.path == config_folder() / "tokens.json"
    named = open_store(tmp_path / "mine.json")
    assert isinstance(named, FileStore)
    assert named.path == tmp_path / "mine.json"
    monkeypatch.setattr(store_module, "_keyring", lambda: None)
    assert isinstance(open_store("auto"), FileStore)
    with pytest.raises(SetupError, match="there is no keyring here"):
        open_store("keyring")
    monkeypatch.setattr(store_module, "_keyring", Ring)
    assert isinstance(open_store("auto"), KeyringStore)


@pytest.mark.parametrize(("priority", "used"), [(5.0, True), (1.0, True), (0.0, False), (-1.0, False)])
def test_a_pretended_keyring_is_none(priority: float, used: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The backends that fail or forget have no priority."""
    ring = Ring()
    ring.priority = priority
    fake: Any = type(sys)("keyring")
    fake.get_keyring = lambda: ring
    monkeypatch.setitem(sys.modules, "keyring", fake)
    assert isinstance(open_store("auto"), KeyringStore if used else FileStore)
