"""Build the wheel and the sdist, install the wheel into an empty environment, and try it there.

Usage: python release/dist.py [FOLDER]

FOLDER (dist/ unless told) then holds both, and `ferrule-VERSION.cdx.json`, the list of what an install brings along.
The first step that fails ends it, with what that step printed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from parts import Part, parts_of  # noqa: E402
from sbom import sbom  # noqa: E402

PROJECT = HERE.parent
NAME = "ferrule"
MOST_PACKAGES = 8
PATIENCE = 600

CALL = """
import asyncio
from ferrule import Client

async def main():
    async with Client("hello/server.py") as client:
        print((await client.call_tool("add", {"a": 1, "b": 2})).data)

asyncio.run(main())
"""


class Failed(Exception):
    """One sentence that says which step failed, and how."""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run a program to its end; return what it printed."""
    words = [str(part) for part in command]
    environment = {**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PYTHONPATH": ""}
    done = subprocess.run(
        words,
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode:
        raise Failed(f"{' '.join(words)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def require(holds: bool, sentence: str) -> None:
    """Raise Failed unless something holds."""
    if not holds:
        raise Failed(sentence)


def build(folder: Path) -> tuple[Path, Path]:
    """Build the sdist, and the wheel from it, so that both are known to be whole; return both."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    hatchling = (sys.executable, "-m", "hatchling", "build", "-d", folder.resolve())
    run(*hatchling, "-t", "sdist", cwd=PROJECT)
    [sdist] = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked, tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
        [root] = Path(unpacked).iterdir()
        run(*hatchling, "-t", "wheel", cwd=root)
    [wheel] = folder.glob("*.whl")
    return wheel, sdist


def look_into(wheel: Path) -> None:
    """Check what the wheel holds: types, licence, command, plugin, extras, and nothing else."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        told = {each.rpartition("/")[2]: each for each in names if ".dist-info/" in each}
        metadata = archive.read(told["METADATA"]).decode()
        entry_points = archive.read(told["entry_points.txt"]).decode()
    require("ferrule/py.typed" in names, "the wheel has no py.typed")
    require("LICENSE" in told, "the wheel has no licence")
    for extra in project["optional-dependencies"]:
        require(f"Provides-Extra: {extra}\n" in metadata, f"the wheel does not name the extra {extra}")
    for script in project["scripts"].items():
        require(" = ".join(script) in entry_points, f"the wheel has no command {script[0]}")
    foreign = [name for name in names if not name.startswith((f"{NAME}/", f"{NAME}-"))]
    require(not foreign, f"the wheel holds what is not ours: {foreign[:5]}")


def install(wheel: Path, folder: Path) -> dict[str, Part]:
    """Install the wheel into an empty environment; return what came along."""
    run(sys.executable, "-m", "venv", folder)
    run(folder / "bin" / "python", "-m", "pip", "install", "--quiet", wheel)
    [site] = folder.glob("lib/python*/site-packages")
    parts = parts_of(NAME, site=site)
    require(len(parts) <= MOST_PACKAGES, f"an install has {len(parts)} packages, more than {MOST_PACKAGES}")
    return parts


def try_out(wheel: Path, environment: Path, folder: Path) -> None:
    """Import it, call a server over stdio, and do what the first page of the documents says."""
    programs = environment / "bin"
    version = wheel.name.split("-")[1]
    require(version in run(programs / "ferrule", "version"), "`ferrule version` does not say which it is")
    run(programs / "ferrule", "new", "hello", cwd=folder)
    require(run(programs / "python", "-c", CALL, cwd=folder) == "3\n", "a call over stdio has not worked")
    run(programs / "python", "-m", "pip", "install", "--quiet", f"{wheel}[dev]")
    run(sys.executable, HERE / "newcomer.py", programs)


def main() -> int:
    """Build, check, install and try."""
    folder = (Path(sys.argv[1]) if len(sys.argv) > 1 else PROJECT / "dist").resolve()
    try:
        wheel, sdist = build(folder)
        look_into(wheel)
        with tempfile.TemporaryDirectory() as place:
            environment = Path(place) / "environment"
            parts = install(wheel, environment)
            try_out(wheel, environment, Path(place))
    except Failed as error:
        sys.stderr.write(f"{error}\n")
        return 1
    listed = folder / f"{NAME}-{parts[NAME].version}.cdx.json"
    listed.write_text(json.dumps(sbom(NAME, parts), indent=2) + "\n", encoding="utf-8")
    size = sum(part.size for part in parts.values()) / 1e6
    print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB; {sdist.name}: {sdist.stat().st_size / 1e6:.1f} MB")
    print(f"installed: {len(parts)} packages, {size:.1f} MB without bytecode; tried in an empty environment")
    print(f"parts: {listed.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
