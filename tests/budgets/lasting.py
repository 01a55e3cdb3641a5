"""Whether something goes on for so long; and the certificate of a server that is tried with TLS."""

from __future__ import annotations

import asyncio
import ssl
import sys
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "transports"))

from certificates import write_certificate


async def lasts_longer(work: Awaitable[Any], seconds: float) -> bool:
    """Return whether something has not come to its end after so many seconds, however it ends."""
    task = asyncio.ensure_future(work)
    await asyncio.wait([task], timeout=seconds)
    still = not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return still


@contextmanager
def tls() -> Iterator[tuple[dict[str, str], ssl.SSLContext]]:
    """Give the options of a listener with a certificate, and the context of a peer that trusts it."""
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = write_certificate(Path(folder))
        yield {"certificate": certificate, "private_key": key}, ssl.create_default_context(cafile=certificate)
