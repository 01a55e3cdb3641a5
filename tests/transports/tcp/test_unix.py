"""Sockets in the file system: made over what is dead, never over what lives, and taken away at the end."""

from __future__ import annotations

import asyncio
import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from tcp_desk import Run, make_app, serving

from ferrule import Client
from ferrule.errors import CarrierError
from ferrule.transports.tcp import listener as listener_module
from ferrule.transports.tcp.listener import Unix, identity_of, listen_unix, remove_unix


def test_a_client_calls_a_tool_over_a_unix_socket(run: Run, tmp_path: Path) -> None:
    """STDIO-12, STDIO-13: lines and lifecycle are those of stdio."""
    path = tmp_path / "mcp.sock"

    async def test() -> None:
        listener = Unix(path=str(path))
        async with serving(make_app(), listener):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            for mode in ("handshake", "auto"):
                async with Client(f"unix:{path}", mode=mode) as client:
                    assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
        assert not path.exists()

    run(test())


def test_the_permissions_of_the_socket_are_an_option(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_unix(str(path), 0o660, 10):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


def test_what_a_dead_server_left_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    listen_unix(path, 0o600, 10).close()
    with listen_unix(path, 0o600, 10), socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)


def test_a_server_that_lives_is_not_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with listen_unix(path, 0o600, 10):
        with pytest.raises(CarrierError, match="another program serves there"):
            listen_unix(path, 0o600, 10)
        with socket.socket(socket.AF_UNIX) as peer:
            peer.connect(path)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("mine")
    with pytest.raises(CarrierError, match="not a socket"):
        listen_unix(str(path), 0o600, 10)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("path", "said"), [("missing/s", "its folder does not exist"), ("x" * 300, "about 100 bytes at most")]
)
def test_a_path_where_nothing_can_be_made_is_told(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(CarrierError, match=said):
        listen_unix(str(tmp_path / path), 0o600, 10)


def test_only_our_own_socket_is_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with listen_unix(str(path), 0o600, 10):
        ours = identity_of(str(path))
        path.unlink()
        with listen_unix(str(path), 0o600, 10):
            remove_unix(str(path), ours)
            # The file system may give the number of a removed file to the next one: then it cannot be told apart.
            assert path.exists() or identity_of(str(path)) == ours
    remove_unix(str(path), ours)


def removed(path: Path) -> None:
    path.unlink()


def moved_away(path: Path) -> None:
    path.rename(path.with_suffix(".old"))


def shut_down(path: Path) -> None:
    """Shut down the listening socket of this process at a path."""
    for fd in sorted(int(name.name) for name in Path("/proc/self/fd").iterdir()):
        try:
            found = socket.socket(fileno=fd)
        except OSError:
            continue
        try:
            if found.family == socket.AF_UNIX and found.getsockname() == str(path):
                found.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue
        finally:
            found.detach()


@pytest.mark.parametrize("harm", [removed, moved_away, shut_down])
def test_a_socket_that_nobody_can_connect_to_is_bound_again(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, harm: Callable[[Path], None]
) -> None:
    """Who is connected notices nothing, and who comes next gets in."""
    monkeypatch.setattr(listener_module, "LOOK_EVERY", 0.02)
    path = tmp_path / "mcp.sock"

    async def test() -> None:
        async with serving(make_app(), Unix(path=str(path))), Client(f"unix:{path}") as before:
            harm(path)
            assert not can_connect(path)
            async with asyncio.timeout(60):
                while not can_connect(path):
                    await asyncio.sleep(0.01)
            async with Client(f"unix:{path}") as after:
                assert (await after.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert (await before.call_tool("add", {"a": 1, "b": 2})).data == 3
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.exists()

    run(test())


def can_connect(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def test_a_path_that_another_program_took_is_left_to_it(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The listener fails with a sentence, and its supervisor tries again as with any other."""
    monkeypatch.setattr(listener_module, "LOOK_EVERY", 0.02)
    path = tmp_path / "mcp.sock"

    async def test() -> None:
        ready = asyncio.Event()
        served = asyncio.ensure_future(Unix(path=str(path)).serve(make_app().host, ready.set))
        await ready.wait()
        path.unlink()
        with listen_unix(str(path), 0o600, 10):
            with pytest.raises(CarrierError, match="another program serves there"):
                await served
            assert can_connect(path)

    run(test())
