"""The wheel and the sdist hold what they should; `make dist` tries them in an empty environment."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import dist

LONG = bool(os.environ.get("FERRULE_LONG"))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return dist.build(tmp_path_factory.mktemp("release") / "dist")


def test_the_wheel_is_built_from_the_sdist_and_is_whole(built: tuple[Path, Path]) -> None:
    wheel, sdist = built
    dist.look_into(wheel)
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("ferrule/")}
    source = dist.PROJECT / "src"
    files = {path.relative_to(source).as_posix() for path in (source / "ferrule").rglob("*.py")}
    assert files <= packed
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names


@pytest.mark.parametrize("missing", ["py.typed", "LICENSE", "entry_points.txt"])
def test_a_wheel_that_lacks_something_is_refused(built: tuple[Path, Path], tmp_path: Path, missing: str) -> None:
    spoilt = tmp_path / "spoilt.whl"
    with zipfile.ZipFile(built[0]) as whole, zipfile.ZipFile(spoilt, "w") as archive:
        for name in whole.namelist():
            if not name.endswith(missing):
                archive.writestr(name, whole.read(name))
    with pytest.raises((dist.Failed, KeyError)):
        dist.look_into(spoilt)


@pytest.mark.skipif(not LONG, reason="installs from a package registry: `make dist`, and with FERRULE_LONG=1")
def test_make_dist_builds_installs_and_tries_it(tmp_path: Path) -> None:
    command = [sys.executable, str(dist.HERE / "dist.py"), str(tmp_path / "dist")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert "8 packages" in done.stdout


DOCKERFILE = (dist.HERE / "Dockerfile").read_text(encoding="utf-8")


def test_the_image_is_made_of_the_wheel_runs_without_root_and_tells_its_health() -> None:
    lines = DOCKERFILE.replace("\\\n", " ").splitlines()
    steps = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    said = dict(steps)
    assert [rest for word, rest in steps if word == "COPY"] == ["dist/*.whl /tmp/"]
    sent = (dist.PROJECT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert [line for line in sent if not line.startswith("#")] == ["*", "!dist/*.whl"]
    assert said["USER"] == "10001"
    assert "/readyz" in said["HEALTHCHECK"]
    assert said["CMD"] == '["ferrule", "run", "server.py", "--transport", "http"]'
    # Whoever runs as root from here on would be seen.
    assert [word for word, _ in steps].index("USER") < [word for word, _ in steps].index("CMD")
