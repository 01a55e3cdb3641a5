"""The Skills extension on the server's side: listed with digests, read as resources, changes noticed; in both eras.

Proves: SEP-2640 as the conformance suite does not: paging, changes, mistakes, the handshake era.
"""

from __future__ import annotations

import asyncio
import hashlib
from pathlib import Path
from typing import Any

import pytest

from ferrule import PeerError, Server, SetupError
from ferrule.schema.skills import SKILLS
from ferrule.server.extensions.skills import Skills
from ferrule.testing import pair

HOST = "skill://refunds"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    put(tmp_path, "refunds/SKILL.md", "---\nname: refunds\ndescription: Money back\n---\nDo it.\n")
    put(tmp_path, "refunds/examples/mail.md", "Dear customer")
    (tmp_path / "refunds/logo.png").write_bytes(b"\x89PNG\xff")
    return tmp_path


def put(folder: Path, path: str, text: str) -> None:
    place = folder / path
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)


def serving(folder: Path, **options: Any) -> Server:
    app = Server("skilled")
    app.skills(folder, **{"watch": None, **options})
    return app


async def refused(client: Any, method: str, uri: str) -> int:
    with pytest.raises(PeerError) as caught:
        await client.request(method, {"uri": uri})
    return int(caught.value.code)


class TestServing:
    """What a client gets."""

    async def test_a_server_declares_the_extension_and_resources(self, era, folder):
        async with pair(serving(folder), era) as client:
            assert client.extension(SKILLS) == {"directoryRead": True}
            assert client.server_capabilities.resources is not None
        async with pair(serving(folder, directory_read=False), era) as client:
            assert client.extension(SKILLS) == {}
            assert await refused(client, "resources/directory/read", HOST) == -32601

    async def test_an_empty_folder_is_served_too(self, era, tmp_path):
        async with pair(serving(tmp_path), era) as client:
            assert await client.list_skills() == []
            assert client.server_capabilities.resources is not None

    async def test_an_entry_names_every_file_with_digest_and_size(self, era, folder):
        async with pair(serving(folder), era) as client:
            listed = await client.request("skills/list")
            got = await client.request("skills/get", {"uri": f"{HOST}/SKILL.md"})
        (skill,) = listed["skills"]
        assert got["skill"] == skill
        assert skill["frontmatter"] == {"name": "refunds", "description": "Money back"}
        assert {
            file["uri"].removeprefix(f"{HOST}/"): (file["digest"], file["size"]) for file in skill["resources"]
        } == {
            name: ("sha256:" + hashlib.sha256(content).hexdigest(), len(content))
            for name in ("SKILL.md", "examples/mail.md", "logo.png")
            for content in [(folder / "refunds" / name).read_bytes()]
        }
        hints = {"ttlMs", "cacheScope"} if era == "stateless" else set()
        for result in (listed, got):
            assert result.keys() & {"ttlMs", "cacheScope"} == hints

    async def test_files_are_read_as_they_are(self, era, folder):
        async with pair(serving(folder), era) as client:
            text = await client.read_resource(f"{HOST}/examples/mail.md")
            assert (text.text, text.contents[0].mime_type) == ("Dear customer", "text/markdown")
            picture = await client.read_resource(f"{HOST}/logo.png")
            assert (picture.blob, picture.contents[0].mime_type) == (b"\x89PNG\xff", "image/png")
            (listed,) = await client.list_resources()
            assert (listed.name, listed.description, listed.mime_type) == ("refunds", "Money back", "text/markdown")

    @pytest.mark.parametrize(
        "uri",
        [
            f"{HOST}/nothing.md",
            f"{HOST}/../secret.md",
            f"{HOST}/%2e%2e/secret.md",
            f"{HOST}/examples/../../secret.md",
            f"{HOST}/..%2fsecret.md",
            "skill:///etc/passwd",
            "skill://secret.md",
            f"{HOST}/SKILL.md/",
            f"{HOST}/SKILL.md%00",
        ],
    )
    async def test_no_uri_leads_out_of_the_folder(self, era, folder, uri):
        put(folder, "secret.md", "secret")
        async with pair(serving(folder), era) as client:
            code = await refused(client, "resources/read", uri)
        assert code == (-32602 if era == "stateless" else -32002)

    async def test_what_is_no_skill_and_no_directory_is_refused(self, era, folder):
        async with pair(serving(folder), era) as client:
            for uri in (HOST, f"{HOST}/examples/mail.md", "skill://other/SKILL.md"):
                assert await refused(client, "skills/get", uri) == -32602
            for uri in (f"{HOST}/SKILL.md", f"{HOST}/", "skill://other", "file:///etc"):
                assert await refused(client, "resources/directory/read", uri) == -32602

    async def test_lists_come_in_pages(self, era, folder):
        put(folder, "returns/SKILL.md", "---\nname: returns\ndescription: Goods back\n---\n")
        app = Server("skilled", page_size=1)
        app.skills(folder, watch=None)
        async with pair(app, era) as client:
            assert [skill.name for skill in await client.list_skills()] == ["refunds", "returns"]
            assert [each.name for each in await client.read_directory(HOST)] == ["examples", "refunds", "logo.png"]
            assert (await client.request("skills/list"))["nextCursor"]

    async def test_two_servers_may_share_the_skills(self, era, folder):
        skills = Skills(folder, watch=None)
        for name in ("one", "other"):
            app = Server(name)
            app.extend(skills)
            async with pair(app, era) as client:
                result = await client.request("skills/list")
                assert len(result["skills"]) == 1
                if era == "stateless":
                    assert result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == name


class TestChanges:
    """What happens on disk is noticed."""

    async def test_a_change_is_told_and_shown(self, era, folder):
        app = serving(folder, watch=0.02)
        heard: asyncio.Queue[Any] = asyncio.Queue()
        async with pair(app, era) as client:
            client.on_notification("notifications/resources/list_changed", heard)
            await client.watch_lists("resources")
            async with client.subscribe(f"{HOST}/examples/mail.md") as changes:
                before = await client.get_skill(f"{HOST}/SKILL.md")
                put(folder, "refunds/examples/mail.md", "Dear friend")
                assert await anext(aiter(changes)) == f"{HOST}/examples/mail.md"
                assert await client.get_skill(f"{HOST}/SKILL.md") != before
            put(folder, "returns/SKILL.md", "---\nname: returns\ndescription: Goods back\n---\n")
            await heard.get()
            while len(await client.list_skills()) < 2:
                await asyncio.sleep(0.01)
            assert len(await client.list_resources()) == 2

    async def test_a_file_that_changed_since_is_read_with_its_new_entry(self, era, folder):
        async with pair(serving(folder), era) as client:
            put(folder, "refunds/examples/mail.md", "Dear friend")
            assert (await client.read_resource(f"{HOST}/examples/mail.md")).text == "Dear friend"
            skill = await client.get_skill(f"{HOST}/SKILL.md")
            loaded = await client.load_skill(skill)
            assert (await loaded.read("examples/mail.md")).text == "Dear friend"

    async def test_a_skill_that_went_bad_is_left_out_and_told_of(self, era, folder, caplog):
        app = serving(folder)
        skills = app.host.extensions[SKILLS]
        async with pair(app, era) as client:
            put(folder, "refunds/SKILL.md", "nothing")
            assert await skills.refresh()
            assert await client.list_skills() == []
            assert await client.list_resources() == []
            assert "does not begin with front matter" in caplog.text
            assert not await skills.refresh()

    async def test_a_file_that_went_away_is_not_found(self, era, folder):
        async with pair(serving(folder), era) as client:
            (folder / "refunds/examples/mail.md").unlink()
            assert await refused(client, "resources/read", f"{HOST}/examples/mail.md") in (-32602, -32002)
            assert len((await client.get_skill(f"{HOST}/SKILL.md")).resources) == 2

    async def test_a_link_put_in_a_files_place_is_not_followed(self, era, folder):
        put(folder, "secret.md", "secret")
        async with pair(serving(folder), era) as client:
            (folder / "refunds/examples/mail.md").unlink()
            (folder / "refunds/examples/mail.md").symlink_to(folder.parent / "elsewhere.md")
            assert await refused(client, "resources/read", f"{HOST}/examples/mail.md") in (-32602, -32002)


class TestMistakes:
    """Wrong use is told when it is made."""

    def test_a_bad_skill_is_told_with_its_fault(self, folder):
        put(folder, "refunds/SKILL.md", "---\nname: return\ndescription: x\n---\n")
        with pytest.raises(SetupError, match="'return' and its folder is 'refunds'"):
            Server("x").skills(folder)

    def test_the_same_skill_in_two_folders_is_told(self, folder):
        with pytest.raises(SetupError, match="in two folders"):
            Skills(folder, folder)

    @pytest.mark.parametrize(("options", "why"), [({"watch": 0}, "watch"), ({"max_file_size": 0}, "max_file_size")])
    def test_options_have_bounds(self, folder, options, why):
        with pytest.raises(SetupError, match=why):
            Skills(folder, **options)

    def test_a_folder_is_named(self):
        with pytest.raises(SetupError, match="name the folder"):
            Skills()

    def test_skills_are_offered_once(self, folder):
        app = serving(folder)
        with pytest.raises(SetupError, match="joined this server already"):
            app.skills(folder)

    def test_a_wrong_folder_is_not_read_for_minutes(self, folder, monkeypatch):
        monkeypatch.setattr("ferrule.server.extensions.skill_folder.MOST_ENTRIES", 2)
        with pytest.raises(SetupError, match="the right folder"):
            Skills(folder)
