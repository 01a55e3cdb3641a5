"""Listening sockets in the file system: made over what a dead server left, never over what lives."""

from __future__ import annotations

import errno
import socket
import stat
from contextlib import suppress
from pathlib import Path

from ferrule.errors import CarrierError


def listen_unix(path: str, mode: int, backlog: int) -> socket.socket:
    """Open a listening socket at a path; raises CarrierError."""
    _make_room(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listening.setblocking(False)
        # Nobody can connect before `listen`, so the permissions are right from the first moment that counts.
        listening.bind(path)
        Path(path).chmod(mode)
        listening.listen(backlog)
    except OSError as error:
        listening.close()
        raise CarrierError(f"cannot listen on unix:{path}: {_explain(error)}") from error
    return listening


def remove_unix(path: str, identity: tuple[int, int]) -> None:
    """Remove a socket's file, unless another has taken its place."""
    with suppress(OSError):
        if identity_of(path) == identity:
            Path(path).unlink()


def identity_of(path: str) -> tuple[int, int]:
    """Tell which file a path names now."""
    found = Path(path).stat()
    return found.st_dev, found.st_ino


def _make_room(path: str) -> None:
    """Remove what a dead server left; refuses to touch anything else."""
    try:
        kind = Path(path).lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(kind):
        raise CarrierError(f"cannot listen on unix:{path}: there is a file of this name that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        # Only a refusal proves that nobody listens; a full backlog or a lack of rights does not.
        if probe.connect_ex(path) == errno.ECONNREFUSED:
            with suppress(OSError):
                Path(path).unlink()
            return
    raise CarrierError(f"cannot listen on unix:{path}: another program serves there; stop it or choose another path")


def _explain(error: OSError) -> str:
    if error.errno is None:
        return f"{error}; the system takes paths of about 100 bytes at most"
    if error.errno == errno.ENOENT:
        return "its folder does not exist; make it first"
    if error.errno in {errno.EACCES, errno.EPERM}:
        return "not permitted; choose a folder you may write to"
    return error.strerror or str(error)
