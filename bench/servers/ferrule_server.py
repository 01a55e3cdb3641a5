"""Contestant: Ferrule, through its public names only."""

from catalogue import STATIC_TEXT, STATIC_URI, extra_tools, options

from ferrule import Server

chosen = options()
app = Server("bench", version="1")


@app.tool
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@app.tool
def add_sync(a: int, b: int) -> int:
    """Add two integers in a plain function."""
    return a + b


@app.tool
async def echo(text: str) -> str:
    """Give the text back."""
    return text


@app.resource(STATIC_URI)
async def static() -> str:
    """A text that never changes."""
    return STATIC_TEXT


for tool in extra_tools(chosen.tools):
    app.add_tool(tool)

app.run(chosen.transport)
