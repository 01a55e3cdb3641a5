"""A folder of skills: what is found in it, what is refused, and what cannot be reached through it."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from ferrule.errors import SetupError
from ferrule.schema.skills import MOST_FILES
from ferrule.server.extensions.skill_folder import Folder, Found, read_file
from ferrule.validation.yaml_scalars import Malformed

LIMIT = 10_000


def write(folder: Path, path: str, content: str | bytes = "x") -> Path:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def skill(folder: Path, path: str, more: str = "") -> Path:
    name = path.rpartition("/")[2]
    return write(folder, f"{path}/SKILL.md", f"---\nname: {name}\ndescription: About {name}\n{more}---\nDo it.\n")


def look(folder: Path, prefix: str = "", limit: int = LIMIT) -> Found:
    return Folder(folder, prefix, limit).find({})


def test_every_folder_with_a_skill_file_is_a_skill_with_all_its_files(tmp_path):
    skill(tmp_path, "refunds", "license: MIT\n")
    write(tmp_path, "refunds/examples/e mail.md", "Dear")
    write(tmp_path, "refunds/logo.png", b"\x89PNG\xff")
    write(tmp_path, "README.md")
    found = look(tmp_path)
    (entry,) = found.skills.values()
    assert entry.uri == "skill://refunds/SKILL.md"
    assert entry.frontmatter == {"name": "refunds", "description": "About refunds", "license": "MIT"}
    assert [(file.uri, file.size) for file in entry.resources] == [
        ("skill://refunds/SKILL.md", len((tmp_path / "refunds/SKILL.md").read_bytes())),
        ("skill://refunds/logo.png", 5),
        ("skill://refunds/examples/e%20mail.md", 4),
    ]
    assert entry.resources[2].digest == "sha256:" + hashlib.sha256(b"Dear").hexdigest()
    assert found.files.keys() == {file.uri for file in entry.resources}


def test_skills_may_stand_in_folders_and_in_one_another(tmp_path):
    skill(tmp_path, "acme/billing/refunds")
    skill(tmp_path, "acme/billing/refunds/partial")
    found = look(tmp_path, prefix="/team/a b/")
    outer, inner = found.skills.values()
    assert outer.uri == "skill://team/a%20b/acme/billing/refunds/SKILL.md"
    assert inner.uri == "skill://team/a%20b/acme/billing/refunds/partial/SKILL.md"
    assert inner.uri in {file.uri for file in outer.resources}
    assert {file.uri for file in inner.resources} == {inner.uri}


def test_a_folder_may_be_a_skill_itself(tmp_path):
    skill(tmp_path, "refunds")
    assert list(look(tmp_path / "refunds").skills) == ["skill://refunds/SKILL.md"]


def test_a_directory_has_its_direct_children(tmp_path):
    skill(tmp_path, "refunds")
    write(tmp_path, "refunds/a/b/c.txt")
    (tmp_path / "refunds/empty").mkdir()
    folders = look(tmp_path).folders
    assert {uri: [(child.name, child.mime_type) for child in children] for uri, children in folders.items()} == {
        "skill://refunds": [
            ("a", "inode/directory"),
            ("empty", "inode/directory"),
            ("refunds", "text/markdown"),
        ],
        "skill://refunds/a": [("b", "inode/directory")],
        "skill://refunds/a/b": [("c.txt", "text/plain")],
        "skill://refunds/empty": [],
    }


def test_what_is_hidden_and_what_leads_out_is_not_there(tmp_path):
    home, outside = tmp_path / "home", tmp_path / "outside"
    skill(home, "refunds")
    secret = write(outside, "secret.md", "secret")
    skill(outside, "foreign")
    for hidden in (".env", ".git/config", "__pycache__/a.pyc"):
        write(home, f"refunds/{hidden}")
    (home / "refunds/link.md").symlink_to(secret)
    (home / "refunds/up").symlink_to(outside)
    (home / "stranger").symlink_to(outside / "foreign")
    (home / "refunds/gone.txt").symlink_to(outside / "nowhere")
    (home / "refunds/round").symlink_to(home / "refunds/round")
    (home / "refunds/same.md").symlink_to(home / "refunds/SKILL.md")
    found = look(home)
    assert found.files.keys() == {"skill://refunds/SKILL.md", "skill://refunds/same.md"}
    assert found.files["skill://refunds/same.md"].path == (home / "refunds/SKILL.md").resolve()


def test_a_pipe_is_no_file(tmp_path):
    skill(tmp_path, "refunds")
    os.mkfifo(tmp_path / "refunds/pipe")
    assert look(tmp_path).files.keys() == {"skill://refunds/SKILL.md"}
    with pytest.raises(Malformed, match="not a regular file"):
        read_file(tmp_path / "refunds/pipe", LIMIT)


def test_a_link_put_where_a_file_was_is_not_followed(tmp_path):
    secret = write(tmp_path, "secret.md")
    (tmp_path / "file.md").symlink_to(secret)
    with pytest.raises(OSError, match="symbolic link"):
        read_file(tmp_path / "file.md", LIMIT)


def test_a_link_put_where_a_folder_was_is_not_followed(tmp_path):
    """The file of the same name behind it is somebody else's."""
    write(tmp_path, "secrets/notes.md")
    (tmp_path / "skill").mkdir()
    (tmp_path / "skill" / "docs").symlink_to(tmp_path / "secrets")
    with pytest.raises(Malformed, match="behind a link"):
        read_file(tmp_path.resolve() / "skill" / "docs" / "notes.md", LIMIT)


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        ("refunds", "no front matter", "does not begin with front matter"),
        ("refunds", "---\nname: Refunds\ndescription: x\n---\n", "single hyphens inside"),
        ("re--funds", "---\nname: re--funds\ndescription: x\n---\n", "single hyphens inside"),
        ("refunds", "---\nname: 7\ndescription: x\n---\n", "its name is 7"),
        ("refunds", "---\nname: other\ndescription: x\n---\n", "'other' and its folder is 'refunds'"),
        ("refunds", "---\nname: refunds\n---\n", "its description"),
        ("refunds", "---\nname: refunds\ndescription: ' '\n---\n", "its description"),
        ("refunds", f"---\nname: refunds\ndescription: {'x' * 1025}\n---\n", "its description"),
        ("refunds", "---\nname: a: b\n---\n", "put it in quotes"),
    ],
)
def test_what_is_no_skill_says_why_and_is_not_served(tmp_path, path, text, why):
    write(tmp_path, f"{path}/SKILL.md", text)
    skill(tmp_path, "good")
    found = look(tmp_path)
    assert list(found.skills) == ["skill://good/SKILL.md"]
    assert list(found.files) == ["skill://good/SKILL.md"]
    assert why in found.faults[f"skill://{path}/SKILL.md"]


def test_a_file_that_is_too_large_keeps_its_skill_out(tmp_path):
    skill(tmp_path, "refunds")
    write(tmp_path, "refunds/big", b"x" * 101)
    found = look(tmp_path, limit=100)
    assert not found.skills
    assert "larger than 100 bytes" in found.faults["skill://refunds/SKILL.md"]


def test_a_skill_has_as_many_files_as_every_host_must_take(tmp_path):
    skill(tmp_path, "refunds")
    for number in range(MOST_FILES - 1):
        write(tmp_path, f"refunds/{number}")
    assert look(tmp_path).skills
    write(tmp_path, "refunds/more")
    assert "at most 512" in look(tmp_path).faults["skill://refunds/SKILL.md"]


def test_a_folder_that_is_not_there_is_told(tmp_path):
    with pytest.raises(SetupError, match="there is no folder"):
        Folder(tmp_path / "skils", "", LIMIT)


def test_a_file_that_seems_unchanged_is_not_read_again(tmp_path):
    place = skill(tmp_path, "refunds")
    first = look(tmp_path)
    again = Folder(tmp_path, "", LIMIT).find(first.files)
    assert again.files["skill://refunds/SKILL.md"] is first.files["skill://refunds/SKILL.md"]
    place.write_text(place.read_text() + "More.\n")
    changed = Folder(tmp_path, "", LIMIT).find(first.files)
    assert changed.files["skill://refunds/SKILL.md"].digest != first.files["skill://refunds/SKILL.md"].digest
