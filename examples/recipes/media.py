"""Pictures, sound and files as results, and a result with everything in it."""

from __future__ import annotations

import asyncio

from ferrule import Audio, Client, File, Image, Server, ToolResult

app = Server("gallery")

PNG, WAV = b"\x89PNG\r\n\x1a\n" + bytes(8), b"RIFF\x00\x00\x00\x00WAVEfmt "


@app.tool
def thumbnail() -> Image:
    """Draw something small."""
    return Image(PNG)


@app.tool
def chime() -> Audio:
    """Make a sound."""
    return Audio(WAV)


@app.tool
def report() -> list[str | File]:
    """Write a report."""
    return ["the numbers:", File(b"city,sunshine\nRome,2473\n", name="report.csv")]


@app.tool
def measure() -> ToolResult:
    """Measure a picture: text for the model, data for the program, and something for the host."""
    return ToolResult("2 by 3 pixels", {"width": 2, "height": 3}, meta={"example.org/camera": "x100"})


async def main() -> None:
    """Look at what a client gets."""
    async with Client(app) as client:
        for tool in ("thumbnail", "chime"):
            (block,) = (await client.call_tool(tool)).content
            print(block.mime_type, len(block.data))
        text, file = (await client.call_tool("report")).content
        print(text.text, file.resource.text.splitlines())
        result = await client.call_tool("measure")
        print(result.text, result.structured_content, result.meta["example.org/camera"])


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# image/png 24
# audio/wav 24
# the numbers: ['city,sunshine', 'Rome,2473']
# 2 by 3 pixels {'width': 2, 'height': 3} x100
