"""A client for scripts and notebooks, without async, and all that a result can hold."""

from __future__ import annotations

from ferrule import Server, SyncClient
from ferrule.schema.content import ResourceLink, TextContent

app = Server("results")


@app.tool
def numbers() -> dict[str, int]:
    """Give structured data."""
    return {"one": 1, "two": 2}


@app.tool
def mixed() -> list[TextContent | ResourceLink]:
    """Give content of several kinds."""
    return [TextContent("see also"), ResourceLink(uri="docs://more", name="more")]


def main() -> None:
    """Read results in each way."""
    with SyncClient(app) as client:
        result = client.call_tool("numbers")
        print(result.data, result.structured_content == result.data)
        for block in client.call_tool("mixed").content:
            match block:
                case TextContent(text=text):
                    print(f"text: {text}")
                case ResourceLink(uri=uri, name=name):
                    print(f"link: {name} at {uri}")


if __name__ == "__main__":
    main()

# It prints:
# {'one': 1, 'two': 2} True
# text: see also
# link: more at docs://more
