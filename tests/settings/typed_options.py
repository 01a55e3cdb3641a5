"""Options as programs write them; a line that a type checker must refuse says so. Checked, never run."""

from __future__ import annotations

from ferrule import Client, Context, Graphql, Http, Server, Stdio, SyncClient, Tcp, Unix, WebSocket
from ferrule.testing.client_pair import pair

app = Server("typed", page_size=50, tool_timeout=3.0, versions=["2025-11-25"], include_tags={"a"})
Server("typed", page_sise=50)  # wrong: call-arg
Server("typed", page_size="50")  # wrong: arg-type
Server("typed", error_profile="loose")  # wrong: arg-type


@app.tool(timeout=3, tags={"a"}, annotations={"readOnlyHint": True}, task=True)
def good() -> str:
    return ""


@app.tool(tiemout=3)  # wrong: call-overload untyped-decorator
def bad() -> str:
    return ""


@app.tool("named", title="Named")
def named() -> str:
    return ""


@app.resource("notes://{id}", mime_type="text/plain")
def note(id: str) -> str:  # noqa: A002  the word users know
    return id


@app.resource("notes://today", mimetype="text/plain")  # wrong: call-arg
def today() -> str:
    return ""


@app.prompt(title="Review")
def review(language: str) -> str:
    return language


@app.prompt(tilte="Review")  # wrong: call-overload untyped-decorator
def other_review(language: str) -> str:
    return language


app.add_tool(good, name="second", max_concurrent=4)
app.add_tool(good, tiemout=3)  # wrong: call-arg
app.add_tool(good, timeout="3s")  # wrong: arg-type
app.add_resource("a://b", good, ttl=5)
app.add_resource("a://b", good, tll=5)  # wrong: call-arg
app.add_prompt(good, description="…")
app.add_prompt(good, descripton="…")  # wrong: call-arg
app.page("ui://page", "<!doctype html>", prefers_border=True)
app.page("ui://page", "<!doctype html>", prefer_border=True)  # wrong: call-overload
app.skills("skills", watch=None)
app.skills("skills", wach=None)  # wrong: call-arg

app.run()
app.run(grace=2)
app.run("http", host="127.0.0.1", port=8000, allowed_hosts=["a"], websocket={"path": "/ws"})
app.run(transport="http", prot=8000)  # wrong: call-overload
app.run("http", port="8000")  # wrong: call-overload
app.run("http", websocket={"pth": "/ws"})  # wrong: call-overload
app.run("streamable-http", response="json")
app.run("sse", path="/events")
app.run("ws", port=8000, max_connections=5)
app.run("ws", framing="line")  # wrong: call-overload
app.run("graphql", port=4000, max_depth=5)
app.run("graphql", max_dept=5)  # wrong: call-overload
app.run("tcp", port=5000, framing="auto")
app.run("unix", path="/run/mcp.sock")
app.asgi("/mcp", response="json", websocket=True)
app.asgi(path="/mcp", port=8000)  # wrong: call-arg

Http(port=8000, certificate=None)
Http(prot=8000)  # wrong: call-arg
WebSocket(port=8000, compression=True)
WebSocket(compresion=True)  # wrong: call-arg
Graphql(introspection=True, max_connections=5)
Graphql(introspekt=True)  # wrong: call-arg
Tcp(port=5000, idle_timeout=None)
Tcp(prot=5000)  # wrong: call-arg
Unix("/run/mcp.sock", mode=0o660)
Unix("/run/mcp.sock", moed=0o660)  # wrong: call-arg
Stdio(grace=1.0)
Stdio(garce=1.0)  # wrong: call-arg

client = Client("https://example.com/mcp", tool_timeout=3, http={"pool_size": 4}, roots=[])
Client("https://example.com/mcp", tiemout=3)  # wrong: call-arg
Client("https://example.com/mcp", http={"pool_sise": 4})  # wrong: arg-type
Client("https://example.com/mcp", mode="newest")  # wrong: arg-type
SyncClient("https://example.com/mcp", request_timeout=None, elicitation=None)
SyncClient("https://example.com/mcp", tiemout=3)  # wrong: call-arg
pair(app, "stateless", strict=False)
pair(app, "stateless", strit=False)  # wrong: call-arg


async def serve() -> None:
    await app.run_async("tcp", port=5000)
    await app.run_async("tcp", prot=5000)  # wrong: call-overload


async def ask(ctx: Context) -> None:
    await ctx.sample("hi", temperature=0.5)
    await ctx.sample("hi", temprature=0.5)  # wrong: call-arg
