"""A web API as tools and resources: real HTTP calls to a real application, and in process."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import logging
import time
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any

import fastapi
import httpx
import pytest
import uvicorn
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ferrule import Client, OpenApiRule, PeerError, Server, SetupError, ToolError
from ferrule.server.openapi.answers import ApiFailed, refusal_of, refuse_failure
from ferrule.server.openapi.document import Document
from ferrule.server.openapi.importer import Names
from ferrule.server.openapi.in_process import InProcess
from ferrule.server.openapi.operations import Operation, read_operation
from ferrule.server.openapi.requests import DOTS, SEPARATOR
from ferrule.server.openapi.schemas import COMPONENT, Schemas
from ferrule.testing import ERAS


class Pet(BaseModel):
    name: str
    age: int = 1
    friends: list[Pet] = []


def shop() -> fastapi.FastAPI:
    """An application with a bit of everything."""

    @contextlib.asynccontextmanager
    async def lifespan(app: fastapi.FastAPI) -> AsyncIterator[None]:
        app.state.open = True
        yield
        app.state.open = False

    api = fastapi.FastAPI(title="Pet shop", version="3.1.4", description="Pets.", lifespan=lifespan)

    @api.get("/pets", tags=["reading"])
    async def list_pets(
        request: fastapi.Request,
        limit: int = 2,
        tag: Annotated[list[str], fastapi.Query()] = [],  # noqa: B006
    ) -> list[str]:
        return [f"pet {number}" for number in range(limit)] + tag

    @api.get("/pets/{pet}/toys/{toy}", tags=["reading"])
    async def one_toy(pet: str, toy: str, colour: str = "") -> dict[str, str]:
        return {"pet": pet, "toy": toy, "colour": colour}

    @api.post("/pets", status_code=201)
    async def add_pet(pet: Pet) -> Pet:
        """Add a pet."""
        return pet

    @api.delete("/pets/{pet}", status_code=204)
    async def remove_pet(pet: str) -> None: ...

    @api.get("/refuse")
    async def refuse() -> None:
        raise fastapi.HTTPException(404, "no such pet")

    @api.get("/who")
    async def who(
        request: fastapi.Request, x_trace: Annotated[str, fastapi.Header()], key: Annotated[str, fastapi.Cookie()]
    ) -> dict[str, Any]:
        return {"trace": x_trace, "key": key, "token": request.headers.get("authorization", "")}

    @api.post("/upload")
    async def upload(file: fastapi.UploadFile, note: Annotated[str, fastapi.Form()]) -> dict[str, Any]:
        return {"size": len(await file.read()), "note": note}

    @api.get("/picture", response_class=fastapi.Response)
    async def picture() -> fastapi.Response:
        return fastapi.Response(b"\x89PNG", media_type="image/png")

    @api.get("/page")
    async def page() -> Any:
        return fastapi.responses.HTMLResponse("<p>hello</p>")

    @api.get("/secret/toys/{toy}", include_in_schema=False)
    async def secret(toy: str) -> str:
        return "found out"

    @api.get("/slow")
    async def slow() -> str:
        await asyncio.sleep(30)
        return ""

    return api


@contextlib.asynccontextmanager
async def served(api: Any) -> AsyncIterator[str]:
    server = uvicorn.Server(uvicorn.Config(api, port=0, log_level="warning"))
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        await asyncio.wait_for(serving, 60)


@contextlib.asynccontextmanager
async def over_a_socket(patience: float = 60.0, **options: Any) -> AsyncIterator[Server]:
    api = shop()
    async with served(api) as url, httpx.AsyncClient(base_url=url, timeout=patience) as web:
        yield Server.from_openapi(api.openapi(), web, **options)


@contextlib.asynccontextmanager
async def in_process(**options: Any) -> AsyncIterator[Server]:
    yield Server.from_fastapi(shop(), **options)


@pytest.fixture(params=[over_a_socket, in_process], ids=["socket", "in process"])
def made(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize("era", ERAS)
def test_operations_become_tools_that_make_real_requests(made: Any, era: Any) -> None:
    async def main() -> None:
        async with made() as app, Client(app, mode=era) as client:
            assert client.server_info is not None
            assert (client.server_info.name, client.server_info.version) == ("Pet shop", "3.1.4")
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert {"list_pets", "one_toy", "add_pet", "remove_pet"} <= tools.keys()
            assert tools["list_pets"].hints.read_only
            assert tools["remove_pet"].hints.destructive
            assert (tools["add_pet"].description or "").endswith("Add a pet.")
            assert (await client.call_tool("list_pets", {"limit": 3})).data == ["pet 0", "pet 1", "pet 2"]
            assert (await client.call_tool("list_pets", {"limit": 0, "tag": ["a", "b&c"]})).data == ["a", "b&c"]
            toy = await client.call_tool("one_toy", {"pet": "a b", "toy": "ü?#", "colour": "red & blue"})
            assert toy.data == {"pet": "a b", "toy": "ü?#", "colour": "red & blue"}
            friends = [{"name": "Tim", "age": 2, "friends": []}]
            added = await client.call_tool("add_pet", {"name": "Tom", "friends": friends})
            assert added.structured_content == {"name": "Tom", "age": 1, "friends": friends}
            assert (await client.call_tool("remove_pet", {"pet": "Tom"})).content == []

    asyncio.run(main())


@pytest.mark.parametrize("era", ERAS)
def test_an_operation_that_promises_nothing_may_answer_with_a_page(made: Any, era: Any) -> None:
    """FastAPI describes every answer without a model as JSON of any kind, whatever it is."""

    async def main() -> None:
        async with made() as app, Client(app, mode=era) as client:
            tools = {tool.name: tool for tool in await client.list_tools()}
            assert tools["page"].output_schema is None
            assert (await client.call_tool("page")).text == "<p>hello</p>"

    asyncio.run(main())


def test_only_what_every_good_answer_keeps_is_promised() -> None:
    class Web:
        async def request(self, method: str, url: str, **rest: Any) -> httpx.Response:
            if url.endswith("/kept"):
                return httpx.Response(200, text="down for repair")
            return httpx.Response(204)

    good = {"content": {"application/json": {"schema": {"type": "object", "required": ["a"]}}}}
    answers = {
        "/kept": {"200": good, "201": good, "404": {}, "default": {}},
        "/mixed": {"200": good, "204": {"description": "nothing to tell"}},
        "/default": {"default": good},
    }
    paths = {path: {"get": {"operationId": path[1:], "responses": said}} for path, said in answers.items()}
    app = Server.from_openapi({"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "paths": paths}, Web())

    async def main() -> None:
        async with Client(app) as client:
            promised = {tool.name: tool.output_schema is not None for tool in await client.list_tools()}
            assert promised == {"kept": True, "mixed": False, "default": True}
            assert (await client.call_tool("mixed")).structured_content is None
            with pytest.raises(ToolError, match=r"GET /kept answered with text/plain, .*say output_schemas=False"):
                await client.call_tool("kept")

    asyncio.run(main())


def test_bad_arguments_never_leave_and_refusals_reach_the_model(made: Any) -> None:
    async def main() -> None:
        async with made() as app, Client(app) as client:
            with pytest.raises(ToolError, match="limit"):
                await client.call_tool("list_pets", {"limit": "many"})
            with pytest.raises(ToolError, match=r"GET /refuse answered 404 Not Found.*no such pet"):
                await client.call_tool("refuse")

    asyncio.run(main())


def guarded_shop(calls: list[str]) -> fastapi.FastAPI:
    """An application with operations that a rule leaves out, beside some that it offers."""
    api = fastapi.FastAPI()

    @api.get("/users/admin")
    async def admin() -> str:
        calls.append("admin")
        return "secret"

    @api.get("/users/{user}")
    async def user(user: str) -> str:
        return f"user {user}"

    @api.get("/users/{user}/keys")
    async def keys(user: str) -> str:
        calls.append("keys")
        return "secret"

    @api.get("/reports{form}")
    async def reports(form: str) -> str:
        return f"reports {form}"

    @api.get("/reports")
    async def all_reports() -> str:
        calls.append("reports")
        return "secret"

    return api


LEFT_OUT = [OpenApiRule("none", pattern="/admin$|/keys$|/reports$")]
HOSTILE = [
    *["..", ".", "", "../../secret", "1/keys", "1%2Fkeys", "1%2fkeys", "1%252Fkeys", "1%25252fkeys", "..\\keys"],
    *[
        "..%5ckeys",
        "%2e%2e",
        "%252e%252e",
        "..;",
        "..;a=b",
        "..?x",
        "..#",
        "\x00",
        "a\nb",
        "a%0ab",
        "a%00",
        "\x7f",
        "/",
    ],
]


@pytest.mark.parametrize("value", HOSTILE)
@pytest.mark.parametrize("place", ["in process", "over a socket"])
def test_an_argument_cannot_leave_its_place_in_the_path(place: str, value: str) -> None:
    """BUD-06."""
    calls: list[str] = []

    async def tried(app: Server) -> None:
        async with Client(app) as client:
            assert {tool.name for tool in await client.list_tools()} == {"user", "reports"}
            with pytest.raises(ToolError, match=r"segment|empty|may not hold"):
                await client.call_tool("user", {"user": value})
            if not value.startswith("."):  # `reports..` is a segment like any other
                with pytest.raises(ToolError, match=r"empty|may not hold"):
                    await client.call_tool("reports", {"form": value})

    async def main() -> None:
        api = guarded_shop(calls)
        if place == "in process":
            await tried(Server.from_fastapi(api, rules=LEFT_OUT, names=NAMES))
            return
        async with served(api) as url, httpx.AsyncClient(base_url=url) as client:
            await tried(Server.from_openapi(api.openapi(), client, rules=LEFT_OUT, names=NAMES))

    asyncio.run(main())
    assert calls == []


NAMES = {"GET /users/{user}": "user", "GET /reports{form}": "reports"}


@pytest.mark.parametrize("value", ["admin", "ADMIN", "%61dmin", "admin;a=1", "admin?a", "Admin#a"])
def test_an_argument_cannot_spell_the_path_of_an_operation_that_was_left_out(value: str) -> None:
    calls: list[str] = []

    def without_admin(operation: Any, said: dict[str, Any]) -> dict[str, Any] | None:
        return None if operation.path == "/users/admin" else said

    async def main() -> None:
        for options in ({"rules": LEFT_OUT}, {"adjust": without_admin}):
            app = Server.from_fastapi(guarded_shop(calls), names=NAMES, **options)
            async with Client(app) as client:
                if value == "%61dmin":  # it is sent as `%2561dmin`, which is nobody's path
                    assert (await client.call_tool("user", {"user": value})).data == "user %61dmin"
                    continue
                with pytest.raises(ToolError, match="it is another operation, which is not offered"):
                    await client.call_tool("user", {"user": value})

    asyncio.run(main())
    assert calls == []


@pytest.mark.parametrize("value", ["C#", "what?", "a;b", "a b", "50%", "ü", "a.b", "...", "a:b@c", "x,y", "100%25"])
def test_other_characters_reach_the_operation_as_they_are(value: str) -> None:
    async def main() -> None:
        async with Client(Server.from_fastapi(guarded_shop([]), rules=LEFT_OUT, names=NAMES)) as client:
            assert (await client.call_tool("user", {"user": value})).data == f"user {value}"

    asyncio.run(main())


def test_a_slash_that_is_encoded_in_a_path_stays_so_in_process() -> None:
    seen: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    asyncio.run(InProcess(application).request("GET", "/a%2Fb%2fc/d%20e"))
    assert seen == ["/a%2Fb%2Fc/d e"]


def test_an_object_in_the_query_cannot_set_another_parameter() -> None:
    spec = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {
            "/find": {
                "get": {
                    "operationId": "find",
                    "parameters": [
                        {"name": "filter", "in": "query", "schema": {"type": "object"}},
                        {"name": "owner", "in": "query", "schema": {"type": "string"}},
                    ],
                }
            }
        },
    }

    async def main() -> None:
        transport = httpx.MockTransport(lambda request: httpx.Response(200, text=str(request.url.query)))
        web = httpx.AsyncClient(transport=transport, base_url="http://api")
        async with web, Client(Server.from_openapi(spec, web)) as client:
            assert "colour=red" in (await client.call_tool("find", {"filter": {"colour": "red"}})).text
            with pytest.raises(ToolError, match="'filter' may not have the member 'owner'"):
                await client.call_tool("find", {"filter": {"owner": "me"}, "owner": "you"})

    asyncio.run(main())


def test_an_argument_does_not_replace_a_header_of_the_caller() -> None:
    async def main() -> None:
        app = Server.from_fastapi(shop(), forward_headers=["X-Trace"])
        async with served(app.asgi()) as url, Client(f"{url}/mcp", headers={"X-Trace": "mine"}) as client:
            who = await client.call_tool("who", {"x-trace": "another", "key": "k"})
            assert who.data["trace"] == "mine"

    asyncio.run(main())


def test_headers_cookies_forms_and_files_go_where_they_belong(made: Any) -> None:
    async def main() -> None:
        async with made() as app, Client(app) as client:
            who = await client.call_tool("who", {"x-trace": "t1", "key": "k; v"})
            assert who.data == {"trace": "t1", "key": "k%3B%20v", "token": ""}
            with pytest.raises(ToolError, match="the header x-trace cannot carry this value"):
                await client.call_tool("who", {"x-trace": "a\r\nX-Evil: 1", "key": "k"})
            data = base64.b64encode(b"12345").decode()
            upload = await client.call_tool("upload", {"file": data, "note": 'say "hi"'})
            assert upload.data == {"size": 5, "note": 'say "hi"'}
            with pytest.raises(ToolError, match="file must be base64"):
                await client.call_tool("upload", {"file": "*", "note": ""})
            (picture,) = (await client.call_tool("picture")).content
            assert (picture.mime_type, base64.b64decode(picture.data)) == ("image/png", b"\x89PNG")  # type: ignore[union-attr]

    asyncio.run(main())


def test_an_api_that_does_not_answer_fails_the_call_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with over_a_socket(patience=3.0) as app, Client(app) as client:
            with pytest.raises(ToolError, match="GET /slow was not answered: ReadTimeout"):
                await client.call_tool("slow")
            assert (await client.call_tool("list_pets", {"limit": 1})).data == ["pet 0"]

    with caplog.at_level(logging.CRITICAL, "ferrule.openapi"):
        asyncio.run(main())


def test_headers_of_the_caller_go_on_only_when_they_are_named() -> None:
    async def main(forward: list[str]) -> str:
        api = shop()
        app = Server.from_fastapi(api, forward_headers=forward)
        async with (
            served(app.asgi()) as url,
            Client(f"{url}/mcp", headers={"Authorization": "Bearer secret"}) as client,
        ):
            return (await client.call_tool("who", {"x-trace": "t", "key": "k"})).data["token"]

    assert asyncio.run(main([])) == ""
    assert asyncio.run(main(["Authorization"])) == "Bearer secret"


def test_the_application_starts_and_stops_with_the_server() -> None:
    async def main(**options: Any) -> list[bool]:
        api = shop()
        seen = [getattr(api.state, "open", False)]
        app = Server.from_fastapi(api, **options)
        async with Client(app) as client:
            await client.call_tool("list_pets")
            seen.append(getattr(api.state, "open", False))
        return [*seen, getattr(api.state, "open", False)]

    assert asyncio.run(main()) == [False, True, False]
    assert asyncio.run(main(run_lifespan=False)) == [False, False, False]


def test_an_application_that_cannot_start_says_why() -> None:
    @contextlib.asynccontextmanager
    async def broken(app: fastapi.FastAPI) -> AsyncIterator[None]:
        raise RuntimeError("no database")
        yield

    async def main() -> None:
        with pytest.raises(Exception, match="no database"):
            async with Client(Server.from_fastapi(fastapi.FastAPI(lifespan=broken))):
                pass

    asyncio.run(main())


def test_what_is_meant_to_be_fetched_or_was_said_elsewhere_is_told_how_to_write_it() -> None:
    with pytest.raises(SetupError, match=r"nothing is fetched from https://x/openapi\.json: .*httpx\.get"):
        Server.from_openapi("https://x/openapi.json", httpx.AsyncClient())
    with pytest.raises(SetupError, match=r"instead of route_maps=… write rules=\[OpenApiRule"):
        Server.from_fastapi(shop(), route_maps=[])


def test_rules_make_resources_and_leave_things_out() -> None:
    rules = [
        OpenApiRule("none", methods=["DELETE"]),
        OpenApiRule("resource", tags=["reading"]),
        OpenApiRule("none", pattern="^/(who|slow)"),
    ]

    async def main() -> None:
        async with in_process(rules=rules) as app, Client(app) as client:
            names = {tool.name for tool in await client.list_tools()}
            assert "add_pet" in names
            assert names.isdisjoint({"remove_pet", "who", "slow", "list_pets"})
            templates = {template.uri_template for template in await client.list_resource_templates()}
            assert templates == {"api://list_pets{?limit,tag}", "api://one_toy/{pet}/{toy}{?colour}"}
            read = await client.read_resource("api://one_toy/Tom/ball?colour=red")
            assert json.loads(read.text or "") == {"pet": "Tom", "toy": "ball", "colour": "red"}
            assert json.loads((await client.read_resource("api://list_pets")).text or "") == ["pet 0", "pet 1"]

    asyncio.run(main())
    with pytest.raises(SetupError, match="POST /pets cannot be a resource"):
        Server.from_fastapi(shop(), rules=[OpenApiRule("resource")])
    with pytest.raises(SetupError, match="not a valid regular expression"):
        OpenApiRule("tool", pattern="(")


def test_names_and_options_can_be_changed() -> None:
    def adjust(operation: Any, said: dict[str, Any]) -> dict[str, Any] | None:
        return None if operation.path == "/slow" else {**said, "title": operation.place}

    app = Server.from_fastapi(shop(), names={"GET /pets": "pets"}, adjust=adjust, name="mine", output_schemas=False)
    tools = {tool.name: tool for tool in app.list_tools()}
    assert app.name == "mine"
    assert tools["pets"].title == "GET /pets"
    assert tools["pets"].output_schema is None
    assert "slow" not in tools


def api_of(paths: dict[str, Any], components: dict[str, Any] | None = None, version: str = "3.1.0") -> dict[str, Any]:
    return {"openapi": version, "info": {"title": "t", "version": "1"}, "paths": paths, "components": components or {}}


class Echo:
    """A client that tells what it was asked."""

    async def request(self, method: str, url: str, *, headers: Any = None, content: bytes | None = None) -> Any:
        body = json.dumps({"method": method, "url": url, "headers": headers, "content": (content or b"").decode()})
        return httpx.Response(200, content=body, headers={"content-type": "application/json"})


def asked(said: dict[str, Any], arguments: dict[str, Any], path: str = "/it") -> Any:
    app = Server.from_openapi(api_of({path: {"post": {"operationId": "it", **said}}}), Echo())

    async def main() -> Any:
        async with Client(app) as client:
            return (await client.call_tool("it", arguments)).data

    return asyncio.run(main())


ARRAY, OBJECT = {"type": "array"}, {"type": "object"}


@pytest.mark.parametrize(
    ("parameter", "value", "url"),
    [
        ({"schema": ARRAY}, ["a", "b,c"], "/it?x=a&x=b%2Cc"),
        ({"schema": ARRAY, "explode": False}, ["a", "b,c"], "/it?x=a,b%2Cc"),
        ({"schema": ARRAY, "style": "spaceDelimited"}, ["a", "b"], "/it?x=a%20b"),
        ({"schema": ARRAY, "style": "pipeDelimited"}, ["a", "b"], "/it?x=a%7Cb"),
        ({"schema": OBJECT, "style": "deepObject"}, {"k": 1, "l": True}, "/it?x%5Bk%5D=1&x%5Bl%5D=true"),
        ({"schema": OBJECT}, {"k": 1, "l": "m n"}, "/it?k=1&l=m%20n"),
        ({"schema": OBJECT, "explode": False}, {"k": 1, "l": 2}, "/it?x=k,1,l,2"),
        ({"content": {"application/json": {"schema": OBJECT}}}, {"k": [1]}, "/it?x=%7B%22k%22%3A%5B1%5D%7D"),
        ({"schema": {}}, 1.5, "/it?x=1.5"),
        ({"schema": {}}, None, "/it"),
    ],
)
def test_query_styles(parameter: dict[str, Any], value: Any, url: str) -> None:
    assert asked({"parameters": [{"in": "query", "name": "x", **parameter}]}, {"x": value})["url"] == url


@pytest.mark.parametrize(
    ("parameter", "value", "url"),
    [
        ({"style": "simple"}, ["a", "b"], "/it/a,b"),
        ({"style": "simple", "explode": True}, {"k": 1, "l": 2}, "/it/k=1,l=2"),
        ({"style": "label", "explode": True}, ["a", "b"], "/it/.a.b"),
        ({"style": "matrix"}, 5, "/it/;x=5"),
        ({"style": "matrix", "explode": True}, ["a", "b"], "/it/;x=a;x=b"),
        ({"style": "matrix"}, ["a", "b"], "/it/;x=a,b"),
        ({"style": "label", "explode": True}, {"k": 1, "l": 2}, "/it/.k=1.l=2"),
        ({"style": "label"}, {"k": 1, "l": 2}, "/it/.k,1,l,2"),
        ({"style": "matrix", "explode": True}, {"k": 1, "l": 2}, "/it/;k=1;l=2"),
        ({"style": "matrix"}, {"k": 1, "l": 2}, "/it/;x=k,1,l,2"),
    ],
)
def test_path_styles(parameter: dict[str, Any], value: Any, url: str) -> None:
    said = {"parameters": [{"in": "path", "name": "x", "required": True, "schema": {}, **parameter}]}
    assert asked(said, {"x": value}, "/it/{x}")["url"] == url


@pytest.mark.parametrize(
    ("path", "arguments"),
    [
        ("/items{filter}{scope}", {"filter": {"scope": "admin"}, "scope": "user"}),
        ("/items;ten%61nt=acme{filter}", {"filter": {"tenant": "other"}}),
        ("/items{filter}", {"filter": {}}),
    ],
    ids=["of another parameter", "of the path", "empty"],
)
def test_members_in_a_path_take_no_name_that_is_there(path: str, arguments: dict[str, Any]) -> None:
    parameters = [{"in": "path", "name": "filter", "style": "matrix", "explode": True, "schema": {}}]
    if "scope" in arguments:
        parameters.append({"in": "path", "name": "scope", "style": "matrix", "schema": {}})
    with pytest.raises(ToolError, match=r"may not have the member|is empty"):
        asked({"parameters": parameters}, arguments, path)


@pytest.mark.parametrize(
    ("style", "path"), [("matrix", "/it/{a}{b}"), ("form", "/it")], ids=["in the path", "in the query"]
)
def test_each_member_that_stands_alone_has_a_name_that_no_other_object_has(style: str, path: str) -> None:
    place = "path" if style == "matrix" else "query"
    said = {"parameters": [{"in": place, "name": n, "style": style, "explode": True, "schema": {}} for n in "ab"]}
    url = asked(said, {"a": {"x": 1}, "b": {"y": 2}}, path)["url"]
    assert url == {"path": "/it/;x=1;y=2", "query": "/it?x=1&y=2"}[place]
    with pytest.raises(ToolError, match=r"'a' and 'b' may not both have the member 'x'$"):
        asked(said, {"a": {"x": 1}, "b": {"y": 2, "x": 2}}, path)
    with pytest.raises(ToolError, match=r"'b' may not have a member without a name$"):
        asked(said, {"a": {"x": 1}, "b": {"": 2}}, path)


@pytest.mark.parametrize("member", ["owner[name]", "owner[]"])
@pytest.mark.parametrize("style", ["deepObject", "form"])
def test_a_member_in_the_query_sets_no_member_of_another_parameter(style: str, member: str) -> None:
    owner = {"in": "query", "name": "owner", "style": style, "schema": {}}
    said = {"parameters": [{"in": "query", "name": "filter", "schema": OBJECT}, owner]}
    assert asked(said, {"filter": {"size[max]": 3}})["url"] == "/it?size%5Bmax%5D=3"
    with pytest.raises(ToolError, match="'filter' may not have the member 'owner"):
        asked(said, {"filter": {member: "me"}})


def test_arguments_of_one_name_are_told_apart() -> None:
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": {"id": {"type": "string"}}}}}}
    parameters = [
        {"in": "path", "name": "id", "schema": {"type": "integer"}},
        {"in": "query", "name": "id", "schema": {"type": "integer"}},
    ]
    said = {"parameters": parameters, "requestBody": body}
    told = asked(said, {"id__path": 1, "id__query": 2, "id": "three"}, "/it/{id}")
    assert (told["url"], told["content"]) == ("/it/1?id=2", '{"id":"three"}')


@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_a_parameter_named_body_is_not_sent_as_the_body(kind: str) -> None:
    said = {
        "parameters": [{"name": "body", "in": "query", "schema": {}}],
        "requestBody": {"content": {kind: {"schema": {"type": "string"}}}},
    }
    told = asked(said, {"body": "shown", "body__body": "sent"})
    assert (told["url"], told["content"].strip('"')) == ("/it?body=shown", "sent")
    told = asked(said, {"body": "shown"})
    assert (told["url"], told["content"]) == ("/it?body=shown", "")


def test_arguments_whose_longer_names_are_taken_too_have_longer_ones_still() -> None:
    names = [("id", "path"), ("id", "query"), ("id__query", "query"), ("id__body", "query")]
    said = {
        "parameters": [{"name": name, "in": place, "schema": {}} for name, place in names],
        "requestBody": {"content": {"application/json": {"schema": {"properties": {"id": {}, "id__query": {}}}}}},
    }
    given = {"id__path": 1, "id__query": 2, "id__query__query": 3, "id__body": 4, "id": 5, "id__query__body": 6}
    told = asked(said, given, "/it/{id}")
    assert told["url"] == "/it/1?id=2&id__query=3&id__body=4"
    assert json.loads(told["content"]) == {"id": 5, "id__query": 6}


def test_an_argument_is_not_taken_for_the_context_of_its_tool() -> None:
    said = {"parameters": [{"name": "ferrule_context", "in": "query", "schema": {}}]}
    assert asked(said, {"ferrule_context__query": "x"})["url"] == "/it?ferrule_context=x"


def test_members_of_a_body_may_have_schemas_that_are_true() -> None:
    schema = {"type": "object", "properties": {"anything": True, "name": {"type": "string"}}}
    said = {"requestBody": {"content": {"application/json": {"schema": schema}}}}
    assert json.loads(asked(said, {"anything": [1], "name": "x"})["content"]) == {"anything": [1], "name": "x"}
    said = {"requestBody": {"content": {"application/json": {"schema": True}}}}
    assert asked(said, {"body": [1]})["content"] == "[1]"


def test_bodies_of_other_kinds() -> None:
    def body(kind: str, schema: Any = None) -> dict[str, Any]:
        return {"requestBody": {"required": True, "content": {kind: {"schema": schema or {}}}}}

    assert asked(body("application/json", {"type": "array"}), {"body": [1, 2]})["content"] == "[1,2]"
    assert asked(body("text/csv", {"type": "string"}), {"body": "a,b"})["content"] == "a,b"
    assert asked(body("application/octet-stream"), {"body": "aGk="})["content"] == "hi"
    form = {"type": "object", "properties": {"a": {}, "b": {"type": "array"}}}
    told = asked(body("application/x-www-form-urlencoded", form), {"a": "1 2", "b": ["x", "y"]})
    assert told["content"] == "a=1+2&b=x&b=y"


def test_the_dialect_of_3_0_is_translated() -> None:
    schemas = {
        "Node": {
            "type": "object",
            "properties": {
                "id": {"type": "integer", "readOnly": True},
                "size": {"type": "number", "minimum": 0, "exclusiveMinimum": True, "example": 1},
                "kind": {"type": "string", "enum": ["a"], "nullable": True, "x-own": 1},
                "next": {"$ref": "#/components/schemas/Node", "nullable": True},
                "secret": {"type": "string", "writeOnly": True},
            },
            "required": ["id", "size"],
        }
    }
    reference = {"$ref": "#/components/schemas/Node"}
    said = {
        "operationId": "it",
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": {200: {"description": "", "content": {"application/json": {"schema": reference}}}},
    }
    app = Server.from_openapi(api_of({"/it": {"put": said}}, {"schemas": schemas}, "3.0.3"), Echo())
    (tool,) = app.list_tools()
    asking = tool.input_schema["properties"]
    assert "id" not in asking
    assert asking["size"] == {"type": "number", "exclusiveMinimum": 0, "examples": [1]}
    assert asking["kind"] == {"type": ["string", "null"], "enum": ["a", None]}
    assert asking["next"] == {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]}
    assert tool.input_schema["required"] == ["size"]
    assert tool.output_schema is not None
    assert "secret" not in tool.output_schema["$defs"]["Node"]["properties"]


def test_h3_schemas_that_contain_each_other_stay_small_and_load_at_once() -> None:
    """Each of 60 schemas refers to all the others; unrolled they would never end."""
    names = [f"S{number}" for number in range(60)]
    every = {name: {"$ref": f"#/components/schemas/{name}"} for name in names}
    schemas = {name: {"type": "object", "properties": every} for name in names}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/S0"}}}}
    paths = {f"/p{number}": {"post": {"requestBody": body}} for number in range(20)}
    begun = time.process_time()
    app = Server.from_openapi(api_of(paths, {"schemas": schemas}), Echo())
    assert time.process_time() - begun < 10
    assert len(app.list_tools()) == 20
    assert len(app.list_tools()[0].input_schema["$defs"]) == 60


def test_a_thousand_operations_load_at_once() -> None:
    paths = {
        f"/things/{number}/{{id}}": {
            "get": {"parameters": [{"in": "path", "name": "id", "required": True, "schema": {"type": "integer"}}]}
        }
        for number in range(1000)
    }
    begun = time.process_time()
    app = Server.from_openapi(api_of(paths), Echo())
    assert time.process_time() - begun < 10
    assert len({tool.name for tool in app.list_tools()}) == 1000


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        ({"swagger": "2.0"}, "swagger 2.0: only 3.x is read"),
        ("[]", "is an object, not list"),
        ("{nonsense", "neither JSON nor YAML"),
        ("nowhere.json", "nowhere.json cannot be read: No such file"),
        (api_of({"/a": {"get": {"parameters": [{"$ref": "other.yaml#/x"}]}}}), "leaves the OpenAPI document"),
        (api_of({"/a": {"get": {"parameters": [{"$ref": "#/x"}]}}}), "leads nowhere"),
        (api_of({"/a": {"$ref": "#/paths/~1a"}}), "go round in a circle"),
        (api_of({"/a/{id}": {"get": {}}}), "the path names 'id', which is not a parameter"),
        (api_of({"/a": {"get": {"parameters": [{"in": "body", "name": "x"}]}}}), "is in 'body'"),
    ],
)
def test_a_document_that_cannot_be_used_is_refused_with_the_reason(spec: Any, why: str) -> None:
    with pytest.raises(SetupError, match=why):
        Server.from_openapi(spec, Echo())


def test_what_is_no_client_and_no_application_is_refused() -> None:
    with pytest.raises(SetupError, match=r"httpx.AsyncClient\(base_url=…\)"):
        Server.from_openapi(api_of({}), None)
    with pytest.raises(SetupError, match="needs a FastAPI application"):
        Server.from_fastapi(object())


def test_a_document_is_read_from_files_of_json_and_yaml(tmp_path: Path) -> None:
    spec = api_of({"/it": {"get": {"operationId": "it"}}})
    (tmp_path / "a.json").write_text(json.dumps(spec))
    (tmp_path / "a.yaml").write_text(yaml.safe_dump(spec))
    for spelling in (tmp_path / "a.json", str(tmp_path / "a.yaml"), json.dumps(spec), yaml.safe_dump(spec).encode()):
        assert [tool.name for tool in Server.from_openapi(spelling, Echo()).list_tools()] == ["it"]


def test_an_operation_whose_schema_cannot_be_used_costs_only_itself() -> None:
    broken = {"parameters": [{"in": "query", "name": "x", "schema": {"type": "string", "pattern": "("}}]}
    app = Server.from_openapi(api_of({"/bad": {"get": broken}, "/good": {"get": {}}}), Echo())

    async def main() -> None:
        async with Client(app) as client:
            with pytest.raises(ToolError, match="not a valid schema of its dialect"):
                await client.call_tool("get_bad", {"x": "y"})
            assert (await client.call_tool("get_good")).data["url"] == "/good"

    asyncio.run(main())


@settings(max_examples=60, deadline=None)
@given(
    pet=st.text(min_size=1).filter(lambda text: not DOTS.fullmatch(text) and not SEPARATOR.search(text)),
    colour=st.text(),
)
def test_any_text_arrives_as_it_was(pet: str, colour: str) -> None:
    api = fastapi.FastAPI()

    @api.get("/pets/{pet}")
    async def one(request: fastapi.Request, colour: str = "") -> list[str]:
        raw = request.scope["raw_path"].decode()
        return [httpx.URL(raw).path, raw, colour]

    async def main() -> Any:
        app = Server.from_fastapi(api, output_schemas=False, run_lifespan=False)
        return await app.call_tool("one", {"colour": colour, **({"pet": pet} if pet else {})})

    api.openapi = lambda: api_of(  # type: ignore[method-assign]
        {
            "/pets/{pet}": {
                "get": {
                    "operationId": "one",
                    "parameters": [
                        {"in": "path", "name": "pet", "required": True, "schema": {"type": "string"}},
                        {"in": "query", "name": "colour", "schema": {"type": "string"}},
                    ],
                }
            }
        }
    )
    try:
        (pet + colour).encode()
    except UnicodeEncodeError:
        return  # a lone surrogate is no text for anyone
    if "/" in pet:
        return  # FastAPI's own routes take an encoded slash for a slash
    path, raw, arrived = json.loads(asyncio.run(main()).text)
    assert raw.count("/") == 2
    assert (path, arrived) == (f"/pets/{pet}", colour)


# -- hostile descriptions, hostile answers


def described(**said: Any) -> dict[str, Any]:
    return {"openapi": "3.1.0", "info": {"title": "t", "version": "1"}, **said}


def taking(schema: Any, **said: Any) -> dict[str, Any]:
    body = {"content": {"application/json": {"schema": schema}}}
    return described(paths={"/x": {"post": {"operationId": "x", "requestBody": body, "responses": {}}}}, **said)


def nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    "path", ["https://evil.example/x", "//evil.example/x", "/\\evil.example", "x", "/a\r\nX-Evil: 1", "/a b"]
)
def test_a_path_that_leads_to_another_host_is_refused(path: str) -> None:
    """The credentials of the client would go there."""
    with pytest.raises(SetupError, match="must begin with one slash"):
        Server.from_openapi(described(paths={path: {"get": {"responses": {}}}}), Echo())


def test_a_short_yaml_that_stands_for_a_huge_document_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aliases of aliases: nine times nine times nine …"""
    monkeypatch.setattr("ferrule.server.openapi.schemas.MAX_PARTS", 10_000)
    lines = ["openapi: 3.1.0", "x-0: &a0 {type: string}"]
    for level in range(1, 9):
        members = ", ".join(f"p{number}: *a{level - 1}" for number in range(9))
        lines.append(f"x-{level}: &a{level} {{type: object, properties: {{{members}}}}}")
    lines.append("paths: {/x: {post: {requestBody: {content: {application/json: {schema: {type: object,")
    lines.append("  properties: {q: *a8}}}}}, responses: {}}}}")
    with pytest.raises(SetupError, match="more than 10,000 schemas"):
        Server.from_openapi("\n".join(lines), Echo())


@pytest.mark.parametrize("word", ["summary", "description", "tags"])
def test_what_operations_say_by_an_alias_counts_each_time(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.server.openapi.schemas.MAX_DATA", 10_000)
    lines = ["openapi: 3.1.0", f"x-a: &a [{'a, ' * 100}]" if word == "tags" else f"x-a: &a {'a' * 200}", "paths:"]
    lines += [f"  /{number}: {{get: {{{word}: *a}}}}" for number in range(40)]
    assert len(Server.from_openapi("\n".join(lines), Echo()).list_tools()) == 40
    lines += [f"  /{number}: {{get: {{{word}: *a}}}}" for number in range(40, 60)]
    with pytest.raises(SetupError, match="over 10,000 characters"):
        Server.from_openapi("\n".join(lines), Echo())


@pytest.mark.parametrize(
    "said",
    ["responses: *a", "responses: {200: {content: *a}}", "requestBody: {content: *a}"],
    ids=["statuses", "media types of an answer", "media types of a body"],
)
def test_the_names_that_operations_share_by_an_alias_count_each_time(
    said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them are gone through for each operation."""
    monkeypatch.setattr("ferrule.server.openapi.schemas.MAX_DATA", 10_000)
    names = ", ".join(f"a/{number}: {{}}" for number in range(10, 50))
    lines = ["openapi: 3.1.0", f"x-a: &a {{{names}}}", "paths:"]
    lines += [f"  /{number}: {{post: {{{said}}}}}" for number in range(40)]
    assert len(Server.from_openapi("\n".join(lines), Echo()).list_tools()) == 40
    lines += [f"  /{number}: {{post: {{{said}}}}}" for number in range(40, 60)]
    with pytest.raises(SetupError, match="over 10,000 characters"):
        Server.from_openapi("\n".join(lines), Echo())


@pytest.mark.parametrize(
    ("shared", "said"),
    [
        (f"{{in: query, name: {'a' * 200}}}", "parameters: [*a]"),
        ("a" * 200, "operationId: *a"),
        (f"{{x-{'a' * 200}: 1}}", "parameters: [{in: query, name: b, schema: *a}]"),
        (f"{{properties: {{{'a' * 200}: true}}}}", "parameters: [{in: query, name: b, schema: *a}]"),
        (f"{{properties: {{{'a' * 100}: {{}}}}}}", "requestBody: {content: {a/json: {schema: {allOf: [*a]}}}}"),
        (f"{{properties: {{a: {{}}}}, required: [{'a' * 180}]}}", "requestBody: {content: {a/json: {schema: *a}}}"),
    ],
    ids=["parameters", "operationId", "words", "properties", "members", "required"],
)
def test_other_names_that_operations_share_by_an_alias_count_each_time(
    shared: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.server.openapi.schemas.MAX_DATA", 10_000)
    lines = ["openapi: 3.1.0", f"x-a: &a {shared}", "paths:"]
    lines += [f"  /{number}: {{post: {{{said.replace('a/json', 'application/json')}}}}}" for number in range(30)]
    assert len(Server.from_openapi("\n".join(lines), Echo()).list_tools()) == 30
    lines += [f"  /{number}: {{post: {{{said.replace('a/json', 'application/json')}}}}}" for number in range(30, 60)]
    with pytest.raises(SetupError, match="over 10,000 characters"):
        Server.from_openapi("\n".join(lines), Echo())


def test_what_all_of_many_schemas_say_is_not_gathered_beyond_the_bound() -> None:
    schemas: dict[str, Any] = {"A0": {"properties": {"a": {"type": "string"}}}}
    for level in range(1, 30):
        schemas[f"A{level}"] = {"allOf": [{"$ref": f"#/components/schemas/A{level - 1}"}] * 2}
    before = time.process_time()
    with pytest.raises(SetupError, match="more than 1,000,000 schemas"):
        Server.from_openapi(taking({"$ref": "#/components/schemas/A29"}, components={"schemas": schemas}), Echo())
    assert time.process_time() - before < 20.0


def test_answers_are_not_compared_beyond_the_bound() -> None:
    """Two schemas that are equal and not the same, each nine times nine times nine … by aliases of aliases."""
    lines = ["openapi: 3.1.0"]
    for name in "ab":
        lines.append(f"x-{name}0: &{name}0 {{type: string}}")
        for level in range(1, 9):
            members = ", ".join(f"p{number}: *{name}{level - 1}" for number in range(9))
            lines.append(f"x-{name}{level}: &{name}{level} {{type: object, properties: {{{members}}}}}")
    first, second = (f"{{content: {{application/json: {{schema: *{name}8}}}}}}" for name in "ab")
    lines.append(f"paths: {{/x: {{get: {{responses: {{200: {first}, 201: {second}}}}}}}}}")
    before = time.process_time()
    with pytest.raises(SetupError, match="over 33,554,432 characters"):
        Server.from_openapi("\n".join(lines), Echo())
    assert time.process_time() - before < 1.0


ENDLESS: dict[str, Any] = {"type": "object", "properties": {}}
ENDLESS["properties"]["again"] = ENDLESS
ITSELF = {"schemas": {"A": {"allOf": [{"$ref": "#/components/schemas/A"}]}}}


@pytest.mark.parametrize(
    "spec",
    [
        taking(nested(5000)),
        taking(ENDLESS),
        taking({"$ref": "#/components/schemas/A"}, components=ITSELF),
        "openapi: 3.1.0\nx: " + "[" * 5000 + "]" * 5000,
        taking({"properties": 5}),
        taking({"allOf": 5}),
        described(paths=5),
        described(paths={"/x": {"get": {"parameters": 5}}}),
        described(paths={"/x": {"get": {"parameters": [{"in": "query", "name": "a", "content": {"a/b": {}}}]}}}),
        described(paths={"/x": {"get": {"responses": 5}}}),
        described(paths={"/x": {"get": {"tags": 5, "responses": {}}}}),
        {**described(paths={}), "info": 5},
    ],
    ids=range(12),
)
def test_a_description_that_is_nested_without_end_or_malformed_is_refused(spec: Any) -> None:
    with pytest.raises(SetupError):
        Server.from_openapi(spec, Echo())


def test_an_answer_without_end_or_packed_beyond_measure_is_not_read_to_its_end() -> None:
    """A gzip bomb, a stream that never ends, and bytes that are not what they say: the model is told, nothing more."""
    sent = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 65536
            yield b"x" * 65536

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/bomb":
            packed = gzip.compress(bytes(50_000_000))
            return httpx.Response(200, content=packed, headers={"content-encoding": "gzip"})
        if request.url.path == "/endless":
            return httpx.Response(200, content=endless(), headers={"content-type": "text/plain"})
        if request.url.path == "/failing":
            return httpx.Response(500, content=endless(), headers={"content-type": "text/plain"})
        return httpx.Response(200, content=b'{"a": "\xff"}', headers={"content-type": "application/json"})

    async def main() -> None:
        paths = {f"/{name}": {"get": {"operationId": name}} for name in ("bomb", "endless", "failing", "garbled")}
        web = httpx.AsyncClient(base_url="http://api", transport=httpx.MockTransport(answer))
        app = Server.from_openapi(described(paths=paths), web, max_answer=1_000_000)
        async with Client(app) as client:
            for name, why in (
                ("bomb", "more than 1,000,000 bytes"),
                ("endless", "more than 1,000,000 bytes"),
                ("failing", "answered 500"),
                ("garbled", "not JSON"),
            ):
                with pytest.raises(ToolError, match=why):
                    await client.call_tool(name)

    asyncio.run(main())
    assert sent < 3_000_000


def failing_api() -> fastapi.FastAPI:
    api = fastapi.FastAPI()

    @api.get("/give/{status}")
    async def give(status: int, limit: int = 1) -> str:
        if status == 0:
            await asyncio.sleep(30)
        if status == 1:
            return "x" * 100_000
        raise fastapi.HTTPException(status, "because")

    return api


@pytest.mark.parametrize("era", ERAS)
def test_a_resource_says_what_the_api_refused(era: Any) -> None:
    """As a tool does, with the error that fits; what is nobody's business stays in the log."""
    busy, absent = (-32603, -32602) if era == "stateless" else (-32000, -32002)
    expected = {
        "404": (absent, "GET /give/{status} answered 404 Not Found: .*because"),
        "410": (absent, "Resource not found: api://give/410 .*answered 410 Gone"),
        "400": (-32602, "GET /give/{status} answered 400 Bad Request: .*because"),
        "403": (-32600, "GET /give/{status} answered 403 Forbidden: .*because"),
        "429": (busy, "GET /give/{status} answered 429 Too Many Requests"),
        "418": (-32603, "answered 418"),
        "500": (-32603, "GET /give/{status} answered 500 Internal Server Error: .*because"),
        "0": (-32603, "GET /give/{status} was not answered: ReadTimeout$"),
        "1": (-32603, "answered with more than 50,000 bytes"),
        "many": (-32602, "answered 422 Unprocessable"),
    }

    async def main() -> None:
        api = failing_api()
        options: Any = {
            "rules": [OpenApiRule("resource")],
            "max_answer": 50_000,
            "names": {"GET /give/{status}": "give"},
        }
        async with served(api) as url, httpx.AsyncClient(base_url=url, timeout=0.5) as web:
            app = Server.from_openapi(api.openapi(), web, **options)
            async with Client(app, mode=era) as client:
                for status, (code, words) in expected.items():
                    with pytest.raises(PeerError, match=words.replace("{", "\\{").rstrip("$")) as caught:
                        await client.read_resource(f"api://give/{status}")
                    assert caught.value.code == code, status
                    assert caught.value.not_found is (code == absent and status in ("404", "410")), status
                    assert url not in str(caught.value)

    asyncio.run(main())


def test_a_value_that_cannot_be_sent_is_an_invalid_param_of_a_resource() -> None:
    refusal = refusal_of(ToolError("GET /x: an argument of the path is empty; give it a value"), "api://x/")
    assert (refusal.code, refusal.data) == (-32602, None)
    assert "give it a value" in refusal.message


@pytest.mark.parametrize("identity", ["same", "x" * 60 + "%04d"], ids=["one id", "ids that begin alike"])
def test_a_name_is_found_at_once_however_many_operations_have_it(identity: str) -> None:
    """Each pair of them took a step: a document of 160 KB took seconds."""
    names = Names({})
    count = 20_000
    before = time.process_time()
    for number in range(count):
        shared = identity % (number % (count // 2)) if "%" in identity else identity
        names.name(SimpleNamespace(identity=shared, place="", method="GET", path="/a"))  # type: ignore[arg-type]
    assert time.process_time() - before < 10.0
    assert len(names._taken) == count


def read(said: dict[str, Any], schemas: dict[str, Any]) -> Operation:
    document = Document(described(paths={"/x": {"get": said}}, components={"schemas": schemas}))
    return read_operation(document, Schemas(document), *next(document.operations()))


def test_schemas_whose_names_are_alike_are_numbered_in_a_step_each() -> None:
    """`!` and `#` are no characters of a name of ours, so all of these have one name."""
    count = 5000
    names = ["S" + f"{number:013b}".replace("0", "!").replace("1", "#") for number in range(count)]
    choices = [{"$ref": COMPONENT + name} for name in names]
    said = {"parameters": [{"name": "p", "in": "query", "schema": {"anyOf": choices}}]}
    before = time.process_time()
    schema = read(said, {name: {"type": "string"} for name in names}).input_schema
    assert time.process_time() - before < 5.0
    alike = "S" + "_" * 13
    assert set(schema["$defs"]) == {alike, *(f"{alike}_{number}" for number in range(2, count + 1))}


def test_each_of_many_parameters_takes_a_step() -> None:
    count = 50_000
    before = time.process_time()
    operation = read({"parameters": [{"name": f"p{number}", "in": "query"} for number in range(count)]}, {})
    assert time.process_time() - before < 5.0
    assert len(operation.parameters) == count


@pytest.mark.parametrize("before", ["", "a", "ab"])
@pytest.mark.parametrize("character", ["é", "語", "\N{OIL DRUM}"])
def test_a_long_refusal_is_cut_between_characters(before: str, character: str) -> None:
    operation, response = SimpleNamespace(place="GET /x"), SimpleNamespace(status_code=422)
    response.content = (before + character * 5000).encode()
    with pytest.raises(ApiFailed) as failure:
        refuse_failure(operation, response)  # type: ignore[arg-type]
    shown = failure.value.message.partition(": ")[2]
    assert shown.endswith("…")
    assert before + character * 5000 == shown[:-1] + character * (5001 - len(shown) + len(before))
    assert len(shown) >= 2000
