"""What a peer of an older revision gets: nothing its revision does not have, and nothing lost that it can say."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from msgspec import Raw

from ferrule.errors import CapabilityNotSupported, InvalidRequest, UrlElicitationRequired
from ferrule.protocol.handshake import REVISIONS
from ferrule.protocol.stateless import REVISIONS as STATELESS_REVISIONS
from ferrule.protocol.trims import old_message, plain_form, plain_property, single_content
from ferrule.schema.content import (
    AudioContent,
    EmbeddedResource,
    ImageContent,
    ResourceContents,
    ResourceLink,
    TextContent,
)
from ferrule.schema.lifecycle import ListCapability, ResourcesCapability, ServerCapabilities
from ferrule.schema.model import (
    Annotations,
    ClientCapabilities,
    ElicitationCapability,
    Icon,
    Implementation,
    RootsCapability,
    SamplingCapability,
)
from ferrule.schema.notices import ProgressParams
from ferrule.schema.prompts import GetPromptResult, ListPromptsResult, Prompt, PromptArgument, PromptMessage
from ferrule.schema.resources import (
    ListResourcesResult,
    ListResourceTemplatesResult,
    PlainContents,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
)
from ferrule.schema.sampling import CreateMessageResult
from ferrule.schema.tools import CallToolResult, ListToolsResult, PlainResult, Tool, ToolAnnotations

R1, R2, R3, R4, R5 = VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
ALL = {**REVISIONS, **STATELESS_REVISIONS}

ICONS = [Icon(src="https://x/i.png", mime_type="image/png", sizes=["any"], theme="dark")]
NOTED = Annotations(audience=["user"], priority=0.5, last_modified="2025-01-01T00:00:00Z")
META = {"com.example/x": 1}
OBJECT = {"type": "object", "properties": {}}


def sent(version: str, value: Any) -> Any:
    """A value as a peer of this revision gets it."""
    before = msgspec.json.encode(value)
    written = msgspec.json.decode(msgspec.json.encode(ALL[version].trim(value)))
    assert msgspec.json.encode(value) == before, "the original is shared and must not change"
    return written


def since(first: str, *names: str) -> dict[str, set[str]]:
    """Which of these members each revision has, when they came with this one."""
    return {version: set(names) if version >= first else set() for version in VERSIONS}


class TestTools:
    TOOL = Tool(
        name="t",
        title="T",
        description="d",
        input_schema={"type": "object", "x-odd": [1], "$defs": {}},
        output_schema=OBJECT,
        annotations=ToolAnnotations(read_only_hint=True),
        execution={"taskSupport": "optional"},
        icons=ICONS,
        meta=META,
    )
    MEMBERS = (
        (R1, set()),
        (R2, {"annotations"}),
        (R3, {"annotations", "title", "outputSchema", "_meta"}),
        (R4, {"annotations", "title", "outputSchema", "_meta", "icons", "execution"}),
        (R5, {"annotations", "title", "outputSchema", "_meta", "icons"}),
    )

    @pytest.mark.parametrize(("version", "extra"), MEMBERS)
    def test_a_tool_has_the_members_of_its_revision(self, version: str, extra: set[str]) -> None:
        """TOOL-3 ICON-1 META-1: hints from R2, titles, output schemas and metadata from R3, icons from R4."""
        (tool,) = sent(version, ListToolsResult(tools=[self.TOOL]))["tools"]
        assert tool.keys() == {"name", "description", "inputSchema"} | extra

    @pytest.mark.parametrize("version", VERSIONS)
    def test_the_input_schema_is_never_touched(self, version: str) -> None:
        """TOOL-4 SCH-5: every keyword stays."""
        (tool,) = sent(version, ListToolsResult(tools=[self.TOOL]))["tools"]
        assert tool["inputSchema"] == self.TOOL.input_schema

    MOVED = (
        ({"type": "array"}, {"type": "array"}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}},
            {"type": "array", "items": {"$ref": "#/$defs/n"}},
        ),
    )

    @pytest.mark.parametrize(("schema", "inner"), MOVED)
    def test_an_output_schema_without_an_object_at_its_root_is_put_under_result(self, schema: Any, inner: Any) -> None:
        """TOOL-5: from 2026 on it stands as it is; before output schemas there is none."""
        tool = Tool(name="t", input_schema=OBJECT, output_schema=schema)
        listed = {version: sent(version, ListToolsResult(tools=[tool]))["tools"][0] for version in VERSIONS}
        assert listed[R5]["outputSchema"] == schema
        for version in (R3, R4):
            shown = dict(listed[version]["outputSchema"])
            assert shown.pop("$defs", None) == schema.get("$defs")
            assert shown.pop("x-fastmcp-wrap-result") is True
            assert shown == {"type": "object", "properties": {"result": inner}, "required": ["result"]}
        assert not {"outputSchema"} & (listed[R1].keys() | listed[R2].keys())

    UNMOVABLE = (
        {"anyOf": [{"type": "object"}]},
        {},
        {"type": ["object", "null"]},
        {"type": "array", "items": {"$ref": "#"}},
        {"type": "array", "$id": "urn:x"},
    )

    @pytest.mark.parametrize("schema", UNMOVABLE)
    def test_an_output_schema_that_cannot_be_put_there_shows_from_2026_on(self, schema: Any) -> None:
        """TOOL-5: its values may be objects already, or it points to its own root."""
        tool = Tool(name="t", input_schema=OBJECT, output_schema=schema)
        listed = {version: sent(version, ListToolsResult(tools=[tool]))["tools"][0] for version in VERSIONS}
        assert [version for version in VERSIONS if "outputSchema" in listed[version]] == [R5]

    RESULTS = (
        ({"a": 1}, {"a": 1}),
        (Raw(b' {"a":1}'), {"a": 1}),
        ({}, {}),
        ([1], {"result": [1]}),
        (Raw(b"[1]"), {"result": [1]}),
        ("text", {"result": "text"}),
        (0, {"result": 0}),
        (False, {"result": False}),
    )

    @pytest.mark.parametrize(("value", "rooted"), RESULTS)
    def test_structured_content_is_an_object_where_it_must_be(self, value: Any, rooted: Any) -> None:
        """spec:TOOL-10: objects in R3 and R4, any value in R5, none before; the text stays everywhere."""
        result = CallToolResult(content=[TextContent("t")], structured_content=value, is_error=True)
        written = {version: sent(version, result) for version in VERSIONS}
        assert [written[version].get("structuredContent") for version in (R1, R2)] == [None, None]
        assert [written[version]["structuredContent"] for version in (R3, R4)] == [rooted, rooted]
        assert written[R5]["structuredContent"] == (json.loads(bytes(value)) if isinstance(value, Raw) else value)
        for version in VERSIONS:
            assert written[version]["content"] == [{"type": "text", "text": "t"}]
            assert written[version]["isError"] is True


BLOCKS = [
    TextContent("t", annotations=NOTED, meta=META),
    ImageContent("aQ==", "image/png", annotations=NOTED, meta=META),
    AudioContent("aQ==", "audio/wav", annotations=NOTED, meta=META),
    EmbeddedResource(ResourceContents(uri="a://b", text="x", meta=META), annotations=NOTED, meta=META),
    ResourceLink("a://b", "n", title="N", description="d", size=5, annotations=NOTED, icons=ICONS, meta=META),
]


class TestContent:
    TYPES = (
        (R1, ["text", "image", "resource", "resource", "text"]),
        (R2, ["text", "image", "audio", "resource", "text"]),
        (R3, ["text", "image", "audio", "resource", "resource_link"]),
        (R4, ["text", "image", "audio", "resource", "resource_link"]),
        (R5, ["text", "image", "audio", "resource", "resource_link"]),
    )

    @pytest.mark.parametrize(("version", "types"), TYPES)
    def test_every_block_is_said_with_the_types_of_the_revision(self, version: str, types: list[str]) -> None:
        """spec:TOOL-12 PROMPT-4: no audio before R2, no links before R3, in results and in prompts."""
        content = sent(version, CallToolResult(content=BLOCKS))["content"]
        assert [block["type"] for block in content] == types
        prompt = GetPromptResult(messages=[PromptMessage(role="user", content=block) for block in BLOCKS])
        assert [message["content"] for message in sent(version, prompt)["messages"]] == content

    @pytest.mark.parametrize("version", VERSIONS)
    def test_metadata_dates_and_icons_of_blocks_came_later(self, version: str) -> None:
        """META-1 RES-11 spec:TOOL-12 ICON-1: `_meta` and lastModified with R3, icons with R4."""
        content = sent(version, CallToolResult(content=BLOCKS))["content"]
        for block in content:
            assert ("_meta" in block) is (version >= R3)
            assert ("lastModified" in block.get("annotations", {})) is (version >= R3)
            if "resource" in block and block["resource"]["uri"] == "a://b":
                assert ("_meta" in block["resource"]) is (version >= R3)
        assert ("icons" in content[4]) is (version >= R4)

    @pytest.mark.parametrize("version", [R1, R2])
    def test_the_audience_of_a_block_stays(self, version: str) -> None:
        """RES-11: only the date is new."""
        content = sent(version, CallToolResult(content=BLOCKS[:2]))["content"]
        assert content[0]["annotations"] == {"audience": ["user"], "priority": 0.5}

    def test_sound_becomes_a_resource_and_a_link_becomes_text(self) -> None:
        """spec:TOOL-12: the content is not lost."""
        sound, link = (sent(R1, CallToolResult(content=[block]))["content"][0] for block in (BLOCKS[2], BLOCKS[4]))
        assert sound["resource"] == {"uri": "data:audio/wav", "mimeType": "audio/wav", "blob": "aQ=="}
        assert link == {"type": "text", "text": "N: a://b"}

    def test_a_link_without_a_title_is_told_by_its_name(self) -> None:
        content = sent(R2, CallToolResult(content=[ResourceLink("a://b", "n")]))["content"]
        assert content == [{"type": "text", "text": "n: a://b"}]


class TestLists:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_resources_and_templates_have_the_members_of_their_revision(self, version: str) -> None:
        """RES-2 TMPL-1 ICON-1 RES-11: titles and metadata with R3, icons with R4, dates with R3."""
        shared = {"title": "T", "description": "d", "mime_type": "text/plain", "annotations": NOTED, "icons": ICONS}
        resource = Resource(uri="a://b", name="n", size=7, meta=META, **shared)
        template = ResourceTemplate(uri_template="a://{b}", name="n", meta=META, **shared)
        added = since(R3, "title", "_meta")[version] | since(R4, "icons")[version]
        (listed,) = sent(version, ListResourcesResult(resources=[resource]))["resources"]
        assert listed.keys() == {"uri", "name", "description", "mimeType", "size", "annotations"} | added
        assert ("lastModified" in listed["annotations"]) is (version >= R3)
        (listed,) = sent(version, ListResourceTemplatesResult(resource_templates=[template]))["resourceTemplates"]
        assert listed.keys() == {"uriTemplate", "name", "description", "mimeType", "annotations"} | added

    @pytest.mark.parametrize("version", VERSIONS)
    def test_prompts_and_their_arguments_have_the_members_of_their_revision(self, version: str) -> None:
        """PROMPT-2 ICON-1: titles with R3, on arguments too."""
        arguments = [PromptArgument(name="a", title="A", description="d", required=True)]
        prompt = Prompt(name="p", title="P", description="d", arguments=arguments, icons=ICONS, meta=META)
        (listed,) = sent(version, ListPromptsResult(prompts=[prompt]))["prompts"]
        added = since(R3, "title", "_meta")[version] | since(R4, "icons")[version]
        assert listed.keys() == {"name", "description", "arguments"} | added
        assert listed["arguments"][0].keys() == {"name", "description", "required"} | since(R3, "title")[version]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_prompts_without_arguments_have_none(self, version: str) -> None:
        assert sent(version, ListPromptsResult(prompts=[Prompt(name="p")]))["prompts"] == [{"name": "p"}]

    @pytest.mark.parametrize("version", VERSIONS)
    def test_hints_on_a_read_resource_are_for_the_stateless_era(self, version: str) -> None:
        """RES-3 META-1 CACHE-1: an author may give them; older revisions have no such members."""
        contents = [ResourceContents(uri="a://b", text="x", meta=META)]
        written = sent(version, ReadResourceResult(contents=contents, ttl_ms=5, cache_scope="public"))
        assert written.keys() == {"contents"} | since(R5, "ttlMs", "cacheScope")[version]
        assert ("_meta" in written["contents"][0]) is (version >= R3)


class TestDeclarations:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_an_implementation_has_the_members_of_its_revision(self, version: str) -> None:
        """LIFE-2 ICON-1: a title with R3, the rest with R4."""
        full = Implementation(name="n", version="1", title="T", description="d", website_url="https://x", icons=ICONS)
        added = since(R3, "title")[version] | since(R4, "description", "websiteUrl", "icons")[version]
        assert sent(version, full).keys() == {"name", "version"} | added

    SERVER = ServerCapabilities(
        tools=ListCapability(list_changed=True),
        resources=ResourcesCapability(subscribe=True, list_changed=False),
        prompts=ListCapability(),
        completions={},
        logging={},
        tasks={"list": {}},
        experimental={"x": {}},
        extensions={"com.example/x": {}},
    )

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_servers_capabilities_have_the_shape_of_their_revision(self, version: str) -> None:
        """CAP-1 CAPN-02: completions from R2, tasks in R4 only, extensions in R5."""
        declared = sent(version, self.SERVER)
        tasks = {"tasks"} if version == R4 else set()
        added = since(R2, "completions")[version] | since(R5, "extensions")[version] | tasks
        assert declared.keys() == {"tools", "resources", "prompts", "logging", "experimental"} | added
        assert declared["resources"] == {"subscribe": True, "listChanged": False}
        assert declared["prompts"] == {}

    @pytest.mark.parametrize("version", VERSIONS)
    def test_a_clients_capabilities_have_the_shape_of_their_revision(self, version: str) -> None:
        """CAP-2 CAPN-01: elicitation from R3, kinds of it and of sampling from R4, tasks in R4, extensions in R5."""
        full = ClientCapabilities(
            roots=RootsCapability(list_changed=True),
            sampling=SamplingCapability(tools={}, context={}),
            elicitation=ElicitationCapability(form={}, url={}),
            tasks={"list": {}},
            experimental={"x": {}},
            extensions={"com.example/x": {}},
        )
        declared = sent(version, full)
        tasks = {"tasks"} if version == R4 else set()
        added = since(R3, "elicitation")[version] | since(R5, "extensions")[version] | tasks
        assert declared.keys() == {"roots", "sampling", "experimental"} | added
        assert declared["sampling"].keys() == since(R4, "tools", "context")[version]
        assert declared.get("elicitation", {}).keys() == since(R4, "form", "url")[version]

    def test_a_client_of_urls_only_offers_no_elicitation_to_2025_06_18(self) -> None:
        """CAP-2 ELIC-1: there it would mean forms."""
        assert sent(R3, ClientCapabilities(elicitation=ElicitationCapability(url={}))) == {}
        assert sent(R3, ClientCapabilities(elicitation=ElicitationCapability())) == {"elicitation": {}}

    @pytest.mark.parametrize("version", VERSIONS)
    def test_declaring_nothing_stays_nothing(self, version: str) -> None:
        """CAPN-03: whatever the revision."""
        assert sent(version, ServerCapabilities()) == {}
        assert sent(version, ClientCapabilities()) == {}


class TestSampling:
    NOTED = {"type": "text", "text": "a", "_meta": META, "annotations": {"priority": 1, "lastModified": "now"}}  # noqa: RUF012

    def test_what_messages_got_later_is_left_out(self) -> None:
        """`_meta` of messages before 2025-11-25, metadata and dates of blocks before 2025-06-18."""
        message = {"role": "user", "content": self.NOTED, "_meta": META}
        assert old_message(message, before_metadata=False) == {"role": "user", "content": self.NOTED}
        assert old_message(message, before_metadata=True) == {
            "role": "user",
            "content": {"type": "text", "text": "a", "annotations": {"priority": 1}},
        }
        bare = {"role": "user", "content": {"type": "text", "text": "a"}}
        assert old_message(bare, before_metadata=True) == bare
        listed = {"role": "user", "content": [self.NOTED]}
        assert old_message(listed, before_metadata=True) == listed

    def test_a_message_held_one_block(self) -> None:
        block = {"type": "text", "text": "a"}
        single = {"role": "user", "content": block}
        assert single_content(single) is single
        assert single_content({"role": "user", "content": [block]}) == single
        for content in ([], [block, block]):
            with pytest.raises(CapabilityNotSupported, match="one content block"):
                single_content({"role": "user", "content": content})

    ANSWERS = (
        ([TextContent("a"), TextContent("b")], {"type": "text", "text": "a\nb"}),
        ([TextContent("a")], {"type": "text", "text": "a"}),
        (TextContent("a"), {"type": "text", "text": "a"}),
        ([], {"type": "text", "text": ""}),
        (
            [ImageContent(data="AA==", mime_type="image/png"), TextContent("a")],
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
        ),
    )

    @pytest.mark.parametrize(("content", "block"), ANSWERS)
    @pytest.mark.parametrize("version", [R1, R2, R3])
    def test_an_answer_was_one_block(self, version: str, content: Any, block: Any) -> None:
        result = CreateMessageResult(role="assistant", content=content, model="m")
        assert sent(version, result)["content"] == block

    def test_an_answer_of_the_newest_revision_stays_a_list(self) -> None:
        result = CreateMessageResult(role="assistant", content=[TextContent("a"), TextContent("b")], model="m")
        assert len(sent(R4, result)["content"]) == 2

    @pytest.mark.parametrize("version", VERSIONS[:4])
    def test_sound_in_an_answer_stays_sound(self, version: str) -> None:
        """An answer has no place for a resource."""
        sound = AudioContent(data="AA==", mime_type="audio/wav")
        result = CreateMessageResult(role="assistant", content=sound, model="m")
        assert sent(version, result)["content"]["type"] == "audio"

    def test_metadata_of_an_answer_came_with_2025_06_18(self) -> None:
        result = CreateMessageResult(role="assistant", content=TextContent("a", meta=META), model="m")
        assert "_meta" in sent(R3, result)["content"]
        assert "_meta" not in sent(R2, result)["content"]


class TestForms:
    def test_a_plain_form_has_single_choices_and_defaults_of_booleans(self) -> None:
        schema = {
            "$schema": "x",
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l"}], "default": "s"},
                "gift": {"type": "boolean", "default": True},
                "count": {"type": "integer", "default": 1, "minimum": 0},
            },
        }
        assert plain_form({"mode": "form", "message": "?", "requestedSchema": schema}) == {
            "message": "?",
            "requestedSchema": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "l"]},
                    "gift": {"type": "boolean", "default": True},
                    "count": {"type": "integer", "minimum": 0},
                },
            },
        }

    def test_a_plain_form_has_no_lists_and_no_urls(self) -> None:
        with pytest.raises(CapabilityNotSupported, match="the field 'tags'"):
            plain_property("tags", {"type": "array"})
        with pytest.raises(CapabilityNotSupported) as lacking:
            plain_form({"mode": "url", "message": "?"})
        assert lacking.value.capability == "elicitation.url"


@pytest.mark.parametrize("version", [R1, R2, R3])
def test_a_refusal_without_a_number_in_a_revision_is_an_invalid_request(version: str) -> None:
    trimmed = ALL[version].trim(UrlElicitationRequired())
    assert type(trimmed) is InvalidRequest
    assert (trimmed.message, trimmed.data) == (UrlElicitationRequired().message, UrlElicitationRequired().data)
    assert type(ALL[R4].trim(UrlElicitationRequired())) is UrlElicitationRequired


@pytest.mark.parametrize("version", VERSIONS[:4])
def test_a_result_that_was_written_ahead_is_the_same_result(version: str) -> None:
    plain = PlainResult(b'"content":[{"type":"text","text":"7"}],"structuredContent":{"result":7}', 7)
    assert sent(version, plain) == sent(version, plain.whole())
    contents = PlainContents(b'"contents":[{"uri":"a://b","mimeType":"text/plain","text":"x"}]')
    text = ResourceContents(uri="a://b", mime_type="text/plain", text="x")
    assert sent(version, contents) == sent(version, ReadResourceResult(contents=[text]))


@pytest.mark.parametrize("version", VERSIONS)
def test_the_message_of_progress_came_with_2025_03_26(version: str) -> None:
    """PROG-2"""
    said = sent(version, ProgressParams(progress_token=1, progress=0.5, message="half"))
    assert said.get("message") == (None if version == R1 else "half")
