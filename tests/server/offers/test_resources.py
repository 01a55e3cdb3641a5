"""Resources and templates: what a URI leads to, what a read gives, and how it fails."""

import asyncio
import base64
from types import SimpleNamespace
from typing import Annotated, Any, Literal

import pytest

from ferrule import Context, Middleware, PeerError, Server, SetupError, ToolError
from ferrule.errors import InvalidParams, ResourceNotFound, UrlElicitationRequired
from ferrule.protocol.handshake import REVISIONS
from ferrule.schema.content import ResourceContents
from ferrule.schema.lifecycle import ResourcesCapability, ServerCapabilities
from ferrule.schema.model import Annotations, Icon
from ferrule.schema.resources import ReadResourceResult, Resource
from ferrule.server.offers import resources as resources_module
from ferrule.server.offers.resource_entry import FixedUri
from ferrule.testing import pair

NAMES_OF_BAD = ["nan", "infinity", "object", "half a character"]
NOT_FOUND = {"handshake": -32002, "stateless": -32602}


def notes(**options: Any) -> Server:
    app = Server("notes", **options)

    @app.resource("notes://today", mime_type="text/markdown", description="What is up today")
    async def today() -> str:
        return "# Today"

    @app.resource("notes://{id}")
    async def note(id: int) -> str:  # noqa: A002
        return f"note {id}"

    return app


class TestReading:
    """What a read gives."""

    @pytest.mark.parametrize(
        ("value", "contents"),
        [
            ("text", [{"mimeType": "text/plain", "text": "text"}]),
            ("", [{"mimeType": "text/plain", "text": ""}]),
            (b"\x00\xff", [{"mimeType": "application/octet-stream", "blob": base64.b64encode(b"\x00\xff").decode()}]),
            ({"a": [1, 2]}, [{"mimeType": "application/json", "text": '{"a":[1,2]}'}]),
            ([1, 2], [{"mimeType": "application/json", "text": "[1,2]"}]),
            (
                ["a", b"b"],
                [{"mimeType": "text/plain", "text": "a"}, {"mimeType": "application/octet-stream", "blob": "Yg=="}],
            ),
        ],
        ids=str,
    )
    async def test_a_value_becomes_contents_with_a_mime_type(self, era, wire, value, contents):
        """RES-3, RSRC-07"""
        app = Server("values")
        app.add_resource("x://y", lambda: value)

        @app.resource("x://awaited")
        async def awaited() -> Any:
            return value

        async with wire(app, era) as peer:
            result = (await peer.request("resources/read", {"uri": "x://y"}))["result"]
            result_of_awaited = (await peer.request("resources/read", {"uri": "x://awaited"}))["result"]
        assert result["contents"] == [{"uri": "x://y", **part} for part in contents]
        assert result_of_awaited == {**result, "contents": [{"uri": "x://awaited", **part} for part in contents]}

    async def test_a_given_mime_type_wins(self, era):
        """RSRC-07, TMPL-2"""
        app = Server("typed")
        app.add_resource("x://html", lambda: "<p>", mime_type="text/html")
        app.add_resource("x://png/{n}", lambda n: b"\x89PNG", mime_type="image/png")
        async with pair(app, era) as client:
            assert (await client.read_resource("x://html")).contents[0].mime_type == "text/html"
            picture = await client.read_resource("x://png/1")
        assert (picture.contents[0].mime_type, picture.blob) == ("image/png", b"\x89PNG")

    async def test_contents_and_whole_results_go_out_as_they_are(self, era):
        """RES-3, META-1"""
        parts = [
            ResourceContents(uri="x://a", mime_type="text/csv", text="1,2", meta={"com.example/rows": 1}),
            ResourceContents(uri="x://b", blob="AAE="),
        ]
        app = Server("parts")
        app.add_resource("x://parts", lambda: parts)
        app.add_resource("x://whole", lambda: ReadResourceResult(contents=parts, meta={"com.example/k": 1}))
        async with pair(app, era) as client:
            assert (await client.read_resource("x://parts")).contents == parts
            for _ in range(2):
                whole = await client.read_resource("x://whole")
                assert whole.contents == parts
                assert whole.meta["com.example/k"] == 1

    async def test_the_handler_sees_exactly_the_uri_asked_for(self, era):
        """RSRC-06"""
        app = Server("echo")
        app.add_resource("echo://one", lambda uri: uri)
        app.add_resource("echo://many/{name}", lambda name, uri: f"{name} {uri}")
        async with pair(app, era) as client:
            assert (await client.read_resource("echo://one")).text == "echo://one"
            assert (await client.read_resource("echo://many/%C3%A4")).text == "ä echo://many/%C3%A4"

    async def test_an_exact_uri_wins_over_a_template(self, era):
        """RSRC-05"""
        app = Server("order")
        app.add_resource("notes://{name}", lambda name: "template")
        app.add_resource("notes://today", lambda: "exact")
        async with pair(app, era) as client:
            assert (await client.read_resource("notes://today")).text == "exact"
            assert (await client.read_resource("notes://other")).text == "template"

    async def test_a_resource_may_ask_for_its_context(self, era):
        app = Server("context")

        @app.resource("x://who/{name}")
        async def who(name: str, ctx: Context) -> str:
            return f"{name} asks {ctx.server.name} for {ctx.client.name}"

        async with pair(app, era, name="tester") as client:
            assert (await client.read_resource("x://who/me")).text == "me asks context for tester"

    async def test_a_hundred_clients_read_a_hundred_times(self, era):
        """RSRC-16, GUAR-07"""
        app = notes()

        async def read_often(number: int) -> None:
            async with pair(app, era) as client:
                uris = [f"notes://{number * 1000 + at}" for at in range(100)]
                texts = await asyncio.gather(*(client.read_resource(uri) for uri in uris))
                assert [part.text for part in texts] == [f"note {uri[8:]}" for uri in uris]

        await asyncio.gather(*(read_often(number) for number in range(100)))
        assert not app.host.links


class TestTemplates:
    """What matches a template, and what its handler gets."""

    async def test_variables_are_read_into_the_handlers_types(self, era):
        """TMPL-01, TMPL-06"""
        app = Server("typed")
        seen = []

        @app.resource("shop://{shelf}/items/{id}{?full}")
        async def item(shelf: Literal["a", "b"], id: int, full: bool = False) -> str:  # noqa: A002
            seen.append((shelf, id, full))
            return "ok"

        async with pair(app, era) as client:
            await client.read_resource("shop://a/items/7")
            await client.read_resource("shop://b/items/8?full=true")
            with pytest.raises(PeerError, match="Invalid URI") as caught:
                await client.read_resource("shop://c/items/nine")
        assert seen == [("a", 7, False), ("b", 8, True)]
        assert caught.value.code == -32602
        assert caught.value.data == {"uri": "shop://c/items/nine"}

    async def test_only_the_last_variable_takes_slashes(self, era):
        """C-70: `{path}` takes slashes at the end of a template, `{+path}` everywhere, any other up to a slash."""
        app = Server("paths")
        app.add_resource("file:///{path}", lambda path: path)
        app.add_resource("user://{name}/profile", lambda name: name)
        app.add_resource("tree://{+branch}/leaf", lambda branch: branch)
        async with pair(app, era) as client:
            assert (await client.read_resource("file:///app/config.json")).text == "app/config.json"
            assert (await client.read_resource("user://alice/profile")).text == "alice"
            assert (await client.read_resource("tree://a/b/c/leaf")).text == "a/b/c"
            with pytest.raises(PeerError) as caught:
                await client.read_resource("user://alice/bob/profile")
        assert caught.value.not_found

    @pytest.mark.parametrize("path", ["../etc/passwd", "a/../../b", "%2e%2e/secret", "a/%2E%2E/b", "..%2Fb", "..\\b"])
    async def test_a_path_that_climbs_out_never_reaches_the_handler(self, era, path):
        """RES-6"""
        app = Server("files")
        seen = []
        app.add_resource("file:///{path}", lambda path: seen.append(path) or "leaked")
        async with pair(app, era) as client:
            with pytest.raises(PeerError) as caught:
                await client.read_resource(f"file:///{path}")
        assert caught.value.code in {-32002, -32602}
        assert not seen

    async def test_the_first_template_that_matches_wins(self, era):
        """TMPL-08"""
        app = Server("order")
        app.add_resource("x://{name}", lambda name: "first")
        app.add_resource("x://{other}", lambda other: "second")
        async with pair(app, era) as client:
            assert (await client.read_resource("x://a")).text == "first"
            app.remove_resource("x://{name}")
            assert (await client.read_resource("x://a")).text == "second"

    async def test_templates_are_listed_apart_from_resources(self, era):
        """TMPL-07, TMPL-1, SPEC-09"""
        app = notes()
        app.add_resource(
            "pics://{n}", lambda n: b"", name="pics", title="Pictures", mime_type="image/png", meta={"com.example/a": 1}
        )
        async with pair(app, era) as client:
            templates = await client.list_resource_templates()
            resources = await client.list_resources()
        assert [template.uri_template for template in templates] == ["notes://{id}", "pics://{n}"]
        assert [template.name for template in templates] == ["note", "pics"]
        assert (templates[1].title, templates[1].mime_type, templates[1].meta) == (
            "Pictures",
            "image/png",
            {"com.example/a": 1},
        )
        assert templates[0].mime_type is None
        assert [resource.uri for resource in resources] == ["notes://today"]


class TestFailures:
    """A read that fails."""

    async def test_an_unknown_uri_is_not_found_in_the_number_of_the_era(self, era):
        """RES-4, RES-5, RSRC-08, ERRC-08, ERR-3"""
        async with pair(notes(), era) as client:
            with pytest.raises(PeerError, match="Resource not found: other://x") as caught:
                await client.read_resource("other://x")
        assert (caught.value.code, caught.value.data) == (NOT_FOUND[era], {"uri": "other://x"})
        assert caught.value.not_found

    @pytest.mark.parametrize("version", REVISIONS)
    async def test_every_handshake_revision_has_the_same_number(self, wire, version):
        """RES-4, ERRC-08"""
        async with wire(notes(), version=version) as peer:
            assert (await peer.request("resources/read", {"uri": "other://x"}))["error"]["code"] == -32002

    async def test_a_handler_may_say_that_there_is_no_such_thing(self, era):
        """RES-4"""
        app = Server("sparse")

        @app.resource("notes://{id}")
        async def note(id: str) -> str:  # noqa: A002
            raise ResourceNotFound(f"notes://{id}")

        async with pair(app, era) as client:
            with pytest.raises(PeerError) as caught:
                await client.read_resource("notes://9")
        assert (caught.value.code, caught.value.data) == (NOT_FOUND[era], {"uri": "notes://9"})

    @pytest.mark.parametrize("uri", ["::::", "no-scheme", "", "1bad://x", "//host/path"])
    async def test_a_malformed_uri_is_invalid(self, era, uri):
        """RSRC-15, ERRC-14, RES-7"""
        async with pair(notes(), era) as client:
            with pytest.raises(PeerError, match="Invalid URI") as caught:
                await client.read_resource(uri)
        assert (caught.value.code, caught.value.data) == (-32602, {"uri": uri})

    async def test_params_without_uri_are_refused(self, era, wire):
        """ERRC-04, ERRC-21"""
        async with wire(notes(), era) as peer:
            error = (await peer.request("resources/read", {}))["error"]
        assert error["code"] == -32602
        assert "uri" in error["data"]["details"]

    @pytest.mark.parametrize("is_async", [True, False], ids=["async", "thread"])
    async def test_a_failing_handler_is_masked_and_the_next_read_works(self, era, is_async, caplog):
        """RSRC-09, RES-4"""
        app = notes()

        def broken() -> str:
            raise ToolError("secret text")

        async def broken_async() -> str:
            return broken()

        app.add_resource("notes://broken/x", broken_async if is_async else broken)
        async with pair(app, era) as client:
            with pytest.raises(PeerError, match="Internal error") as caught:
                await client.read_resource("notes://broken/x")
            assert (await client.read_resource("notes://today")).text == "# Today"
        assert caught.value.code == -32603
        assert "secret" not in str(caught.value)
        [record] = [record for record in caplog.records if caught.value.data["reference"] in record.getMessage()]
        assert record.exc_info[1].message == "secret text"

    @pytest.mark.parametrize("value", [float("nan"), {"a": float("inf")}, object(), "\ud800"], ids=NAMES_OF_BAD)
    async def test_a_value_json_cannot_say_fails_that_read_only(self, era, value):
        app = notes()
        app.add_resource("bad://value", lambda: value)

        @app.resource("bad://awaited")
        async def awaited() -> Any:
            return value

        async with pair(app, era) as client:
            for uri in ("bad://value", "bad://awaited"):
                with pytest.raises(PeerError, match=r"Internal error|cannot be written"):
                    await client.read_resource(uri)
            assert (await client.read_resource("notes://1")).text == "note 1"

    async def test_a_server_without_resources_has_no_such_methods(self, era, wire):
        """ERRC-11, CAPN-09, CAPN-10"""
        async with wire(Server("empty"), era) as peer:
            for method in ("resources/list", "resources/templates/list", "resources/read"):
                error = (await peer.request(method, {"uri": "x://y"}))["error"]
                assert (error["code"], error["data"]) == (-32601, {"capability": "resources"})

    async def test_a_declared_but_empty_server_lists_nothing_and_finds_nothing(self, era, wire):
        """RES-1"""
        app = Server("empty", capabilities=ServerCapabilities(resources=ResourcesCapability()))
        async with wire(app, era) as peer:
            assert (await peer.request("resources/list"))["result"]["resources"] == []
            assert (await peer.request("resources/templates/list"))["result"]["resourceTemplates"] == []
            assert (await peer.request("resources/read", {"uri": "x://y"}))["error"]["code"] == NOT_FOUND[era]

    async def test_the_erlmcp_profile_has_numbers_of_its_own(self, wire):
        """ERRC-08, ERRC-14, ERRC-11"""
        async with wire(notes(error_profile="erlmcp")) as peer:
            assert (await peer.request("resources/read", {"uri": "other://x"}))["error"]["code"] == -32001
            assert (await peer.request("resources/read", {"uri": "::::"}))["error"]["code"] == -32022
            assert (await peer.request("prompts/list"))["error"]["code"] == -32004


class TestListing:
    """What a client is told about resources."""

    async def test_a_resource_is_listed_with_all_that_was_said_about_it(self, era):
        """RSRC-01, RSRC-04, RES-2, RES-11, SPEC-17, ICON-1"""
        about = Annotations(audience=["user", "assistant"], priority=1.0, last_modified="2026-01-01T00:00:00Z")
        icon = Icon(src="data:image/png;base64,AA==", mime_type="image/png")
        app = Server("full")
        app.add_resource(
            "file:///srv",
            lambda: "",
            name="srv",
            title="ServedChannel",
            description="All of it",
            mime_type="inode/directory",
            size=4096,
            annotations=about,
            icons=[icon],
            meta={"com.example/a": 1},
        )
        async with pair(app, era) as client:
            [listed] = await client.list_resources()
        assert (listed.uri, listed.name, listed.title) == ("file:///srv", "srv", "ServedChannel")
        assert (listed.description, listed.mime_type, listed.size) == ("All of it", "inode/directory", 4096)
        assert (listed.annotations, listed.icons, listed.meta) == (about, [icon], {"com.example/a": 1})

    @pytest.mark.parametrize(
        ("version", "absent"),
        [
            ("2025-11-25", set()),
            ("2025-06-18", {"icons"}),
            ("2025-03-26", {"icons", "title", "_meta"}),
            ("2024-11-05", {"icons", "title", "_meta"}),
        ],
    )
    async def test_a_revision_sees_only_the_members_it_has(self, wire, version, absent):
        """RES-2, TMPL-1"""
        app = Server("full")
        said = {"title": "T", "icons": [Icon(src="x:y")], "meta": {"a": 1}, "annotations": Annotations(priority=0.1)}
        app.add_resource("x://y", lambda: "", **said)
        app.add_resource("x://{y}", lambda y: "", **said)
        async with wire(app, version=version) as peer:
            [listed] = (await peer.request("resources/list"))["result"]["resources"]
            [template] = (await peer.request("resources/templates/list"))["result"]["resourceTemplates"]
        assert listed.keys() == {"uri", "name", "title", "icons", "_meta", "annotations"} - absent
        assert template.keys() == {"uriTemplate", "name", "title", "icons", "_meta", "annotations"} - absent

    async def test_a_resource_added_while_running_can_be_read_and_a_removed_one_not(self, era):
        """RSRC-02, RSRC-03, SRVR-02"""
        app = notes()
        async with pair(app, era) as client:
            app.add_resource("late://1", lambda: "late")
            assert (await client.read_resource("late://1")).text == "late"
            app.remove_resource("late://1")
            with pytest.raises(PeerError, match="Resource not found"):
                await client.read_resource("late://1")


class TestSetup:
    """What is wrong is said when a resource is registered."""

    def test_a_uri_needs_a_scheme(self):
        """RES-7"""
        with pytest.raises(SetupError, match="needs a scheme, such as notes://today"):
            Server("x").add_resource("today", lambda: "")

    def test_the_decorator_needs_the_uri(self):
        with pytest.raises(SetupError, match="needs the URI"):
            Server("x").resource(lambda: "")

    def test_variables_and_parameters_must_fit(self):
        with pytest.raises(SetupError, match="no variable of 'x://y' fills the parameter 'id'"):
            Server("x").add_resource("x://y", lambda id: "")  # noqa: A006
        with pytest.raises(SetupError, match=r"the variable 'id' of 'x://\{id\}' has no parameter"):
            Server("x").add_resource("x://{id}", lambda: "")

    def test_a_second_resource_under_the_same_uri_is_refused(self):
        app = notes()
        with pytest.raises(SetupError, match="there is a resource 'notes://today' already"):
            app.add_resource("notes://today", lambda: "")
        with pytest.raises(SetupError, match=r"there is a resource template 'notes://\{id\}' already"):
            app.add_resource("notes://{id}", lambda id: "")  # noqa: A006

    def test_removing_what_is_not_there_names_it(self):
        with pytest.raises(SetupError, match="there is no resource 'notes://tody'; did you mean 'notes://today'"):
            notes().remove_resource("notes://tody")

    def test_an_unknown_option_is_named(self):
        with pytest.raises(
            SetupError, match=r"the resource x://y: unknown option 'mimetype'; did you mean 'mime_type'"
        ):
            Server("x").add_resource("x://y", lambda: "", mimetype="text/plain")

    async def test_annotations_may_be_written_as_a_dict(self, era):
        app = Server("x")
        app.add_resource("x://y", lambda: "", annotations={"audience": ["user"], "priority": 0.5})
        async with pair(app, era) as client:
            [told] = await client.list_resources()
        assert (told.annotations.audience, told.annotations.priority) == (["user"], 0.5)


@pytest.mark.parametrize(
    ("template", "uri"),
    [("files://{path*}", "files://a/b/c.txt"), ("files://all{/path*}", "files://all/a/b/c.txt")],
)
@pytest.mark.parametrize("text", [str, str | None, Annotated[str, "where it is"], Annotated[str | None, "where"]])
async def test_a_function_may_take_a_list_of_its_uri_as_one_text(era, template, uri, text):
    """FastMCP writes `{path*}` for a path however deep, and gives it as a text."""
    app = Server("files")

    @app.resource(template)
    def file(path: text) -> str:
        return path

    async with pair(app, era) as client:
        assert (await client.read_resource(uri)).text == "a/b/c.txt"


def test_a_uri_without_variables_matches_itself_alone():
    assert FixedUri("a://b").match("a://b") == {}
    assert FixedUri("a://b").match("a://c") is None


async def test_a_read_that_needs_a_visit_first_names_the_url():
    app = Server("shop")
    visit = {"mode": "url", "message": "Pay", "url": "https://pay.example/1", "elicitationId": "1"}

    @app.resource("goods://one")
    async def one() -> str:
        raise UrlElicitationRequired("Pay first", {"elicitations": [visit]})

    async with pair(app, "handshake") as client:
        with pytest.raises(PeerError, match="Pay first") as caught:
            await client.read_resource("goods://one")
        assert caught.value.data == {"elicitations": [visit]}


async def test_what_an_object_reads_is_sent_as_it_is_where_it_is_no_result(era):
    """Such as an answer of another server, which is passed on unread."""

    class Elsewhere:
        resource = Resource(uri="far://away", name="away")

        async def read(self, uri: str, call: Any) -> Any:
            return {"contents": [{"uri": uri, "text": "from afar"}], "ttlMs": 0, "cacheScope": "private"}

    app = Server("near")
    app.add_resource(Elsewhere())
    async with pair(app, era) as client:
        assert (await client.read_resource("far://away")).text == "from afar"


async def test_middleware_of_a_mounted_server_cannot_make_one_resource_another():
    app = notes()
    resources = app.offers.resources
    entry, _ = resources.find("notes://today")
    call: Any = SimpleNamespace(params=SimpleNamespace(uri="notes://tomorrow"))
    with pytest.raises(ResourceNotFound):
        await resources._read_inside(entry, call)


async def test_a_handler_reads_what_is_kept_like_any_other(era):
    app = Server("kept")
    reads = []

    @app.resource("clock://now", ttl=60.0)
    async def clock() -> str:
        reads.append(1)
        return "tick"

    @app.tool
    async def look(ctx: Context) -> str:
        return (await ctx.read_resource("clock://now")).text

    async with pair(app, era) as client:
        assert [(await client.call_tool("look")).data for _ in range(2)] == ["tick", "tick"]
    assert len(reads) == 1


async def test_what_a_mounted_server_keeps_is_read_through_its_middleware_once(era):
    class Shout(Middleware):
        async def on_read_resource(self, call: Any, proceed: Any) -> Any:
            reads.append(call.params.uri)
            return await proceed(call)

    reads: list[str] = []
    inner = Server("inner", middleware=[Shout()])
    inner.add_resource("clock://now", lambda: "tick", ttl=60.0)
    app = Server("outer")
    app.mount(inner, "in")
    async with pair(app, era, cache=False) as client:
        for _ in range(2):
            assert (await client.read_resource("clock://in/now")).text == "tick"
    assert len(reads) == 1


def test_what_needs_scopes_is_private_whatever_its_server_says():
    """CACHE-5"""
    said = ReadResourceResult(contents=[], cache_scope="public")
    private = resources_module._private(said)
    assert private.cache_scope == "private"
    assert resources_module._private(private) is private


async def test_a_program_that_reads_a_uri_whose_variables_do_not_fit_is_told_why():
    app = Server("pages")

    @app.resource("page://{number}")
    def page(number: int) -> str:
        return str(number)

    assert (await app.read_resource("page://7")).text == "7"
    with pytest.raises(InvalidParams, match="number"):
        await app.read_resource("page://seven")


async def test_of_the_reads_that_are_kept_the_oldest_go_first_and_large_ones_are_not(monkeypatch):
    monkeypatch.setattr(resources_module, "MAX_KEPT", 2)
    app = Server("kept")
    read = []

    @app.resource("page://{name}", ttl=60.0)
    async def page(name: str) -> str:
        read.append(name)
        return name * 10

    async with pair(app, cache=False) as client:
        for name in ("a", "b", "b", "c", "c", "b", "a"):
            await client.read_resource(f"page://{name}")
        assert read == ["a", "b", "c", "a"]
        monkeypatch.setattr(resources_module, "MAX_KEPT_BYTES", app.offers.resources.kept_bytes - 1)
        app.notify_resource_updated("page://c")
        for name in ("d", "d"):
            await client.read_resource(f"page://{name}")
        assert read == ["a", "b", "c", "a", "d"]
        monkeypatch.setattr(resources_module, "MAX_KEPT_BYTES", 1)
        for name in ("e", "e"):
            await client.read_resource(f"page://{name}")
        assert read == ["a", "b", "c", "a", "d", "e", "e"]
        app.add_resource("another://one", lambda: "")
        assert app.offers.resources.kept_bytes == 0  # what is offered has changed, so nothing is kept any more
