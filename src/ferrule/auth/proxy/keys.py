"""The secrets of a proxy: what it seals, signs and derives with. Each purpose has a key of its own.

Rule: the first secret seals and signs, all of them open and verify, so that secrets can be changed without a gap.
"""

from __future__ import annotations

import hmac
import os
import stat
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from ferrule.errors import SetupError
from ferrule.protocol.seal import NONCE_SIZE, Expired, Keyring, Seal, Tampered

SECRET_SIZE = 32
LARGEST_SEALED = 256 * 1024
"""Characters of what is sealed: the tokens of a provider come in up to 64 KiB of JSON, beside one that was kept."""
OWNER_ONLY = 0o600
NEVER = float("inf")


class Keys:
    """What is sealed for others to carry, and what is signed; both by purpose."""

    def __init__(self, secrets: Sequence[str | bytes]) -> None:
        self._seal = Seal(Keyring(secrets), LARGEST_SEALED)
        self._secrets: list[bytes] = []
        for secret in secrets:
            self._secrets.append(secret.encode() if isinstance(secret, str) else bytes(secret))

    def seal(self, purpose: str, payload: bytes, expires: float = NEVER) -> str:
        """Return a token that only we can read, and that opens for the same purpose only."""
        return self._seal.seal(payload, binding=purpose.encode(), expires=expires, nonce=os.urandom(NONCE_SIZE))

    def open(self, purpose: str, token: str, now: float) -> bytes | None:
        """Return what was sealed; None for what is not ours, for another purpose, or too old."""
        try:
            return self._seal.open(token, binding=purpose.encode(), now=now)
        except (Tampered, Expired):
            return None

    def derived(self, purpose: str) -> list[bytes]:
        """Return a key of each secret for one purpose, the newest first."""
        label = f"ferrule proxy {purpose}".encode()
        return [hmac.digest(secret, label, "sha256") for secret in self._secrets]

    def mac(self, purpose: str, text: str) -> str:
        """Return what only we can compute of a text."""
        return encoded(hmac.digest(self.derived(purpose)[0], text.encode(), "sha256"))

    def is_mac(self, purpose: str, text: str, given: str) -> bool:
        """Return whether one of our secrets has made this of the text; takes the same time for every wrong guess."""
        found = False
        for key in self.derived(purpose):
            made = encoded(hmac.digest(key, text.encode(), "sha256"))
            if hmac.compare_digest(made.encode(), given.encode()):
                found = True
        return found


def encoded(raw: bytes) -> str:
    """Return bytes in base64url without padding (RFC 7515 §2)."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def random_text() -> str:
    """Return 256 bits nobody can guess."""
    return encoded(os.urandom(32))


def digest(text: str) -> str:
    """Return what stands for a secret where it is kept or compared: its SHA-256."""
    return encoded(sha256(text.encode()).digest())


def read_key_file(path: str | Path) -> list[str]:
    """Return the secrets in a file, one a line, the newest first; a file that is not there is made with a new one."""
    path = Path(path).expanduser()
    try:
        _make(path)
        mode = stat.S_IMODE(path.stat().st_mode)
        lines = path.read_text(encoding="ascii").split()
    except (OSError, UnicodeDecodeError) as reason:
        raise SetupError(f"the key file {path} cannot be used: {reason}") from None
    if os.name == "posix" and mode & 0o077:
        raise SetupError(f"the key file {path} can be read by others: run chmod 600 {path}")
    if not lines:
        raise SetupError(f"the key file {path} is empty: write a secret of at least {SECRET_SIZE} characters into it")
    return lines


def _make(path: Path) -> None:
    """Write a new secret, unless there is a file; of several processes that start at once, one does."""
    if path.exists():
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, OWNER_ONLY)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{random_text()}\n")
            file.flush()
            os.fsync(file.fileno())
        # A link appears whole or not at all, and never in the place of another file.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
