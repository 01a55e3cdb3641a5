"""The reasons of skips are told in one line each."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parent
SAMPLE = """
import pytest

@pytest.mark.parametrize("n", range(3))
def test_one(n):
    pytest.skip("nothing to see")

@pytest.mark.skipif(True, reason="not today")
def test_two(): ...

def test_three(): ...
"""


def test_each_reason_is_told_once_with_its_count(tmp_path: Path) -> None:
    (tmp_path / "test_sample.py").write_text(SAMPLE)
    for name in ("conftest.py", "nobody_left.py"):
        (tmp_path / name).write_text((TESTS / name).read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout
    told = [line.split(maxsplit=1) for line in done.stdout.partition("by reason")[2].splitlines()[1:3]]
    assert told == [["3", "nothing to see"], ["1", "not today"]]
