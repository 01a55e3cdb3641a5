"""Resources that are fixed, that have variables, that take a whole path, and that take a query."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server

app = Server("files")


@app.resource("config://settings", mime_type="application/json")
def settings() -> dict[str, object]:
    """The settings of this server."""
    return {"theme": "dark", "language": "en"}


@app.resource("docs://{name}")
def document(name: str) -> str:
    """One document, by its name."""
    return f"The text of {name}."


@app.resource("files://{path*}")
def file(path: str) -> str:
    """A file, however deep it lies."""
    return path


@app.resource("search://all{?words,limit}")
def search(words: str = "", limit: int = 3) -> str:
    """What was found."""
    return f"the first {limit} for {words!r}"


@app.resource("logo://small", mime_type="image/png")
def logo() -> bytes:
    """A picture: bytes go out as base64."""
    return b"\x89PNG"


async def main() -> None:
    """Read each of them."""
    async with Client(app) as client:
        print([resource.uri for resource in await client.list_resources()])
        print((await client.read_resource("config://settings")).text)
        print((await client.read_resource("docs://readme")).text)
        print((await client.read_resource("files://a/b/c.txt")).text)
        print((await client.read_resource("search://all?words=cats&limit=5")).text)
        print((await client.read_resource("logo://small")).blob)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# ['config://settings', 'logo://small']
# {"theme":"dark","language":"en"}
# The text of readme.
# a/b/c.txt
# the first 5 for 'cats'
# b'\x89PNG'
