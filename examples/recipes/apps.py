"""A tool with a page that hosts show beside its results."""

from __future__ import annotations

import asyncio

from ferrule import Client, Server
from ferrule.schema.apps import APPS, PAGE_TYPE, ui_of

app = Server("clock")
app.page("ui://clock/face", "<!DOCTYPE html><title>Clock</title><p>12:00</p>")


@app.tool(ui="ui://clock/face")
def now() -> dict[str, str]:
    """Tell the time."""
    return {"time": "12:00"}


async def main() -> None:
    """Be a host that shows pages."""
    async with Client(app, extensions={APPS: {"mimeTypes": [PAGE_TYPE]}}) as host:
        (tool,) = await host.list_tools()
        ui = ui_of(tool)
        assert ui is not None
        assert ui.resource_uri is not None
        print(f"{tool.name} is shown by {ui.resource_uri}")
        print((await host.read_resource(ui.resource_uri)).text)
        print((await host.call_tool("now")).data)


if __name__ == "__main__":
    asyncio.run(main())

# It prints:
# now is shown by ui://clock/face
# <!DOCTYPE html><title>Clock</title><p>12:00</p>
# {'time': '12:00'}
