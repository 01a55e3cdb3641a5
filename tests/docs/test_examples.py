"""The examples run as real processes and say what they should."""

from __future__ import annotations

from pathlib import Path

import doc_pages
import pytest

EXAMPLES = doc_pages.PROJECT / "examples"

SAYS = {
    "hello_client.py": [
        "protocol: 2026-07-28",
        "tools: add",
        "1 + 2 = 3",
        "refused: Invalid arguments for the tool add",
    ],
    "asking.py": [
        "the handler was entered 1 time(s), the card charged 1 time(s)",
        "the handler was entered 3 time(s), the card charged 1 time(s)",
    ],
    "long_job.py": ["counted to 3; was told: at 1, at 2, at 3", "called off", "too slow"],
    "changes.py": ["written in the handshake era", "written in the stateless era"],
    "over_http.py": [
        "protocol 2025-11-25; booked Rome: row 12, window (receipt-Rome-12); packed map; packed hat",
        "protocol 2026-07-28; booked Oslo: row 12, window (receipt-Oslo-12); packed map; packed hat",
    ],
    "tour.py": [
        "over stdio, protocol 2025-11-25",
        "over stdio, protocol 2026-07-28",
        "Rome: row 12, window",
        "both generations at once",
        "Done: one server, one client",
    ],
}
ARGUMENTS = {"tour.py": ["200"]}
SERVERS = {"hello_server.py", "demo_server.py"}


def test_every_example_is_run_and_listed():
    files = {path.name for path in EXAMPLES.glob("*.py")}
    assert files == {*SAYS, *SERVERS}
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert [name for name in files if f"`{name}`" not in page] == []


@pytest.mark.parametrize("name", SAYS)
def test_an_example_ends_well_and_says_what_it_should(name: str, tmp_path: Path):
    done = doc_pages.run([str(EXAMPLES / name), *ARGUMENTS.get(name, ())], tmp_path)
    assert done.returncode == 0, done.stderr
    assert [line for line in SAYS[name] if line not in done.stdout] == []
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", sorted(SERVERS))
def test_an_example_server_ends_when_its_input_ends(name: str, tmp_path: Path):
    done = doc_pages.run([str(EXAMPLES / name)], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
