"""Room for tests that have many connections open at once."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def many_files(wanted: int) -> Iterator[None]:
    """Let this process, and those it starts, have so many files open for a while; skips where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 < hard < wanted:
        pytest.skip(f"the system lets a process have {hard} files open, and this needs {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted) if soft > 0 else soft, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
