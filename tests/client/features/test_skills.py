"""Skills on the client's side: nothing is read ahead, and nothing is used that its entry does not vouch for."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from ferrule import Client
from ferrule.errors import CapabilityNotSupported, ContentMismatch, PeerError
from ferrule.schema.skills import SKILLS

ROOT = "skill://refunds"
MAIN = f"{ROOT}/SKILL.md"
MAIL = f"{ROOT}/examples/e%20mail.md"
TEXTS = {MAIN: "---\nname: refunds\ndescription: Money back\nversion: 1.0\n---\nDo it.\n", MAIL: "Dear"}
FRONT = {"name": "refunds", "description": "Money back", "version": 1}
HINTS = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}


def entry(texts: dict[str, str] = TEXTS, **changed: Any) -> dict[str, Any]:
    resources = [
        {"uri": uri, "digest": "sha256:" + hashlib.sha256(text.encode()).hexdigest(), "size": len(text.encode())}
        for uri, text in texts.items()
    ]
    return {"uri": MAIN, "frontmatter": FRONT, "resources": resources, **changed}


@pytest.fixture
def skilled(raw, era):
    """A server with one skill, whose entry and texts a test chooses."""

    def make(skill: dict[str, Any], texts: dict[str, str] = TEXTS, settings: Any = None) -> Any:
        def read(request: dict[str, Any]) -> dict[str, Any]:
            uri = request["params"]["uri"]
            return {"contents": [{"uri": uri, "text": texts[uri]}], **HINTS}

        server = raw(
            era,
            {
                "skills/list": {"skills": [skill], **HINTS},
                "skills/get": {"skill": skill, **HINTS},
                "resources/read": read,
                "resources/directory/read": {"resources": [{"uri": MAIL, "name": "e mail.md"}], **HINTS},
            },
            capabilities={"resources": {}, "extensions": {SKILLS: settings if settings is not None else {}}},
        )
        return server, Client(server, mode=era)

    return make


def asked(server: Any) -> list[Any]:
    return list(server.sent("resources/read"))


async def test_listing_reads_nothing(skilled):
    server, client = skilled(entry())
    async with client:
        (skill,) = await client.list_skills()
        assert (skill.name, skill.description, skill.root) == ("refunds", "Money back", ROOT)
        assert asked(server) == []
        loaded = await client.load_skill(skill)
        assert len(asked(server)) == 1
        assert loaded.instructions == "Do it.\n"
        assert (await loaded.read("examples/e mail.md")).text == "Dear"
        assert (await loaded.read("./examples/../examples/e mail.md")).text == "Dear"
        assert (await client.read_skill_file(loaded, MAIL)).text == "Dear"


async def test_a_skill_is_loaded_by_its_uri_alone(skilled):
    _, client = skilled(entry())
    async with client:
        assert (await client.load_skill(MAIN)).text == TEXTS[MAIN]


@pytest.mark.parametrize(
    ("served", "why"),
    [
        (TEXTS[MAIN].replace("Do it", "Do no"), "digest"),
        (TEXTS[MAIN] + "more", "bytes where its entry says"),
    ],
)
async def test_a_text_that_is_not_what_the_entry_says_is_not_used(skilled, served, why):
    _, client = skilled(entry(), {**TEXTS, MAIN: served})
    async with client:
        with pytest.raises(ContentMismatch, match=why):
            await client.load_skill(MAIN)


@pytest.mark.parametrize(
    "front",
    [
        {**FRONT, "description": "Steal"},
        {"name": "refunds", "description": "Money back"},
        {**FRONT, "allowed-tools": "Bash"},
        {**FRONT, "version": True},
        {**FRONT, "version": "1.0"},
    ],
)
async def test_front_matter_that_differs_in_any_field_is_not_used(skilled, front):
    _, client = skilled(entry(frontmatter=front))
    async with client:
        with pytest.raises(ContentMismatch, match="front matter"):
            await client.load_skill(MAIN)


async def test_a_file_the_entry_does_not_list_is_not_read(skilled):
    server, client = skilled(entry())
    async with client:
        loaded = await client.load_skill(MAIN)
        before = len(asked(server))
        for path in ("new.md", "../other/SKILL.md", "/etc/passwd", "skill://other/SKILL.md", "file:///etc/passwd"):
            with pytest.raises(ContentMismatch):
                await loaded.read(path)
        assert len(asked(server)) == before


async def test_a_skill_without_digests_is_loaded_only_by_who_accepts_that(skilled, monkeypatch):
    server, client = skilled(entry(resources="dynamic"))
    async with client:
        with pytest.raises(ContentMismatch, match="dynamic=True"):
            await client.load_skill(MAIN)
        assert asked(server) == []
        loaded = await client.load_skill(MAIN, dynamic=True)
        assert (await loaded.read(MAIL)).text == "Dear"
        with pytest.raises(ContentMismatch, match="not inside"):
            await loaded.read("skill://other/SKILL.md")
        monkeypatch.setattr("ferrule.client.features.skills.MOST_BYTES", 10)
        with pytest.raises(ContentMismatch, match="more than 10 bytes"):
            await loaded.read(MAIL)


async def test_a_skill_beyond_what_hosts_must_take_is_told_before_anything_is_read(skilled):
    huge = [{"uri": MAIN, "digest": "sha256:0", "size": 2**24 + 1}]
    many = [{"uri": f"{ROOT}/{n}", "digest": "sha256:0", "size": 1} for n in range(513)]
    for resources in (huge, many):
        server, client = skilled(entry(resources=resources))
        async with client:
            with pytest.raises(ContentMismatch, match="at most 512"):
                await client.load_skill(MAIN)
            assert asked(server) == []


async def test_bytes_are_checked_as_bytes(skilled):
    picture = b"\x89PNG\xff"
    uri = f"{ROOT}/logo.png"
    texts = dict(TEXTS)
    skill = entry(texts)
    skill["resources"].append(
        {"uri": uri, "digest": "sha256:" + hashlib.sha256(picture).hexdigest(), "size": len(picture)}
    )
    server, client = skilled(skill)
    read = server.answers["resources/read"]
    blobs = iter([base64.b64encode(picture).decode(), "not base64!"])

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        if request["params"]["uri"] != uri:
            return read(request)
        return {"contents": [{"uri": uri, "blob": next(blobs)}], **HINTS}

    server.answers["resources/read"] = answer
    async with client:
        loaded = await client.load_skill(MAIN)
        assert (await loaded.read("logo.png")).blob == picture
        with pytest.raises(ContentMismatch, match="base64"):
            await loaded.read("logo.png")


async def test_several_contents_are_not_one_file(skilled):
    server, client = skilled(entry())
    server.answers["resources/read"] = {"contents": [], **HINTS}
    async with client:
        with pytest.raises(ContentMismatch, match="0 contents"):
            await client.load_skill(MAIN)


@pytest.mark.parametrize("skill", [{"uri": MAIN, "frontmatter": FRONT}, entry(resources="some"), entry(frontmatter=1)])
async def test_a_malformed_entry_is_no_entry(skilled, skill):
    _, client = skilled(skill)
    async with client:
        with pytest.raises(Exception, match="malformed"):
            await client.list_skills()


async def test_directories_are_read_where_the_server_says_so(skilled):
    _, client = skilled(entry())
    async with client:
        with pytest.raises(CapabilityNotSupported, match="directories"):
            await client.read_directory(ROOT)
    server, client = skilled(entry(), settings={"directoryRead": True})
    async with client:
        assert [child.name for child in await client.read_directory(ROOT)] == ["e mail.md"]
    assert server.received[-1]["params"]["uri"] == ROOT


async def test_a_server_without_the_extension_is_not_asked(raw, refused, era):
    server = raw(era, {"skills/list": refused(-32601)})
    async with Client(server, mode=era) as client:
        for deed in (client.list_skills, lambda: client.get_skill(MAIN), lambda: client.read_directory(ROOT)):
            with pytest.raises(CapabilityNotSupported, match="skills extension"):
                await deed()
    async with Client(server, mode=era, strict=False) as client:
        with pytest.raises(PeerError):
            await client.list_skills()
